//! The sampling side: what an edge uses to read load, for one node.

use std::time::{Duration, Instant};

use sidelong_app::Parts;
use sidelong_layout::{Hot, valid};
use sidelong_load::{Limits, Reading, Scheme, Source, monotonic_ns};

use sidelong_app::Failure;

/// Longest wait for a sample: a CPU with 64 busy threads may need a good part of a second.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Age limit of a record. It is long, because ages are what is measured.
const STALE: Duration = Duration::from_secs(30);
/// Longest wait for the first record.
const FIRST_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);

pub(super) struct Reader {
    source: Box<dyn Source + Send>,
    reading: Reading,
    scheme: Scheme,
}

/// One sample.
pub(super) struct Sample {
    /// The time that it took.
    pub(super) took: Duration,
    /// The record, if it is fresh.
    pub(super) hot: Option<Hot>,
}

impl Reader {
    /// A reader linked to the one node of `parts`, whose record it has seen.
    pub(super) fn new(parts: &Parts) -> Result<Self, Failure> {
        let limits = Limits { stale: STALE, wait: WAIT_MAX, ..Limits::default() };
        let source = parts.source_within(limits)?;
        let mut reader = Reader { source, reading: Reading::default(), scheme: parts.scheme()?.scheme };
        let begun = Instant::now();
        while reader.sample().hot.is_none() {
            if begun.elapsed() > FIRST_MAX {
                let problem = reader.source.problem(0).unwrap_or("it publishes none");
                return Err(Failure(format!(
                    "no record of the node within {} s: {problem}",
                    FIRST_MAX.as_secs()
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(reader)
    }

    /// The scheme by which it reads.
    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Kinds of interrupt that were pending at the last sample, by CPU; empty if the record does not tell.
    pub(super) fn pending(&self) -> impl Iterator<Item = u32> + '_ {
        self.source.cpus(0).iter().map(|cpu| cpu.pending)
    }

    pub(super) fn sample(&mut self) -> Sample {
        let begun = Instant::now();
        self.source.refresh(monotonic_ns(), std::slice::from_mut(&mut self.reading));
        Sample { took: begun.elapsed(), hot: self.reading.fresh().copied() }
    }

    /// Threads that want a CPU by the record, without the sampling one. The thread that counts those of /proc leaves
    /// itself out, and the sampling one sleeps then. The kernel's own record includes it, because both share a machine.
    pub(super) fn threads(&self, hot: &Hot) -> Option<u32> {
        if hot.valid & valid::RUN_QUEUE == 0 {
            return None;
        }
        let itself = u32::from(matches!(self.scheme, Scheme::RdmaSync | Scheme::ERdmaSync));
        Some(u32::from(hot.run_queue).saturating_sub(itself))
    }
}
