//! Back-off: when to retry what failed.

use std::time::Duration;

use sidelong_layout::Time;

/// Retries whose pauses grow while they fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    due: Time,
    pause: Duration,
    /// The first pause, which doubles up to the last.
    pauses: (Duration, Duration),
}

impl Backoff {
    /// Due at once. The first failure delays the next attempt by `pauses.0`; each further failure doubles that, up to
    /// `pauses.1`.
    pub const fn new(pauses: (Duration, Duration)) -> Self {
        Backoff { due: Time(0), pause: pauses.0, pauses }
    }

    /// The earliest time of the next attempt.
    pub const fn due(self) -> Time {
        self.due
    }

    /// Whether the next attempt is due.
    pub fn is_due(self, now: Time) -> bool {
        now >= self.due
    }

    /// Records an attempt that failed, or whose success is not yet known.
    pub fn failed(&mut self, now: Time) {
        self.due = now.after(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.pauses.1);
    }

    /// Records a success: the next failure counts as the first.
    pub fn succeeded(&mut self, now: Time) {
        *self = Backoff { due: now, ..Backoff::new(self.pauses) };
    }
}

#[test]
fn pauses_double_up_to_the_last_and_begin_anew() {
    let ns = Duration::from_nanos;
    let mut backoff = Backoff::new((ns(10), ns(35)));
    let mut now = Time(5);
    assert!(backoff.is_due(now));
    for pause_ns in [10, 20, 35, 35] {
        backoff.failed(now);
        assert_eq!(backoff.due(), now.after_ns(pause_ns));
        assert!(!backoff.is_due(now.after_ns(pause_ns - 1)));
        now = backoff.due();
    }
    backoff.succeeded(now);
    assert!(backoff.is_due(now));
    backoff.failed(now);
    assert_eq!(backoff.due(), now.after_ns(10));
}
