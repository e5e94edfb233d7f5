//! The one reader of all formats: it opens, decompresses, recognises and streams a source, and counts broken records.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

use crate::broken::{Broken, Flaw};
use crate::clf::Lines;
use crate::compact::{Blocks, Header};
use crate::csv::{Columns, Rows};
use crate::error::{Error, Fault, Result};
use crate::format::{Format, Stamps};
use crate::keys::Keys;
use crate::recognise::{HEAD_BYTES, RECOGNISED_BYTES, recognise};
use crate::request::Request;
use crate::source::{self, Counts};
use crate::spread::Spread;
use crate::text::{BYTE_ORDER_MARK, LineReader, skip_nuls, without_mark};
use crate::ucb::Records;
use crate::{oracle, twitter, wc98};

/// A text that begins with so many NULs is one whose first bytes were lost, and no binary format.
const NULS_MIN: usize = 64;

/// What is known of a source beforehand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Its format; `None` to recognise it by content.
    pub format: Option<Format>,
    /// The meaning of a line's fields, for [`Format::Csv`].
    pub columns: Option<Columns>,
}

impl From<Option<Format>> for Known {
    fn from(format: Option<Format>) -> Known {
        Known { format, columns: None }
    }
}

/// The requests of one trace in its order.
///
/// Broken records are skipped and counted in [`Reader::broken`]. If they are more than 1 % of all, the last item is an
/// [`Error::TooManyBroken`]. After any error the iterator ends.
pub struct Reader {
    origin: String,
    source: Box<dyn BufRead + Send>,
    counts: Counts,
    decoder: Decoder,
    stamps: Stamps,
    /// NULs before its first line.
    nuls: u64,
    broken: Broken,
    is_done: bool,
}

enum Decoder {
    WorldCup98,
    CommonLog(Box<Lines>),
    HomeIp(Records),
    OracleGeneral,
    Twitter(LineReader),
    Csv(Box<Rows>),
    Compact(Box<Blocks>),
    Keys(Keys),
}

