//! The other caches of a cluster, whose memory this one reads.
//!
//! Each key has a home, the cache that holds its item. Any cache answers a `get` of any key: it reads the home's memory, and
//! the home takes no part. What changes an item is carried out by its home ([`Errand`]).
//!
//! A read takes two batches: the two buckets in which the item may be listed, then the item. It returns a value only if
//! that was the key's value at one moment in between: its key is there in full, its stamp is the same before and after, the
//! home has not given the place to an item of another size meanwhile, and the item has neither expired nor been flushed.
//! A home withdraws an old value before it publishes a new one. So once a change was answered, no later read returns what was
//! there before. What is not read soundly in four tries is a miss, which a cache may answer at any time.

use std::hash::Hasher as _;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sidelong_fabric::{Access, Batch, Directory, Initiator, LinkId, OP_BYTES_MAX, OpError, OpId};
use sidelong_layout::{
    CACHE_ITEM_BYTES, CACHE_READS, CACHE_UNIT, CacheEntry, CacheItem, CacheLife, CacheMap, LINE_BYTES,
    RegionKind,
};
use sidelong_policy::cache::homes::Homes;
use siphasher::sip::SipHasher13;

use crate::cache::{Cache, Item, Seconds, hasher};

/// Tries to read an item that its home is changing.
const TRIES_MAX: usize = 4;
/// The longest wait for a neighbour's memory, and for a link to it.
const PATIENCE: Duration = Duration::from_millis(10);
/// One of so many reads is stated to the home, so that what others read stays there. An item that matters is read more often.
const STATED_PART: u32 = 16;
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds of the machine's monotonic clock, which all its processes share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

/// The second of a cache whose second 0 was at `began_ns`, at `now_ns`.
pub(crate) fn second(began_ns: u64, now_ns: u64) -> Seconds {
    (now_ns.saturating_sub(began_ns) / SECOND_NS) as Seconds
}

/// A cache of the cluster.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name, which no other has.
    pub name: String,
    /// The name of its region.
    pub region: String,
    /// What is where in its region.
    pub map: CacheMap,
}

/// What was read of others' memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Items that were found there.
    pub hits: u64,
    /// Items that were not.
    pub misses: u64,
    /// Of the misses, those of items that were being changed, or of homes that cannot be read or do not answer.
    pub failures: u64,
    /// Commands that homes were asked to carry out.
    pub forwarded: u64,
    /// Items of which there was a copy here: homes were not asked.
    pub near: u64,
}

/// The home of a key, if that is another cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// Its number.
    pub peer: usize,
    /// A hash of the key.
    pub key: u64,
}

/// Whom a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The home of the command's key.
    Home(Home),
    /// All others.
    All,
}

impl From<Home> for To {
    fn from(home: Home) -> Self {
        To::Home(home)
    }
}

/// A command that others are to carry out, as the client wrote it. Their answer is what the client reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand {
    /// Who carries it out.
    pub to: To,
    /// How it is written.
    pub language: Language,
    /// The command.
    pub command: Vec<u8>,
    /// The answer of a home that has no such item, if the command only reads.
    pub miss: Option<Vec<u8>>,
}

/// How a command and its answer are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Language {
    /// The text protocol, meta commands included.
    Text = 1,
    /// The text protocol, of which the answer lacks its last line: it is one of the answers to a line of keys.
    Key = 2,
    /// The binary protocol.
    Binary = 3,
}

impl Language {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Language::Text, Language::Key, Language::Binary].into_iter().find(|one| *one as u8 == byte)
    }
}

/// A cache, and the link to its memory.
struct Neighbour {
    peer: Peer,
    link: Option<Link>,
}

struct Link {
    id: LinkId,
    hasher: SipHasher13,
    /// Number of reads that it has stated to this cache, as far as they were counted here.
    counted: u64,
}

/// The caches of the cluster, and the links to their memory.
pub struct Neighbours {
    me: usize,
    homes: Homes,
    hasher: SipHasher13,
    /// Where their memory is found; `None` if they are asked.
    directory: Option<Arc<dyn Directory>>,
    initiator: Initiator,
    /// By number; what it says of this cache itself is not used.
    all: Vec<Neighbour>,
    batch: Batch,
    reads: Reads,
    /// What a session has left for the driver to send.
    pub(crate) errand: Option<Errand>,
}

