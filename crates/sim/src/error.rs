//! Why a simulation does not run.

use std::path::PathBuf;

use crate::model::Model;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a simulation does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field of a configuration cannot be used.
    #[error("{place}: {reason}")]
    Field {
        /// The file and line, or the option.
        place: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// A field of a run contradicts others.
    #[error("{key} = {value}: {reason}")]
    Contradiction {
        /// The field's key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What the other fields require.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] sidelong_trace::Error),
    /// A trace's format is not recognised, and a configuration has no field for it.
    #[error("{0}; alternatively convert it with `sidelong-lab trace convert` to a format that is recognised")]
    Unrecognised(sidelong_trace::Error),
    /// Requests are to arrive at the trace's times, and it has none.
    #[error("workload.arrivals is \"trace\", but the workload has no times; use closed or poisson")]
    NoTimes,
    /// The words of a simulated cluster could not be offered.
    #[error("the simulated cluster's words: {0}")]
    Words(#[source] sidelong_fabric::Error),
    /// The reconfigurer's settings contradict each other.
    #[error("the simulated cluster's reconfiguration: {0}")]
    Settings(#[from] sidelong_policy::SettingsError),
    /// A directory to compare holds no result of a simulation.
    #[error("{} is not a result of `sidelong-lab sim run`: {reason}", path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Two results are of different models.
    #[error(
        "results of different models cannot be compared: {} is of the model {}, {} of the model {}",
        first.0.display(), first.1, second.0.display(), second.1
    )]
    Models {
        /// A result, and its model.
        first: (PathBuf, Model),
        /// The other.
        second: (PathBuf, Model),
    },
    /// A directory holds the results of another configuration.
    #[error("{}: {reason}", path.display())]
    Taken {
        /// The file that shows it.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// The figure cannot be drawn.
    #[error(transparent)]
    Draw(#[from] sidelong_figure::Error),
    /// A signal stopped the sweep.
    #[error(
        "interrupted: {done} of {total} runs are done, {missing} are missing; the same command continues from there"
    )]
    Interrupted {
        /// Runs that ended.
        done: usize,
        /// All runs.
        total: usize,
        /// The first missing runs, by their fields.
        missing: String,
    },
}
