//! A list of operations, their buffers and their outcomes.
//!
//! The batch owns every operation's buffer, and [`Initiator::run`] borrows it until the last completion. So memory in
//! flight can be neither accessed nor freed:
//!
//! ```compile_fail,E0502
//! # use std::time::Duration;
//! # fn f(initiator: &mut sidelong_fabric::Initiator, link: sidelong_fabric::LinkId) {
//! let mut batch = sidelong_fabric::Batch::new();
//! let record = batch.read(link, 64, 64);
//! let words = batch.words(record).unwrap();
//! initiator.run(&mut batch, Duration::from_millis(1)); // refused: `words` still looks at the buffer
//! println!("{words:?}");
//! # }
//! ```
//!
//! Reuse a batch: [`Batch::clear`] keeps the allocated memory, and a batch may be run again without changes.
//!
//! [`Initiator::run`]: crate::Initiator::run

use crate::{Access, OP_BYTES_MAX, OpError};

/// A link of one [`Initiator`](crate::Initiator).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkId {
    pub(crate) slot: u32,
    /// The slot's life: the id of a closed link differs from that of its successor.
    pub(crate) life: u32,
}

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpId(u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    CompareAndSwap {
        expected: u64,
        new: u64,
    },
    FetchAndAdd {
        add: u64,
    },
    /// A message to the region's inbox.
    Send,
    /// A write, followed by a notification to the region's inbox.
    WriteWithImmediate {
        immediate: u32,
    },
}

impl Kind {
    /// Whether its buffer is sent to the target; otherwise the buffer receives data.
    pub(crate) fn carries(self) -> bool {
        matches!(self, Kind::Write | Kind::Send | Kind::WriteWithImmediate { .. })
    }

    /// Whether it needs the region's inbox.
    pub(crate) fn is_for_inbox(self) -> bool {
        matches!(self, Kind::Send | Kind::WriteWithImmediate { .. })
    }

    /// Whether a key with these rights permits it. Targets check the rights of their region, which may exceed those of
    /// the key.
    pub(crate) fn is_granted(self, access: Access) -> bool {
        access == Access::Atomic || self == Kind::Read
    }

    /// Whether it works on bytes rather than whole words.
    fn is_of_bytes(self) -> bool {
        matches!(self, Kind::Read | Kind::Send)
    }
}

/// What an operation asks of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// Offset in the region, in bytes; 0 for a message.
    pub(crate) offset: usize,
    /// In bytes; 8 for atomics.
    pub(crate) len: usize,
}

impl Request {
    /// Length of its buffer in words: the data moved, or the value before an atomic.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        if self.len > OP_BYTES_MAX { 0 } else { self.len.div_ceil(8) }
    }

    /// Checks it against a region of `region` bytes on which this peer has the rights `granted`.
    #[inline]
    pub(crate) fn check(&self, region: usize, granted: Access) -> Result<(), OpError> {
        let Request { kind, offset, len } = *self;
        if len > OP_BYTES_MAX {
            Err(OpError::TooLong { len })
        } else if !kind.is_granted(granted) {
            Err(OpError::ReadOnly)
        } else if !offset.is_multiple_of(8) || !(len.is_multiple_of(8) || kind.is_of_bytes()) {
            Err(OpError::Misaligned { offset, len })
        } else if (offset > region || len > region - offset) && kind != Kind::Send {
            Err(OpError::OutOfBounds { offset, len, region })
        } else {
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) link: LinkId,
    pub(crate) request: Request,
    /// First word of its buffer in `Batch::words`.
    buffer: usize,
    outcome: Result<(), OpError>,
}

/// Operations to run together; see the module.
#[derive(Default, Debug)]
pub struct Batch {
    ops: Vec<Op>,
    words: Vec<u64>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Removes all operations and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.words.clear();
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a read of `len` bytes, not 0, at `offset`, a multiple of 8.
    pub fn read(&mut self, link: LinkId, offset: usize, len: usize) -> OpId {
        self.add(link, Request { kind: Kind::Read, offset, len })
    }

