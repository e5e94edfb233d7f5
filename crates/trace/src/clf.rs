//! Common Log Format, the default access log of NCSA httpd, Apache httpd and nginx (which adds two quoted fields and
//! calls it combined):
//!
//! ```text
//! host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.0" 200 2326
//! ```
//!
//! The seconds may have a fraction. What syslog, or the name of a virtual host (Apache's vhost_combined), puts before the host is
//! skipped. Users may have spaces and brackets in their names.
//!
//! Source: Apache HTTP Server documentation, "Log Files"; its mod_log_config escapes a quote inside a quoted field as
//! `\"`, older servers did not, and both are read. What follows the size is ignored.
//!
//! A quoted request that is not HTTP (`-` after a timeout, the bytes of a TLS hello) is a request all the same: the
//! server answered it. Its method is [`Method::Other`] and the whole text is its URL.

use std::io::BufRead;
use std::net::IpAddr;
use std::time::Duration;

use crate::broken::Flaw;
use crate::error::Fault;
use crate::format::Stamps;
use crate::names::Names;
use crate::request::{Method, Request};
use crate::text::{LineReader, parse_number, split_once, trimmed, whole_lines};

/// Bytes of a time: `10/Oct/2000:13:55:36 -0700`.
const TIME_BYTES: usize = 26;
/// Bytes of a time up to its fraction.
const SECOND_BYTES: usize = 20;
/// Most digits of a fraction of a second.
const FRACTION_DIGITS: usize = 9;
/// Most fields that are looked at before the time.
const FIELDS_MAX: usize = 64;

/// One line of a log, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// The client's address or name.
    pub host: &'a [u8],
    /// Seconds since the Unix epoch, UTC.
    pub time_s: u32,
    /// The fraction of the second, in ns.
    pub time_ns: u32,
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
        let line = trimmed(line);
        split_once(line, b" ").filter(|(host, _)| !host.is_empty()).ok_or(Flaw::Host)?;
        let (before, time, rest) = split_time(line).ok_or(Flaw::Time)?;
        let host = client(before).ok_or(Flaw::Host)?;
        let rest = rest.strip_prefix(b" \"").ok_or(Flaw::Request)?;
        let (request, Outcome { status, size }) = split_request(rest)?;
        let (method, url) = split_method(request);
        let (time_s, time_ns) = (time.as_secs() as u32, time.subsec_nanos());
        Ok(Line { host, time_s, time_ns, method, url, status, size })
    }
}

/// What stands before the time, the time, and what stands behind its brackets. The first brackets that contain a time are its own.
fn split_time(line: &[u8]) -> Option<(&[u8], Duration, &[u8])> {
    let opens = line.iter().enumerate().filter(|(_, byte)| **byte == b'[').map(|(at, _)| at);
    opens.map(|at| line.split_at(at)).find_map(|(before, rest)| {
        let bytes_max = TIME_BYTES + 1 + FRACTION_DIGITS;
        let close = rest.iter().take(bytes_max + 2).position(|byte| *byte == b']')?;
        Some((before, parse_time(&rest[1..close])?, &rest[close + 1..]))
    })
}

/// The client's field, among what stands before the time: the first, followed by ident and user. Where there are more fields than
/// these three, the user has spaces in his name, or something stands before the client.
fn client(before: &[u8]) -> Option<&[u8]> {
    let fields = || before.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    if fields().nth(3).is_none() {
        return fields().next();
    }
    let all: Vec<&[u8]> = fields().take(FIELDS_MAX).collect();
    let clients = &all[..all.len() - 2];
    if is_address(clients[0]) {
        return Some(clients[0]);
    }
    let clients = clients.get(syslog_fields(clients)..).filter(|clients| !clients.is_empty())?;
    let address = clients.iter().rfind(|field| is_address(field));
    // Apache's vhost_combined: the name and port of the virtual host.
    let has_port = split_once(clients[0], b":").is_some_and(|(_, port)| parse_number(port).is_some());
    address.or_else(|| clients.get(usize::from(has_port))).copied()
}

fn is_address(field: &[u8]) -> bool {
    str::from_utf8(field).is_ok_and(|field| field.parse::<IpAddr>().is_ok())
}

/// How many of these fields are a header of syslog.
fn syslog_fields(fields: &[&[u8]]) -> usize {
    if fields[0].starts_with(b"<") && fields[0].ends_with(b">1") {
        // RFC 5424, 6: six fields, then structured data, which may be in brackets.
        let data = fields.iter().skip(6);
        return match data.clone().next() {
            Some(first) if first.starts_with(b"[") => {
                7 + data.take_while(|field| !field.ends_with(b"]")).count()
            }
            _ => 7,
        };
    }
    // RFC 3164, 4.1.3: the last one, the name of the program, ends with a colon.
    fields.iter().rposition(|field| field.ends_with(b":") && !is_address(field)).map_or(0, |tag| tag + 1)
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

/// Parses `10/Oct/2000:13:55:36 -0700`, with or without a fraction of a second, to the time since the Unix epoch.
fn parse_time(text: &[u8]) -> Option<Duration> {
    let fraction = text.get(SECOND_BYTES..text.len().checked_sub(TIME_BYTES - SECOND_BYTES)?)?;
    let ns = match fraction.split_first() {
        None => 0,
        Some((b'.', digits)) if digits.len() <= FRACTION_DIGITS => {
            parse_number(digits)? as u32 * 10u32.pow((FRACTION_DIGITS - digits.len()) as u32)
        }
        Some(_) => return None,
    };
    let mut whole = [0; TIME_BYTES];
    whole[..SECOND_BYTES].copy_from_slice(&text[..SECOND_BYTES]);
    whole[SECOND_BYTES..].copy_from_slice(&text[SECOND_BYTES + fraction.len()..]);
    Some(Duration::new(parse_second(&whole)?.into(), ns))
}

/// Parses `10/Oct/2000:13:55:36 -0700` to seconds since the Unix epoch.
fn parse_second(text: &[u8; TIME_BYTES]) -> Option<u32> {
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
    /// For a source that begins with `head`.
    pub(crate) fn new(head: &[u8]) -> Self {
        Lines { lines: LineReader::new(head), hosts: Names::new(), urls: Names::new() }
    }

    /// The reader of its lines.
    pub(crate) fn lines(&self) -> &LineReader {
        &self.lines
    }

    /// The resolution of times in the lines of `head`.
    pub(crate) fn stamps(&self, head: &[u8]) -> Stamps {
        let has_fraction = |line| Line::parse(line).is_ok_and(|line| line.time_ns > 0);
        if whole_lines(head).any(has_fraction) { Stamps::Finer } else { Stamps::Seconds }
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
                time_ns: line.time_ns,
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
