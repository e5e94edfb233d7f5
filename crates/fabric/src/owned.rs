//! A region that its owner alone changes.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::{Memory, Sole};
use crate::{Key, Region};

/// Memory that its owner reads in place and changes as bytes, while peers read it one-sidedly.
///
/// Changes are visible to peers in no order but that of [`OwnedRegion::store`] with `Release`: what was changed before it is
/// there for who sees its word. A peer reads whole words, but no more of what is being changed than that; a stamp before and
/// after what it reads, which the owner changes first and last, tells it whether it has one state.
#[derive(Debug)]
pub struct OwnedRegion {
    memory: Sole,
    /// `None` if it is exposed to nobody.
    region: Option<Region>,
}

impl OwnedRegion {
    /// `region` is the only handle to a region whose key grants reading.
    pub(crate) fn new(region: Region) -> Self {
        OwnedRegion { memory: Sole::new(region.memory()), region: Some(region) }
    }

    /// Memory of `bytes` zeros, header included, that is exposed to nobody. The machine gives a page at its first change.
    ///
    /// # Errors
    /// If there is no such room in this process.
    pub fn private(bytes: usize) -> io::Result<Self> {
        Ok(OwnedRegion { memory: Sole::new(Arc::new(Memory::anonymous(bytes)?)), region: None })
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key that grants others to read it, if it is exposed.
    pub fn key(&self) -> Option<&Key> {
        self.region.as_ref().map(Region::key)
    }

    /// See [`Region::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.region.as_ref().is_some_and(Region::is_lost)
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// If it is not in the region, as all that follow.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.memory.bytes(range)
    }

    /// Copies bytes to `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    /// Copies bytes to another place that does not overlap with theirs. Both begin at a multiple of 8, and whole words are
    /// copied.
    pub fn copy(&mut self, from: Range<usize>, to: usize) {
        self.memory.copy(from, to);
    }

    /// The word at `offset`, a multiple of 8.
    #[inline]
    pub fn load(&self, offset: usize) -> u64 {
        self.memory.load(offset)
    }

    /// Changes the word at `offset`: with `Release`, after all changes before.
    #[inline]
    pub fn store(&mut self, offset: usize, value: u64, ordering: Ordering) {
        self.memory.store(offset, value, ordering);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong_and_nowhere_else() {
        let mut region = OwnedRegion::private(4096).unwrap();
        let mut expected = vec![0; 4096];
        for (number, (offset, len)) in
            [(64, 64), (67, 3), (71, 1), (71, 2), (80, 17), (93, 40), (4090, 6), (5, 0)]
                .into_iter()
                .enumerate()
        {
            let bytes: Vec<u8> = (0..len).map(|at| (number * 50 + at + 1) as u8).collect();
            region.write(offset, &bytes);
            expected[offset..offset + len].copy_from_slice(&bytes);
            assert_eq!(region.bytes(0..4096), expected);
        }
        region.copy(64..130, 1024);
        expected.copy_within(64..136, 1024);
        assert_eq!(region.bytes(0..4096), expected);
    }
}