    /// Adds a write of `words` at `offset`, a multiple of 8.
    pub fn write(&mut self, link: LinkId, offset: usize, words: &[u64]) -> OpId {
        let op = self.add(link, Request { kind: Kind::Write, offset, len: size_of_val(words) });
        let buffer = self.buffer_mut(op.0 as usize);
        buffer.copy_from_slice(&words[..buffer.len()]); // one that is too long has none
        op
    }

    /// Adds a compare-and-swap of the word at `offset`. It took place if [`Batch::value`] then is `expected`.
    pub fn compare_and_swap(&mut self, link: LinkId, offset: usize, expected: u64, new: u64) -> OpId {
        self.add(link, Request { kind: Kind::CompareAndSwap { expected, new }, offset, len: 8 })
    }

    /// Adds a fetch-and-add, wrapping, to the word at `offset`.
    pub fn fetch_and_add(&mut self, link: LinkId, offset: usize, add: u64) -> OpId {
        self.add(link, Request { kind: Kind::FetchAndAdd { add }, offset, len: 8 })
    }

    /// Adds a message to the region's inbox, of at most the length that the inbox accepts.
    pub fn send(&mut self, link: LinkId, message: &[u8]) -> OpId {
        let op = self.add(link, Request { kind: Kind::Send, offset: 0, len: message.len() });
        let buffer = self.buffer_mut(op.0 as usize);
        for (word, bytes) in buffer.iter_mut().zip(message.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        op
    }

    /// Adds a write of `words` at `offset`, a multiple of 8, and notifies the region's inbox with `immediate`. If the
    /// inbox is full, the operation fails, but the words may have been written.
    pub fn write_with_immediate(
        &mut self,
        link: LinkId,
        offset: usize,
        words: &[u64],
        immediate: u32,
    ) -> OpId {
        let op = self.write(link, offset, words);
        self.ops[op.0 as usize].request.kind = Kind::WriteWithImmediate { immediate };
        op
    }

    /// The words that a read returned; the last one is padded with the bytes that follow in the region.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn words(&self, op: OpId) -> Result<&[u64], OpError> {
        self.ops[op.0 as usize].outcome.map(|()| self.buffer(op.0 as usize))
    }

    /// The exact bytes that a read returned.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn bytes(&self, op: OpId) -> Result<&[u8], OpError> {
        let len = self.ops[op.0 as usize].request.len;
        Ok(&bytemuck::cast_slice(self.words(op)?)[..len])
    }

    /// The value before an atomic, or the first word of a read.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn value(&self, op: OpId) -> Result<u64, OpError> {
        self.words(op).map(|words| words[0])
    }

    fn add(&mut self, link: LinkId, request: Request) -> OpId {
        let buffer = self.words.len();
        self.words.resize(buffer + request.words(), 0);
        self.ops.push(Op { link, request, buffer, outcome: Err(OpError::NotRun) });
        OpId(self.ops.len() as u32 - 1)
    }

    // For backends: the operations by index, and their buffers.

    pub(crate) fn op(&self, index: usize) -> &Op {
        &self.ops[index]
    }

    pub(crate) fn finish(&mut self, index: usize, outcome: Result<(), OpError>) {
        self.ops[index].outcome = outcome;
    }

    pub(crate) fn buffer(&self, index: usize) -> &[u64] {
        let op = &self.ops[index];
        &self.words[op.buffer..op.buffer + op.request.words()]
    }

    /// The part of an operation's buffer that begins at its word `at`.
    #[inline]
    pub(crate) fn piece_mut(&mut self, index: usize, at: usize, words: usize) -> &mut [u64] {
        let start = self.ops[index].buffer + at;
        &mut self.words[start..start + words]
    }

    pub(crate) fn buffer_mut(&mut self, index: usize) -> &mut [u64] {
        let op = &self.ops[index];
        &mut self.words[op.buffer..op.buffer + op.request.words()]
    }
}