impl Neighbours {
    /// The neighbours of the cache `me` among `peers`, in a cluster whose parts have `cluster` alike. Their regions are found in
    /// `directory`; without one nobody's memory is read, and homes are asked.
    ///
    /// # Panics
    /// If there is no such cache.
    pub fn new(me: usize, peers: &[Peer], directory: Option<Arc<dyn Directory>>, cluster: u64) -> Self {
        assert!(me < peers.len(), "this cache is one of them");
        let neighbour = |peer: &Peer| Neighbour { peer: peer.clone(), link: None };
        Neighbours {
            me,
            homes: Homes::new(peers.iter().map(|peer| peer.name.as_str())),
            hasher: hasher([cluster, 0]),
            directory,
            initiator: Initiator::new().of_cluster(cluster),
            all: peers.iter().map(neighbour).collect(),
            batch: Batch::new(),
            reads: Reads::default(),
            errand: None,
        }
    }

    /// What was read since the start.
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// The name of the cache with a number.
    pub fn name(&self, number: usize) -> &str {
        &self.all[number].peer.name
    }

    /// Whether homes are asked for items, because their memory cannot be read.
    pub(crate) fn are_asked(&self) -> bool {
        self.directory.is_none()
    }

    /// Counts what a home was asked for: whether it has not answered, or had the item.
    pub(crate) fn was_asked(&mut self, has_failed: bool, is_hit: bool) {
        self.reads.hits += u64::from(!has_failed && is_hit);
        self.reads.misses += u64::from(has_failed || !is_hit);
        self.reads.failures += u64::from(has_failed);
    }

    /// Counts an item of which there was a copy here.
    pub(crate) fn was_near(&mut self) {
        self.reads.near += 1;
    }

    /// The number of this cache.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Whether there are others.
    pub(crate) fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// The home of a key, if that is another cache.
    #[inline]
    pub fn home(&self, key: &[u8]) -> Option<Home> {
        let key = hash(self.hasher, key);
        let peer = self.homes.of(key);
        (peer != self.me).then_some(Home { peer, key })
    }

    /// Leaves a command for the driver to send, with the answer to it if there is no item, should it only read.
    pub(crate) fn send(&mut self, to: To, language: Language, command: &[u8], miss: Option<Vec<u8>>) {
        self.reads.forwarded += u64::from(miss.is_none());
        self.errand = Some(Errand { to, language, command: command.to_vec(), miss });
    }

