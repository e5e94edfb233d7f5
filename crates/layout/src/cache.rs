//! What a cache exposes to the others of its cluster: its items, where they lie, and which of the others' items it has read.
//!
//! Its own CPU changes all of it, and the others only read. An item begins with a [`CacheItem`], whose stamp is changed before
//! and after all else. So who reads the item, and then its stamp again, knows whether the bytes are of one value. A place may
//! also have been given to items of other sizes meanwhile, so that what lay there was no stamp; then
//! [`CacheLife::generation`] has changed.
//!
//! That takes reads in order, and a clock that both have. Where devices of other machines read ([`CacheMap::remote`]), each item
//! ends with a check of its bytes, and the cache states how old it is.

use bytemuck::{Pod, Zeroable};

use crate::{HEADER_BYTES, LINE_BYTES};

/// Words of a bucket.
pub const CACHE_BUCKET: usize = LINE_BYTES / 8;
/// Items begin at multiples of this, in bytes.
pub const CACHE_UNIT: usize = 16;
/// Reads that a cache states to each of the others before it overwrites the oldest.
pub const CACHE_READS: usize = 1 << 12;
/// Bytes of the statement to one of them: a count, and the hashes of the last keys.
const LANE_BYTES: usize = LINE_BYTES + CACHE_READS * 8;
/// The part of a cache's memory for buckets: a word for each 128 bytes.
const BUCKETS_PART: usize = 16;

/// Where everything is in a cache's region: `header, life, a lane for each cache, buckets, items`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheMap {
    caches: usize,
    buckets: usize,
    items_bytes: usize,
    is_remote: bool,
}

impl CacheMap {
    /// Of a cache with so many bytes for buckets and items, one of `caches`. Of none, it has no buckets either.
    pub const fn new(memory_bytes: usize, caches: usize) -> Self {
        let buckets = if caches == 0 { 0 } else { memory_bytes / BUCKETS_PART / LINE_BYTES };
        CacheMap { caches, buckets, items_bytes: memory_bytes - buckets * LINE_BYTES, is_remote: false }
    }

    /// A region for a cache whose memory devices of other machines read.
    pub const fn remote(self) -> Self {
        CacheMap { is_remote: true, ..self }
    }

    /// Whether devices of other machines read it.
    pub const fn is_remote(self) -> bool {
        self.is_remote
    }

    /// Where the check of an item of `len` bytes is, in bytes from its begin on; `None` if items have none.
    pub const fn check(self, len: usize) -> Option<usize> {
        if self.is_remote { Some(len.next_multiple_of(8)) } else { None }
    }

    /// Bytes of an item of `len` bytes with its check, if it has one.
    pub const fn with_check(self, len: usize) -> usize {
        match self.check(len) {
            Some(at) => at + 8,
            None => len,
        }
    }

    /// The [`CacheLife`].
    pub const fn life(self) -> usize {
        HEADER_BYTES
    }

    /// The number of reads of `cache`'s items. The hashes of their keys follow from [`CacheMap::read`] on.
    pub const fn reads(self, cache: usize) -> usize {
        assert!(cache < self.caches, "a cache of the cluster");
        HEADER_BYTES + LINE_BYTES + cache * LANE_BYTES
    }

    /// The hash of the key of the read with a number, which the read [`CACHE_READS`] later overwrites.
    pub const fn read(self, cache: usize, number: u64) -> usize {
        self.reads(cache) + LINE_BYTES + number as usize % CACHE_READS * 8
    }

    /// The two buckets in which an item may be listed whose key has this hash.
    pub fn buckets(self, hash: u64) -> [usize; 2] {
        let first = HEADER_BYTES + LINE_BYTES + self.caches * LANE_BYTES;
        let bucket = |half: u64| first + ((half * self.buckets as u64) >> 32) as usize * LINE_BYTES;
        [bucket(hash & u64::from(u32::MAX)), bucket(hash >> 32)]
    }

    /// Bytes of all buckets.
    pub const fn buckets_bytes(self) -> usize {
        self.buckets * LINE_BYTES
    }

