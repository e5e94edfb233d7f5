//! Memory that several processes see: the one place with raw pointers.
//!
//! It is only ever touched as 8-byte atomics, so concurrent access from other threads and processes is a race of
//! atomics, which is defined, and never one of plain accesses, which is not.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use crate::batch::Kind;
use crate::{Access, Batch, OpError};

/// Mapped words, writable or not.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapRaw,
    access: Access,
}

impl Memory {
    /// Private to this process and its threads (what a tcp target or a simulated one offers).
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_anon()?;
        Ok(Memory { map: map.into(), access: Access::Atomic })
    }

    /// The first `len` bytes of `file`. The file must hold them: a mapping past its end kills the process that touches
    /// it, so the length is checked here and the file's room was allocated when it was made.
    pub(crate) fn of_file(file: &File, len: usize, access: Access) -> io::Result<Self> {
        if file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its region"));
        }
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match access {
            Access::Atomic => options.map_raw(file)?,
            Access::ReadOnly => options.map_raw_read_only(file)?,
        };
        Ok(Memory { map, access })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// All of it, as words.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as `self`, starts at a page and so is aligned to 8, and spans `len` bytes.
        // Every access by every process is atomic (see the module), and where the mapping is read-only `checked` and
        // `store` keep this process to loads, which are allowed on such memory.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.map.len() / 8) }
    }

    /// The word at `offset` bytes.
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.words()[offset / 8].load(Ordering::Acquire)
    }

    /// Stores a word as the region's owner.
    pub(crate) fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        assert!(self.access == Access::Atomic, "a store through a read-only mapping");
        self.words()[offset / 8].store(value, ordering);
    }

    /// Does one operation of a batch here and now: the whole of the shm backend, and the target's half of the others.
    pub(crate) fn execute(&self, batch: &mut Batch, index: usize, granted: Access) {
        let op = *batch.op(index);
        let outcome = self.apply(op.kind, op.offset, op.len, granted, batch.buffer_mut(index));
        batch.finish(index, outcome);
    }

    /// `buffer` is the source of a write, and takes the data of a read and the value before an atomic.
    pub(crate) fn apply(
        &self,
        kind: Kind,
        offset: usize,
        len: usize,
        granted: Access,
        buffer: &mut [u64],
    ) -> Result<(), OpError> {
        let words = self.checked(kind, offset, len, granted)?;
        match kind {
            Kind::Read => {
                for (to, from) in buffer.iter_mut().zip(words) {
                    *to = from.load(Ordering::Relaxed);
                }
                fence(Ordering::Acquire);
            }
            Kind::Write => {
                fence(Ordering::Release);
                for (from, to) in buffer.iter().zip(words) {
                    to.store(*from, Ordering::Relaxed);
                }
            }
            Kind::CompareAndSwap { expected, new } => {
                let swap = words[0].compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
                buffer[0] = swap.unwrap_or_else(|found| found);
            }
            Kind::FetchAndAdd { add } => buffer[0] = words[0].fetch_add(add, Ordering::AcqRel),
        }
        Ok(())
    }

    /// The words that an operation touches, if it may.
    fn checked(
        &self,
        kind: Kind,
        offset: usize,
        len: usize,
        granted: Access,
    ) -> Result<&[AtomicU64], OpError> {
        let reads = matches!(kind, Kind::Read);
        if !reads && (granted == Access::ReadOnly || self.access == Access::ReadOnly) {
            return Err(OpError::ReadOnly);
        }
        if !offset.is_multiple_of(8) || !(reads || len.is_multiple_of(8)) {
            return Err(OpError::Misaligned { offset, len });
        }
        let (first, count) = (offset / 8, len.div_ceil(8));
        self.words().get(first..first.saturating_add(count)).ok_or(OpError::OutOfBounds {
            offset,
            len,
            region: self.len(),
        })
    }
}
