//! The CSV in which Twitter published the requests to its caches, a line each, without a header:
//!
//! ```text
//! 0,nz:u:eeW511W3dcH3de3d15ec,22,304,1235,get,0
//! ```
//!
//! Time in seconds since the trace began, key, bytes of the key, bytes of the value, client, operation, time to live in
//! seconds. Source: the README of <https://github.com/twitter/cache-trace>; J. Yang, Y. Yue and K. V. Rashmi, "A large
//! scale analysis of hundreds of in-memory cache clusters at Twitter", OSDI 2020.
//!
//! An object is as large as its key and value together, as in libCacheSim. A get that missed has a value of 0 bytes.

use std::io::BufRead;

use crate::broken::Flaw;
use crate::error::Fault;
use crate::request::{Method, Request};
use crate::text::{LineReader, object_number, parse_number, split_once, trimmed, whole_lines};

/// The operations of twemcache, as the corresponding methods.
const OPERATIONS: [(&[u8], Method); 11] = [
    (b"get", Method::Get),
    (b"gets", Method::Get),
    (b"set", Method::Put),
    (b"add", Method::Put),
    (b"replace", Method::Put),
    (b"cas", Method::Put),
    (b"append", Method::Put),
    (b"prepend", Method::Put),
    (b"delete", Method::Delete),
    (b"incr", Method::Put),
    (b"decr", Method::Put),
];

/// Operations of caches, and methods of HTTP, as methods.
pub(crate) fn operation(name: &[u8]) -> Option<Method> {
    let of_caches = OPERATIONS.iter().find(|(operation, _)| operation.eq_ignore_ascii_case(name));
    of_caches.map(|&(_, method)| method).or_else(|| {
        Some(Method::from_token(&name.to_ascii_uppercase()))
            .filter(|&method| method != Method::Other || name.eq_ignore_ascii_case(b"other"))
    })
}

/// Parses a line from both ends, because keys may contain commas.
fn parse(line: &[u8]) -> Result<Request, Flaw> {
    let (time, rest) = split_once(trimmed(line), b",").ok_or(Flaw::Field("time"))?;
    let mut fields = rest.rsplitn(6, |&byte| byte == b',');
    let mut field = |name| fields.next().ok_or(Flaw::Field(name));
    let number = |digits: &[u8], name| parse_number(digits).ok_or(Flaw::Field(name));
    let small = |digits: &[u8], name| u32::try_from(number(digits, name)?).map_err(|_| Flaw::Field(name));

    let time_s = small(time, "time")?;
    number(field("time to live")?, "time to live")?;
    let method = operation(field("operation")?).ok_or(Flaw::Field("operation"))?;
    let client = small(field("client")?, "client")?;
    let value_bytes = number(field("value size")?, "value size")?;
    let key_bytes = number(field("key size")?, "key size")?;
    let object = object_number(field("key")?);
    let size = Some(key_bytes.checked_add(value_bytes).ok_or(Flaw::Field("value size"))?);
    Ok(Request { time_s, time_ns: 0, client, object, size, status: 0, method })
}

/// The next line's request; `None` at the end of the source.
pub(crate) fn read(
    lines: &mut LineReader,
    source: &mut dyn BufRead,
) -> Result<Option<Result<Request, Flaw>>, Fault> {
    Ok(lines.read(source)?.map(|line| line.and_then(parse)))
}

/// Whether most lines of `head`, the first bytes of a source, have this form.
pub(crate) fn is_likely(head: &[u8]) -> bool {
    let lines = whole_lines(head).count();
    whole_lines(head).filter(|line| parse(line).is_ok()).count() * 2 > lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let request = parse(b"7,nz:u:eeW5,11,304,1235,get,0\n").unwrap();
        assert_eq!((request.time_s, request.client, request.size), (7, 1235, Some(315)));
        assert_eq!(request.method, Method::Get);
        let with_comma = parse(b"7,nz:u:ee,W5,12,1,3,cas,86400\r\n").unwrap();
        assert_eq!((with_comma.object, with_comma.method), (object_number(b"nz:u:ee,W5"), Method::Put));
        assert_eq!(parse(b"0,k,1,0,3,delete,0").unwrap().method, Method::Delete);
    }

    #[test]
    fn a_field_that_cannot_be_is_named() {
        let cases: [(&[u8], &str); 8] = [
            (b"", "time"),
            (b"x,k,1,1,1,get,0", "time"),
            (b"4294967296,k,1,1,1,get,0", "time"),
            (b"1,k,1,1,1,get,-", "time to live"),
            (b"1,k,1,1,1,fetch,0", "operation"),
            (b"1,k,1,1,me,get,0", "client"),
            (b"1,k,18446744073709551615,1,1,get,0", "value size"),
            (b"1,1,1,1,get,0", "key"),
        ];
        for (line, field) in cases {
            assert_eq!(parse(line), Err(Flaw::Field(field)), "{}", String::from_utf8_lossy(line));
        }
    }
}
