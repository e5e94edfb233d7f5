//! Keys alone, as big-endian numbers of one width: `key32` has 4 bytes each, `key64` has 8.
//!
//! Nothing in such a file identifies its format, so it is read only if the format is named. It has no times, so its
//! requests are set a millisecond apart.

use std::io::{self, BufRead};

use crate::broken::Flaw;
use crate::request::{Method, Request};
use crate::source::read_full;

/// Reads keys of a width.
#[derive(Debug)]
pub(crate) struct Keys {
    bytes: usize,
    read: u64,
}

impl Keys {
    /// A reader of keys with 4 or 8 bytes.
    pub(crate) fn of_bytes(bytes: usize) -> Keys {
        assert!(bytes == 4 || bytes == 8);
        Keys { bytes, read: 0 }
    }

    /// The next key's request; `None` at the end of the source.
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> io::Result<Option<Result<Request, Flaw>>> {
        let mut bytes = [0; 8];
        let begin = bytes.len() - self.bytes;
        Ok(match read_full(source, &mut bytes[begin..])? {
            0 => None,
            read if read == self.bytes => {
                let number = self.read;
                self.read += 1;
                Some(Ok(Request {
                    time_s: u32::try_from(number / 1000).unwrap_or(u32::MAX),
                    time_ns: (number % 1000) as u32 * 1_000_000,
                    client: 0,
                    object: u64::from_be_bytes(bytes),
                    size: None,
                    status: 0,
                    method: Method::Get,
                }))
            }
            read => Some(Err(Flaw::Truncated { bytes: read, of: self.bytes })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(bytes: usize, mut source: &[u8]) -> Vec<Result<u64, Flaw>> {
        let mut keys = Keys::of_bytes(bytes);
        std::iter::from_fn(|| keys.read(&mut source).unwrap())
            .map(|request| request.map(|request| request.object))
            .collect()
    }

    #[test]
    fn keys_are_big_endian_and_of_one_width() {
        let source = [0, 0, 0, 7, 0xff, 0xff, 0xff, 0xfe, 9];
        assert_eq!(objects(4, &source), [Ok(7), Ok(0xffff_fffe), Err(Flaw::Truncated { bytes: 1, of: 4 })]);
        assert_eq!(objects(8, &source), [Ok(0x7_ffff_fffe), Err(Flaw::Truncated { bytes: 1, of: 8 })]);
        assert_eq!(objects(8, b""), []);
    }

    #[test]
    fn requests_are_a_millisecond_apart() {
        let mut keys = Keys::of_bytes(4);
        let mut source = &[0; 4 * 1002][..];
        let last = std::iter::from_fn(|| keys.read(&mut source).unwrap()).last().unwrap().unwrap();
        assert_eq!((last.time_s, last.time_ns, last.size), (1, 1_000_000, None));
    }
}
