//! oracleGeneral, libCacheSim's binary trace: fixed records of 24 bytes, little endian, one after another.
//!
//! Format: libCacheSim, `traceReader/customizedReader/oracle/oracleGeneralBin.h`.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | time, in seconds, mostly since the trace began |
//! | 4-11 | object number |
//! | 12-15 | size of the object in bytes |
//! | 16-23 | number of the next request for the object, counting from 0; -1, or the largest number, for none |
//!
//! Who asked, how, and how it was answered is not in it.

use std::io::{self, BufRead};

use crate::broken::Flaw;
use crate::request::{Method, Request};
use crate::source::read_full;

/// Bytes of one record.
pub(crate) const RECORD_BYTES: usize = 24;

/// No further request for the object.
pub(crate) const NEXT_NONE: i64 = -1;

/// Where the number of the next request lies in a record.
pub(crate) const NEXT_AT: usize = 16;

/// Encodes a request in 24 bytes: seconds are truncated, a size is 0 if unknown. `None` if its size is above `u32::MAX`.
pub(crate) fn encode(request: &Request, next: i64) -> Option<[u8; RECORD_BYTES]> {
    let size = u32::try_from(request.size.unwrap_or(0)).ok()?;
    let mut bytes = [0; RECORD_BYTES];
    bytes[0..4].copy_from_slice(&request.time_s.to_le_bytes());
    bytes[4..12].copy_from_slice(&request.object.to_le_bytes());
    bytes[12..16].copy_from_slice(&size.to_le_bytes());
    bytes[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
    Some(bytes)
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Request, Flaw> {
    let next = next_of(bytes);
    if next < NEXT_NONE {
        return Err(Flaw::Next(next));
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Request {
        time_s: word(0),
        time_ns: 0,
        client: 0,
        object: object_of(bytes),
        size: Some(word(12).into()),
        status: 0,
        method: Method::Get,
    })
}

pub(crate) fn object_of(bytes: &[u8; RECORD_BYTES]) -> u64 {
    bytes[4..12].iter().rev().fold(0, |object, byte| object << 8 | u64::from(*byte))
}

fn next_of(bytes: &[u8; RECORD_BYTES]) -> i64 {
    let (_, next) = bytes.split_last_chunk().expect("a record is longer");
    i64::from_le_bytes(*next)
}

/// The next record; `None` at the end of the source.
pub(crate) fn read(source: &mut dyn BufRead) -> io::Result<Option<Result<Request, Flaw>>> {
    let mut bytes = [0; RECORD_BYTES];
    Ok(match read_full(source, &mut bytes)? {
        0 => None,
        RECORD_BYTES => Some(decode(&bytes)),
        bytes => Some(Err(Flaw::Truncated { bytes, of: RECORD_BYTES })),
    })
}

/// Whether `head`, the first bytes of a source, looks like records: in nine of ten, times do not decrease, and next
/// requests lie ahead and within a plausible length.
pub(crate) fn is_likely(head: &[u8]) -> bool {
    const REQUESTS_MAX: i64 = 1 << 48;
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    let mut last_s = 0;
    let mut sound = 0;
    for (number, bytes) in (0i64..).zip(records) {
        let next = next_of(bytes);
        let is_ahead = next == NEXT_NONE || next == i64::MAX || (number < next && next < REQUESTS_MAX);
        let time_s = decode(bytes).map_or(0, |request| request.time_s);
        sound += usize::from(is_ahead && time_s >= last_s);
        last_s = time_s;
    }
    !records.is_empty() && sound * 10 >= records.len() * 9
}
