//! The binary protocol, whose quiet commands are answered only if there is something to say.
//!
//! A packet is a header, extras, a key and a value. memcached calls the protocol deprecated; clients of many languages speak
//! nothing else.

use super::Step;
use crate::cache::{KEY_BYTES_MAX, PutError};
use crate::command::{Delta, Host, Mode, NoSum, Outcome, Put, Remains, Users};
use crate::neighbours::{Language, To};
use crate::stats;

/// The first byte of a request.
pub(crate) const REQUEST: u8 = 0x80;
const ANSWER: u8 = 0x81;
const HEADER_BYTES: usize = 24;
/// An expiration that says: make no item.
const NO_ITEM: u32 = u32::MAX;
/// The mechanism by which clients log in: a name to act as, a name and a password, with zeros in between (RFC 4616).
const PLAIN: &[u8] = b"PLAIN";
/// The longest message of a client that logs in, in bytes (that of the text protocol).
const LOGIN_BYTES_MAX: usize = 16384;

/// A client that speaks binary.
#[derive(Debug, Default)]
pub(crate) struct Binary {
    is_logged_in: bool,
}

/// How a command went, and the words for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Status {
    Ok = 0x00,
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    Invalid = 0x04,
    NotStored = 0x05,
    NotNumeric = 0x06,
    NotLoggedIn = 0x20,
    Unknown = 0x81,
    NoMemory = 0x82,
    Temporary = 0x86,
}

impl Status {
    fn words(self) -> &'static [u8] {
        match self {
            Status::Ok => b"",
            Status::NotFound => b"Not found",
            Status::Exists => b"Data exists for key.",
            Status::TooLarge => b"Too large.",
            Status::Invalid => b"Invalid arguments",
            Status::NotStored => b"Not stored.",
            Status::NotNumeric => b"Non-numeric server-side value for incr or decr",
            Status::NotLoggedIn => b"Auth failure.",
            Status::Unknown => b"Unknown command",
            Status::NoMemory => b"Out of memory",
            Status::Temporary => b"Temporary failure",
        }
    }
}

impl From<PutError> for Status {
    fn from(error: PutError) -> Self {
        match error {
            PutError::TooLarge => Status::TooLarge,
            PutError::NoMemory => Status::NoMemory,
        }
    }
}

/// What a command asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Get {
        shows_key: bool,
        touches: bool,
    },
    Touch,
    Store(Mode),
    Delete,
    Add {
        is_increment: bool,
    },
    Flush,
    Noop,
    Version,
    Stat,
    Quit,
    /// What mechanisms there are to log in (SASL).
    Mechanisms,
    LogIn,
}

/// A command, and whether it is quiet.
fn order(code: u8) -> Option<(Order, bool)> {
    let get = |shows_key, touches| Order::Get { shows_key, touches };
    Some(match code {
        0x00 => (get(false, false), false),
        0x01 => (Order::Store(Mode::Set), false),
        0x02 => (Order::Store(Mode::Add), false),
        0x03 => (Order::Store(Mode::Replace), false),
        0x04 => (Order::Delete, false),
        0x05 => (Order::Add { is_increment: true }, false),
        0x06 => (Order::Add { is_increment: false }, false),
        0x07 => (Order::Quit, false),
        0x08 => (Order::Flush, false),
        0x09 => (get(false, false), true),
        0x0a => (Order::Noop, false),
        0x0b => (Order::Version, false),
        0x0c => (get(true, false), false),
        0x0d => (get(true, false), true),
        0x0e => (Order::Store(Mode::Append), false),
        0x0f => (Order::Store(Mode::Prepend), false),
        0x10 => (Order::Stat, false),
        0x11 => (Order::Store(Mode::Set), true),
        0x12 => (Order::Store(Mode::Add), true),
        0x13 => (Order::Store(Mode::Replace), true),
        0x14 => (Order::Delete, true),
        0x15 => (Order::Add { is_increment: true }, true),
        0x16 => (Order::Add { is_increment: false }, true),
        0x17 => (Order::Quit, true),
        0x18 => (Order::Flush, true),
        0x19 => (Order::Store(Mode::Append), true),
        0x1a => (Order::Store(Mode::Prepend), true),
        0x1c => (Order::Touch, false),
        0x1d => (get(false, true), false),
        0x1e => (get(false, true), true),
        0x23 => (get(true, true), false),
        0x20 => (Order::Mechanisms, false),
        // The second is a further step of a mechanism that needs more than one.
        0x21 | 0x22 => (Order::LogIn, false),
        0x24 => (get(true, true), true),
        _ => return None,
    })
}

