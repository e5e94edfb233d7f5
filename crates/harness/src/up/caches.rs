//! The caches of the cluster: what their `stats` say, and the load of `up --cache`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use super::results::{CacheLoad, CacheSummary};
use sidelong_config::{CachePeer, ClusterFile};
use sidelong_trace::{Sizes, Zipf};
use sidelong_workload::memcached::Client;

use sidelong_app::Failure;

/// Caches that `up --cache` adds to a file without any, and their first ports, for clients and for metrics.
const ADDED: u16 = 3;
const LISTEN: u16 = 11311;
const ADMIN: u16 = 9151;
/// Memory of each, in MiB: so little that the load fills it within a minute.
const ADDED_MEMORY_MB: u32 = 8;

/// Time between two questions for `stats`.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait for a connection, and for each part of an answer.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Pause before a cache that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Keys that the load asks for at once, and the pause after each time: some 3,000 gets/s.
const KEYS_AT_ONCE: u64 = 32;
const PAUSE: Duration = Duration::from_millis(10);
/// Distinct keys of the load, and the exponent of Zipf's law: the workload's default, Breslau et al., INFOCOM 1999.
const KEYS: u32 = 50_000;
const ALPHA: f64 = 0.9;
/// Sizes of its values: 40 MB in all.
const SIZES: Sizes = Sizes::LogNormal { bytes_median: 500, sigma: 1.0, bytes_max: 16 << 10 };
const SEED: u64 = 1;

/// Adds caches, if the file has none.
pub(super) fn add(file: &mut ClusterFile) {
    let peers = &mut file.cache.peers;
    if !peers.is_empty() {
        return;
    }
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    *peers = (0..ADDED)
        .map(|k| CachePeer {
            admin: Some(at(ADMIN + k)),
            memory_mb: ADDED_MEMORY_MB,
            ..CachePeer::new(format!("c{}", k + 1), at(LISTEN + k))
        })
        .collect();
}

/// What a cache says of itself.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// The numbers of its `stats`, as it answered last.
    now: HashMap<String, u64>,
    /// How much each has grown since the first answer, over all lives of its process.
    grown: HashMap<String, u64>,
    /// How fast each has grown of late, by the second; nothing while it does not answer.
    per_s: HashMap<String, f64>,
    /// When it answered last, and which process it was.
    at: Option<(Instant, u64)>,
}

impl Seen {
    fn new(name: &str) -> Self {
        let (now, grown, per_s) = Default::default();
        Seen { name: name.to_owned(), now, grown, per_s, at: None }
    }

    /// Takes in an answer.
    fn take(&mut self, at: Instant, now: HashMap<String, u64>) {
        let pid = now.get("pid").copied().unwrap_or_default();
        let before = mem::take(&mut self.now);
        let elapsed = self.at.map(|(before, _)| at.duration_since(before).as_secs_f64());
        // The counters of another process begin anew.
        let is_same = self.at.is_some_and(|(_, before)| before == pid);
        self.per_s.clear();
        for (name, value) in &now {
            let before = before.get(name).copied().filter(|before| is_same && before <= value);
            let growth = value - before.unwrap_or_default();
            *self.grown.entry(name.clone()).or_default() += growth;
            if let Some(elapsed) = elapsed.filter(|elapsed| is_same && *elapsed > 0.0) {
                self.per_s.insert(name.clone(), growth as f64 / elapsed);
            }
        }
        (self.now, self.at) = (now, Some((at, pid)));
    }

    /// A number of its `stats` as it is now; `None` if it has none of that name.
    pub fn now(&self, name: &str) -> Option<u64> {
        self.now.get(name).copied()
    }

    /// How much a counter has grown while `up` ran.
    pub fn grown(&self, name: &str) -> Option<u64> {
        self.grown.get(name).copied()
    }

    /// How fast it grows now.
    pub fn per_s(&self, name: &str) -> Option<f64> {
        self.per_s.get(name).copied()
    }

    /// The part of recent gets that `name` counts, as a percentage.
    pub fn percent(&self, name: &str) -> Option<f64> {
        let gets = self.per_s("cmd_get").filter(|gets| *gets > 0.0)?;
        Some(100.0 * self.per_s(name)? / gets)
    }

