//! What can go wrong, as the operator must hear it.

use std::{io, path::PathBuf};

use crate::broken::Broken;
use crate::format::Format;

/// `Result`, unless said otherwise with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a trace cannot be read, counted or generated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened.
    #[error("cannot open the trace {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A source stopped in the middle: a failing disk, or a compressed stream that is damaged or cut short.
    #[error("cannot read {origin}")]
    Read {
        /// The source's name.
        origin: String,
        /// What failed.
        source: io::Error,
    },
    /// The content is of no format that we read.
    #[error(
        "{origin} is in no format that is told by its content: name its format (wc98, clf, ucb, oracleGeneral, twitter, \
         slt), or for lines of fields its columns, as in time=1,object=2,size=3"
    )]
    UnknownFormat {
        /// The source's name.
        origin: String,
    },
    /// What a source begins with is not what its format asks for.
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
        /// Why not.
        source: io::Error,
    },
    /// There is no request in it.
    #[error("{origin} holds no request")]
    Empty {
        /// The source's name.
        origin: String,
    },
    /// More than 1 % of the records are broken.
    #[error("{origin}, read as {}, is refused, since more than 1 % of it is unusable: {broken}", broken.format)]
    TooManyBroken {
        /// The source's name.
        origin: String,
        /// How many of how many, and where the first are.
        broken: Broken,
    },
    /// A source has more of something than we hold in memory.
    #[error("{origin} has more than {max} {what}")]
    TooMany {
        /// The source's name.
        origin: String,
        /// More of what, in the plural.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A compact trace goes on where it says that it ends.
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
        /// Which one.
        parameter: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
}

/// An [`enum@Error`] before the source's name is known: what decoders, which do not know it, fail with.
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
