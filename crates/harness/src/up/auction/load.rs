//! The load of the demonstration: persons who walk the auction, and requests for its files and its JSON. Their rates rise by turns
//! above what one server can serve. That is measured first, so nodes move on a machine of any speed.
//! A site with `rates` has those instead; the auction's are of persons who come.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderValue, Uri};
use sidelong_config::Site;
use sidelong_trace::{Sizes, Workload, Zipf};
use sidelong_workload::client::{Arrivals, ClientConfig, Cue, Generator, Load, Shot, Source, Step, Stream};
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
/// Rates of files and of JSON at rest and when they rise, for [`SESSIONS`] persons, as a part of what one server serves.
const FILES_OF_SERVED: [f64; 2] = [0.1, 2.5];
const API_OF_SERVED: [f64; 2] = [0.15, 1.8];
/// Persons for whom the rates above are.
const SESSIONS: f64 = 50.0;
/// How long, and by how many connections at a time, a server is measured at one kind of request.
const MEASURED_FOR: Duration = Duration::from_secs(1);
const MEASURED_BY: u32 = 8;
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

/// The source of requests to the sites beside the auction, none of which need be there.
pub(in crate::up) struct Neighbours(Vec<Neighbour>);

#[derive(Clone)]
struct Neighbour {
    /// Its index among all sites.
    index: usize,
    host: HeaderValue,
    /// Its files; `None` for that of the JSON.
    files: Option<Workload>,
    steps: Vec<Step>,
}

impl Neighbours {
    /// For sites without rates it measures what `server` serves, a server of all sites.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub(in crate::up) fn new(
        sites: &[Site],
        server: Option<SocketAddr>,
        sessions: u32,
    ) -> Result<Self, Failure> {
        let mut found = Vec::new();
        for (index, site) in sites.iter().enumerate() {
            let sizes = Sizes::Fixed { bytes: FILE_BYTES };
            let (files, of_served) = match site.name.as_str() {
                FILES => {
                    let zipf = Zipf::new(site.alpha.unwrap_or(ALPHA), OBJECTS, sizes, SEED)?;
                    (Some(Workload::Zipf(zipf)), FILES_OF_SERVED)
                }
                API => (None, API_OF_SERVED),
                _ => continue,
            };
            let host = HeaderValue::try_from(&site.hosts[0])?;
            let mut neighbour = Neighbour { index, host, files, steps: Vec::new() };
            neighbour.steps = match rates(site) {
                Some(steps) => steps,
                None => {
                    let served = neighbour.served_per_s(sites, server)?;
                    neighbour.turns(of_served.map(|part| part * served * f64::from(sessions) / SESSIONS))
                }
            };
            found.push(neighbour);
        }
        Ok(Neighbours(found))
    }

    /// How its requests come to the edges.
    pub(in crate::up) fn config(&self, sites: &[Site], edges: &[SocketAddr]) -> ClientConfig {
        let mut streams: Vec<_> =
            self.0.iter().map(|neighbour| Stream::poisson(neighbour.steps.clone())).collect();
        if streams.is_empty() {
            streams.push(Stream::poisson(vec![Step { at: Duration::ZERO, per_s: 0.0 }]));
        }
        let load =
            Load::Open { arrivals: Arrivals::Streams { streams, seed: SEED }, in_flight_max: IN_FLIGHT_MAX };
        ClientConfig::new(edges.to_vec(), names(sites), load)
    }
}

impl Source for Neighbours {
    fn shot(&self, cue: Cue) -> Shot {
        self.0[cue.stream].shot(cue.nth)
    }
}

impl Neighbour {
    fn shot(&self, nth: u64) -> Shot {
        let path = match &self.files {
            None => format!("/api/items?category={}", nth % CATEGORIES + 1),
            Some(files) => {
                let object = files.object(nth);
                format!("/o/{}/{}", object.id, object.bytes)
            }
        };
        // Numbers in a path always form a URI.
        Shot::get(self.index, self.host.clone(), Uri::try_from(path).unwrap_or_default())
    }

