//! What machines and their drivers exchange: operations on named words, and replies.

use sidelong_layout::{EdgeId, NodeId, SiteId, Time};

/// An 8-byte word of the shared state, by name. The driver knows its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word {
    /// A site's lock (`layout::Lock`).
    Lock(SiteId),
    /// A site's budget (`layout::Budget`).
    Budget(SiteId),
    /// An edge's shared update counter for a site (Balaji et al. 2004, 3.1.2).
    Counter(SiteId, EdgeId),
    /// A node's ownership (`layout::Ownership`).
    Ownership(NodeId),
    /// A node's last acknowledgement (`layout::Ack`). Only the node's own CPU writes it.
    Ack(NodeId),
    /// What a front says of a node (`layout::FrontWord`). Only the front's own CPUs change it. Read of a front that is
    /// known to exist no longer, it is [`FrontWord::GONE`](sidelong_layout::FrontWord::GONE).
    Front(EdgeId, NodeId),
    /// The epoch of the cluster's newest roster. Whoever changes the roster raises it, and never lowers it.
    Epoch,
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
        /// The new value.
        new: u64,
    },
    /// Adds to a word, wrapping.
    FetchAndAdd {
        /// The word to change.
        word: Word,
        /// The value to add.
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

    /// The value of a word that held `value`, after the operation.
    pub const fn applied_to(self, value: u64) -> u64 {
        match self {
            Op::CompareAndSwap { expected, new, .. } if expected == value => new,
            Op::FetchAndAdd { add, .. } => value.wrapping_add(add),
            Op::Read(_) | Op::CompareAndSwap { .. } => value,
        }
    }
}

/// The result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// It took effect, and the word held this value before. A compare-and-swap changed it only if this is the expected
    /// value.
    Value(u64),
    /// No completion in time: it took effect, or will, or never does.
    Lost,
}

/// What a machine wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// Post this operation, and call again with its reply.
    Do(Op),
    /// Call again without a reply by this time; an earlier call does no harm.
    WaitUntil(Time),
    /// It has ended. Do not call again.
    Done(T),
}

/// Returns the result of an inner machine; passes its other steps to the caller.
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
