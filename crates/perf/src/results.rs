//! What `sidelong-lab perf` measures.

use std::fmt;

use serde::{Deserialize, Serialize};
use sidelong_figure::statistics::{mean, quantile};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// One-sided read.
    Read,
    /// One-sided write.
    Write,
    /// One-sided write that puts a notice into the target's inbox.
    WriteImm,
    /// Message to the target's inbox.
    Send,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    Faa,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 6] = [
        Operation::Read,
        Operation::Write,
        Operation::WriteImm,
        Operation::Send,
        Operation::Cas,
        Operation::Faa,
    ];

    /// The word on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::WriteImm => "write-imm",
            Operation::Send => "send",
            Operation::Cas => "cas",
            Operation::Faa => "faa",
        }
    }

    /// Whether a process of the target receives it.
    pub const fn is_two_sided(self) -> bool {
        matches!(self, Operation::Send | Operation::WriteImm)
    }

    /// Whether it is an atomic operation, which has 8 bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Operation::Cas | Operation::Faa)
    }

    /// The bytes that an operation of `bytes` moves: one-sided operations move whole words, messages do not.
    pub const fn bytes_moved(self, bytes: usize) -> usize {
        if matches!(self, Operation::Send) { bytes } else { bytes.next_multiple_of(8) }
    }
}

/// The fabric that carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PerfFabric {
    /// Memory of this machine.
    Shm,
    /// TCP, answered by a thread of the target.
    Tcp,
    /// RDMA: InfiniBand or RoCE.
    Verbs,
}

impl PerfFabric {
    /// The word on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            PerfFabric::Shm => "shm",
            PerfFabric::Tcp => "tcp",
            PerfFabric::Verbs => "verbs",
        }
    }
}

/// How a side waits for completions and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// Polling.
    Polling,
    /// Sleeping until an event.
    Events,
}

impl Completion {
    /// The word on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Completion::Polling => "polling",
            Completion::Events => "events",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for PerfFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The figures of one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// What was measured.
    pub operation: Operation,
    /// Whether the target answered each operation by one of its own. Times are then half of both.
    pub ping_pong: bool,
    /// The fabric.
    pub fabric: PerfFabric,
    /// The device that carried it, in words.
    pub device: String,
    /// How completions were waited for.
    pub completion: Completion,
    /// Operations in one batch, each on a region of its own.
    pub peers: u32,
    /// Bytes of each operation, as asked for.
    pub bytes: u64,
    /// Bytes moved for each operation: whole words, except for messages.
    pub bytes_moved: u64,
    /// Busy threads on the target's CPU.
    pub background: u32,
    /// The CPU that the target was pinned to.
    pub target_cpu: Option<usize>,
    /// The CPU that the measuring side was pinned to.
    pub initiator_cpu: Option<usize>,
    /// How fast it was.
    #[serde(flatten)]
    pub speed: Speed,
    /// Operations that were measured.
    pub operations: u64,
    /// CPU time of the measuring side for each operation, in ns. `None` if the number of batches was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_cpu_ns: Option<f64>,
    /// CPU time of the target's process for each operation, in ns. It includes rewriting the records each millisecond, and
    /// excludes the background threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cpu_ns: Option<f64>,
    /// Times that the inbox was full and a message was sent again.
    pub inbox_full: u64,
}

/// How fast it was: one of the two is measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Speed {
    /// Batches one after the other.
    Latency(Latency),
    /// Windows in flight.
    Bandwidth(Bandwidth),
}

/// Times of a batch, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// Mean.
    pub mean_ns: f64,
    /// Batches in each measured run, over which its time is averaged; 1 if each was timed by itself.
    pub batches_per_run: u32,
    /// Measured runs.
    pub runs: usize,
}

impl Latency {
    /// Statistics of runs of `batches_per_run` batches, whose times per batch in ns are `samples`.
    pub fn of(mut samples: Vec<f64>, batches_per_run: u32) -> Latency {
        samples.sort_by(f64::total_cmp);
        let at = |q| quantile(&samples, q).unwrap_or(0.0);
        Latency {
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: at(1.0),
            mean_ns: mean(&samples).unwrap_or(0.0),
            batches_per_run,
            runs: samples.len(),
        }
    }
}

/// Rates of a window.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Operations in flight.
    pub window: u32,
    /// Bytes moved each second.
    pub bytes_per_s: f64,
    /// Operations each second.
    pub operations_per_s: f64,
}

impl Figures {
    /// The times, where latency was measured.
    pub fn latency(&self) -> Option<&Latency> {
        match &self.speed {
            Speed::Latency(latency) => Some(latency),
            Speed::Bandwidth(_) => None,
        }
    }

    /// The rates, where bandwidth was measured.
    pub fn bandwidth(&self) -> Option<&Bandwidth> {
        match &self.speed {
            Speed::Latency(_) => None,
            Speed::Bandwidth(bandwidth) => Some(bandwidth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_seen() {
        let samples: Vec<f64> = (0..=1000).rev().map(f64::from).collect();
        let seen = Latency::of(samples, 1);
        assert_eq!((seen.p50_ns, seen.p99_ns, seen.p999_ns), (500.0, 990.0, 999.0));
        assert_eq!((seen.max_ns, seen.mean_ns, seen.runs), (1000.0, 500.0, 1001));
        assert_eq!(Latency::of(vec![7.0], 3).p999_ns, 7.0);
    }

    #[test]
    fn memory_moves_in_words_and_messages_do_not() {
        assert_eq!([1, 8, 9].map(|bytes| Operation::Read.bytes_moved(bytes)), [8, 8, 16]);
        assert_eq!([1, 8, 9].map(|bytes| Operation::Send.bytes_moved(bytes)), [1, 8, 9]);
    }

    #[test]
    fn what_is_written_is_read_and_a_renamed_field_is_an_error() {
        let mut figures = Figures {
            operation: Operation::Read,
            ping_pong: false,
            fabric: PerfFabric::Shm,
            device: "a device".into(),
            completion: Completion::Polling,
            peers: 1,
            bytes: 1,
            bytes_moved: 8,
            background: 0,
            target_cpu: Some(0),
            initiator_cpu: Some(1),
            speed: Speed::Latency(Latency::of(vec![20.0], 1)),
            operations: 1000,
            initiator_cpu_ns: Some(10.0),
            target_cpu_ns: Some(1.0),
            inbox_full: 0,
        };
        let written = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&written).unwrap(), figures);
        for name in ["operation", "p50_ns", "p999_ns", "operations", "inbox_full"] {
            let renamed = written.replace(&format!("\"{name}\""), "\"renamed\"");
            assert_ne!(renamed, written);
            assert!(serde_json::from_str::<Figures>(&renamed).is_err(), "{name}");
        }
        figures.speed = Speed::Bandwidth(Bandwidth { window: 4, bytes_per_s: 2e9, operations_per_s: 1e6 });
        let written = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&written).unwrap(), figures);
        for operation in Operation::ALL {
            assert_eq!(serde_json::to_value(operation).unwrap(), operation.as_str());
        }
    }
}