    /// Rates in requests/s, which rise while those of the other kind rest.
    fn turns(&self, [rest, risen]: [f64; 2]) -> Vec<Step> {
        let per_s = |turn| if (turn % 2 == 0) == self.files.is_some() { risen } else { rest };
        (0..TURNS).map(|turn| Step { at: TURN * turn, per_s: per_s(turn) }).collect()
    }

    /// What a server serves of its requests each second.
    fn served_per_s(&self, sites: &[Site], server: Option<SocketAddr>) -> Result<f64, Failure> {
        let name = &sites[self.index].name;
        let remedy = format!("give site {name} rates");
        let server = server.ok_or_else(|| {
            Failure::new(format!(
                "no node has one port for all sites, at which to measure a server: {remedy}"
            ))
        })?;
        let load = Load::Closed { connections_per_edge: MEASURED_BY, think: Duration::ZERO };
        let config = ClientConfig {
            duration_max: Some(MEASURED_FOR),
            ..ClientConfig::new(vec![server], names(sites), load)
        };
        let requests = self.clone();
        let measured = Generator::new(config, move |cue: Cue| requests.shot(cue.nth))?.start()?.wait()?;
        match measured.requests_per_s {
            0.0 => Err(Failure::new(format!(
                "{server} answers no request to site {name}: see its log, or {remedy}"
            ))),
            served => Ok(served),
        }
    }
}

fn names(sites: &[Site]) -> Vec<String> {
    sites.iter().map(|site| site.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use sidelong_config::RateEntry;

    use super::*;

    fn sites(file: &sidelong_config::ClusterFile) -> Vec<Site> {
        file.cluster().unwrap().sites.values().cloned().collect()
    }

    #[test]
    fn a_site_with_rates_has_those_in_place_of_the_demonstration_s() {
        let mut file = super::super::cluster().unwrap();
        let edges = [SocketAddr::from(([127, 0, 0, 1], 8081))];
        let sessions =
            |file: &sidelong_config::ClusterFile| persons(&sites(file), &edges, 5).unwrap().1.sessions;
        assert!(matches!(sessions(&file), Sessions::Closed { count: 5 }));
        let rate = RateEntry { at: Duration::ZERO, per_s: 7.0 };
        file.sites.iter_mut().for_each(|site| site.rates = vec![rate]);
        assert!(matches!(sessions(&file), Sessions::Open { .. }));
        let sites = sites(&file);
        let config = Neighbours::new(&sites, None, 5).unwrap().config(&sites, &edges);
        let Load::Open { arrivals: Arrivals::Streams { streams, .. }, .. } = config.load else {
            panic!("the load is open");
        };
        assert_eq!(streams.iter().map(|stream| stream.steps.len()).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(streams[1].steps[0].per_s, 7.0);
    }

    #[test]
    fn rates_rise_by_turns_above_what_a_server_serves() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                // One at a time: at most 500/s.
                thread::sleep(Duration::from_millis(2));
                let _ = client.read(&mut [0; 1024]);
                let _ =
                    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        let sites = sites(&super::super::cluster().unwrap());
        let Neighbours(found) = Neighbours::new(&sites, Some(server), 25).unwrap();
        let [files, api] = &found[..] else { panic!("the auction has two neighbours") };
        let turn = |neighbour: &Neighbour, turn: usize| neighbour.steps[turn].per_s;
        assert!(turn(files, 0) > 0.0 && turn(files, 0) <= 2.5 * 500.0 / 2.0, "{}", turn(files, 0));
        assert_eq!(turn(files, 0), turn(files, 2));
        let times = |risen: f64, rest: f64| (risen / rest).round();
        assert_eq!(times(turn(files, 0), turn(files, 1)), 25.0);
        assert_eq!(times(turn(api, 1), turn(api, 0)), 12.0);

        let without = Neighbours::new(&sites, None, 25).map(|_| ()).unwrap_err().0;
        assert!(without.ends_with("give site files rates"), "{without}");
    }
}
