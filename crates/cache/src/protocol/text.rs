//! The text protocol.
//!
//! A line is bounded. Lines of keys are not, because they are taken key by key: neither what a client asks for in one line nor
//! what it is answered has to be held at once.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use memchr::{memchr, memchr2};

use super::{Step, meta, push_number};
use crate::cache::{KEY_BYTES_MAX, PutError};
use crate::command::{Delta, Host, Mode, NoSum, Outcome, Put, Remains, number};
use crate::neighbours::{Language, To};
use crate::stats;

/// The longest line, in bytes with its end, unless it is a list of keys (memcached's).
pub(crate) const LINE_BYTES_MAX: usize = 2048;
/// The shortest line that is a command, in bytes with its end (memcached's).
const LINE_BYTES_MIN: usize = 4;
/// The longest value, in bytes, that a line can announce (memcached's).
const VALUE_BYTES_MAX: u64 = i32::MAX as u64 - 2;
/// The most words of a line that is neither a list of keys nor of flags.
const WORDS_MAX: usize = 7;
/// Classes of items are numbered from 1 on, below this (memcached's).
pub(crate) const CLASSES: u64 = 64;
/// Fewer megabytes cannot be a cache's memory (memcached's).
const MEGABYTES_MIN: u64 = 8;
/// The key under which clients of Amazon ElastiCache's older engines find the addresses of all caches (AWS, "Adding auto discovery to your
/// client library").
const ADDRESSES: &[u8] = b"AmazonElastiCache:cluster";
/// The longest name and password, in bytes (memcached's).
const LOGIN_BYTES_MAX: u64 = 16384;

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
pub(crate) const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
pub(crate) const NO_MEMORY: &str = "SERVER_ERROR out of memory";

/// A client that speaks text.
#[derive(Debug, Default)]
pub(crate) struct Text {
    place: Place,
    is_logged_in: bool,
}

/// Where in a command a client is.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Between commands.
    #[default]
    Start,
    /// In a line of keys.
    Keys(Keys),
    /// In the rest of a line that is already answered.
    Rest,
    /// Before the end of a line that asks for all keys, page by page.
    Dump(Dump),
}

/// A list of all keys.
#[derive(Clone, Copy, Debug)]
struct Dump {
    form: Form,
    /// The page that is next.
    page: usize,
}

/// How memcached's crawler lists keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// `metadump`: each with what is known of its item.
    Facts,
    /// `mgdump`: each as a command.
    Commands,
}

/// A line of keys.
#[derive(Clone, Copy, Debug)]
struct Keys {
    shows_cas: bool,
    touch: Touch,
    has_any: bool,
}

#[derive(Clone, Copy, Debug)]
enum Touch {
    No,
    /// The next word says when.
    Next,
    /// With the time that the client gave.
    At(i64),
}

/// A line, and what has arrived behind it.
pub(crate) struct Line<'a> {
    /// Its words, without its end.
    pub(crate) text: &'a [u8],
    /// Its bytes, with its end.
    bytes: usize,
    behind: &'a [u8],
}

/// The value behind a line.
pub(crate) enum Data<'a> {
    Whole(&'a [u8], Step),
    /// It does not end in a line's end.
    Bad(Step),
    /// It has not arrived.
    Missing(Step),
}

impl<'a> Line<'a> {
    /// The value of so many bytes.
    pub(crate) fn data(&self, bytes: usize) -> Data<'a> {
        let all = bytes + b"\r\n".len();
        let step = Step::Used(self.bytes + all);
        match self.behind.get(..all).map(|data| data.split_at(bytes)) {
            Some((value, b"\r\n")) => Data::Whole(value, step),
            Some(_) => Data::Bad(step),
            None => Data::Missing(Step::Needs(self.bytes + all)),
        }
    }

    /// The step past a line without a value.
    pub(crate) fn used(&self) -> Step {
        Step::Used(self.bytes)
    }

    /// The step past a line whose value nobody wants.
    pub(crate) fn without_data(&self, bytes: usize) -> Step {
        Step::Skip { used: self.bytes, unwanted: bytes as u64 + 2 }
    }
}

