//! Memory that several processes see: the one place with raw pointers.
//!
//! It is only ever touched as 8-byte atomics, so concurrent access from other threads and processes is a race of
//! atomics, which is defined, and never one of plain accesses, which is not.
//!
//! Operations of one thread take effect in its program order, a write before a later read included, as a peer's NIC
//! would have it: hence the sequentially consistent loads (on x86 and Arm they cost what acquiring ones do) and the
//! fence behind a write.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use crate::batch::{Kind, Request};
use crate::{Access, OpError};

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

    /// The first `len` bytes of what `file` maps, whatever its own length is said to be: a BPF map has none, and refuses to
    /// be mapped beyond its end.
    pub(crate) fn of_map(file: &File, len: usize, access: Access) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            return Memory::of_file(file, len, access);
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

    /// Where it is mapped, for a device that is told to reach it.
    #[cfg(feature = "verbs")]
    pub(crate) fn address(&self) -> *const u8 {
        self.map.as_ptr()
    }

    /// What this mapping allows.
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// Puts `contents` there from the start, before anyone else sees it.
    pub(crate) fn fill(&self, contents: &[u64]) {
        for (index, word) in contents.iter().enumerate() {
            self.store(index * 8, *word, Ordering::Relaxed);
        }
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

    /// Does one operation here and now, if it may: the whole of the shm backend. `buffer` is the source of a write, and
    /// takes the data of a read and the value before an atomic. What is for an inbox is checked and left to whoever knows
    /// it, with [`OpError::NoInbox`].
    #[inline]
    pub(crate) fn apply(
        &self,
        request: &Request,
        granted: Access,
        buffer: &mut [u64],
    ) -> Result<(), OpError> {
        request.check(self.len(), granted)?;
        match request.kind {
            Kind::Read => self.read(request.offset, buffer),
            Kind::Write => self.write(request.offset, buffer),
            Kind::CompareAndSwap { expected, new } => {
                let word = &self.words()[request.offset / 8];
                let swap = word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
                buffer[0] = swap.unwrap_or_else(|found| found);
            }
            Kind::FetchAndAdd { add } => {
                buffer[0] = self.words()[request.offset / 8].fetch_add(add, Ordering::SeqCst);
            }
            Kind::Send | Kind::WriteWithImmediate { .. } => return Err(OpError::NoInbox),
        }
        Ok(())
    }

    /// Copies words out, from `offset` bytes on; they are there (`Request::check`).
    #[inline]
    pub(crate) fn read(&self, offset: usize, to: &mut [u64]) {
        for (to, from) in to.iter_mut().zip(&self.words()[offset / 8..]) {
            *to = from.load(Ordering::SeqCst);
        }
    }

    /// Copies words in; they are there, and the mapping is writable.
    pub(crate) fn write(&self, offset: usize, from: &[u64]) {
        fence(Ordering::Release);
        for (from, to) in from.iter().zip(&self.words()[offset / 8..]) {
            to.store(*from, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// The word at `offset` bytes, for protocols on memory (an inbox's ring).
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(self.access == Access::Atomic, "a protocol in memory needs the right to write");
        &self.words()[offset / 8]
    }

    /// The half word at `offset` bytes, a multiple of 8, which the kernel waits on. Nobody uses it as a whole word, once
    /// the memory is filled.
    pub(crate) fn half_word(&self, offset: usize) -> &AtomicU32 {
        let word = self.word(offset);
        // SAFETY: the first half of a word that outlives the borrow, aligned as it is. Every access to it is atomic and of
        // this size, as said above.
        unsafe { &*word.as_ptr().cast::<AtomicU32>() }
    }

    /// All of it, as words.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as `self`, starts at a page and so is aligned to 8, and spans `len` bytes.
        // Every access by every process is atomic (see the module), and where the mapping is read-only
        // `Request::check` and `store` keep this process to loads, which are allowed on such memory.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.map.len() / 8) }
    }
}