impl Order {
    /// Whether the home of its key must carry it out: it changes an item.
    fn is_for_home(self) -> bool {
        use Order::{Add, Delete, Get, Store, Touch};
        matches!(self, Get { touches: true, .. } | Touch | Store(_) | Delete | Add { .. })
    }

    /// Whether it reads an item and changes none.
    fn only_reads(self) -> bool {
        matches!(self, Order::Get { touches: false, .. })
    }

    /// Whether a packet may have so many bytes of extras, key and value.
    fn admits(self, extras: usize, key: usize, value: usize) -> bool {
        let (has_key, has_value) = (key > 0, value > 0);
        match self {
            Order::Get { touches: false, .. } | Order::Delete => extras == 0 && has_key && !has_value,
            Order::Get { touches: true, .. } | Order::Touch => extras == 4 && has_key && !has_value,
            Order::Store(Mode::Append | Mode::Prepend) => extras == 0 && has_key,
            Order::Store(_) => extras == 8 && has_key,
            Order::Add { .. } => extras == 20 && has_key && !has_value,
            Order::Flush => matches!(extras, 0 | 4) && !has_key && !has_value,
            Order::Stat => extras == 0 && !has_value,
            Order::LogIn => extras == 0 && has_key,
            Order::Noop | Order::Version | Order::Quit | Order::Mechanisms => {
                extras == 0 && !has_key && !has_value
            }
        }
    }
}

/// A request's header.
#[derive(Clone, Copy, Debug)]
struct Header {
    code: u8,
    key_bytes: usize,
    extras_bytes: usize,
    body_bytes: usize,
    opaque: [u8; 4],
    cas: u64,
}

impl Header {
    /// Of a packet that begins with a request's first byte.
    fn parse(input: &[u8]) -> Option<Self> {
        let (header, _) = input.split_first_chunk::<HEADER_BYTES>()?;
        let [_, code, k1, k0, extras, _, _, _, b3, b2, b1, b0, o3, o2, o1, o0, cas @ ..] = *header;
        Some(Header {
            code,
            key_bytes: u16::from_be_bytes([k1, k0]).into(),
            extras_bytes: extras.into(),
            body_bytes: u32::from_be_bytes([b3, b2, b1, b0]) as usize,
            opaque: [o3, o2, o1, o0],
            cas: u64::from_be_bytes(cas),
        })
    }

    fn answer(&self, out: &mut Vec<u8>, status: Status, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) {
        let body = extras.len() + key.len() + value.len();
        out.extend_from_slice(&[ANSWER, self.code]);
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0]);
        out.extend_from_slice(&(status as u16).to_be_bytes());
        out.extend_from_slice(&(body as u32).to_be_bytes());
        out.extend_from_slice(&self.opaque);
        out.extend_from_slice(&cas.to_be_bytes());
        for part in [extras, key, value] {
            out.extend_from_slice(part);
        }
    }

    fn refuse(&self, out: &mut Vec<u8>, status: Status) {
        self.answer(out, status, 0, b"", b"", status.words());
    }
}

/// The answer to a packet that its home has not answered.
pub(crate) fn refuse_late(packet: &[u8], out: &mut Vec<u8>) {
    if let Some(header) = Header::parse(packet) {
        header.refuse(out, Status::Temporary);
    }
}