    /// The part of recent gets that were answered from its own memory, as a percentage.
    pub fn percent_own(&self) -> Option<f64> {
        let neighbours = self.percent("neighbour_hits").unwrap_or_default();
        Some(self.percent("get_hits")? - neighbours)
    }

    fn summary(&self) -> CacheSummary {
        let grown = |name| self.grown(name).unwrap_or_default();
        let now = |name| self.now(name).unwrap_or_default();
        CacheSummary {
            name: self.name.clone(),
            gets: grown("cmd_get"),
            hits: grown("get_hits"),
            neighbour_hits: self.grown("neighbour_hits"),
            misses: grown("get_misses"),
            sets: grown("cmd_set"),
            forwarded: self.grown("forwarded"),
            read_failures: self.grown("neighbour_read_failures"),
            items: now("curr_items"),
            bytes: now("bytes"),
            evictions: grown("evictions"),
        }
    }
}

/// The thread that asks the caches, and puts a load on them.
pub(super) struct Caches {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Clone)]
struct Told {
    seen: Vec<Seen>,
    load: Option<CacheLoad>,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caches {
    /// Starts to ask `peers` what they do, and `with_load` for keys.
    pub(super) fn start(peers: &[CachePeer], with_load: bool) -> Result<Self, Failure> {
        let links = || peers.iter().map(|peer| Link::new(peer.listen)).collect::<Vec<_>>();
        let zipf = with_load.then(|| Zipf::new(ALPHA, KEYS, SIZES, SEED)).transpose()?;
        let load = zipf.map(|zipf| Load { zipf, links: links(), next: 0 });
        let told = Told {
            seen: peers.iter().map(|peer| Seen::new(&peer.name)).collect(),
            load: load.as_ref().map(|_| CacheLoad::default()),
        };
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), told: Mutex::new(told) });
        let mut asking = Asking { shared: Arc::clone(&shared), links: links(), load };
        let thread = thread::Builder::new().name("caches".into()).spawn(move || asking.run())?;
        Ok(Caches { shared, thread: Some(thread) })
    }

    /// What each has said.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.told().seen.clone()
    }

    /// Ends the load, and asks each cache once more.
    pub(super) fn finish(mut self) -> (Vec<CacheSummary>, Option<CacheLoad>) {
        self.end();
        let told = self.shared.told();
        (told.seen.iter().map(Seen::summary).collect(), told.load)
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection to a cache, made again after a pause where it fails.
struct Link {
    address: SocketAddr,
    client: Option<Client>,
    retry_at: Instant,
}

impl Link {
    fn new(address: SocketAddr) -> Self {
        Link { address, client: None, retry_at: Instant::now() }
    }

    /// Asks it something. `None` while it does not answer.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> io::Result<T>) -> Option<T> {
        if self.client.is_none() && Instant::now() < self.retry_at {
            return None;
        }
        let asked = match self.client.take() {
            Some(client) => Ok(client),
            None => Client::connect(self.address, WAIT_MAX),
        };
        let answered = asked.and_then(|mut client| Ok((ask(&mut client)?, client)));
        match answered {
            Ok((answer, client)) => {
                self.client = Some(client);
                Some(answer)
            }
            Err(error) => {
                tracing::debug!(cache = %self.address, %error, "a cache does not answer");
                self.retry_at = Instant::now() + RETRY;
                None
            }
        }
    }
}

struct Asking {
    shared: Arc<Shared>,
    /// For `stats` alone: a command of the load may wait for the home of its key.
    links: Vec<Link>,
    load: Option<Load>,
}

struct Load {
    zipf: Zipf,
    links: Vec<Link>,
    /// The number of the next key.
    next: u64,
}

