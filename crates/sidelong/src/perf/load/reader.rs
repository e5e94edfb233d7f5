//! The side that looks: what an edge reads load with, for one node.

use std::time::{Duration, Instant};

use sidelong_layout::{Hot, valid};
use sidelong_load::{Limits, Reading, Scheme, Source, monotonic_ns};

use crate::failure::Failure;
use crate::parts::Parts;

/// A look waits this long for its answer: one of a CPU with 64 busy threads may take a good part of a second.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A record may be this old: what is measured is how old it gets.
const STALE: Duration = Duration::from_secs(30);
/// The first record must come within this.
const FIRST_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);

pub(super) struct Reader {
    source: Box<dyn Source + Send>,
    reading: Reading,
    scheme: Scheme,
}

/// What one look brought.
pub(super) struct Look {
    /// How long it took.
    pub(super) took: Duration,
    /// The record, where there is one to decide from.
    pub(super) hot: Option<Hot>,
}

impl Reader {
    /// Linked to the one node of `parts`, of which it has seen a record.
    pub(super) fn new(parts: &Parts) -> Result<Self, Failure> {
        let limits = Limits { stale: STALE, wait: WAIT_MAX, ..Limits::default() };
        let source = parts.source_within(limits)?;
        let mut reader = Reader { source, reading: Reading::default(), scheme: parts.scheme()?.scheme };
        let begun = Instant::now();
        while reader.look().hot.is_none() {
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

    /// The scheme that it reads by.
    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Kinds of interrupt that were raised and not yet served at the last look, by CPU; none where the record does not
    /// tell them.
    pub(super) fn pending(&self) -> impl Iterator<Item = u32> + '_ {
        self.source.cpus(0).iter().map(|cpu| cpu.pending)
    }

    pub(super) fn look(&mut self) -> Look {
        let begun = Instant::now();
        self.source.refresh(monotonic_ns(), std::slice::from_mut(&mut self.reading));
        Look { took: begun.elapsed(), hot: self.reading.fresh().copied() }
    }

    /// Threads that want a CPU by the record, but for the one that looks. /proc's are counted by a thread that leaves itself
    /// out, at a moment in which the one that looks sleeps; the kernel's own record has it, since both share a machine.
    pub(super) fn threads(&self, hot: &Hot) -> Option<u32> {
        if hot.valid & valid::RUN_QUEUE == 0 {
            return None;
        }
        let itself = u32::from(matches!(self.scheme, Scheme::RdmaSync | Scheme::ERdmaSync));
        Some(u32::from(hot.run_queue).saturating_sub(itself))
    }
}