/// The big-endian number at a place of the extras, which are known to be long enough.
fn number_at<const BYTES: usize>(extras: &[u8], at: usize) -> u64 {
    extras[at..at + BYTES].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Binary {
    /// A client that need not log in.
    pub(crate) fn logged_in() -> Self {
        Binary { is_logged_in: true }
    }

    /// The next packet.
    pub(crate) fn step(&mut self, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        if input[0] != REQUEST {
            return Step::Close;
        }
        let Some(header) = Header::parse(input) else { return Step::Needs(HEADER_BYTES) };
        let before_value = header.extras_bytes + header.key_bytes;
        let Some(value_bytes) = header.body_bytes.checked_sub(before_value) else {
            header.refuse(out, Status::Unknown);
            return Step::Close;
        };
        let users = host.world.users;
        let known = order(header.code)
            .filter(|(order, _)| users.is_some() || !matches!(order, Order::Mechanisms | Order::LogIn));
        let needs_no_login = |(order, _)| matches!(order, Order::Mechanisms | Order::LogIn | Order::Version);
        if users.is_some() && !self.is_logged_in && !known.is_some_and(needs_no_login) {
            header.refuse(out, Status::NotLoggedIn);
            return Step::Close;
        }
        let Some((order, is_quiet)) = known else {
            header.refuse(out, Status::Unknown);
            return Step::Skip { used: HEADER_BYTES, unwanted: header.body_bytes as u64 };
        };
        let is_too_long = order == Order::LogIn && header.body_bytes > LOGIN_BYTES_MAX;
        if is_too_long
            || header.key_bytes > KEY_BYTES_MAX
            || !order.admits(header.extras_bytes, header.key_bytes, value_bytes)
        {
            header.refuse(out, Status::Invalid);
            return Step::Close;
        }
        let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + before_value) else {
            return Step::Needs(HEADER_BYTES + before_value);
        };
        let (extras, key) = body.split_at(header.extras_bytes);
        let others = if order.is_for_home() { host.changed_at(key) } else { None };
        if let Order::Store(mode) = order {
            let past = Step::Skip { used: HEADER_BYTES + before_value, unwanted: value_bytes as u64 };
            if let Some(to) = others.filter(|_| !host.cache.fits(key.len(), value_bytes)) {
                return past.forwarded(to);
            }
            if others.is_none() && !host.admits(key, value_bytes, mode == Mode::Set) {
                header.refuse(out, Status::TooLarge);
                return past;
            }
        }
        let whole = HEADER_BYTES + header.body_bytes;
        let Some(value) = input.get(HEADER_BYTES + before_value..whole) else { return Step::Needs(whole) };
        if let Some(to) = others {
            return Step::Used(whole).forwarded(to);
        }
        if order == Order::LogIn {
            host.counters.auth_cmds += 1;
            self.is_logged_in = key == PLAIN && users.is_some_and(|users| is_user(users, value));
            if self.is_logged_in {
                header.answer(out, Status::Ok, 0, b"", b"", b"Authenticated");
            } else {
                host.counters.auth_errors += 1;
                header.refuse(out, Status::NotLoggedIn);
            }
            return Step::Used(whole);
        }
        let packet = Packet { header: &header, extras, key, value, is_quiet };
        if order.only_reads()
            && let Some(home) = host.asked(key)
        {
            let mut miss = Vec::new();
            packet.miss(matches!(order, Order::Get { shows_key: true, .. }), &mut miss);
            return host.ask(home, Language::Binary, &[&input[..whole]], miss, whole, out);
        }
        if order == Order::Flush && host.has_neighbours() {
            host.flush(packet.flush_time());
            return Step::Used(whole).forwarded(To::All);
        }
        if let Err(status) = packet.carry_out(order, host, out) {
            header.refuse(out, status);
        }
        if order == Order::Quit { Step::Close } else { Step::Used(whole) }
    }
}

/// Whether a client says who it is that may log in.
fn is_user(users: &Users, message: &[u8]) -> bool {
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let (Some(_), Some(name), Some(password)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    users.admit(name, password)
}

/// A request.
struct Packet<'a> {
    header: &'a Header,
    extras: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
    is_quiet: bool,
}

