//! Items in bounded memory.

use std::hash::Hasher as _;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering;

use sidelong_fabric::OwnedRegion;
use sidelong_layout::{
    CACHE_ITEM_BYTES as HEADER_BYTES, CacheEntry, CacheItem as Header, CacheLife, CacheMap,
};
use sidelong_policy::cache::store::{Eviction, Gone, Place, Room, Store};
use siphasher::sip::SipHasher13;

pub use crate::heap::Size;
use crate::heap::{At, Heap};
use crate::{check, listing};

mod share;
mod sweep;
#[cfg(test)]
mod tests;

pub use share::Share;

/// The longest key, in bytes (memcached's protocol.txt).
pub const KEY_BYTES_MAX: usize = 250;
/// The least memory, in bytes: some pages for several sizes at once, and the tables.
pub const MEMORY_BYTES_MIN: usize = 8 << 20;
/// The most memory, in bytes: places are numbered in units of 16 bytes.
pub const MEMORY_BYTES_MAX: usize = 64 << 30;

/// Items that are evicted in order of their use before a page is cleared for another size.
const VICTIMS_MAX: usize = 32;

/// And this often before, if the cheapest page is at least half free.
const VICTIMS_BEFORE_CLEARING: usize = 4;
/// Tables that take less than this part of the memory are not worth compacting.
const SPARSE_PART: usize = 64;
/// Tables are compacted when one of so many slots is free, as long as they are compacted in some milliseconds; larger ones when
/// half of them are.
const SPARE_PART: usize = 9;
const QUICK_SLOTS_MAX: usize = 1 << 20;

/// Seconds since the cache began, which is second 1. 0 is no time.
pub type Seconds = u32;

/// What a cache may use.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most bytes of memory, tables included: [`MEMORY_BYTES_MIN`] to [`MEMORY_BYTES_MAX`].
    pub memory_bytes: usize,
    /// Most bytes of one item: its header, key and value. At most half of the memory.
    pub item_bytes_max: usize,
    /// Which item is evicted.
    pub eviction: Eviction,
    /// Whether items are evicted at all. If not, what finds no room is not stored.
    pub evicts: bool,
    /// Secret of the hash, so that nobody can choose keys that collide.
    pub seed: [u64; 2],
}

/// An item that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The client's own 32 bits.
    pub flags: u32,
    /// Unique number of this value. It changes with the value, and not with a touch.
    pub cas: u64,
    /// When it expires; 0 for never.
    pub expires: Seconds,
    /// When it was last fetched, or else stored.
    pub accessed: Seconds,
    /// Whether it was fetched since it was stored.
    pub was_fetched: bool,
    /// Whether it was marked stale (meta delete with I) and not replaced since.
    pub is_stale: bool,
    /// Whether a client was told that it has won the right to replace the item.
    pub is_won: bool,
    /// Its bytes.
    pub value: &'a [u8],
}

/// Why an item was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PutError {
    /// Larger than [`Settings::item_bytes_max`].
    #[error("object too large for cache")]
    TooLarge,
    /// No room could be made.
    #[error("out of memory storing object")]
    NoMemory,
}

/// What a cache has and has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Items, those included that have expired or were flushed and that nobody has come by since.
    pub items: u64,
    /// Bytes of their slots.
    pub item_bytes: u64,
    /// Bytes of the pages in use, and of the tables.
    pub memory_bytes: u64,
    /// Items ever stored.
    pub stored: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Items evicted to make room that nobody had fetched.
    pub evicted_unfetched: u64,
    /// Items found expired, and those of them that nobody had fetched.
    pub expired: u64,
    /// See `expired`.
    pub expired_unfetched: u64,
    /// Items that a sweep has freed because they had expired or were flushed.
    pub swept: u64,
    /// Pages cleared for items of other sizes.
    pub pages_cleared: u64,
}