    /// The first item's place.
    pub const fn items(self) -> usize {
        HEADER_BYTES + LINE_BYTES + self.caches * LANE_BYTES + self.buckets * LINE_BYTES
    }

    /// Bytes for items.
    pub const fn items_bytes(self) -> usize {
        self.items_bytes
    }

    /// Length of the region: whole MiB, as large regions must have.
    pub const fn len(self) -> usize {
        (self.items() + self.items_bytes).next_multiple_of(1 << 20)
    }

    /// Whether there is no room for items.
    pub const fn is_empty(self) -> bool {
        self.items_bytes == 0
    }
}

/// What concerns all items of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheLife {
    /// `flush_at:32 epoch:16`: items of other epochs are gone, and those of this one from that second on; 0 for never.
    pub flush: u64,
    /// When its second 0 was, in nanoseconds of the machine's monotonic clock.
    pub began_ns: u64,
    /// Rises before a place is given to an item of another size.
    pub generation: u64,
    /// Secret of its keys' hash.
    pub seed: [u64; 2],
    /// Time since its second 0, in nanoseconds, as of its last tick. It tells the time where clocks are not shared.
    pub age_ns: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

impl CacheLife {
    /// The `flush` word.
    pub const fn flush_word(epoch: u16, flush_at: u32) -> u64 {
        (epoch as u64) | (flush_at as u64) << 16
    }

    /// The epoch, and the second of the next flush.
    pub const fn epoch(&self) -> (u16, u32) {
        (self.flush as u16, (self.flush >> 16) as u32)
    }
}

/// A word of a bucket: where an item lies whose key has a hash. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheEntry(pub u64);

impl CacheEntry {
    /// Of an item of `bytes` at `at`, in units of [`CACHE_UNIT`] from the first place on.
    pub const fn new(hash: u64, bytes: usize, at: u32) -> Self {
        let units = bytes.div_ceil(CACHE_UNIT);
        let units = if units > u16::MAX as usize { u16::MAX as u64 } else { units as u64 };
        CacheEntry(CacheEntry::tag(hash) << 48 | units << 32 | at as u64)
    }

    /// The part of a hash that no bucket's number depends on much.
    const fn tag(hash: u64) -> u64 {
        (hash ^ hash >> 32) & 0xffff
    }

    /// Whether it may be of a key with that hash.
    pub const fn may_be(self, hash: u64) -> bool {
        self.0 != 0 && self.0 >> 48 == CacheEntry::tag(hash)
    }

    /// Where the item lies, in units.
    pub const fn at(self) -> u32 {
        self.0 as u32
    }

    /// Its bytes, rounded up to whole units; `None` if it is too long to say.
    pub const fn bytes(self) -> Option<usize> {
        match (self.0 >> 32) as u16 {
            u16::MAX => None,
            units => Some(units as usize * CACHE_UNIT),
        }
    }
}

/// What an item begins with. Its key and value follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheItem {
    /// `generation:32 epoch:16 key bytes:8 marks:8`.
    pub stamp: u64,
    /// Unique number of the value.
    pub cas: u64,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires, in seconds since the cache began; 0 for never.
    pub expires: u32,
    /// When it was last fetched, or else stored.
    pub accessed: u32,
}

/// Bytes of a [`CacheItem`].
pub const CACHE_ITEM_BYTES: usize = size_of::<CacheItem>();

impl CacheItem {
    /// A value is there, and whole.
    pub const LIVE: u8 = 1;
    /// It was fetched.
    pub const FETCHED: u8 = 2;
    /// It is stale (meta delete with I).
    pub const STALE: u8 = 4;
    /// A client was told that it may replace it.
    pub const WON: u8 = 8;

    /// The stamp of the next value at a place that has the stamp `old`, not live yet.
    pub const fn begun(old: u64, epoch: u16, key_bytes: u8) -> u64 {
        let generation = (old >> 32).wrapping_add(1) << 32;
        generation | (epoch as u64) << 16 | (key_bytes as u64) << 8
    }

