//! The meta commands of the text protocol: `mg`, `ms`, `md`, `ma`, `mn`, `me`.
//!
//! Their flags are those of memcached's protocol.txt. Flags that ask for something are answered in the order in which they came,
//! and one that changes when an item expires is seen by a `t` behind it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::text::{
    BAD_CHUNK, BAD_FORMAT, Data, Line, NO_MEMORY, NOT_NUMERIC, not_stored, say, time, value_bytes, words,
};
use super::{Step, push_number};
use crate::cache::{Cache, Item, KEY_BYTES_MAX, PutError, Seconds};
use crate::command::{Delta, Host, Mode, NoSum, Outcome, Put, Remains, World, number};
use crate::neighbours::{Language, To};

/// The most words of a line, flags included (memcached's).
const WORDS_MAX: usize = 20;
/// The longest opaque token, in bytes, its O included (memcached's).
const OPAQUE_BYTES_MAX: usize = 32;

type Problem = &'static str;

/// Whatever is wrong with the flags or the key of `ma` (memcached's).
const BAD_ARITHMETIC: Problem = "CLIENT_ERROR invalid or duplicate flag";
const BAD_TOKEN: Problem = "CLIENT_ERROR bad token in command line format";

/// What the flags of a command say.
#[derive(Clone, Copy, Debug, Default)]
struct Flags<'a> {
    /// All of them.
    text: &'a [u8],
    /// b: the key is encoded.
    has_encoded_key: bool,
    /// v: the value is wanted.
    wants_value: bool,
    /// q: no answer unless there is something to say.
    is_quiet: bool,
    /// u: it does not count as a fetch.
    is_unseen: bool,
    /// I: stale.
    is_stale: bool,
    /// x: the value goes.
    is_emptied: bool,
    /// N: if there is no item, one is made, which expires then.
    vivify: Option<Seconds>,
    /// T: when the item expires.
    expires: Option<Seconds>,
    /// R: who asks first for an item that expires before that has won.
    recache: Option<Seconds>,
    /// F: the client's 32 bits.
    flags: u32,
    /// C: the unique number that the item must have.
    compare: Option<u64>,
    /// E: the item's new unique number.
    cas: Option<u64>,
    /// M: the mode.
    mode: Option<u8>,
    /// J: the number to begin with.
    initial: u64,
    /// D: the number to add.
    delta: Option<u64>,
}

/// What flags may ask for. What is not known, or not asked of that command, is left out.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    value_bytes: Option<usize>,
    cas: Option<u64>,
    expires: Option<Seconds>,
    is_created: bool,
    flags: Option<u32>,
    accessed: Option<Seconds>,
    was_fetched: Option<bool>,
    is_won: bool,
    /// Whether this client wins the right to replace the item.
    wins: bool,
}

/// A command with a key.
struct Request<'a> {
    /// The key as the client wrote it.
    written_key: &'a [u8],
    key: &'a [u8],
    flags: &'a Flags<'a>,
}

