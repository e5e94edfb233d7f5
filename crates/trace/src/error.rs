//! Errors, as the operator reads them.

use std::{io, path::PathBuf};

use crate::broken::Broken;
use crate::format::Format;

/// `Result` with this crate's [`enum@Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a trace cannot be read, summarised, written or generated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened.
    #[error("cannot open the trace {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Reading failed in the middle: a failing disk, or a compressed stream that is damaged or truncated.
    #[error("cannot read {origin}")]
    Read {
        /// The source's name.
        origin: String,
        /// The error.
        source: io::Error,
    },
    /// The content matches no known format.
    #[error(
        "{origin} is in no format that is recognised by content: name its format (wc98, clf, ucb, oracleGeneral, twitter, csv, slt, \
         key32, key64), or for lines of fields its columns, as in time=1,object=2,size=3"
    )]
    UnknownFormat {
        /// The source's name.
        origin: String,
    },
    /// A source does not begin as its format requires.
    #[error("cannot read {origin} as {format}: {reason}")]
    Beginning {
        /// The source's name.
        origin: String,
        /// The format.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// A trace could not be written.
    #[error("cannot write the trace {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A size does not fit into the format that is written.
    #[error(
        "cannot write {} as oracleGeneral: request {number} has {bytes} bytes, and a size is at most 4294967295 there; write slt or csv",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// The size.
        bytes: u64,
        /// The number of the request, from 1.
        number: u64,
    },
    /// It contains no request.
    #[error("{origin} holds no request")]
    Empty {
        /// The source's name.
        origin: String,
    },
    /// More than 1 % of the records are broken.
    #[error("{origin}, read as {}, is refused, because more than 1 % of it is unusable: {broken}", broken.format)]
    TooManyBroken {
        /// The source's name.
        origin: String,
        /// How many of how many are broken, and the first of them.
        broken: Broken,
    },
    /// A source has more of something than memory may hold.
    #[error("{origin} has more than {max} {what}")]
    TooMany {
        /// The source's name.
        origin: String,
        /// What there are too many of, in the plural.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A compact trace continues after its end.
    #[error(
        "{origin} goes on after the {blocks} blocks that its header promises: compact traces are not joined by putting them \
         into one file"
    )]
    MoreBlocks {
        /// The source's name.
        origin: String,
        /// What the header promises.
        blocks: u64,
    },
    /// A generator's parameter is out of range.
    #[error("{parameter} = {value} is out of range: {allowed}")]
    Parameter {
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
}

/// An [`enum@Error`] before the source's name is known, as decoders return it.
#[derive(Debug)]
pub(crate) enum Fault {
    Read(io::Error),
    MoreBlocks { blocks: u64 },
}

impl Fault {
    pub(crate) fn of(self, origin: &str) -> Error {
        let origin = origin.to_owned();
        match self {
            Fault::Read(source) => Error::Read { origin, source },
            Fault::MoreBlocks { blocks } => Error::MoreBlocks { origin, blocks },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(source: io::Error) -> Self {
        Fault::Read(source)
    }
}
