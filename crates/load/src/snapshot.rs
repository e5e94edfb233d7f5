//! What a reader copies from a load region at once: the node's incarnation, its hot line, and its acknowledgement.
//!
//! They are adjacent, so that one read covers them. Only the hot line carries a check; the others are one word each.

use core::mem::offset_of;

use sidelong_fabric::Region;
use sidelong_layout::{HEADER_BYTES, Hot, LOAD_ACK, LOAD_HOT, LOAD_SHAPES, RegionHeader, RegionKind};

use crate::Error;

/// Offset of the read in a load region.
pub(crate) const OFFSET: usize = offset_of!(RegionHeader, incarnation);
/// Length of the read, in bytes.
pub(crate) const BYTES: usize = LOAD_ACK + 8 - OFFSET;

/// One copy of a node's words, not validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) incarnation: u64,
    pub(crate) hot: [u64; Hot::WORDS],
    pub(crate) ack: u64,
}

impl Snapshot {
    /// Made of the words of a one-sided read of [`BYTES`] at [`OFFSET`].
    pub(crate) fn of_words(words: &[u64]) -> Snapshot {
        const HOT: usize = (LOAD_HOT - OFFSET) / 8;
        let hot = words[HOT..HOT + Hot::WORDS].try_into().expect("a slice of that length");
        Snapshot { incarnation: words[0], hot, ack: words[(LOAD_ACK - OFFSET) / 8] }
    }

    /// Made by the CPU, on the node.
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

/// The incarnation of the owner of `region`, if the region holds a load record of `kind`.
pub(crate) fn incarnation_of(region: &Region, kind: RegionKind) -> Result<u64, Error> {
    let words = std::array::from_fn(|index| region.load(index * 8));
    let len = LOAD_SHAPES.iter().find(|(shape, _)| *shape == kind).map_or(0, |(_, len)| *len);
    let header = RegionHeader::checked(&words, 0, kind, len)
        .map_err(|source| Error::Region { name: region.key().name.clone(), source })?;
    Ok(header.incarnation)
}
