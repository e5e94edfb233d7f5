//! Who asks for a document: of all readers that want one which is not in its home's memory, the one that holds its claim.

use std::sync::atomic::AtomicU64;

use crate::describe::{Word, described};
use crate::{HEADER_BYTES, RegionHeader};

const CLAIM: Word = Word::new("claim", &[("tag", 24), ("until_ms", 40)]);
const UNTIL_MAX: u64 = CLAIM.max(1);
const NS_PER_MS: u64 = 1_000_000;

/// A reader's claim on a document: `tag:24 until_ms:40`. Readers alone change it, by compare-and-swap.
///
/// It is free when its time has come, as all zeros is. So one whose reader has died is free by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim(u64);

impl Claim {
    /// The longest that one is held, in nanoseconds.
    pub const LEASE_NS: u64 = 500 * NS_PER_MS;
    /// Nobody's.
    pub const FREE: Claim = Claim(0);

    /// One on the document whose key has this hash, from `now_ns` of the machine's monotonic clock on.
    pub const fn taken(hash: u64, now_ns: u64) -> Self {
        let until_ms = (now_ns + Claim::LEASE_NS) / NS_PER_MS;
        Claim(hash & !UNTIL_MAX | until_ms & UNTIL_MAX)
    }

    /// The word's value.
    pub const fn encode(self) -> u64 {
        self.0
    }

    /// Decodes the word; every value is valid.
    pub const fn decode(word: u64) -> Self {
        Claim(word)
    }

    /// Whether it is on a document whose key has this hash, or one with the same tag.
    pub const fn is_of(self, hash: u64) -> bool {
        (self.0 ^ hash) & !UNTIL_MAX == 0
    }

    /// Whether somebody has it. A time beyond any lease is nobody's.
    pub const fn is_held(self, now_ns: u64) -> bool {
        let (until_ms, now_ms) = (self.0 & UNTIL_MAX, now_ns / NS_PER_MS);
        until_ms > now_ms && until_ms - now_ms <= Claim::LEASE_NS / NS_PER_MS + 1
    }
}

described! {
    pub(crate) struct ClaimsRegion {
        header: RegionHeader,
        /// By the hash of the document's key.
        #[word(CLAIM)]
        claims: [AtomicU64; ClaimMap::CLAIMS],
    }
}

/// The region of claims on a home's documents: words after the header, by hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimMap;

impl ClaimMap {
    const CLAIMS: usize = 1 << 12;
    /// Length of the region.
    pub const LEN: usize = HEADER_BYTES + ClaimMap::CLAIMS * 8;

    /// The [`Claim`] of the document whose key has this hash.
    pub const fn claim(hash: u64) -> usize {
        HEADER_BYTES + hash as usize % ClaimMap::CLAIMS * 8
    }
}

const _: () = {
    const HASH: u64 = 0x1234_5678_9abc_def0;
    const NOW: u64 = 1 << 52;
    let claim = Claim::decode(Claim::taken(HASH, NOW).encode());
    assert!(claim.is_of(HASH) && !claim.is_of(!HASH) && claim.is_held(NOW));
    assert!(claim.is_held(NOW + Claim::LEASE_NS - NS_PER_MS) && !claim.is_held(NOW + Claim::LEASE_NS));
    assert!(!Claim::FREE.is_held(NOW) && !Claim::FREE.is_held(0) && !Claim::decode(u64::MAX).is_held(NOW));
    assert!(
        ClaimMap::claim(HASH) == HEADER_BYTES + 0xef0 * 8 && ClaimMap::claim(u64::MAX) + 8 == ClaimMap::LEN
    );
};
