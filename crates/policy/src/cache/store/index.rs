//! The index from keys to slots. The slots hold the keys.
//!
//! Keys are hashes of names, or count from 0. The table is hashed, or has a cell for each key up to the highest if these are
//! few for its keys; then there is no search.

use prefetch_index::prefetch_index;

/// No slot.
const NIL: u32 = u32::MAX;

const CELLS_MIN: usize = 16;

#[derive(Clone, Debug)]
pub(super) enum Index {
    Hashed(Hashed),
    Direct(Direct),
}

impl Index {
    pub(super) fn new() -> Self {
        Index::Hashed(Hashed::of(CELLS_MIN))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Index::Hashed(table) => table.cells.len() * size_of::<Cell>(),
            Index::Direct(table) => table.slots.len() * size_of::<u32>(),
        }
    }

    /// The slot of `key`; `is` tells whether a slot has the key.
    #[inline]
    pub(super) fn find(&self, key: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        match self {
            Index::Hashed(table) => table.find(hash(key), is),
            Index::Direct(table) => table.find(key),
        }
    }

    /// The first slot that may have the key; it nearly always does.
    #[inline]
    pub(super) fn first(&self, key: u64) -> Option<u32> {
        self.find(key, |_| true)
    }

    /// Whether it finds a key's slot without reading slots.
    #[inline]
    pub(super) fn is_direct(&self) -> bool {
        matches!(self, Index::Direct(_))
    }

    /// Prefetches the cell where the search for `key` starts.
    #[inline]
    pub(super) fn warm(&self, key: u64) {
        match self {
            Index::Hashed(table) => prefetch_index(&table.cells, table.home(hash(key))),
            Index::Direct(table) => prefetch_index(&table.slots, key as usize),
        }
    }

    /// Inserts the slot of a new key; `key_of` gives a slot's key.
    pub(super) fn insert(&mut self, key: u64, slot: u32, key_of: impl Fn(u32) -> u64) {
        match self {
            Index::Hashed(table) if table.is_full() => *self = table.wider(key, key_of),
            Index::Direct(table) if key >= table.slots.len() as u64 => *self = table.longer(key),
            _ => (),
        }
        match self {
            Index::Hashed(table) => table.insert(key, slot),
            Index::Direct(table) => table.insert(key, slot),
        }
    }

    /// Removes a slot that is there.
    pub(super) fn remove(&mut self, key: u64, slot: u32) {
        match self {
            Index::Hashed(table) => table.remove(hash(key), slot),
            Index::Direct(table) => table.remove(key),
        }
    }
}

/// A cell for each key.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    slots: Vec<u32>,
    len: usize,
}

impl Direct {
    /// A table for keys up to `key_max`, if it takes no more memory than a hashed table of `len` keys whose cells were doubled.
    fn of(key_max: u64, len: usize) -> Option<Self> {
        let cells_max = Hashed::cells_for(len).next_power_of_two() * size_of::<Cell>() / size_of::<u32>();
        // Some spare cells: keys that count from 0 arrive in nearly any order.
        let cells = key_max.saturating_add(key_max / 8 + 1);
        (cells <= cells_max as u64).then(|| Direct { slots: vec![NIL; cells as usize], len: 0 })
    }

    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        self.slots.get(key as usize).copied().filter(|slot| *slot != NIL)
    }

    fn insert(&mut self, key: u64, slot: u32) {
        self.slots[key as usize] = slot;
        self.len += 1;
    }

    fn remove(&mut self, key: u64) {
        self.slots[key as usize] = NIL;
        self.len -= 1;
    }

    /// The index grown to hold `key`.
    fn longer(&self, key: u64) -> Index {
        let of = (0..).zip(&self.slots).filter(|(_, slot)| **slot != NIL);
        match Direct::of(key, self.len + 1) {
            Some(mut longer) => {
                of.for_each(|(key, slot)| longer.insert(key, *slot));
                Index::Direct(longer)
            }
            None => {
                let mut hashed = Hashed::of(Hashed::cells_for(self.len + 1));
                of.for_each(|(key, slot)| hashed.insert(key, *slot));
                Index::Hashed(hashed)
            }
        }
    }
}

/// Open addressing with linear probing. Removal moves displaced entries back, so a table does not degrade. At most
/// three quarters of its cells are in use, and when it grows, it grows by a quarter: most of the time three fifths are.
#[derive(Clone, Debug)]
pub(super) struct Hashed {
    cells: Vec<Cell>,
    len: usize,
    /// The highest key ever inserted.
    key_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    slot: u32,
}

const EMPTY: Cell = Cell { hash: 0, slot: NIL };

