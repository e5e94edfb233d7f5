//! Keys of caches as registers: whether reads may be older than what was known before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::caches::Caches;
use crate::memcached::Client;
use crate::{SetOnDrop, eventually};

/// Of each key, what is known of the values that were stored: versions that rise.
#[derive(Default)]
struct History {
    /// The last that a set was begun with.
    begun: AtomicU64,
    /// The last that a cache has acknowledged, or that was read.
    known: AtomicU64,
}

/// A value that says whose it is, which, and whether it is whole.
fn value(key: usize, version: u64) -> String {
    let word = format!("{key}:{version};");
    // Versions have lengths of all sizes of places.
    word.repeat(1 + (version % 97) as usize * 3)
}

/// Writers and readers, each through all caches in turn, as registers of one writer: a read returns a value that was
/// begun when it ended, and none older than what was known when it began. Each miss is allowed.
pub fn check(caches: &Caches, versions: u64, meanwhile: impl FnOnce()) {
    const KEYS: usize = 4;
    let histories: [History; KEYS] = Default::default();
    let is_over = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    let connect = || caches.at.iter().map(|at| Client::connect(*at)).collect::<Vec<_>>();
    thread::scope(|scope| {
        let (histories, is_over, hits) = (&histories, &is_over, &hits);
        let writer = |key: usize| {
            move || {
                let mut clients = connect();
                for version in 1..=versions {
                    let history = &histories[key];
                    history.begun.store(version, Ordering::SeqCst);
                    let value = value(key, version);
                    let number = (version as usize + key) % clients.len();
                    let command = format!("set key{key} 0 0 {}\r\n{value}\r\n", value.len());
                    if clients[number].try_ask(&command).is_some_and(|answer| answer == "STORED\r\n") {
                        history.known.fetch_max(version, Ordering::SeqCst);
                    } else {
                        clients[number].reconnect(caches.at[number]);
                    }
                }
            }
        };
        let reader = |first: usize| {
            move || {
                let mut clients = connect();
                for turn in first.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let (key, number) = (turn % KEYS, turn / KEYS % clients.len());
                    let history = &histories[key];
                    let known = history.known.load(Ordering::SeqCst);
                    let Some(found) = clients[number].try_get(&format!("key{key}")) else {
                        clients[number].reconnect(caches.at[number]);
                        continue;
                    };
                    let Some(found) = found else { continue };
                    let version = found.split([':', ';']).nth(1).and_then(|version| version.parse().ok());
                    let version: u64 = version.unwrap_or_else(|| panic!("not a value: {found}"));
                    assert_eq!(found, value(key, version), "a value that was never stored");
                    let begun = history.begun.load(Ordering::SeqCst);
                    assert!(version >= known, "version {version} of key {key} after {known} was known");
                    assert!(version <= begun, "version {version} of key {key} before it was stored");
                    history.known.fetch_max(version, Ordering::SeqCst);
                    hits.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let readers: Vec<_> = (0..2).map(|first| scope.spawn(reader(first))).collect();
        let writers: Vec<_> = (0..KEYS).map(|key| scope.spawn(writer(key))).collect();
        let _ends = SetOnDrop(is_over);
        meanwhile();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        eventually("reads found something as often as was written", || {
            hits.load(Ordering::SeqCst) > versions || readers.iter().any(|reader| reader.is_finished())
        });
        is_over.store(true, Ordering::SeqCst);
        for ended in written.into_iter().chain(readers.into_iter().map(|reader| reader.join())) {
            ended.unwrap();
        }
    });
    assert!(hits.load(Ordering::SeqCst) > versions, "{hits:?} reads found something");
}
