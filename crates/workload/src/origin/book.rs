//! The virtual workers: when each becomes free, and what waits for them.
//!
//! Tokio's timers tick in milliseconds. If a worker became free when a timer fires, a service time of 2.5 ms would last
//! 3 ms or more and a saturated origin would serve a quarter less than it should. So the next request starts when the
//! *book* says that its worker is free, however late the timer was, and in the long run the rate is exact.
//!
//! The book is pure: times are nanoseconds since an epoch of the caller's, passed in, and never run backwards.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The workers of one origin.
#[derive(Debug)]
pub(super) struct Book {
    /// When each worker is free, the earliest first; always one entry for each worker.
    free_at: BinaryHeap<Reverse<u64>>,
    /// When each waiting request starts, in order: starts never decrease, as requests are taken first come, first served.
    starts: VecDeque<u64>,
    depth_max: usize,
}

/// One request's place, in ns since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Booking {
    pub(super) start: u64,
    pub(super) finish: u64,
}

/// There is no room to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// Time until the earliest worker has finished all that waits already, in ns.
    pub(super) wait: u64,
}

impl Book {
    /// `workers` idle workers, at least one.
    pub(super) fn new(workers: u32, depth_max: u32) -> Self {
        assert!(workers > 0, "a book without workers");
        Book {
            free_at: (0..workers).map(|_| Reverse(0)).collect(),
            starts: VecDeque::new(),
            depth_max: depth_max as usize,
        }
    }

    /// Gives a request that arrives at `now` and takes `service` to the worker that is free first.
    pub(super) fn book(&mut self, now: u64, service: u64) -> Result<Booking, Full> {
        while self.starts.front().is_some_and(|&start| start <= now) {
            self.starts.pop_front();
        }
        let Some(mut earliest) = self.free_at.peek_mut() else { return Err(Full { wait: 0 }) };
        let start = earliest.0.max(now);
        if start > now {
            if self.starts.len() >= self.depth_max {
                return Err(Full { wait: start - now });
            }
            self.starts.push_back(start);
        }
        let finish = start.saturating_add(service);
        *earliest = Reverse(finish);
        Ok(Booking { start, finish })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_free_worker_starts_at_once_and_a_busy_one_when_it_is_done() {
        let mut book = Book::new(2, 10);
        assert_eq!(book.book(5, 100), Ok(Booking { start: 5, finish: 105 }));
        assert_eq!(book.book(6, 10), Ok(Booking { start: 6, finish: 16 }));
        assert_eq!(book.book(7, 10), Ok(Booking { start: 16, finish: 26 }));
        assert_eq!(book.book(200, 1), Ok(Booking { start: 200, finish: 201 }));
    }

    #[test]
    fn waiting_is_bounded_and_room_returns_as_workers_take_from_the_queue() {
        let mut book = Book::new(1, 2);
        for start in [0, 10, 20] {
            assert_eq!(book.book(0, 10).map(|b| b.start), Ok(start));
        }
        assert_eq!(book.book(0, 10), Err(Full { wait: 30 }));
        assert_eq!(book.book(9, 10), Err(Full { wait: 21 }));
        assert_eq!(book.book(10, 10).map(|b| b.start), Ok(30));
    }

    #[test]
    fn without_a_queue_only_idle_workers_take_requests() {
        let mut book = Book::new(1, 0);
        assert!(book.book(0, 10).is_ok());
        assert_eq!(book.book(0, 10), Err(Full { wait: 10 }));
        assert!(book.book(10, 10).is_ok());
    }

    /// Four clients in a closed loop, all woken by a timer that ticks in milliseconds, as tokio's does.
    #[test]
    fn late_timers_do_not_change_the_rate_of_a_saturated_origin() {
        let (service, requests) = (5 * MS / 2, 4000);
        let mut book = Book::new(1, 16);
        let mut arrivals = BinaryHeap::from([Reverse(0), Reverse(0), Reverse(0), Reverse(0)]);
        let mut done_at = 0;
        for _ in 0..requests {
            let Reverse(now) = arrivals.pop().expect("four clients");
            let booking = book.book(now, service).expect("room");
            done_at = booking.finish.div_ceil(MS) * MS;
            arrivals.push(Reverse(done_at + MS / 20));
        }
        let per_s = requests as f64 / (done_at as f64 / 1e9);
        assert!((per_s / 400.0 - 1.0).abs() < 0.03, "{per_s} requests/s");
    }
}