    /// Whether a mark is set.
    pub const fn has(&self, mark: u8) -> bool {
        self.stamp as u8 & mark != 0
    }

    /// Sets a mark or takes it away.
    pub const fn set(&mut self, mark: u8, is_set: bool) {
        self.stamp = self.stamp & !(mark as u64) | if is_set { mark as u64 } else { 0 };
    }

    /// The epoch in which it was stored.
    pub const fn epoch(&self) -> u16 {
        (self.stamp >> 16) as u16
    }

    /// Bytes of its key.
    pub const fn key_bytes(&self) -> usize {
        (self.stamp >> 8) as u8 as usize
    }

    /// Bytes in all.
    pub const fn len(&self) -> usize {
        CACHE_ITEM_BYTES + self.key_bytes() + self.value_bytes as usize
    }

    /// Whether it has neither key nor value, which no item has.
    pub const fn is_empty(&self) -> bool {
        self.len() == CACHE_ITEM_BYTES
    }

    /// Whether a stamp that was read after the item is still that of one whole value.
    pub const fn is_whole(&self, again: u64) -> bool {
        let marks = (CacheItem::FETCHED | CacheItem::STALE | CacheItem::WON) as u64;
        self.has(CacheItem::LIVE) && self.stamp & !marks == again & !marks
    }
}

/// What a document begins with, in the value of its item. The lines of its head follow, then its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheDocument {
    /// When it was last known to be current, in nanoseconds of the machine's monotonic clock.
    pub checked_ns: u64,
    /// For how long from then on it may be answered with, in nanoseconds.
    pub fresh_ns: u64,
    /// Bytes of its head.
    pub head_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of a [`CacheDocument`].
pub const CACHE_DOCUMENT_BYTES: usize = size_of::<CacheDocument>();

const _: () = {
    assert!(CACHE_DOCUMENT_BYTES == 24);
    assert!(size_of::<CacheLife>() == LINE_BYTES && CACHE_ITEM_BYTES == 32);
    let map = CacheMap::new(64 << 20, 3);
    assert!(map.items().is_multiple_of(LINE_BYTES) && map.reads(2) == 128 + 2 * (64 + 8 * 4096));
    assert!(CacheMap::new(8 << 20, 0).items() == 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_between_lanes_and_items() {
        let map = CacheMap::new(8 << 20, 2);
        for hash in [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 63, 0x1234_5678_9abc_def0] {
            for bucket in map.buckets(hash) {
                assert!(
                    bucket >= map.read(1, CACHE_READS as u64 - 1) + 8 && bucket + LINE_BYTES <= map.items()
                );
            }
        }
        assert_eq!(map.buckets_bytes() + map.items_bytes(), 8 << 20);
        assert!(map.len() >= map.items() + map.items_bytes());
        assert_eq!([map, map.remote()].map(|map| map.with_check(41)), [41, 56]);
    }

    #[test]
    fn an_entry_says_what_it_was_made_of() {
        let entry = CacheEntry::new(0xabcd_0000_0000_0001, 100, 77);
        assert_eq!((entry.at(), entry.bytes()), (77, Some(112)));
        assert!(entry.may_be(0xabcd_0000_0000_0001) && !entry.may_be(2) && !CacheEntry(0).may_be(0));
        assert_eq!(CacheEntry::new(1, 2 << 20, 0).bytes(), None);
    }

    #[test]
    fn a_value_is_whole_if_its_stamp_has_not_changed_but_for_marks() {
        let mut item = CacheItem { stamp: CacheItem::begun(u64::MAX, 7, 250), ..CacheItem::default() };
        assert!(!item.is_whole(item.stamp), "not live");
        item.set(CacheItem::LIVE, true);
        assert_eq!((item.epoch(), item.key_bytes()), (7, 250));
        let mut later = item;
        later.set(CacheItem::FETCHED, true);
        assert!(item.is_whole(later.stamp));
        assert!(!item.is_whole(CacheItem::begun(item.stamp, 7, 250) | 1));
        later.set(CacheItem::LIVE, false);
        assert!(!item.is_whole(later.stamp));
    }
}
