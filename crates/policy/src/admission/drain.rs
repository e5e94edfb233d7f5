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
    record: Option<Last>,
    traffic: Last,
    /// Answers in a second by what the node last said of itself.
    prior: Option<f64>,
    /// Answers, and the seconds in which they were given, while requests waited.
    answers: f64,
    seconds: f64,
    now: Option<Now>,
}

/// The last look: at the record, or at the traffic.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
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
        self.now = None;
        let workers = view.capacity.workers(view.load.as_ref());
        let traffic_before = self.traffic;
        self.traffic = Last {
            time_ns: traffic_before.time_ns.saturating_add(passed.as_nanos() as u64),
            served: traffic.answers,
            is_full: traffic.in_flight > workers,
            ..Last::default()
        };
        match view.load.filter(|hot| hot.valid & valid::ORIGIN != 0 && hot.workers > 0) {
            Some(hot) => {
                self.see_record(&hot);
                // The record and the edges count the same requests. Either may lag, neither invents.
                let outstanding = hot.busy.saturating_add(hot.queued).max(traffic.in_flight);
                self.judge(workers, outstanding, view.up);
            }
            None => {
                self.record = None;
                let service_s = f64::from(workers) * self.seconds / (self.answers + NEXT);
                self.count(traffic_before, self.traffic, service_s);
                self.judge(workers, traffic.in_flight, traffic.up);
            }
        }
    }

    fn see_record(&mut self, hot: &Hot) {
        let said = (hot.service_us > 0).then(|| f64::from(hot.workers) * 1e6 / f64::from(hot.service_us));
        self.prior = said.or(self.prior);
        let last = Last {
            generation: hot.generation,
            time_ns: hot.time_ns,
            served: hot.served,
            is_full: hot.queued > 0,
        };
        match self.record.replace(last) {
            Some(before) if before.generation != last.generation => {
                (self.answers, self.seconds, self.prior) = (0.0, 0.0, said);
            }
            Some(before) => self.count(before, last, f64::from(hot.service_us) / 1e6),
            None => {}
        }
    }

    /// Takes in what was answered between two looks, where requests waited all the while.
    fn count(&mut self, before: Last, last: Last, service_s: f64) {
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

    fn judge(&mut self, workers: u32, outstanding: u32, up: bool) {
        let rate = match self.prior {
            Some(prior) => (self.answers + PRIOR) / (self.seconds + PRIOR / prior),
            None if self.seconds > 0.0 => (self.answers + NEXT) / self.seconds,
            None => return,
        };
        self.now = up.then(|| Now { rate, workers, queued: outstanding.saturating_sub(workers) });
    }
}