/// Items by key.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    heap: Heap,
    /// Where each item lies, by the hash of its key. Of two keys of one hash the later takes the earlier's place.
    places: Store<At>,
    hasher: SipHasher13,
    /// The last unique number that was given, and how far the next is from it.
    cas: u64,
    cas_step: u64,
    /// Number of flushes: items of earlier epochs are gone.
    epoch: u16,
    /// When the next flush takes effect; 0 for none.
    flush_at: Seconds,
    /// The latest time that it was told.
    now: Seconds,
    /// The page that is swept next.
    swept: usize,
    /// The keys whose items it keeps; `None` for all.
    share: Option<Share>,
    /// Pages that may hold items of other keys, from the one that is swept next on.
    strewn: usize,
    /// Whether a command since the last [`Cache::take_astray`] was for an item that it does not keep.
    is_astray: bool,
    counts: Usage,
}

/// Where an item is to be stored.
#[derive(Clone, Copy)]
struct Placed {
    at: At,
    /// The bytes of its place, if others are yet to be told of it.
    unlisted: Option<u32>,
}

/// An item that was found.
#[derive(Clone, Copy)]
struct Found {
    hash: u64,
    place: Place,
    at: At,
    header: Header,
}

impl Cache {
    /// An empty cache, whose memory is for this process alone.
    ///
    /// # Errors
    /// If the process may not have so much memory.
    ///
    /// # Panics
    /// If the settings are out of range.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let map = CacheMap::new(settings.memory_bytes, 0);
        Ok(Cache::within(settings, OwnedRegion::private(map.len())?, map))
    }

    /// An empty cache whose memory others read: it is in `region`, which has the length and the parts of `map`. The cache's
    /// second 0 was at `began_ns` of the machine's monotonic clock, in nanoseconds.
    ///
    /// # Panics
    /// If the settings are out of range, or the region has another length.
    pub fn exposed(settings: Settings, region: OwnedRegion, map: CacheMap, began_ns: u64) -> Self {
        let mut cache = Cache::within(settings, region, map);
        let [seed, seed2] = settings.seed;
        cache.state(offset_of!(CacheLife, seed), seed);
        cache.state(offset_of!(CacheLife, seed) + 8, seed2);
        cache.state(offset_of!(CacheLife, began_ns), began_ns);
        cache
    }

    /// Tells readers who do not share the machine's clock that this is `now_ns`. To be called some ten times a second.
    pub fn state_age(&mut self, now_ns: u64) {
        let (region, map) = self.heap.region();
        if map.is_remote() {
            let began_ns = region.load(map.life() + offset_of!(CacheLife, began_ns));
            self.state(offset_of!(CacheLife, age_ns), now_ns.saturating_sub(began_ns));
        }
    }

    fn within(settings: Settings, region: OwnedRegion, map: CacheMap) -> Self {
        let Settings { memory_bytes, item_bytes_max, eviction, seed, .. } = settings;
        assert!(region.len() == map.len(), "the region is as long as its map");
        assert!((MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory_bytes), "the memory is in range");
        assert!(item_bytes_max <= memory_bytes / 2, "two of the largest items fit");
        // Bytes are the heap's to bound: an object here takes a slot of one of its sizes.
        let places = Store::new(eviction, Room::bytes(memory_bytes as u64));
        Cache {
            settings,
            heap: Heap::new(region, map),
            places,
            hasher: hasher(seed),
            cas: 0,
            cas_step: 1,
            epoch: 0,
            flush_at: 0,
            now: 0,
            swept: 0,
            share: None,
            strewn: 0,
            is_astray: false,
            counts: Usage::default(),
        }
    }

    /// What it may use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it has and has done.
    pub fn usage(&self) -> Usage {
        Usage {
            items: self.places.len() as u64,
            item_bytes: self.places.bytes(),
            memory_bytes: (self.heap.bytes_used() + self.tables_bytes()) as u64,
            ..self.counts
        }
    }

    /// The sizes of its items' places, as far as there are any.
    pub fn sizes(&self) -> Vec<Size> {
        self.heap.sizes()
    }

    /// The item of `key`, if there is one that has not expired. Counts as a fetch: the item that is returned says what was
    /// so before.
    pub fn get(&mut self, key: &[u8], now: Seconds) -> Option<Item<'_>> {
        self.get_and_touch(key, None, now)
    }

    /// The item of `key`, as by [`Cache::get`]. Afterwards it expires at `expires`, if that is given.
    pub fn get_and_touch(&mut self, key: &[u8], expires: Option<Seconds>, now: Seconds) -> Option<Item<'_>> {
        let found = self.find(key, now)?;
        self.places.touch(found.place);
        let mut header = found.header;
        header.set(Header::FETCHED, true);
        header.accessed = now;
        header.expires = expires.unwrap_or(header.expires);
        if header != found.header {
            self.set_header(found.at, &header);
        }
        Some(self.item(&found))
    }

    /// Counts as an access to the item of `key`, so that it is not evicted soon, but not as a fetch.
    pub fn keep(&mut self, key: &[u8], now: Seconds) {
        if let Some(found) = self.find(key, now) {
            self.places.touch(found.place);
        }
    }

    /// The item of `key`, as [`Cache::get`] returns it. Does not count as a fetch.
    pub fn peek(&mut self, key: &[u8], now: Seconds) -> Option<Item<'_>> {
        let found = self.find(key, now)?;
        Some(self.item(&found))
    }

    /// Changes when the item of `key` expires. False if there is none.
    pub fn touch(&mut self, key: &[u8], expires: Seconds, now: Seconds) -> bool {
        let Some(Found { at, mut header, .. }) = self.find(key, now) else { return false };
        header.expires = expires;
        self.set_header(at, &header);
        true
    }

    /// Changes an item's marks. False if there is none.
    pub fn mark(&mut self, key: &[u8], is_stale: bool, is_won: bool, now: Seconds) -> bool {
        let Some(Found { at, mut header, .. }) = self.find(key, now) else { return false };
        header.set(Header::STALE, is_stale);
        header.set(Header::WON, is_won);
        self.set_header(at, &header);
        true
    }

    /// Gives the item of `key` the unique number `cas`, or the next one, and returns it.
    pub fn renumber(&mut self, key: &[u8], cas: Option<u64>, now: Seconds) -> Option<u64> {
        let Found { at, mut header, .. } = self.find(key, now)?;
        self.cas += self.cas_step;
        header.cas = cas.unwrap_or(self.cas);
        self.set_header(at, &header);
        Some(header.cas)
    }

    /// Whether an item is small enough to be stored. Sizes are in bytes.
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        key_bytes.saturating_add(value_bytes).saturating_add(HEADER_BYTES) <= self.settings.item_bytes_max
    }

    /// Stores an item in place of what `key` had, and returns its unique number: `cas`, or the next one. One that it does not keep is gone
    /// at once.
    ///
    /// # Errors
    /// If there is no room for it. What `key` had is then still there, unless it was evicted for the new one.
    ///
    /// # Panics
    /// If the key is empty or longer than [`KEY_BYTES_MAX`].
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expires: Seconds,
        cas: Option<u64>,
        now: Seconds,
    ) -> Result<u64, PutError> {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "the key was checked");
        self.flush_if_due(now);
        let hash = self.hash(key);
        let len = self.heap.map().with_check(HEADER_BYTES + key.len() + value.len());
        if !self.fits(key.len(), value.len()) {
            return Err(PutError::TooLarge);
        }
        if self.goes_astray(key, hash) {
            self.cas += self.cas_step;
            return Ok(cas.unwrap_or(self.cas));
        }
        let place = self.place(hash, len)?;
        let at = place.at;
        self.cas += self.cas_step;
        self.counts.stored += 1;
        let mut header = Header {
            stamp: Header::begun(self.heap.word(at, 0), self.epoch, key.len() as u8),
            cas: cas.unwrap_or(self.cas),
            value_bytes: value.len() as u32,
            flags,
            expires,
            accessed: now,
        };
        self.heap.withdraw(at, header.stamp);
        header.set(Header::LIVE, true);
        self.set_facts(at, &header);
        self.heap.write(at, HEADER_BYTES, key);
        self.heap.write(at, HEADER_BYTES + key.len(), value);
        if let Some(word) = self.heap.map().check(header.len()) {
            let rest = &self.heap.bytes(at, header.len())[HEADER_BYTES..];
            let check = check::of(self.hasher, &header, rest);
            self.heap.set_word(at, word, check);
        }
        self.heap.publish(at, header.stamp);
        if let Some(bytes) = place.unlisted {
            self.list(hash, bytes, at);
        }
        self.bound_pages();
        Ok(header.cas)
    }

    /// Removes the item of `key`. False if there is none.
    pub fn remove(&mut self, key: &[u8], now: Seconds) -> bool {
        self.find(key, now).is_some_and(|found| self.forget(found.hash))
    }

    /// From `at` on, all items stored before it are gone: at once, if it is not later than `now`. A flush that is still to come
    /// is forgotten.
    pub fn flush(&mut self, at: Seconds, now: Seconds) {
        self.flush_if_due(now);
        self.flush_at = at;
        self.state_flush();
        self.flush_if_due(now);
    }

    /// Whether an item has expired, or was flushed.
    fn is_over(&self, header: &Header) -> bool {
        header.epoch() != self.epoch || (header.expires != 0 && header.expires <= self.now)
    }

    /// Counts an item that is over, if it has expired.
    fn count_over(&mut self, header: &Header) {
        if header.epoch() == self.epoch {
            self.counts.expired += 1;
            self.counts.expired_unfetched += u64::from(!header.has(Header::FETCHED));
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        hashed(self.hasher, key)
    }

    fn header(&self, at: At) -> Header {
        bytemuck::pod_read_unaligned(self.heap.bytes(at, HEADER_BYTES))
    }

    /// Changes a header whose value stays: others may see each word of it before or after.
    fn set_header(&mut self, at: At, header: &Header) {
        if self.heap.map().is_remote() {
            let before = self.header(at);
            self.change_check(at, &before, header);
        }
        self.set_facts(at, header);
        self.heap.publish(at, header.stamp);
    }

    /// Changes the check of an item whose header changes from `before` to `after`, if it has one.
    fn change_check(&mut self, at: At, before: &Header, after: &Header) {
        if let Some(word) = self.heap.map().check(after.len()) {
            let check = check::changed(self.hasher, self.heap.word(at, word), before, after);
            self.heap.set_word(at, word, check);
        }
    }

    /// Changes all of a header but its stamp.
    fn set_facts(&mut self, at: At, header: &Header) {
        let [_, facts @ ..] = bytemuck::cast::<Header, [u64; HEADER_BYTES / 8]>(*header);
        for (word, fact) in facts.into_iter().enumerate() {
            self.heap.set_word(at, 8 * (word + 1), fact);
        }
    }

    fn key(&self, at: At, header: &Header) -> &[u8] {
        &self.heap.bytes(at, HEADER_BYTES + header.key_bytes())[HEADER_BYTES..]
    }

    /// Changes a word of what concerns all items.
    fn state(&mut self, offset: usize, value: u64) {
        let (region, map) = self.heap.region();
        region.store(map.life() + offset, value, Ordering::Release);
    }

    /// Lets others find an item.
    fn list(&mut self, hash: u64, bytes: u32, at: At) {
        let (region, map) = self.heap.region();
        listing::add(region, map, hash, CacheEntry::new(hash, bytes as usize, at));
    }

    fn unlist(&mut self, hash: u64, at: At) {
        let (region, map) = self.heap.region();
        listing::remove(region, map, hash, at);
    }

    /// Bytes of the tables: this process's own, and the one that others read.
    fn tables_bytes(&self) -> usize {
        self.places.table_bytes() + self.heap.map().buckets_bytes()
    }

    fn item(&self, found: &Found) -> Item<'_> {
        let Found { at, header, .. } = found;
        Item {
            flags: header.flags,
            cas: header.cas,
            expires: header.expires,
            accessed: header.accessed,
            was_fetched: header.has(Header::FETCHED),
            is_stale: header.has(Header::STALE),
            is_won: header.has(Header::WON),
            value: &self.heap.bytes(*at, header.len())[HEADER_BYTES + header.key_bytes()..],
        }
    }

    /// The item of `key`, unless it has expired or was flushed; then it is removed.
    fn find(&mut self, key: &[u8], now: Seconds) -> Option<Found> {
        self.flush_if_due(now);
        let hash = self.hash(key);
        if self.goes_astray(key, hash) {
            return None;
        }
        let place = self.places.peek(hash)?;
        let at = *self.places.value_mut(place)?;
        let header = self.header(at);
        if self.key(at, &header) != key {
            return None;
        }
        if self.is_over(&header) {
            self.count_over(&header);
            self.forget(hash);
            return None;
        }
        Some(Found { hash, place, at, header })
    }

    /// The item that lies at a place of the heap, if there is one, and the bytes of the place.
    fn found_at(&self, at: At) -> Option<(Found, u32)> {
        let header = self.header(at);
        if !header.has(Header::LIVE) {
            return None;
        }
        let hash = self.hash(self.key(at, &header));
        let place = self.places.peek(hash)?;
        let (_, bytes) = self.places.value(hash).filter(|(found, _)| **found == at)?;
        Some((Found { hash, place, at, header }, bytes))
    }

    fn flush_if_due(&mut self, now: Seconds) {
        self.now = now;
        if self.flush_at != 0 && self.flush_at <= now {
            self.flush_at = 0;
            self.epoch = self.epoch.wrapping_add(1);
            if self.epoch == 0 {
                // So that no item is taken for one of a later epoch that has its number.
                while let Some(gone) = self.places.evict_one() {
                    self.free(gone.key, gone.value, gone.bytes);
                }
            }
            self.state_flush();
        }
    }

    /// Tells others which items were flushed, and from when on the others are.
    fn state_flush(&mut self) {
        self.state(offset_of!(CacheLife, flush), CacheLife::flush_word(self.epoch, self.flush_at));
    }

    /// Removes the item of a hash. False if there is none.
    fn forget(&mut self, hash: u64) -> bool {
        let Some(gone) = self.places.remove(hash) else { return false };
        self.free(hash, gone.value, gone.bytes);
        true
    }

    /// Takes an item from the others' sight, and frees its place.
    fn free(&mut self, hash: u64, at: At, bytes: u32) {
        let mut header = self.header(at);
        header.set(Header::LIVE, false);
        self.heap.withdraw(at, header.stamp);
        self.unlist(hash, at);
        self.heap.free(at, bytes as usize);
    }

    /// A place for an item of `len` bytes: that of the item before, if it has the right size.
    fn place(&mut self, hash: u64, len: usize) -> Result<Placed, PutError> {
        if let Some((at, bytes)) = self.places.get_value(hash) {
            let bytes = bytes as usize;
            if self.heap.suits(bytes, len) {
                return Ok(Placed { at, unlisted: None });
            }
        }
        let (at, taken) = self.make_room(len).ok_or(PutError::NoMemory)?;
        let taken = taken as u32;
        self.forget(hash);
        let mut evicted = Vec::new();
        let place = self.places.insert(hash, taken, at, |gone| evicted.push(gone));
        evicted.iter().for_each(|gone| self.evict(gone));
        if place.is_none() {
            self.heap.free(at, taken as usize);
            return Err(PutError::NoMemory);
        }
        Ok(Placed { at, unlisted: Some(taken) })
    }

    /// Room in the heap, and its bytes: by evicting what was used least, or else by clearing what costs least.
    fn make_room(&mut self, len: usize) -> Option<(At, usize)> {
        if !self.settings.evicts {
            return self.heap.allocate(len);
        }
        for victims in 0..VICTIMS_MAX {
            if let Some(room) = self.heap.allocate(len) {
                return Some(room);
            }
            if victims % VICTIMS_BEFORE_CLEARING == VICTIMS_BEFORE_CLEARING - 1
                && let Some(pages) = self.heap.half_free(len)
            {
                self.clear(pages);
                continue;
            }
            let Some(gone) = self.places.evict_one() else { break };
            self.evict(&gone);
        }
        // Each round frees a page that is in use, until none is. The first that are cleared may be unused ones, of which the
        // tables leave too few.
        while self.heap.bytes_used() > 0 {
            self.clear(self.heap.cheapest(len));
            if let Some(room) = self.heap.allocate(len) {
                return Some(room);
            }
            self.clear(self.heap.cheapest(0));
        }
        None
    }

    /// What the tables have grown to take, the pages may not.
    fn bound_pages(&mut self) {
        // Many small items leave tables that a few large ones do not need.
        if self.is_sparse() && self.places.table_bytes() > self.settings.memory_bytes / SPARSE_PART {
            self.places.compact();
        }
        let tables = self.tables_bytes();
        self.heap.set_bytes_max(self.settings.memory_bytes.saturating_sub(tables));
        while self.settings.evicts && self.heap.is_over() {
            self.clear(self.heap.cheapest(0));
        }
    }

    fn is_sparse(&self) -> bool {
        let (used, free) = self.places.slots();
        let part = if used + free > QUICK_SLOTS_MAX { 2 } else { SPARE_PART };
        free > (used + free) / part
    }

    fn evict(&mut self, gone: &Gone<At>) {
        let header = self.header(gone.value);
        if self.is_over(&header) {
            self.count_over(&header);
        } else {
            self.counts.evicted += 1;
            self.counts.evicted_unfetched += u64::from(!header.has(Header::FETCHED));
        }
        self.free(gone.key, gone.value, gone.bytes);
    }

    /// Clears pages: moves their items to other pages where these have room, and evicts the others.
    fn clear(&mut self, pages: Range<usize>) {
        self.counts.pages_cleared += pages.len() as u64;
        for at in self.heap.places(pages) {
            let Some((Found { hash, header, .. }, bytes)) = self.found_at(at) else { continue };
            // Else a sweep that has passed would not come by it again.
            if self.strewn > 0 && self.is_stray(self.key(at, &header)) {
                self.forget(hash);
                continue;
            }
            match self.heap.elsewhere(at, bytes as usize) {
                Some(to) => self.relocate(hash, (at, &header), to, bytes),
                None => {
                    if let Some(gone) = self.places.remove(hash) {
                        self.evict(&gone);
                    }
                }
            }
        }
    }

    /// Moves an item to another place. Others see it at neither in between.
    fn relocate(&mut self, hash: u64, (from, header): (At, &Header), to: At, bytes: u32) {
        let old = self.heap.word(to, 0);
        let stamp = Header::begun(old, header.epoch(), header.key_bytes() as u8);
        self.heap.withdraw(to, stamp);
        self.heap.copy(from, to, self.heap.map().with_check(header.len()));
        self.change_check(to, header, &Header { stamp, ..*header });
        self.free(hash, from, bytes);
        self.heap.publish(to, stamp | header.stamp & u64::from(u8::MAX));
        self.list(hash, bytes, to);
        self.places.replace(hash, bytes, to);
    }

    /// Whether another process has taken away the memory that others read. The cache is then of no use to them.
    pub fn is_lost(&self) -> bool {
        self.heap.is_lost()
    }

    /// Counts a fetch of the item whose key has this hash by someone who has read its memory.
    pub fn was_read(&mut self, hash: u64) {
        let Some(place) = self.places.peek(hash) else { return };
        let Some(at) = self.places.value_mut(place).copied() else { return };
        self.places.touch(place);
        let mut header = self.header(at);
        header.set(Header::FETCHED, true);
        self.heap.publish(at, header.stamp);
    }

    /// States to the cache with this number that an item of its was read, whose key has this hash there.
    pub fn state_read(&mut self, cache: usize, hash: u64) {
        let (region, map) = self.heap.region();
        let number = region.load(map.reads(cache));
        region.store(map.read(cache, number), hash, Ordering::Relaxed);
        region.store(map.reads(cache), number + 1, Ordering::Release);
    }
}

/// The hash of keys with a secret.
pub(crate) fn hasher(seed: [u64; 2]) -> SipHasher13 {
    SipHasher13::new_with_keys(seed[0], seed[1])
}

/// That hash of a key.
#[inline]
pub(crate) fn hashed(mut hasher: SipHasher13, key: &[u8]) -> u64 {
    hasher.write(key);
    hasher.finish()
}
