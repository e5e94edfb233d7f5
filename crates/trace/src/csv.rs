//! Lines of fields that are separated by tabs, commas, semicolons, bars or spaces: the first of these, in this order, that the
//! first line contains. A header, or the user ([`Columns`]), says what each field is.
//!
//! Fields may be quoted; inside quotes two quotes stand for one (RFC 4180). A line ends inside quotes, too.
//!
//! Not the crate `csv`: there a quoted field continues over line ends, so that one stray quote makes the rest of a file one field
//! of no bounded length. Here it breaks one line, which is counted and named. The crate also splits 7 to 9 million lines a second
//! where this splits 11 million.

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

/// Separators. The first one that the first line contains is used.
const SEPARATORS: [u8; 5] = *b"\t,;| ";

/// The header of the CSV files that Sidelong writes.
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

    /// Its name, followed by other names that headers use for it.
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

/// A column, as the user names it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Column {
    /// By its number, from 0.
    Number(usize),
    /// By its name in the header.
    Name(String),
}

/// The meaning of a line's fields, given as `time=1,object=2,size=3`: numbers from 1 or names in the header.
///
/// Time and object are required; size, client, status and method (or operation) are optional. `unit=ms` (s, ms, us, ns)
/// is the unit of times; the default is seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    places: [Option<Column>; Meaning::ALL.len()],
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
                Ok(number) => Column::Number(number - 1),
                Err(_) if value.is_empty() => return Err(refuse()),
                Err(_) => Column::Name(value.to_owned()),
            };
            if columns.places[meaning as usize].replace(place).is_some() {
                return Err(refuse());
            }
        }
        let is_given = |meaning: Meaning| columns.places[meaning as usize].is_some();
        if is_given(Meaning::Time) && is_given(Meaning::Object) { Ok(columns) } else { Err(refuse()) }
    }
}

/// The index of each meaning's field in this source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    at: [Option<usize>; Meaning::ALL.len()],
    unit_ns: u64,
    separator: u8,
    has_header: bool,
}

impl Layout {
    /// The layout by a source's first line, or what does not fit.
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
                    Some(Column::Number(number)) => Some(*number),
                    Some(Column::Name(name)) => {
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

/// A field without its quotes.
#[derive(Clone, Copy, Debug)]
struct Field<'a> {
    text: &'a [u8],
    /// Whether two quotes in it stand for one.
    is_doubled: bool,
}

impl<'a> Field<'a> {
    fn trimmed(self) -> Field<'a> {
        Field { text: self.text.trim_ascii(), ..self }
    }

    /// Its text, with doubled quotes replaced.
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

/// Where a quoted field ends, and whether it contains doubled quotes.
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
        // Text between a quoted field's end and the separator is ignored.
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

/// Parses a decimal number of units into ns; `None` if it is invalid, or more seconds than a u32 holds.
fn parse_time(text: &[u8], unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let whole_ns = parse_number(whole)?.checked_mul(unit_ns)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Digits after the ninth are below a ns, whatever the unit.
    let digits = fraction
        .iter()
        .take(9)
        .fold((0, NS_PER_S), |(sum, unit), &byte| (sum + u64::from(byte - b'0') * (unit / 10), unit / 10));
    let fraction_ns = (u128::from(digits.0) * u128::from(unit_ns) / u128::from(NS_PER_S)) as u64;
    let ns = whole_ns.checked_add(fraction_ns)?;
    (ns / NS_PER_S <= u32::MAX.into()).then_some(ns)
}

/// Clients: their own numbers if the first one is a number, otherwise numbered in order of first appearance.
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
        Ok(Rows { lines: LineReader::new(head), layout, is_begun: false, clients: Clients::Unseen })
    }

    /// The resolution of times in the lines of `head`.
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

    /// The reader of its lines.
    pub(crate) fn lines(&self) -> &LineReader {
        &self.lines
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
    // A missing field that was named makes the line broken, whatever its meaning.
    let missing = Meaning::ALL
        .into_iter()
        .find(|&meaning| layout.at[meaning as usize].is_some() && found[meaning as usize].is_none());
    if let Some(meaning) = missing {
        return Ok(Err(Flaw::Field(meaning.as_str())));
    }
    let [time, _, size, _, status, method] =
        found.map(|field: Option<Field<'_>>| field.map(|field| field.text));
    let [_, object, _, client, ..] = found;
    // "-" and an empty field mean unknown.
    let known = |field: Option<&'_ [u8]>| field.is_some_and(|field| !field.is_empty() && field != b"-");
    let broken = |meaning: Meaning| Ok(Err(Flaw::Field(meaning.as_str())));

    let Some(ns) = time.and_then(|time| parse_time(time, layout.unit_ns)) else {
        let is_number = time.and_then(parse_number).is_some();
        return if is_number { Ok(Err(Flaw::TimeUnit)) } else { broken(Meaning::Time) };
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
            // HTTP has more methods than are named here, as access logs show.
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

/// Whether a source that begins with `head` has a sufficient header.
pub(crate) fn is_headed(head: &[u8]) -> bool {
    whole_lines(head).next().is_some_and(|line| Layout::of(line, None).is_ok())
}

/// Whether all lines of `head` have the same number of fields, without a header that names them.
pub(crate) fn is_separated(head: &[u8]) -> bool {
    let count = |line| Fields { rest: Some(line), separator: separator_of(line) }.count();
    let mut counts = whole_lines(head).map(count);
    counts.next().is_some_and(|first| first > 1 && counts.all(|count| count == first))
}

#[cfg(test)]
mod tests;
