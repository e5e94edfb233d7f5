//! Why an experiment ends without its results.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment ends without its results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The experiment is unknown.
    #[error("no experiment {id:?}; there are {known}")]
    Unknown {
        /// The ID that was given.
        id: String,
        /// All IDs.
        known: String,
    },
    /// A file or directory of the results cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or the process.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another lab writes to the directory.
    #[error("{}: in use by another lab run; choose another --out, or wait for it to end", directory.display())]
    Busy {
        /// The experiment's directory.
        directory: PathBuf,
    },
    /// The cluster file of a run is wrong.
    #[error(transparent)]
    Config(#[from] sidelong_config::Error),
    /// A trace cannot be read or made.
    #[error(transparent)]
    Trace(#[from] sidelong_trace::Error),
    /// A process cannot be started or watched.
    #[error(transparent)]
    Harness(#[from] sidelong_harness::Error),
    /// Two CPUs are needed, and this process has fewer or cannot pin threads to them.
    #[error("the experiment needs two CPUs, one for the measured side and one for the measuring side: {0}")]
    Cpus(String),
    /// A process that should serve does not.
    #[error("{what} does not serve: {said}")]
    Serve {
        /// The file or the process.
        what: String,
        /// Its last line on standard error, or what was waited for.
        said: String,
    },
    /// The load generator cannot be run.
    #[error("load: {0}")]
    Load(#[from] sidelong_workload::client::ClientError),
    /// A run failed.
    #[error("run {run}: {said}; to repeat it: {repeat}")]
    Failed {
        /// The run.
        run: String,
        /// Its last line on standard error, or how it ended.
        said: String,
        /// The command that repeats it.
        repeat: String,
    },
    /// Something that the experiment needs is missing.
    #[error("{what}: {instead}")]
    Absent {
        /// What is missing, and where it was looked for.
        what: String,
        /// What to do.
        instead: &'static str,
    },
    /// A run did not end in time.
    #[error("run {run}: not done after {} s; to repeat it: {repeat}", limit.as_secs())]
    TooLong {
        /// The run.
        run: String,
        /// The time limit.
        limit: Duration,
        /// The command that repeats it.
        repeat: String,
    },
    /// A run wrote something unexpected.
    #[error("{}: {found}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// A block of a page of results is wrong.
    #[error("{}: block {block}: {found}", page.display())]
    Page {
        /// The page.
        page: PathBuf,
        /// The ID in the block's marker.
        block: String,
        /// What is wrong.
        found: String,
    },
    /// [`crate::RunOptions::stop`] was raised.
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
