//! Numbers for names: the URLs and hosts of a log, in order of first appearance.

use std::collections::HashMap;

use twox_hash::XxHash3_64;

/// Most distinct URLs of one log that are numbered, and most distinct clients; later ones get their hash.
pub const NAMES_MAX: usize = 1 << 24;

/// Most bytes of all numbered URLs of one log, and of all numbered clients.
pub const NAME_BYTES_MAX: usize = 1 << 30;

/// Set in numbers that are hashes, so that they differ from assigned numbers.
const HASH_FLAG: u64 = 1 << 63;

/// A bounded interner.
#[derive(Debug)]
pub(crate) struct Names {
    ids: HashMap<Box<[u8]>, u32>,
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
    /// Set by the first name that does not fit. A shorter name kept later might have appeared before.
    is_full: bool,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self::with_limits(NAMES_MAX, NAME_BYTES_MAX)
    }

    fn with_limits(names_max: usize, bytes_max: usize) -> Self {
        Names { ids: HashMap::new(), bytes: 0, names_max, bytes_max, is_full: false }
    }

    /// The number of `name`: the next one if it is new; beyond the limits 63 bits of its hash with the flag set.
    pub(crate) fn id(&mut self, name: &[u8]) -> u64 {
        if let Some(&id) = self.ids.get(name) {
            return id.into();
        }
        self.is_full |= self.ids.len() >= self.names_max || name.len() > self.bytes_max - self.bytes;
        if self.is_full {
            return XxHash3_64::oneshot(name) | HASH_FLAG;
        }
        let id = self.ids.len() as u32;
        self.bytes += name.len();
        self.ids.insert(name.into(), id);
        id.into()
    }

    /// The number of `name` in 32 bits: of a hash, 31 bits with the flag set.
    pub(crate) fn short_id(&mut self, name: &[u8]) -> u32 {
        let id = self.id(name);
        u32::try_from(id).unwrap_or((id >> 32) as u32)
    }
}

// So that `as u32` in `id` is lossless, and no number of ours has the bit of a hash.
const _: () = assert!(NAMES_MAX <= 1 << 31);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stable() {
        let mut names = Names::new();
        assert_eq!([b"/a", b"/b", b"/a", b"/c", b"/b"].map(|name| names.id(name)), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn names_beyond_either_limit_have_numbers_too_and_keep_them() {
        for (names_max, bytes_max) in [(2, 100), (100, 5)] {
            let mut names = Names::with_limits(names_max, bytes_max);
            let first = [b"/a", b"/b", b"/c", b"/d"].map(|name| names.id(name));
            assert_eq!(first[..2], [0, 1]);
            assert!(first[2] >= HASH_FLAG && first[3] >= HASH_FLAG && first[2] != first[3]);
            // One byte would fit, but other names were already rejected.
            assert!(names.id(b"/") >= HASH_FLAG);
            assert_eq!([b"/a", b"/b", b"/c", b"/d"].map(|name| names.id(name)), first);
            let short = [b"/b", b"/c", b"/d"].map(|name| names.short_id(name));
            assert!(short[0] == 1 && short[1] >= 1 << 31 && short[2] >= 1 << 31 && short[1] != short[2]);
        }
    }
}
