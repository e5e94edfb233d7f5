//! The one reader of all formats: it opens, decompresses, recognises, streams, and keeps account of what is broken.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use crate::broken::Broken;
use crate::clf::Lines;
use crate::error::{Error, Fault, Result};
use crate::request::Request;
use crate::wc98;

/// What a source is recognised by, in bytes: 20 records, or the beginning of the first lines.
const HEAD_BYTES: usize = 20 * wc98::RECORD_BYTES;

/// First bytes of a gzip member (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a Zstandard frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A format of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Format {
    /// The binary log of the 1998 World Cup's servers: see [`wc98`].
    #[serde(rename = "wc98")]
    WorldCup98,
    /// Common Log Format, and Combined, whose further fields are ignored: see [`crate::Line`].
    #[serde(rename = "clf")]
    CommonLog,
}

impl Format {
    /// What one record of it is called.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Format::WorldCup98 => "record",
            Format::CommonLog => "line",
        }
    }

    /// By the first (decompressed) bytes of a source. Its name is not asked: logs are renamed, rotated and piped, and
    /// the two formats cannot be taken for each other.
    fn recognise(head: &[u8]) -> Option<Format> {
        if wc98::is_likely(head) {
            Some(Format::WorldCup98)
        } else if head.contains(&0) {
            None
        } else {
            Some(Format::CommonLog)
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::WorldCup98 => "wc98",
            Format::CommonLog => "clf",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        match name {
            "wc98" => Ok(Format::WorldCup98),
            "clf" => Ok(Format::CommonLog),
            _ => {
                Err(Error::Parameter { parameter: "format", value: name.to_owned(), allowed: "wc98 or clf" })
            }
        }
    }
}

/// The requests of one log, one after another, in the order of the log.
///
/// Broken records are skipped and accounted for in [`Reader::broken`]. After the last request comes an
/// [`Error::TooManyBroken`] if they were more than 1 % of all; after any error the iterator ends.
pub struct Reader {
    origin: String,
    source: Box<dyn BufRead + Send>,
    decoder: Decoder,
    broken: Broken,
    is_done: bool,
}

enum Decoder {
    WorldCup98,
    CommonLog(Box<Lines>),
}

impl Reader {
    /// Opens a file, plain or compressed by gzip or Zstandard, and recognises its format by its content.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Read`], [`Error::Empty`] or [`Error::UnknownFormat`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        let (origin, file) = open_file(path.as_ref())?;
        Self::new(origin, file, None)
    }

    /// As [`Reader::open`], for a file that is known to be in `format`.
    ///
    /// # Errors
    /// [`Error::Open`] or [`Error::Read`].
    pub fn open_as(path: impl AsRef<Path>, format: Format) -> Result<Reader> {
        let (origin, file) = open_file(path.as_ref())?;
        Self::new(origin, file, Some(format))
    }

    /// Reads any source, which errors will call `origin`; without a `format`, by its content.
    ///
    /// # Errors
    /// [`Error::Read`], and without a format [`Error::Empty`] or [`Error::UnknownFormat`].
    pub fn new(
        origin: impl Into<String>,
        source: impl Read + Send + 'static,
        format: Option<Format>,
    ) -> Result<Reader> {
        let origin = origin.into();
        let read_error = |source| Fault::Read(source).of(&origin);
        let mut source = decompress(Box::new(source)).map_err(read_error)?;
        let format = match format {
            Some(format) => format,
            None => {
                let (head, whole) = peek(source, HEAD_BYTES).map_err(read_error)?;
                source = Box::new(whole);
                if head.is_empty() {
                    return Err(Error::Empty { origin });
                }
                Format::recognise(&head).ok_or_else(|| Error::UnknownFormat { origin: origin.clone() })?
            }
        };
        let decoder = match format {
            Format::WorldCup98 => Decoder::WorldCup98,
            Format::CommonLog => Decoder::CommonLog(Box::new(Lines::new())),
        };
        Ok(Reader { origin, source, decoder, broken: Broken::new(format), is_done: false })
    }

    /// The source's name, as errors give it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.broken.format
    }

    /// The account of broken records so far; final when the iterator has ended.
    pub fn broken(&self) -> &Broken {
        &self.broken
    }

    /// Gives up the reader for its account.
    pub(crate) fn into_broken(self) -> Broken {
        self.broken
    }

    fn read(&mut self) -> Result<Option<Request>> {
        loop {
            let record = match &mut self.decoder {
                Decoder::WorldCup98 => wc98::read(&mut self.source)
                    .map(|record| record.map(|record| record.map(Request::from)))
                    .map_err(Fault::from),
                Decoder::CommonLog(lines) => lines.read(&mut self.source),
            };
            match record.map_err(|fault| fault.of(&self.origin))? {
                Some(Ok(request)) => {
                    self.broken.note_sound();
                    return Ok(Some(request));
                }
                Some(Err(flaw)) => self.broken.note_broken(flaw),
                None if !self.broken.is_too_many() => return Ok(None),
                None => return Err(self.too_many_broken()),
            }
            if self.broken.is_hopeless() {
                return Err(self.too_many_broken());
            }
        }
    }

    fn too_many_broken(&self) -> Error {
        Error::TooManyBroken { origin: self.origin.clone(), broken: self.broken.clone() }
    }
}

impl Iterator for Reader {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.read().transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl std::iter::FusedIterator for Reader {}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("origin", &self.origin)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

fn open_file(path: &Path) -> Result<(String, File)> {
    let file = File::open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
    Ok((path.display().to_string(), file))
}

/// A source's own bytes if it is plain, and what they decompress to if it is gzip or Zstandard, of one or more members
/// or frames. The decoders check that streams are whole; Zstandard's default limit of its window (128 MiB) holds.
fn decompress(source: Box<dyn Read + Send>) -> io::Result<Box<dyn BufRead + Send>> {
    let (head, whole) = peek(BufReader::new(source), ZSTD_MAGIC.len())?;
    Ok(if head.starts_with(&GZIP_MAGIC) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(whole)))
    } else if head.starts_with(&ZSTD_MAGIC) {
        Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(whole)?))
    } else {
        Box::new(whole)
    })
}

/// The first `bytes` bytes of a source (fewer only if it has fewer), and the source with them still in it.
fn peek<R: BufRead>(mut source: R, bytes: usize) -> io::Result<(Vec<u8>, impl BufRead + use<R>)> {
    let mut head = Vec::with_capacity(bytes);
    source.by_ref().take(bytes as u64).read_to_end(&mut head)?;
    let whole = Cursor::new(head.clone()).chain(source);
    Ok((head, whole))
}

#[cfg(test)]
mod tests;
