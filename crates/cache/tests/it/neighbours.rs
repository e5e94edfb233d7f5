//! Reads of a neighbour's memory while it changes: a value is returned whole, and none that was replaced before the read began.
//!
//! `SIDELONG_READS=100000000 cargo test --release -p sidelong-cache --test it neighbours` reads so often.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_fabric::{Access, Batch, Directory as _, Initiator};
use sidelong_layout::{CACHE_ITEM_BYTES, CACHE_UNIT, CacheEntry, LINE_BYTES, RegionKind};
use siphasher::sip::SipHasher13;

use crate::support::caches::{Caches, Member, SEED};

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(120);
const MEMORY_BYTES: usize = 8 << 20;
/// The keys of the home that are read.
const KEYS: usize = 16;

fn caches() -> Caches {
    Caches::new(MEMORY_BYTES)
}

/// The home, and a reader that is linked to it and knows what time it is there.
fn linked(caches: &Caches) -> (Member, Member) {
    let (mut home, mut reader) = (caches.member(0), caches.member(1));
    let (key, begun) = (reader.keys(1).remove(0), Instant::now());
    // Until the key is sought, and not found.
    while reader.neighbours.reads().misses == reader.neighbours.reads().failures {
        assert!(begun.elapsed() < PATIENCE, "no link to the home");
        home.tick();
        reader.tick();
        assert_eq!(get(&mut reader, &key), None);
    }
    (home, reader)
}

/// The answer to a command.
fn ask(member: &mut Member, command: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    member.ask(command, &mut answer);
    answer
}

fn get(member: &mut Member, key: &str) -> Option<Vec<u8>> {
    let answer = ask(member, format!("get {key}\r\n").as_bytes());
    let end = answer.strip_suffix(b"END\r\n").unwrap();
    let line = end.iter().position(|byte| *byte == b'\n')?;
    Some(end[line + 1..end.len() - 2].to_vec())
}

/// Bytes that say whose they are, which, and whether they are whole.
fn value(key: usize, version: u64) -> Vec<u8> {
    // Places of many sizes, and runs of blocks.
    let len = match version % 20 {
        0 => 40_000,
        1..=4 => 3_000,
        step => 100 + 8 * step as usize,
    };
    let word = [(key as u64).to_le_bytes(), version.to_le_bytes()].concat();
    word.repeat(len / 16)
}

/// Which version a value is, if it is whole.
fn version(key: usize, found: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(found.get(8..16)?.try_into().ok()?);
    (found == value(key, version)).then_some(version)
}

/// Of each key, the last version that was begun, and the last that was known to be there.
#[derive(Default)]
struct History {
    begun: AtomicU64,
    known: AtomicU64,
}

/// The home stores, removes, evicts and clears pages for other sizes, until it is told to stop.
fn change(caches: &Caches, keys: &[String], histories: &[History], is_over: &AtomicBool) {
    let mut home = caches.member(0);
    let mut random = 1u64;
    for round in 1.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (random >> 33) as usize % keys.len();
        let history = &histories[key];
        let version = history.begun.load(Ordering::SeqCst) + 1;
        history.begun.store(version, Ordering::SeqCst);
        let name = &keys[key];
        if round % 50 == 0 {
            ask(&mut home, format!("delete {name} noreply\r\n").as_bytes());
        } else {
            let value = value(key, version);
            let mut command = format!("set {name} 0 0 {} noreply\r\n", value.len()).into_bytes();
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            ask(&mut home, &command);
        }
        history.known.fetch_max(version, Ordering::SeqCst);
        // Others of many sizes take the places of these.
        if round % 4 == 0 {
            let len = if round % 1_000 < 500 { 700 } else { 9_000 };
            let filler = vec![b'f'; len];
            if let Some(name) = keys_of_home(&home, random) {
                let mut command = format!("set {name} 0 0 {len} noreply\r\n").into_bytes();
                command.extend_from_slice(&filler);
                command.extend_from_slice(b"\r\n");
                ask(&mut home, &command);
            }
        }
        if round % 1_000 == 0 {
            home.tick();
        }
    }
}

