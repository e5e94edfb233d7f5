//! What machines and their drivers exchange: operations on named words, and replies.

use sidelong_layout::{EdgeId, NodeId, SiteId, Time};

/// How many sites and nodes there are: what a repair goes over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pool {
    /// Sites, numbered from 0.
    pub sites: u16,
    /// Nodes, numbered from 0.
    pub nodes: u16,
}

/// An 8-byte word of the shared state, by name. Where it lies is the driver's business.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word {
    /// A site's lock (`layout::Lock`).
    Lock(SiteId),
    /// A site's budget (`layout::Budget`).
    Budget(SiteId),
    /// An edge's shared update counter for a site (R 3.1.2).
    Counter(SiteId, EdgeId),
    /// What a node does (`layout::Ownership`).
    Ownership(NodeId),
    /// What a node last acted on (`layout::Ack`). Read-only to all but the node's own CPU.
    Ack(NodeId),
}

/// One one-sided operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    /// Reads a word.
    Read(Word),
    /// Stores `new` if the word holds `expected`.
    CompareAndSwap {
        /// The word to change.
        word: Word,
        /// What it must hold.
        expected: u64,
        /// What it then holds.
        new: u64,
    },
    /// Adds to a word, wrapping.
    FetchAndAdd {
        /// The word to change.
        word: Word,
        /// What to add.
        add: u64,
    },
}

impl Op {
    /// The word that it reads or changes.
    pub const fn word(self) -> Word {
        match self {
            Op::Read(word) | Op::CompareAndSwap { word, .. } | Op::FetchAndAdd { word, .. } => word,
        }
    }

    /// What a word that holds `value` holds afterwards.
    pub const fn applied_to(self, value: u64) -> u64 {
        match self {
            Op::CompareAndSwap { expected, new, .. } if expected == value => new,
            Op::FetchAndAdd { add, .. } => value.wrapping_add(add),
            Op::Read(_) | Op::CompareAndSwap { .. } => value,
        }
    }
}

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// It took effect; the word held this before. A compare-and-swap changed it only if that is what it expected.
    Value(u64),
    /// No completion in time: it took effect, or will, or never does.
    Lost,
}

/// What a machine wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// Post this operation, and call again with its reply.
    Do(Op),
    /// Call again without a reply by this time; earlier does no harm.
    WaitUntil(Time),
    /// It has ended. Do not call again.
    Done(T),
}

/// The result of a machine inside another one; what the inner one wants goes to the caller.
macro_rules! done {
    ($step:expr) => {
        match $step {
            $crate::Step::Do(op) => return $crate::Step::Do(op),
            $crate::Step::WaitUntil(time) => return $crate::Step::WaitUntil(time),
            $crate::Step::Done(value) => value,
        }
    };
}
pub(crate) use done;
