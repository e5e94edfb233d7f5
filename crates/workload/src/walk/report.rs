//! What came of the requests, by interaction.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::interaction::Interaction;
use crate::client::{ErrorKind, Errors, Latency, LiveSite};

/// Longest response time that is represented, in µs; longer ones are recorded as this.
const TIME_US_MAX: u64 = 60_000_000;
/// Precision of times, in significant digits.
const DIGITS: u8 = 3;

/// The results of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Length of the run, in s.
    pub seconds: f64,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were rejected because of overload.
    pub rejected: u64,
    /// Both by kind.
    pub errors_by_kind: Errors,
    /// Requests that the rules of the auction refused (409): no errors.
    pub refused_by_rules: u64,
    /// Successes each second.
    pub requests_per_s: f64,
    /// Mean response time of the successes.
    pub mean_ms: f64,
    /// Median of the same.
    pub p50_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// 99th percentile of how late the walker itself sent requests, which is not part of the times above.
    pub lag_ms_p99: f64,
    /// The sessions.
    pub sessions: SessionsSummary,
    /// Each interaction that was requested, in the order of the transition tables.
    pub interactions: Vec<InteractionSummary>,
}

/// What became of the sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsSummary {
    /// Sessions that began.
    pub begun: u64,
    /// Sessions that came to their end; the others were under way when the run was stopped.
    pub ended: u64,
    /// Ended sessions in which each request succeeded.
    pub whole: u64,
    /// Ended sessions that an error or a rejection ended.
    pub left: u64,
    /// Sessions that did not begin, because too many were under way.
    pub dropped: u64,
}

impl SessionsSummary {
    fn count(&mut self, end: End) {
        self.ended += 1;
        match end {
            End::Whole => self.whole += 1,
            End::Marred => {}
            End::Left => self.left += 1,
        }
    }
}

/// The results for one interaction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InteractionSummary {
    /// Its name.
    pub interaction: String,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were rejected because of overload.
    pub rejected: u64,
    /// Requests that the rules of the auction refused.
    pub refused_by_rules: u64,
    /// Mean response time of the successes.
    pub mean_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Each request succeeded, and then the person went.
    Whole,
    /// The person went after errors or rejections, but not because of them.
    Marred,
    /// An error or a rejection ended it.
    Left,
}

/// The outcome of one request; see [`Walker::observe`](super::Walker::observe).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Completion {
    /// What was asked for.
    pub interaction: Interaction,
    /// Whether its session began with it.
    pub is_first: bool,
    /// When it was sent.
    pub sent_at: Instant,
    /// From sending, with connecting, to the last byte of the page, or to the failure.
    pub time: Duration,
    /// `None` if it succeeded, or if the rules of the auction refused it.
    pub error: Option<ErrorKind>,
    /// Whether these refused it (409).
    pub is_against_rules: bool,
    /// How its session ended with it, if it did.
    pub end: Option<End>,
}

/// What was recorded so far.
pub(super) struct Book {
    tallies: Vec<Tally>,
    /// Response times since [`live`](Self::live) was called last, and rejections.
    window: Tally,
    lags: Histogram<u64>,
    pub(super) sessions: SessionsSummary,
}

#[derive(Clone)]
struct Tally {
    times: Histogram<u64>,
    requests: u64,
    errors: Errors,
    refused_by_rules: u64,
}

impl Tally {
    fn new() -> Self {
        Tally { times: histogram(), requests: 0, errors: Errors::default(), refused_by_rules: 0 }
    }

    fn enter(&mut self, done: &Completion) {
        self.requests += 1;
        self.refused_by_rules += u64::from(done.is_against_rules);
        match done.error {
            None => record(&mut self.times, done.time),
            Some(kind) => self.errors.count(kind),
        }
    }

    fn add(&mut self, other: &Tally) {
        // Both have the same bounds, so this cannot fail.
        let _ = self.times.add(&other.times);
        self.requests += other.requests;
        self.errors.add(&other.errors);
        self.refused_by_rules += other.refused_by_rules;
    }
}

impl Book {
    pub(super) fn new() -> Self {
        Book {
            tallies: vec![Tally::new(); Interaction::COUNT],
            window: Tally::new(),
            lags: histogram(),
            sessions: SessionsSummary::default(),
        }
    }

    pub(super) fn enter(&mut self, done: &Completion, lag: Duration) {
        self.tallies[done.interaction as usize].enter(done);
        self.window.enter(done);
        if let Some(end) = done.end {
            self.sessions.count(end);
        }
        record(&mut self.lags, lag);
    }

    fn all(&self) -> Tally {
        let mut all = Tally::new();
        self.tallies.iter().for_each(|tally| all.add(tally));
        all
    }

    /// The progress, with rates and times of the `window` since the last call.
    pub(super) fn live(&mut self, window: Duration) -> LiveSite {
        let (all, of) = (self.all(), std::mem::replace(&mut self.window, Tally::new()));
        let per_s = |count: u64| per_s(count, window.as_secs_f64());
        let times = Latency::of(&of.times);
        LiveSite {
            requests: all.requests,
            errors: all.errors.failed(),
            rejected: all.errors.rejected(),
            dropped: self.sessions.dropped,
            requests_per_s: per_s(of.times.len()),
            rejected_per_s: per_s(of.errors.rejected()),
            p50_ms: times.p50_ms,
            p99_ms: times.p99_ms,
        }
    }

    pub(super) fn summary(&self, length: Duration) -> Summary {
        let (all, seconds) = (self.all(), length.as_secs_f64());
        let times = Latency::of(&all.times);
        let interactions = Interaction::ALL.into_iter().zip(&self.tallies);
        let interactions =
            interactions.filter(|(_, tally)| tally.requests > 0).map(|(interaction, tally)| {
                let times = Latency::of(&tally.times);
                InteractionSummary {
                    interaction: interaction.name().to_owned(),
                    requests: tally.requests,
                    errors: tally.errors.failed(),
                    rejected: tally.errors.rejected(),
                    refused_by_rules: tally.refused_by_rules,
                    mean_ms: times.mean_ms,
                    p99_ms: times.p99_ms,
                    max_ms: times.max_ms,
                }
            });
        Summary {
            seconds,
            requests: all.requests,
            errors: all.errors.failed(),
            rejected: all.errors.rejected(),
            errors_by_kind: all.errors,
            refused_by_rules: all.refused_by_rules,
            requests_per_s: per_s(all.times.len(), seconds),
            mean_ms: times.mean_ms,
            p50_ms: times.p50_ms,
            p99_ms: times.p99_ms,
            max_ms: times.max_ms,
            lag_ms_p99: Latency::of(&self.lags).p99_ms,
            sessions: self.sessions,
            interactions: interactions.collect(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_US_MAX, DIGITS).expect("bounds of this program")
}

fn record(times: &mut Histogram<u64>, time: Duration) {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    times.saturating_record(us.min(TIME_US_MAX));
}

fn per_s(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
