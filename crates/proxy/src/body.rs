//! The framing of bodies (RFC 9112, sections 6 and 7): where a body that is read ends, and how one that is written is framed.

use std::io::Write as _;

use crate::buffer::Buffer;
use crate::fields::{Fields, Name};
use crate::free_list::{self, BYTES_FREE};

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// So many bytes, as Content-Length says.
    Length(u64),
    /// As its chunks say.
    Chunked,
    /// Until the connection is closed, or for as long as a tunnel stands.
    UntilClose,
}

/// Most bytes of a line with a chunk's size and its extensions.
const SIZE_LINE_BYTES_MAX: usize = 256;
/// Most bytes of all extensions of a body, so that they cannot be more than the data (RFC 9112, 7.1.1).
const EXTENSION_BYTES_MAX: usize = 16 << 10;
/// Most digits of a chunk's size.
const SIZE_DIGITS_MAX: usize = 15;
/// Most bytes and fields of a trailer section.
const TRAILER_BYTES_MAX: usize = 8 << 10;
const TRAILERS_MAX: usize = 32;

/// A body that breaks its framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What is next in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The first so many bytes of the buffer are data.
    Data(usize),
    /// More bytes must be read.
    Wait,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    /// At a line with a chunk's size.
    Size,
    /// In a chunk with so many bytes left.
    Chunk(u64),
    /// At the line end after a chunk.
    ChunkEnd,
    /// In the trailer section.
    Trailers,
    End,
}

/// Finds a body in what is read.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// Bytes of extensions so far.
    extensions: usize,
    trailers: Option<Box<Fields>>,
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::End,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Decoder { state, extensions: 0, trailers: None }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// The trailers, once the body has ended.
    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
    }

    /// What is next, after the framing at the buffer's start was taken out of it.
    pub(crate) fn next(&mut self, buffer: &mut Buffer) -> Result<Next, Malformed> {
        loop {
            let bytes = buffer.bytes();
            match self.state {
                State::End => return Ok(Next::End),
                _ if bytes.is_empty() => return Ok(Next::Wait),
                State::UntilClose => return Ok(Next::Data(bytes.len())),
                State::Length(left) | State::Chunk(left) => {
                    return Ok(Next::Data(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))));
                }
                State::ChunkEnd => match bytes {
                    [b'\r', b'\n', ..] => {
                        buffer.consume(2);
                        self.state = State::Size;
                    }
                    [b'\r'] => return Ok(Next::Wait),
                    _ => return Err(Malformed),
                },
                State::Size => {
                    let Some(end) = line_end(bytes, SIZE_LINE_BYTES_MAX)? else { return Ok(Next::Wait) };
                    let (size, extensions) = chunk_size(&bytes[..end])?;
                    self.extensions += extensions;
                    if self.extensions > EXTENSION_BYTES_MAX {
                        return Err(Malformed);
                    }
                    buffer.consume(end + 2);
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                }
                State::Trailers => {
                    let Some(end) = self.read_trailers(bytes)? else { return Ok(Next::Wait) };
                    buffer.consume(end);
                    self.state = State::End;
                }
            }
        }
    }

    /// Counts `count` bytes of data as used.
    pub(crate) fn used(&mut self, count: usize) {
        let count = count as u64;
        self.state = match self.state {
            State::Length(left) if left == count => State::End,
            State::Length(left) => State::Length(left - count),
            State::Chunk(left) if left == count => State::ChunkEnd,
            State::Chunk(left) => State::Chunk(left - count),
            state => state,
        };
    }

    /// The connection was closed by the other side: whether the body was complete.
    pub(crate) fn closed(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::End;
        }
        self.is_at_end()
    }

    /// Reads the trailer section if it is complete, and returns its length.
    fn read_trailers(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if bytes.starts_with(b"\r\n") {
            return Ok(Some(2));
        }
        let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
        let (end, fields) = match httparse::parse_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(parsed)) => parsed,
            Ok(httparse::Status::Partial) if bytes.len() <= TRAILER_BYTES_MAX => return Ok(None),
            _ => return Err(Malformed),
        };
        if has_bare_line_feed(&bytes[..end]) {
            return Err(Malformed);
        }
        let mut trailers = Fields::default();
        trailers.parsed(&bytes[..end], fields);
        judge_trailers(&trailers)?;
        self.trailers = Some(Box::new(trailers));
        Ok(Some(end))
    }
}

