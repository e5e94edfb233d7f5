//! Which documents a shared cache keeps and answers with (RFC 9111), and what it answers (RFC 9110, 13 and 14).
//!
//! Where the RFCs leave a choice, this one is the careful one: what it does not keep or answer is a request to the server, never a
//! wrong answer. It knows no sockets, no clock and no memory: `workload`'s origin and `edge` ask it.

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

/// A field of a message: its name, in any case, and its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// The longest time that a response is fresh (RFC 9111, 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// Whether a response may be kept, and answered to others with (RFC 9111, 3).
///
/// Only the whole answer to a GET is, which says for how long it is fresh. What depends on who asks is not: an answer to
/// Authorization, one with Set-Cookie, and one that varies, whose variants would each need a place of their own (4.1).
pub fn may_keep(is_get: bool, request: &[Field<'_>], status: u16, response: &[Field<'_>]) -> bool {
    let is_for_all = !has(request, "authorization") && !has(response, "set-cookie") && !has(response, "vary");
    let is_refused = directive(request, "no-store").is_some()
        || ["no-store", "private"].iter().any(|name| directive(response, name).is_some());
    is_get && status == 200 && is_for_all && !is_refused && !lifetime(response).is_zero()
}

/// How long a response is fresh from when it was made (RFC 9111, 4.2.1). Zero if it says nothing, or nothing valid, and if it is to
/// be validated each time (5.2.2.4).
pub fn lifetime(response: &[Field<'_>]) -> Duration {
    if directive(response, "no-cache").is_some() {
        return Duration::ZERO;
    }
    for name in ["s-maxage", "max-age"] {
        if let Some(value) = directive(response, name) {
            return value.and_then(seconds).unwrap_or_default();
        }
    }
    let date = |name| single(response, name).and_then(date);
    match (date("expires"), date("date")) {
        (Some(expires), Some(date)) => Duration::from_secs(expires.saturating_sub(date).min(SECONDS_MAX)),
        _ => Duration::ZERO,
    }
}

/// What a request takes from a cache (RFC 9111, 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takes {
    /// The oldest answer, if the client says so.
    age_max: Option<Duration>,
    /// How long it must stay fresh.
    fresh_min: Duration,
    /// Whether the client wants no answer but a cache's.
    pub only_cached: bool,
}

impl Takes {
    /// Of a request. `None` if it is not answered from a cache: another method than GET and HEAD, a person's own request, one that
    /// wants the server's word, and conditions that only the server judges (4.3.2).
    pub fn of(is_get_or_head: bool, request: &[Field<'_>]) -> Option<Takes> {
        let for_server = ["authorization", "if-match", "if-unmodified-since"];
        let wants_server = ["no-cache", "no-store"].iter().any(|name| directive(request, name).is_some())
            // 5.4: older clients say it so.
            || !has(request, "cache-control")
                && listed(request, "pragma").any(|word| word.eq_ignore_ascii_case(b"no-cache"));
        if !is_get_or_head || wants_server || for_server.iter().any(|name| has(request, name)) {
            return None;
        }
        let given = |name| directive(request, name).map(|value| value.and_then(seconds));
        Some(Takes {
            age_max: given("max-age").map(Option::unwrap_or_default),
            fresh_min: given("min-fresh").flatten().unwrap_or_default(),
            only_cached: directive(request, "only-if-cached").is_some(),
        })
    }

    /// Whether it takes an answer of that age, which is fresh for `lifetime` (4.2). Stale ones are never given.
    pub fn takes(&self, age: Duration, lifetime: Duration) -> bool {
        self.age_max.is_none_or(|max| age <= max) && age.saturating_add(self.fresh_min) < lifetime
    }
}

/// Whether a document's home, which has so many requests in flight, takes one more, where all of `nodes` have `of_all`: up to twice
/// their mean. Otherwise another node is as good.
///
/// Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018, with c = 2.
pub fn takes_more(at_home: u32, of_all: u32, nodes: u32) -> bool {
    u64::from(at_home) * u64::from(nodes) < 2 * (u64::from(of_all) + 1)
}

/// The validators of a document (RFC 9110, 8.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Validators<'a> {
    /// The entity tag, as it is written.
    pub etag: Option<&'a [u8]>,
    /// When it was last modified, in seconds since 1970.
    pub modified: Option<u64>,
}

