//! Time as it is passed to decisions and protocols, which never ask a clock.

use std::time::Duration;

/// A moment, in ns since an epoch that the caller chose and keeps: its own monotonic clock, or simulated time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// `ns` after the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }

    /// Since the epoch, in ns.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The moment `span` later, or the last representable one.
    pub const fn after(self, span: Duration) -> Self {
        let ns = span.as_nanos();
        Time(self.0.saturating_add(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }))
    }

    /// The moment `ns` later, likewise.
    pub const fn after_ns(self, ns: u64) -> Self {
        Time(self.0.saturating_add(ns))
    }

    /// Time since `earlier`; zero if that is in the future.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        let (early, late) = (Time::from_ns(1_000), Time::from_ns(3_000));
        assert_eq!(late.since(early), Duration::from_micros(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.after(Duration::from_micros(2)), late);
        assert_eq!(late.after(Duration::MAX), Time::from_ns(u64::MAX));
    }
}
