//! A list of one-sided operations, their buffers and their outcomes.
//!
//! The batch owns every buffer that an operation reads from or into, and is borrowed by [`Initiator::run`] until the
//! last completion, so memory in flight can be neither touched nor freed. It is reused: [`Batch::clear`] keeps what it
//! has allocated.
//!
//! [`Initiator::run`]: crate::Initiator::run

use crate::{LinkId, OpError};

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpId(u32);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    CompareAndSwap { expected: u64, new: u64 },
    FetchAndAdd { add: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) link: LinkId,
    pub(crate) kind: Kind,
    /// In the region, in bytes.
    pub(crate) offset: usize,
    /// In bytes; 8 for atomics.
    pub(crate) len: usize,
    /// First word of its buffer in `Batch::words`: data of a read or write, the value before of an atomic.
    buffer: usize,
    pub(crate) outcome: Result<(), OpError>,
}

/// Operations to run together; see the module.
#[derive(Default, Debug)]
pub struct Batch {
    ops: Vec<Op>,
    words: Vec<u64>,
}

impl Batch {
    /// An empty one.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Forgets the operations, keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.words.clear();
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a read of `len` bytes at `offset`, a multiple of 8.
    pub fn read(&mut self, link: LinkId, offset: usize, len: usize) -> OpId {
        self.add(link, Kind::Read, offset, len)
    }

    /// Adds a write of `words` at `offset`, a multiple of 8.
    pub fn write(&mut self, link: LinkId, offset: usize, words: &[u64]) -> OpId {
        let op = self.add(link, Kind::Write, offset, words.len() * 8);
        self.buffer_mut(op.0 as usize).copy_from_slice(words);
        op
    }

    /// Adds a compare-and-swap of the word at `offset`. It took place if [`Batch::value`] then is `expected`.
    pub fn compare_and_swap(&mut self, link: LinkId, offset: usize, expected: u64, new: u64) -> OpId {
        self.add(link, Kind::CompareAndSwap { expected, new }, offset, 8)
    }

    /// Adds a fetch-and-add, wrapping, to the word at `offset`.
    pub fn fetch_and_add(&mut self, link: LinkId, offset: usize, add: u64) -> OpId {
        self.add(link, Kind::FetchAndAdd { add }, offset, 8)
    }

    /// What a read brought, the last word padded with whatever follows in the region.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn words(&self, op: OpId) -> Result<&[u64], OpError> {
        self.ops[op.0 as usize].outcome.map(|()| self.buffer(op.0 as usize))
    }

    /// What a read brought, to the byte.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn bytes(&self, op: OpId) -> Result<&[u8], OpError> {
        let len = self.ops[op.0 as usize].len;
        Ok(&bytemuck::cast_slice(self.words(op)?)[..len])
    }

    /// The word before an atomic, or the first word of a read.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn value(&self, op: OpId) -> Result<u64, OpError> {
        self.words(op).map(|words| words[0])
    }

    fn add(&mut self, link: LinkId, kind: Kind, offset: usize, len: usize) -> OpId {
        let buffer = self.words.len();
        self.words.resize(buffer + len.div_ceil(8), 0);
        self.ops.push(Op { link, kind, offset, len, buffer, outcome: Err(OpError::NotRun) });
        OpId(self.ops.len() as u32 - 1)
    }

    // What backends need: the operations by index, and each one's buffer.

    pub(crate) fn op(&self, index: usize) -> &Op {
        &self.ops[index]
    }

    pub(crate) fn finish(&mut self, index: usize, outcome: Result<(), OpError>) {
        self.ops[index].outcome = outcome;
    }

    pub(crate) fn buffer(&self, index: usize) -> &[u64] {
        let op = &self.ops[index];
        &self.words[op.buffer..op.buffer + op.len.div_ceil(8)]
    }

    pub(crate) fn buffer_mut(&mut self, index: usize) -> &mut [u64] {
        let op = &self.ops[index];
        &mut self.words[op.buffer..op.buffer + op.len.div_ceil(8)]
    }
}
