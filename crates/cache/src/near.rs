//! Copies of other caches' items, beside the clients that ask for them here.
//!
//! A copy is a home's answer to a command that only reads, and the same command is answered with it for some time. That counts
//! from before the home was asked, on this cache's clock alone. So what a copy says was true within that time, whatever the
//! home, the network or this process did meanwhile.
//!
//! A change that this cache sends to the home drops its copy, and an answer to what was asked before is then not kept. So what
//! was changed through this cache is seen through it at once.
//!
//! There is one copy of each key, of the command that was asked first. It stays until it is too old, so that others cannot keep
//! it away. It does no I/O and reads no clock.

use std::time::{Duration, Instant};

use sidelong_policy::cache::store::{Eviction, Room, Store};

use crate::neighbours::Language;

/// Bytes of a copy's tables, in the store and here.
const TABLE_BYTES: usize = 128;
/// The largest answer that is kept, as a part of all memory.
const LARGEST_PART: usize = 8;
/// The place of `opaque` in a binary command.
const OPAQUE: std::ops::Range<usize> = 12..16;

/// The copies that a cache has.
#[derive(Debug)]
pub struct Near {
    fresh: Duration,
    bytes_max: usize,
    store: Store<()>,
    /// By slot of the store.
    copies: Vec<Option<Answered>>,
    tickets: u64,
}

/// What was asked, and its answer.
#[derive(Debug)]
struct Answered {
    language: Language,
    command: Box<[u8]>,
    asked: Instant,
    ticket: Ticket,
    /// `None` until it is there.
    answer: Option<Box<[u8]>>,
}

/// Which answer is to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    key: u64,
    number: u64,
}

impl Near {
    /// Copies that are given for `fresh`, in so many bytes at most.
    pub fn new(fresh: Duration, bytes_max: usize) -> Self {
        let store = Store::new(Eviction::Sieve, Room::bytes(bytes_max as u64));
        Near { fresh, bytes_max, store, copies: Vec::new(), tickets: 0 }
    }

    /// The answer to a command that reads the item of the key with this hash, if there is one that is not too old.
    pub(crate) fn find(
        &mut self,
        key: u64,
        language: Language,
        command: &[u8],
        now: Instant,
    ) -> Option<&[u8]> {
        let place = self.store.get(key)?;
        let copy = self.copies[place.slot as usize].as_ref()?;
        let is_it = copy.language == language && *copy.command == *command;
        if is_it && copy.is_fresh(self.fresh, now) { copy.answer.as_deref() } else { None }
    }

    /// A command that only reads is about to be sent. Returns what its answer is to be kept by, if it is.
    pub(crate) fn asked(
        &mut self,
        key: u64,
        language: Language,
        command: &[u8],
        now: Instant,
    ) -> Option<Ticket> {
        let bytes = command.len() + TABLE_BYTES;
        if !may_come_again(language, command) || bytes > self.bytes_max / LARGEST_PART {
            return None;
        }
        if let Some(place) = self.store.peek(key) {
            let copy = self.copies[place.slot as usize].as_ref();
            if copy.is_some_and(|copy| copy.is_fresh(self.fresh, now)) {
                return None;
            }
            self.forget(key);
        }
        self.tickets += 1;
        let ticket = Ticket { key, number: self.tickets };
        let copies = &mut self.copies;
        let place =
            self.store.insert(key, bytes as u32, (), |gone| copies[gone.place.slot as usize] = None)?;
        let slot = place.slot as usize;
        if slot >= copies.len() {
            copies.resize_with(slot + 1, || None);
        }
        copies[slot] = Some(Answered { language, command: command.into(), asked: now, ticket, answer: None });
        Some(ticket)
    }

    /// The home's answer, which found something.
    pub(crate) fn keep(&mut self, ticket: Ticket, answer: &[u8]) {
        let Some(place) = self.store.peek(ticket.key) else { return };
        let Some(copy) = self.copies[place.slot as usize].as_mut().filter(|copy| copy.ticket == ticket)
        else {
            return;
        };
        let bytes = copy.command.len() + answer.len() + TABLE_BYTES;
        if bytes > self.bytes_max / LARGEST_PART || !is_for_anyone(copy.language, answer) {
            return self.forget(ticket.key);
        }
        copy.answer = Some(answer.into());
        self.store.replace(ticket.key, bytes as u32, ());
        while self.store.bytes() > self.bytes_max as u64
            && let Some(gone) = self.store.evict_one()
        {
            self.copies[gone.place.slot as usize] = None;
        }
    }

    /// The item of this key is about to be changed.
    pub(crate) fn forget(&mut self, key: u64) {
        if let Some(gone) = self.store.remove(key) {
            self.copies[gone.place.slot as usize] = None;
        }
    }

    /// All items are.
    pub(crate) fn clear(&mut self) {
        *self = Near { tickets: self.tickets, ..Near::new(self.fresh, self.bytes_max) };
    }
}

impl Answered {
    fn is_fresh(&self, fresh: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) <= fresh
    }
}

/// Whether somebody may write the same command again: not if it has a number of its own.
fn may_come_again(language: Language, command: &[u8]) -> bool {
    match language {
        Language::Key => true,
        Language::Text => words(command).skip(2).all(|word| word[0] != b'O'),
        Language::Binary => command.get(OPAQUE).is_some_and(|opaque| opaque == [0; 4]),
    }
}

