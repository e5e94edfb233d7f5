//! Words that two processes of one machine share by an open file, which one of them hands to the other.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::Access;
use crate::memory::Memory;

/// Such words. One process stores them, the other loads them.
#[derive(Debug)]
pub struct SharedWords {
    memory: Memory,
    file: File,
}

impl SharedWords {
    /// So many words, all 0.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn new(words: usize) -> io::Result<Self> {
        let file = memfd_create("sidelong-words", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, words as u64 * 8)?;
        // It stays as long as it is, whoever has it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        SharedWords::of(file.into(), words)
    }

    /// So many words of another process, whose file this is.
    ///
    /// # Errors
    /// If it is shorter, or cannot be mapped.
    pub fn of(file: File, words: usize) -> io::Result<Self> {
        Ok(SharedWords { memory: Memory::of_file(&file, words * 8, Access::Atomic)?, file })
    }

    /// The word of that number.
    ///
    /// # Panics
    /// If there is none.
    pub fn load(&self, word: usize) -> u64 {
        self.memory.load(word * 8)
    }

    /// Stores a word, after all earlier stores.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn store(&self, word: usize, value: u64) {
        self.memory.store(word * 8, value, Ordering::Release);
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
