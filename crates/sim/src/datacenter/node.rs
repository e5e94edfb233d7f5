//! A node: workers with a queue, a record as old as its keeper makes it, and periodic reads of its own word.

use sidelong_layout::{Ack, ByServer, Hot, valid};
use sidelong_policy::index::Capacity;
use sidelong_state::NodeAgent;

use crate::Time;
use crate::engine::Pool;

pub(super) struct Node {
    pool: Pool,
    pub(super) capacity: Capacity,
    /// Factor of its service time.
    factor: f64,
    /// Requests in service and queued.
    outstanding: u32,
    /// Answers so far.
    served: u64,
    /// Both at its keeper's last publication, and the number of that period.
    published: (u32, u64, u64),
    service_us: u32,
    period_ns: u64,
    /// Start of its periods: keepers are not in step.
    phase_ns: u64,
    agent: NodeAgent,
    /// Whether it is scheduled to read its word.
    pub(super) is_to_look: bool,
}

impl Node {
    pub(super) fn new(workers: u32, factor: f64, service_ns: f64, period_ns: u64, phase_ns: u64) -> Node {
        Node {
            pool: Pool::new(workers as usize),
            capacity: Capacity { workers, speed: (1.0 / factor) as f32, ..Capacity::default() },
            factor,
            outstanding: 0,
            served: 0,
            published: (0, 0, 0),
            service_us: (service_ns * factor / 1e3) as u32,
            period_ns,
            phase_ns,
            agent: NodeAgent::new(),
            is_to_look: false,
        }
    }

    /// A request arrives that takes an ordinary node `service_ns`; returns when it is done.
    pub(super) fn arrive(&mut self, now: Time, service_ns: f64) -> Time {
        self.publish_if_due(now);
        self.outstanding += 1;
        self.pool.serve(now, self.service_ns(service_ns))
    }

    /// Its service time, given an ordinary node's.
    pub(super) fn service_ns(&self, service_ns: f64) -> u64 {
        (service_ns * self.factor) as u64
    }

    /// One is done.
    pub(super) fn leave(&mut self, now: Time) {
        self.publish_if_due(now);
        self.outstanding -= 1;
        self.served += 1;
    }

    /// Requests that arrived.
    #[cfg(test)]
    pub(super) fn came(&self) -> u64 {
        self.served + u64::from(self.outstanding)
    }

    /// Its record as others read it, which covers only its requests.
    pub(super) fn record(&self, now: Time) -> Hot {
        // The state of the last publication, if it has changed since.
        let (outstanding, served) = match self.published {
            (outstanding, served, period) if self.period(now) <= period => (outstanding, served),
            _ => (self.outstanding, self.served),
        };
        let workers = self.capacity.workers;
        let busy = outstanding.min(workers);
        Hot {
            valid: valid::ORIGIN,
            workers: workers as u16,
            busy,
            queued: outstanding - busy,
            served,
            by_server: ByServer::service_us(self.service_us),
            time_ns: (self.phase_ns + self.period(now) * self.period_ns).saturating_sub(self.period_ns),
            ..Hot::default()
        }
    }

    /// Reads its word; returns the acknowledgement to store, if any.
    pub(super) fn observe(&mut self, word: u64) -> Option<Ack> {
        self.agent.observe(word, self.outstanding)
    }

    /// When its keeper runs next.
    pub(super) fn next_period(&self, now: Time) -> Time {
        Time::from_ns(self.phase_ns + self.period(now) * self.period_ns)
    }

    fn publish_if_due(&mut self, now: Time) {
        let period = self.period(now);
        if period > self.published.2 {
            self.published = (self.outstanding, self.served, period);
        }
    }

    /// Number of the keeper's runs, 0 before the first.
    fn period(&self, now: Time) -> u64 {
        match now.as_ns().checked_sub(self.phase_ns) {
            Some(passed) => 1 + passed / self.period_ns,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[test]
    fn a_record_is_as_old_as_its_keeper_lets_it_be() {
        let mut node = Node::new(2, 1.0, 5e6, 1_000_000, 300_000);
        assert_eq!(node.arrive(at(100), 5e6), at(5_100));
        assert_eq!(node.record(at(200)).busy, 0, "before the keeper ran");
        assert_eq!((node.record(at(300)).busy, node.next_period(at(300))), (1, at(1_300)));
        node.arrive(at(400), 5e6);
        assert_eq!(node.arrive(at(400), 5e6), at(10_100));
        assert_eq!(node.record(at(1_299)).busy, 1);
        let hot = node.record(at(1_300));
        assert_eq!((hot.busy, hot.queued, hot.workers), (2, 1, 2));
        node.leave(at(5_100));
        assert_eq!(node.record(at(5_200)).queued, 1, "as of 4.3 ms");
        let hot = node.record(at(5_300));
        assert_eq!((hot.queued, hot.served, hot.time_ns), (0, 1, 5_300_000));
    }

    #[test]
    fn a_slow_node_says_so() {
        let mut node = Node::new(1, 2.0, 5e6, 1_000_000, 0);
        assert_eq!(node.arrive(at(0), 5e6), at(10_000));
        assert!((node.capacity.speed - 0.5).abs() < 1e-6);
    }
}
