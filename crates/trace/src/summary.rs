//! The statistics of a trace, in one pass.
//!
//! Memory grows with distinct objects, distinct clients and seconds with a request, up to a limit, but not with the
//! number of requests. So a trace larger than memory is summarised as it streams, in any order. Up to [`SAMPLED_MAX`]
//! objects and clients everything is exact. With more, the figures of objects and clients are estimated from a sample
//! by hash, and the others are exact.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::fit::{hurst, zipf_alpha_lsq, zipf_alpha_mle};
use crate::reader::Reader;
use crate::request::Request;
use crate::sampled::{SAMPLED_MAX, Sampled};

/// Most seconds with a request: over a year.
pub const SECONDS_MAX: usize = 1 << 25;

/// The statistics of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Distinct clients.
    pub clients: u64,
    /// The part of the objects on which the figures of objects are based: 1 if all were counted. If it is less,
    /// `objects`, `footprint_bytes` and `one_hit_wonders` are estimates. The Zipf exponents are then rough, because it
    /// is chance whether the few most popular objects are in the sample.
    pub objects_sampled: f64,
    /// The part of the clients on which the figures of clients are based: 1 if all were counted.
    pub clients_sampled: f64,
    /// Bytes of all responses; unknown sizes count as 0.
    pub bytes: u64,
    /// Bytes of all objects, each as large as its largest response: the size of a cache that keeps everything.
    pub footprint_bytes: u64,
    /// Objects that are requested once.
    pub one_hit_wonders: u64,
    /// Second of the first request, since the Unix epoch.
    pub first_s: u32,
    /// Second of the last request, since the Unix epoch.
    pub last_s: u32,
    /// Seconds from the first to the last, both included.
    pub span_s: u64,
    /// Requests per second over the span.
    pub rate_mean: f64,
    /// Requests in the busiest second.
    pub rate_peak: u64,
    /// Zipf exponent by maximum likelihood: [`zipf_alpha_mle`]. `None` for a single object.
    pub zipf_alpha_mle: Option<f64>,
    /// Zipf exponent by least squares: [`zipf_alpha_lsq`]. `None` for fewer than two objects of some popularity.
    pub zipf_alpha_lsq: Option<f64>,
    /// Index of dispersion for counts in windows of 1 s: see [`Summary::dispersion_60s`].
    pub dispersion_1s: Option<f64>,
    /// Index of dispersion for counts in windows of 60 s: the (population) variance of the requests in a window over
    /// their mean. It is 1 for Poisson arrivals at a constant rate, and grows with burstiness (R. Gusella,
    /// "Characterizing the Variability of Arrival Processes with Indexes of Dispersion", IEEE JSAC 9(2), 1991).
    /// Windows are counted from the second after the first request's, empty ones too. The first and the last second, of
    /// which a trace may have only a part, are left out, and so is a last window that is not filled. `None` for fewer than
    /// two windows.
    pub dispersion_60s: Option<f64>,
    /// Hurst exponent of the requests in a second, by the variance of aggregated counts: 0.5 where bursts average out
    /// over time as Poisson's do, towards 1 where they do not. The first and the last second are left out here too. `None` for fewer than 514 s.
    pub hurst: Option<f64>,
    /// Records of the source that could not be used, and are not included in the other figures.
    pub broken: u64,
}

/// Reads a log to its end and summarises it.
///
/// # Errors
/// As the reader and [`Tally`].
pub fn summarise(reader: &mut Reader) -> Result<Summary> {
    let mut tally = Tally::new(reader.origin());
    for request in reader.by_ref() {
        tally.add(&request?)?;
    }
    tally.finish(reader.broken().broken)
}