impl Hashed {
    fn of(cells: usize) -> Self {
        Hashed { cells: vec![EMPTY; cells], len: 0, key_max: 0 }
    }

    /// The fewest cells of a table of `len` keys.
    fn cells_for(len: usize) -> usize {
        (4 * len).div_ceil(3).max(CELLS_MIN)
    }

    /// The cell where the search for a hash starts: that part of the table which it is of all hashes.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.cells.len() as u64) >> u32::BITS) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    /// Cells from one to another, forwards.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.cells.len() - from }
    }

    #[inline]
    fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let cell = self.cells[at];
            if cell.slot == NIL {
                return None;
            }
            if cell.hash == hash && is(cell.slot) {
                return Some(cell.slot);
            }
            at = self.after(at);
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        4 * (self.len + 1) > 3 * self.cells.len()
    }

    /// The index grown by one, for `key`.
    fn wider(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Index {
        let cells = self.cells.iter().filter(|cell| cell.slot != NIL);
        if let Some(mut direct) = Direct::of(self.key_max.max(key), self.len + 1) {
            cells.for_each(|cell| direct.insert(key_of(cell.slot), cell.slot));
            return Index::Direct(direct);
        }
        let mut wider = Hashed::of(self.cells.len() + self.cells.len() / 4);
        cells.for_each(|cell| wider.put(*cell));
        (wider.len, wider.key_max) = (self.len, self.key_max);
        Index::Hashed(wider)
    }

    fn insert(&mut self, key: u64, slot: u32) {
        self.len += 1;
        self.key_max = self.key_max.max(key);
        self.put(Cell { hash: hash(key), slot });
    }

    fn put(&mut self, cell: Cell) {
        let mut at = self.home(cell.hash);
        while self.cells[at].slot != NIL {
            at = self.after(at);
        }
        self.cells[at] = cell;
    }

    fn remove(&mut self, hash: u32, slot: u32) {
        let mut hole = self.home(hash);
        while self.cells[hole].slot != slot {
            assert_ne!(self.cells[hole].slot, NIL, "what is removed is there");
            hole = self.after(hole);
        }
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell.slot == NIL {
                break;
            }
            // An entry may move back to the hole, unless the hole is before the start of its search.
            if self.distance(self.home(cell.hash), at) >= self.distance(hole, at) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
    }
}

/// Fibonacci hashing (Knuth, TAOCP 3, 6.4): keys are hashes of names already, or count from 0.
#[inline]
const fn hash(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index, and the keys of the slots, by number.
    #[derive(Default)]
    struct Both {
        index: Option<Index>,
        keys: Vec<u64>,
    }

    impl Both {
        fn insert(&mut self, key: u64) {
            let Both { index, keys } = self;
            keys.push(key);
            let slot = keys.len() as u32 - 1;
            index.get_or_insert_with(Index::new).insert(key, slot, |slot| keys[slot as usize]);
        }

        fn find(&self, key: u64) -> Option<u32> {
            self.index.as_ref()?.find(key, |slot| self.keys[slot as usize] == key)
        }

        fn is_direct(&self) -> bool {
            self.index.as_ref().is_some_and(Index::is_direct)
        }

        fn check(&self, removed: &[u64]) {
            for (slot, key) in (0..).zip(&self.keys) {
                assert_eq!(self.find(*key), Some(slot).filter(|_| !removed.contains(key)), "{key}");
            }
        }
    }

    #[test]
    fn keys_that_count_from_0_need_no_search_and_no_more_memory() {
        let mut both = Both::default();
        // Every key below 4,001, in an order that goes up and down.
        for i in 0..4_001 {
            both.insert(i * 1_009 % 4_001);
            let cells = Hashed::cells_for(both.keys.len());
            let hashed = cells.next_power_of_two().max(cells + cells / 4) * size_of::<Cell>();
            assert!(both.index.as_ref().is_some_and(|index| index.bytes() <= hashed));
        }
        assert!(both.is_direct());
        both.check(&[]);
        for key in [0, 4_000, 17] {
            let slot = both.find(key).unwrap();
            both.index.as_mut().unwrap().remove(key, slot);
        }
        both.check(&[0, 4_000, 17]);
        assert_eq!((both.find(4_001), both.find(u64::MAX)), (None, None));
        // A key out of line, such as a name's hash: all are still found.
        both.insert(1 << 63);
        assert!(!both.is_direct());
        both.check(&[0, 4_000, 17]);
    }

    #[test]
    fn hashes_of_names_are_searched_for() {
        let mut both = Both::default();
        (1..3_000).for_each(|i: u64| both.insert(i.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        assert!(!both.is_direct());
        both.check(&[]);
    }
}
