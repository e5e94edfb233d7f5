//! The memory of a node that others read: a slot for each place, and the objects' bytes.
//!
//! A slot says which object has its place now, and where its bytes lie. It is withdrawn before they are changed, and a reader
//! looks at it before and after it reads them. Objects lie one behind the other. When there is no room behind the last, all are
//! moved up to the first gap and on; their places stay.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use sidelong_fabric::{OP_BYTES_MAX, OwnedRegion};
use sidelong_layout::HEADER_BYTES;
use sidelong_policy::cache::store::Place;

/// Bytes of a slot: its state and generation, its key, where its bytes begin, and how many there are.
pub(super) const SLOT_BYTES: usize = 4 * WORD_BYTES;
/// Most bytes of one operation.
pub(super) const PIECE_BYTES: usize = OP_BYTES_MAX;
const WORD_BYTES: usize = 8;
/// Objects are moved when this part of the memory is not theirs, so that each byte is moved a few times at most.
const SPARE_PART: usize = 4;

/// The states of a slot, beside the generation.
const GONE: u64 = 0;
const LIVE: u64 = 1;
const MOVING: u64 = 2;

/// What is where in a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    slots: usize,
    bytes: usize,
}

impl Map {
    /// For `slots` objects with `bytes` in all, at most.
    pub fn new(slots: usize, bytes: usize) -> Self {
        let room = bytes + slots * WORD_BYTES;
        Map { slots, bytes: (room + room / SPARE_PART).next_multiple_of(WORD_BYTES) }
    }

    /// Bytes of the region.
    pub(super) fn len(self) -> usize {
        self.objects().end
    }

    /// Where a place's slot is. `None` if there is no such place.
    pub(super) fn slot(self, place: Place) -> Option<usize> {
        let number = place.slot as usize;
        (number < self.slots).then_some(HEADER_BYTES + number * SLOT_BYTES)
    }

    fn objects(self) -> Range<usize> {
        let begin = HEADER_BYTES + self.slots * SLOT_BYTES;
        begin..begin + self.bytes
    }
}

/// A slot, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slot([u64; SLOT_BYTES / WORD_BYTES]);

/// What a reader finds in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The object: where its bytes are, and how many.
    At(usize, usize),
    /// It is being moved.
    Moving,
    /// It is not there any more.
    Gone,
}

impl Slot {
    pub(super) fn of(words: &[u64]) -> Slot {
        Slot(words.try_into().expect("a slot is as long as was asked"))
    }

    fn state(place: Place, state: u64) -> u64 {
        u64::from(place.generation) << 2 | state
    }

    pub(super) fn find(self, place: Place, key: u64, map: Map) -> Found {
        let Slot([state, its_key, at, len]) = self;
        let [live, moving] = [LIVE, MOVING].map(|state| Slot::state(place, state));
        if its_key != key || (state != live && state != moving) {
            return Found::Gone;
        }
        if state == moving {
            return Found::Moving;
        }
        let (at, len, all) = (at as usize, len as usize, map.objects());
        // Whatever a neighbour states.
        let is_inside = at >= all.start && at.checked_add(len).is_some_and(|end| end <= all.end);
        if is_inside { Found::At(at, len) } else { Found::Gone }
    }
}

/// The memory of this node.
pub(super) struct Memory {
    region: OwnedRegion,
    map: Map,
    /// The objects that are there, in the order of their bytes.
    by_offset: BTreeMap<usize, (u64, Place, usize)>,
    by_key: BTreeMap<u64, usize>,
    /// Where the last object's bytes end.
    end: usize,
}

impl Memory {
    pub(super) fn new(region: OwnedRegion, map: Map) -> Self {
        Memory { region, map, by_offset: BTreeMap::new(), by_key: BTreeMap::new(), end: map.objects().start }
    }

    /// The bytes of an object that is here.
    pub(super) fn bytes(&self, key: u64) -> Option<&[u8]> {
        let at = *self.by_key.get(&key)?;
        let (_, _, len) = self.by_offset[&at];
        Some(self.region.bytes(at..at + len))
    }

    /// Puts an object where others read it.
    ///
    /// # Panics
    /// If there is no room: the peer keeps no more than the map has room for.
    pub(super) fn publish(&mut self, place: Place, key: u64, bytes: &[u8]) {
        let slot = self.map.slot(place).expect("as many places as the map has");
        let taken = taken(bytes.len());
        if self.end + taken > self.map.objects().end {
            self.move_up();
        }
        assert!(self.end + taken <= self.map.objects().end, "as many bytes as the map has");
        let at = self.end;
        self.end += taken;
        self.region.write(at, bytes);
        self.by_offset.insert(at, (key, place, bytes.len()));
        self.by_key.insert(key, at);
        for (word, value) in (1..).zip([key, at as u64, bytes.len() as u64]) {
            self.region.store(slot + word * WORD_BYTES, value, Ordering::Relaxed);
        }
        self.region.store(slot, Slot::state(place, LIVE), Ordering::Release);
    }

