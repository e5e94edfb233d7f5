//! How fast a node answers, and so how long its queue takes to drain.
//!
//! A node's speed shows while requests wait for it: all its workers are busy, and each successful answer counts. Until
//! this has been observed, the node's own mean service time is used. Failed answers do not count, so a node that fails
//! fast has a long queue here, not a short one.
//!
//! If a node's record does not report its queue, the same is derived from the edges' requests in flight and answers:
//! requests beyond the number of workers are waiting. The queue is known once there were that many requests, and is
//! controlled from then on.

use std::time::Duration;

use sidelong_layout::{Hot, valid};

use crate::cluster::{NodeView, Traffic};

/// Observations decay by a factor of e in this time, counted while requests wait.
const MEMORY_S: f64 = 0.5;
/// The node's own figure counts as much as this many observed answers.
const PRIOR: f64 = 4.0;
/// For a node without its own figure, one answer is assumed now: only a long silence makes it slow.
const NEXT: f64 = 1.0;

/// Longest wait that is told apart, in seconds: a day. A record may claim any queue, and a wait must fit a [`Duration`].
const DELAY_S_MAX: f64 = 86_400.0;

/// One node, between scans.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Drain {
    /// From its record, and from outside. Each has its own memory: while a machine is suspended its records grow old,
    /// and what the edges then observe says nothing about the node after it resumes.
    record: Seen,
    traffic: Seen,
    /// Answers per second by the node's own last figure.
    prior: Option<f64>,
    now: Option<Now>,
}

/// The state of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Now {
    /// Answers per second while all workers are busy.
    pub(super) rate: f64,
    pub(super) workers: u32,
    /// Requests that wait for a worker.
    pub(super) queued: u32,
}

impl Now {
    /// How long a request sent now waits, up to [`DELAY_S_MAX`].
    pub(super) fn delay_s(&self) -> f64 {
        (f64::from(self.queued) / self.rate).min(DELAY_S_MAX)
    }
}

impl Drain {
    pub(super) fn now(&self) -> Option<&Now> {
        self.now.as_ref()
    }

    /// Takes a scan, at the given time since the previous one.
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
                // The record and the edges count the same requests. Either may lag; neither counts too many.
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
        let service_us = f64::from(hot.service_us().unwrap_or(0));
        let said = (service_us > 0.0).then(|| f64::from(hot.workers) * 1e6 / service_us);
        self.prior = said.or(self.prior);
        if self.record.last.is_some_and(|before| before.generation != last.generation) {
            // A new life is judged anew.
            (self.record, self.traffic, self.prior) = (Seen::default(), Seen::default(), said);
        }
        self.record.see(last, service_us / 1e6);
    }

    fn judge(&mut self, seen: Seen, workers: u32, outstanding: u32, up: bool) {
        let queued = outstanding.saturating_sub(workers);
        self.now = seen.rate(self.prior).filter(|_| up).map(|rate| Now { rate, workers, queued });
    }
}

/// Answers given while requests waited.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Seen {
    last: Option<Last>,
    answers: f64,
    /// The time in which they were given.
    seconds: f64,
}

/// The last scan.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Last {
    generation: u32,
    time_ns: u64,
    served: u64,
    is_full: bool,
}

impl Seen {
    /// Counts the answers since the last scan, if requests waited all the time.
    fn see(&mut self, last: Last, service_s: f64) {
        let Some(before) = self.last.replace(last) else { return };
        if !before.is_full || before.time_ns >= last.time_ns {
            return;
        }
        let seconds = (last.time_ns - before.time_ns) as f64 / 1e9;
        // Workers with a queue do not run dry within a service time. So scans that find a queue just emptied count too;
        // without them a node would appear slower than it is.
        if !last.is_full && seconds > service_s {
            return;
        }
        let kept = MEMORY_S / (MEMORY_S + seconds);
        self.answers = kept * self.answers + last.served.saturating_sub(before.served) as f64;
        self.seconds = kept * self.seconds + seconds;
    }

    /// Answers per second, if known.
    fn rate(&self, prior: Option<f64>) -> Option<f64> {
        match prior {
            Some(prior) => Some((self.answers + PRIOR) / (self.seconds + PRIOR / prior)),
            None => (self.seconds > 0.0).then(|| (self.answers + NEXT) / self.seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_record_claims_the_wait_is_a_duration() {
        let now = Now { rate: 5e-11, workers: 1, queued: u32::MAX };
        assert!(
            Duration::try_from_secs_f64(now.delay_s()).is_ok_and(|wait| wait > Duration::from_secs(3600))
        );
    }
}