impl<'a> Validators<'a> {
    /// The validators that a response states.
    pub fn of(response: &[Field<'a>]) -> Self {
        Validators {
            etag: single(response, "etag"),
            modified: single(response, "last-modified").and_then(date),
        }
    }
}

/// How a GET or HEAD for a document is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// 200, all of it.
    Whole,
    /// 206, these bytes of it.
    Part(Range<u64>),
    /// 304: the client has it.
    NotModified,
    /// 412: a condition is not met.
    Failed,
    /// 416: it has no such bytes.
    NotSatisfiable,
}

impl Reply {
    /// To a request for a document of `len` bytes (RFC 9110, 13.2.2).
    pub fn to(is_get: bool, request: &[Field<'_>], has_now: Validators<'_>, len: u64) -> Reply {
        let tags = |name| listed(request, name);
        let since = |name| single(request, name).and_then(date).zip(has_now.modified);
        let is_any = |name| single(request, name) == Some(b"*");
        if has(request, "if-match") {
            if !is_any("if-match") && !tags("if-match").any(|tag| is_strongly(tag, has_now.etag)) {
                return Reply::Failed;
            }
        } else if since("if-unmodified-since").is_some_and(|(asked, modified)| modified > asked) {
            return Reply::Failed;
        }
        if has(request, "if-none-match") {
            if is_any("if-none-match") || tags("if-none-match").any(|tag| is_weakly(tag, has_now.etag)) {
                return Reply::NotModified;
            }
        } else if since("if-modified-since").is_some_and(|(asked, modified)| modified <= asked) {
            return Reply::NotModified;
        }
        match single(request, "range") {
            Some(range) if is_get && holds_if_range(request, has_now) => part(range, len),
            _ => Reply::Whole,
        }
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        match self {
            Reply::Whole => 200,
            Reply::Part(_) => 206,
            Reply::NotModified => 304,
            Reply::Failed => 412,
            Reply::NotSatisfiable => 416,
        }
    }

    /// The bytes of the document that it carries, of `len`.
    pub fn bytes(&self, len: u64) -> Range<u64> {
        match self {
            Reply::Whole => 0..len,
            Reply::Part(range) => range.clone(),
            Reply::NotModified | Reply::Failed | Reply::NotSatisfiable => 0..0,
        }
    }

    /// The value of Content-Range, if it has one (RFC 9110, 14.4).
    pub fn content_range(&self, len: u64) -> Option<String> {
        match self {
            Reply::Part(range) => Some(format!("bytes {}-{}/{len}", range.start, range.end - 1)),
            Reply::NotSatisfiable => Some(format!("bytes */{len}")),
            _ => None,
        }
    }

    /// Whether it has this field of the document: 304 and errors have those that the client lacks alone (RFC 9110, 15.4.5).
    pub fn has_field(&self, name: &[u8]) -> bool {
        match self {
            Reply::Whole | Reply::Part(_) => true,
            Reply::NotModified => [&b"cache-control"[..], b"date", b"etag", b"expires", b"last-modified"]
                .iter()
                .any(|kept| name.eq_ignore_ascii_case(kept)),
            Reply::Failed | Reply::NotSatisfiable => name.eq_ignore_ascii_case(b"date"),
        }
    }
}

/// Whether a range applies to what the document is now (RFC 9110, 13.1.5).
fn holds_if_range(request: &[Field<'_>], has_now: Validators<'_>) -> bool {
    if !has(request, "if-range") {
        return true;
    }
    let Some(condition) = single(request, "if-range") else { return false };
    if condition.contains(&b'"') {
        return is_strongly(condition, has_now.etag);
    }
    // A weak tag says that a date is no better (8.8.2.2).
    let is_strong = has_now.etag.is_none_or(|tag| !tag.starts_with(b"W/"));
    is_strong && date(condition).is_some_and(|asked| has_now.modified == Some(asked))
}

/// Of several ranges none is given: the whole document is an answer to them, too (RFC 9110, 14.2).
fn part(range: &[u8], len: u64) -> Reply {
    let Some((unit, range)) = split(range, b'=') else { return Reply::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Reply::Whole;
    }
    let Some((first, last)) = split(trimmed(range), b'-') else { return Reply::Whole };
    match (first, last) {
        (b"", last) => match number(last) {
            None => Reply::Whole,
            Some(0) => Reply::NotSatisfiable,
            Some(_) if len == 0 => Reply::Whole,
            Some(count) => Reply::Part(len.saturating_sub(count)..len),
        },
        (first, last) => {
            let last = if last.is_empty() { Some(u64::MAX) } else { number(last) };
            match number(first).zip(last) {
                Some((first, last)) if first > last => Reply::Whole,
                Some((first, _)) if first >= len => Reply::NotSatisfiable,
                Some((first, last)) => Reply::Part(first..last.saturating_add(1).min(len)),
                None => Reply::Whole,
            }
        }
    }
}

fn is_strongly(asked: &[u8], has_now: Option<&[u8]>) -> bool {
    has_now.is_some_and(|tag| !tag.starts_with(b"W/") && tag == asked)
}

fn is_weakly(asked: &[u8], has_now: Option<&[u8]>) -> bool {
    has_now.is_some_and(|tag| opaque(tag) == opaque(asked))
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The value of a directive of Cache-Control, if the directive is there; none if it is there with several values.
fn directive<'a>(fields: &[Field<'a>], name: &str) -> Option<Option<&'a [u8]>> {
    let named = |word: &'a [u8]| match split(word, b'=') {
        Some((key, value)) => (trimmed(key), Some(unquoted(trimmed(value)))),
        None => (word, None),
    };
    let mut found = listed(fields, "cache-control")
        .map(named)
        .filter(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value);
    let first = found.next()?;
    // RFC 9111, 4.2.1: which of several is meant, nobody knows.
    Some(first.filter(|_| found.all(|other| other == first)))
}

