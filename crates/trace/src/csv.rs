//! Lines of fields between commas, tabs, semicolons, bars or spaces, whichever of these the first line has. A header, or
//! the user ([`Columns`]), says which field is what.
//!
//! Fields may stand in quotes; one that a quote begins ends with the next, of which two stand for one in the field (RFC
//! 4180). Lines do not go on inside quotes.

use std::borrow::Cow;
use std::io::BufRead;
use std::str::FromStr;

use crate::broken::Flaw;
use crate::error::{Error, Fault, Result};
use crate::format::Stamps;
use crate::names::Names;
use crate::request::{Method, Request};
use crate::text::{LineReader, object_number, parse_number, trimmed, whole_lines};
use crate::twitter::operation;

const NS_PER_S: u64 = 1_000_000_000;

/// Separators, and of those that a first line has, the one that counts.
const SEPARATORS: [u8; 5] = *b"\t,;| ";

/// The header of what we write.
pub(crate) const HEADER: &str = "time,object,size,client,status,method";

/// What a field may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Time,
    Object,
    Size,
    Client,
    Status,
    Method,
}

impl Meaning {
    const ALL: [Meaning; 6] =
        [Meaning::Time, Meaning::Object, Meaning::Size, Meaning::Client, Meaning::Status, Meaning::Method];

    /// Its name, and others that headers have for it.
    fn names(self) -> &'static [&'static str] {
        match self {
            Meaning::Time => &["time", "timestamp", "time_s", "ts", "real_time", "clock_time"],
            Meaning::Object => &["object", "obj", "obj_id", "object_id", "id", "key", "url"],
            Meaning::Size => &["size", "size_bytes", "obj_size", "object_size", "bytes"],
            Meaning::Client => &["client", "client_id", "host"],
            Meaning::Status => &["status", "response"],
            Meaning::Method => &["method", "operation", "op"],
        }
    }

    fn as_str(self) -> &'static str {
        self.names()[0]
    }
}

/// Where a field stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// Counting from 0.
    Number(usize),
    /// As the header calls it.
    Name(String),
}

/// Which fields of a line are what, as `time=1,object=2,size=3` says: numbers from 1 or names of the header.
///
/// Time and object must be there; size, client, status and method (or operation) may. `unit=ms` (s, ms, us, ns) says what
/// times are in; without it, seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    places: [Option<Place>; Meaning::ALL.len()],
    unit_ns: u64,
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Columns> {
        const ALLOWED: &str = "time=COLUMN,object=COLUMN[,size=..][,client=..][,status=..][,method=..][,unit=s|ms|us|ns], \
                               where COLUMN is a number from 1 or a name of the header";
        let refuse = || Error::Parameter { parameter: "columns", value: text.to_owned(), allowed: ALLOWED };
        let mut columns = Columns { places: Default::default(), unit_ns: NS_PER_S };
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(refuse)?;
            let (key, value) = (key.trim(), value.trim());
            if key == "unit" {
                let units = [("s", NS_PER_S), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
                let unit = units.into_iter().find(|(unit, _)| *unit == value).ok_or_else(refuse)?;
                columns.unit_ns = unit.1;
                continue;
            }
            let is_called = |meaning: &&Meaning| meaning.names().contains(&key);
            let meaning = *Meaning::ALL.iter().find(is_called).ok_or_else(refuse)?;
            let place = match value.parse::<usize>() {
                Ok(0) => return Err(refuse()),
                Ok(number) => Place::Number(number - 1),
                Err(_) if value.is_empty() => return Err(refuse()),
                Err(_) => Place::Name(value.to_owned()),
            };
            if columns.places[meaning as usize].replace(place).is_some() {
                return Err(refuse());
            }
        }
        let is_given = |meaning: Meaning| columns.places[meaning as usize].is_some();
        if is_given(Meaning::Time) && is_given(Meaning::Object) { Ok(columns) } else { Err(refuse()) }
    }
}

/// Where each meaning stands in this source, counting from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    at: [Option<usize>; Meaning::ALL.len()],
    unit_ns: u64,
    separator: u8,
    has_header: bool,
}