    /// Has reads of an object fail from now on.
    pub(super) fn withdraw(&mut self, place: Place, key: u64) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_offset.remove(&at);
            self.set(place, GONE);
        }
    }

    /// Changes a slot's state, before all that follows.
    fn set(&mut self, place: Place, state: u64) {
        if let Some(slot) = self.map.slot(place) {
            self.region.store(slot, Slot::state(place, state), Ordering::Relaxed);
            fence(Ordering::Release);
        }
    }

    fn move_up(&mut self) {
        let before = std::mem::take(&mut self.by_offset);
        self.end = self.map.objects().start;
        for (from, (key, place, len)) in before {
            let to = self.end;
            self.end += taken(len);
            self.by_offset.insert(to, (key, place, len));
            if to == from {
                continue;
            }
            self.by_key.insert(key, to);
            self.set(place, MOVING);
            // Where it was and where it comes to may overlap.
            let step = from - to;
            for begin in (0..len).step_by(step) {
                let bytes = step.min(len - begin);
                self.region.copy(from + begin..from + begin + bytes, to + begin);
            }
            if let Some(slot) = self.map.slot(place) {
                self.region.store(slot + 2 * WORD_BYTES, to as u64, Ordering::Relaxed);
                self.region.store(slot, Slot::state(place, LIVE), Ordering::Release);
            }
        }
    }
}

/// Bytes that an object takes: whole words, one at least, so that no two begin at the same place.
fn taken(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { slot: 1, generation: 3 };

    #[test]
    fn objects_are_found_where_they_were_moved() {
        let map = Map::new(8, 400);
        let mut memory = Memory::new(OwnedRegion::private(map.len()).unwrap(), map);
        let place = |slot: u32, generation| Place { slot, generation };
        let found = |memory: &Memory, place: Place, key: u64| {
            let at = map.slot(place).unwrap();
            let words: Vec<_> = (0..4).map(|word| memory.region.load(at + word * WORD_BYTES)).collect();
            match Slot::of(&words).find(place, key, map) {
                Found::At(at, len) => Some(memory.region.bytes(at..at + len).to_vec()),
                other => {
                    assert_eq!(other, Found::Gone);
                    None
                }
            }
        };
        let bytes = |key: u64| vec![key as u8; key as usize % 90 + 1];
        // Two of three stay, and the third makes way for the next: there are gaps all over.
        for key in 0..1000u64 {
            let (slot, generation) = ((key % 6) as u32, (key / 6) as u32);
            if key >= 6 {
                memory.withdraw(place(slot, generation - 1), key - 6);
                assert_eq!(found(&memory, place(slot, generation - 1), key - 6), None);
            }
            memory.publish(place(slot, generation), key, &bytes(key));
            for known in key.saturating_sub(5)..=key {
                let at = place((known % 6) as u32, (known / 6) as u32);
                assert_eq!(found(&memory, at, known), Some(bytes(known)), "{known} at {key}");
                assert_eq!(memory.bytes(known), Some(&bytes(known)[..]));
            }
        }
        assert_eq!(found(&memory, place(0, 0), 999), None, "another object");
    }

    #[test]
    fn a_slot_is_believed_only_if_it_is_the_objects_and_leads_to_objects() {
        let map = Map::new(8, 100);
        let all = map.objects();
        let live = Slot::state(PLACE, LIVE);
        let find = |words| Slot(words).find(PLACE, 5, map);
        let (at, end) = (all.start as u64, all.end as u64);
        assert_eq!(find([live, 5, at, 8]), Found::At(all.start, 8));
        assert_eq!(find([Slot::state(PLACE, MOVING), 5, at, 8]), Found::Moving);
        for words in [
            [live, 6, at, 8],
            [Slot::state(PLACE, GONE), 5, at, 8],
            [Slot::state(Place { generation: 4, ..PLACE }, LIVE), 5, at, 8],
            [live, 5, at - 8, 8],
            [live, 5, end, 1],
            [live, 5, at, u64::MAX],
        ] {
            assert_eq!(find(words), Found::Gone, "{words:?}");
        }
        assert_eq!(map.slot(Place { slot: 8, generation: 0 }), None);
    }
}
