//! Decisions: which node gets a request, which node is left alone, which node changes its site.
//!
//! | module | decides |
//! |---|---|
//! | [`index`] | how loaded a node is, as one number |
//! | [`balance`] | which node of a site gets a request |
//! | [`health`] | which node gets none, because its connections fail |
//! | [`reconfigure`] | which node moves to another site |
//!
//! Everything here is a function of its arguments: no clock, no randomness of its own, no I/O, no lock. The edge, the
//! helper and the simulator call the same code with the same types, so what the simulator decides is what the cluster
//! would. `clippy.toml` beside this crate's manifest bans what would break that.
//!
//! Nothing here makes a decision true: moves are carried out by `reconfig` under the locks of `state`, and a decision
//! from an old picture fails there.
#![forbid(unsafe_code)]

pub mod balance;
pub mod health;
pub mod index;
pub mod reconfigure;

use std::time::Duration;

/// A moment, in ns since an epoch that the caller chose and keeps: its own monotonic clock, or simulated time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// `ns` after the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }

    /// Since the epoch, in ns.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The moment `span` later, or the last one that can be told.
    pub const fn after(self, span: Duration) -> Self {
        let ns = span.as_nanos();
        Time(self.0.saturating_add(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }))
    }

    /// How long ago `earlier` was; zero where it is still to come.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Why settings are refused. The configuration is checked with these before anything starts.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A figure that is negative, infinite or not a number.
    #[error("{setting} is {value}: it must be a finite number, 0 or more")]
    Figure {
        /// Which.
        setting: &'static str,
        /// What it was set to.
        value: f64,
    },
    /// A setting that must not be 0 is.
    #[error("{setting} is 0: it must be more")]
    Zero {
        /// Which.
        setting: &'static str,
    },
    /// Two settings in the wrong order.
    #[error("{less} must not exceed {more}")]
    Order {
        /// The one that is too large.
        less: &'static str,
        /// Its limit.
        more: &'static str,
    },
    /// More than the words in shared memory can name.
    #[error("{found} {what}: the words can name {max}")]
    TooMany {
        /// Sites or nodes.
        what: &'static str,
        /// How many were asked for.
        found: usize,
        /// How many there may be.
        max: usize,
    },
}

impl SettingsError {
    /// Refuses what is not a finite number of 0 or more.
    fn unless_figure(setting: &'static str, value: f64) -> Result<(), Self> {
        if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(Self::Figure { setting, value }) }
    }

    /// Refuses 0.
    fn if_zero(setting: &'static str, zero: bool) -> Result<(), Self> {
        if zero { Err(Self::Zero { setting }) } else { Ok(()) }
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

    #[test]
    fn errors_name_the_setting() {
        let error = SettingsError::unless_figure("margin", -1.0).unwrap_err();
        assert_eq!(error.to_string(), "margin is -1: it must be a finite number, 0 or more");
    }
}
