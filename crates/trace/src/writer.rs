//! Traces written: what `sidelong trace convert` and `synth` end in.

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

/// Distinct objects of an oracleGeneral trace that is written: for each, the place of its last request is kept, 1 GB of
/// them at most.
pub const WRITER_OBJECTS_MAX: usize = 1 << 25;

/// Bytes that are given to the file at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Records of an oracleGeneral trace that are held for the number of the next request, 6 MB of them; with those before,
/// it is put right in the file.
const HELD_RECORDS: usize = 1 << 18;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a trace, in bounded memory. The file has its name when [`Writer::finish`] has returned and not before, and is
/// gone if it never does.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    /// Where it is until it has its name.
    part: PathBuf,
    file: File,
    /// Bytes that the file does not have yet, and how many it has.
    buffer: Vec<u8>,
    flushed: u64,
    requests: u64,
    encoder: Encoder,
}

#[derive(Debug)]
enum Encoder {
    Compact { header: Header, block: Vec<Request> },
    OracleGeneral { last: HashMap<u64, u64, FxBuildHasher> },
    Csv { stamps: Stamps },
}

impl Writer {
    /// Begins a trace in `format`, of which [`Format::Compact`], [`Format::OracleGeneral`] and [`Format::Csv`] are
    /// written. `stamps` says how finely its times are told; where they turn out to be finer, a compact trace says so.
    ///
    /// oracleGeneral has whole seconds only, no client, status or method, and a size of 0 where there is none.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another format, [`Error::Write`].
    pub fn create(path: impl AsRef<Path>, format: Format, stamps: Stamps) -> Result<Writer> {
        let path = path.as_ref().to_owned();
        let mut buffer = Vec::new();
        let encoder = match format {
            Format::Compact => {
                // The header is written in the end; until then nothing takes this for a trace.
                buffer.resize(HEADER_BYTES, 0);
                let header =
                    Header { stamps, requests: 0, first_ns: u64::MAX, last_ns: 0, bytes: 0, blocks: 0 };
                Encoder::Compact { header, block: Vec::with_capacity(BLOCK_REQUESTS) }
            }
            Format::OracleGeneral => Encoder::OracleGeneral { last: HashMap::default() },
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
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&part);
        let file = file.map_err(|source| Error::Write { path: path.clone(), source })?;
        Ok(Writer { path, part, file, buffer, flushed: 0, requests: 0, encoder })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`Error::Write`], and [`Error::TooMany`] beyond [`WRITER_OBJECTS_MAX`].
    pub fn write(&mut self, request: &Request) -> Result<()> {
        let number = self.requests;
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
            Encoder::OracleGeneral { last } => {
                if last.len() >= WRITER_OBJECTS_MAX && !last.contains_key(&request.object) {
                    let origin = self.path.display().to_string();
                    let max = WRITER_OBJECTS_MAX as u64;
                    return Err(Error::TooMany { origin, what: "distinct objects", max });
                }
                if let Some(before) = last.insert(request.object, number) {
                    let at = before * oracle::RECORD_BYTES as u64 + oracle::NEXT_AT as u64;
                    self.put(at, &number.to_le_bytes())?;
                }
                self.buffer.extend_from_slice(&oracle::encode(request, oracle::NEXT_NONE));
                if self.buffer.len() < HELD_RECORDS * oracle::RECORD_BYTES {
                    return Ok(());
                }
                let older = HELD_RECORDS / 2 * oracle::RECORD_BYTES;
                return self.flush(older);
            }
            Encoder::Csv { stamps } => {
                write_row(request, *stamps, &mut self.buffer).map_err(|source| self.failed(source))?;
            }
        }
        if self.buffer.len() >= BUFFER_BYTES { self.flush(self.buffer.len()) } else { Ok(()) }
    }

    /// Writes what is left, and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self) -> Result<Written> {
        if let Encoder::Compact { header, block } = &mut self.encoder {
            if !block.is_empty() {
                header.blocks += 1;
                compact::encode_block(block, &mut self.buffer);
            }
            header.requests = self.requests;
            header.first_ns = header.first_ns.min(header.last_ns);
            let header = header.encode();
            self.put(0, &header)?;
        }
        self.flush(self.buffer.len())?;
        fs::rename(&self.part, &self.path).map_err(|source| self.failed(source))?;
        Ok(Written { requests: self.requests, bytes: self.flushed })
    }

    /// Replaces bytes that were written before.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match at.checked_sub(self.flushed) {
            // What is not in the file is in memory.
            Some(at) => self.buffer[at as usize..][..bytes.len()].copy_from_slice(bytes),
            None => self.file.write_all_at(bytes, at).map_err(|source| self.failed(source))?,
        }
        Ok(())
    }

    /// Gives the first `bytes` that are held to the file.
    fn flush(&mut self, bytes: usize) -> Result<()> {
        self.file.write_all(&self.buffer[..bytes]).map_err(|source| self.failed(source))?;
        self.buffer.drain(..bytes);
        self.flushed += bytes as u64;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.path.clone(), source }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` it is not there any more.
        let _ = fs::remove_file(&self.part);
    }
}

fn write_row(request: &Request, stamps: Stamps, row: &mut Vec<u8>) -> io::Result<()> {
    let Request { time_s, time_ns, client, object, size, status, method } = request;
    match stamps {
        Stamps::Seconds => write!(row, "{time_s},{object},")?,
        Stamps::Finer => write!(row, "{time_s}.{time_ns:09},{object},")?,
    }
    size.map_or(Ok(()), |size| write!(row, "{size}"))?;
    writeln!(row, ",{client},{status},{}", method.as_str())
}

#[cfg(test)]
mod tests;
