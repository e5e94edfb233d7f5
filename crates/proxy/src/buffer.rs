//! Read buffers. A connection holds one only while it has unused bytes, so that a connection that waits costs none, and the
//! buffer that is read into is the one that is warm in the cache.

use std::cell::RefCell;

use tokio::io::ReadBuf;

/// Bytes of a buffer, and so of one read. With fewer a body of a megabyte takes more system calls than nginx needs for it.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// Memory for part of a head: most heads are shorter.
const SETTLED_BYTES: usize = 1 << 10;
/// Most buffers that a thread keeps for the next connections.
const SPARE_MAX: usize = 256;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were read and not yet used.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
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
        if self.is_empty() {
            self.release();
        }
    }

    /// Room for a read. It is empty only if the buffer is full of unused bytes.
    pub(crate) fn room(&mut self) -> ReadBuf<'_> {
        if self.memory.is_empty() {
            self.memory =
                SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
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
        self.memory = memory;
        (self.start, self.end) = (0, unused);
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
        let memory = std::mem::take(&mut self.memory);
        (self.start, self.end) = (0, 0);
        if memory.len() == BUFFER_BYTES {
            // A thread that ends has no use for spare buffers.
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_MAX {
                    spare.push(memory);
                }
            });
        }
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Buffer { memory: bytes.into(), start: 0, end: bytes.len() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}
