//! A store's data about one object: 24 bytes and those of its value, so that two slots share a cache line.

/// No slot.
pub(super) const NIL: u32 = (1 << LINK_BITS) - 1;

/// Bits of a link; the two above hold the slot's queue or its mark.
const LINK_BITS: u32 = 30;

/// The highest mark.
pub(super) const MARK_MAX: u8 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<V> {
    pub(super) key: u64,
    pub(super) bytes: u32,
    pub(super) generation: u32,
    /// The next newer slot of its queue, or under LRU the number of its log entries; and its queue.
    newer: u32,
    /// The next older slot, or for a free slot the next free one; and its number of accesses, as far as they count.
    older: u32,
    pub(super) value: V,
}

impl<V> Slot<V> {
    pub(super) fn new(key: u64, bytes: u32, value: V) -> Self {
        Slot { key, bytes, generation: 0, newer: 0, older: 0, value }
    }

    #[inline]
    pub(super) fn newer(&self) -> u32 {
        self.newer & NIL
    }

    #[inline]
    pub(super) fn set_newer(&mut self, newer: u32) {
        self.newer = self.newer & !NIL | newer;
    }

    /// Under LRU: the log has one more entry.
    #[inline]
    pub(super) fn count(&mut self) {
        self.newer += 1;
    }

    #[inline]
    pub(super) fn older(&self) -> u32 {
        self.older & NIL
    }

    #[inline]
    pub(super) fn set_older(&mut self, older: u32) {
        self.older = self.older & !NIL | older;
    }

    #[inline]
    pub(super) fn queue(&self) -> u8 {
        (self.newer >> LINK_BITS) as u8
    }

    #[inline]
    pub(super) fn set_queue(&mut self, queue: u8) {
        self.newer = self.newer & NIL | u32::from(queue) << LINK_BITS;
    }

    #[inline]
    pub(super) fn mark(&self) -> u8 {
        (self.older >> LINK_BITS) as u8
    }

    #[inline]
    pub(super) fn set_mark(&mut self, mark: u8) {
        self.older = self.older & NIL | u32::from(mark.min(MARK_MAX)) << LINK_BITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_leave_queue_and_mark_alone() {
        let mut slot = Slot::new(7, 1, ());
        assert_eq!(size_of::<Slot<()>>(), 24);
        slot.set_queue(3);
        slot.set_mark(200);
        slot.set_newer(NIL);
        slot.set_older(5);
        assert_eq!((slot.newer(), slot.older(), slot.queue(), slot.mark()), (NIL, 5, 3, MARK_MAX));
        slot.set_queue(0);
        slot.set_mark(1);
        assert_eq!((slot.newer(), slot.older(), slot.queue(), slot.mark()), (NIL, 5, 0, 1));
    }
}
