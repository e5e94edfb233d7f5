//! The load of a cluster file: objects of a trace or synthetic ones, in bursts over the sites in turn (Balaji et al. 2004,
//! 4.3.1), or for each site at its own rates.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Uri};
use sidelong_config::{Cluster, LoadMode, RateEntry, Site, Workload, WorkloadKind};
use sidelong_trace::{Sizes, Trace, Zipf};
use sidelong_workload::client::{
    Arrivals, ClientConfig, Cue, Load, Shot, Source, Step, Stream, loopback_client,
};
use tokio::time::Instant;

use super::Listener;
use super::outcome::StepTimes;
use sidelong_app::Failure;

/// Most requests of an open loop that are in flight; further ones are counted as dropped.
const IN_FLIGHT_MAX: u32 = 4096;

/// The source of the load's requests.
pub(super) struct Bursts {
    workload: Workload,
    /// Of each site.
    objects: Vec<sidelong_trace::Workload>,
    bursts: sidelong_trace::Bursts,
    hosts: Vec<HeaderValue>,
    /// One for each site with rates of its own, and the site's index.
    streams: Vec<Stream>,
    asked: Vec<usize>,
    steps: StepTimes,
    /// The latest burst that has begun, counted from 0, and when its first request may be sent.
    begun: Mutex<Option<(u64, Instant)>>,
}

impl Bursts {
    /// Reports the start of each burst to `steps`.
    pub(super) fn new(workload: &Workload, sites: &[Site], steps: StepTimes) -> Result<Self, Failure> {
        let one = |alpha: Option<f64>| -> Result<_, Failure> {
            Ok(match workload.kind {
                WorkloadKind::SingleFile => {
                    sidelong_trace::Workload::SingleFile { bytes: workload.file_bytes }
                }
                WorkloadKind::Zipf => {
                    let objects = u32::try_from(workload.objects).unwrap_or(u32::MAX);
                    let sizes = Sizes::Fixed { bytes: workload.file_bytes };
                    sidelong_trace::Workload::Zipf(Zipf::new(
                        alpha.unwrap_or(workload.alpha),
                        objects,
                        sizes,
                        workload.seed,
                    )?)
                }
                WorkloadKind::Trace => {
                    let trace = match &workload.trace {
                        Some(path) => {
                            let (trace, broken) = Trace::load(path)?;
                            if broken.broken > 0 {
                                tracing::warn!("{}: {broken}", path.display());
                            }
                            trace
                        }
                        None => sidelong_trace::sample(),
                    };
                    sidelong_trace::Workload::Trace(Arc::new(trace))
                }
            })
        };
        // Sites with the same popularity share their tables.
        let (shared, is_zipf) = (one(None)?, workload.kind == WorkloadKind::Zipf);
        let objects: Result<Vec<_>, Failure> = (sites.iter())
            .map(|site| if is_zipf && site.alpha.is_some() { one(site.alpha) } else { Ok(shared.clone()) })
            .collect();
        let objects = objects?;
        let burst = NonZero::new(workload.burst)
            .ok_or_else(|| Failure::new("workload.burst is 0: expected at least 1 request"))?;
        let count = NonZero::new(sites.len())
            .ok_or_else(|| Failure::new("the cluster has no site: expected at least one [[site]]"))?;
        let host = |site: &Site| HeaderValue::from_str(&site.hosts[0]);
        let hosts: Result<_, _> = sites.iter().map(host).collect();
        let with_rates = || sites.iter().enumerate().filter(|(_, site)| !site.rates.is_empty());
        let step = |rate: &RateEntry| Step { at: rate.at, per_s: rate.per_s };
        let streams = with_rates().map(|(_, site)| Stream::poisson(site.rates.iter().map(step).collect()));
        Ok(Bursts {
            workload: workload.clone(),
            objects,
            bursts: sidelong_trace::Bursts::new(burst, count),
            hosts: hosts?,
            streams: streams.collect(),
            asked: with_rates().map(|(index, _)| index).collect(),
            steps,
            begun: Mutex::new(None),
        })
    }

    pub(super) fn client_config(&self, cluster: &Cluster, listeners: &[Listener]) -> ClientConfig {
        let edges: Vec<_> = listeners.iter().map(|listener| listener.address).collect();
        let is_by_site = listeners.iter().any(|listener| listener.is_of_site);
        let sites = cluster.sites.values().map(|site| site.name.clone()).collect();
        let seed = self.workload.seed;
        let open = |arrivals| Load::Open { arrivals, in_flight_max: IN_FLIGHT_MAX };
        let load = match (self.workload.mode, self.workload.rate) {
            (LoadMode::Open, Some(per_s)) => open(Arrivals::Poisson { per_s, seed }),
            (LoadMode::Open, None) => open(Arrivals::Streams { streams: self.streams.clone(), seed }),
            (LoadMode::Closed, _) => {
                Load::Closed { connections_per_edge: self.workload.clients_per_edge, think: Duration::ZERO }
            }
        };
        ClientConfig {
            requests_max: self.workload.requests,
            duration_max: self.workload.duration,
            timeout: self.workload.timeout,
            clients: (0..self.workload.addresses).map(loopback_client).collect(),
            may_be_closed: cluster.has_admission(),
            is_edge_of_site: is_by_site,
            // A node is chosen for a connection.
            keep_alive: !is_by_site,
            ..ClientConfig::new(edges, sites, load)
        }
    }
}

impl Source for Bursts {
    fn shot(&self, cue: Cue) -> Shot {
        let (site, index) = match self.asked.get(cue.stream) {
            Some(site) => (*site, cue.nth),
            None => {
                let site = self.bursts.site(cue.index);
                if cue.index.is_multiple_of(self.workload.burst) {
                    self.steps.begin(site);
                }
                (site, cue.index)
            }
        };
        let object = self.objects[site].object(index);
        let path = format!("/o/{}/{}", object.id, object.bytes);
        // Two numbers in a path always form a URI.
        let uri = Uri::try_from(path).unwrap_or_default();
        Shot::get(site, self.hosts[site].clone(), uri)
    }

    /// A pause before each burst except the first. The first request of a burst sets the time for all of it.
    fn not_before(&self, index: u64) -> Option<Instant> {
        if self.workload.pause.is_zero() {
            return None;
        }
        let burst = index / self.workload.burst;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        match *begun {
            Some((latest, time)) if latest >= burst => (latest == burst).then_some(time),
            None => {
                *begun = Some((burst, Instant::now()));
                None
            }
            Some(_) => {
                let time = Instant::now() + self.workload.pause;
                *begun = Some((burst, time));
                Some(time)
            }
        }
    }
}