    /// The item of a key in its home's memory, with its times as `cache` counts them at `now`.
    pub(crate) fn read(
        &mut self,
        home: usize,
        key: &[u8],
        cache: &mut Cache,
        now: Seconds,
    ) -> Option<Item<'_>> {
        let neighbour = &mut self.all[home];
        let found = match &neighbour.link {
            Some(link) => {
                let mut reader = Reader {
                    initiator: &mut self.initiator,
                    batch: &mut self.batch,
                    link: link.id,
                    map: neighbour.peer.map,
                    key,
                    hash: hash(link.hasher, key),
                };
                reader.read().map(|found| found.map(|found| (found, reader.hash)))
            }
            None => Err(OpError::PeerGone),
        };
        let found = found.inspect_err(|error| {
            tracing::debug!(region = neighbour.peer.region, %error, "a neighbour was not read");
            if *error != OpError::Timeout
                && let Some(link) = neighbour.link.take()
            {
                self.initiator.close(link.id);
            }
        });
        let (sound, hash) = match found {
            Ok(Some((Found::Sound(sound), hash))) => (sound, hash),
            found => {
                self.reads.misses += 1;
                self.reads.failures += u64::from(!matches!(found, Ok(None)));
                return None;
            }
        };
        self.reads.hits += 1;
        if self.reads.hits.is_multiple_of(STATED_PART.into()) {
            cache.state_read(home, hash);
        }
        let Sound { op, item, home_now } = sound;
        let bytes = self.batch.bytes(op).ok()?;
        Some(Item {
            flags: item.flags,
            cas: item.cas,
            expires: if item.expires == 0 { 0 } else { now.saturating_add(item.expires - home_now) },
            accessed: now,
            was_fetched: true,
            is_stale: item.has(CacheItem::STALE),
            is_won: item.has(CacheItem::WON),
            value: &bytes[CACHE_ITEM_BYTES + key.len()..item.len()],
        })
    }

    /// Links to neighbours that are there again, and counts the reads of this cache's items that the others state. To be called
    /// some ten times a second.
    pub fn tick(&mut self, cache: &mut Cache) {
        let me = self.me;
        let Some(directory) = self.directory.clone() else { return };
        for number in (0..self.all.len()).filter(|number| *number != me) {
            if self.all[number].link.is_none() {
                self.link(number, &*directory);
            }
            if let Err(error) = self.count_reads(number, cache)
                && error != OpError::Timeout
                && let Some(link) = self.all[number].link.take()
            {
                self.initiator.close(link.id);
            }
        }
    }

    fn link(&mut self, number: usize, directory: &dyn Directory) {
        let Neighbour { peer: Peer { region, map, .. }, link } = &mut self.all[number];
        let found = directory.find(region, RegionKind::Cache, map.len(), Access::ReadOnly);
        let linked = found.and_then(|key| self.initiator.connect(&key, PATIENCE));
        let id = match linked {
            Ok(id) => id,
            Err(error) => return tracing::debug!(%error, "no link to a neighbour"),
        };
        let life = life(&mut self.initiator, &mut self.batch, id, *map);
        self.batch.clear();
        let reads = self.batch.read(id, map.reads(self.me), 8);
        self.initiator.run(&mut self.batch, PATIENCE);
        match (life, self.batch.value(reads)) {
            (Some(life), Ok(counted)) => *link = Some(Link { id, hasher: hasher(life.seed), counted }),
            _ => self.initiator.close(id),
        }
    }

    fn count_reads(&mut self, number: usize, cache: &mut Cache) -> Result<(), OpError> {
        let Neighbour { peer: Peer { map, .. }, link } = &mut self.all[number];
        let Some(link) = link else { return Ok(()) };
        self.batch.clear();
        let reads = self.batch.read(link.id, map.reads(self.me), 8);
        self.initiator.run(&mut self.batch, PATIENCE);
        let stated = self.batch.value(reads)?;
        let first = link.counted.max(stated.saturating_sub(CACHE_READS as u64));
        link.counted = stated;
        if first >= stated {
            return Ok(());
        }
        // The hashes lie in a ring: those before its end, and those from its begin on.
        let until_end = CACHE_READS as u64 - first % CACHE_READS as u64;
        let middle = stated.min(first + until_end);
        self.batch.clear();
        let parts = [first..middle, middle..stated].map(|part| {
            let bytes = (part.end - part.start) as usize * 8;
            (bytes > 0).then(|| self.batch.read(link.id, map.read(self.me, part.start), bytes))
        });
        self.initiator.run(&mut self.batch, PATIENCE);
        for part in parts.into_iter().flatten() {
            self.batch.words(part)?.iter().for_each(|hash| cache.was_read(*hash));
        }
        Ok(())
    }
}

/// What concerns all items of a home; `None` if it has only begun, or cannot be read.
pub(crate) fn life(
    initiator: &mut Initiator,
    batch: &mut Batch,
    link: LinkId,
    map: CacheMap,
) -> Option<CacheLife> {
    batch.clear();
    // A home states its seed before this.
    let began_ns = batch.read(link, map.life() + offset_of!(CacheLife, began_ns), 8);
    let life = batch.read(link, map.life(), LINE_BYTES);
    initiator.run(batch, PATIENCE);
    if batch.value(began_ns).ok()? == 0 {
        return None;
    }
    life_of(batch, life).ok()
}

pub(crate) fn hash(mut hasher: SipHasher13, key: &[u8]) -> u64 {
    hasher.write(key);
    hasher.finish()
}

fn life_of(batch: &Batch, op: OpId) -> Result<CacheLife, OpError> {
    batch.bytes(op).map(bytemuck::pod_read_unaligned)
}

/// One read of one key.
pub(crate) struct Reader<'a> {
    pub(crate) initiator: &'a mut Initiator,
    pub(crate) batch: &'a mut Batch,
    pub(crate) link: LinkId,
    pub(crate) map: CacheMap,
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
}

/// What a read found.
pub(crate) enum Found {
    Sound(Sound),
    /// It changed at each try.
    Torn,
}

