//! The summary of a run, and the times from a load step to the first request on a moved node.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::results::{CacheLoad, CacheSummary, SiteSummary, Spread, Summary};
use sidelong_config::Cluster;
use sidelong_layout::SiteId;
use sidelong_workload::client::Summary as LoadSummary;
use sidelong_workload::walk;

use super::admissions::Admissions;
use sidelong_app::Monitor;

/// The summary of the run of `load` on `cluster`.
pub(super) fn summary(
    cluster: &Cluster,
    load: Option<LoadSummary>,
    monitor: &Monitor,
    moves: &Moves,
    admissions: &Admissions,
    steps: &StepTimes,
    last: Last,
) -> Summary {
    let sites = cluster.sites.entries().enumerate().map(|(index, (slot, site))| {
        let load = load.as_ref().map(|load| &load.sites[index]);
        let latency = load.map(|load| load.latency).unwrap_or_default();
        let rejection = load.map(|load| load.rejection).unwrap_or_default();
        SiteSummary {
            name: site.name.clone(),
            requests: load.map_or(0, |load| load.requests),
            errors: load.map_or(0, |load| load.errors),
            rejected: admissions.rejected(index),
            requests_per_s: load.map_or(0.0, |load| load.requests_per_s),
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            max_ms: latency.max_ms,
            load_rejected: load.map_or(0, |load| load.rejected),
            rejection_ms_p50: rejection.p50_ms,
            rejection_ms_p99: rejection.p99_ms,
            nodes: monitor.serving(SiteId::new(slot)),
        }
    });
    let of = load.as_ref();
    let latency = of.map(|load| load.latency).unwrap_or_default();
    Summary {
        sites: sites.collect(),
        seconds: of.map_or(0.0, |load| load.seconds),
        requests: of.map_or(0, |load| load.requests),
        errors: of.map_or(0, |load| load.errors),
        rejected: of.map_or(0, |load| load.rejected),
        errors_by_kind: of.map(|load| load.errors_by_kind).unwrap_or_default(),
        moves: moves.count,
        move_ms: moves.took.spread(),
        requests_per_s: of.map_or(0.0, |load| load.requests_per_s),
        mean_ms: latency.mean_ms,
        p50_ms: latency.p50_ms,
        p99_ms: latency.p99_ms,
        max_ms: latency.max_ms,
        lag_ms_p99: of.map_or(0.0, |load| load.lag.p99_ms),
        clients: load.map_or_else(Vec::new, |load| load.clients),
        step_to_first_request_ms: steps.spread(),
        misdirected: last.misdirected,
        proxies_cpu_s: last.proxies_cpu.as_secs_f64(),
        fronts_cpu_s: last.fronts_cpu.as_secs_f64(),
        caches: last.caches,
        cache_load: last.cache_load,
        walk: last.walk,
    }
}

/// What is known once the parts have ended.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// Requests that came to nodes for sites which they did not serve.
    pub(super) misdirected: u64,
    /// CPU time under the load, of edges and proxies, and of fronts.
    pub(super) proxies_cpu: Duration,
    pub(super) fronts_cpu: Duration,
    /// What the caches did, and their load.
    pub(super) caches: Vec<CacheSummary>,
    pub(super) cache_load: Option<CacheLoad>,
    /// What the persons of a demonstration did.
    pub(super) walk: Option<walk::Summary>,
}

/// Most times of which the distribution is told: the latest.
const TIMES_MAX: usize = 10_000;

/// Times, in ms.
#[derive(Debug, Default)]
pub(super) struct Times(VecDeque<f64>);

impl Times {
    fn push(&mut self, time_ns: u64) {
        if self.0.len() == TIMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(time_ns as f64 / 1e6);
    }

    fn spread(&self) -> Option<Spread> {
        Spread::of(self.0.iter().copied().collect())
    }
}

/// Moves of nodes between sites.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) count: u64,
    took: Times,
}

impl Moves {
    /// A move took this long, from its mover's first operation to its last.
    pub(super) fn add(&mut self, took_ns: u64) {
        self.count += 1;
        self.took.push(took_ns);
    }
}

/// When bursts began, and how long each waited for its first new node.
#[derive(Clone, Debug)]
pub(super) struct StepTimes {
    sites: Arc<[String]>,
    inner: Arc<Mutex<Steps>>,
}

#[derive(Debug, Default)]
struct Steps {
    /// The site of the latest burst and its start, in ns of the monotonic clock, until a node has moved for it.
    begun: Option<(usize, u64)>,
    took: Times,
}

impl StepTimes {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let sites = cluster.sites.values().map(|site| site.name.clone()).collect();
        StepTimes { sites, inner: Arc::default() }
    }

    /// A burst for `site` begins, and with it any other's ends.
    pub(super) fn begin(&self, site: usize) {
        let now = sidelong_load::monotonic_ns();
        self.lock().begun = Some((site, now));
    }

    /// The first request went to a node that joined `site`.
    pub(super) fn first_request(&self, site: &str, at_ns: u64) {
        let mut steps = self.lock();
        // A request routed before the step belongs to an earlier one.
        let begun = steps.begun.filter(|(burst, begun)| self.sites[*burst] == site && *begun <= at_ns);
        if let Some((_, begun)) = begun {
            steps.begun = None;
            steps.took.push(at_ns - begun);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spread(&self) -> Option<Spread> {
        self.lock().took.spread()
    }
}