/// The bytes of a value, as a line announces it.
pub(crate) fn value_bytes(word: &[u8]) -> Option<usize> {
    number(word).filter(|bytes| *bytes <= VALUE_BYTES_MAX).and_then(|bytes| bytes.try_into().ok())
}

/// A number that may have a sign, such as a time.
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => number(digits).and_then(|number| 0_i64.checked_sub_unsigned(number)),
        None => number(word).and_then(|number| number.try_into().ok()),
    }
}

/// A time, of 32 bits with its sign.
pub(crate) fn time(word: &[u8]) -> Option<i64> {
    signed(word).filter(|time| i32::try_from(*time).is_ok())
}

/// The words of a line.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// The answer to a value that found no room.
pub(crate) fn not_stored(error: PutError) -> String {
    format!("SERVER_ERROR {error}")
}

/// Whether nobody waits for the answer to a command.
pub(crate) fn is_quiet(command: &[u8]) -> bool {
    let line = command.split(|byte| *byte == b'\n').next().unwrap_or_default();
    words(line.strip_suffix(b"\r").unwrap_or(line)).last() == Some(b"noreply")
}

/// Appends an answer of one line.
pub(crate) fn say(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl Text {
    /// A client that need not log in.
    pub(crate) fn logged_in() -> Self {
        Text { is_logged_in: true, ..Text::default() }
    }

    pub(crate) fn step(&mut self, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        match self.place {
            Place::Start => self.start(input, host, out),
            Place::Keys(keys) => self.key(keys, input, host, out),
            Place::Dump(dump) => self.dump(dump, host, out),
            Place::Rest => match memchr(b'\n', input) {
                Some(end) => {
                    self.place = Place::Start;
                    Step::Used(end + 1)
                }
                None => Step::Used(input.len()),
            },
        }
    }

    fn start(&mut self, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        if spaces > 0 {
            return Step::Used(spaces);
        }
        let within = &input[..input.len().min(LINE_BYTES_MAX)];
        let end_of_word = memchr2(b' ', b'\n', within);
        let must_log_in = host.world.users.is_some() && !self.is_logged_in;
        if let Some(end) = end_of_word.filter(|end| within[*end] == b' ' && !must_log_in) {
            let keys = match &within[..end] {
                b"get" => Some((false, Touch::No)),
                b"gets" => Some((true, Touch::No)),
                b"gat" => Some((false, Touch::Next)),
                b"gats" => Some((true, Touch::Next)),
                _ => None,
            };
            if let Some((shows_cas, touch)) = keys {
                self.place = Place::Keys(Keys { shows_cas, touch, has_any: false });
                return Step::Used(end + 1);
            }
        }
        let Some(end) = end_of_word.and_then(|from| Some(from + memchr(b'\n', &within[from..])?)) else {
            if within.len() < LINE_BYTES_MAX {
                return Step::Needs(input.len() + 1);
            }
            say(out, "ERROR");
            self.place = Place::Rest;
            return Step::Used(within.len());
        };
        let text = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let line = Line { text, bytes: end + 1, behind: &input[end + 1..] };
        if must_log_in {
            return self.log_in(&line, host, out);
        }
        if line.bytes < LINE_BYTES_MIN {
            say(out, BAD_FORMAT);
            return line.used();
        }
        match dump_of(text) {
            Some(Ok(dump)) => {
                // The line's end stays until all is shown: a session goes on as long as there is something to be read.
                self.place = Place::Dump(dump);
                say(out, "OK");
                return Step::Used(end);
            }
            Some(Err(problem)) => {
                say(out, problem);
                return line.used();
            }
            None => {}
        }
        match text {
            [b'm', letter, rest @ ..] if rest.first().is_none_or(|byte| *byte == b' ') => {
                meta::command(*letter, rest, &line, host, out)
            }
            _ => command(&line, host, out),
        }
    }

    /// Shows the keys of the next page.
    fn dump(&mut self, dump: Dump, host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        let Dump { form, page } = dump;
        let (now, unix_at_0) = (host.world.now, host.world.unix_at_0);
        let is_there = host.cache.on_page(page, now, |key, item| match form {
            Form::Commands if is_text(key) => {
                out.extend_from_slice(b"mg ");
                out.extend_from_slice(key);
                out.extend_from_slice(b"\r\n");
            }
            Form::Commands => say(out, &format!("mg {} b", BASE64_STANDARD.encode(key))),
            Form::Facts => {
                let unix = |second| i64::from(second) + unix_at_0;
                let expires = if item.expires == 0 { -1 } else { unix(item.expires) };
                let fetched = if item.was_fetched { "yes" } else { "no" };
                out.extend_from_slice(b"key=");
                push_encoded(out, key);
                let (accessed, size) = (unix(item.accessed), key.len() + item.value.len());
                let facts = format!(
                    " exp={expires} la={accessed} cas={} fetch={fetched} cls=1 size={size} flags={} \n",
                    item.cas, item.flags
                );
                out.extend_from_slice(facts.as_bytes());
            }
        });
        if is_there {
            self.place = Place::Dump(Dump { page: page + 1, ..dump });
            return Step::Used(0);
        }
        say(out, if form == Form::Facts { "END" } else { "EN" });
        self.place = Place::Start;
        Step::Used(1)
    }

    /// The next key of a line of keys.
    fn key(&mut self, mut keys: Keys, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        if spaces > 0 {
            return Step::Used(spaces);
        }
        // A key, and the end of a line.
        let within = &input[..input.len().min(KEY_BYTES_MAX + 2)];
        let end = memchr2(b' ', b'\n', within);
        let mut word = &within[..end.unwrap_or(within.len())];
        let is_last = end.is_some_and(|end| within[end] == b'\n');
        if is_last {
            word = word.strip_suffix(b"\r").unwrap_or(word);
        }
        let step = match end {
            None if within.len() < KEY_BYTES_MAX + 2 => return Step::Needs(input.len() + 1),
            None => Step::Used(within.len()),
            Some(end) => Step::Used(end + 1),
        };
        let problem = if word.is_empty() {
            (!keys.has_any).then_some(BAD_FORMAT)
        } else if let Touch::Next = keys.touch {
            let exptime = time(word);
            keys.touch = Touch::At(exptime.unwrap_or(0));
            let is_alone = is_last.then_some(BAD_FORMAT);
            if exptime.is_some() { is_alone } else { Some("CLIENT_ERROR invalid exptime argument") }
        } else if word.len() > KEY_BYTES_MAX {
            Some(BAD_FORMAT)
        } else {
            keys.has_any = true;
            if let Some(addresses) = host.world.addresses.filter(|_| word == ADDRESSES) {
                let (name, text) = (String::from_utf8_lossy(word), addresses.text());
                say(out, &format!("VALUE {name} 0 {}\r\n{text}", text.len()));
            } else if let Some(step) = keys.forward(word, host, out) {
                self.place = Place::Keys(keys);
                // The end of the line is answered afterwards.
                return step;
            } else {
                keys.show(word, host, out);
            }
            None
        };
        self.place = match problem {
            None if !is_last => Place::Keys(keys),
            Some(_) if !is_last => Place::Rest,
            _ => Place::Start,
        };
        match problem {
            Some(problem) => say(out, problem),
            None if is_last => say(out, "END"),
            None => {}
        }
        step
    }

    /// While clients must log in, all that they may send is `set KEY FLAGS EXPTIME BYTES`, with a name and a password for a value.
    fn log_in(&mut self, line: &Line<'_>, host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        let mut words = words(line.text);
        let (Some(b"set"), Some(bytes)) = (words.next(), words.nth(3).and_then(value_bytes)) else {
            say(out, "CLIENT_ERROR unauthenticated");
            return line.used();
        };
        if bytes as u64 > LOGIN_BYTES_MAX {
            say(out, "CLIENT_ERROR auth token too long");
            return line.without_data(bytes);
        }
        let (value, step) = match line.data(bytes) {
            Data::Whole(value, step) => (value, step),
            Data::Bad(step) => {
                say(out, "CLIENT_ERROR bad command line termination");
                return step;
            }
            Data::Missing(step) => return step,
        };
        let Some(space) = memchr(b' ', value) else {
            say(out, "CLIENT_ERROR bad authentication token format");
            return step;
        };
        host.counters.auth_cmds += 1;
        self.is_logged_in =
            host.world.users.is_some_and(|users| users.admit(&value[..space], &value[space + 1..]));
        if self.is_logged_in {
            say(out, "STORED");
        } else {
            host.counters.auth_errors += 1;
            say(out, "CLIENT_ERROR authentication failure");
        }
        step
    }
}

impl Keys {
    /// Has another cache that is the key's home answer, if the item is changed, or cannot be read there.
    fn forward(&self, key: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Option<Step> {
        let used = key.len();
        let Touch::At(exptime) = self.touch else {
            let home = host.asked(key)?;
            let name: &[u8] = if self.shows_cas { b"gets " } else { b"get " };
            return Some(host.ask(home, Language::Key, &[name, key, b"\r\n"], Vec::new(), used, out));
        };
        let to = host.changed_at(key)?;
        let name: &[u8] = if self.shows_cas { b"gats " } else { b"gat " };
        let mut digits = itoa::Buffer::new();
        let command = [name, digits.format(exptime).as_bytes(), b" ", key, b"\r\n"];
        host.send(to, Language::Key, &command, out.len());
        Some(Step::Sent { used })
    }

    fn show(&self, key: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) {
        let touch =
            if let Touch::At(exptime) = self.touch { Some(host.world.expires(exptime)) } else { None };
        host.fetch(key, touch, |item| {
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            out.push(b' ');
            push_number(out, item.flags);
            out.push(b' ');
            push_number(out, item.value.len());
            if self.shows_cas {
                out.push(b' ');
                push_number(out, item.cas);
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(item.value);
            out.extend_from_slice(b"\r\n");
        });
    }
}

/// What a line asks to be listed, if it does, or what is wrong with it. All items are of class 1.
fn dump_of(text: &[u8]) -> Option<Result<Dump, &'static str>> {
    if !text.starts_with(b"lru_crawler ") {
        return None;
    }
    let mut words = words(text);
    let form = match (words.next()?, words.next()?) {
        (b"lru_crawler", b"metadump") => Form::Facts,
        (b"lru_crawler", b"mgdump") => Form::Commands,
        _ => return None,
    };
    let (Some(classes), None) = (words.next(), words.next()) else { return Some(Err("ERROR")) };
    let has_all = match classes {
        b"all" | b"hash" => Some(true),
        classes => classes.split(|byte| *byte == b',').try_fold(false, |has_first, class| {
            let class = number(class).filter(|class| (1..CLASSES).contains(class))?;
            Some(has_first || class == 1)
        }),
    };
    Some(match has_all {
        None => Err("BADCLASS invalid class id"),
        // Behind the last page.
        Some(has_all) => Ok(Dump { form, page: if has_all { 0 } else { usize::MAX } }),
    })
}

/// Whether a key can stand in a line as it is.
pub(crate) fn is_text(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

/// Appends a key as in a URI: all but RFC 3986's unreserved characters in percent.
fn push_encoded(out: &mut Vec<u8>, key: &[u8]) {
    for byte in key {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

/// A line that is neither a list of keys nor a meta command.
fn command(line: &Line<'_>, host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
    let mut all = words(line.text);
    let mut found = [&b""[..]; WORDS_MAX];
    let mut count = 0;
    for (place, word) in found.iter_mut().zip(&mut all) {
        *place = word;
        count += 1;
    }
    let words = &found[..count];
    let mode = match words.first().copied().unwrap_or_default() {
        b"set" => Some(Mode::Set),
        b"add" => Some(Mode::Add),
        b"replace" | b"cas" => Some(Mode::Replace),
        b"append" => Some(Mode::Append),
        b"prepend" => Some(Mode::Prepend),
        _ => None,
    };
    if let Some(mode) = mode {
        return update(mode, words, line, host, out);
    }
    if let [b"touch" | b"delete" | b"incr" | b"decr", key, ..] = words
        && key.len() <= KEY_BYTES_MAX
        && let Some(to) = host.changed_at(key)
    {
        return line.used().forwarded(to);
    }
    // Further words mean nothing, but the last one.
    let is_quiet = is_quiet(line.text);
    let mut answer = |line: &str| {
        if !is_quiet {
            say(out, line);
        }
    };
    match words {
        [b"touch", key, exptime, ..] => match time(exptime) {
            _ if key.len() > KEY_BYTES_MAX => answer(BAD_FORMAT),
            None => answer("CLIENT_ERROR invalid exptime argument"),
            Some(exptime) => {
                let is_hit = host.fetch(key, Some(host.world.expires(exptime)), |_| {});
                answer(if is_hit { "TOUCHED" } else { "NOT_FOUND" });
            }
        },
        [b"delete", key, ..] if key.len() > KEY_BYTES_MAX => answer(BAD_FORMAT),
        // A time, as old clients send it, and no more: memccapable, libmemcached's test of servers, wants that refused.
        [b"delete", key] | [b"delete", key, _] | [b"delete", key, _, b"noreply"] => {
            match host.delete(key, None, Remains::default()) {
                Ok(Outcome::Done { .. }) => answer("DELETED"),
                _ => answer("NOT_FOUND"),
            }
        }
        [name @ (b"incr" | b"decr"), key, amount, ..] => match number(amount) {
            _ if key.len() > KEY_BYTES_MAX => answer(BAD_FORMAT),
            None => answer("CLIENT_ERROR invalid numeric delta argument"),
            Some(amount) => {
                let is_increment = *name == b"incr";
                match host.add(key, &Delta { is_increment, amount, compare: None, create: None, cas: None }) {
                    Ok(sum) => answer(itoa::Buffer::new().format(sum.number)),
                    Err(NoSum::NotNumeric) => answer(NOT_NUMERIC),
                    Err(NoSum::NoMemory) => answer(NO_MEMORY),
                    Err(NoSum::NotFound | NoSum::Exists) => answer("NOT_FOUND"),
                }
            }
        },
        [b"flush_all", rest @ ..] => {
            let exptime = if rest.len() > usize::from(is_quiet) { time(rest[0]) } else { Some(0) };
            match exptime {
                Some(exptime) => {
                    host.flush(exptime);
                    if host.has_neighbours() {
                        return line.used().forwarded(To::All);
                    }
                    answer("OK");
                }
                None => answer("CLIENT_ERROR invalid exptime argument"),
            }
        }
        [b"verbosity", level, ..] => {
            answer(if number(level).is_some() { "OK" } else { BAD_FORMAT });
        }
        [b"version", ..] => {
            out.extend_from_slice(b"VERSION ");
            say(out, host.world.version);
        }
        [b"stats", rest @ ..] => stats::text(rest, host, out),
        [b"config", b"get", b"cluster"] if let Some(addresses) = host.world.addresses => {
            let text = addresses.text();
            say(out, &format!("CONFIG cluster 0 {}\r\n{text}\r\nEND", text.len()));
        }
        [b"shutdown", ..] => answer("SERVER_ERROR: shutdown not enabled"),
        [b"watch", ..] => say(out, "CLIENT_ERROR watch commands not allowed"),
        // What is set here there is not here.
        [b"lru_crawler", b"enable" | b"disable" | b"sleep" | b"tocrawl" | b"crawl", ..]
        | [b"lru", b"mode" | b"tune" | b"temp_ttl", ..]
        | [b"slabs", b"automove", ..] => answer("OK"),
        [b"slabs", b"reassign", ..] => answer("NOSPARE source class has no spare pages"),
        [b"cache_memlimit", megabytes, ..] => match number(megabytes) {
            Some(..MEGABYTES_MIN) => {
                answer("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
            }
            Some(megabytes) if megabytes == (host.cache.settings().memory_bytes >> 20) as u64 => answer("OK"),
            Some(_) => answer("MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"),
            None => answer("ERROR"),
        },
        [
            b"get" | b"gets" | b"gat" | b"gats" | b"touch" | b"delete" | b"incr" | b"decr" | b"verbosity"
            | b"cache_memlimit",
            ..,
        ] => answer(BAD_FORMAT),
        [b"quit", ..] => return Step::Close,
        // A browser, or whoever tricks one into sending commands.
        [.., last] if last.starts_with(b"HTTP/") => return Step::Close,
        _ => say(out, "ERROR"),
    }
    line.used()
}

/// `set` and those that are like it: `NAME KEY FLAGS EXPTIME BYTES [CAS] [noreply]`, and the value.
fn update(mode: Mode, words: &[&[u8]], line: &Line<'_>, host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
    let is_cas = words[0] == b"cas";
    let [_, key, flags, exptime, bytes, rest @ ..] = words else {
        say(out, BAD_FORMAT);
        return line.used();
    };
    let compare = rest.first().filter(|_| is_cas);
    if compare.is_none() && is_cas {
        say(out, BAD_FORMAT);
        return value_bytes(bytes).map_or_else(|| line.used(), |bytes| line.without_data(bytes));
    }
    let is_quiet = is_quiet(line.text);
    let mut answer = |line: &str| {
        if !is_quiet {
            say(out, line);
        }
    };
    let Some(bytes) = value_bytes(bytes) else {
        answer(BAD_FORMAT);
        return line.used();
    };
    // From here on the value is known to follow, so that it is not taken for commands.
    let numbers = || {
        // Of more bits than there are the lower ones are kept (memcached's).
        let flags = number(flags)? as u32;
        let compare = match compare {
            Some(cas) => Some(number(cas)?),
            None => None,
        };
        Some((flags, signed(exptime)?, compare))
    };
    let Some((flags, exptime, compare)) = numbers().filter(|_| key.len() <= KEY_BYTES_MAX) else {
        answer(BAD_FORMAT);
        return line.without_data(bytes);
    };
    let others = host.changed_at(key);
    if let Some(to) = others.filter(|_| !host.cache.fits(key.len(), bytes)) {
        return line.without_data(bytes).forwarded(to);
    }
    if others.is_none() && !host.admits(key, bytes, mode == Mode::Set) {
        answer(&not_stored(PutError::TooLarge));
        return line.without_data(bytes);
    }
    let (value, step) = match line.data(bytes) {
        Data::Whole(value, step) => (value, step),
        Data::Missing(step) => return step,
        Data::Bad(step) => {
            answer(BAD_CHUNK);
            return step;
        }
    };
    if let Some(to) = others {
        return step.forwarded(to);
    }
    let expires = host.world.expires(exptime);
    let put = Put { mode, key, value, flags, expires, compare, may_be_stale: false, cas: None, vivify: None };
    match host.store(&put) {
        Ok(Outcome::Done { .. }) => answer("STORED"),
        Ok(Outcome::NotStored) => answer("NOT_STORED"),
        Ok(Outcome::Exists) => answer("EXISTS"),
        Ok(Outcome::NotFound) => answer("NOT_FOUND"),
        Err(error) => answer(&not_stored(error)),
    }
    step
}
