//! What memcached's commands do to items, whatever the protocol: each operation is here, once.
//!
//! Nothing here knows how a command is written or answered.

use std::fmt::Display;
use std::net::SocketAddr;

use crate::cache::{Cache, Item, PutError, Seconds};
use crate::counters::Counters;
use crate::neighbours::{Home, Language, Neighbours, To};
use crate::protocol::Step;

/// The longest time to live that is not taken for a Unix time, in seconds: 30 days (memcached's protocol.txt).
const TTL_MAX: i64 = 60 * 60 * 24 * 30;
/// A second that is over in every cache.
const LONG_OVER: Seconds = 1;
/// Most bytes of a number that keeps its length when it is changed. It has 20 digits at most, and leading zeros.
const NUMBER_BYTES_MAX: usize = 64;

/// What commands act on.
pub struct Host<'a> {
    /// The items.
    pub cache: &'a mut Cache,
    /// What was done, of this driver's sessions.
    pub counters: &'a mut Counters,
    /// All that stays as it is during a call.
    pub world: &'a World<'a>,
    /// The other caches of the cluster, if a key may be one of theirs.
    pub neighbours: Option<&'a mut Neighbours>,
}

/// What a session needs to know and cannot ask for itself.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The time.
    pub now: Seconds,
    /// The Unix time of second 0, in seconds.
    pub unix_at_0: i64,
    /// Bytes of answers after which a session waits until they are taken.
    pub out_bytes_max: usize,
    /// What `version` answers, after "VERSION".
    pub version: &'a str,
    /// The users that may log in, if clients must.
    pub users: Option<&'a Users>,
    /// The caches of the cluster, for clients that ask; `None` if it is of none.
    pub addresses: Option<&'a Addresses>,
    /// Writes what the driver knows for `stats`, row by row: a name, and its value.
    pub rows: &'a dyn Fn(Rows, &mut Row<'_>),
}

/// Where clients find the caches of a cluster, as those ask that know Amazon ElastiCache's auto discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Rises with each change.
    pub version: u64,
    /// Where each cache takes clients.
    pub caches: Vec<SocketAddr>,
}

impl Addresses {
    /// As such clients read it: the version, and `HOST|IP|PORT` of each cache.
    pub(crate) fn text(&self) -> String {
        let cache = |at: &SocketAddr| format!("{0}|{0}|{1}", at.ip(), at.port());
        let caches: Vec<_> = self.caches.iter().map(cache).collect();
        format!("{}\n{}\n", self.version, caches.join(" "))
    }
}

/// Second 0, no users, no rows, and no bound for answers.
impl Default for World<'_> {
    fn default() -> Self {
        World {
            now: 0,
            unix_at_0: 0,
            out_bytes_max: usize::MAX,
            version: crate::VERSION,
            users: None,
            addresses: None,
            rows: &|_, _| {},
        }
    }
}

/// Takes one row of `stats`.
pub type Row<'a> = dyn FnMut(&str, &dyn Display) + 'a;

/// The rows of `stats` that the driver knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// `stats`: its process and connections, beside what a session adds (counters and items).
    General,
    /// `stats settings`: all of it.
    Settings,
    /// `stats conns`: all of it.
    Connections,
}

/// Names and passwords, and how to log in with them.
#[derive(Clone)]
pub struct Users {
    login: Login,
    all: Vec<(String, String)>,
}

/// How clients log in. It decides on the protocol that they speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// By a `set` of the text protocol (memcached's `-Y`).
    Text,
    /// By SASL in the binary protocol (memcached's `-S`).
    Sasl,
}

/// Which items a command stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

/// An item to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    pub(crate) mode: Mode,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expires: Seconds,
    /// The unique number that the item must have.
    pub(crate) compare: Option<u64>,
    /// If the item has a higher unique number than that, the new one is stored as stale.
    pub(crate) may_be_stale: bool,
    /// Its new unique number, if the client chose it.
    pub(crate) cas: Option<u64>,
    /// When an item that is made by append or prepend expires, if they may make one.
    pub(crate) vivify: Option<Seconds>,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It is done. The item's unique number, and the bytes of its value.
    Done {
        cas: u64,
        bytes: usize,
    },
    NotStored,
    Exists,
    NotFound,
}