/// Fields about framing or routing must not come late (RFC 9110, 6.5.1), nor those that say whose a request is.
pub(crate) fn judge_trailers(trailers: &Fields) -> Result<(), Malformed> {
    let is_late = |name: Name| {
        use Name::{ContentLength, Forwarded, ForwardedFor, ForwardedOther, ForwardedProto, Host, Via};
        let of_way = matches!(name, Forwarded | ForwardedFor | ForwardedOther | ForwardedProto | Via);
        name.is_hop_by_hop() || matches!(name, ContentLength | Host) || of_way
    };
    if trailers.iter().any(|field| is_late(field.known)) { Err(Malformed) } else { Ok(()) }
}

/// The end of the first line, which CR and LF end; `None` if it is not complete.
fn line_end(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, Malformed> {
    let line = &bytes[..bytes.len().min(bytes_max)];
    match memchr::memchr2(b'\r', b'\n', line) {
        Some(end) => match bytes.get(end..end + 2) {
            Some(b"\r\n") => Ok(Some(end)),
            None if bytes[end] == b'\r' => Ok(None),
            _ => Err(Malformed),
        },
        None if bytes.len() < bytes_max => Ok(None),
        None => Err(Malformed),
    }
}

/// The size that a chunk's first line states, and the length of its extensions. Extensions are checked for control characters and otherwise ignored, as RFC
/// 9112, 7.1.1 allows.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), Malformed> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > SIZE_DIGITS_MAX {
        return Err(Malformed);
    }
    let extensions = line[digits..].trim_ascii_start();
    let is_clean = extensions.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f);
    // Some servers pad a size with spaces, and all readers take it so.
    if !is_clean || !(extensions.is_empty() || extensions.starts_with(b";")) {
        return Err(Malformed);
    }
    let hex = |byte: u8| u64::from((byte as char).to_digit(16).unwrap_or(0));
    let size = line[..digits].iter().fold(0, |size, digit| size << 4 | hex(*digit));
    Ok((size, line.len() - digits))
}

/// Whether a line in `head` ends with LF alone. The parser takes it for a line end; servers differ on it.
pub(crate) fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// Frames a body that is written.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    is_chunked: bool,
    /// Bytes left of the chunk whose size was written.
    chunk: usize,
    /// Whether a chunk was written: the next one's size stands behind a line end.
    has_chunks: bool,
}

impl Encoder {
    pub(crate) fn new(framing: Framing) -> Self {
        Encoder { is_chunked: framing == Framing::Chunked, chunk: 0, has_chunks: false }
    }

    /// How many of `count` bytes may be written after `out`, to which the framing is added.
    pub(crate) fn begin(&mut self, count: usize, out: &mut Vec<u8>) -> usize {
        if !self.is_chunked {
            return count;
        }
        if self.chunk == 0 && count > 0 {
            free_list::take(&BYTES_FREE, out);
            if self.has_chunks {
                out.extend_from_slice(b"\r\n");
            }
            self.has_chunks = true;
            self.chunk = count;
            // A Vec takes all that is written.
            let _ = write!(out, "{count:x}\r\n");
        }
        self.chunk.min(count)
    }

    /// `count` bytes were written.
    pub(crate) fn wrote(&mut self, count: usize) {
        if self.is_chunked {
            self.chunk -= count;
        }
    }

    /// Adds the end of the body to `out`.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_chunked) {
            return;
        }
        free_list::take(&BYTES_FREE, out);
        if self.has_chunks {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n");
        for field in trailers.iter().flat_map(|trailers| trailers.iter()) {
            push_field(out, field.name, field.value);
        }
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    push_list(out, name, &[value]);
}

