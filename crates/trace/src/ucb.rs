//! The binary log of UC Berkeley's Home IP service: 18 days of what 8,377 dial-in clients asked of the web in 1996.
//! Records of 60 bytes, big endian, each with the request line behind it.
//!
//! Source: S. Gribble, "UC Berkeley Home IP HTTP Traces", The Internet Traffic Archive, July 1997, and `logparse.h` of
//! the tools there. What is unknown has all bits set.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3, 4-7 | when the request was sent: seconds since the Unix epoch, and microseconds |
//! | 8-15, 16-23 | when the first and the last byte of the response were seen, likewise |
//! | 24-27, 28-29 | client address (made anonymous) and port |
//! | 30-33, 34-35 | server address (made anonymous) and port |
//! | 36, 37 | headers of the client and of the server, a bit each |
//! | 38-49 | If-Modified-Since, Expires, Last-Modified: seconds since the Unix epoch |
//! | 50-53, 54-57 | bytes of the response's header, and of its body |
//! | 58-59 | bytes of the request line that follows, `GET 9168504434183313441..gif HTTP/1.0` |
//!
//! A record carries no mark of its own. One whose length is damaged takes the reader out of step; what protects us is
//! that behind every record there must be a request line.

use std::io::{self, BufRead};

use twox_hash::XxHash3_64;

use crate::broken::Flaw;
use crate::request::{Method, Request};
use crate::source::read_full;
use crate::text::split_once;

/// Bytes of one record before its request line.
pub(crate) const RECORD_BYTES: usize = 60;

const UNKNOWN: u32 = u32::MAX;
const MICROS_PER_S: u32 = 1_000_000;

/// Reads records and their request lines into the same buffer.
#[derive(Debug, Default)]
pub(crate) struct Records {
    line: Vec<u8>,
}

impl Records {
    /// The next record; `None` at the end of the source.
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> io::Result<Option<Result<Request, Flaw>>> {
        let mut bytes = [0; RECORD_BYTES];
        match read_full(source, &mut bytes)? {
            0 => return Ok(None),
            RECORD_BYTES => (),
            bytes => return Ok(Some(Err(Flaw::Truncated { bytes, of: RECORD_BYTES }))),
        }
        // At most 64 KiB, whatever the record says.
        self.line.resize(line_bytes(&bytes).into(), 0);
        let read = read_full(source, &mut self.line)?;
        if read < self.line.len() {
            let of = RECORD_BYTES + self.line.len();
            return Ok(Some(Err(Flaw::Truncated { bytes: RECORD_BYTES + read, of })));
        }
        Ok(Some(decode(&bytes, &self.line)))
    }
}

fn word(bytes: &[u8; RECORD_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn line_bytes(bytes: &[u8; RECORD_BYTES]) -> u16 {
    u16::from_be_bytes([bytes[58], bytes[59]])
}

fn decode(bytes: &[u8; RECORD_BYTES], line: &[u8]) -> Result<Request, Flaw> {
    let (seconds, micros) = (word(bytes, 0), word(bytes, 4));
    if seconds == UNKNOWN || micros >= MICROS_PER_S {
        return Err(Flaw::Clock { seconds, micros });
    }
    let (method, url) = split_line(line).ok_or(Flaw::RequestLine { bytes: line_bytes(bytes) })?;
    // The line names no host, so the server's address distinguishes equal paths of two sites.
    let server = u64::from(word(bytes, 30));
    Ok(Request {
        time_s: seconds,
        time_ns: micros * 1000,
        client: word(bytes, 24),
        object: XxHash3_64::oneshot_with_seed(server, url),
        size: Some(word(bytes, 54)).filter(|&size| size != UNKNOWN).map(u64::from),
        status: 0,
        method,
    })
}

/// Splits `GET /path HTTP/1.0`; HTTP/0.9 names no protocol.
fn split_line(line: &[u8]) -> Option<(Method, &[u8])> {
    let (token, rest) = split_once(line, b" ")?;
    let url = split_once(rest, b" ").map_or(rest, |(url, _)| url);
    let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_uppercase);
    let is_text = !url.is_empty() && line.iter().all(|byte| !byte.is_ascii_control());
    (is_token && is_text).then(|| (Method::from_token(token), url))
}

/// Whether `head`, the first bytes of a source, begins with records.
pub(crate) fn is_likely(mut head: &[u8]) -> bool {
    let (mut sound, mut all) = (0, 0);
    while let Some((bytes, rest)) = head.split_first_chunk::<RECORD_BYTES>() {
        let Some((line, rest)) = rest.split_at_checked(line_bytes(bytes).into()) else { break };
        sound += usize::from(decode(bytes, line).is_ok());
        all += 1;
        head = rest;
    }
    sound * 2 > all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record that the archive's page prints as
    /// `848278028:829593 848278028:893670 848278028:895350 23.240.8.98:1462 207.36.205.194:80 2 8 4294967295
    /// 4294967295 835418853 170 844 37 GET 9168504434183313441..gif HTTP/1.0` is the first of these.
    const EXAMPLE: &[u8] = include_bytes!("../testdata/example.ucb");

    fn all(mut source: &[u8]) -> Vec<Result<Request, Flaw>> {
        let mut records = Records::default();
        std::iter::from_fn(|| records.read(&mut source).unwrap()).collect()
    }

    #[test]
    fn the_record_of_the_archives_page_is_read_as_printed_there() {
        assert!(is_likely(EXAMPLE));
        let requests: Vec<Request> = all(EXAMPLE).into_iter().map(Result::unwrap).collect();
        let first = requests[0];
        assert_eq!((first.time_s, first.time_ns), (848_278_028, 829_593_000));
        assert_eq!(first.client.to_be_bytes(), [23, 240, 8, 98]);
        assert_eq!((first.size, first.method), (Some(844), Method::Get));
        // The same path of the same server, the same path of another one, and an aborted transfer.
        assert_eq!(requests.len(), 4);
        assert_eq!(requests[1].object, first.object);
        assert_ne!(requests[2].object, first.object);
        assert_eq!((requests[3].size, requests[3].method), (None, Method::Post));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let with = |at: usize, value: u8| {
            let mut bytes = EXAMPLE[..RECORD_BYTES + 37].to_vec();
            bytes[at] = value;
            all(&bytes).remove(0).unwrap_err()
        };
        assert!(matches!(with(4, 1), Flaw::Clock { seconds: 848_278_028, .. }));
        assert_eq!(with(RECORD_BYTES, b'g'), Flaw::RequestLine { bytes: 37 });
        assert_eq!(with(RECORD_BYTES + 9, 0), Flaw::RequestLine { bytes: 37 });
        assert_eq!(with(59, 38), Flaw::Truncated { bytes: 97, of: 98 });
        assert!(!is_likely(b"") && !is_likely(&[0; 200]) && !is_likely(&[b'A'; 200]));
    }
}
