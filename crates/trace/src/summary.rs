//! A trace in a few numbers, in one pass.
//!
//! What is held grows with distinct objects, distinct clients and seconds that have a request, never with the number
//! of requests: a log of gigabytes is summarised as it streams by, in whatever order its lines come.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::fit::{zipf_alpha_lsq, zipf_alpha_mle};
use crate::reader::Reader;
use crate::request::Request;

/// Distinct objects of one summary at most, and distinct clients.
pub const DISTINCT_MAX: usize = 1 << 24;

/// Seconds with a request in them at most: over a year of them.
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
    /// Bytes of all responses; one of unknown size counts for none.
    pub bytes: u64,
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
    /// Windows are counted from the first request's second, empty ones too; a last one that the span does not fill is
    /// left out. `None` for fewer than two windows.
    pub dispersion_60s: Option<f64>,
    /// Records of the source that could not be used, and are in none of the above.
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

/// Counts requests one by one, for a [`Summary`] at the end: what [`summarise`] does, for those who want to show
/// progress meanwhile, or whose requests come from elsewhere.
#[derive(Debug)]
pub struct Tally {
    origin: String,
    requests: u64,
    bytes: u64,
    objects: HashMap<u32, u64>,
    clients: HashSet<u32>,
    /// Requests by second. Sorted, since windows are cut from it in the end; sparse, since one wrong date may lie
    /// decades off.
    seconds: BTreeMap<u32, u64>,
}

impl Tally {
    /// An empty one; errors will call the source `origin`.
    pub fn new(origin: impl Into<String>) -> Tally {
        Tally {
            origin: origin.into(),
            requests: 0,
            bytes: 0,
            objects: HashMap::new(),
            clients: HashSet::new(),
            seconds: BTreeMap::new(),
        }
    }

    /// Counts one request.
    ///
    /// # Errors
    /// [`Error::TooMany`] beyond [`DISTINCT_MAX`] or [`SECONDS_MAX`].
    pub fn add(&mut self, request: &Request) -> Result<()> {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(request.size.unwrap_or(0));
        *self.objects.entry(request.object).or_insert(0) += 1;
        self.clients.insert(request.client);
        *self.seconds.entry(request.time_s).or_insert(0) += 1;

        let limits = [
            ("distinct objects", self.objects.len(), DISTINCT_MAX),
            ("distinct clients", self.clients.len(), DISTINCT_MAX),
            ("seconds with a request", self.seconds.len(), SECONDS_MAX),
        ];
        match limits.into_iter().find(|&(_, count, max)| count > max) {
            None => Ok(()),
            Some((what, _, max)) => {
                Err(Error::TooMany { origin: self.origin.clone(), what, max: max as u64 })
            }
        }
    }

    /// The statistics of what was counted; `broken` is passed through to them.
    ///
    /// # Errors
    /// [`Error::Empty`] if nothing was counted.
    pub fn finish(self, broken: u64) -> Result<Summary> {
        let (Some((&first_s, _)), Some((&last_s, _))) =
            (self.seconds.first_key_value(), self.seconds.last_key_value())
        else {
            return Err(Error::Empty { origin: self.origin });
        };
        let span_s = u64::from(last_s - first_s) + 1;
        let mut popularity: Vec<u64> = self.objects.into_values().collect();
        popularity.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Summary {
            requests: self.requests,
            objects: popularity.len() as u64,
            clients: self.clients.len() as u64,
            bytes: self.bytes,
            first_s,
            last_s,
            span_s,
            rate_mean: self.requests as f64 / span_s as f64,
            rate_peak: self.seconds.values().copied().max().unwrap_or(0),
            zipf_alpha_mle: zipf_alpha_mle(&popularity),
            zipf_alpha_lsq: zipf_alpha_lsq(&popularity),
            dispersion_1s: dispersion(&self.seconds, first_s, span_s, 1),
            dispersion_60s: dispersion(&self.seconds, first_s, span_s, 60),
            broken,
        })
    }
}

/// Index of dispersion for counts in windows of `window_s` from `first_s` on, as [`Summary::dispersion_60s`] defines it.
fn dispersion(seconds: &BTreeMap<u32, u64>, first_s: u32, span_s: u64, window_s: u64) -> Option<f64> {
    let windows = span_s / window_s;
    if windows < 2 {
        return None;
    }
    let (mut sum, mut sum_of_squares) = (0u128, 0u128);
    let mut close = |count: u64| {
        sum += u128::from(count);
        sum_of_squares += u128::from(count).pow(2);
    };
    let (mut window, mut count) = (0, 0);
    for (&second, &requests) in seconds {
        let of = u64::from(second - first_s) / window_s;
        if of != window {
            close(count);
            (window, count) = (of, 0);
        }
        count += requests;
    }
    if window < windows {
        close(count);
    }
    // Variance over mean, with the empty windows in the number of windows only:
    // (sum_of_squares / n - (sum / n)^2) / (sum / n).
    Some(sum_of_squares as f64 / sum as f64 - sum as f64 / windows as f64)
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
        // Counts of 3, 0, 0, 1: mean 1, variance (4 + 1 + 1 + 0) / 4.
        assert_eq!(tally(&[10, 10, 10, 13]).finish(0).unwrap().dispersion_1s, Some(1.5));
        // Two whole minutes of 1 and 3, mean 2, variance 1; the 121st second is in no whole one.
        assert_eq!(tally(&[0, 60, 61, 119, 120]).finish(0).unwrap().dispersion_60s, Some(0.5));
        // All of the second minute is empty.
        assert_eq!(tally(&[0, 0, 120]).finish(0).unwrap().dispersion_60s, Some(1.0));
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
