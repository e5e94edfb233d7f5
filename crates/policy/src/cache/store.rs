//! Objects in memory up to a number of bytes, and which of them are evicted for a new one.
//!
//! It holds data about the objects, not their bytes; the owner frees those when it is told that an object is gone. An
//! object stays in one slot as long as it is there. A reused slot has another generation, so a [`Place`] always names
//! one object, and [`Store::holds`] tells whether that is still there.
//!
//! An object takes 24 bytes and those of its value, at most 11 to 14 more in the index, and under LRU 4 to 8 in the
//! log.

mod index;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::slice;

use index::Index;
use prefetch_index::prefetch_index;
use sidelong_layout::vocabulary;
use slot::{MARK_MAX, NIL, Slot};

use crate::SettingsError;

vocabulary! {
    /// Which object is evicted.
    ///
    /// The rules are those of libCacheSim 0.3.5 to the request, so that miss ratios can be compared with published ones;
    /// a test of `sidelong-sim` compares both.
    Eviction {
        /// The least recently used one (the "cache replacement" of Gu and Wang 2004).
        #[default]
        Lru = "lru",
        /// Y. Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024. A hand moves from the oldest
        /// object to the newest and around. An object accessed since the last pass stays and loses its mark; the first one
        /// without a mark is evicted.
        Sieve = "sieve",
        /// J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. A tenth of the bytes is for
        /// newcomers. A newcomer accessed twice more enters the main queue; the others are evicted and remembered. A
        /// remembered object that returns soon enters the main queue at once. There, an accessed object goes around again,
        /// up to three times.
        S3Fifo = "s3-fifo",
    }
}

/// The capacity of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Most bytes of all objects.
    pub bytes_max: u64,
    /// Most objects, however small.
    pub entries_max: u32,
}

impl Room {
    /// Room for `bytes_max` bytes, and as many objects as slots can be numbered.
    pub const fn bytes(bytes_max: u64) -> Self {
        Room { bytes_max, entries_max: ENTRIES_MAX }
    }

    /// Room for `entries_max` objects of one byte each.
    pub const fn entries(entries_max: u32) -> Self {
        Room { bytes_max: entries_max as u64, entries_max }
    }

    /// Checks the capacity.
    ///
    /// # Errors
    /// If there is room for nothing, or for more than can be numbered.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::if_zero("bytes_max", self.bytes_max == 0)?;
        SettingsError::if_zero("entries_max", self.entries_max == 0)?;
        if self.entries_max > ENTRIES_MAX {
            let (found, max) = (self.entries_max as usize, ENTRIES_MAX as usize);
            return Err(SettingsError::TooMany { what: "entries of a store", found, max });
        }
        Ok(())
    }
}

/// Most objects of one store.
pub const ENTRIES_MAX: u32 = 1 << 28;

/// Names one object's stay in a slot. A reader on another node is given it, and the bytes there carry it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// The slot.
    pub slot: u32,
    /// The number of objects that were in the slot before.
    pub generation: u32,
}

/// An object that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone<V> {
    /// Its key.
    pub key: u64,
    /// Its former place.
    pub place: Place,
    /// Its bytes.
    pub bytes: u32,
    /// Its value.
    pub value: V,
}

/// Objects by key.
#[derive(Clone, Debug)]
pub struct Store<V> {
    eviction: Eviction,
    room: Room,
    index: Index,
    slots: Vec<Slot<V>>,
    /// The first free slot.
    free: u32,
    queues: [Queue; 3],
    /// LRU: accesses in order. An object counts by its last entry, and its slot counts its entries. Slots count only
    /// once something was evicted; until then a hit reads no slot.
    log: VecDeque<u32>,
    /// SIEVE's hand: the next object to examine, if any.
    hand: u32,
    /// Whether anything was evicted yet. Until then S3-FIFO's newcomers may fill the main queue, and LRU counts
    /// nothing.
    has_evicted: bool,
}

