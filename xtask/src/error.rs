//! Why a task could not find out what it was asked. What it found is no error: see `tidy::Problem` and `ci::Failure`.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a task could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program could not be started, or not be waited for.
    #[error("cannot run `{command}`: {source}")]
    Start {
        /// Its command line.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A program that was asked something failed.
    #[error("`{command}` ended with {status}: {said}")]
    Exit {
        /// Its command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said to that.
        said: String,
    },
    /// A text is not what its kind promises.
    #[error("{what} cannot be understood: {why}")]
    Parse {
        /// The text's name.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}
