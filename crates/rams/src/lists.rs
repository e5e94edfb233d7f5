//! Short lists by number in one arena: for thousands of peers, most of whose lists are empty.

/// No item.
const NIL: u32 = u32::MAX;

/// One list. Its owner keeps the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(u32);

impl Default for List {
    fn default() -> Self {
        List(NIL)
    }
}

/// The items of all lists.
#[derive(Clone, Debug)]
pub(super) struct Arena<T> {
    cells: Vec<(T, u32)>,
    free: u32,
}

impl<T: Copy + PartialEq> Arena<T> {
    pub(super) fn new() -> Self {
        Arena { cells: Vec::new(), free: NIL }
    }

    /// Adds an item at the front.
    pub(super) fn push(&mut self, list: &mut List, item: T) {
        let cell = (item, list.0);
        list.0 = match self.free {
            NIL => {
                self.cells.push(cell);
                self.cells.len() as u32 - 1
            }
            index => {
                let (_, next) = std::mem::replace(&mut self.cells[index as usize], cell);
                self.free = next;
                index
            }
        };
    }

    /// Removes the item at the front.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<T> {
        let index = list.0;
        let cell = self.cells.get_mut(index as usize)?;
        let (item, next) = *cell;
        cell.1 = self.free;
        (self.free, list.0) = (index, next);
        Some(item)
    }

    /// Removes an item anywhere in the list.
    pub(super) fn remove(&mut self, list: &mut List, item: T) {
        let (mut before, mut index) = (NIL, list.0);
        while let Some(&(found, next)) = self.cells.get(index as usize) {
            if found != item {
                (before, index) = (index, next);
                continue;
            }
            match before {
                NIL => list.0 = next,
                before => self.cells[before as usize].1 = next,
            }
            self.cells[index as usize].1 = self.free;
            self.free = index;
            return;
        }
    }

    /// The items from the front on.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = T> + '_ {
        let cell = |index: u32| self.cells.get(index as usize);
        std::iter::successors(cell(list.0), move |last| cell(last.1)).map(|(item, _)| *item)
    }

    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<(T, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_share_an_arena_and_use_its_cells_again() {
        let mut arena = Arena::new();
        let (mut a, mut b) = (List::default(), List::default());
        [1, 2, 3].iter().for_each(|item| arena.push(&mut a, *item));
        arena.push(&mut b, 9);
        assert_eq!(arena.iter(a).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!((arena.pop(&mut a), arena.pop(&mut a)), (Some(3), Some(2)));
        arena.push(&mut b, 8);
        assert_eq!(arena.iter(b).collect::<Vec<_>>(), [8, 9]);
        arena.push(&mut b, 7);
        arena.remove(&mut b, 8);
        arena.remove(&mut b, 1);
        assert_eq!(arena.iter(b).collect::<Vec<_>>(), [7, 9]);
        arena.remove(&mut b, 7);
        assert_eq!((arena.pop(&mut a), arena.pop(&mut a)), (Some(1), None));
        assert_eq!((arena.pop(&mut b), arena.pop(&mut b)), (Some(9), None));
        assert_eq!(arena.cells.len(), 4);
    }
}