/// Writes a field whose value is a list (RFC 9110, 5.6.1).
pub(crate) fn push_list(out: &mut Vec<u8>, name: &[u8], values: &[&[u8]]) {
    out.reserve(name.len() + 4 + values.iter().map(|value| value.len() + 2).sum::<usize>());
    out.extend_from_slice(name);
    let mut before: &[u8] = b": ";
    for value in values {
        out.extend_from_slice(before);
        out.extend_from_slice(value);
        before = b", ";
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The body in `pieces`, which arrive one after another, and what is behind it; the error if it breaks its framing.
    fn decoded<'a>(
        framing: Framing,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<u8>, bool, Vec<u8>), Malformed> {
        let (mut decoder, mut body) = (Decoder::new(framing), Vec::new());
        let mut unused = Vec::new();
        for piece in pieces {
            unused.extend_from_slice(piece);
            let mut buffer = Buffer::from(unused.as_slice());
            while let Next::Data(count) = decoder.next(&mut buffer)? {
                body.extend_from_slice(&buffer.bytes()[..count]);
                decoder.used(count);
                buffer.consume(count);
            }
            unused = buffer.bytes().to_vec();
        }
        Ok((body, decoder.is_at_end(), unused))
    }

    fn chunked(text: &str) -> Result<(String, bool, String), Malformed> {
        let (body, has_ended, rest) = decoded(Framing::Chunked, [text.as_bytes()])?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ok((text(body), has_ended, text(rest)))
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let whole = |body: &str, rest: &str| Ok((body.to_owned(), true, rest.to_owned()));
        assert_eq!(chunked("5\r\nhello\r\n0\r\n\r\nGET"), whole("hello", "GET"));
        assert_eq!(chunked("a;name=\"value\"\r\n0123456789\r\n00\r\n\r\n"), whole("0123456789", ""));
        assert_eq!(chunked("0\r\nx-sum: 7\r\n\r\nnext"), whole("", "next"));
        assert_eq!(chunked("5  \r\nhello\r\n0 \t\r\n\r\n"), whole("hello", ""));
        assert_eq!(chunked("5\r\nhel"), Ok(("hel".to_owned(), false, String::new())));
        let (body, has_ended, rest) = decoded(Framing::Length(3), [b"ab".as_slice(), b"cd"]).unwrap();
        assert_eq!((body.as_slice(), has_ended, rest.as_slice()), (b"abc".as_slice(), true, b"d".as_slice()));
    }

    #[test]
    fn chunks_that_another_reader_might_take_otherwise_are_refused() {
        let wrong = [
            "\r\n",
            "x\r\n",
            "0x5\r\nhello\r\n",
            "-5\r\n",
            "+5\r\n",
            " 5\r\nhello\r\n",
            "5\nhello\r\n",
            "5\r\nhelloX\r\n",
            "5\r\nhello\n",
            "5\rx",
            "5;\x01\r\nhello\r\n",
            "5 x\r\nhello\r\n",
            "1234567890abcdef\r\n",
            "0\r\ncontent-length: 5\r\n\r\n",
            "0\r\ntransfer-encoding: chunked\r\n\r\n",
            "0\r\nhost: a\r\n\r\n",
            "0\r\na: b\n\r\n",
            "0\r\na : b\r\n\r\n",
            "0\r\n a: b\r\n\r\n",
        ];
        for text in wrong {
            assert_eq!(chunked(text), Err(Malformed), "{text:?}");
        }
        let extension = format!("5;{}\r\nhello\r\n", "x".repeat(SIZE_LINE_BYTES_MAX));
        assert_eq!(chunked(&extension), Err(Malformed));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_however_it_arrives(
            pieces in vec(vec(any::<u8>(), 1..200), 0..10),
            cuts in vec(1usize..40, 1..20),
        ) {
            let (mut encoder, mut wire) = (Encoder::new(Framing::Chunked), Vec::new());
            for piece in &pieces {
                let mut rest = piece.as_slice();
                while !rest.is_empty() {
                    let room = encoder.begin(rest.len(), &mut wire);
                    // A socket may take less than that.
                    let taken = room.min(77);
                    wire.extend_from_slice(&rest[..taken]);
                    encoder.wrote(taken);
                    rest = &rest[taken..];
                }
            }
            encoder.end(None, &mut wire);
            let (mut rest, mut arrived) = (wire.as_slice(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at(rest.len().min(*cut));
                arrived.push(piece);
                rest = behind;
            }
            let (body, has_ended, unused) = decoded(Framing::Chunked, arrived).unwrap();
            prop_assert_eq!((body, has_ended, unused.len()), (pieces.concat(), true, 0));
        }

        #[test]
        fn no_bytes_break_the_decoder(bytes in vec(any::<u8>(), 0..300)) {
            let _ = decoded(Framing::Chunked, [bytes.as_slice()]);
        }
    }
}
