//! Why a process cannot be started or watched.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a process cannot be started or watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program cannot be started.
    #[error("{}: cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel says nothing of a process that would be expected.
    #[error("{}: {found}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// There are not enough free ports in a row.
    #[error("no {count} free ports in a row on 127.0.0.1 between {from} and {to}")]
    Ports {
        /// How many are needed.
        count: u16,
        /// The first port that was tried.
        from: u16,
        /// The port after the last one that was tried.
        to: u16,
    },
}

/// Gives an I/O error its file's name.
///
/// # Errors
/// The given one.
pub fn file<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::File { path: path.to_owned(), source })
}
