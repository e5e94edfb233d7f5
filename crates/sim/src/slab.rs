//! What is under way, by number.

/// Items whose numbers are used again once they are taken out: it grows to what is under way at once.
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

    /// # Panics
    /// Where there is none of that number.
    #[inline]
    pub(crate) fn get(&mut self, index: u32) -> &mut T {
        self.items[index as usize].as_mut().expect("it is under way")
    }

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
