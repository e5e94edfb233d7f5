//! The load of the demonstration: persons who walk the auction, and requests for its files and its JSON, whose rates rise by turns.
//! A site with `rates` has those instead; the auction's are of persons who come.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderValue, Uri};
use sidelong_config::Site;
use sidelong_trace::{Sizes, Workload, Zipf};
use sidelong_workload::client::{Arrivals, ClientConfig, Cue, Load, Shot, Source, Step, Stream};
use sidelong_workload::walk::{Sessions, WalkConfig};

use super::{API, AUCTION, FILE_BYTES, FILES, OBJECTS};
use sidelong_app::Failure;

/// Think times of the persons, as a part of RUBiS's 7 s: a few pages a second each few persons.
const THINK_FACTOR: f64 = 0.2;
/// Exponent of Zipf's law of the files, unless their site has one (Breslau et al., INFOCOM 1999).
const ALPHA: f64 = 0.9;
const SEED: u64 = 1;
/// How long a rate holds, and how many rates there are: a day's.
const TURN: Duration = Duration::from_secs(5);
const TURNS: u32 = 17_280;
/// Rates of files and of JSON at rest and when they rise, in requests/s for each person of the auction.
const FILES_PER_S: [f64; 2] = [0.2, 5.0];
const API_PER_S: [f64; 2] = [0.1, 1.2];
/// Most requests in flight, and most persons at a time where they come at a rate; further ones are dropped.
const IN_FLIGHT_MAX: u32 = 1024;
/// Categories of the auction (RUBiS).
const CATEGORIES: u64 = 20;

/// The persons of a cluster that has the auction.
///
/// # Errors
/// If it has not.
pub(in crate::up) fn persons(
    sites: &[Site],
    edges: &[SocketAddr],
    sessions: u32,
) -> Result<(usize, WalkConfig), Failure> {
    let index = sites.iter().position(|site| site.name == AUCTION);
    let index = index.ok_or_else(|| Failure::new("--demo auction: the cluster file has no site auction"))?;
    let host = HeaderValue::try_from(&sites[index].hosts[0])?;
    let sessions = match rates(&sites[index]) {
        Some(steps) => {
            let streams = vec![Stream::poisson(steps)];
            Sessions::Open { arrivals: Arrivals::Streams { streams, seed: SEED }, at_once_max: IN_FLIGHT_MAX }
        }
        None => Sessions::Closed { count: sessions },
    };
    let config = WalkConfig::new(edges.to_vec(), host, sessions);
    Ok((index, WalkConfig { think_factor: THINK_FACTOR, ..config }))
}

/// The rates of a site that has any.
fn rates(site: &Site) -> Option<Vec<Step>> {
    let steps = site.rates.iter().map(|rate| Step { at: rate.at, per_s: rate.per_s });
    (!site.rates.is_empty()).then(|| steps.collect())
}

/// The source of requests to the sites beside the auction.
pub(in crate::up) struct Neighbours {
    files: Workload,
    /// Each site that a stream is for: its index, its host, and whether it is that of the JSON.
    sites: Vec<(usize, HeaderValue, bool)>,
}

impl Neighbours {
    /// The source, and its configuration. In a cluster that has none of these sites it has no requests.
    pub(in crate::up) fn new(
        sites: &[Site],
        edges: &[SocketAddr],
        sessions: u32,
    ) -> Result<(Self, ClientConfig), Failure> {
        let mut found = Vec::new();
        let mut streams = Vec::new();
        let files = sites.iter().find(|site| site.name == FILES);
        let alpha = files.and_then(|site| site.alpha).unwrap_or(ALPHA);
        for (index, site) in sites.iter().enumerate() {
            let (is_api, [rest, risen]) = match site.name.as_str() {
                FILES => (false, FILES_PER_S),
                API => (true, API_PER_S),
                _ => continue,
            };
            found.push((index, HeaderValue::try_from(&site.hosts[0])?, is_api));
            let steps = (0..TURNS).map(|turn| Step {
                at: TURN * turn,
                per_s: f64::from(sessions) * if (turn % 2 == 1) == is_api { risen } else { rest },
            });
            streams.push(Stream::poisson(rates(site).unwrap_or_else(|| steps.collect())));
        }
        if streams.is_empty() {
            streams.push(Stream::poisson(vec![Step { at: Duration::ZERO, per_s: 0.0 }]));
        }
        let sizes = Sizes::Fixed { bytes: FILE_BYTES };
        let files = Workload::Zipf(Zipf::new(alpha, OBJECTS, sizes, SEED)?);
        let load =
            Load::Open { arrivals: Arrivals::Streams { streams, seed: SEED }, in_flight_max: IN_FLIGHT_MAX };
        let names = sites.iter().map(|site| site.name.clone()).collect();
        Ok((Neighbours { files, sites: found }, ClientConfig::new(edges.to_vec(), names, load)))
    }
}

impl Source for Neighbours {
    fn shot(&self, cue: Cue) -> Shot {
        let (site, host, is_api) = &self.sites[cue.stream];
        let path = match is_api {
            true => format!("/api/items?category={}", cue.nth % CATEGORIES + 1),
            false => {
                let object = self.files.object(cue.nth);
                format!("/o/{}/{}", object.id, object.bytes)
            }
        };
        // Numbers in a path always form a URI.
        Shot::get(*site, host.clone(), Uri::try_from(path).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use sidelong_config::RateEntry;

    use super::*;

    #[test]
    fn a_site_with_rates_has_those_in_place_of_the_demonstration_s() {
        let mut file = super::super::cluster().unwrap();
        let edges = [SocketAddr::from(([127, 0, 0, 1], 8081))];
        let sessions = |file: &sidelong_config::ClusterFile| {
            persons(&file.cluster().unwrap().sites, &edges, 5).unwrap().1.sessions
        };
        assert!(matches!(sessions(&file), Sessions::Closed { count: 5 }));
        let rate = RateEntry { at: Duration::ZERO, per_s: 7.0 };
        file.sites[0].rates = vec![rate];
        file.sites[2].rates = vec![rate];
        assert!(matches!(sessions(&file), Sessions::Open { .. }));
        let (_, config) = Neighbours::new(&file.cluster().unwrap().sites, &edges, 5).unwrap();
        let Load::Open { arrivals: Arrivals::Streams { streams, .. }, .. } = config.load else {
            panic!("the load is open");
        };
        let steps: Vec<_> = streams.iter().map(|stream| stream.steps.len()).collect();
        assert_eq!(steps, [TURNS as usize, 1]);
        assert_eq!(streams[1].steps[0].per_s, 7.0);
    }
}
