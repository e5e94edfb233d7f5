//! What a front says of one node: which ownership it has seen, and how many of its requests there have not ended.
//!
//! A node has left its old site once each front has seen that it drains, and none of their requests there is left. For
//! this to be true and to stay true, a front that sends a request raises its count, then reads the node's ownership
//! again, and takes the count back if the node no longer serves the site. A front that sees a new ownership first makes
//! it visible to its own requests, then reads its count, and states both. So a request is either in the count that is
//! stated with the new generation, or it finds the new ownership and is not sent.

use std::sync::atomic::AtomicU64;

use crate::describe::{Word, described};
use crate::region::TAIL_BYTES;
use crate::word::SEQUENCE_MAX;
use crate::{HEADER_BYTES, NodeId, RegionHeader};

const FRONT: Word = Word::new("front", &[("seen", 1), ("generation", 36), ("requests", 27)]);
const REQUESTS_MAX: u32 = FRONT.max(2) as u32;

/// A front's word about one node: `seen:1 generation:36 requests:27`. Only the front's own CPU writes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FrontWord {
    /// Generation of the ownership word that the front has seen last; `None` before the first.
    pub seen: Option<u64>,
    /// Its requests at the node that have not ended, at most 2^27 - 1. They were counted after the ownership was seen.
    pub requests: u32,
}

impl FrontWord {
    /// What is read of a front that no longer exists: its requests ended with it.
    pub const GONE: u64 = u64::MAX;

    /// The word's value.
    #[inline]
    pub const fn encode(self) -> u64 {
        let (seen, generation) = match self.seen {
            Some(generation) => (1, generation),
            None => (0, 0),
        };
        let requests = if self.requests > REQUESTS_MAX { REQUESTS_MAX } else { self.requests };
        FRONT.pack([seen, generation, requests as u64])
    }

    /// Decodes the word; every value is valid.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [seen, generation, requests] = FRONT.unpack(word);
        FrontWord { seen: if seen == 1 { Some(generation) } else { None }, requests: requests as u32 }
    }

    /// What two processes of one front state together: one that took over, and one whose requests go on, with the word `other`. They have
    /// seen what both have; each one's statement that the front has left a node stays true while that drains, and so does this.
    pub const fn and(self, other: u64) -> Self {
        if other == FrontWord::GONE {
            return self;
        }
        let other = FrontWord::decode(other);
        let seen = match (self.seen, other.seen) {
            (Some(one), Some(two)) if one == two => Some(one),
            _ => None,
        };
        FrontWord { seen, requests: self.requests.saturating_add(other.requests) }
    }

    /// Whether the front with the word `word` has left a node that drains with `generation`.
    pub const fn has_left(word: u64, generation: u64) -> bool {
        let front = FrontWord::decode(word);
        word == FrontWord::GONE
            || front.requests == 0 && matches!(front.seen, Some(seen) if seen == generation & SEQUENCE_MAX)
    }
}

described! {
    pub(crate) struct FrontRegion {
        header: RegionHeader,
        #[word(FRONT)]
        node: [AtomicU64; 0],
    }
}

/// A front's region: after the header a word for each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrontMap {
    /// Nodes in it.
    pub nodes: usize,
}

impl FrontMap {
    /// A [`FrontWord`].
    pub const fn node(self, node: NodeId) -> usize {
        assert!(node.index() < self.nodes, "a node without a word in the front's region");
        HEADER_BYTES + node.index() * 8
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        HEADER_BYTES + self.nodes * 8 + TAIL_BYTES
    }

    /// Whether it has no node.
    pub const fn is_empty(self) -> bool {
        self.nodes == 0
    }
}

const _: () = {
    const fn has_left(seen: u64, requests: u32, generation: u64) -> bool {
        FrontWord::has_left(FrontWord { seen: Some(seen), requests }.encode(), generation)
    }
    assert!(has_left(0, 0, 0) && has_left(SEQUENCE_MAX, 0, SEQUENCE_MAX));
    assert!(FrontWord::has_left(FrontWord::GONE, 3));
    // It has seen nothing, something else, or has a request there.
    assert!(!FrontWord::has_left(0, 0) && !has_left(1, 0, 2) && !has_left(2, 1, 2));
    assert!(
        FrontWord::decode(FrontWord { seen: Some(9), requests: u32::MAX }.encode()).requests == REQUESTS_MAX
    );
    // Two processes have left once both have.
    const fn both(one: FrontWord, two: FrontWord, generation: u64) -> bool {
        FrontWord::has_left(one.and(two.encode()).encode(), generation)
    }
    let (old, left, busy) = (
        FrontWord { seen: Some(2), requests: 0 },
        FrontWord { seen: Some(3), requests: 0 },
        FrontWord { seen: Some(3), requests: 1 },
    );
    assert!(both(left, left, 3) && !both(left, busy, 3) && !both(busy, left, 3));
    assert!(
        !both(left, old, 3) && !both(old, left, 3) && !both(left, FrontWord { seen: None, requests: 0 }, 3)
    );
    assert!(FrontWord::has_left(left.and(FrontWord::GONE).encode(), 3));
    assert!(
        FrontMap { nodes: 3 }.node(NodeId::new(2)) == 80 && FrontMap { nodes: 3 }.len() == 88 + TAIL_BYTES
    );
};
