//! Items in progress, by number.
//!
//! The crate `slab` is not used: with 2,000 items of 96 bytes, a round of insert, get and take costs 3 to 17 % more
//! there, and its numbers have 64 bits, where events carry 32.

/// Items whose numbers are reused after removal. It grows to the most items in progress at once.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = Some(item);
                index
            }
            None => {
                self.items.push(Some(item));
                self.items.len() as u32 - 1
            }
        }
    }

    /// The item of that number.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn get(&mut self, index: u32) -> &mut T {
        self.items[index as usize].as_mut().expect("it is under way")
    }

    /// Removes the item of that number.
    ///
    /// # Panics
    /// As [`Slab::get`].
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> T {
        self.free.push(index);
        self.items[index as usize].take().expect("it is under way")
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}
