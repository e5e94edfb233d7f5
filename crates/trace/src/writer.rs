//! Writes traces, for `sidelong-lab trace convert` and `synth`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustc_hash::FxBuildHasher;

use crate::compact::{self, BLOCK_REQUESTS, HEADER_BYTES, Header};
use crate::error::{Error, Result};
use crate::format::{Format, Stamps};
use crate::request::Request;
use crate::{csv, oracle};

/// Most distinct objects of an oracleGeneral trace to be written: at the end the place of each one's next request is
/// kept, in at most 1 GB.
pub const WRITER_OBJECTS_MAX: usize = 1 << 25;

/// Bytes written to the file at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Records of an oracleGeneral trace that are linked at a time, in 6 MB.
const LINKED_RECORDS: usize = 1 << 18;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a trace in bounded memory. The file gets its name when [`Writer::finish`] returns, and is removed if that is
/// never called.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    /// Its temporary name.
    part: PathBuf,
    file: File,
    /// Bytes not yet in the file, and the number of bytes in it.
    buffer: Vec<u8>,
    flushed: u64,
    requests: u64,
    encoder: Encoder,
}

#[derive(Debug)]
enum Encoder {
    Compact { header: Header, block: Vec<Request> },
    OracleGeneral,
    Csv { stamps: Stamps },
}

