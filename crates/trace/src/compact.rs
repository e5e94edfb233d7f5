//! The compact format (`.slt`), to which a trace is converted if it is read more than once.
//!
//! A header of 64 bytes, then blocks of up to [`BLOCK_REQUESTS`] requests, all little endian:
//!
//! | bytes of the header | field |
//! |---|---|
//! | 0-7 | `89 53 4c 54 0d 0a 1a 0a`: no text, and damaged by whatever takes it for text |
//! | 8-9 | version, 1 |
//! | 10 | stamps: 0 whole seconds, 1 finer |
//! | 16-23 | requests |
//! | 24-31, 32-39 | first and last time in ns |
//! | 40-47 | bytes of all responses |
//! | 48-55 | blocks |
//! | 60-63 | CRC-32 of the 60 bytes before |
//!
//! | bytes of a block | field |
//! |---|---|
//! | 0-3 | bytes of its columns |
//! | 4-7 | requests |
//! | 8-11 | CRC-32 of the 8 bytes before and of the columns |
//! | 12-19 | time of the first request |
//! | 20- | columns: time, object, size, client, status, method |
//!
//! A column is a byte with the bytes of each value (0 to 8, and for times 16 more where they are in ns and not in
//! seconds), a base of 8 bytes, and the values less the base. Times are differences to the one before. A size is one more
//! than it is, and 0 for none. A column whose values are all equal takes 9 bytes, so what a trace does not say costs
//! nothing.
//!
//! Fixed widths are for speed: a column is decoded in one loop without a branch a value.

use std::io::BufRead;

use crate::broken::Flaw;
use crate::error::Fault;
use crate::format::Stamps;
use crate::request::{Method, Request};
use crate::source::read_full;

/// Most requests of a block.
pub const BLOCK_REQUESTS: usize = 4096;

const MAGIC: [u8; 8] = *b"\x89SLT\r\n\x1a\n";
const VERSION: u16 = 1;
pub(crate) const HEADER_BYTES: usize = 64;
const FRAME_BYTES: usize = 12;
const COLUMNS: usize = 6;
/// Set in the width of times that are in ns.
const NS_FLAG: u8 = 16;
const NS_PER_S: u64 = 1_000_000_000;
/// Most bytes of a block's columns: the time column has one value more than the others.
const COLUMNS_BYTES_MAX: usize = COLUMNS * (9 + 8 * BLOCK_REQUESTS) + 8;

/// The content of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) stamps: Stamps,
    pub(crate) requests: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = u8::from(self.stamps == Stamps::Finer);
        let words = [self.requests, self.first_ns, self.last_ns, self.bytes, self.blocks];
        for (at, word) in words.into_iter().enumerate() {
            bytes[16 + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header, or tells what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, String> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>().filter(|bytes| is_likely(&bytes[..])) else {
            return Err("it does not begin with a compact trace's header".to_owned());
        };
        let word = |at: usize| u64_from(&bytes[at..at + 8]);
        if u64::from(crc32fast::hash(&bytes[..60])) != word(60 - 4) >> 32 {
            return Err("the checksum of its header is wrong".to_owned());
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(format!("it is of version {version}, and this program reads version {VERSION}"));
        }
        Ok(Header {
            stamps: if bytes[10] == 0 { Stamps::Seconds } else { Stamps::Finer },
            requests: word(16),
            first_ns: word(24),
            last_ns: word(32),
            bytes: word(40),
            blocks: word(48),
        })
    }
}