/// A change of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delta {
    pub(crate) is_increment: bool,
    pub(crate) amount: u64,
    /// The unique number that the item must have.
    pub(crate) compare: Option<u64>,
    /// The number that an item is made with, if there is none, and when that expires.
    pub(crate) create: Option<(u64, Seconds)>,
    /// The new unique number, if the client chose it.
    pub(crate) cas: Option<u64>,
}

/// A number that was changed or made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub(crate) number: u64,
    pub(crate) cas: u64,
    pub(crate) expires: Seconds,
    pub(crate) is_created: bool,
}

/// Why a number was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoSum {
    NotFound,
    Exists,
    NotNumeric,
    NoMemory,
}

/// What a meta delete leaves of an item. By default nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Remains {
    /// The item stays, marked as stale, with another unique number.
    pub(crate) is_stale: bool,
    /// The item stays, with these flags and an empty value.
    pub(crate) emptied: Option<u32>,
    /// When what stays expires.
    pub(crate) expires: Option<Seconds>,
    /// Its new unique number, if the client chose it.
    pub(crate) cas: Option<u64>,
}

impl World<'_> {
    /// When an item expires that a client gives the time `exptime`: a time to live in seconds, a Unix time, 0 for never, or
    /// negative for at once.
    pub(crate) fn expires(&self, exptime: i64) -> Seconds {
        match exptime {
            ..0 => LONG_OVER,
            0 => 0,
            1..=TTL_MAX => self.now.saturating_add(exptime as Seconds),
            _ => {
                let since = exptime.saturating_sub(self.unix_at_0);
                since.clamp(LONG_OVER.into(), Seconds::MAX.into()) as Seconds
            }
        }
    }
}

impl Users {
    /// Reads lines of `name:password`, as in memcached's file for `-Y`. Others are left out. In its file for SASL a further `:`
    /// ends the password.
    pub fn parse(text: &str, login: Login) -> Self {
        let pair = |line: &str| {
            let (name, password) = line.split_once(':')?;
            let password = match login {
                Login::Text => password,
                Login::Sasl => password.split(':').next()?,
            };
            Some((name.to_owned(), password.to_owned()))
        };
        Users { login, all: text.lines().filter_map(pair).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn login(&self) -> Login {
        self.login
    }

    /// Whether it is one of them. Takes as long whatever the password is.
    pub(crate) fn admit(&self, name: &[u8], password: &[u8]) -> bool {
        let differ = |a: &[u8], b: &[u8]| {
            a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) != 0 || a.len() != b.len()
        };
        self.all.iter().any(|(n, p)| !differ(n.as_bytes(), name) & !differ(p.as_bytes(), password))
    }
}

impl Host<'_> {
    /// The cache that is read for the item of a key, if that is another one.
    pub(crate) fn home(&self, key: &[u8]) -> Option<Home> {
        self.neighbours.as_ref()?.home(key)
    }

    /// Who carries out a command that changes the item of a key, if not this cache alone.
    pub(crate) fn changed_at(&mut self, key: &[u8]) -> Option<To> {
        let neighbours = self.neighbours.as_ref()?;
        let to = neighbours.changed_at(key)?;
        if neighbours.is_changing() {
            // It may have been its home: nobody is to read there what was before.
            self.cache.remove(key, self.world.now);
        }
        Some(to)
    }

