//! Why a cluster file is refused.

use std::fmt;
use std::path::PathBuf;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a cluster file is refused. Each is one line that an operator can act on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not TOML, or a key is unknown, missing or of another type.
    #[error("{place}: {message}")]
    Parse {
        /// The place in the file.
        place: Location,
        /// What is wrong and what was expected, by the TOML reader.
        message: String,
    },
    /// A value is not usable, by itself or with another.
    #[error("{place}: {found}; expected {expected}")]
    Check {
        /// The place in the file.
        place: Location,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// It cannot be written as TOML, because a path is not UTF-8.
    #[error("cluster file cannot be written: {0}")]
    Write(#[from] toml::ser::Error),
}

/// Where in the cluster file something is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A line of a text, counting from 1.
    Line {
        /// The name that the caller gave the text.
        file: String,
        /// The line.
        line: usize,
    },
    /// A key, where the file was made by a program and has no lines.
    Key(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Line { file, line } => write!(f, "{file}:{line}"),
            Location::Key(key) => write!(f, "cluster file, {key}"),
        }
    }
}
