//! A client of two caches that knows what each key may have, and how long each request took.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_workload::memcached;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 512;
/// Keys.
pub(super) const KEYS: u32 = 3_000;
/// One of so many requests is a set.
const SETS: u64 = 8;
/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Items that are stored at a time before the time begins.
const STORED: usize = 100;

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Hit,
    Miss,
    Stored,
    /// The cache said that it could not store the item, or nothing.
    Failed,
    /// Another value than the key may have.
    Wrong,
}

/// A request, with times since the client began.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Request {
    pub(super) done: Duration,
    pub(super) took: Duration,
    pub(super) end: End,
}

/// What a key may have: its values are numbered.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// The latest that is known to be there, or to have been.
    stored: u32,
    /// The latest that was sent.
    sent: u32,
}

impl Known {
    /// Whether the value may be there.
    fn may_have(self, number: u32) -> bool {
        (self.stored..=self.sent).contains(&number)
    }
}

/// The client, which asks the caches in turn.
pub(super) struct Client {
    caches: Vec<(SocketAddr, Option<memcached::Client>)>,
    known: HashMap<u32, Known>,
    number: u64,
}

impl Client {
    pub(super) fn new(caches: impl IntoIterator<Item = SocketAddr>) -> Self {
        let caches = caches.into_iter().map(|address| (address, None)).collect();
        Client { caches, known: HashMap::new(), number: 1 }
    }

    /// Stores all items anew, through each cache.
    ///
    /// # Errors
    /// If one is not stored.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        let keys: Vec<_> = (0..KEYS).collect();
        for cache in 0..self.caches.len() {
            for keys in keys.chunks(STORED) {
                let items: Vec<_> = keys.iter().map(|key| self.next_value(*key)).collect();
                let stored =
                    self.connected(cache)?.set(&items).inspect_err(|_| self.caches[cache].1 = None)?;
                if stored < items.len() {
                    return Err(io::Error::other(format!("{stored} of {} items are stored", items.len())));
                }
                keys.iter().for_each(|key| self.is_stored(*key));
            }
        }
        Ok(())
    }

    /// Asks until it is told to stop.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Vec<Request> {
        let (mut requests, began) = (Vec::new(), Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let sent = Instant::now();
            let end = self.one();
            requests.push(Request { done: began.elapsed(), took: sent.elapsed(), end });
        }
        requests
    }

    fn one(&mut self) -> End {
        // D. Knuth's MMIX generator: which keys they are makes no difference, as long as they are not in a row.
        self.number =
            self.number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = self.number >> 33;
        let (key, cache) =
            ((chance / SETS % u64::from(KEYS)) as u32, chance as usize / 7 % self.caches.len());
        let done = if chance.is_multiple_of(SETS) { self.set(cache, key) } else { self.get(cache, key) };
        done.unwrap_or_else(|error| {
            tracing::debug!(cache = %self.caches[cache].0, %error, "a cache does not answer");
            // After an error the connection is of no use.
            self.caches[cache].1 = None;
            End::Failed
        })
    }

    fn get(&mut self, cache: usize, key: u32) -> io::Result<End> {
        let name = name(key);
        let mut found = None;
        self.connected(cache)?
            .get(std::slice::from_ref(&name), |_, value| found = Some(number_of(key, value)))?;
        let known = self.known.entry(key).or_default();
        Ok(match found {
            None => End::Miss,
            Some(Some(number)) if known.may_have(number) => {
                // Once it was seen, what was there before is not to be seen any more.
                known.stored = number;
                End::Hit
            }
            Some(_) => End::Wrong,
        })
    }

    fn set(&mut self, cache: usize, key: u32) -> io::Result<End> {
        let item = self.next_value(key);
        let stored = self.connected(cache)?.set(&[item])?;
        if stored == 0 {
            return Ok(End::Failed);
        }
        self.is_stored(key);
        Ok(End::Stored)
    }

    /// The next value of a key, which is about to be sent.
    fn next_value(&mut self, key: u32) -> (String, Vec<u8>) {
        let known = self.known.entry(key).or_default();
        known.sent += 1;
        (name(key), value(key, known.sent))
    }

    fn is_stored(&mut self, key: u32) {
        let known = self.known.entry(key).or_default();
        known.stored = known.sent;
    }

    fn connected(&mut self, cache: usize) -> io::Result<&mut memcached::Client> {
        let (address, client) = &mut self.caches[cache];
        match client {
            Some(client) => Ok(client),
            None => Ok(client.insert(memcached::Client::connect(*address, ANSWER_MAX)?)),
        }
    }
}

fn name(key: u32) -> String {
    format!("key{key:07}")
}

/// The value of a key with that number.
fn value(key: u32, number: u32) -> Vec<u8> {
    format!("{key} {number} ").bytes().cycle().take(VALUE_BYTES).collect()
}

/// The number of a key's value; `None` if it is not whole, or another key's.
fn number_of(key: u32, found: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(found).ok()?.split(' ').nth(1)?.parse().ok()?;
    (value(key, number) == found).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_key_and_number_and_is_whole() {
        let whole = value(7, 12);
        assert_eq!((whole.len(), number_of(7, &whole), number_of(8, &whole)), (VALUE_BYTES, Some(12), None));
        let torn = [&whole[..100], &value(7, 13)[100..]].concat();
        assert_eq!((number_of(7, &torn), number_of(7, &whole[1..]), number_of(7, b"")), (None, None, None));
    }

    #[test]
    fn what_was_replaced_is_wrong_and_what_may_have_been_stored_is_not() {
        let mut client = Client::new([]);
        for _ in 0..3 {
            client.next_value(1);
        }
        // The first was answered, the other two may be there or not.
        client.known.get_mut(&1).unwrap().stored = 1;
        let known = client.known[&1];
        assert_eq!([0, 1, 2, 3, 4].map(|number| known.may_have(number)), [false, true, true, true, false]);
        client.is_stored(1);
        assert_eq!([2, 3].map(|number| client.known[&1].may_have(number)), [false, true]);
    }
}