impl Writer {
    /// Starts a trace in `format`: [`Format::Compact`], [`Format::OracleGeneral`] or [`Format::Csv`]. `stamps` is the
    /// expected resolution of times; finer times are still written exactly.
    ///
    /// oracleGeneral has whole seconds only, no client, status or method, and a size of 0 for unknown.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another format, [`Error::Write`].
    pub fn create(path: impl AsRef<Path>, format: Format, stamps: Stamps) -> Result<Writer> {
        let path = path.as_ref().to_owned();
        // It will be replaced at the end, which must not happen to a device or a directory.
        if fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a regular file");
            return Err(Error::Write { path, source });
        }
        let mut buffer = Vec::new();
        let encoder = match format {
            Format::Compact => {
                // The header is written at the end; until then the file is not recognised as a trace.
                buffer.resize(HEADER_BYTES, 0);
                let header =
                    Header { stamps, requests: 0, first_ns: u64::MAX, last_ns: 0, bytes: 0, blocks: 0 };
                Encoder::Compact { header, block: Vec::with_capacity(BLOCK_REQUESTS) }
            }
            Format::OracleGeneral => Encoder::OracleGeneral,
            Format::Csv => {
                buffer.extend_from_slice(csv::HEADER.as_bytes());
                buffer.push(b'\n');
                Encoder::Csv { stamps }
            }
            _ => {
                let (value, allowed) =
                    (format.to_string(), "slt, oracleGeneral or csv where a trace is written");
                return Err(Error::Parameter { parameter: "format", value, allowed });
            }
        };
        // Two programs that write the same trace must not write to one file.
        let mut part = path.clone().into_os_string();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let file = File::options().read(true).write(true).create_new(true).open(&part);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::Write { path: part.clone(), source },
            _ => Error::Write { path: path.clone(), source },
        })?;
        Ok(Writer { path, part, file, buffer, flushed: 0, requests: 0, encoder })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`Error::Write`], and [`Error::Size`] for a size that oracleGeneral cannot hold.
    pub fn write(&mut self, request: &Request) -> Result<()> {
        self.requests += 1;
        match &mut self.encoder {
            Encoder::Compact { header, block } => {
                let ns = request.time().as_nanos() as u64;
                header.first_ns = header.first_ns.min(ns);
                header.last_ns = header.last_ns.max(ns);
                header.bytes = header.bytes.saturating_add(request.size.unwrap_or(0));
                if request.time_ns != 0 {
                    header.stamps = Stamps::Finer;
                }
                block.push(*request);
                if block.len() < BLOCK_REQUESTS {
                    return Ok(());
                }
                header.blocks += 1;
                compact::encode_block(block, &mut self.buffer);
                block.clear();
            }
            Encoder::OracleGeneral => {
                let record = oracle::encode(request, oracle::NEXT_NONE).ok_or_else(|| Error::Size {
                    path: self.path.clone(),
                    bytes: request.size.unwrap_or_default(),
                    number: self.requests,
                })?;
                self.buffer.extend_from_slice(&record);
            }
            Encoder::Csv { stamps } => {
                write_row(request, *stamps, &mut self.buffer).map_err(|source| self.failed(source))?;
            }
        }
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the rest, and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Write`], and [`Error::TooMany`] for an oracleGeneral trace of more than [`WRITER_OBJECTS_MAX`] objects.
    pub fn finish(mut self) -> Result<Written> {
        if let Encoder::Compact { header, block } = &mut self.encoder {
            if !block.is_empty() {
                header.blocks += 1;
                compact::encode_block(block, &mut self.buffer);
            }
            header.requests = self.requests;
            header.first_ns = header.first_ns.min(header.last_ns);
        }
        self.flush()?;
        match &self.encoder {
            Encoder::Compact { header, .. } => {
                self.file.write_all_at(&header.encode(), 0).map_err(|source| self.failed(source))?;
            }
            Encoder::OracleGeneral => self.link()?,
            Encoder::Csv { .. } => (),
        }
        fs::rename(&self.part, &self.path).map_err(|source| self.failed(source))?;
        Ok(Written { requests: self.requests, bytes: self.flushed })
    }

    /// Sets in each record of an oracleGeneral trace the number of the next request for its object: backwards from the
    /// end, where that is known, piece by piece.
    fn link(&self) -> Result<()> {
        let mut next: HashMap<u64, u64, FxBuildHasher> = HashMap::default();
        let mut piece = vec![0; LINKED_RECORDS * oracle::RECORD_BYTES];
        let mut end = self.requests;
        while end > 0 {
            let begin = end.saturating_sub(LINKED_RECORDS as u64);
            let piece = &mut piece[..(end - begin) as usize * oracle::RECORD_BYTES];
            let at = begin * oracle::RECORD_BYTES as u64;
            self.file.read_exact_at(piece, at).map_err(|source| self.failed(source))?;
            let (records, _) = piece.as_chunks_mut::<{ oracle::RECORD_BYTES }>();
            for (index, record) in records.iter_mut().enumerate().rev() {
                let object = oracle::object_of(record);
                if next.len() >= WRITER_OBJECTS_MAX && !next.contains_key(&object) {
                    let origin = self.path.display().to_string();
                    let max = WRITER_OBJECTS_MAX as u64;
                    return Err(Error::TooMany { origin, what: "distinct objects", max });
                }
                if let Some(later) = next.insert(object, begin + index as u64) {
                    record[oracle::NEXT_AT..].copy_from_slice(&later.to_le_bytes());
                }
            }
            self.file.write_all_at(piece, at).map_err(|source| self.failed(source))?;
            end = begin;
        }
        Ok(())
    }

    /// Writes the buffer to the file.
    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer).map_err(|source| self.failed(source))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.path.clone(), source }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` it no longer exists.
        let _ = fs::remove_file(&self.part);
    }
}

fn write_row(request: &Request, stamps: Stamps, row: &mut Vec<u8>) -> io::Result<()> {
    let Request { time_s, time_ns, client, object, size, status, method } = request;
    // A trace that seemed to have whole seconds may turn out to have finer ones.
    match (stamps, time_ns) {
        (Stamps::Seconds, 0) => write!(row, "{time_s},{object},")?,
        _ => write!(row, "{time_s}.{time_ns:09},{object},")?,
    }
    size.map_or(Ok(()), |size| write!(row, "{size}"))?;
    writeln!(row, ",{client},{status},{}", method.as_str())
}

#[cfg(test)]
mod tests;
