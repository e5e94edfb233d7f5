//! Servers, which events wait for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Time;

/// One server, first come, first served. A customer's service time is known on arrival, and so is its departure. So
/// there is no explicit queue.
///
/// Customers must arrive in order of time. Otherwise those that come later in the program wait for those that come
/// later in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Server {
    free_ns: u64,
    busy_ns: u64,
}

impl Server {
    /// Serves a customer for `service_ns`, after earlier ones, and returns when it leaves.
    #[inline]
    pub fn serve(&mut self, now: Time, service_ns: u64) -> Time {
        self.free_ns = self.free_ns.max(now.as_ns()) + service_ns;
        self.busy_ns += service_ns;
        Time::from_ns(self.free_ns)
    }

    /// When all customers so far will have been served.
    pub fn free_at(&self) -> Time {
        Time::from_ns(self.free_ns)
    }

    /// Total service time, in ns.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Several equal servers with one queue, first come, first served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// When each server is free.
    free_ns: Vec<u64>,
    busy_ns: u64,
}

impl Pool {
    /// A pool of `servers`.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(servers: usize) -> Self {
        assert!(servers > 0, "a pool has a server");
        Pool { free_ns: vec![0; servers], busy_ns: 0 }
    }

    /// Serves a customer for `service_ns` on the first free server, and returns when it leaves.
    #[inline]
    pub fn serve(&mut self, now: Time, service_ns: u64) -> Time {
        let (mut first, mut free_ns) = (0, u64::MAX);
        for (server, &at) in self.free_ns.iter().enumerate() {
            if at < free_ns {
                (first, free_ns) = (server, at);
            }
        }
        let done_ns = free_ns.max(now.as_ns()) + service_ns;
        self.free_ns[first] = done_ns;
        self.busy_ns += service_ns;
        Time::from_ns(done_ns)
    }

    /// Total service time of all servers, in ns.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// One server that all customers share equally (processor sharing).
///
/// The next departure depends on arrivals before it. So after each arrival and departure, the driver schedules an event
/// at [`Shared::next`] that carries [`Shared::turn`], and ignores events with an old turn.
#[derive(Clone, Debug, Default)]
pub struct Shared<C> {
    /// Service in ns that a customer present from the start would have got.
    served_ns: f64,
    /// When that was.
    as_of: Time,
    /// Customers by the value of `served_ns` at which they leave; simultaneous ones in order of arrival.
    present: BinaryHeap<Reverse<Leaver<C>>>,
    turn: u64,
}

#[derive(Clone, Debug)]
struct Leaver<C> {
    at_ns: f64,
    turn: u64,
    customer: C,
}

impl<C> Shared<C> {
    /// A customer arrives that needs `service_ns`.
    pub fn arrive(&mut self, now: Time, service_ns: u64, customer: C) {
        self.advance(now);
        let at_ns = self.served_ns + service_ns as f64;
        self.turn += 1;
        self.present.push(Reverse(Leaver { at_ns, turn: self.turn, customer }));
    }

    /// When the next customer leaves, if none arrives before.
    pub fn next(&self) -> Option<Time> {
        let Reverse(first) = self.present.peek()?;
        let left_ns = (first.at_ns - self.served_ns).max(0.0) * self.present.len() as f64;
        Some(self.as_of.after_ns(left_ns.ceil() as u64))
    }

    /// Changes with each arrival and departure.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The next customer leaves; `now` is [`Shared::next`].
    pub fn leave(&mut self, now: Time) -> Option<C> {
        self.advance(now);
        let Reverse(first) = self.present.pop()?;
        self.turn += 1;
        // Corrects the rounding to a ns.
        self.served_ns = first.at_ns;
        Some(first.customer)
    }

    /// Number of customers.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether there is no customer.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    fn advance(&mut self, now: Time) {
        if !self.present.is_empty() {
            let past_ns = now.as_ns() - self.as_of.as_ns();
            self.served_ns += past_ns as f64 / self.present.len() as f64;
        } else {
            // A sum that restarts keeps its precision.
            self.served_ns = 0.0;
        }
        self.as_of = now;
    }
}

impl<C> Ord for Leaver<C> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at_ns.total_cmp(&other.at_ns).then(self.turn.cmp(&other.turn))
    }
}

impl<C> PartialOrd for Leaver<C> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> PartialEq for Leaver<C> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<C> Eq for Leaver<C> {}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn one_server_serves_in_turn_and_rests_between() {
        let mut server = Server::default();
        assert_eq!(server.serve(at(10), 5), at(15));
        assert_eq!(server.serve(at(12), 5), at(20));
        assert_eq!(server.serve(at(30), 1), at(31));
        assert_eq!((server.free_at(), server.busy_ns()), (at(31), 11));
    }

    #[test]
    fn a_pool_gives_the_server_that_is_free_first() {
        let mut pool = Pool::new(2);
        let done: Vec<_> = [10, 2, 3, 3].map(|service| pool.serve(at(0), service).as_ns()).into();
        assert_eq!(done, [10, 2, 5, 8]);
        assert_eq!(pool.busy_ns(), 18);
    }

    #[test]
    fn who_shares_is_slowed_by_who_is_there() {
        let mut shared = Shared::default();
        shared.arrive(at(0), 100, 'a');
        assert_eq!(shared.next(), Some(at(100)));
        // At 50, a has 50 left; b needs 20 and gets them at half the speed.
        shared.arrive(at(50), 20, 'b');
        assert_eq!(shared.next(), Some(at(90)));
        assert_eq!(shared.leave(at(90)), Some('b'));
        assert_eq!(shared.next(), Some(at(120)));
        assert_eq!(shared.leave(at(120)), Some('a'));
        assert!(shared.is_empty() && shared.next().is_none());
    }
}