/// Up to eight bytes as a little-endian number.
fn u64_from(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Whether a source that begins with `head` has this format, in any version.
pub(crate) fn is_likely(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Appends the block of these requests, at most [`BLOCK_REQUESTS`].
pub(crate) fn encode_block(requests: &[Request], block: &mut Vec<u8>) {
    debug_assert!((1..=BLOCK_REQUESTS).contains(&requests.len()));
    let begin = block.len();
    block.extend_from_slice(&[0; FRAME_BYTES]);

    let in_ns = requests.iter().any(|request| request.time_ns != 0);
    let time = |request: &Request| {
        let seconds = u64::from(request.time_s);
        if in_ns { seconds * NS_PER_S + u64::from(request.time_ns) } else { seconds }
    };
    let mut values: Vec<u64> = Vec::with_capacity(requests.len());
    let mut before = requests.first().map_or(0, time);
    block.extend_from_slice(&before.to_le_bytes());
    for request in requests {
        let now = time(request);
        values.push(now.wrapping_sub(before));
        before = now;
    }
    // Differences may be negative; the least one is the base.
    let base = values.iter().map(|&value| value as i64).min().unwrap_or(0) as u64;
    encode_column(&values, base, if in_ns { NS_FLAG } else { 0 }, block);

    let columns: [fn(&Request) -> u64; COLUMNS - 1] = [
        |request| request.object,
        |request| request.size.map_or(0, |size| size.saturating_add(1)),
        |request| request.client.into(),
        |request| request.status.into(),
        |request| request.method as u64,
    ];
    for column in columns {
        values.clear();
        values.extend(requests.iter().map(column));
        let base = values.iter().copied().min().unwrap_or(0);
        encode_column(&values, base, 0, block);
    }

    let bytes = (block.len() - begin - FRAME_BYTES) as u32;
    block[begin..][..4].copy_from_slice(&bytes.to_le_bytes());
    block[begin + 4..][..4].copy_from_slice(&(requests.len() as u32).to_le_bytes());
    let crc = checksum(&block[begin..begin + 8], &block[begin + FRAME_BYTES..]);
    block[begin + 8..][..4].copy_from_slice(&crc.to_le_bytes());
}

fn encode_column(values: &[u64], base: u64, flag: u8, block: &mut Vec<u8>) {
    let most = values.iter().map(|&value| value.wrapping_sub(base)).max().unwrap_or(0);
    let width = (u64::BITS - most.leading_zeros()).div_ceil(8) as usize;
    block.push(width as u8 | flag);
    block.extend_from_slice(&base.to_le_bytes());
    for &value in values {
        block.extend_from_slice(&value.wrapping_sub(base).to_le_bytes()[..width]);
    }
}

fn checksum(frame: &[u8], columns: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame);
    hasher.update(columns);
    hasher.finalize()
}

/// Reads block after block into the same memory.
#[derive(Debug)]
pub(crate) struct Blocks {
    header: Header,
    is_begun: bool,
    /// Blocks so far, and their requests, including damaged ones.
    blocks: u64,
    seen: u64,
    /// Whether the place of the next block is unknown, so that reading ends.
    is_lost: bool,
    bytes: Vec<u8>,
    values: [Vec<u64>; COLUMNS],
    requests: Vec<Request>,
    /// Index of the next of these.
    at: usize,
}

impl Blocks {
    /// A reader of the blocks after this header; the source still begins with the header.
    pub(crate) fn new(header: Header) -> Blocks {
        Blocks {
            header,
            is_begun: false,
            blocks: 0,
            seen: 0,
            is_lost: false,
            bytes: Vec::new(),
            values: Default::default(),
            requests: Vec::new(),
            at: 0,
        }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The next request; `None` at the end of the source.
    #[inline]
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> Result<Option<Result<Request, Flaw>>, Fault> {
        if let Some(request) = self.requests.get(self.at) {
            self.at += 1;
            return Ok(Some(Ok(*request)));
        }
        self.read_block(source)
    }

    fn read_block(&mut self, source: &mut dyn BufRead) -> Result<Option<Result<Request, Flaw>>, Fault> {
        (self.at, _) = (0, self.requests.clear());
        if !self.is_begun {
            self.is_begun = true;
            read_full(source, &mut [0; HEADER_BYTES])?;
        }
        if self.is_lost {
            return Ok(None);
        }
        let mut frame = [0; FRAME_BYTES];
        let read = read_full(source, &mut frame)?;
        if read > 0 && self.blocks == self.header.blocks {
            return Err(Fault::MoreBlocks { blocks: self.header.blocks });
        }
        let word = |at: usize| u64_from(&frame[at..at + 4]) as u32;
        let (bytes, requests, crc) = (word(0) as usize, word(4), word(8));
        let is_whole = read == FRAME_BYTES
            && bytes <= COLUMNS_BYTES_MAX
            && (1..=BLOCK_REQUESTS as u32).contains(&requests);
        if !is_whole {
            return Ok(self.rest_is_missing());
        }
        self.bytes.resize(bytes, 0);
        if read_full(source, &mut self.bytes)? < bytes {
            return Ok(self.rest_is_missing());
        }
        self.blocks += 1;
        self.seen = self.seen.saturating_add(requests.into());
        let is_sound = checksum(&frame[..8], &self.bytes) == crc && self.decode(requests as usize).is_some();
        if !is_sound {
            self.requests.clear();
            return Ok(Some(Err(Flaw::Block { requests })));
        }
        self.at = 1;
        Ok(self.requests.first().copied().map(Ok))
    }

    /// The place of the next block is lost, or there is none.
    fn rest_is_missing(&mut self) -> Option<Result<Request, Flaw>> {
        let requests = self.header.requests.saturating_sub(self.seen);
        self.is_lost = true;
        (requests > 0).then_some(Err(Flaw::Missing { requests }))
    }

    /// Decodes the bytes of a block; `None` if they are invalid.
    fn decode(&mut self, count: usize) -> Option<()> {
        let (first, mut rest) = self.bytes.split_first_chunk()?;
        let mut time = u64::from_le_bytes(*first);
        let mut in_ns = false;
        for (at, values) in self.values.iter_mut().enumerate() {
            let (&width, after) = rest.split_first()?;
            let (base, after) = after.split_first_chunk()?;
            in_ns |= at == 0 && width & NS_FLAG != 0;
            let width = usize::from(if at == 0 { width & !NS_FLAG } else { width });
            let (column, after) = after.split_at_checked(width.checked_mul(count)?)?;
            decode_column(column, width, u64::from_le_bytes(*base), count, values)?;
            rest = after;
        }
        let [times, objects, sizes, clients, statuses, methods] = &self.values;
        let columns = times.iter().zip(objects).zip(sizes).zip(clients).zip(statuses).zip(methods);
        self.requests.extend(columns.map(|(((((&step, &object), &size), &client), &status), &method)| {
            time = time.wrapping_add(step);
            let (time_s, time_ns) = if in_ns { (time / NS_PER_S, time % NS_PER_S) } else { (time, 0) };
            Request {
                time_s: time_s as u32,
                time_ns: time_ns as u32,
                client: client as u32,
                object,
                size: size.checked_sub(1),
                status: status as u16,
                method: Method::from_code(method as u8).unwrap_or(Method::Other),
            }
        }));
        rest.is_empty().then_some(())
    }
}

fn decode_column(bytes: &[u8], width: usize, base: u64, count: usize, values: &mut Vec<u64>) -> Option<()> {
    fn fixed<const WIDTH: usize>(bytes: &[u8], base: u64, values: &mut Vec<u64>) {
        let (words, _) = bytes.as_chunks::<WIDTH>();
        values.extend(words.iter().map(|word| {
            let mut whole = [0; 8];
            whole[..WIDTH].copy_from_slice(word);
            base.wrapping_add(u64::from_le_bytes(whole))
        }));
    }
    values.clear();
    match width {
        0 => values.resize(count, base),
        1 => fixed::<1>(bytes, base, values),
        2 => fixed::<2>(bytes, base, values),
        3 => fixed::<3>(bytes, base, values),
        4 => fixed::<4>(bytes, base, values),
        5 => fixed::<5>(bytes, base, values),
        6 => fixed::<6>(bytes, base, values),
        7 => fixed::<7>(bytes, base, values),
        8 => fixed::<8>(bytes, base, values),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_request() -> impl Strategy<Value = Request> {
        let time = (any::<u32>(), prop_oneof![Just(0), 0..1_000_000_000u32]);
        let size = proptest::option::of(prop_oneof![0..100_000u64, 0..u64::MAX - 1]);
        let object = prop_oneof![0..1000u64, any::<u64>()];
        (time, any::<u32>(), object, size, any::<u16>(), 0u8..9).prop_map(
            |((time_s, time_ns), client, object, size, status, method)| Request {
                time_s,
                time_ns,
                client,
                object,
                size,
                status,
                method: Method::from_code(method).unwrap(),
            },
        )
    }

    fn header(requests: usize, blocks: usize) -> Header {
        let (requests, blocks) = (requests as u64, blocks as u64);
        Header { stamps: Stamps::Finer, requests, first_ns: 1, last_ns: 2, bytes: 3, blocks }
    }

    fn written(requests: &[Request], block_requests: usize) -> Vec<u8> {
        let blocks = requests.len().div_ceil(block_requests);
        let mut bytes = header(requests.len(), blocks).encode().to_vec();
        requests.chunks(block_requests).for_each(|block| encode_block(block, &mut bytes));
        bytes
    }

    fn read(bytes: &[u8], header: Header) -> Vec<Result<Request, Flaw>> {
        let (mut blocks, mut source) = (Blocks::new(header), bytes);
        std::iter::from_fn(|| blocks.read(&mut source).unwrap()).collect()
    }

    /// Reads a whole trace, by its own header.
    fn read_whole(bytes: &[u8]) -> Vec<Result<Request, Flaw>> {
        read(bytes, Header::decode(bytes).unwrap())
    }

    #[test]
    fn a_header_is_what_was_written_or_refused() {
        let bytes = header(7, 1).encode();
        assert_eq!(Header::decode(&bytes), Ok(header(7, 1)));
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 4;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(Header::decode(&bytes[..63]).is_err());
        let mut next = bytes;
        next[8] = 2;
        let crc = crc32fast::hash(&next[..60]);
        next[60..].copy_from_slice(&crc.to_le_bytes());
        assert!(Header::decode(&next).unwrap_err().contains("version 2"));
    }

    #[test]
    fn what_a_trace_does_not_say_costs_nothing() {
        let request = |i: u32| Request {
            time_s: 1000 + i / 100,
            time_ns: 0,
            client: 0,
            object: u64::from(i % 200),
            size: None,
            status: 0,
            method: Method::Get,
        };
        let requests: Vec<Request> = (0..4096).map(request).collect();
        // A byte for the time and one for the object.
        let fixed = HEADER_BYTES + FRAME_BYTES + 8 + COLUMNS * 9;
        assert_eq!(written(&requests, BLOCK_REQUESTS).len(), fixed + 2 * 4096);
    }

    #[test]
    fn a_damaged_block_costs_its_requests_and_no_others() {
        let request = |i: u32| Request {
            time_s: i,
            time_ns: 0,
            client: i,
            object: i.into(),
            size: Some(i.into()),
            status: 200,
            method: Method::Get,
        };
        let requests: Vec<Request> = (0..30).map(request).collect();
        let whole = written(&requests, 10);
        let block = (whole.len() - HEADER_BYTES) / 3;
        let mut damaged = whole.clone();
        damaged[HEADER_BYTES + block + FRAME_BYTES + 20] ^= 1;
        let all = read_whole(&damaged);
        assert_eq!(all.len(), 21);
        assert_eq!(all[10], Err(Flaw::Block { requests: 10 }));
        assert_eq!(all[11], Ok(requests[20]));

        // If the length of a block is damaged, the place of the next is lost.
        let mut lost = whole.clone();
        lost[HEADER_BYTES + block + 3] = 0x7f;
        let all = read_whole(&lost);
        assert_eq!((all.len(), all[10]), (11, Err(Flaw::Missing { requests: 20 })));

        // Bytes after that are no block, even if they look like one.
        let found = [&lost[..HEADER_BYTES + block + FRAME_BYTES], &whole[HEADER_BYTES..]].concat();
        let all = read_whole(&found);
        assert_eq!((all.len(), all[10]), (11, Err(Flaw::Missing { requests: 20 })));
    }

    #[test]
    fn what_comes_after_the_last_block_is_an_error() {
        let request = Request {
            time_s: 1,
            time_ns: 0,
            client: 0,
            object: 1,
            size: None,
            status: 0,
            method: Method::Get,
        };
        let whole = written(&[request; 3], 2);
        for more in [&whole[..], &[0]] {
            let bytes = [&whole, more].concat();
            let (mut blocks, mut source) = (Blocks::new(Header::decode(&bytes).unwrap()), &bytes[..]);
            (0..3).for_each(|_| assert_eq!(blocks.read(&mut source).unwrap(), Some(Ok(request))));
            assert!(matches!(blocks.read(&mut source), Err(Fault::MoreBlocks { blocks: 2 })));
        }
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(
            requests in proptest::collection::vec(any_request(), 1..50), block in 1usize..20, cut: usize,
        ) {
            let whole = written(&requests, block);
            let all = read_whole(&whole);
            prop_assert_eq!(all.iter().map(|request| request.unwrap()).collect::<Vec<_>>(), requests.clone());

            // Wherever it is cut, the beginning is read and the rest is counted.
            let cut = HEADER_BYTES + cut % (whole.len() - HEADER_BYTES);
            let all = read_whole(&whole[..cut]);
            let sound = all.iter().filter(|request| request.is_ok()).count();
            prop_assert!(all.iter().take(sound).zip(&requests).all(|(read, request)| *read == Ok(*request)));
            let requests = (requests.len() - sound) as u64;
            prop_assert_eq!(&all[sound..], &[Err(Flaw::Missing { requests })]);
        }

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), requests in 1u8..5, widths: [u8; 6],
        ) {
            // As they are, and as the columns of a block with a valid frame and checksum.
            read(&[&[0; HEADER_BYTES][..], &bytes].concat(), header(1000, 9));
            let mut block = vec![0; FRAME_BYTES];
            block.extend_from_slice(&bytes);
            for (at, width) in widths.into_iter().enumerate() {
                if let Some(byte) = block.get_mut(FRAME_BYTES + 8 + 9 * at) {
                    *byte = width % 24;
                }
            }
            block[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            block[4] = requests;
            let crc = checksum(&block[..8], &block[FRAME_BYTES..]);
            block[8..12].copy_from_slice(&crc.to_le_bytes());
            read(&[&[0; HEADER_BYTES][..], &block].concat(), header(1000, 9));
        }
    }
}
