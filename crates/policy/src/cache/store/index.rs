//! From a key's hash to its slot: open addressing with linear probing, and removal that moves back who was displaced, so
//! that a table does not age. Keys lie in the slots; here is only what leads to them.

/// Nobody.
const NIL: u32 = u32::MAX;

const CELLS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    slot: u32,
}

const EMPTY: Cell = Cell { hash: 0, slot: NIL };

/// Of 2^n cells, at most three quarters are in use.
#[derive(Clone, Debug)]
pub(super) struct Index {
    cells: Vec<Cell>,
    len: usize,
    /// The cell where a hash is first looked for is its upper bits.
    shift: u32,
}

impl Index {
    pub(super) fn new() -> Self {
        Self::of(CELLS_MIN)
    }

    fn of(cells: usize) -> Self {
        Index { cells: vec![EMPTY; cells], len: 0, shift: u32::BITS - cells.ilog2() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    /// The slot under `hash` that `is` the one looked for.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
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

    /// The first slot under `hash`, which is nearly always the one looked for.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// Fetches the cell where `hash` is first looked for.
    #[inline]
    pub(super) fn warm(&self, hash: u32) -> u32 {
        self.cells[self.home(hash)].slot
    }

    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        if 4 * (self.len + 1) > 3 * self.cells.len() {
            let mut wider = Index::of(2 * self.cells.len());
            self.cells.iter().filter(|cell| cell.slot != NIL).for_each(|cell| wider.put(*cell));
            wider.len = self.len;
            *self = wider;
        }
        self.put(Cell { hash, slot });
        self.len += 1;
    }

    fn put(&mut self, cell: Cell) {
        let mut at = self.home(cell.hash);
        while self.cells[at].slot != NIL {
            at = self.after(at);
        }
        self.cells[at] = cell;
    }

    /// Takes out a slot that is there.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let mut hole = self.home(hash);
        while self.cells[hole].slot != slot {
            assert_ne!(self.cells[hole].slot, NIL, "what is removed is there");
            hole = self.after(hole);
        }
        self.len -= 1;
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell.slot == NIL {
                break;
            }
            // It may move back to the hole unless that is before where it is first looked for.
            let from_home = at.wrapping_sub(self.home(cell.hash)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
    }
}
