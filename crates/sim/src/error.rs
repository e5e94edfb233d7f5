//! Why a simulation does not run.

use std::path::PathBuf;

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
    /// A field of a run cannot be used beside its others.
    #[error("{key} = {value}: {reason}")]
    Contradiction {
        /// The field's key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What the others ask for.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] sidelong_trace::Error),
    /// A trace does not say itself what it is, and a configuration has no room for it.
    #[error("{0}; or let `sidelong trace convert` write it as one that says so")]
    Unrecognised(sidelong_trace::Error),
    /// Requests are to come when the trace has them, but it does not say.
    #[error("workload.arrivals is trace, but the workload has no times: use closed or poisson")]
    NoTimes,
    /// The words of a simulated cluster cannot be offered.
    #[error("the simulated cluster's words: {0}")]
    Words(#[source] sidelong_fabric::Error),
    /// What the reconfigurer is to go by makes no sense.
    #[error("the simulated cluster's reconfiguration: {0}")]
    Settings(#[from] sidelong_policy::SettingsError),
    /// What is to be compared is no result of a simulation.
    #[error("{}: no result of `sidelong sim run`: {reason}", path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A directory has other results than those that are to go there.
    #[error("{}: {reason}", path.display())]
    Taken {
        /// The file that says so.
        path: PathBuf,
        /// Whose they are.
        reason: String,
    },
    /// Parts of a sweep do not make it up.
    #[error("{}: {reason}", path.display())]
    Part {
        /// The directory of the part.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The figure cannot be drawn.
    #[error(transparent)]
    Draw(#[from] sidelong_figure::Error),
    /// Somebody asked to stop.
    #[error(
        "interrupted; {done} of {total} runs are done, {missing} are missing; the same command goes on from there"
    )]
    Interrupted {
        /// Runs that ended.
        done: usize,
        /// Runs that were to be.
        total: usize,
        /// The first of those that are not done, by their fields.
        missing: String,
    },
}