impl Layout {
    /// From a source's first line; what does not fit is said.
    fn of(line: &[u8], columns: Option<&Columns>) -> Result<Layout, String> {
        let separator = separator_of(line);
        let names: Vec<String> = Fields { rest: Some(line), separator }
            .map(|name| String::from_utf8_lossy(&name.said()).trim().to_ascii_lowercase())
            .collect();
        let at = [None; Meaning::ALL.len()];
        let mut layout = Layout { at, unit_ns: NS_PER_S, separator, has_header: false };
        let Some(columns) = columns else {
            for meaning in Meaning::ALL {
                let place = names.iter().position(|name| meaning.names().contains(&name.as_str()));
                layout.at[meaning as usize] = place;
            }
            layout.has_header = true;
            return match layout.at {
                [Some(_), Some(_), ..] => Ok(layout),
                _ => Err(
                    "its first line does not name a time and an object: say which columns they are, as in \
                          time=1,object=2,size=3"
                        .to_owned(),
                ),
            };
        };
        layout.unit_ns = columns.unit_ns;
        for (place, at) in columns.places.iter().zip(&mut layout.at) {
            *at =
                match place {
                    None => None,
                    Some(Place::Number(number)) => Some(*number),
                    Some(Place::Name(name)) => {
                        layout.has_header = true;
                        let found = names.iter().position(|found| *found == name.to_ascii_lowercase());
                        Some(found.ok_or_else(|| {
                            format!("its first line names no {name:?}: {}", names.join(", "))
                        })?)
                    }
                };
        }
        let time = layout.at[Meaning::Time as usize].and_then(|at| names.get(at));
        layout.has_header |= time.is_some_and(|time| parse_time(time.as_bytes(), layout.unit_ns).is_none());
        Ok(layout)
    }
}

/// A field without the quotes that it stands in.
#[derive(Clone, Copy, Debug)]
struct Field<'a> {
    text: &'a [u8],
    /// Whether two quotes stand for one in it.
    is_doubled: bool,
}

impl<'a> Field<'a> {
    fn trimmed(self) -> Field<'a> {
        Field { text: self.text.trim_ascii(), ..self }
    }

    /// Its text with one quote where it has two.
    fn said(self) -> Cow<'a, [u8]> {
        if !self.is_doubled {
            return Cow::Borrowed(self.text);
        }
        let mut is_first = false;
        let is_said = |byte: &u8| {
            is_first = *byte == b'"' && !is_first;
            *byte != b'"' || is_first
        };
        self.text.iter().copied().filter(is_said).collect()
    }
}

/// Where a field ends that a quote began, and whether quotes are doubled in it.
fn end_of_quoted(text: &[u8]) -> (usize, bool) {
    let (mut at, mut is_doubled) = (0, false);
    while let Some(quote) = text[at..].iter().position(|&byte| byte == b'"') {
        at += quote;
        if text.get(at + 1) != Some(&b'"') {
            return (at, is_doubled);
        }
        (at, is_doubled) = (at + 2, true);
    }
    (text.len(), is_doubled)
}

/// The fields of a line, one after another.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let rest = self.rest?;
        // Of a quoted field, what stands between its end and the separator is no part of it.
        let (field, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let (end, is_doubled) = end_of_quoted(quoted);
                (Some(Field { text: &quoted[..end], is_doubled }), &quoted[end..])
            }
            None => (None, rest),
        };
        let end = after.iter().position(|&byte| byte == self.separator);
        self.rest = end.map(|end| &after[end + 1..]);
        let plain = Field { text: &after[..end.unwrap_or(after.len())], is_doubled: false };
        Some(field.unwrap_or(plain))
    }
}

fn separator_of(line: &[u8]) -> u8 {
    SEPARATORS.into_iter().find(|separator| line.contains(separator)).unwrap_or(b',')
}

/// A decimal number of units, in ns; `None` where it is none, or lies beyond what a u32 of seconds holds.
fn parse_time(text: &[u8], unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let whole_ns = parse_number(whole)?.checked_mul(unit_ns)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Digits beyond the ninth are below a ns, whatever the unit.
    let digits = fraction
        .iter()
        .take(9)
        .fold((0, NS_PER_S), |(sum, unit), &byte| (sum + u64::from(byte - b'0') * (unit / 10), unit / 10));
    let fraction_ns = (u128::from(digits.0) * u128::from(unit_ns) / u128::from(NS_PER_S)) as u64;
    let ns = whole_ns.checked_add(fraction_ns)?;
    (ns / NS_PER_S <= u32::MAX.into()).then_some(ns)
}

/// Who asked: their numbers if the first is called by a number, and else numbers of ours.
#[derive(Debug)]
enum Clients {
    Unseen,
    Numbers,
    Names(Names),
}

/// Reads lines by a layout.
#[derive(Debug)]
pub(crate) struct Rows {
    lines: LineReader,
    layout: Layout,
    is_begun: bool,
    clients: Clients,
}

impl Rows {
    /// For a source that begins with `head`.
    pub(crate) fn new(head: &[u8], columns: Option<&Columns>) -> Result<Rows, String> {
        let first = whole_lines(head).next().unwrap_or_default();
        let layout = Layout::of(first, columns)?;
        Ok(Rows { lines: LineReader::default(), layout, is_begun: false, clients: Clients::Unseen })
    }