/// The elements of a field that is a list (RFC 9110, 5.6.1). A comma between quotes ends none.
fn listed<'a>(fields: &[Field<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let values: Vec<_> = values(fields, name).collect();
    values
        .into_iter()
        .flat_map(|value| {
            let (mut is_quoted, mut is_escaped) = (false, false);
            value.split(move |byte| {
                let ends = *byte == b',' && !is_quoted;
                is_quoted ^= *byte == b'"' && !is_escaped;
                is_escaped = is_quoted && *byte == b'\\' && !is_escaped;
                ends
            })
        })
        .map(trimmed)
        .filter(|element| !element.is_empty())
}

fn values<'a>(fields: &[Field<'a>], name: &str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| *value)
}

fn has(fields: &[Field<'_>], name: &str) -> bool {
    values(fields, name).next().is_some()
}

/// The value of a field that is there once.
fn single<'a>(fields: &[Field<'a>], name: &str) -> Option<&'a [u8]> {
    let mut values = values(fields, name);
    values.next().filter(|_| values.next().is_none()).map(trimmed)
}

fn trimmed(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == at)?;
    Some((&text[..at], &text[at + 1..]))
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = text.iter().map(|digit| u64::from(digit - b'0'));
    Some(digits.fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(digit)))
}

fn seconds(text: &[u8]) -> Option<Duration> {
    number(text).map(|seconds| Duration::from_secs(seconds.min(SECONDS_MAX)))
}

/// A date in seconds since 1970, in one of the three forms (RFC 9110, 5.6.7).
fn date(text: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(text).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests;