/// A value that was the key's.
pub(crate) struct Sound {
    /// Its bytes in the batch.
    pub(crate) op: OpId,
    pub(crate) item: CacheItem,
    /// The second of its home.
    home_now: Seconds,
}

impl Reader<'_> {
    /// The key's item, or `None` if it has none.
    pub(crate) fn read(&mut self) -> Result<Option<Found>, OpError> {
        for _ in 0..TRIES_MAX {
            match self.try_read()? {
                ControlFlow::Break(found) => return Ok(found.map(Found::Sound)),
                ControlFlow::Continue(()) => {}
            }
        }
        Ok(Some(Found::Torn))
    }

    fn run(&mut self) {
        self.initiator.run(self.batch, PATIENCE);
    }

    /// Goes on if the home changed something meanwhile.
    fn try_read(&mut self) -> Result<ControlFlow<Option<Sound>>, OpError> {
        self.batch.clear();
        let life = self.batch.read(self.link, self.map.life(), LINE_BYTES);
        let buckets = self.map.buckets(self.hash).map(|at| self.batch.read(self.link, at, LINE_BYTES));
        self.run();
        let before = life_of(self.batch, life)?;
        let mut entries = [CacheEntry(0); 2 * LINE_BYTES / 8];
        let mut count = 0;
        for bucket in buckets {
            let listed = self.batch.words(bucket)?.iter().map(|word| CacheEntry(*word));
            for entry in listed.filter(|entry| entry.may_be(self.hash)) {
                entries[count] = entry;
                count += 1;
            }
        }
        for entry in &entries[..count] {
            match self.try_entry(*entry, &before)? {
                Tried::Other => {}
                Tried::Torn => return Ok(ControlFlow::Continue(())),
                Tried::Gone => return Ok(ControlFlow::Break(None)),
                Tried::Sound(sound) => return Ok(ControlFlow::Break(Some(sound))),
            }
        }
        Ok(ControlFlow::Break(None))
    }

    fn try_entry(&mut self, entry: CacheEntry, before: &CacheLife) -> Result<Tried, OpError> {
        let start = entry.at() as usize * CACHE_UNIT;
        let room = self.map.items_bytes().saturating_sub(start);
        let at = self.map.items() + start;
        let bytes = match entry.bytes() {
            Some(bytes) => bytes,
            None => {
                self.batch.clear();
                let header = self.batch.read(self.link, at, CACHE_ITEM_BYTES.min(room));
                self.run();
                let header = self.batch.bytes(header)?;
                let header = bytemuck::try_pod_read_unaligned::<CacheItem>(header);
                header.map_or(0, |header| header.len())
            }
        };
        if bytes < CACHE_ITEM_BYTES || bytes > room.min(OP_BYTES_MAX) {
            return Ok(Tried::Torn);
        }
        self.batch.clear();
        let op = self.batch.read(self.link, at, bytes);
        let stamp = self.batch.read(self.link, at + offset_of!(CacheItem, stamp), 8);
        let life = self.batch.read(self.link, self.map.life(), LINE_BYTES);
        self.run();
        let (again, after) = (self.batch.value(stamp)?, life_of(self.batch, life)?);
        let read = self.batch.bytes(op)?;
        let item: CacheItem = bytemuck::pod_read_unaligned(&read[..CACHE_ITEM_BYTES]);
        if after.generation != before.generation || !item.is_whole(again) || item.len() > bytes {
            return Ok(Tried::Torn);
        }
        if read[CACHE_ITEM_BYTES..][..item.key_bytes()] != *self.key {
            return Ok(Tried::Other);
        }
        let home_now = second(after.began_ns, now_ns());
        let (epoch, flush_at) = after.epoch();
        let is_flushed = item.epoch() != epoch || flush_at != 0 && flush_at <= home_now;
        if is_flushed || item.expires != 0 && item.expires <= home_now {
            return Ok(Tried::Gone);
        }
        Ok(Tried::Sound(Sound { op, item, home_now }))
    }
}

/// What was at an entry's place.
enum Tried {
    Sound(Sound),
    /// The item has expired, or was flushed.
    Gone,
    /// Another key's item.
    Other,
    /// No one state of an item.
    Torn,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use sidelong_fabric::shm::ShmHost;
    use sidelong_fabric::{Host, OwnedRegion, RegionSpec};

    use super::*;

    const KEY: &[u8] = b"key";

