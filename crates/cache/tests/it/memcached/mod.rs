//! The same commands to memcached and to this cache: the answers must be the same to the byte, but for unique numbers and times.
//! What differs on purpose is in [`exceptions`], and is tested too.

mod answers;
mod commands;
mod exceptions;
mod real;

use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use answers::{LAST, LAST_COMMAND, Numbers};
use commands::{Cas, Command};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use real::Memcached;
use sidelong_cache::{Cache, Settings};
use sidelong_policy::cache::store::Eviction;

use crate::support::{Connection, Server};

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// One of the two servers, with a client of each protocol.
trait Side {
    /// The answers, and whether the connection was closed. A closed one is made anew.
    fn text(&mut self, bytes: &[u8]) -> (Vec<u8>, bool);
    fn binary(&mut self, bytes: &[u8]) -> (Vec<u8>, bool);
}

struct Theirs<'a> {
    server: &'a Memcached,
    text: UnixStream,
    binary: UnixStream,
}

#[derive(Default)]
struct Ours {
    server: Server,
    text: Connection,
    binary: Connection,
}

impl<'a> Theirs<'a> {
    fn new(server: &'a Memcached) -> Self {
        Theirs { server, text: server.connect(), binary: server.connect() }
    }
}

impl Side for Theirs<'_> {
    fn text(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let is_whole = |bytes: &[u8]| answers::text(bytes, &mut Numbers::default()).is_some();
        let answer = real::answer(&mut self.text, bytes, is_whole);
        if answer.1 {
            self.text = self.server.connect();
        }
        answer
    }

    fn binary(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let is_whole = |bytes: &[u8]| answers::binary(bytes, &mut Numbers::default()).is_some();
        let answer = real::answer(&mut self.binary, bytes, is_whole);
        if answer.1 {
            self.binary = self.server.connect();
        }
        answer
    }
}

impl Ours {
    fn new() -> Self {
        let server = Server::default();
        let unix_at_0 = unix_now() - i64::from(server.now);
        Ours { server: Server { unix_at_0, ..server }, ..Ours::default() }
    }
}

impl Side for Ours {
    fn text(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let answers = self.server.answer(&mut self.text, bytes);
        let is_closed = self.text.is_closed;
        if is_closed {
            self.text = Connection::default();
        }
        (answers, is_closed)
    }

    fn binary(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let answers = self.server.answer(&mut self.binary, bytes);
        let is_closed = self.binary.is_closed;
        if is_closed {
            self.binary = Connection::default();
        }
        (answers, is_closed)
    }
}

fn packet(code: u8, key: &[u8], extras: &[u8], value: &[u8], cas: u64, opaque: u32) -> Vec<u8> {
    let mut packet = vec![0x80, code];
    packet.extend((key.len() as u16).to_be_bytes());
    packet.extend([extras.len() as u8, 0, 0, 0]);
    packet.extend(((key.len() + extras.len() + value.len()) as u32).to_be_bytes());
    packet.extend(opaque.to_be_bytes());
    packet.extend(cas.to_be_bytes());
    packet.extend([extras, key, value].concat());
    packet
}

/// The unique number to send for `key`.
fn number(side: &mut dyn Side, key: &[u8], cas: Cas) -> u64 {
    if cas == Cas::None {
        return 0;
    }
    let (answer, _) = side.text(&[b"mg ", key, b" c u\r\n", LAST_COMMAND].concat());
    let answer = String::from_utf8(answer).unwrap();
    let number =
        answer.split_whitespace().find_map(|word| word.strip_prefix('c')?.parse::<u64>().ok()).unwrap_or(500);
    match cas {
        Cas::Higher => number + 1_000_000,
        Cas::Lower => number - 1,
        _ => number,
    }
}

/// What a side answers to a command.
fn answer(side: &mut dyn Side, command: &Command, numbers: &mut Numbers) -> (Vec<String>, bool) {
    match command {
        Command::Text { bytes, key, cas } => {
            let number = number(side, key, *cas).to_string();
            let mut bytes: Vec<u8> = bytes.clone();
            if *cas != Cas::None {
                let at = bytes.iter().position(|byte| *byte == b'@').unwrap();
                bytes.splice(at..=at, number.bytes());
            }
            bytes.extend_from_slice(LAST_COMMAND);
            let (answer, is_closed) = side.text(&bytes);
            match answers::text(&answer, numbers) {
                Some(answers) => (answers, is_closed),
                None => (vec![answer.escape_ascii().to_string()], is_closed),
            }
        }
        Command::Binary { code, key, extras, value, cas } => {
            let number = number(side, key, *cas);
            let mut bytes = packet(*code, key, extras, value, number, 0x0102_0304);
            bytes.extend(packet(0x0a, b"", b"", b"", 0, LAST));
            let (answer, is_closed) = side.binary(&bytes);
            match answers::binary(&answer, numbers) {
                Some(answers) => (answers, is_closed),
                None => (vec![answer.escape_ascii().to_string()], is_closed),
            }
        }
    }
}

/// Lets a new cache begin.
fn begin(side: &mut dyn Side) {
    // So that there is a unique number below any that is compared.
    let store = b"set a 0 0 0\r\n\r\n".repeat(3);
    side.text(&[&store[..], b"flush_all\r\nstats reset\r\n", LAST_COMMAND].concat());
}

