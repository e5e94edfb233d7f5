//! How fast a node answers, and so how long its queue lasts.
//!
//! What a node does in a second shows while requests wait for it: all its workers then work, and each answer that
//! succeeds counts. Until it has been seen so its own mean time of service says. An answer that failed counts for
//! nothing: a node that fails fast has a long queue here, not a short one.

use sidelong_layout::{Hot, valid};

use crate::reconfigure::NodeView;

/// What was seen counts e-fold less after this time in which requests waited.
const MEMORY_S: f64 = 0.5;
/// What the node says of itself counts as so many answers that were seen.
const PRIOR: f64 = 4.0;

/// One node, from look to look.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Drain {
    last: Option<Last>,
    /// Answers, and the seconds in which they were given, while requests waited.
    answers: f64,
    seconds: f64,
    now: Option<Now>,
}

/// The record of the last look.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Last {
    generation: u32,
    time_ns: u64,
    served: u64,
    is_full: bool,
}

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Now {
    /// Answers in a second while all workers work.
    pub(super) rate: f64,
    pub(super) workers: u16,
    /// Requests that wait for a worker.
    pub(super) queued: u32,
}

impl Now {
    /// How long a request that comes now waits.
    pub(super) fn delay_s(&self) -> f64 {
        f64::from(self.queued) / self.rate
    }
}

impl Drain {
    pub(super) fn now(&self) -> Option<&Now> {
        self.now.as_ref()
    }

    pub(super) fn see(&mut self, view: &NodeView) {
        self.now = None;
        let Some(hot) = view.load.filter(|hot| hot.valid & valid::ORIGIN != 0 && hot.workers > 0) else {
            self.last = None;
            return;
        };
        // Either count may lag, neither invents.
        let outstanding = hot.busy.saturating_add(hot.queued).max(view.in_flight);
        let queued = outstanding.saturating_sub(u32::from(hot.workers));
        let last = Last {
            generation: hot.generation,
            time_ns: hot.time_ns,
            served: hot.served,
            is_full: hot.queued > 0,
        };
        match self.last.replace(last) {
            Some(before) if before.generation != last.generation => {
                (self.answers, self.seconds) = (0.0, 0.0);
            }
            Some(before) if before.is_full && before.time_ns < last.time_ns => {
                let passed_ns = last.time_ns - before.time_ns;
                // Workers that had a queue do not run dry within a service time. Then those looks count, too, at which the
                // queue had just been taken from: without them a node would seem slower than it is.
                if !last.is_full && passed_ns > u64::from(hot.service_us) * 1_000 {
                    return self.judge(&hot, queued);
                }
                let seconds = passed_ns as f64 / 1e9;
                let kept = MEMORY_S / (MEMORY_S + seconds);
                self.answers = kept * self.answers + last.served.saturating_sub(before.served) as f64;
                self.seconds = kept * self.seconds + seconds;
            }
            _ => {}
        }
        self.judge(&hot, queued);
    }

    fn judge(&mut self, hot: &Hot, queued: u32) {
        if hot.service_us == 0 {
            return;
        }
        let prior = f64::from(hot.workers) * 1e6 / f64::from(hot.service_us);
        let rate = (self.answers + PRIOR) / (self.seconds + PRIOR / prior);
        self.now = Some(Now { rate, workers: hot.workers, queued });
    }
}