impl Reader {
    /// Opens a file, plain or compressed by gzip, Zstandard or xz, and recognises its format by its content.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Read`], [`Error::Empty`], [`Error::UnknownFormat`] or [`Error::Beginning`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        Self::open_with(path, &Known::default())
    }

    /// As [`Reader::open`], for a file that is known to be in `format`.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Read`] or [`Error::Beginning`].
    pub fn open_as(path: impl AsRef<Path>, format: Format) -> Result<Reader> {
        Self::open_with(path, &Some(format).into())
    }

    /// As [`Reader::open`], with what is known of the file beforehand.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`Error::Parameter`] for columns of a format that has none.
    pub fn open_with(path: impl AsRef<Path>, known: &Known) -> Result<Reader> {
        let (origin, file) = source::open(path.as_ref())?;
        Self::new(origin, file, known)
    }

    /// Reads any source, which errors will call `origin`.
    ///
    /// # Errors
    /// As [`Reader::open_with`], but for [`Error::Open`].
    pub fn new(
        origin: impl Into<String>,
        source: impl Read + Send + 'static,
        known: &Known,
    ) -> Result<Reader> {
        let origin = origin.into();
        let read_error = |source| Fault::Read(source).of(&origin);
        let (source, counts) = source::decompress(source).map_err(read_error)?;
        let Known { format, columns } = known;
        let may_be_text = format.is_none_or(Format::is_text);
        let head_bytes = if may_be_text { NULS_MIN } else { 0 };
        let (head, mut source) = source::peek(source, head_bytes).map_err(read_error)?;
        let is_padded = head == [0; NULS_MIN];
        let nuls = if is_padded { skip_nuls(&mut source).map_err(read_error)? } else { 0 };
        let head_bytes = match format {
            None => RECOGNISED_BYTES,
            Some(format) if format.is_text() || *format == Format::Compact => HEAD_BYTES,
            Some(_) => 0,
        };
        let (head, mut source) = source::peek(source, head_bytes).map_err(read_error)?;
        let format = match (format, columns) {
            (None | Some(Format::Csv), Some(_)) => Format::Csv,
            (Some(format), None) => *format,
            (Some(format), Some(_)) => {
                let value = format.to_string();
                return Err(Error::Parameter {
                    parameter: "format",
                    value,
                    allowed: "csv where columns are named",
                });
            }
            (None, None) if head.is_empty() => return Err(Error::Empty { origin }),
            (None, None) => {
                recognise(&head).ok_or_else(|| Error::UnknownFormat { origin: origin.clone() })?
            }
        };
        let mut head = &head[..head.len().min(HEAD_BYTES)];
        if format.is_text() && head.starts_with(&BYTE_ORDER_MARK) {
            source.read_exact(&mut [0; BYTE_ORDER_MARK.len()]).map_err(read_error)?;
            head = without_mark(head);
        }
        let beginning = |reason| Error::Beginning { origin: origin.clone(), format, reason };
        let mut stamps = Stamps::Seconds;
        let decoder = match format {
            Format::WorldCup98 => Decoder::WorldCup98,
            Format::CommonLog => {
                let lines = Lines::new(head);
                stamps = lines.stamps(head);
                Decoder::CommonLog(Box::new(lines))
            }
            Format::HomeIp => {
                stamps = Stamps::Finer;
                Decoder::HomeIp(Records::default())
            }
            Format::OracleGeneral => Decoder::OracleGeneral,
            Format::Twitter => Decoder::Twitter(LineReader::new(head)),
            Format::Csv => {
                let rows = Rows::new(head, columns.as_ref()).map_err(beginning)?;
                stamps = rows.stamps(head);
                Decoder::Csv(Box::new(rows))
            }
            Format::Compact => {
                let header = Header::decode(head).map_err(beginning)?;
                stamps = header.stamps;
                Decoder::Compact(Box::new(Blocks::new(header)))
            }
            Format::Key32 | Format::Key64 => {
                stamps = Stamps::Finer;
                Decoder::Keys(Keys::of_bytes(if format == Format::Key32 { 4 } else { 8 }))
            }
        };
        let broken = Broken { nuls, ..Broken::new(format) };
        Ok(Reader { origin, source: Box::new(source), counts, decoder, stamps, nuls, broken, is_done: false })
    }

    /// The source's name, as errors give it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.broken.format
    }

    /// The resolution of its times: known from the format, or for a CSV from its first lines.
    pub fn stamps(&self) -> Stamps {
        self.stamps
    }

    /// The number of requests, if the source tells it.
    pub fn requests(&self) -> Option<u64> {
        match &self.decoder {
            Decoder::Compact(blocks) => Some(blocks.header().requests),
            _ => None,
        }
    }

    /// Bytes read from the source so far, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.counts.read.get()
    }

    /// The broken records so far; final when the iterator has ended.
    pub fn broken(&self) -> &Broken {
        &self.broken
    }

    /// The requests in order of time, spread within seconds if the source has whole seconds only.
    pub fn spread(self) -> Spread {
        Spread::new(self)
    }

    /// The final count of broken records.
    pub(crate) fn into_broken(self) -> Broken {
        self.broken
    }

    fn decode(&mut self) -> Result<Option<Result<Request, Flaw>>, Fault> {
        let source = &mut *self.source;
        match &mut self.decoder {
            Decoder::WorldCup98 => Ok(wc98::read(source)?.map(|record| record.map(Request::from))),
            Decoder::CommonLog(lines) => lines.read(source),
            Decoder::HomeIp(records) => Ok(records.read(source)?),
            Decoder::OracleGeneral => Ok(oracle::read(source)?),
            Decoder::Twitter(lines) => twitter::read(lines, source),
            Decoder::Csv(rows) => rows.read(source),
            Decoder::Compact(blocks) => blocks.read(source),
            Decoder::Keys(keys) => Ok(keys.read(source)?),
        }
    }

    /// The reader of the source's lines, and how many of them are its header.
    fn lines(&self) -> Option<(&LineReader, u64)> {
        match &self.decoder {
            Decoder::CommonLog(lines) => Some((lines.lines(), 0)),
            Decoder::Twitter(lines) => Some((lines, 0)),
            Decoder::Csv(rows) => Some((rows.lines(), rows.header_lines())),
            _ => None,
        }
    }

    /// Lines of the source that are no records, so far.
    fn lines_beside(&self) -> u64 {
        self.lines().map_or(0, |(lines, header)| lines.blank + header)
    }

    /// Notes what was left out of the source that is no record.
    fn note_left_out(&mut self) {
        self.broken.nuls = self.nuls + self.lines().map_or(0, |(lines, _)| lines.nuls);
        self.broken.trailing_bytes = self.counts.trailing.get();
    }

    fn read(&mut self) -> Result<Option<Request>> {
        loop {
            let decoded = self.decode();
            if !matches!(decoded, Ok(Some(Ok(_)))) {
                self.note_left_out();
            }
            match decoded.map_err(|fault| fault.of(&self.origin))? {
                Some(Ok(request)) => {
                    self.broken.note_sound();
                    return Ok(Some(request));
                }
                Some(Err(flaw)) => self.broken.note_broken(flaw, self.lines_beside()),
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

#[cfg(test)]
mod tests;
