//! The figures of a run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Response times, and how requests were answered, after warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    /// Number of responses by time: see [`cell`].
    cells: Vec<u64>,
    pub(crate) requests: u64,
    pub(crate) sum_ns: u128,
    pub(crate) here: u64,
    pub(crate) last_ns: u64,
    pub(crate) remote_ns: u128,
    pub(crate) remote: u64,
}

/// The longest response time that is recorded exactly, in ns: an hour.
const RESPONSE_NS_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a response time.
const DIGITS: u8 = 2;
/// Significant bits: two more than the digits need, as in the histogram, whose cells these are.
const CELL_BITS: u32 = 8;

/// The cell of a time. Its width is that of the second digit.
#[inline]
fn cell(ns: u64) -> usize {
    let shift = (u64::BITS - CELL_BITS).saturating_sub(ns.leading_zeros());
    ((shift as usize) << (CELL_BITS - 1)) + (ns >> shift) as usize
}

/// The cell of all longer times.
#[cold]
fn too_long() -> usize {
    cell(RESPONSE_NS_MAX)
}

/// The shortest time of a cell.
fn shortest_ns(cell: usize) -> u64 {
    let shift = (cell >> (CELL_BITS - 1)).saturating_sub(1);
    ((cell - (shift << (CELL_BITS - 1))) as u64) << shift
}

impl Measures {
    pub(crate) fn new() -> Self {
        // As many cells as the histogram has, which rounds up.
        let cells = vec![0; cell(RESPONSE_NS_MAX.next_power_of_two() - 1) + 1];
        Measures { cells, requests: 0, sum_ns: 0, here: 0, last_ns: 0, remote_ns: 0, remote: 0 }
    }

    #[inline]
    pub(crate) fn answered(&mut self, came_ns: u64, done_ns: u64) {
        let response_ns = done_ns - came_ns;
        let cell = Some(cell(response_ns)).filter(|cell| *cell < self.cells.len());
        self.cells[cell.unwrap_or_else(too_long)] += 1;
        self.requests += 1;
        self.sum_ns += u128::from(response_ns);
        self.last_ns = self.last_ns.max(done_ns);
    }

    /// The response times.
    pub(crate) fn responses(&self) -> Histogram<u64> {
        let mut responses =
            Histogram::new_with_max(RESPONSE_NS_MAX, DIGITS).expect("bounds and digits are constants");
        for (cell, count) in self.cells.iter().enumerate().filter(|(_, count)| **count > 0) {
            responses.saturating_record_n(shortest_ns(cell), *count);
        }
        responses
    }

    /// Records the time that a request waited for another node.
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
    /// Mean time in ms that requests waited for another node, disks included, over the requests that needed one.
    pub remote_ms_mean: f64,
    /// Requests answered in a second of simulated time.
    pub requests_per_s: f64,
    /// Share of the requests that were answered from the node's own memory at once.
    pub here_rate: f64,
    /// Disk reads for each request.
    pub disk_rate: f64,
    /// One-sided reads for each request.
    pub read_rate: f64,
    /// Share of the one-sided reads that failed.
    pub read_failure_rate: f64,
    /// Messages for each request that only keep references up to date.
    pub update_messages_per_request: f64,
    /// Bytes for each request that keep references up to date.
    pub update_bytes_per_request: f64,
    /// Share of the time in which parts of the nodes were busy, as a mean over the nodes.
    pub cpu_busy: f64,
    /// See `cpu_busy`.
    pub nic_busy: f64,
    /// See `cpu_busy`.
    pub port_busy: f64,
    /// See `cpu_busy`.
    pub disk_busy: f64,
    /// Events and arrivals, warm-up included.
    pub events: u64,
    /// Objects and references in all nodes' tables.
    pub table_entries: u64,
    /// Memory of all nodes' tables, for each object or reference in them, in bytes.
    pub table_bytes_per_entry: f64,
}

/// A figure of an [`Outcome`]: a column of `rows.csv`.
type Figure = (&'static str, fn(&Outcome) -> f64);

/// All figures, in the order of their columns.
pub(crate) const FIGURES: [Figure; 18] = [
    ("requests", |of| of.requests as f64),
    ("response_ms_mean", |of| of.response_ms_mean),
    ("response_ms_p50", |of| of.response_ms_p50),
    ("response_ms_p99", |of| of.response_ms_p99),
    ("remote_ms_mean", |of| of.remote_ms_mean),
    ("requests_per_s", |of| of.requests_per_s),
    ("here_rate", |of| of.here_rate),
    ("disk_rate", |of| of.disk_rate),
    ("read_rate", |of| of.read_rate),
    ("read_failure_rate", |of| of.read_failure_rate),
    ("update_messages_per_request", |of| of.update_messages_per_request),
    ("update_bytes_per_request", |of| of.update_bytes_per_request),
    ("cpu_busy", |of| of.cpu_busy),
    ("nic_busy", |of| of.nic_busy),
    ("port_busy", |of| of.port_busy),
    ("disk_busy", |of| of.disk_busy),
    ("events", |of| of.events as f64),
    ("table_bytes_per_entry", |of| of.table_bytes_per_entry),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_cells_are_the_histogram_s() {
        let mut measures = Measures::new();
        let mut plain = Histogram::<u64>::new_with_max(RESPONSE_NS_MAX, DIGITS).unwrap();
        let mut random = 1u64;
        for i in 0..50_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ns = (random >> (20 + i % 44)).min(2 * RESPONSE_NS_MAX);
            measures.answered(7, 7 + ns);
            plain.saturating_record(ns);
        }
        for ns in [0, 1, 127, 128, 255, 256, 257, 511, 512, RESPONSE_NS_MAX, RESPONSE_NS_MAX + 1] {
            measures.answered(0, ns);
            plain.saturating_record(ns);
        }
        assert!(measures.responses() == plain);
    }
}
