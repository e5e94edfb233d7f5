//! When to try again what did not succeed.

use sidelong_layout::Time;

/// Tries that come ever more seldom while they fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    due: Time,
    pause_ns: u64,
    /// The first pause, doubled up to the last.
    pauses_ns: (u64, u64),
}

impl Backoff {
    /// Due at once; the first failure puts it off by `pauses_ns.0`, each further one for twice as long, up to `pauses_ns.1`.
    pub const fn new(pauses_ns: (u64, u64)) -> Self {
        Backoff { due: Time(0), pause_ns: pauses_ns.0, pauses_ns }
    }

    /// From when on it may be tried.
    pub const fn due(self) -> Time {
        self.due
    }

    /// Whether it may be tried now.
    pub fn is_due(self, now: Time) -> bool {
        now >= self.due
    }

    /// A try was in vain, or is not known to have been of use.
    pub fn failed(&mut self, now: Time) {
        self.due = now.after_ns(self.pause_ns);
        self.pause_ns = (self.pause_ns * 2).min(self.pauses_ns.1);
    }

    /// It succeeded: the next failure is a first one.
    pub fn succeeded(&mut self, now: Time) {
        *self = Backoff { due: now, ..Backoff::new(self.pauses_ns) };
    }
}

#[test]
fn pauses_double_up_to_the_last_and_begin_anew() {
    let mut backoff = Backoff::new((10, 35));
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