    /// Whether there are other caches that a command for all is for.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.neighbours.as_ref().is_some_and(|neighbours| neighbours.others().next().is_some())
    }

    /// The cache that is to be asked for the item of a key, if that is another one, whose memory cannot be read.
    pub(crate) fn asked(&self, key: &[u8]) -> Option<Home> {
        self.neighbours.as_ref()?.asked(key)
    }

    /// Leaves the parts of a command that changes something for others with the driver, behind so many bytes of answers.
    pub(crate) fn send(&mut self, to: To, language: Language, command: &[&[u8]], answered: usize) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.send(to, language, command, answered);
        }
    }

    /// Takes a command that only reads, in parts, of `used` bytes of the input. A copy of an earlier answer answers it; otherwise the
    /// home does, and `miss` is the answer if there is no item.
    pub(crate) fn ask(
        &mut self,
        home: Home,
        language: Language,
        command: &[&[u8]],
        miss: Vec<u8>,
        used: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let neighbours = self.neighbours.as_mut();
        if neighbours.is_some_and(|neighbours| neighbours.ask(home, language, command, miss, out)) {
            self.counters.count_fetch(false, true);
            return Step::Used(used);
        }
        Step::Sent { used }
    }

    /// Whether others are yet to answer before the next command is carried out.
    pub(crate) fn must_wait(&self) -> bool {
        self.neighbours.as_ref().is_none_or(|neighbours| !neighbours.takes_more())
    }

    /// The item of a key in the memory of the cache that is its home.
    pub(crate) fn read(&mut self, home: Home, key: &[u8]) -> Option<Item<'_>> {
        self.neighbours.as_mut()?.read(home.peer, key, self.cache, self.world.now)
    }

    /// Hands the item of `key` to `show`, if there is one. Afterwards it expires at `touch`.
    pub(crate) fn fetch(&mut self, key: &[u8], touch: Option<Seconds>, show: impl FnOnce(&Item<'_>)) -> bool {
        let now = self.world.now;
        if touch.is_none()
            && let Some(home) = self.home(key)
        {
            let is_hit = self.read(home, key).inspect(show).is_some();
            self.counters.count_fetch(false, is_hit);
            return is_hit;
        }
        let item = self.cache.get_and_touch(key, touch, now);
        self.counters.count_fetch(touch.is_some(), item.is_some());
        item.inspect(show).is_some()
    }

    /// Stores an item.
    ///
    /// # Errors
    /// If there is no room for it. What a `set` was to replace is then gone: nobody is to be given the old value for the new one.
    pub(crate) fn store(&mut self, put: &Put<'_>) -> Result<Outcome, PutError> {
        self.counters.cmd_set += 1;
        if put.mode == Mode::Set && put.compare.is_none() {
            return self.put(put, put.value, put.flags, put.expires);
        }
        let old = self.cache.peek(put.key, self.world.now);
        match (put.mode, old) {
            (Mode::Add, None) => self.put(put, put.value, put.flags, put.expires),
            (Mode::Add, Some(_)) => {
                self.cache.keep(put.key, self.world.now);
                Ok(Outcome::NotStored)
            }
            (Mode::Set | Mode::Replace, None) if put.compare.is_some() => {
                self.counters.cas_misses += 1;
                Ok(Outcome::NotFound)
            }
            (Mode::Set | Mode::Replace, None) => Ok(Outcome::NotStored),
            (Mode::Set | Mode::Replace, Some(old)) => {
                let is_behind = put.compare.is_some_and(|compare| compare != 0 && compare < old.cas);
                if put.compare.is_none_or(|compare| compare == old.cas) {
                    self.counters.cas_hits += u64::from(put.compare.is_some());
                    self.put(put, put.value, put.flags, put.expires)
                } else if put.may_be_stale && is_behind {
                    let (expires, is_won) = (old.expires, old.is_won);
                    self.counters.cas_hits += 1;
                    let stored = self.put(put, put.value, put.flags, expires)?;
                    self.cache.mark(put.key, true, is_won, self.world.now);
                    Ok(stored)
                } else {
                    self.counters.cas_badval += 1;
                    Ok(Outcome::Exists)
                }
            }
            (Mode::Append | Mode::Prepend, None) => match put.vivify {
                Some(expires) => self.put(put, put.value, put.flags, expires),
                None => Ok(Outcome::NotStored),
            },
            (Mode::Append | Mode::Prepend, Some(old)) => {
                if put.compare.is_some_and(|compare| compare != old.cas) {
                    return Ok(Outcome::Exists);
                }
                let joined = match put.mode {
                    Mode::Append => [old.value, put.value].concat(),
                    _ => [put.value, old.value].concat(),
                };
                let (flags, expires) = (old.flags, old.expires);
                if !self.cache.fits(put.key.len(), joined.len()) {
                    return Ok(Outcome::NotStored);
                }
                self.put(put, &joined, flags, expires)
            }
        }
    }

    fn put(
        &mut self,
        put: &Put<'_>,
        value: &[u8],
        flags: u32,
        expires: Seconds,
    ) -> Result<Outcome, PutError> {
        let cas = self.cache.put(put.key, value, flags, expires, put.cas, self.world.now);
        let cas = cas.inspect_err(|error| {
            self.counters.count_failure(*error);
            if put.mode == Mode::Set {
                self.cache.remove(put.key, self.world.now);
            }
        })?;
        Ok(Outcome::Done { cas, bytes: value.len() })
    }

    /// Whether a value of so many bytes may be stored. If not, and if the command `is_final`, what `key` had is removed: a
    /// client that could not store the new value is not to be given the old one.
    pub(crate) fn admits(&mut self, key: &[u8], value_bytes: usize, is_final: bool) -> bool {
        let fits = self.cache.fits(key.len(), value_bytes);
        if !fits {
            self.counters.count_failure(PutError::TooLarge);
            if is_final {
                self.cache.remove(key, self.world.now);
            }
        }
        fits
    }

    /// Removes the item of `key`, or what does not remain of it, if it has the unique number `compare`.
    ///
    /// # Errors
    /// If there is no room for what remains.
    pub(crate) fn delete(
        &mut self,
        key: &[u8],
        compare: Option<u64>,
        remains: Remains,
    ) -> Result<Outcome, PutError> {
        let now = self.world.now;
        let Some(item) = self.cache.peek(key, now) else {
            self.counters.delete_misses += 1;
            return Ok(Outcome::NotFound);
        };
        let mut cas = item.cas;
        if compare.is_some_and(|compare| compare != cas) {
            self.counters.delete_misses += 1;
            return Ok(Outcome::Exists);
        }
        if let Some(flags) = remains.emptied {
            let expires = remains.expires.unwrap_or(0);
            cas = self.cache.put(key, b"", flags, expires, Some(remains.cas.unwrap_or(cas)), now)?;
        }
        if remains.is_stale {
            self.cache.mark(key, true, false, now);
            cas = self.cache.renumber(key, remains.cas, now).unwrap_or(cas);
            if let Some(expires) = remains.expires {
                self.cache.touch(key, expires, now);
            }
        } else {
            self.counters.delete_hits += 1;
            if remains.emptied.is_none() {
                self.cache.remove(key, now);
            }
        }
        Ok(Outcome::Done { cas, bytes: 0 })
    }

    /// Adds to the number that the item of `key` has, modulo 2^64, or subtracts from it, down to 0. One that has become shorter
    /// is followed by spaces.
    ///
    /// # Errors
    /// If there is no such item, or no number in it, or no room.
    pub(crate) fn add(&mut self, key: &[u8], delta: &Delta) -> Result<Sum, NoSum> {
        let now = self.world.now;
        let Some(item) = self.cache.peek(key, now) else {
            let Some((number, expires)) = delta.create else {
                let counters = &mut self.counters;
                *(if delta.is_increment { &mut counters.incr_misses } else { &mut counters.decr_misses }) +=
                    1;
                return Err(NoSum::NotFound);
            };
            let cas = self.put_number(key, number, 0, 0, expires, delta.cas)?;
            return Ok(Sum { number, cas, expires, is_created: true });
        };
        if !item.value.is_empty() && delta.compare.is_some_and(|compare| compare != item.cas) {
            return Err(NoSum::Exists);
        }
        let old = number_in(item.value).ok_or(NoSum::NotNumeric)?;
        let (bytes, flags, expires) = (item.value.len(), item.flags, item.expires);
        let number = if delta.is_increment {
            self.counters.incr_hits += 1;
            old.wrapping_add(delta.amount)
        } else {
            self.counters.decr_hits += 1;
            old.saturating_sub(delta.amount)
        };
        let cas = self.put_number(key, number, bytes, flags, expires, delta.cas)?;
        Ok(Sum { number, cas, expires, is_created: false })
    }

    fn put_number(
        &mut self,
        key: &[u8],
        number: u64,
        bytes_min: usize,
        flags: u32,
        expires: Seconds,
        cas: Option<u64>,
    ) -> Result<u64, NoSum> {
        let mut value = [b' '; NUMBER_BYTES_MAX];
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        value[..digits.len()].copy_from_slice(digits);
        let value = &value[..digits.len().max(bytes_min.min(NUMBER_BYTES_MAX))];
        self.cache.put(key, value, flags, expires, cas, self.world.now).map_err(|error| {
            self.counters.count_failure(error);
            NoSum::NoMemory
        })
    }

    /// Removes all items: at once, or at the time that `exptime` means.
    pub(crate) fn flush(&mut self, exptime: i64) {
        self.counters.cmd_flush += 1;
        let now = self.world.now;
        self.cache.flush(self.world.expires(exptime).max(now), now);
    }
}

/// The number that a value begins with, if nothing else but white space does and white space follows.
fn number_in(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii_start().split(u8::is_ascii_whitespace).next()?;
    number(digits)
}

/// A number that is not negative.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}
