//! Hashes that several crates must compute alike. They protect nothing.

/// FNV-1a, 64 bits (draft-eastlake-fnv, section 6).
pub const fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_on(0xcbf2_9ce4_8422_2325, bytes)
}

/// FNV-1a of what has this `hash`, and then these bytes.
pub(crate) const fn fnv1a_on(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014, with Stafford's constants, variant 13): a bijection in which each bit
/// of the result depends on all bits of `z`.
pub const fn mix64(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