    /// A region of one item, which a reader has found listed.
    struct Bench {
        _directory: tempfile::TempDir,
        region: OwnedRegion,
        map: CacheMap,
        initiator: Initiator,
        link: LinkId,
        entry: CacheEntry,
    }

    fn bench(item: CacheItem) -> Bench {
        let map = CacheMap::new(8 << 20, 1);
        let directory = tempfile::tempdir().unwrap();
        let (name, access) = ("items", Access::ReadOnly);
        let spec =
            RegionSpec { name, kind: RegionKind::Cache, len: map.len(), access, cluster: 0, incarnation: 1 };
        let mut region = Host::Shm(ShmHost::new(directory.path())).offer_owned(&spec).unwrap();
        region.write(map.items(), bytemuck::bytes_of(&item));
        region.write(map.items() + CACHE_ITEM_BYTES, b"keyvalue");
        let mut initiator = Initiator::new();
        let link = initiator.connect(region.key().unwrap(), PATIENCE).unwrap();
        let entry = CacheEntry::new(0, CACHE_ITEM_BYTES + 8, 0);
        Bench { _directory: directory, region, map, initiator, link, entry }
    }

    fn item() -> CacheItem {
        let mut item = CacheItem { stamp: CacheItem::begun(0, 0, 3), value_bytes: 5, ..CacheItem::default() };
        item.set(CacheItem::LIVE, true);
        item
    }

    impl Bench {
        /// What a reader finds who saw `before` when it looked the item up.
        fn tried(&mut self, before: CacheLife) -> Tried {
            let (initiator, batch) = (&mut self.initiator, &mut Batch::new());
            let mut reader = Reader { initiator, batch, link: self.link, map: self.map, key: KEY, hash: 0 };
            reader.try_entry(self.entry, &before).unwrap()
        }

        fn state(&mut self, offset: usize, value: u64) {
            self.region.store(self.map.life() + offset, value, Ordering::Release);
        }
    }

    #[test]
    fn a_value_is_sound_if_nothing_has_changed() {
        let Tried::Sound(sound) = bench(item()).tried(CacheLife::default()) else { panic!("it is not") };
        assert_eq!(sound.item, item());
    }

    #[test]
    fn a_place_that_is_of_another_size_now_may_hold_anything() {
        let mut bench = bench(item());
        bench.state(offset_of!(CacheLife, generation), 1);
        assert!(matches!(bench.tried(CacheLife::default()), Tried::Torn));
    }

    #[test]
    fn what_is_withdrawn_expired_flushed_or_anothers_is_not_returned() {
        let begun = CacheItem { stamp: CacheItem::begun(0, 0, 3), ..item() };
        assert!(matches!(bench(begun).tried(CacheLife::default()), Tried::Torn), "not live");
        let mut expired = bench(CacheItem { expires: 1, ..item() });
        expired.state(offset_of!(CacheLife, began_ns), now_ns().saturating_sub(2 * SECOND_NS));
        assert!(matches!(expired.tried(CacheLife::default()), Tried::Gone));
        for flush in [CacheLife::flush_word(1, 0), CacheLife::flush_word(0, 1)] {
            let mut flushed = bench(item());
            flushed.state(offset_of!(CacheLife, flush), flush);
            flushed.state(offset_of!(CacheLife, began_ns), now_ns().saturating_sub(2 * SECOND_NS));
            assert!(matches!(flushed.tried(CacheLife::default()), Tried::Gone));
        }
        let mut other = bench(item());
        other.region.write(other.map.items() + CACHE_ITEM_BYTES, b"Key");
        assert!(matches!(other.tried(CacheLife::default()), Tried::Other));
    }

    #[test]
    fn lengths_that_lead_out_of_the_item_are_refused() {
        for value_bytes in [14, 100, u32::MAX] {
            let mut long = bench(CacheItem { value_bytes, ..item() });
            assert!(matches!(long.tried(CacheLife::default()), Tried::Torn));
        }
        let mut beyond = bench(item());
        for (bytes, at) in [(64, u32::MAX), (1 << 20, (8 << 16) - 1), (2 << 20, (8 << 16) - 2), (0, 0)] {
            beyond.entry = CacheEntry::new(0, bytes, at);
            assert!(matches!(beyond.tried(CacheLife::default()), Tried::Torn), "{bytes} at {at}");
        }
    }
}
