//! Clients that a site has admitted lately, in a table of fixed size without a lock.
//!
//! A client has one place. Another one that has the same takes it, and the first is a new client then. Each edge knows its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sidelong_layout::Time;

/// Clients that have a place, 512 KiB for a site. One in seven of 10,000 shares its own.
const PLACES: usize = 1 << 16;
/// Times are kept in units of 2^20 ns, about a millisecond, which wrap after 52 days.
const TICK_BITS: u32 = 20;
/// A visit that goes on is noted at most this many times in the time for which it is kept, as each writes to memory that threads share.
const NOTED: u32 = 16;

#[derive(Debug)]
pub(super) struct Visits {
    /// `client:32 last:32`: the upper half of the client's hash, and when it was admitted last.
    places: Box<[AtomicU64]>,
    kept: u32,
}

impl Visits {
    /// Visits of clients that come back within `kept`.
    pub(super) fn new(kept: Duration) -> Self {
        let kept = u32::try_from(kept.as_nanos() >> TICK_BITS).unwrap_or(u32::MAX);
        Visits { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), kept }
    }

    /// Whether a client, by its hash, is on a visit.
    pub(super) fn has(&self, client: u64, now: Time) -> bool {
        self.since(self.place(client).load(Ordering::Relaxed), client, now).is_some()
    }

    /// A request of the client is admitted.
    pub(super) fn note(&self, client: u64, now: Time) {
        let place = self.place(client);
        let since = self.since(place.load(Ordering::Relaxed), client, now);
        if since.is_none_or(|since| since > self.kept / NOTED) {
            place.store(client & CLIENT | u64::from(ticks(now)), Ordering::Relaxed);
        }
    }

    /// The ticks since the visit of `client` at a place, if there is one.
    fn since(&self, place: u64, client: u64, now: Time) -> Option<u32> {
        let since = ticks(now).wrapping_sub(place as u32);
        (place & CLIENT == client & CLIENT && since <= self.kept).then_some(since)
    }

    fn place(&self, client: u64) -> &AtomicU64 {
        &self.places[client as usize % PLACES]
    }
}

/// The half of a place that says whose it is.
const CLIENT: u64 = !(u32::MAX as u64);

fn ticks(now: Time) -> u32 {
    (now.as_ns() >> TICK_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Time {
        Time::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn a_visit_lasts_while_its_client_comes_back_in_time() {
        let visits = Visits::new(Duration::from_secs(10));
        let client = 0x1234_5678_9abc_def0;
        assert!(!visits.has(client, s(100)));
        for now in [100, 109, 118] {
            visits.note(client, s(now));
        }
        assert!(visits.has(client, s(127)) && !visits.has(client, s(129)));
        assert!(!visits.has(client ^ 1 << 40, s(119)), "another one of the same place");
        visits.note(client ^ 1 << 40, s(119));
        assert!(!visits.has(client, s(119)), "which takes it");
    }

    #[test]
    fn a_visit_is_not_noted_at_each_request() {
        let visits = Visits::new(Duration::from_secs(16));
        visits.note(7, s(100));
        let noted = visits.place(7).load(Ordering::Relaxed);
        visits.note(7, Time::from_ns(100_500_000_000));
        assert_eq!(visits.place(7).load(Ordering::Relaxed), noted);
        visits.note(7, s(102));
        assert_ne!(visits.place(7).load(Ordering::Relaxed), noted);
    }
}