/// The queues. LRU and SIEVE use one.
const MAIN: u8 = 0;
const SMALL: u8 = 1;
const GHOST: u8 = 2;
const FREE: u8 = 3;

/// S3-FIFO's part of the bytes for newcomers.
const SMALL_PART: f64 = 0.1;
/// S3-FIFO's part of the bytes for remembered objects.
const GHOST_PART: f64 = 0.9;
/// Accesses after which a newcomer enters the main queue.
const PROMOTED_AT: u8 = 2;
/// Most rounds of an object in the main queue.
const ROUNDS_MAX: u8 = MARK_MAX;
/// LRU: with about this many log entries for each object, the log is compacted.
const LOG_PART: usize = 2;
const LOG_SLACK: usize = 64;
/// Number of its entries that are prefetched.
const LOG_AHEAD: usize = 6;
/// Slots are allocated at least this many at a time.
const SLOTS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: u32,
    bytes: u64,
}

const EMPTY: Queue = Queue { newest: NIL, oldest: NIL, len: 0, bytes: 0 };

impl<V: Copy> Store<V> {
    /// An empty store.
    ///
    /// # Panics
    /// If `room` does not pass [`Room::check`].
    pub fn new(eviction: Eviction, room: Room) -> Self {
        assert!(room.check().is_ok(), "a store has room for something");
        Store {
            eviction,
            room,
            index: Index::new(),
            slots: Vec::new(),
            free: NIL,
            queues: [EMPTY; 3],
            log: VecDeque::new(),
            hand: NIL,
            has_evicted: false,
        }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        (self.queues[usize::from(MAIN)].len + self.queues[usize::from(SMALL)].len) as usize
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the objects.
    pub fn bytes(&self) -> u64 {
        self.queues[usize::from(MAIN)].bytes + self.queues[usize::from(SMALL)].bytes
    }

    /// Bytes of memory that its own tables use.
    pub fn table_bytes(&self) -> usize {
        self.index.bytes() + self.slots.len() * size_of::<Slot<V>>() + self.log.len() * size_of::<u32>()
    }

    /// An object's place, if it is there. Counts as an access.
    #[inline]
    pub fn get(&mut self, key: u64) -> Option<Place> {
        let slot = self.find(key)?;
        self.ask(slot);
        Some(self.place(slot))
    }

    /// An object's value and size, if it is there. Counts as an access.
    #[inline]
    pub fn get_value(&mut self, key: u64) -> Option<(V, u32)> {
        let slot = self.find(key)?;
        self.ask(slot);
        let Slot { value, bytes, .. } = self.slots[slot as usize];
        Some((value, bytes))
    }

    /// An object's place, if it is there. Does not count as an access.
    #[inline]
    pub fn peek(&self, key: u64) -> Option<Place> {
        self.find(key).map(|slot| self.place(slot))
    }

    /// Whether `place` still holds its object, and that is `key`.
    #[inline]
    pub fn holds(&self, place: Place, key: u64) -> bool {
        self.slots.get(place.slot as usize).is_some_and(|slot| {
            slot.generation == place.generation && slot.key == key && is_present(slot.queue())
        })
    }

    /// Counts as an access to the object at `place`, if it is still there.
    pub fn touch(&mut self, place: Place) {
        let slot = self.slots.get(place.slot as usize);
        if slot.is_some_and(|slot| slot.generation == place.generation && is_present(slot.queue())) {
            self.ask(place.slot);
        }
    }

    /// The value of the object at `place`, if it is still there.
    #[inline]
    pub fn value_mut(&mut self, place: Place) -> Option<&mut V> {
        let slot = self.slots.get_mut(place.slot as usize)?;
        (slot.generation == place.generation && is_present(slot.queue())).then_some(&mut slot.value)
    }

    /// An object's value and size, if it is there. Does not count as an access.
    pub fn value(&self, key: u64) -> Option<(&V, u32)> {
        let slot = &self.slots[self.find(key)? as usize];
        Some((&slot.value, slot.bytes))
    }

    /// Replaces an object's value and size, if it is there. If it has grown, the next insertion makes room.
    pub fn replace(&mut self, key: u64, bytes: u32, value: V) -> bool {
        let Some(slot) = self.find(key) else { return false };
        let slot = &mut self.slots[slot as usize];
        let all = &mut self.queues[usize::from(slot.queue())].bytes;
        *all = *all - u64::from(slot.bytes) + u64::from(bytes);
        (slot.bytes, slot.value) = (bytes, value);
        true
    }

    /// Inserts an object that is not there, and reports each that is evicted for it. `None` if it is too large.
    ///
    /// # Panics
    /// If it is there.
    pub fn insert(&mut self, key: u64, bytes: u32, value: V, mut gone: impl FnMut(Gone<V>)) -> Option<Place> {
        let (mut is_known, mut queue) = (false, MAIN);
        if self.eviction == Eviction::S3Fifo {
            if let Some(ghost) = self.index.find(key, |slot| self.slots[slot as usize].key == key) {
                assert_eq!(self.slots[ghost as usize].queue(), GHOST, "the object is there");
                self.release(ghost);
                is_known = true;
            }
            if u64::from(bytes) > self.small_max() {
                return None;
            }
            queue = SMALL;
        }
        if u64::from(bytes) > self.room.bytes_max {
            return None;
        }
        while self.bytes() + u64::from(bytes) > self.room.bytes_max
            || self.len() >= self.room.entries_max as usize
        {
            self.evict(&mut gone);
        }
        if queue == SMALL {
            // Rules of libCacheSim that only corner cases meet: an object as large as the newcomers' part does not fit
            // in it, and until the first eviction newcomers may overflow into the main queue.
            let (small_max, small) = (self.small_max(), self.queues[usize::from(SMALL)].bytes);
            if is_known || (!self.has_evicted && small >= small_max && u64::from(bytes) < small_max) {
                queue = MAIN;
            } else if u64::from(bytes) >= small_max {
                return None;
            }
        }
        Some(self.occupy(key, bytes, value, queue))
    }

    /// Evicts one object, if there is any.
    pub fn evict_one(&mut self) -> Option<Gone<V>> {
        let mut evicted = None;
        while evicted.is_none() && !self.is_empty() {
            self.evict(&mut |gone| evicted = Some(gone));
        }
        evicted
    }

    /// Slots in use, of which S3-FIFO's memory of evicted objects has some, and free ones.
    pub fn slots(&self) -> (usize, usize) {
        let used = self.queues.iter().map(|queue| queue.len as usize).sum();
        (used, self.slots.len() - used)
    }

    /// Gives back the memory of free slots. No [`Place`] from before may be used again. What would be evicted next stays the
    /// same.
    pub fn compact(&mut self) {
        let mut compact = Store::new(self.eviction, self.room);
        if !std::mem::replace(&mut self.has_evicted, true) && self.eviction == Eviction::Lru {
            self.count_log();
        }
        compact.has_evicted = true;
        let mut keep = |slot: u32, queue: u8, of: &Self| {
            let Slot { key, bytes, value, .. } = of.slots[slot as usize];
            let place = compact.occupy(key, bytes, value, queue);
            compact.slots[place.slot as usize].set_mark(of.slots[slot as usize].mark());
            if of.hand == slot {
                compact.hand = place.slot;
            }
        };
        if self.eviction == Eviction::Lru {
            while !self.log.is_empty() {
                if let Some(slot) = self.next_of_log() {
                    keep(slot, MAIN, self);
                }
            }
        } else {
            for queue in [MAIN, SMALL, GHOST] {
                let mut slot = self.queues[usize::from(queue)].oldest;
                while slot != NIL {
                    keep(slot, queue, self);
                    slot = self.slots[slot as usize].newer();
                }
            }
        }
        *self = compact;
    }

    /// Removes an object.
    pub fn remove(&mut self, key: u64) -> Option<Gone<V>> {
        let slot = self.find(key)?;
        let gone = self.gone(slot);
        self.release(slot);
        Some(gone)
    }

    /// Prefetches what a [`Store::get`] of `key` reads first into the CPU's cache. It changes nothing; call it early
    /// for keys that will be accessed soon.
    #[inline]
    pub fn warm_index(&self, key: u64) {
        self.index.warm(key);
    }

    /// Some time after [`Store::warm_index`], prefetches the object's slot, if it has one.
    #[inline]
    pub fn warm_slot(&self, key: u64) -> bool {
        let slot = self.index.first(key);
        slot.inspect(|slot| prefetch_index(&self.slots, *slot as usize)).is_some()
    }

    /// Prefetches for a [`Store::get`] that only asks whether the object is there.
    #[inline]
    pub fn warm_hit(&self, key: u64) -> bool {
        let needs_no_slot = self.eviction == Eviction::Lru && !self.has_evicted && self.index.is_direct();
        if needs_no_slot { self.index.first(key).is_some() } else { self.warm_slot(key) }
    }

    /// Prefetches for a [`Store::holds`].
    #[inline]
    pub fn warm_place(&self, place: Place) {
        prefetch_index(&self.slots, place.slot as usize);
    }

    /// Prefetches for a [`Store::insert`] in three steps: the place of `key` in the index, and the log; the new slot,
    /// and those of the next evictions; and the places of these in the index.
    #[inline]
    pub fn warm_insert(&self, key: u64, step: u32) {
        match step {
            0 => {
                self.index.warm(key);
                prefetch_index(self.log.as_slices().0, 0);
            }
            1 => {
                let slot = if self.free == NIL { self.slots.len() } else { self.free as usize };
                prefetch_index(&self.slots, slot);
                self.next_to_go().for_each(|slot| prefetch_index(&self.slots, *slot as usize));
            }
            _ => {
                let slots = self.next_to_go().filter_map(|slot| self.slots.get(*slot as usize));
                slots.for_each(|slot| self.index.warm(slot.key));
            }
        }
    }

    /// Prefetches for a [`Store::remove`] of a recently accessed object: its neighbours.
    #[inline]
    pub fn warm_remove(&self, key: u64) {
        if let Some(slot) = self.index.first(key).and_then(|slot| self.slots.get(slot as usize)) {
            prefetch_index(&self.slots, slot.newer() as usize);
            prefetch_index(&self.slots, slot.older() as usize);
        }
    }

    /// The next objects to be evicted, as far as is known without reading them.
    #[inline]
    fn next_to_go(&self) -> impl Iterator<Item = &u32> {
        let next = match self.eviction {
            _ if !self.has_evicted => &[],
            // The first entry may not be its object's last.
            Eviction::Lru => self.log.as_slices().0,
            _ if self.hand != NIL => slice::from_ref(&self.hand),
            _ => slice::from_ref(&self.queues[MAIN as usize].oldest),
        };
        next.iter().take(LOG_AHEAD)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        let slot = self.index.find(key, |slot| self.slots[slot as usize].key == key)?;
        // Only ghosts have a key and are not there.
        let is_there = self.eviction != Eviction::S3Fifo || is_present(self.slots[slot as usize].queue());
        is_there.then_some(slot)
    }

    #[inline]
    fn place(&self, slot: u32) -> Place {
        Place { slot, generation: self.slots[slot as usize].generation }
    }

    fn gone(&self, slot: u32) -> Gone<V> {
        let Slot { key, bytes, value, .. } = self.slots[slot as usize];
        Gone { key, place: self.place(slot), bytes, value }
    }

    fn small_max(&self) -> u64 {
        (self.room.bytes_max as f64 * SMALL_PART) as u64
    }

    #[inline]
    fn ask(&mut self, slot: u32) {
        match self.eviction {
            Eviction::Lru => {
                if self.log.back() != Some(&slot) {
                    self.note(slot);
                }
            }
            Eviction::Sieve => self.slots[slot as usize].set_mark(1),
            Eviction::S3Fifo => {
                let slot = &mut self.slots[slot as usize];
                slot.set_mark(slot.mark() + 1);
            }
        }
    }

    /// LRU: records an access.
    #[inline]
    fn note(&mut self, slot: u32) {
        if self.log.len() == self.log.capacity() {
            self.make_room_in_log();
        }
        self.log.push_back(slot);
        if self.has_evicted {
            self.slots[slot as usize].count();
        }
    }

    /// LRU: counts the entries of each object.
    fn count_log(&mut self) {
        self.log.iter().for_each(|slot| self.slots[*slot as usize].count());
    }

    /// LRU: removes the next entry of the log, and returns its slot if it was the object's last.
    #[inline]
    fn next_of_log(&mut self) -> Option<u32> {
        let index = self.log.pop_front()?;
        let slot = &mut self.slots[index as usize];
        slot.set_newer(slot.newer() - 1);
        (slot.newer() == 0 && is_present(slot.queue())).then_some(index)
    }

    /// LRU: compacts the log to one entry an object, unless most entries would remain.
    #[inline(never)]
    fn make_room_in_log(&mut self) {
        if self.log.len() < LOG_PART * self.len() + LOG_SLACK {
            self.log.reserve_exact(LOG_SLACK.max(self.len() / 2));
            return;
        }
        if !self.has_evicted {
            self.count_log();
        }
        let log = self.log.make_contiguous();
        let mut kept = 0;
        for at in 0..log.len() {
            let index = log[at];
            let slot = &mut self.slots[index as usize];
            let is_last = slot.newer() == 1 && is_present(slot.queue());
            // Without a branch, which would be unpredictable.
            slot.set_newer(slot.newer() - u32::from(!is_last || !self.has_evicted));
            log[kept] = index;
            kept += usize::from(is_last);
        }
        self.log.truncate(kept);
    }

    /// Evicts one object, or moves several to the main queue.
    fn evict(&mut self, gone: &mut impl FnMut(Gone<V>)) {
        let is_first = !std::mem::replace(&mut self.has_evicted, true);
        match self.eviction {
            Eviction::Lru => {
                if is_first {
                    self.count_log();
                }
                while !self.log.is_empty() {
                    if let Some(slot) = self.next_of_log() {
                        return self.let_go(slot, gone);
                    }
                }
            }
            Eviction::Sieve => self.evict_sieve(gone),
            Eviction::S3Fifo => self.evict_s3(gone),
        }
    }

    fn let_go(&mut self, slot: u32, gone: &mut impl FnMut(Gone<V>)) {
        gone(self.gone(slot));
        self.release(slot);
    }

    fn evict_sieve(&mut self, gone: &mut impl FnMut(Gone<V>)) {
        let oldest = self.queues[usize::from(MAIN)].oldest;
        let mut slot = if self.hand == NIL { oldest } else { self.hand };
        while self.slots[slot as usize].mark() > 0 {
            self.slots[slot as usize].set_mark(0);
            let newer = self.slots[slot as usize].newer();
            slot = if newer == NIL { oldest } else { newer };
        }
        self.hand = self.slots[slot as usize].newer();
        self.let_go(slot, gone);
    }

    fn evict_s3(&mut self, gone: &mut impl FnMut(Gone<V>)) {
        let main_max = self.room.bytes_max - self.small_max();
        let [main, small, _] = self.queues;
        if main.bytes > main_max || small.len == 0 {
            let slot = loop {
                let slot = self.queues[usize::from(MAIN)].oldest;
                let mark = self.slots[slot as usize].mark();
                if mark == 0 {
                    break slot;
                }
                self.unlink(slot);
                self.link(slot, MAIN);
                self.slots[slot as usize].set_mark(mark.min(ROUNDS_MAX) - 1);
            };
            self.let_go(slot, gone);
            return;
        }
        while self.queues[usize::from(SMALL)].len > 0 {
            let slot = self.queues[usize::from(SMALL)].oldest;
            if self.slots[slot as usize].mark() < PROMOTED_AT {
                gone(self.gone(slot));
                self.remember(slot);
                return;
            }
            self.unlink(slot);
            self.link(slot, MAIN);
            self.slots[slot as usize].set_mark(0);
        }
    }

    /// Turns an object into a ghost: its key is known, but it is not there, and its place is void.
    fn remember(&mut self, slot: u32) {
        let ghost_max = (self.room.bytes_max as f64 * GHOST_PART) as u64;
        let bytes = u64::from(self.slots[slot as usize].bytes);
        if bytes > ghost_max {
            return self.release(slot);
        }
        let entries_max = self.room.entries_max;
        let is_full =
            |ghosts: Queue| ghosts.len > 0 && (ghosts.bytes + bytes > ghost_max || ghosts.len >= entries_max);
        while is_full(self.queues[usize::from(GHOST)]) {
            self.release(self.queues[usize::from(GHOST)].oldest);
        }
        self.unlink(slot);
        self.link(slot, GHOST);
        let slot = &mut self.slots[slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    fn occupy(&mut self, key: u64, bytes: u32, value: V, queue: u8) -> Place {
        let index = match self.free {
            NIL => {
                if self.slots.len() == self.slots.capacity() {
                    // Grows by a quarter rather than doubling, because most of a store's memory is here.
                    self.slots.reserve_exact(SLOTS_MIN.max(self.slots.len() / 4));
                }
                self.slots.push(Slot::new(key, bytes, value));
                self.slots.len() as u32 - 1
            }
            index => {
                let slot = &mut self.slots[index as usize];
                self.free = slot.older();
                (slot.key, slot.bytes, slot.value) = (key, bytes, value);
                slot.set_mark(0);
                index
            }
        };
        self.link(index, queue);
        let slots = &self.slots;
        self.index.insert(key, index, |slot| slots[slot as usize].key);
        self.place(index)
    }

    /// Frees a slot: its places are void from now on.
    fn release(&mut self, slot: u32) {
        if self.hand == slot {
            self.hand = self.slots[slot as usize].newer();
        }
        self.unlink(slot);
        self.index.remove(self.slots[slot as usize].key, slot);
        let free = std::mem::replace(&mut self.free, slot);
        let slot = &mut self.slots[slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.set_older(free);
        slot.set_queue(FREE);
    }

    /// Adds a slot at the newest end of a queue.
    #[inline]
    fn link(&mut self, slot: u32, to: u8) {
        let queue = &mut self.queues[usize::from(to)];
        queue.len += 1;
        let linked = &mut self.slots[slot as usize];
        queue.bytes += u64::from(linked.bytes);
        linked.set_queue(to);
        if self.eviction == Eviction::Lru {
            return self.note(slot);
        }
        let newest = std::mem::replace(&mut queue.newest, slot);
        linked.set_newer(NIL);
        linked.set_older(newest);
        match newest {
            NIL => queue.oldest = slot,
            newest => self.slots[newest as usize].set_newer(slot),
        }
    }

    /// Removes a slot from its queue.
    #[inline]
    fn unlink(&mut self, slot: u32) {
        let slot = &self.slots[slot as usize];
        let (newer, older) = (slot.newer(), slot.older());
        let queue = &mut self.queues[usize::from(slot.queue())];
        queue.len -= 1;
        queue.bytes -= u64::from(slot.bytes);
        if self.eviction == Eviction::Lru {
            return;
        }
        match newer {
            NIL => queue.newest = older,
            newer => self.slots[newer as usize].set_older(older),
        }
        match older {
            NIL => queue.oldest = newer,
            older => self.slots[older as usize].set_newer(newer),
        }
    }
}

const fn is_present(queue: u8) -> bool {
    queue <= SMALL
}
