//! How fast a node answers, and so how long its queue lasts.
//!
//! What a node does in a second shows while requests wait for it: all its workers then work, and each answer that
//! succeeds counts. Until it has been seen so its own mean time of service says. An answer that failed counts for
//! nothing: a node that fails fast has a long queue here, not a short one.
//!
//! Of a node whose record says nothing of its queue the same is found from outside, by what the edges have there and see
//! answered: what it has beyond its workers waits. It is known once it has had so much, and guarded from then on.

use std::time::Duration;

use sidelong_layout::{Hot, valid};

use super::Traffic;
use crate::reconfigure::NodeView;

/// What was seen counts e-fold less after this time in which requests waited.
const MEMORY_S: f64 = 0.5;
/// What the node says of itself counts as so many answers that were seen.
const PRIOR: f64 = 4.0;
/// Of a node that never said it, one answer is taken to come just now: slow is who does not answer for long.
const NEXT: f64 = 1.0;

/// One node, from look to look.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Drain {
    /// By its record, and from outside. Each has its own memory: while a machine stands still records grow old, and what
    /// the edges then see says nothing of the node once it is back.
    record: Seen,
    traffic: Seen,
    /// Answers in a second by what the node last said of itself.
    prior: Option<f64>,
    now: Option<Now>,
}

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Now {
    /// Answers in a second while all workers work.
    pub(super) rate: f64,
    pub(super) workers: u32,
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

    /// A look, so long after the one before.
    pub(super) fn see(&mut self, view: &NodeView, traffic: &Traffic, passed: Duration) {
        let workers = view.capacity.workers(view.load.as_ref());
        let passed_ns = passed.as_nanos() as u64;
        let time_ns = self.traffic.last.map_or(0, |last| last.time_ns.saturating_add(passed_ns));
        let service_s = f64::from(workers) * self.traffic.seconds / (self.traffic.answers + NEXT);
        let is_full = traffic.in_flight > workers;
        self.traffic.see(Last { generation: 0, time_ns, served: traffic.answers, is_full }, service_s);
        match view.load.filter(|hot| hot.valid & valid::ORIGIN != 0 && hot.workers > 0) {
            Some(hot) => {
                self.see_record(&hot);
                // The record and the edges count the same requests. Either may lag, neither invents.
                let outstanding = hot.busy.saturating_add(hot.queued).max(traffic.in_flight);
                self.judge(self.record, workers, outstanding, view.up);
            }
            None => {
                self.record.last = None;
                self.judge(self.traffic, workers, traffic.in_flight, traffic.up);
            }
        }
    }

    fn see_record(&mut self, hot: &Hot) {
        let last = Last {
            generation: hot.generation,
            time_ns: hot.time_ns,
            served: hot.served,
            is_full: hot.queued > 0,
        };
        let said = (hot.service_us > 0).then(|| f64::from(hot.workers) * 1e6 / f64::from(hot.service_us));
        self.prior = said.or(self.prior);
        if self.record.last.is_some_and(|before| before.generation != last.generation) {
            // Another life is judged anew.
            (self.record, self.traffic, self.prior) = (Seen::default(), Seen::default(), said);
        }
        self.record.see(last, f64::from(hot.service_us) / 1e6);
    }

    fn judge(&mut self, seen: Seen, workers: u32, outstanding: u32, up: bool) {
        let queued = outstanding.saturating_sub(workers);
        self.now = seen.rate(self.prior).filter(|_| up).map(|rate| Now { rate, workers, queued });
    }
}

/// What was answered while requests waited.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Seen {
    last: Option<Last>,
    answers: f64,
    /// In which they were given.
    seconds: f64,
}

/// The last look.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Last {
    generation: u32,
    time_ns: u64,
    served: u64,
    is_full: bool,
}

impl Seen {
    /// Takes in what was answered since the last look, if requests waited all the while.
    fn see(&mut self, last: Last, service_s: f64) {
        let Some(before) = self.last.replace(last) else { return };
        if !before.is_full || before.time_ns >= last.time_ns {
            return;
        }
        let seconds = (last.time_ns - before.time_ns) as f64 / 1e9;
        // Workers that had a queue do not run dry within a service time. Then those looks count, too, at which the
        // queue had just been taken from: without them a node would seem slower than it is.
        if !last.is_full && seconds > service_s {
            return;
        }
        let kept = MEMORY_S / (MEMORY_S + seconds);
        self.answers = kept * self.answers + last.served.saturating_sub(before.served) as f64;
        self.seconds = kept * self.seconds + seconds;
    }

    /// Answers in a second, where anything says it.
    fn rate(&self, prior: Option<f64>) -> Option<f64> {
        match prior {
            Some(prior) => Some((self.answers + PRIOR) / (self.seconds + PRIOR / prior)),
            None => (self.seconds > 0.0).then(|| (self.answers + NEXT) / self.seconds),
        }
    }
}