impl Packet<'_> {
    fn carry_out(&self, order: Order, host: &mut Host<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        match order {
            Order::Get { shows_key, touches } => self.get(shows_key, touches, true, host, out),
            Order::Touch => self.get(false, true, false, host, out),
            Order::Store(mode) => self.store(mode, host, out)?,
            Order::Delete => match host.delete(self.key, self.compare(), Remains::default())? {
                Outcome::Done { .. } => self.done(out, 0, b""),
                Outcome::Exists => return Err(Status::Exists),
                Outcome::NotFound | Outcome::NotStored => return Err(Status::NotFound),
            },
            Order::Add { is_increment } => self.add(is_increment, host, out)?,
            Order::Flush => {
                host.flush(self.flush_time());
                self.done(out, 0, b"");
            }
            Order::Version => self.done(out, 0, host.world.version.as_bytes()),
            Order::Noop | Order::Quit | Order::LogIn => self.done(out, 0, b""),
            Order::Mechanisms => self.done(out, 0, PLAIN),
            Order::Stat => {
                let show = |name: &str, value: &str| {
                    self.header.answer(out, Status::Ok, 0, b"", name.as_bytes(), value.as_bytes());
                };
                if !stats::binary(self.key, host, &mut { show }) {
                    return Err(Status::NotFound);
                }
                self.done(out, 0, b"");
            }
        }
        Ok(())
    }

    /// The time that an order to flush gives.
    fn flush_time(&self) -> i64 {
        if self.extras.is_empty() { 0 } else { number_at::<4>(self.extras, 0) as i64 }
    }

    /// The unique number that the item must have, if the client says one.
    fn compare(&self) -> Option<u64> {
        Some(self.header.cas).filter(|cas| *cas != 0)
    }

    fn done(&self, out: &mut Vec<u8>, cas: u64, value: &[u8]) {
        if !self.is_quiet {
            self.header.answer(out, Status::Ok, cas, b"", b"", value);
        }
    }

    fn get(&self, shows_key: bool, touches: bool, shows_value: bool, host: &mut Host<'_>, out: &mut Vec<u8>) {
        let key = if shows_key { self.key } else { b"" };
        let touch = touches.then(|| host.world.expires(number_at::<4>(self.extras, 0) as i64));
        let is_hit = host.fetch(self.key, touch, |item| {
            let value = if shows_value { item.value } else { b"" };
            self.header.answer(out, Status::Ok, item.cas, &item.flags.to_be_bytes(), key, value);
        });
        if !is_hit {
            self.miss(shows_key, out);
        }
    }

    /// Answers that there is no such item.
    fn miss(&self, shows_key: bool, out: &mut Vec<u8>) {
        if self.is_quiet {
            return;
        }
        // Who gets the key gets no words.
        let (key, words) =
            if shows_key { (self.key, &b""[..]) } else { (&b""[..], Status::NotFound.words()) };
        self.header.answer(out, Status::NotFound, 0, b"", key, words);
    }

    fn store(&self, mode: Mode, host: &mut Host<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        let is_whole = !matches!(mode, Mode::Append | Mode::Prepend);
        let compare = self.compare();
        let stored = host.store(&Put {
            // With a unique number to compare they are all one.
            mode: if is_whole && compare.is_some() { Mode::Replace } else { mode },
            key: self.key,
            value: self.value,
            flags: if is_whole { number_at::<4>(self.extras, 0) as u32 } else { 0 },
            expires: if is_whole { host.world.expires(number_at::<4>(self.extras, 4) as i64) } else { 0 },
            compare,
            may_be_stale: false,
            cas: None,
            vivify: None,
        })?;
        match stored {
            Outcome::Done { cas, .. } => self.done(out, cas, b""),
            Outcome::Exists => return Err(Status::Exists),
            Outcome::NotFound => return Err(Status::NotFound),
            Outcome::NotStored => {
                return Err(match mode {
                    Mode::Add => Status::Exists,
                    Mode::Replace => Status::NotFound,
                    _ => Status::NotStored,
                });
            }
        }
        Ok(())
    }

    fn add(&self, is_increment: bool, host: &mut Host<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        let initial = number_at::<8>(self.extras, 8);
        let exptime = number_at::<4>(self.extras, 16) as u32;
        let create = (exptime != NO_ITEM).then(|| (initial, host.world.expires(exptime.into())));
        let amount = number_at::<8>(self.extras, 0);
        let delta = Delta { is_increment, amount, compare: self.compare(), create, cas: None };
        let sum = host.add(self.key, &delta).map_err(|refused| match refused {
            NoSum::NotFound => Status::NotFound,
            NoSum::Exists => Status::Exists,
            NoSum::NotNumeric => Status::NotNumeric,
            NoSum::NoMemory => Status::NoMemory,
        })?;
        self.done(out, sum.cas, &sum.number.to_be_bytes());
        Ok(())
    }
}
