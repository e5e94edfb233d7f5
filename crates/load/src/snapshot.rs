//! What a reader takes from a load region, in one piece: which life of the node, its hot line, its acknowledgement.
//!
//! They lie one after the other, so that one read brings them all. Only the hot line carries a check; the others are one
//! word each.

use core::mem::offset_of;

use sidelong_fabric::Region;
use sidelong_layout::{
    HEADER_BYTES, Hot, KERNEL_BYTES, LOAD_ACK, LOAD_BYTES, LOAD_HOT, RegionHeader, RegionKind,
};

use crate::Error;

/// Where the read begins in a load region.
pub(crate) const OFFSET: usize = offset_of!(RegionHeader, incarnation);
/// Length of the read, in bytes.
pub(crate) const BYTES: usize = LOAD_ACK + 8 - OFFSET;

/// One look at a node; nothing of it is validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) incarnation: u64,
    pub(crate) hot: [u64; Hot::WORDS],
    pub(crate) ack: u64,
}

impl Snapshot {
    /// From the words of a one-sided read of [`BYTES`] at [`OFFSET`].
    pub(crate) fn of_words(words: &[u64]) -> Snapshot {
        const HOT: usize = (LOAD_HOT - OFFSET) / 8;
        let hot = words[HOT..HOT + Hot::WORDS].try_into().expect("a slice of that length");
        Snapshot { incarnation: words[0], hot, ack: words[(LOAD_ACK - OFFSET) / 8] }
    }

    /// By the CPU, on the node.
    pub(crate) fn of_region(region: &Region) -> Snapshot {
        Snapshot {
            incarnation: region.load(OFFSET),
            hot: std::array::from_fn(|index| region.load(LOAD_HOT + index * 8)),
            ack: region.load(LOAD_ACK),
        }
    }
}

const _: () =
    assert!(LOAD_HOT == HEADER_BYTES && LOAD_ACK == LOAD_HOT + 8 * Hot::WORDS && OFFSET.is_multiple_of(8));

/// The shapes that a node's load record has: kept by a thread, and by the kernel.
pub(crate) const SHAPES: [(RegionKind, usize); 2] =
    [(RegionKind::Load, LOAD_BYTES), (RegionKind::Kernel, KERNEL_BYTES)];

/// Which life of the node offers `region`, if it is one with a load record of `kind`.
pub(crate) fn incarnation_of(region: &Region, kind: RegionKind) -> Result<u64, Error> {
    let words = std::array::from_fn(|index| region.load(index * 8));
    let len = SHAPES.iter().find(|(shape, _)| *shape == kind).map_or(0, |(_, len)| *len);
    let header = RegionHeader::checked(&words, kind, len)
        .map_err(|source| Error::Region { name: region.key().name.clone(), source })?;
    Ok(header.incarnation)
}