/// Whether an answer is the same for all: not if it says who is to replace a stale item, which the home says to one alone.
fn is_for_anyone(language: Language, answer: &[u8]) -> bool {
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    language != Language::Text || words(line).skip(1).all(|word| !matches!(word, b"W" | b"X" | b"Z"))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Duration = Duration::from_millis(100);
    const GET: &[u8] = b"get k\r\n";
    const FOUND: &[u8] = b"VALUE k 0 1\r\nx\r\n";
    const KEY: u64 = 7;

    /// Copies, the time, and what the home was asked.
    struct Bench {
        near: Near,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Bench { near: Near::new(FRESH, 1 << 16), now: Instant::now() }
        }

        fn ask(&mut self, command: &[u8]) -> Option<Ticket> {
            self.near.asked(KEY, Language::Key, command, self.now)
        }

        fn find(&mut self, command: &[u8]) -> Option<Vec<u8>> {
            self.near.find(KEY, Language::Key, command, self.now).map(<[u8]>::to_vec)
        }
    }

    #[test]
    fn a_copy_is_given_for_its_time_from_before_the_home_was_asked() {
        let mut bench = Bench::new();
        let ticket = bench.ask(GET).unwrap();
        assert_eq!(bench.find(GET), None, "there is no answer yet");
        bench.now += FRESH / 2;
        bench.near.keep(ticket, FOUND);
        assert_eq!(bench.find(GET).as_deref(), Some(FOUND));
        assert_eq!(bench.find(b"gets k\r\n"), None, "it has another answer");
        bench.now += FRESH / 2;
        assert_eq!(bench.find(GET).as_deref(), Some(FOUND));
        bench.now += Duration::from_nanos(1);
        assert_eq!(bench.find(GET), None);
        let again = bench.ask(GET).unwrap();
        bench.near.keep(ticket, b"late");
        assert_eq!(bench.find(GET), None, "an answer to what was asked before");
        bench.near.keep(again, FOUND);
        assert_eq!(bench.find(GET).as_deref(), Some(FOUND));
    }

    #[test]
    fn a_change_drops_the_copy_and_what_was_asked_before_it() {
        let mut bench = Bench::new();
        let ticket = bench.ask(GET).unwrap();
        bench.near.forget(KEY);
        bench.near.keep(ticket, FOUND);
        assert_eq!(bench.find(GET), None, "the answer is of before the change");
        for change in [|near: &mut Near| near.forget(KEY), Near::clear] {
            let ticket = bench.ask(GET).unwrap();
            bench.near.keep(ticket, FOUND);
            assert!(bench.find(GET).is_some());
            change(&mut bench.near);
            assert_eq!(bench.find(GET), None);
        }
    }

    #[test]
    fn who_asks_all_the_time_does_not_keep_copies_away() {
        let mut bench = Bench::new();
        let ticket = bench.ask(GET).unwrap();
        assert_eq!([bench.ask(GET), bench.ask(b"gets k\r\n")], [None, None]);
        bench.near.keep(ticket, FOUND);
        assert!(bench.find(GET).is_some());
        // An answer that does not come is not waited for any longer than a copy is fresh.
        bench.now += FRESH * 2;
        bench.ask(GET).unwrap();
        assert_eq!(bench.ask(GET), None);
        bench.now += FRESH * 2;
        assert!(bench.ask(GET).is_some());
    }

    #[test]
    fn what_is_said_to_one_alone_is_not_kept() {
        let now = Instant::now();
        let is_kept = |language: Language, command: &[u8], answer: &[u8]| {
            let mut near = Near::new(FRESH, 1 << 16);
            if let Some(ticket) = near.asked(KEY, language, command, now) {
                near.keep(ticket, answer);
            }
            near.find(KEY, language, command, now).is_some()
        };
        let meta =
            |command: &str, answer: &str| is_kept(Language::Text, command.as_bytes(), answer.as_bytes());
        assert!(meta("mg k v f\r\n", "VA 1 f0\r\nx\r\n"));
        assert!(meta("mg O v\r\n", "VA 3\r\n W \r\n"), "neither the key nor the value is a flag");
        assert!(!meta("mg k v O5\r\n", "VA 1 O5\r\nx\r\n"));
        for flag in ["W", "X", "Z"] {
            assert!(!meta("mg k v\r\n", &format!("VA 1 {flag}\r\nx\r\n")));
            assert!(!meta("mg k s\r\n", &format!("HD s1 {flag}\r\n")));
        }
        let mut packet = [0; 25];
        assert!(is_kept(Language::Binary, &packet, FOUND));
        packet[15] = 1;
        assert!(!is_kept(Language::Binary, &packet, FOUND));
    }

    #[test]
    fn copies_stay_within_their_memory() {
        let (now, bytes_max) = (Instant::now(), 1 << 16);
        let mut near = Near::new(FRESH, bytes_max);
        let held = |near: &Near| {
            let bytes = |copy: &Answered| copy.command.len() + copy.answer.as_ref().map_or(0, |a| a.len());
            near.copies.iter().flatten().map(|copy| bytes(copy) + TABLE_BYTES).sum::<usize>()
        };
        // Many are asked for before the first answer comes.
        let tickets: Vec<_> = (0..200).filter_map(|key| near.asked(key, Language::Key, GET, now)).collect();
        for (number, ticket) in tickets.iter().enumerate() {
            near.keep(*ticket, &vec![b'x'; 40 * number]);
            assert!(held(&near) <= bytes_max && near.store.bytes() as usize == held(&near));
        }
        assert!(held(&near) > bytes_max / 2);
        let large = near.asked(1000, Language::Key, GET, now).unwrap();
        near.keep(large, &vec![b'x'; bytes_max / LARGEST_PART]);
        assert_eq!(near.find(1000, Language::Key, GET, now), None, "it would drive out too many");
    }
}
