//! Why an experiment ends without its results.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment ends without its results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such experiment.
    #[error("no experiment {id:?}; there are {known}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// What there is.
        known: String,
    },
    /// A file or directory of the results cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another lab writes there.
    #[error("{}: in use by another lab run; choose another --out, or wait for it to end", directory.display())]
    Busy {
        /// The experiment's directory.
        directory: PathBuf,
    },
    /// The cluster of a run is not one.
    #[error(transparent)]
    Config(#[from] sidelong_config::Error),
    /// No room for the clusters on this machine.
    #[error("no {count} free ports in a row on 127.0.0.1 between {from} and {to}")]
    Ports {
        /// As many are needed.
        count: u16,
        /// The first port that was tried.
        from: u16,
        /// The one after the last.
        to: u16,
    },
    /// The program cannot be started.
    #[error("{}: cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two CPUs are needed and cannot be had, or not be kept apart.
    #[error("two CPUs, one for what is measured and one for what measures it: {0}")]
    Cpus(String),
    /// A process that is measured does not serve.
    #[error("{what} does not serve: {said}")]
    Serve {
        /// Which.
        what: String,
        /// The last line that it wrote to standard error, or what was waited for.
        said: String,
    },
    /// The load generator cannot be run.
    #[error("load: {0}")]
    Load(#[from] sidelong_workload::client::ClientError),
    /// A run failed.
    #[error("run {run}: {said}; to repeat it: {repeat}")]
    Failed {
        /// Its name.
        run: String,
        /// The last line that it wrote to standard error, or how it ended.
        said: String,
        /// The command.
        repeat: String,
    },
    /// What an experiment needs is not there.
    #[error("{what}: {instead}")]
    Absent {
        /// It, and where it was looked for.
        what: String,
        /// What to do.
        instead: &'static str,
    },
    /// A run does not end.
    #[error("run {run}: not done after {} s; to repeat it: {repeat}", limit.as_secs())]
    TooLong {
        /// Its name.
        run: String,
        /// It was given this long.
        limit: Duration,
        /// The command.
        repeat: String,
    },
    /// What a run wrote is not what was agreed.
    #[error("{}: {found}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// Somebody raised [`crate::RunOptions::stop`].
    #[error("interrupted; the rows so far are kept")]
    Interrupted,
    /// The figure cannot be drawn.
    #[error(transparent)]
    Draw(#[from] sidelong_figure::Error),
}

/// Gives an I/O error its file's name.
pub(crate) fn file<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::File { path: path.to_owned(), source })
}
