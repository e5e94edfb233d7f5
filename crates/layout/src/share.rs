//! What an edge shares with the others: its requests at each node, the answers that it has seen, and its verdict on
//! each site. There is one writer, and each word stands by itself.

use core::mem::offset_of;
use std::sync::atomic::AtomicU64;

use crate::describe::{Word, described};
use crate::policy::VERDICT;
use crate::region::TAIL_BYTES;
use crate::{NodeId, RegionHeader, SiteId};

const SHARE: Word = Word::new("share", &[("in_flight", 24), ("answers", 40)]);
/// Answers are counted modulo this.
const ANSWERS: u64 = SHARE.max(1) + 1;

/// An edge's report on its requests at one node: `in_flight:24 answers:40`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeShare {
    /// Requests sent there whose answer has not begun; at most 2^24 - 1.
    pub in_flight: u32,
    /// Successful answers that have begun, modulo 2^40: at a million a second that lasts 12 days.
    pub answers: u64,
}

impl NodeShare {
    /// The word's value.
    #[inline]
    pub const fn encode(self) -> u64 {
        let most = SHARE.max(0);
        let in_flight = if self.in_flight as u64 > most { most } else { self.in_flight as u64 };
        SHARE.pack([in_flight, self.answers])
    }

    /// Decodes the word; every value is valid.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [in_flight, answers] = SHARE.unpack(word);
        NodeShare { in_flight: in_flight as u32, answers }
    }

    /// Answers since `earlier`; 0 if there were fewer, as in another life of the edge.
    pub const fn answers_since(self, earlier: NodeShare) -> u64 {
        let passed = self.answers.wrapping_sub(earlier.answers) & (ANSWERS - 1);
        if passed < ANSWERS / 2 { passed } else { 0 }
    }
}

described! {
    pub(crate) struct ShareRegion {
        header: RegionHeader,
        beat: AtomicU64,
        zero: [u64; 7],
        slot: [ShareSlot; 0],
    }

    /// What has nothing to do with each other but its slot. So a reader copies what is used, and not all that there is room for.
    struct ShareSlot {
        #[word(SHARE)]
        node: AtomicU64,
        #[word(VERDICT)]
        site: AtomicU64,
    }
}

/// An edge's share: a line with its beat, then for each slot a word for the node and one for the site that have it. Readers copy it at
/// once, from the header's incarnation on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareMap {
    /// Slots in it, for as many nodes and sites.
    pub slots: usize,
}

impl ShareMap {
    /// Offset of a read of everything, which begins with the edge's incarnation.
    pub const INCARNATION: usize = offset_of!(RegionHeader, incarnation);
    /// Raised whenever the rest has been written. If it does not rise, the edge is dead or hangs.
    pub const BEAT: usize = offset_of!(ShareRegion, beat);

    const fn slot(self, slot: usize) -> usize {
        assert!(slot < self.slots, "a node or site without a word in the share");
        offset_of!(ShareRegion, slot) + slot * size_of::<ShareSlot>()
    }

    /// A [`NodeShare`].
    pub const fn node(self, node: NodeId) -> usize {
        self.slot(node.index()) + offset_of!(ShareSlot, node)
    }

    /// The verdict on the site's requests, as policy encodes it.
    pub const fn verdict(self, site: SiteId) -> usize {
        self.slot(site.index()) + offset_of!(ShareSlot, site)
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        offset_of!(ShareRegion, slot) + self.slots * size_of::<ShareSlot>() + TAIL_BYTES
    }

    /// Whether it has no slot.
    pub const fn is_empty(self) -> bool {
        self.slots == 0
    }
}

const _: () = {
    let map = ShareMap { slots: 3 };
    assert!(ShareMap::INCARNATION == 24 && ShareMap::BEAT == 64 && map.node(NodeId::new(1)) == 144);
    assert!(map.verdict(SiteId::new(0)) == 136 && map.len() == 176 + TAIL_BYTES);
};
