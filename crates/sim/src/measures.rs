//! What a run comes to.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Response times, and how requests were answered, after warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    pub(crate) responses: Histogram<u64>,
    pub(crate) sum_ns: u128,
    pub(crate) here: u64,
    pub(crate) last_ns: u64,
    pub(crate) remote_ns: u128,
    pub(crate) remote: u64,
}

/// The longest response time that is told apart from longer ones, in ns: an hour.
const RESPONSE_NS_MAX: u64 = 3_600_000_000_000;

impl Measures {
    pub(crate) fn new() -> Self {
        let responses = Histogram::new_with_max(RESPONSE_NS_MAX, 2).expect("bounds and digits are constants");
        Measures { responses, sum_ns: 0, here: 0, last_ns: 0, remote_ns: 0, remote: 0 }
    }

    #[inline]
    pub(crate) fn answered(&mut self, came_ns: u64, done_ns: u64) {
        let response_ns = done_ns - came_ns;
        self.responses.saturating_record(response_ns);
        self.sum_ns += u128::from(response_ns);
        self.last_ns = self.last_ns.max(done_ns);
    }

    /// Time that a request waited for another node.
    #[inline]
    pub(crate) fn fetched(&mut self, waited_ns: u64) {
        self.remote_ns += u128::from(waited_ns);
        self.remote += 1;
    }
}

/// The figures of a run, after warm-up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests that were answered.
    pub requests: u64,
    /// From a request's arrival at its node until the node has answered it, in ms: mean, median, 99th percentile (both
    /// to 1 %).
    pub response_ms_mean: f64,
    /// See `response_ms_mean`.
    pub response_ms_p50: f64,
    /// See `response_ms_mean`.
    pub response_ms_p99: f64,
    /// Of requests that another node had to help with, the time that they waited for it, in ms (disks included).
    pub remote_ms_mean: f64,
    /// Requests answered in a second of simulated time.
    pub requests_per_s: f64,
    /// Part of the requests that were answered from the node's own memory at once.
    pub here_rate: f64,
    /// Disk reads for each request.
    pub disk_rate: f64,
    /// One-sided reads for each request.
    pub read_rate: f64,
    /// Part of the one-sided reads that failed.
    pub read_failure_rate: f64,
    /// Messages for each request that only keep references up to date.
    pub update_messages_per_request: f64,
    /// Bytes for each request that keep references up to date.
    pub update_bytes_per_request: f64,
    /// Part of the time that parts of the nodes were busy, in the mean over nodes.
    pub cpu_busy: f64,
    /// See `cpu_busy`.
    pub nic_busy: f64,
    /// See `cpu_busy`.
    pub port_busy: f64,
    /// See `cpu_busy`.
    pub disk_busy: f64,
    /// Events and arrivals, warm-up included.
    pub events: u64,
    /// Memory of all nodes' tables, for each object or reference in them, in bytes.
    pub table_bytes_per_entry: f64,
}