/// Counts requests one by one for a [`Summary`], as [`summarise`] does, for callers that show progress or have another
/// source of requests.
#[derive(Debug)]
pub struct Tally {
    origin: String,
    requests: u64,
    bytes: u64,
    objects: Sampled<Object>,
    clients: Sampled<()>,
    /// Requests by second. Sorted, because windows are cut from it in the end; sparse, because one wrong date may be
    /// decades off.
    seconds: BTreeMap<u32, u64>,
    /// The current second and its requests, not yet among them, because most requests have the same second as the
    /// previous one.
    current: (u32, u64),
}

/// Requests for an object, and the bytes of its largest response.
#[derive(Clone, Copy, Default, Debug)]
struct Object {
    requests: u64,
    bytes: u64,
}

impl Tally {
    /// An empty tally; errors will call the source `origin`.
    pub fn new(origin: impl Into<String>) -> Tally {
        Self::with_limit(origin, SAMPLED_MAX)
    }

    fn with_limit(origin: impl Into<String>, sampled_max: usize) -> Tally {
        Tally {
            origin: origin.into(),
            requests: 0,
            bytes: 0,
            objects: Sampled::new(sampled_max),
            clients: Sampled::new(sampled_max),
            seconds: BTreeMap::new(),
            current: (0, 0),
        }
    }

    /// Counts one request.
    ///
    /// # Errors
    /// [`Error::TooMany`] beyond [`SECONDS_MAX`].
    pub fn add(&mut self, request: &Request) -> Result<()> {
        self.requests += 1;
        let bytes = request.size.unwrap_or(0);
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(object) = self.objects.entry(request.object) {
            object.requests += 1;
            object.bytes = object.bytes.max(bytes);
        }
        self.clients.entry(request.client.into());
        if self.current.0 != request.time_s {
            self.close();
            self.current = (request.time_s, 0);
        }
        self.current.1 += 1;
        if self.seconds.len() < SECONDS_MAX {
            return Ok(());
        }
        let origin = self.origin.clone();
        Err(Error::TooMany { origin, what: "seconds with a request", max: SECONDS_MAX as u64 })
    }

    /// Adds the current second to the others.
    fn close(&mut self) {
        let (second, requests) = self.current;
        if requests > 0 {
            *self.seconds.entry(second).or_insert(0) += requests;
        }
    }

    /// The statistics of the requests counted; `broken` is copied into them.
    ///
    /// # Errors
    /// [`Error::Empty`] if nothing was counted.
    pub fn finish(mut self, broken: u64) -> Result<Summary> {
        self.close();
        let (Some((&first_s, _)), Some((&last_s, _))) =
            (self.seconds.first_key_value(), self.seconds.last_key_value())
        else {
            return Err(Error::Empty { origin: self.origin });
        };
        let span_s = u64::from(last_s - first_s) + 1;
        // In a sample, ranks are those of all objects times a constant factor, on average, which leaves the exponent
        // unchanged.
        let mut popularity: Vec<u64> = self.objects.values().map(|object| object.requests).collect();
        popularity.sort_unstable_by(|a, b| b.cmp(a));
        let once = popularity.len() - popularity.partition_point(|&requests| requests > 1);
        let whole = Whole::of(&self.seconds, first_s, last_s);
        let footprint = self.objects.values().fold(0u64, |sum, object| sum.saturating_add(object.bytes));
        Ok(Summary {
            requests: self.requests,
            objects: self.objects.scaled(self.objects.len()),
            clients: self.clients.scaled(self.clients.len()),
            objects_sampled: self.objects.rate(),
            clients_sampled: self.clients.rate(),
            bytes: self.bytes,
            footprint_bytes: self.objects.scaled(footprint),
            one_hit_wonders: self.objects.scaled(once as u64),
            first_s,
            last_s,
            span_s,
            rate_mean: self.requests as f64 / span_s as f64,
            rate_peak: self.seconds.values().copied().max().unwrap_or(0),
            zipf_alpha_mle: zipf_alpha_mle(&popularity),
            zipf_alpha_lsq: zipf_alpha_lsq(&popularity),
            dispersion_1s: whole.and_then(|whole| whole.dispersion(1)),
            dispersion_60s: whole.and_then(|whole| whole.dispersion(60)),
            hurst: whole.and_then(|whole| whole.hurst()),
            broken,
        })
    }
}