impl<'a> Flags<'a> {
    fn parse(text: &'a [u8], world: &World<'_>) -> Result<Self, Problem> {
        let mut flags = Flags { text, ..Flags::default() };
        let mut seen = 0_u128;
        for word in words(text) {
            let (letter, token) = (word[0], &word[1..]);
            let bit = 1_u128.checked_shl(letter.into()).unwrap_or(seen);
            if seen & bit != 0 || letter >= 127 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= bit;
            let seconds = || time(token).map(|exptime| world.expires(exptime)).ok_or(BAD_TOKEN);
            let cas = || number(token).ok_or(BAD_TOKEN);
            match letter {
                b'b' => flags.has_encoded_key = true,
                b'v' => flags.wants_value = true,
                b'q' => flags.is_quiet = true,
                b'u' => flags.is_unseen = true,
                b'I' => flags.is_stale = true,
                b'x' => flags.is_emptied = true,
                b'N' => flags.vivify = Some(seconds()?),
                b'T' => flags.expires = Some(seconds()?),
                b'R' => flags.recache = Some(seconds()?),
                b'F' => {
                    flags.flags = number(token).and_then(|flags| flags.try_into().ok()).ok_or(BAD_FORMAT)?
                }
                b'C' => flags.compare = Some(cas()?),
                // 0 is no unique number.
                b'E' => flags.cas = Some(cas()?).filter(|cas| *cas != 0),
                b'M' => match token {
                    [mode] => flags.mode = Some(*mode),
                    _ => return Err("CLIENT_ERROR incorrect length for M token"),
                },
                b'J' => flags.initial = number(token).ok_or("CLIENT_ERROR invalid numeric initial value")?,
                b'D' => flags.delta = Some(number(token).ok_or("CLIENT_ERROR invalid numeric delta value")?),
                b'O' if word.len() > OPAQUE_BYTES_MAX => return Err("CLIENT_ERROR opaque token too long"),
                // P and L are for proxies.
                b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
                _ => return Err("CLIENT_ERROR invalid flag"),
            }
        }
        Ok(flags)
    }
}

impl Facts {
    fn of(item: &Item<'_>) -> Self {
        Facts {
            value_bytes: Some(item.value.len()),
            cas: Some(item.cas),
            expires: Some(item.expires),
            flags: Some(item.flags),
            accessed: Some(item.accessed),
            was_fetched: Some(item.was_fetched),
            is_won: item.is_won,
            ..Facts::default()
        }
    }
}

/// Carries out `m` and `letter`. `rest` is what follows on the line.
pub(crate) fn command(
    letter: u8,
    rest: &[u8],
    line: &Line<'_>,
    host: &mut Host<'_>,
    out: &mut Vec<u8>,
) -> Step {
    match letter {
        b'n' => {
            say(out, "MN");
            return line.used();
        }
        b'g' | b's' | b'd' | b'a' | b'e' => {}
        _ => {
            say(out, "ERROR");
            return line.used();
        }
    }
    let mut words = words(rest);
    let Some(written_key) = words.next() else {
        say(out, BAD_FORMAT);
        return line.used();
    };
    // Of ms, so that a value is not taken for commands whatever is wrong with the rest.
    let bytes = match letter {
        b's' => match words.next().and_then(value_bytes) {
            Some(bytes) => Some(bytes),
            None => {
                say(out, BAD_FORMAT);
                return line.used();
            }
        },
        _ => None,
    };
    let past = bytes.map_or_else(|| line.used(), |bytes| line.without_data(bytes));
    let flags_at = match words.next() {
        Some(first) => first.as_ptr() as usize - rest.as_ptr() as usize,
        None => rest.len(),
    };
    let mut decoded;
    let parsed = (|| {
        if written_key.len() > KEY_BYTES_MAX {
            return Err(BAD_FORMAT);
        }
        let text = &rest[flags_at..];
        if letter != b'e' && 2 + usize::from(bytes.is_some()) + self::words(text).count() > WORDS_MAX {
            return Err("CLIENT_ERROR options flags are too long");
        }
        Flags::parse(text, host.world)
    })();
    let flags = match parsed {
        Ok(flags) => flags,
        Err(problem) => {
            say(out, if letter == b'a' { BAD_ARITHMETIC } else { problem });
            return past;
        }
    };
    let key = if flags.has_encoded_key {
        decoded = [0; KEY_BYTES_MAX];
        match BASE64_STANDARD.decode_slice(written_key, &mut decoded) {
            Ok(bytes @ 1..) => &decoded[..bytes],
            _ => {
                say(out, if letter == b'a' { BAD_ARITHMETIC } else { "CLIENT_ERROR error decoding key" });
                return past;
            }
        }
    } else {
        written_key
    };
    let request = Request { written_key, key, flags: &flags };
    if matches!(letter, b'd' | b'a' | b'e')
        && let Some(to) = host.changed_at(key)
    {
        return past.forwarded(to);
    }
    let result = match (letter, bytes) {
        (b's', Some(bytes)) => return request.set(bytes, line, host, out),
        (b'g', _) => {
            if request.is_for_anyone()
                && let (Some(home), Step::Used(used)) = (host.asked(key), past)
            {
                let mut miss = Vec::new();
                request.show_miss(host.world.now, &mut miss);
                return host.ask(home, Language::Text, &[line.text, b"\r\n"], miss, used, out);
            }
            match request.get(host, out) {
                Some(to) => return past.forwarded(to),
                None => Ok(()),
            }
        }
        (b'd', _) => request.delete(host, out),
        (b'a', _) => request.add(host, out),
        _ => {
            request.debug(host, out);
            Ok(())
        }
    };
    if let Err(problem) = result {
        say(out, &problem);
    }
    past
}