    /// How finely the lines of `head` tell the time.
    pub(crate) fn stamps(&self, head: &[u8]) -> Stamps {
        let Layout { unit_ns, separator, at, .. } = self.layout;
        let time = at[Meaning::Time as usize].unwrap_or_default();
        let has_fraction = |line| {
            let field = Fields { rest: Some(line), separator }.nth(time);
            let time = field.map(|field| field.text.trim_ascii());
            time.is_some_and(|time| time.contains(&b'.') && parse_time(time, unit_ns).is_some())
        };
        let is_fine = unit_ns < NS_PER_S || whole_lines(head).any(has_fraction);
        if is_fine { Stamps::Finer } else { Stamps::Seconds }
    }

    /// Lines before the first request.
    pub(crate) fn header_lines(&self) -> u64 {
        self.layout.has_header.into()
    }

    /// The next line's request; `None` at the end of the source.
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> Result<Option<Result<Request, Flaw>>, Fault> {
        if !self.is_begun && self.layout.has_header && self.lines.read(source)?.is_none() {
            return Ok(None);
        }
        self.is_begun = true;
        match self.lines.read(source)? {
            None => Ok(None),
            Some(Err(flaw)) => Ok(Some(Err(flaw))),
            Some(Ok(line)) => parse(line, &self.layout, &mut self.clients).map(Some),
        }
    }
}

fn parse(line: &[u8], layout: &Layout, clients: &mut Clients) -> Result<Result<Request, Flaw>, Fault> {
    let mut found = [None; Meaning::ALL.len()];
    for (at, field) in (Fields { rest: Some(trimmed(line)), separator: layout.separator }).enumerate() {
        for (place, found) in layout.at.iter().zip(&mut found) {
            if *place == Some(at) {
                *found = Some(field.trimmed());
            }
        }
    }
    // One that is asked for and not there is broken, whatever it means.
    let missing = Meaning::ALL
        .into_iter()
        .find(|&meaning| layout.at[meaning as usize].is_some() && found[meaning as usize].is_none());
    if let Some(meaning) = missing {
        return Ok(Err(Flaw::Field(meaning.as_str())));
    }
    let [time, _, size, _, status, method] =
        found.map(|field: Option<Field<'_>>| field.map(|field| field.text));
    let [_, object, _, client, ..] = found;
    // "-" and nothing stand for what is not known.
    let known = |field: Option<&'_ [u8]>| field.is_some_and(|field| !field.is_empty() && field != b"-");
    let broken = |meaning: Meaning| Ok(Err(Flaw::Field(meaning.as_str())));

    let Some(ns) = time.and_then(|time| parse_time(time, layout.unit_ns)) else {
        return broken(Meaning::Time);
    };
    let is_known = |field: &Field<'_>| known(Some(field.text));
    let Some(object) = object.filter(is_known).map(Field::said) else { return broken(Meaning::Object) };
    let size = match size.filter(|_| known(size)).map(parse_number) {
        Some(None) => return broken(Meaning::Size),
        size => size.flatten(),
    };
    let status = match status.filter(|_| known(status)).map(parse_number) {
        None => 0,
        Some(Some(status)) if status <= u16::MAX.into() => status as u16,
        Some(_) => return broken(Meaning::Status),
    };
    let method = match method.filter(|_| known(method)) {
        None => Method::Get,
        Some(name) => match operation(name) {
            Some(method) => method,
            // HTTP has more methods than we name, as an access log shows.
            None if name.iter().all(u8::is_ascii_uppercase) => Method::Other,
            None => return broken(Meaning::Method),
        },
    };
    let client = match client.filter(is_known) {
        None => 0,
        Some(client) => match number_client(&client.said(), clients) {
            Some(client) => client,
            None => return broken(Meaning::Client),
        },
    };
    let (time_s, time_ns) = ((ns / NS_PER_S) as u32, (ns % NS_PER_S) as u32);
    Ok(Ok(Request { time_s, time_ns, client, object: object_number(&object), size, status, method }))
}

fn number_client(name: &[u8], clients: &mut Clients) -> Option<u32> {
    let number = parse_number(name).and_then(|number| u32::try_from(number).ok());
    if matches!(clients, Clients::Unseen) {
        *clients = match number {
            Some(_) => Clients::Numbers,
            None => Clients::Names(Names::new()),
        };
    }
    match clients {
        Clients::Names(names) => Some(names.short_id(name)),
        Clients::Unseen | Clients::Numbers => number,
    }
}

/// Whether a source that begins with `head` has a header that says enough.
pub(crate) fn is_headed(head: &[u8]) -> bool {
    whole_lines(head).next().is_some_and(|line| Layout::of(line, None).is_ok())
}

/// Whether the lines of `head` are fields, all as many, of which nobody says what they are.
pub(crate) fn is_separated(head: &[u8]) -> bool {
    let count = |line| Fields { rest: Some(line), separator: separator_of(line) }.count();
    let mut counts = whole_lines(head).map(count);
    counts.next().is_some_and(|first| first > 1 && counts.all(|count| count == first))
}

#[cfg(test)]
mod tests;