/// A key of the home itself that is one of many.
fn keys_of_home(home: &Member, random: u64) -> Option<String> {
    let name = format!("filler{}", random >> 40 & 0xffff);
    home.neighbours.home(name.as_bytes()).is_none().then_some(name)
}

#[test]
fn a_read_returns_what_was_there_at_one_moment() {
    reads_return_what_was_there(&caches());
}

#[test]
fn so_does_one_that_goes_by_the_check() {
    reads_return_what_was_there(&Caches::remote(MEMORY_BYTES));
}

fn reads_return_what_was_there(caches: &Caches) {
    let reads = std::env::var("SIDELONG_READS").ok().and_then(|reads| reads.parse().ok());
    let reads: u64 = reads.unwrap_or(200_000);
    let keys = caches.member(1).keys(KEYS);
    let histories: Vec<History> = keys.iter().map(|_| History::default()).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| change(caches, &keys, &histories, &is_over));
        let reader = |me: usize| {
            let (keys, histories) = (&keys, &histories);
            move || {
                let mut reader = caches.member(me);
                let (mut hits, mut turn) = (0, 0);
                let deadline = Instant::now() + PATIENCE;
                while hits < reads / 2 {
                    turn += 1;
                    if turn % 1_000 == 0 || hits == 0 {
                        reader.tick();
                        assert!(
                            reads > 1_000_000 || Instant::now() < deadline,
                            "{hits} hits in {turn} reads"
                        );
                    }
                    let key = turn % KEYS;
                    let known = histories[key].known.load(Ordering::SeqCst);
                    let Some(found) = get(&mut reader, &keys[key]) else { continue };
                    let Some(version) = version(key, &found) else {
                        panic!("not a value of key {key}: {found:?}")
                    };
                    let begun = histories[key].begun.load(Ordering::SeqCst);
                    assert!(
                        (known..=begun).contains(&version),
                        "{version} of key {key}, not {known} to {begun}"
                    );
                    histories[key].known.fetch_max(version, Ordering::SeqCst);
                    hits += 1;
                }
                reader.neighbours.reads()
            }
        };
        let readers = [1, 2].map(|me| scope.spawn(reader(me)));
        let ended = readers.map(|reader| reader.join());
        is_over.store(true, Ordering::SeqCst);
        for reads in ended {
            println!("{:?}", reads.unwrap());
        }
    });
}

