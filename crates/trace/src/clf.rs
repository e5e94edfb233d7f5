//! Common Log Format, the default access log of NCSA httpd, Apache httpd and nginx (which adds two quoted fields and
//! calls it combined):
//!
//! ```text
//! host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.0" 200 2326
//! ```
//!
//! Source: Apache HTTP Server documentation, "Log Files"; its mod_log_config escapes a quote inside a quoted field as
//! `\"`, older servers did not, and both are read. What follows the size is ignored.
//!
//! A quoted request that is not HTTP (`-` after a timeout, the bytes of a TLS hello) is a request all the same: the
//! server answered it. Its method is [`Method::Other`] and the whole text is its URL.

use std::io::BufRead;

use crate::broken::Flaw;
use crate::error::Fault;
use crate::names::Names;
use crate::request::{Method, Request};
use crate::text::{LineReader, parse_number, split_once, whole_lines};

/// Bytes of a time: `10/Oct/2000:13:55:36 -0700`.
const TIME_BYTES: usize = 26;

/// One line of a log, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// The client's address or name.
    pub host: &'a [u8],
    /// Seconds since the Unix epoch, UTC.
    pub time_s: u32,
    /// Method of the request.
    pub method: Method,
    /// What was asked for, as logged, query text included.
    pub url: &'a [u8],
    /// Status of the response.
    pub status: u16,
    /// Bytes of the response body; `None` for `-`.
    pub size: Option<u64>,
}

impl<'a> Line<'a> {
    /// Parses a line, with or without its line end, in time linear in its length.
    ///
    /// # Errors
    /// The first field, from the left, that is missing or malformed.
    pub fn parse(line: &'a [u8]) -> Result<Line<'a>, Flaw> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);

        let (host, rest) = split_once(line, b" ").filter(|(host, _)| !host.is_empty()).ok_or(Flaw::Host)?;
        // The user may contain spaces, so ident and user are not separated: the first bracket begins the time.
        let (_, rest) = split_once(rest, b"[").ok_or(Flaw::Time)?;
        let (time, rest) = rest.split_first_chunk::<TIME_BYTES>().ok_or(Flaw::Time)?;
        let time_s = parse_time(time).ok_or(Flaw::Time)?;
        let rest = rest.strip_prefix(b"] \"").ok_or(Flaw::Request)?;
        let (request, Outcome { status, size }) = split_request(rest)?;
        let (method, url) = split_method(request);
        Ok(Line { host, time_s, method, url, status, size })
    }
}

/// What follows the request: the response.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    status: u16,
    size: Option<u64>,
}

/// Splits what follows the opening quote into the request and its outcome. A quote closes the request if it is not
/// escaped and a status and size follow: in a log without escapes, quotes inside a URL must not end it.
fn split_request(rest: &[u8]) -> Result<(&[u8], Outcome), Flaw> {
    let mut first_flaw = None;
    let mut escaped = false;
    for (at, &byte) in rest.iter().enumerate() {
        if byte == b'"' && !escaped {
            match parse_outcome(&rest[at + 1..]) {
                Ok(outcome) => return Ok((&rest[..at], outcome)),
                Err(flaw) => first_flaw = first_flaw.or(Some(flaw)),
            }
        }
        escaped = byte == b'\\' && !escaped;
    }
    Err(first_flaw.unwrap_or(Flaw::Request))
}

/// Parses ` 200 2326`, or ` 304 -`, in front of the end or a space.
fn parse_outcome(text: &[u8]) -> Result<Outcome, Flaw> {
    let text = text.strip_prefix(b" ").ok_or(Flaw::Status)?;
    let (digits, rest) = text.split_first_chunk::<3>().ok_or(Flaw::Status)?;
    let status = parse_number(digits).ok_or(Flaw::Status)? as u16;
    if !matches!(rest.first(), None | Some(b' ')) {
        return Err(Flaw::Status);
    }

    let text = rest.strip_prefix(b" ").ok_or(Flaw::Size)?;
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let size = match &text[..end] {
        b"-" => None,
        digits => Some(parse_number(digits).ok_or(Flaw::Size)?),
    };
    Ok(Outcome { status, size })
}

/// Splits `GET /path HTTP/1.0` into method and URL. HTTP/0.9 names no protocol, and a URL may hold raw spaces.
fn split_method(request: &[u8]) -> (Method, &[u8]) {
    match split_once(request, b" ") {
        Some((token, rest)) if !token.is_empty() && token.iter().all(u8::is_ascii_uppercase) => {
            let protocol = rest.windows(6).rposition(|window| window == b" HTTP/");
            (Method::from_token(token), &rest[..protocol.unwrap_or(rest.len())])
        }
        _ => (Method::Other, request),
    }
}

/// Parses `10/Oct/2000:13:55:36 -0700` to seconds since the Unix epoch.
fn parse_time(text: &[u8; TIME_BYTES]) -> Option<u32> {
    const PUNCTUATION: [(usize, u8); 6] =
        [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    if PUNCTUATION.iter().any(|&(at, byte)| text[at] != byte) {
        return None;
    }
    let number = |from: usize, to: usize| parse_number(&text[from..to]).map(|number| number as i64);
    let below = |from: usize, to: usize, end: i64| number(from, to).filter(|&number| number < end);

    let month = 1 + MONTHS.iter().position(|&name| name == &text[3..6])? as i64;
    let year = number(7, 11)?;
    let day = number(0, 2).filter(|&day| 1 <= day && day <= days_of_month(year, month))?;
    // 60 is a leap second, which POSIX time counts as the second after it.
    let of_day = below(12, 14, 24)? * 3600 + below(15, 17, 60)? * 60 + below(18, 20, 61)?;
    let zone = below(22, 24, 24)? * 3600 + below(24, 26, 60)? * 60;
    let zone = match text[21] {
        b'+' => zone,
        b'-' => -zone,
        _ => return None,
    };
    u32::try_from(days_since_epoch(year, month, day) * 86_400 + of_day - zone).ok()
}

/// Days of a month of the Gregorian calendar.
fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1 January 1970 to a date of the Gregorian calendar. Years are taken to begin in March, so that the leap day
/// is their last: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Reads lines and numbers their hosts and URLs.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: LineReader,
    hosts: Names,
    urls: Names,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Lines { lines: LineReader::default(), hosts: Names::new(), urls: Names::new() }
    }

    /// The next line's request; `None` at the end of the source.
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> Result<Option<Result<Request, Flaw>>, Fault> {
        let line = match self.lines.read(source)? {
            None => return Ok(None),
            Some(Err(flaw)) => return Ok(Some(Err(flaw))),
            Some(Ok(line)) => line,
        };
        Ok(Some(match Line::parse(line) {
            Err(flaw) => Err(flaw),
            Ok(line) => Ok(Request {
                time_s: line.time_s,
                time_ns: 0,
                client: self.hosts.short_id(line.host),
                object: self.urls.id(line.url),
                size: line.size,
                status: line.status,
                method: line.method,
            }),
        }))
    }
}

/// Whether `head`, the first bytes of a source, contains such a line.
pub(crate) fn is_likely(head: &[u8]) -> bool {
    whole_lines(head).any(|line| Line::parse(line).is_ok())
}

#[cfg(test)]
mod tests;
