//! The words of a region, in the file that all parts map.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// The word at `offset` bytes.
pub fn read_word(file: &File, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Writes the word at `offset` bytes.
pub fn write_word(file: &File, offset: usize, word: u64) {
    file.write_all_at(&word.to_le_bytes(), offset as u64).unwrap();
}