/// The control: what is in a place is no value, if nobody looks whether it has changed.
#[test]
fn an_unchecked_read_returns_what_was_never_there() {
    let caches = caches();
    let keys = caches.member(1).keys(KEYS);
    let histories: Vec<History> = keys.iter().map(|_| History::default()).collect();
    let is_over = AtomicBool::new(false);
    let map = caches.peers[0].map;
    let hash = |key: &str| {
        let mut hasher = SipHasher13::new_with_keys(SEED[0], SEED[1]);
        hasher.write(key.as_bytes());
        hasher.finish()
    };
    thread::scope(|scope| {
        scope.spawn(|| change(&caches, &keys, &histories, &is_over));
        let deadline = Instant::now() + PATIENCE;
        let mut initiator = Initiator::new();
        let link = loop {
            let key = caches.run().find("home.items", RegionKind::Cache, map.len(), Access::ReadOnly);
            match key.and_then(|key| initiator.connect(&key, PATIENCE)) {
                Ok(link) => break link,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        let mut batch = Batch::new();
        let mut is_found = false;
        while !is_found && Instant::now() < deadline {
            for (number, key) in keys.iter().enumerate() {
                batch.clear();
                let buckets = map.buckets(hash(key)).map(|at| batch.read(link, at, LINE_BYTES));
                initiator.run(&mut batch, PATIENCE);
                let words = buckets.map(|bucket| batch.words(bucket).unwrap().to_vec()).concat();
                let entries = words.into_iter().map(CacheEntry).filter(|entry| entry.may_be(hash(key)));
                for entry in entries {
                    batch.clear();
                    let at = map.items() + entry.at() as usize * CACHE_UNIT;
                    let read = batch.read(link, at, entry.bytes().unwrap());
                    initiator.run(&mut batch, PATIENCE);
                    let bytes = batch.bytes(read).unwrap();
                    let value_bytes = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
                    let value = bytes[CACHE_ITEM_BYTES + key.len()..].get(..value_bytes);
                    is_found |= value.is_none_or(|value| version(number, value).is_none());
                }
            }
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(is_found, "no torn value in all this time");
    });
}

#[test]
fn what_others_read_stays() {
    for caches in [caches(), Caches::remote(MEMORY_BYTES)] {
        let (mut home, mut reader) = linked(&caches);
        let key = reader.keys(1).remove(0);
        let store = |home: &mut Member, name: &str| {
            ask(home, format!("set {name} 0 0 1000 noreply\r\n{}\r\n", "x".repeat(1000)).as_bytes());
        };
        store(&mut home, &key);
        let filler: Vec<_> = (0u64..0xffff).filter_map(|number| keys_of_home(&home, number << 40)).collect();
        for (number, name) in filler.iter().enumerate() {
            store(&mut home, name);
            if number % 500 == 0 {
                for _ in 0..64 {
                    assert!(get(&mut reader, &key).is_some(), "evicted after {number} others were stored");
                }
                home.tick();
            }
        }
        assert!(home.cache.usage().evicted > 10_000);
    }
}

#[test]
fn times_and_flushes_are_the_homes() {
    for caches in [caches(), Caches::remote(MEMORY_BYTES)] {
        let (mut home, mut reader) = linked(&caches);
        let name = reader.keys(1).remove(0);
        ask(&mut home, format!("set {name} 3 100 1 noreply\r\nx\r\n").as_bytes());
        let mut text = |command: &str| String::from_utf8(ask(&mut reader, command.as_bytes())).unwrap();
        let answer = text(&format!("mg {name} t f v\r\n"));
        let (left, rest) = answer.strip_prefix("VA 1 t").unwrap().split_once(' ').unwrap();
        assert!((98..=100).contains(&left.parse::<u32>().unwrap()) && rest == "f3\r\nx\r\n", "{answer}");
        ask(&mut home, format!("touch {name} 0 noreply\r\n").as_bytes());
        assert_eq!(text(&format!("mg {name} t f v\r\n")), "VA 1 t-1 f3\r\nx\r\n");
        ask(&mut home, format!("touch {name} -1 noreply\r\n").as_bytes());
        assert_eq!(get(&mut reader, &name), None);
        ask(&mut home, format!("set {name} 0 0 1 noreply\r\ny\r\n").as_bytes());
        assert_eq!(get(&mut reader, &name), Some(b"y".to_vec()));
        // As a home carries out what others send: for itself alone.
        home.cache.flush(1, 1);
        assert_eq!(get(&mut reader, &name), None);
    }
}

/// A home that hangs states no time. It is read on, but for what has expired meanwhile.
#[test]
fn a_home_of_another_machine_that_hangs_grows_older() {
    let caches = Caches::remote(MEMORY_BYTES);
    let (mut home, mut reader) = linked(&caches);
    let [expires, stays] = reader.keys(2).try_into().unwrap();
    ask(&mut home, format!("set {expires} 0 2 1 noreply\r\nx\r\n").as_bytes());
    ask(&mut home, format!("set {stays} 0 0 1 noreply\r\ny\r\n").as_bytes());
    let begun = Instant::now();
    while get(&mut reader, &expires).is_some() {
        assert!(begun.elapsed() < PATIENCE, "it does not expire");
        thread::sleep(Duration::from_millis(10));
        reader.tick();
    }
    assert_eq!(get(&mut reader, &stays), Some(b"y".to_vec()));
}
