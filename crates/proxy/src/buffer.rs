//! Read buffers. A connection holds one only while it has unused bytes, so that a connection that waits costs none, and the
//! buffer that is read into is the one that is warm in the cache.

use std::cell::RefCell;

use tokio::io::ReadBuf;

/// Bytes of a buffer, and so of one read.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a wide buffer, for a body whose reader keeps up. A body of a megabyte takes a third less CPU time through such a buffer
/// (docs/design-notes.md).
const WIDE_BYTES: usize = 512 << 10;
/// A reader keeps up that has taken so many bytes, each time all that there were. For one that reads nothing the kernel takes less.
const TAKEN_BYTES: usize = 256 << 10;
/// Fewer bytes at once do not show that a reader keeps up.
const TAKEN_BYTES_MIN: usize = BUFFER_BYTES / 2;
/// Most wide buffers that a thread uses at a time: as many readers may keep up and then stop.
const WIDE_MAX: usize = 64;
/// Memory for part of a head: most heads are shorter.
const SETTLED_BYTES: usize = 1 << 10;
/// Most buffers that a thread keeps for the next connections, and most wide ones.
const SPARE_MAX: usize = 256;
const SPARE_WIDE_MAX: usize = 8;

/// A thread's buffers that nobody uses.
#[derive(Default)]
struct FreeBuffers {
    buffers: Vec<Box<[u8]>>,
    wide: Vec<Box<[u8]>>,
    /// Wide ones that are used.
    wide_used: usize,
}

thread_local! {
    static FREE: RefCell<FreeBuffers> = RefCell::default();
}

impl FreeBuffers {
    /// A buffer, wide if there may be one more.
    fn take(&mut self, wide: bool) -> (Box<[u8]>, bool) {
        let is_wide = wide && self.wide_used < WIDE_MAX;
        self.wide_used += usize::from(is_wide);
        let (free, bytes) =
            if is_wide { (&mut self.wide, WIDE_BYTES) } else { (&mut self.buffers, BUFFER_BYTES) };
        (free.pop().unwrap_or_else(|| vec![0; bytes].into_boxed_slice()), is_wide)
    }

    fn put(&mut self, memory: Box<[u8]>, is_wide: bool) {
        self.wide_used -= usize::from(is_wide);
        let (free, max) =
            if is_wide { (&mut self.wide, SPARE_WIDE_MAX) } else { (&mut self.buffers, SPARE_MAX) };
        if free.len() < max && (is_wide || memory.len() == BUFFER_BYTES) {
            free.push(memory);
        }
    }
}

/// Bytes that were read and not yet used.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    is_wide: bool,
    start: usize,
    end: usize,
    /// Bytes that were used of late, each time all that there were.
    taken: usize,
}

impl Buffer {
    /// The unused bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Marks the first `count` bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "more is used than there is");
        let has_kept_up = self.is_empty() && count >= TAKEN_BYTES_MIN;
        self.taken = if has_kept_up { self.taken.saturating_add(count) } else { 0 };
        if self.is_empty() {
            self.release();
        }
    }

    /// Room for a read. It is empty only if the buffer is full of unused bytes.
    pub(crate) fn room(&mut self) -> ReadBuf<'_> {
        if self.memory.is_empty() {
            let wide = self.taken >= TAKEN_BYTES;
            (self.memory, self.is_wide) = FREE.with_borrow_mut(|free| free.take(wide));
        }
        if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        ReadBuf::new(&mut self.memory[self.end..])
    }

    /// Makes `count` bytes that were read into the room available.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.memory.len(), "more was read than there was room");
        if self.is_empty() {
            self.release();
        }
    }

    /// Whether no byte more can be read before some are used.
    pub(crate) fn is_full(&self) -> bool {
        !self.memory.is_empty() && self.end - self.start == self.memory.len()
    }

    /// Doubles the memory of a full buffer.
    pub(crate) fn grow(&mut self) {
        let mut memory = vec![0; 2 * self.memory.len()].into_boxed_slice();
        let unused = self.bytes().len();
        memory[..unused].copy_from_slice(self.bytes());
        self.release();
        (self.memory, self.end) = (memory, unused);
    }

    /// Keeps the unused bytes, if they are few, in memory of their size: what comes next may be long in coming.
    pub(crate) fn settle(&mut self) {
        if self.memory.len() > SETTLED_BYTES && self.bytes().len() < SETTLED_BYTES {
            let mut memory = vec![0; SETTLED_BYTES].into_boxed_slice();
            let unused = self.bytes().len();
            memory[..unused].copy_from_slice(self.bytes());
            self.release();
            (self.memory, self.end) = (memory, unused);
        }
    }

    /// Gives the memory back.
    fn release(&mut self) {
        let (memory, is_wide) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.is_wide));
        (self.start, self.end) = (0, 0);
        // A thread that ends has no use for free buffers.
        let _ = FREE.try_with(|free| free.borrow_mut().put(memory, is_wide));
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Buffer { memory: bytes.into(), end: bytes.len(), ..Buffer::default() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads as much as there is room for, uses it in pieces, and tells how much it was.
    fn read(buffer: &mut Buffer, piece: usize) -> usize {
        let room = buffer.room().remaining();
        buffer.filled(room);
        while !buffer.is_empty() {
            buffer.consume(piece.min(buffer.bytes().len()));
        }
        room
    }

    #[test]
    fn only_who_keeps_up_gets_a_wide_buffer() {
        let mut buffer = Buffer::default();
        assert_eq!(read(&mut buffer, 1000), BUFFER_BYTES);
        for _ in 0..TAKEN_BYTES / BUFFER_BYTES {
            assert_eq!(read(&mut buffer, BUFFER_BYTES), BUFFER_BYTES);
        }
        assert_eq!(read(&mut buffer, WIDE_BYTES), WIDE_BYTES);
        assert_eq!(read(&mut buffer, 1000), WIDE_BYTES);
        assert_eq!(read(&mut buffer, 1000), BUFFER_BYTES);
        // Small messages show nothing.
        for _ in 0..2 * TAKEN_BYTES / 1000 {
            buffer.room();
            buffer.filled(1000);
            buffer.consume(1000);
        }
        assert_eq!(read(&mut buffer, 1000), BUFFER_BYTES);
    }

    #[test]
    fn few_buffers_are_wide() {
        let keeps_up = || Buffer { memory: Box::default(), taken: TAKEN_BYTES, ..Buffer::default() };
        let mut held: Vec<_> = (0..WIDE_MAX + 1).map(|_| keeps_up()).collect();
        let rooms: Vec<_> = held.iter_mut().map(|buffer| buffer.room().remaining()).collect();
        assert_eq!(rooms[WIDE_MAX - 1..], [WIDE_BYTES, BUFFER_BYTES]);
        held[0].filled(1);
        held[0].settle();
        assert_eq!(keeps_up().room().remaining(), WIDE_BYTES, "one was given back");
    }
}
