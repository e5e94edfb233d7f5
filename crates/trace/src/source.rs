//! A source of bytes: a file or stream, decompressed if its first bytes say so.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;
use sidelong_os::open_regular;

use crate::error::{Error, Result};
use crate::text::skip_nuls;

/// First bytes of a gzip member (RFC 1952, 2.3.1).
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a Zstandard frame (RFC 8878, 3.1.1).
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes 1 to 3 of a skippable Zstandard frame, after one of 0x50 to 0x5f (RFC 8878, 3.1.2). Some compressors put one
/// first.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
/// First bytes of an xz stream (The .xz File Format 1.2.1, 2.1.1.1).
pub(crate) const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Base 2 logarithm of the largest Zstandard window: `zstd --ultra --long=31` needs 2 GiB; its own decoder's limit is
/// 128 MiB, as here.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Most KiB of memory for a decoder of xz: `xz -9` needs a little more than 64 MiB.
const XZ_KIB_MAX: u32 = 128 * 1024;
/// Bytes read at a time from a file or a decoder.
const BUFFER_BYTES: usize = 128 * 1024;

/// Counts bytes of a source while another owns it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What is known of a source's bytes as they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Bytes that were read so far, before decompression, to show progress.
    pub(crate) read: ByteCount,
    /// Bytes behind the last gzip member, but for zeros, that are not read.
    pub(crate) trailing: ByteCount,
}

struct Counted<R> {
    source: R,
    count: ByteCount,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.count.add(read);
        Ok(read)
    }
}

/// Opens a regular file; errors name it by its path. A FIFO would keep its reader waiting for a writer.
pub(crate) fn open(path: &Path) -> Result<(String, File)> {
    let file = open_regular(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
    Ok((path.display().to_string(), file))
}

/// The source's bytes if it is plain; otherwise the decompressed bytes of gzip, Zstandard or xz, with one or more
/// members, frames or streams. Decoders check that streams are complete, and use no more memory than their limits.
pub(crate) fn decompress(
    source: impl Read + Send + 'static,
) -> io::Result<(Box<dyn BufRead + Send>, Counts)> {
    let counts = Counts::default();
    let counted = Counted { source, count: counts.read.clone() };
    let (head, whole) = peek(BufReader::with_capacity(BUFFER_BYTES, counted), XZ_MAGIC.len())?;
    let buffered: Box<dyn BufRead + Send> = if head.starts_with(&GZIP_MAGIC) {
        buffer("gzip", Members::new(whole, counts.trailing.clone()))
    } else if is_zstandard(&head) {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        buffer("Zstandard", decoder)
    } else if head.starts_with(&XZ_MAGIC) {
        buffer("xz", lzma_rust2::XzReader::new_mem_limit(whole, true, XZ_KIB_MAX))
    } else {
        Box::new(whole)
    };
    Ok((buffered, counts))
}

/// The members of a gzip file, one after another. Zeros behind a member are padding, and other bytes that begin no member are junk:
/// both are ignored, as gzip does, and junk is counted.
struct Members<R> {
    member: Option<GzDecoder<Ahead<R>>>,
    junk: ByteCount,
}

impl<R: BufRead> Members<R> {
    fn new(source: R, junk: ByteCount) -> Self {
        Members { member: Some(GzDecoder::new(Ahead { first: None, rest: source })), junk }
    }

    /// The next member; `None` if there is none.
    fn next(&self, mut source: Ahead<R>) -> io::Result<Option<GzDecoder<Ahead<R>>>> {
        skip_nuls(&mut source)?;
        let mut first = [0];
        if source.read(&mut first)? == 1 {
            let is_member = first[0] == GZIP_MAGIC[0] && source.fill_buf()?.first() == Some(&GZIP_MAGIC[1]);
            source.first = Some(first[0]);
            if is_member {
                return Ok(Some(GzDecoder::new(source)));
            }
        }
        loop {
            let bytes = source.fill_buf()?.len();
            if bytes == 0 {
                return Ok(None);
            }
            source.consume(bytes);
            self.junk.add(bytes);
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if let Some(ended) = self.member.take() {
                self.member = self.next(ended.into_inner())?;
            }
        }
        Ok(0)
    }
}

/// A source, with its next byte if that was read ahead.
struct Ahead<R> {
    first: Option<u8>,
    rest: R,
}

impl<R: BufRead> Read for Ahead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (buffer.first_mut(), self.first) {
            (Some(place), Some(first)) => {
                (*place, self.first) = (first, None);
                Ok(1)
            }
            _ => self.rest.read(buffer),
        }
    }
}

impl<R: BufRead> BufRead for Ahead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &self.first {
            Some(first) => Ok(std::slice::from_ref(first)),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match self.first {
            Some(_) if bytes == 0 => {}
            Some(_) => self.first = None,
            None => self.rest.consume(bytes),
        }
    }
}

fn is_zstandard(head: &[u8]) -> bool {
    let is_skippable =
        head.split_first().is_some_and(|(byte, rest)| byte >> 4 == 5 && rest.starts_with(&ZSTD_SKIPPABLE));
    is_skippable || head.starts_with(&ZSTD_MAGIC)
}

fn buffer(of: &'static str, decoder: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, Compressed { of, decoder }))
}

/// A decoder. Its own errors seldom tell that the stream is damaged.
struct Compressed<R> {
    of: &'static str,
    decoder: R,
}

impl<R: Read> Read for Compressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| match error.kind() {
            // The caller tries again.
            ErrorKind::Interrupted => error,
            kind @ ErrorKind::UnexpectedEof => {
                io::Error::new(kind, format!("its {} stream is cut short ({error})", self.of))
            }
            kind => io::Error::new(kind, format!("its {} stream does not decompress ({error})", self.of)),
        })
    }
}

/// The first `bytes` bytes of a source (fewer only if it has fewer), and the source, which still contains them.
pub(crate) fn peek<R: BufRead>(mut source: R, bytes: usize) -> io::Result<(Vec<u8>, impl BufRead + use<R>)> {
    let mut head = Vec::with_capacity(bytes);
    source.by_ref().take(bytes as u64).read_to_end(&mut head)?;
    let whole = Cursor::new(head.clone()).chain(source);
    Ok((head, whole))
}

/// Fills `buffer` as far as the source allows, and returns how far, which `read_exact` does not tell.
pub(crate) fn read_full(source: &mut dyn BufRead, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