/// The seconds that a trace covers fully: those between the first and the last.
#[derive(Clone, Copy)]
struct Whole<'a> {
    seconds: &'a BTreeMap<u32, u64>,
    first_s: u32,
    /// One after the last of them.
    end_s: u32,
}

impl<'a> Whole<'a> {
    /// The seconds between these two; `None` if there are none.
    fn of(seconds: &'a BTreeMap<u32, u64>, first_s: u32, last_s: u32) -> Option<Whole<'a>> {
        (last_s - first_s >= 2).then(|| Whole { seconds, first_s: first_s + 1, end_s: last_s })
    }

    /// Number of windows of `window_s` that they fill.
    fn windows(&self, window_s: u32) -> u32 {
        (self.end_s - self.first_s) / window_s
    }

    /// Index of dispersion, as [`Summary::dispersion_60s`] defines it. Where all windows are empty there is none.
    fn dispersion(&self, window_s: u32) -> Option<f64> {
        let (mean, variance) = (self.windows(window_s) >= 2).then(|| self.moments(window_s))?;
        (mean > 0.0).then(|| variance / mean)
    }

    /// Hurst exponent, as [`Summary::hurst`] defines it, over windows of 1 s, 2 s, 4 s and so on.
    fn hurst(&self) -> Option<f64> {
        /// Fewer windows say little of a variance.
        const WINDOWS_MIN: u32 = 32;
        let windows = (0..32).map(|k| 1 << k).take_while(|&window_s| self.windows(window_s) >= WINDOWS_MIN);
        let points: Vec<(f64, f64)> =
            windows.map(|window_s| (f64::from(window_s), self.moments(window_s).1)).collect();
        hurst(&points)
    }

    /// Mean and (population) variance of the requests in windows of `window_s`.
    fn moments(&self, window_s: u32) -> (f64, f64) {
        let (mut sum, mut sum_of_squares) = (0u128, 0u128);
        let mut close = |count: u64| {
            sum += u128::from(count);
            sum_of_squares += u128::from(count).pow(2);
        };
        let windows = self.windows(window_s);
        let (mut window, mut count) = (0, 0);
        for (&second, &requests) in self.seconds.range(self.first_s..self.end_s) {
            let of = (second - self.first_s) / window_s;
            if of != window {
                close(count);
                (window, count) = (of, 0);
            }
            count += requests;
        }
        if window < windows {
            close(count);
        }
        // Empty windows are in the number of windows only.
        let mean = sum as f64 / f64::from(windows);
        (mean, sum_of_squares as f64 / f64::from(windows) - mean * mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Method;

    fn tally(times_s: &[u32]) -> Tally {
        let mut tally = Tally::new("test");
        for (client, &time_s) in (0..).zip(times_s) {
            let request = Request {
                time_s,
                time_ns: 0,
                client,
                object: 7,
                size: Some(10),
                status: 200,
                method: Method::Get,
            };
            tally.add(&request).unwrap();
        }
        tally
    }

    #[test]
    fn nothing_has_no_summary() {
        assert!(matches!(tally(&[]).finish(0), Err(Error::Empty { .. })));
    }

    #[test]
    fn one_request_has_neither_exponent_nor_dispersion() {
        let summary = tally(&[1000]).finish(3).unwrap();
        assert_eq!((summary.requests, summary.span_s, summary.rate_peak, summary.broken), (1, 1, 1, 3));
        assert_eq!((summary.zipf_alpha_mle, summary.zipf_alpha_lsq), (None, None));
        assert_eq!((summary.dispersion_1s, summary.dispersion_60s), (None, None));
    }

    #[test]
    fn order_does_not_matter() {
        assert_eq!(tally(&[5, 9, 5, 200]).finish(0).unwrap(), tally(&[200, 5, 9, 5]).finish(0).unwrap());
    }

    #[test]
    fn dispersion_is_variance_over_mean_and_counts_empty_windows() {
        let dispersions = |times_s| {
            let summary = tally(times_s).finish(0).unwrap();
            (summary.dispersion_1s, summary.dispersion_60s)
        };
        // Counts of 3, 0, 0, 1 between the first second and the last: mean 1, variance (4 + 1 + 1 + 0) / 4.
        assert_eq!(dispersions(&[9, 10, 10, 10, 13, 14]).0, Some(1.5));
        // Two whole minutes of 1 and 3, mean 2, variance 1; the 122nd second is in no whole one.
        assert_eq!(dispersions(&[0, 1, 61, 62, 120, 121, 122]).1, Some(0.5));
        // All of the second minute is empty.
        assert_eq!(dispersions(&[0, 1, 1, 121]).1, Some(1.0));
        // Nothing lies between.
        assert_eq!(dispersions(&[0, 0, 1000]), (None, None));
    }

    #[test]
    fn seconds_that_a_trace_has_a_part_of_are_no_burst_and_no_lull() {
        let even: Vec<u32> = (0..100).flat_map(|second| [second; 100]).collect();
        let cut = &even[90..even.len() - 90];
        assert_eq!(tally(cut).finish(0).unwrap().dispersion_1s, Some(0.0));
    }

    #[test]
    fn objects_that_are_too_many_are_estimated_and_the_rest_is_exact() {
        // Object i is asked for once, and every tenth twice; each has 100 bytes, and 50 the second time.
        let mut few = Tally::with_limit("few", 1 << 20);
        let mut many = Tally::with_limit("many", 2000);
        for i in 0..22_000u32 {
            let (object, bytes) = if i < 20_000 { (i, 100) } else { ((i - 20_000) * 10, 50) };
            let request = Request {
                time_s: i / 10,
                time_ns: 0,
                client: i,
                object: object.into(),
                size: Some(bytes),
                status: 200,
                method: Method::Get,
            };
            few.add(&request).unwrap();
            many.add(&request).unwrap();
        }
        let (few, many) = (few.finish(0).unwrap(), many.finish(0).unwrap());
        assert_eq!((few.objects, few.footprint_bytes, few.one_hit_wonders), (20_000, 2_000_000, 18_000));
        assert_eq!((few.objects_sampled, few.clients_sampled), (1.0, 1.0));
        assert!(many.objects_sampled < 0.11 && many.clients_sampled < 0.11, "{many:?}");
        for (ours, exact) in [
            (many.objects, few.objects),
            (many.clients, few.clients),
            (many.footprint_bytes, few.footprint_bytes),
            (many.one_hit_wonders, few.one_hit_wonders),
        ] {
            assert!((ours as f64 / exact as f64 - 1.0).abs() < 0.15, "{ours} {exact}");
        }
        assert_eq!((many.requests, many.bytes, many.rate_peak), (few.requests, few.bytes, few.rate_peak));
        assert_eq!(many.dispersion_60s, few.dispersion_60s);
    }

    #[test]
    fn a_wrong_date_decades_off_costs_no_memory_and_sizes_do_not_overflow() {
        let mut tally = tally(&[0, u32::MAX]);
        let mut huge = Request {
            time_s: 1,
            time_ns: 0,
            client: 0,
            object: 0,
            size: Some(u64::MAX),
            status: 200,
            method: Method::Get,
        };
        tally.add(&huge).unwrap();
        huge.object = 1;
        tally.add(&huge).unwrap();
        let summary = tally.finish(0).unwrap();
        assert_eq!(summary.span_s, 1 << 32);
        assert_eq!(summary.bytes, u64::MAX);
        assert!(summary.dispersion_60s.unwrap().is_finite());
    }
}