/// What was counted, of what both count.
fn counted(side: &mut dyn Side) -> Vec<String> {
    let names = [
        "cmd_get",
        "cmd_touch",
        "cmd_meta",
        "get_hits",
        "get_misses",
        "delete_hits",
        "incr_misses",
        "incr_hits",
        "decr_misses",
        "decr_hits",
        "cas_misses",
        "cas_hits",
        "cas_badval",
        "touch_hits",
        "touch_misses",
    ];
    let (answer, _) = side.text(&[b"stats\r\n", LAST_COMMAND].concat());
    let lines = String::from_utf8(answer).unwrap();
    let counted =
        |name: &str| lines.lines().find(|line| line.starts_with(&format!("STAT {name} "))).map(str::to_owned);
    names.iter().map(|name| counted(name).unwrap_or_else(|| panic!("no {name} in {lines}"))).collect()
}

/// Of a known command that lacks a word, 1.6.18 says that it is unknown, and the current release what is wrong.
fn worded((answers, is_closed): (Vec<String>, bool)) -> (Vec<String>, bool) {
    let word = |answer: String| if answer == "ERROR" { exceptions::BAD_FORMAT.to_owned() } else { answer };
    (answers.into_iter().map(word).collect(), is_closed)
}

#[test]
fn the_answers_are_those_of_memcached() {
    let Some(real) = Memcached::start("the_answers_are_those_of_memcached") else { return };
    let config = Config { source_file: Some(file!()), max_shrink_time: 60_000, ..Config::default() };
    let commands = prop::collection::vec(commands::command(), 1..40);
    let same = TestRunner::new(config).run(&commands, |commands| {
        let (mut theirs, mut ours) = (Theirs::new(&real), Ours::new());
        begin(&mut theirs);
        begin(&mut ours);
        let (mut their_numbers, mut our_numbers) = (Numbers::default(), Numbers::default());
        for command in &commands {
            let expected = answer(&mut theirs, command, &mut their_numbers);
            let answered = answer(&mut ours, command, &mut our_numbers);
            prop_assert_eq!(worded(expected), worded(answered), "to {:?}", command);
        }
        prop_assert_eq!(counted(&mut theirs), counted(&mut ours));
        Ok(())
    });
    same.unwrap_or_else(|error| panic!("{error}"));
}

/// A number that `stats` shows.
fn stat(side: &mut dyn Side, name: &str) -> u64 {
    let (answer, _) = side.text(&[b"stats\r\n", LAST_COMMAND].concat());
    let lines = String::from_utf8(answer).unwrap();
    let row = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    row.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {lines}"))
}

/// Stores twice as many items as there is room for. Their sizes are log-normal around 100 bytes, up to 20 KB.
fn fill(side: &mut dyn Side) {
    // Xorshift (Marsaglia 2003); twelve uniform numbers make a normal one.
    let mut number = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        (number >> 11) as f64 / (1_u64 << 53) as f64
    };
    let value = [b'x'; 20_000];
    for batch in 0..400 {
        let mut commands = Vec::new();
        for item in 0..1_000 {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            let bytes = (100.0 * (1.3 * normal).exp()).clamp(1.0, 20_000.0) as usize;
            commands.extend(format!("set {batch}-{item} 0 0 {bytes} noreply\r\n").bytes());
            commands.extend(&value[..bytes]);
            commands.extend(b"\r\n");
        }
        commands.extend(LAST_COMMAND);
        side.text(&commands);
    }
}

#[test]
fn as_many_items_fit_as_in_memcached() {
    let Some(real) = Memcached::start("as_many_items_fit_as_in_memcached") else { return };
    let mut theirs = Theirs::new(&real);
    fill(&mut theirs);
    let held = stat(&mut theirs, "curr_items");
    assert!(stat(&mut theirs, "evictions") > held / 2);
    for eviction in [Eviction::Sieve, Eviction::Lru] {
        let mut ours = Ours::new();
        let settings = *ours.server.cache.settings();
        ours.server.cache = Cache::new(Settings { eviction, ..settings }).unwrap();
        fill(&mut ours);
        let ratio = stat(&mut ours, "curr_items") as f64 / held as f64;
        assert!(ratio > 0.9, "{eviction:?}: {ratio} of memcached's {held}");
    }
}

#[test]
fn the_exceptions_are_these() {
    let Some(real) = Memcached::start("the_exceptions_are_these") else { return };
    for exception in exceptions::EXCEPTIONS {
        let (mut theirs, mut ours) = (Theirs::new(&real), Ours::new());
        begin(&mut theirs);
        begin(&mut ours);
        let bytes = exception.send.replace('L', &"k".repeat(251)).into_bytes();
        let command = Command::Text { bytes, key: Vec::new(), cas: Cas::None };
        let answered = answer(&mut theirs, &command, &mut Numbers::default()).0;
        assert_eq!(answered, exception.theirs, "memcached: {}", exception.why);
        let answered = answer(&mut ours, &command, &mut Numbers::default()).0;
        assert_eq!(answered, exception.ours, "{}", exception.why);
    }
}
