//! The decisions of Sidelong: which requests are admitted, which node gets a request, which node changes its site.
//!
//! | module | decides |
//! |---|---|
//! | [`index`] | how loaded a node is, as one number |
//! | [`admission`] | which requests are rejected, so that the others are answered in time |
//! | [`brain`] | what follows from a scan, for the edge and the simulator |
//! | [`cluster`] | nothing: what a scan shows of nodes and sites |
//! | [`balance`] | which node of a site gets a request |
//! | [`cache`] | what stays in memory, and whose memory is read |
//! | [`documents`] | which documents stay there, and what their readers are answered |
//! | [`health`] | which node gets none, because its connections fail |
//! | [`pace`] | nothing: how fast a node is, compared with its site |
//! | [`reconfigure`] | which node moves to another site |
//! | [`workers`] | nothing: how many requests a foreign server handles at a time |
//!
//! Everything here is a function of its arguments: no clock, no randomness of its own, no I/O, no lock. The edge and
//! the simulator call the same code with the same types, so what the simulator decides is what the cluster
//! would. `clippy.toml` beside this crate's manifest bans what would break that.
//!
//! Nothing here makes a decision true: moves are carried out by `reconfig` under the locks of `state`, and a decision
//! from an old picture fails there.
#![forbid(unsafe_code)]

pub mod admission;
pub mod balance;
pub mod brain;
pub mod cache;
pub mod cluster;
pub mod documents;
pub mod health;
pub mod index;
pub mod pace;
pub mod reconfigure;
pub mod workers;

pub use sidelong_layout::Time;

/// Why settings are refused. The configuration is checked before anything starts.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A figure that is negative, infinite or not a number.
    #[error("{setting} is {value}: it must be a finite number, 0 or more")]
    Figure {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: f64,
    },
    /// A setting is 0 that must not be.
    #[error("{setting} is 0: it must be greater")]
    Zero {
        /// The setting.
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
    /// More than the words in shared memory can number.
    #[error("{found} {what}: at most {max} are possible")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The number requested.
        found: usize,
        /// The largest number.
        max: usize,
    },
}

impl SettingsError {
    /// As many as words can number.
    fn if_too_many(sites: usize, nodes: usize) -> Result<(), Self> {
        for (what, found, max) in
            [("sites", sites, sidelong_layout::SITES_MAX), ("nodes", nodes, sidelong_layout::NODES_MAX)]
        {
            if found > max {
                return Err(SettingsError::TooMany { what, found, max });
            }
        }
        Ok(())
    }

    /// Refuses a value that is not a finite number of 0 or more.
    ///
    /// # Errors
    /// If it is negative, infinite or not a number.
    pub fn unless_figure(setting: &'static str, value: f64) -> Result<(), Self> {
        if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(Self::Figure { setting, value }) }
    }

    /// Refuses a setting that is 0.
    ///
    /// # Errors
    /// If `zero`.
    pub fn if_zero(setting: &'static str, zero: bool) -> Result<(), Self> {
        if zero { Err(Self::Zero { setting }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_setting() {
        let error = SettingsError::unless_figure("margin", -1.0).unwrap_err();
        assert_eq!(error.to_string(), "margin is -1: it must be a finite number, 0 or more");
    }
}
