//! The summary that `sidelong up` prints at its end.

use serde::{Deserialize, Serialize};
use sidelong_figure::statistics::quantile;
use sidelong_workload::client::{ClientSummary, Errors};
use sidelong_workload::walk;

/// The whole run. The names give the units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// From the first success to the last.
    pub seconds: f64,
    /// Requests that ended.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the edges rejected, as the load saw it: answered with 503 and the reason, or closed at the door.
    pub rejected: u64,
    /// Rejected and failed requests by kind.
    pub errors_by_kind: Errors,
    /// Moves of nodes between sites.
    pub moves: u64,
    /// How long the latest moves took, 10,000 at most. `None` if there was none.
    pub move_ms: Option<Spread>,
    /// Successes each second.
    pub requests_per_s: f64,
    /// Mean response time.
    pub mean_ms: f64,
    /// Median response time.
    pub p50_ms: f64,
    /// 99th percentile of the response times.
    pub p99_ms: f64,
    /// The longest response time.
    pub max_ms: f64,
    /// 99th percentile of the delay of the load generator itself, which is part of the times above.
    pub lag_ms_p99: f64,
    /// Each site, in the order of the cluster file.
    pub sites: Vec<SiteSummary>,
    /// Each client address, if there are several.
    pub clients: Vec<ClientSummary>,
    /// Time from the first request of a burst to the first one that goes to a node which moved for it. `None` if none
    /// moved.
    pub step_to_first_request_ms: Option<Spread>,
    /// Requests that came to a node for a site which it did not serve, as the built-in origins saw it.
    pub misdirected: u64,
    /// CPU time, under the load, of the edges or of the proxies in their place.
    pub proxies_cpu_s: f64,
    /// CPU time of the fronts, under the load.
    pub fronts_cpu_s: f64,
    /// Each cache, in the order of the cluster file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheSummary>,
    /// The load on the caches, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_load: Option<CacheLoad>,
    /// What the persons of a demonstration did, by interaction; the figures above include them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<walk::Summary>,
}

/// The figures of one cache, over all lives of its process. `None` is what its `stats` do not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSummary {
    /// Its name.
    pub name: String,
    /// Keys that it was asked for.
    pub gets: u64,
    /// Keys that it answered with a value, from its own memory or another's.
    pub hits: u64,
    /// Keys that it answered with a value that it read from the memory of another.
    pub neighbour_hits: Option<u64>,
    /// Keys that it did not find.
    pub misses: u64,
    /// Items that it was to store.
    pub sets: u64,
    /// Commands that it sent on to a key's home.
    pub forwarded: Option<u64>,
    /// Reads of another's memory that failed.
    pub read_failures: Option<u64>,
    /// Items at the end, and their bytes.
    pub items: u64,
    /// See `items`.
    pub bytes: u64,
    /// Items that were evicted.
    pub evictions: u64,
}

/// The load of `up --cache`, as its client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLoad {
    /// Keys that were asked for.
    pub gets: u64,
    /// Keys whose value was there.
    pub hits: u64,
    /// Keys for which another value was there than was stored.
    pub wrong: u64,
    /// Gets and sets without an answer, or answered with an error.
    pub failed: u64,
}

impl CacheLoad {
    /// Adds another part of it.
    pub fn add(&mut self, other: &CacheLoad) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.wrong += other.wrong;
        self.failed += other.failed;
    }
}

/// The figures of one site.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSummary {
    /// Its name.
    pub name: String,
    /// Requests that ended.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests of all clients that the edges rejected, as the edges count them.
    pub rejected: u64,
    /// Successes each second.
    pub requests_per_s: f64,
    /// Median response time.
    pub p50_ms: f64,
    /// 99th percentile of the response times.
    pub p99_ms: f64,
    /// The longest response time.
    pub max_ms: f64,
    /// Requests of the load that the edges rejected.
    pub load_rejected: u64,
    /// Median time until the load knew of a rejection.
    pub rejection_ms_p50: f64,
    /// 99th percentile of the same.
    pub rejection_ms_p99: f64,
    /// Nodes that serve it at the end.
    pub nodes: usize,
}

/// The distribution of some times, in ms.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// The distribution of `times_ms`. `None` if it is empty.
    pub fn of(mut times_ms: Vec<f64>) -> Option<Spread> {
        times_ms.sort_by(f64::total_cmp);
        let at = |q| quantile(&times_ms, q);
        Some(Spread { count: times_ms.len() as u64, p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The summary of one site that answered `requests` in `seconds`.
    fn summary(seconds: f64, requests: u64) -> Summary {
        let requests_per_s = requests as f64 / seconds;
        let site = SiteSummary {
            name: "a".into(),
            requests,
            errors: 0,
            rejected: 0,
            requests_per_s,
            p50_ms: 1.0,
            p99_ms: 2.0,
            max_ms: 3.0,
            load_rejected: 0,
            rejection_ms_p50: 0.0,
            rejection_ms_p99: 0.0,
            nodes: 3,
        };
        Summary {
            seconds,
            requests,
            errors: 0,
            rejected: 0,
            errors_by_kind: Errors::default(),
            moves: 0,
            move_ms: None,
            requests_per_s,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
            max_ms: 3.0,
            lag_ms_p99: 0.0,
            sites: vec![site],
            clients: Vec::new(),
            step_to_first_request_ms: Spread::of(vec![4.0, 2.0]),
            misdirected: 0,
            proxies_cpu_s: 0.5,
            fronts_cpu_s: 0.1,
            caches: Vec::new(),
            cache_load: None,
            walk: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_a_renamed_field_is_an_error() {
        let summary = summary(2.0, 100);
        let written = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&written).unwrap(), summary);
        let names = [
            "rejected",
            "mean_ms",
            "max_ms",
            "move_ms",
            "rejection_ms_p99",
            "load_rejected",
            "p50",
            "clients",
        ];
        for name in names {
            let renamed = written.replace(&format!("\"{name}\""), "\"renamed\"");
            assert_ne!(renamed, written);
            assert!(serde_json::from_str::<Summary>(&renamed).is_err(), "{name}");
        }
    }

    #[test]
    fn a_spread_is_of_what_there_is() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.count, spread.p50, spread.p99, spread.max), (3, 2.0, 3.0, 3.0));
        assert_eq!(Spread::of(vec![]), None);
    }
}
