//! The outcomes of requests over time, by the interval in which they were due, not in which they were answered. So a
//! stall shows where it happened, in every request that was due then.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::config::SeriesConfig;
use super::ledger::{Entry, LATENCY_US_MAX};

/// Precision of percentiles, in significant digits: an interval has few requests, and there are many intervals.
const DIGITS: u8 = 1;

/// The outcomes of each site's requests over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Length of an interval, in s.
    pub interval_s: f64,
    /// For each site, in the order of [`ClientConfig::sites`](super::ClientConfig::sites): its intervals, from the
    /// start to the last in which a request was due.
    pub sites: Vec<Vec<Interval>>,
}

/// The outcomes of one site's requests that were due in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Requests of any outcome: the sum of the next five.
    pub offered: u64,
    /// Requests that succeeded.
    pub answered: u64,
    /// Requests rejected with 503 and a reason.
    pub rejected: u64,
    /// Requests whose connection was closed before the first answer on it.
    pub closed: u64,
    /// Requests that failed otherwise.
    pub failed: u64,
    /// Requests not sent because too many were in flight (open loop).
    pub dropped: u64,
    /// Mean response time of the answered ones in ms; this and the next are 0 if there are none.
    pub mean_ms: f64,
    /// Exceeded by one in a hundred of them, to about 6 %.
    pub p99_ms: f64,
    /// The longest of them.
    pub max_ms: f64,
    /// Mean latency of a rejection in ms, closed connections included.
    pub rejection_mean_ms: f64,
    /// The longest of them.
    pub rejection_max_ms: f64,
}

/// One thread's part of a series, or all of it.
pub(super) struct Book {
    interval: Duration,
    intervals: usize,
    sites: Vec<Vec<Slot>>,
}

#[derive(Clone, Default)]
struct Slot {
    answered: Times,
    rejected: Times,
    rejected: u64,
    closed: u64,
    failed: u64,
    dropped: u64,
    /// Response times in µs, present from the first answer on.
    latencies: Option<Box<Histogram<u32>>>,
}

/// Some times, in µs.
#[derive(Clone, Copy, Default)]
struct Times {
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Times {
    fn add(&mut self, other: Times) {
        self.count += other.count;
        self.sum_us += other.sum_us;
        self.max_us = self.max_us.max(other.max_us);
    }

    fn mean_ms(self) -> f64 {
        self.sum_us as f64 / self.count.max(1) as f64 / 1e3
    }

    fn max_ms(self) -> f64 {
        self.max_us as f64 / 1e3
    }
}

impl Book {
    pub(super) fn new(config: SeriesConfig, sites: usize) -> Self {
        Book { interval: config.interval, intervals: config.intervals(), sites: vec![Vec::new(); sites] }
    }

    /// The slot of that time. Slots are created as they are reached, and none beyond the end.
    fn slot(&mut self, site: usize, due: Duration) -> Option<&mut Slot> {
        let number = usize::try_from(due.as_nanos() / self.interval.as_nanos()).ok()?;
        if number >= self.intervals {
            return None;
        }
        let slots = &mut self.sites[site];
        if slots.len() <= number {
            slots.resize(number + 1, Slot::default());
        }
        Some(&mut slots[number])
    }

    pub(super) fn enter(&mut self, entry: &Entry<'_>) {
        let Some(slot) = self.slot(entry.site, entry.due) else { return };
        let latency_us = u64::try_from(entry.latency.as_micros()).unwrap_or(u64::MAX).min(LATENCY_US_MAX);
        let once = Times { count: 1, sum_us: latency_us, max_us: latency_us };
        match entry.error {
            None => {
                slot.answered.add(once);
                // It grows up to the bound, so recording within it does not fail.
                let _ = slot.latencies.get_or_insert_with(new_histogram).record(latency_us.max(1));
            }
            Some(super::ErrorKind::Rejected) => {
                slot.rejected.add(once);
                slot.rejected += 1;
            }
            Some(super::ErrorKind::Closed) => {
                slot.rejected.add(once);
                slot.closed += 1;
            }
            Some(_) => slot.failed += 1,
        }
    }

    pub(super) fn enter_dropped(&mut self, site: usize, due: Duration) {
        if let Some(slot) = self.slot(site, due) {
            slot.dropped += 1;
        }
    }