impl Request<'_> {
    /// Appends what the flags ask for.
    fn answer(&self, facts: &mut Facts, now: Seconds, out: &mut Vec<u8>) {
        for word in words(self.flags.text) {
            let mut fact = |letter: u8, number: Option<u64>| {
                if let Some(number) = number {
                    out.extend_from_slice(&[b' ', letter]);
                    push_number(out, number);
                }
            };
            match word[0] {
                b'T' => facts.expires = facts.expires.and(self.flags.expires),
                b'N' if facts.is_created => {
                    facts.expires = self.flags.vivify;
                    facts.wins = true;
                }
                b'R' => {
                    let soon =
                        |expires| expires != 0 && self.flags.recache.is_some_and(|recache| expires < recache);
                    facts.wins |= !facts.is_won && !facts.is_created && facts.expires.is_some_and(soon);
                }
                b's' => fact(b's', facts.value_bytes.map(|bytes| bytes as u64)),
                b't' if facts.expires == Some(0) => out.extend_from_slice(b" t-1"),
                b't' => fact(b't', facts.expires.map(|expires| expires.saturating_sub(now).into())),
                b'c' => fact(b'c', facts.cas),
                b'f' => fact(b'f', facts.flags.map(u64::from)),
                b'l' => fact(b'l', facts.accessed.map(|accessed| now.saturating_sub(accessed).into())),
                b'h' => fact(b'h', facts.was_fetched.map(u64::from)),
                b'O' => {
                    out.push(b' ');
                    out.extend_from_slice(word);
                }
                b'k' => {
                    out.extend_from_slice(b" k");
                    out.extend_from_slice(self.written_key);
                    if self.flags.has_encoded_key {
                        out.extend_from_slice(b" b");
                    }
                }
                _ => {}
            }
        }
    }

    /// Appends a code, and what the flags ask for.
    fn line(&self, code: &[u8; 2], mut facts: Facts, now: Seconds, out: &mut Vec<u8>) {
        out.extend_from_slice(code);
        self.answer(&mut facts, now, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Whether the answer says nothing that only the key's home knows, and changes nothing there.
    fn is_for_anyone(&self) -> bool {
        let Flags { vivify, expires, recache, .. } = self.flags;
        let asks_home = |word: &[u8]| matches!(word[0], b'h' | b'l');
        let changes = vivify.is_some() || expires.is_some() || recache.is_some();
        !changes && !words(self.flags.text).any(asks_home)
    }

    /// Answers, or returns who is to, if only those can.
    fn get(&self, host: &mut Host<'_>, out: &mut Vec<u8>) -> Option<To> {
        let now = host.world.now;
        if !self.is_for_anyone()
            && let Some(to) = host.changed_at(self.key)
        {
            return Some(to);
        }
        if let Some(home) = host.home(self.key) {
            let found = host.read(home, self.key);
            if found.is_some_and(|item| item.is_stale) {
                // Whoever asks first wins the right to replace it.
                return host.changed_at(self.key);
            }
            let is_hit = found.is_some();
            match found {
                Some(item) => _ = self.show(&item, false, now, out),
                None => self.show_miss(now, out),
            }
            host.counters.count_fetch(false, is_hit);
            return None;
        }
        let flags = self.flags;
        let mut found = self.find(host.cache, now);
        let mut is_created = false;
        if let (None, Some(_)) = (&found, flags.vivify) {
            is_created = host.cache.put(self.key, b"", 0, 0, flags.cas, now).is_ok();
            found = self.find(host.cache, now);
        }
        let Some(item) = found else {
            host.counters.count_fetch(false, false);
            self.show_miss(now, out);
            return None;
        };
        host.counters.count_fetch(flags.expires.is_some(), true);
        let (is_stale, expired) = (item.is_stale, item.expires);
        let (wins, expires) = self.show(&item, is_created, now, out);
        if wins {
            host.cache.mark(self.key, is_stale, true, now);
        }
        if let Some(expires) = expires.filter(|expires| *expires != expired) {
            host.cache.touch(self.key, expires, now);
        }
        None
    }

    fn show_miss(&self, now: Seconds, out: &mut Vec<u8>) {
        if !self.flags.is_quiet {
            self.line(b"EN", Facts::default(), now, out);
        }
    }

    /// Appends an item. Returns whether the client was told that it may replace the item, and when the item is to expire.
    fn show(
        &self,
        item: &Item<'_>,
        is_created: bool,
        now: Seconds,
        out: &mut Vec<u8>,
    ) -> (bool, Option<Seconds>) {
        let flags = self.flags;
        let wants_value = flags.wants_value && flags.compare != Some(item.cas);
        if wants_value {
            out.extend_from_slice(b"VA ");
            push_number(out, item.value.len());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut facts = Facts { is_created, ..Facts::of(item) };
        self.answer(&mut facts, now, out);
        let wins = facts.wins || item.is_stale && !item.is_won;
        for (is_so, mark) in [(item.is_won, b" Z"), (item.is_stale, b" X"), (wins, b" W")] {
            if is_so {
                out.extend_from_slice(mark);
            }
        }
        out.extend_from_slice(b"\r\n");
        if wants_value {
            out.extend_from_slice(item.value);
            out.extend_from_slice(b"\r\n");
        }
        (wins, facts.expires)
    }

    fn find<'c>(&self, cache: &'c mut Cache, now: Seconds) -> Option<Item<'c>> {
        if self.flags.is_unseen { cache.peek(self.key, now) } else { cache.get(self.key, now) }
    }

    fn set(&self, bytes: usize, line: &Line<'_>, host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        let (now, flags) = (host.world.now, self.flags);
        let mode = match flags.mode {
            None | Some(b'S') => Mode::Set,
            Some(b'E') => Mode::Add,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(b'R') => Mode::Replace,
            Some(_) => {
                say(out, "CLIENT_ERROR invalid mode for ms M token");
                return line.without_data(bytes);
            }
        };
        let others = host.changed_at(self.key);
        if let Some(to) = others.filter(|_| !host.cache.fits(self.key.len(), bytes)) {
            return line.without_data(bytes).forwarded(to);
        }
        if others.is_none() && !host.admits(self.key, bytes, true) {
            say(out, &not_stored(PutError::TooLarge));
            return line.without_data(bytes);
        }
        let (value, step) = match line.data(bytes) {
            Data::Whole(value, step) => (value, step),
            Data::Missing(step) => return step,
            Data::Bad(step) => {
                say(out, BAD_CHUNK);
                return step;
            }
        };
        if let Some(to) = others {
            return step.forwarded(to);
        }
        let stored = host.store(&Put {
            mode,
            key: self.key,
            value,
            flags: flags.flags,
            expires: flags.expires.unwrap_or(0),
            compare: flags.compare,
            may_be_stale: flags.is_stale,
            cas: flags.cas,
            vivify: flags.vivify,
        });
        let (code, cas, bytes) = match stored {
            Ok(Outcome::Done { .. }) if flags.is_quiet => return step,
            Ok(Outcome::Done { cas, bytes }) => (b"HD", cas, bytes),
            Ok(Outcome::NotStored) => (b"NS", 0, bytes),
            Ok(Outcome::Exists) => (b"EX", 0, bytes),
            Ok(Outcome::NotFound) => (b"NF", 0, bytes),
            Err(error) => {
                say(out, &not_stored(error));
                return step;
            }
        };
        self.line(code, Facts { cas: Some(cas), value_bytes: Some(bytes), ..Facts::default() }, now, out);
        step
    }

    fn delete(&self, host: &mut Host<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let flags = self.flags;
        let remains = Remains {
            is_stale: flags.is_stale,
            emptied: flags.is_emptied.then_some(flags.flags),
            expires: flags.expires,
            cas: flags.cas,
        };
        let code = match host.delete(self.key, flags.compare, remains).map_err(not_stored)? {
            Outcome::Done { .. } if flags.is_quiet => return Ok(()),
            Outcome::Done { .. } => b"HD",
            Outcome::NotStored => b"NS",
            Outcome::Exists => b"EX",
            Outcome::NotFound => b"NF",
        };
        self.line(code, Facts::default(), host.world.now, out);
        Ok(())
    }

    fn add(&self, host: &mut Host<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let (now, flags) = (host.world.now, self.flags);
        let is_increment = match flags.mode {
            None | Some(b'I' | b'+') => true,
            Some(b'D' | b'-') => false,
            Some(_) => return Err("CLIENT_ERROR invalid mode for ma M token".into()),
        };
        let delta = Delta {
            is_increment,
            amount: flags.delta.unwrap_or(1),
            // 0 is no unique number.
            compare: flags.compare.filter(|cas| *cas != 0),
            create: flags.vivify.map(|_| (flags.initial, 0)),
            cas: flags.cas,
        };
        let sum = match host.add(self.key, &delta) {
            Ok(sum) => sum,
            Err(NoSum::NotNumeric) => return Err(NOT_NUMERIC.into()),
            Err(NoSum::NoMemory) => return Err(NO_MEMORY.into()),
            Err(refused) => {
                let code = if refused == NoSum::Exists { b"EX" } else { b"NF" };
                self.line(code, Facts::default(), now, out);
                return Ok(());
            }
        };
        let start = out.len();
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(sum.number).as_bytes();
        if flags.wants_value {
            out.extend_from_slice(b"VA ");
            push_number(out, digits.len());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut facts = Facts {
            cas: Some(sum.cas),
            expires: Some(sum.expires),
            is_created: sum.is_created,
            ..Facts::default()
        };
        self.answer(&mut facts, now, out);
        out.extend_from_slice(b"\r\n");
        if flags.wants_value {
            out.extend_from_slice(digits);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(expires) = facts.expires.filter(|expires| *expires != sum.expires) {
            host.cache.touch(self.key, expires, now);
        }
        if flags.is_quiet {
            out.truncate(start);
        }
        Ok(())
    }

    fn debug(&self, host: &mut Host<'_>, out: &mut Vec<u8>) {
        let now = host.world.now;
        host.counters.cmd_meta += 1;
        let Some(item) = host.cache.peek(self.key, now) else {
            say(out, "EN");
            return;
        };
        out.extend_from_slice(b"ME ");
        out.extend_from_slice(self.written_key);
        let expires = if item.expires == 0 { -1 } else { i64::from(item.expires) - i64::from(now) };
        let accessed = now.saturating_sub(item.accessed);
        let fetched = if item.was_fetched { "yes" } else { "no" };
        let bytes = self.key.len() + item.value.len();
        say(
            out,
            &format!(" exp={expires} la={accessed} cas={} fetch={fetched} cls=1 size={bytes}", item.cas),
        );
    }
}