impl Asking {
    fn run(&mut self) {
        let mut asked_at = None::<Instant>;
        while !self.shared.stop.load(Ordering::Relaxed) {
            if asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                asked_at = Some(Instant::now());
                self.ask_all();
            }
            if let Some(load) = &mut self.load {
                let done = load.send();
                if let Some(total) = &mut self.shared.told().load {
                    total.add(&done);
                }
            }
            thread::sleep(PAUSE);
        }
        // Also of one that has just come back.
        self.links.iter_mut().for_each(|link| link.retry_at = Instant::now());
        self.ask_all();
    }

    fn ask_all(&mut self) {
        for (index, link) in self.links.iter_mut().enumerate() {
            let mut now = HashMap::new();
            let answered =
                link.ask(|cache| cache.stats(|name, number| _ = now.insert(name.to_owned(), number)));
            let seen = &mut self.shared.told().seen[index];
            match answered {
                Some(()) => seen.take(Instant::now(), now),
                None => seen.per_s.clear(),
            }
        }
    }
}

impl Load {
    /// Asks the next cache for some keys, and stores those that are not there.
    fn send(&mut self) -> CacheLoad {
        let turn = self.next / KEYS_AT_ONCE % self.links.len() as u64;
        let link = &mut self.links[turn as usize];
        let objects: Vec<_> = (self.next..self.next + KEYS_AT_ONCE).map(|i| self.zipf.object(i)).collect();
        self.next += KEYS_AT_ONCE;
        let mut wanted: Vec<_> =
            objects.iter().map(|object| value(&format!("key-{}", object.id), object.bytes)).collect();
        wanted.sort();
        wanted.dedup();
        let keys: Vec<_> = wanted.iter().map(|(key, _)| key.clone()).collect();
        let mut load = CacheLoad { gets: keys.len() as u64, ..CacheLoad::default() };
        let got = link.ask(|cache| {
            cache.get(&keys, |key, found| {
                let index = wanted.iter().position(|(wanted, _)| wanted == key);
                match index.map(|index| wanted.swap_remove(index)) {
                    Some((_, expected)) if expected == found => load.hits += 1,
                    _ => load.wrong += 1,
                }
            })
        });
        let stored = got.and_then(|()| link.ask(|cache| cache.set(&wanted)));
        match (got, stored) {
            (None, _) => load.failed += load.gets.saturating_sub(load.hits + load.wrong),
            (Some(()), stored) => load.failed += (wanted.len() - stored.unwrap_or_default()) as u64,
        }
        load
    }
}

/// A key and its value, which follows from the key.
fn value(key: &str, bytes: u64) -> (String, Vec<u8>) {
    (key.to_owned(), key.bytes().chain([b' ']).cycle().take(bytes as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_added_where_there_are_none() {
        let mut file = ClusterFile::demo();
        add(&mut file);
        let names = |file: &ClusterFile| -> Vec<String> {
            file.cluster().unwrap().cache.peers.into_iter().map(|peer| peer.name).collect()
        };
        assert_eq!(names(&file), ["c1", "c2", "c3"]);
        file.cache.peers.truncate(1);
        add(&mut file);
        assert_eq!(names(&file), ["c1"]);
    }

    #[test]
    fn counters_go_on_when_a_cache_is_restarted() {
        let began = Instant::now();
        let rows = |pid, gets| HashMap::from([("pid".to_owned(), pid), ("cmd_get".to_owned(), gets)]);
        let at = |s| began + Duration::from_secs(s);
        let mut seen = Seen::new("c1");
        assert_eq!((seen.grown("cmd_get"), seen.per_s("cmd_get")), (None, None));
        seen.take(at(0), rows(7, 10));
        assert_eq!((seen.grown("cmd_get"), seen.per_s("cmd_get")), (Some(10), None));
        seen.take(at(2), rows(7, 30));
        assert_eq!((seen.grown("cmd_get"), seen.per_s("cmd_get")), (Some(30), Some(10.0)));
        seen.take(at(4), rows(8, 31));
        assert_eq!((seen.grown("cmd_get"), seen.per_s("cmd_get")), (Some(61), None), "another process");
        seen.take(at(5), rows(8, 1));
        assert_eq!((seen.grown("cmd_get"), seen.now("cmd_get")), (Some(62), Some(1)), "stats reset");
        assert_eq!((seen.grown("neighbour_hits"), seen.percent("neighbour_hits")), (None, None));
    }
}