    fn add(&mut self, other: Book) {
        for (site, others) in self.sites.iter_mut().zip(other.sites) {
            if site.len() < others.len() {
                site.resize(others.len(), Slot::default());
            }
            site.iter_mut().zip(others).for_each(|(slot, other)| slot.add(other));
        }
    }
}

impl Slot {
    fn add(&mut self, other: Slot) {
        self.answered.add(other.answered);
        self.rejected.add(other.rejected);
        self.rejected += other.rejected;
        self.closed += other.closed;
        self.failed += other.failed;
        self.dropped += other.dropped;
        match (&mut self.latencies, other.latencies) {
            // Has the same bounds as the other, so it can hold all of it.
            (Some(own), Some(other)) => drop(own.add(&*other)),
            (own @ None, other) => *own = other,
            (Some(_), None) => {}
        }
    }

    fn told(&self) -> Interval {
        let p99_us = self.latencies.as_ref().map_or(0, |latencies| latencies.value_at_quantile(0.99));
        let rejected = self.rejected + self.closed;
        Interval {
            offered: self.answered.count + rejected + self.failed + self.dropped,
            answered: self.answered.count,
            rejected: self.rejected,
            closed: self.closed,
            failed: self.failed,
            dropped: self.dropped,
            mean_ms: self.answered.mean_ms(),
            p99_ms: (p99_us as f64 / 1e3).min(self.answered.max_ms()),
            max_ms: self.answered.max_ms(),
            rejection_mean_ms: self.rejected.mean_ms(),
            rejection_max_ms: self.rejected.max_ms(),
        }
    }
}

fn new_histogram() -> Box<Histogram<u32>> {
    Box::new(Histogram::new(DIGITS).expect("the digits are within what a histogram takes"))
}

/// Joins the threads' parts.
pub(super) fn joined(config: SeriesConfig, sites: usize, books: &[Mutex<Book>]) -> Series {
    let mut all = Book::new(config, sites);
    for book in books {
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(std::mem::replace(&mut *book, Book::new(config, sites)));
    }
    let length = all.sites.iter().map(Vec::len).max().unwrap_or(0);
    let told = |mut slots: Vec<Slot>| {
        slots.resize(length, Slot::default());
        slots.iter().map(Slot::told).collect()
    };
    Series { interval_s: config.interval.as_secs_f64(), sites: all.sites.into_iter().map(told).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ErrorKind;

    const CONFIG: SeriesConfig =
        SeriesConfig { interval: Duration::from_millis(10), length: Duration::from_millis(25) };

    fn entry(due_ms: u64, latency_ms: u64, error: Option<ErrorKind>) -> Entry<'static> {
        let [due, latency] = [due_ms, latency_ms].map(Duration::from_millis);
        let at = due + latency;
        Entry {
            site: 0,
            edge: 0,
            client: 0,
            node: None,
            error,
            latency,
            lag: Duration::ZERO,
            bytes: 0,
            due,
            at,
        }
    }

    #[test]
    fn requests_are_in_the_interval_in_which_they_were_due() {
        let books = [0, 1].map(|_| Mutex::new(Book::new(CONFIG, 2)));
        let [one, other] = books.each_ref().map(|book| book.lock().unwrap());
        let (mut one, mut other) = (one, other);
        one.enter(&entry(1, 500, None));
        other.enter(&entry(9, 100, None));
        other.enter(&entry(11, 4, Some(ErrorKind::Rejected)));
        one.enter(&entry(12, 2, Some(ErrorKind::Closed)));
        one.enter(&entry(13, 1, Some(ErrorKind::Timeout)));
        one.enter_dropped(0, Duration::from_millis(29));
        // 25 ms are three intervals of 10.
        one.enter(&entry(30, 1, None));
        drop((one, other));
        let series = joined(CONFIG, 2, &books);
        assert_eq!(series.interval_s, 0.01);
        assert_eq!(series.sites[1], [Interval::default(); 3], "all sites have the same intervals");
        let [first, second, third] = series.sites[0][..] else { panic!("{series:?}") };
        assert_eq!((first.offered, first.answered), (2, 2));
        assert_eq!((first.mean_ms, first.max_ms), (300.0, 500.0));
        assert!((470.0..=500.0).contains(&first.p99_ms), "{first:?}");
        let failures = Interval { offered: 3, rejected: 1, closed: 1, failed: 1, ..Interval::default() };
        assert_eq!(second, Interval { rejection_mean_ms: 3.0, rejection_max_ms: 4.0, ..failures });
        assert_eq!(third, Interval { offered: 1, dropped: 1, ..Interval::default() });
    }
}
