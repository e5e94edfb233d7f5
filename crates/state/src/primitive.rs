//! The two operations that machines consist of, each with a bounded number of lost completions.
//!
//! Step them with `None` to post (again), and with the reply to continue.

use crate::op::{Op, Reply, Step, Word};

/// Consecutive lost completions of one operation after which its word counts as out of reach.
pub(crate) const LOSSES_MAX: u8 = 3;

/// One read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Load {
    word: Word,
    losses: u8,
}

impl Load {
    pub(crate) const fn new(word: Word) -> Self {
        Load { word, losses: 0 }
    }

    /// The word's value; `None` if it is out of reach.
    pub(crate) fn step(&mut self, reply: Option<Reply>) -> Step<Option<u64>> {
        match reply {
            Some(Reply::Value(value)) => Step::Done(Some(value)),
            Some(Reply::Lost) if self.losses + 1 == LOSSES_MAX => Step::Done(None),
            Some(Reply::Lost) => {
                self.losses += 1;
                Step::Do(Op::Read(self.word))
            }
            None => Step::Do(Op::Read(self.word)),
        }
    }
}

/// The result of a [`Swap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Swapped {
    /// The word holds the new value, or did.
    Yes,
    /// The completion was lost, and the same swap, posted again, found the new value: written by the first one, or by
    /// another process that wanted exactly the same.
    Already,
    /// The word holds this value, so the swap can no longer take effect. (After a lost completion it may have taken
    /// effect before the word was changed again.)
    No(u64),
    /// The fate is unknown; it may still take effect.
    Unknown,
}

/// One compare-and-swap. After a lost completion the same operation is posted again. Every change of a word raises its
/// sequence, so the two together take effect at most once, and the second tells the fate of the first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Swap {
    word: Word,
    expected: u64,
    new: u64,
    losses: u8,
    losses_max: u8,
}

impl Swap {
    pub(crate) const fn new(word: Word, expected: u64, new: u64) -> Self {
        Swap { word, expected, new, losses: 0, losses_max: LOSSES_MAX }
    }

    /// A swap that is not posted twice: `Unknown` at the first loss. For changes where it matters *which process* made
    /// them.
    pub(crate) const fn once(word: Word, expected: u64, new: u64) -> Self {
        Swap { word, expected, new, losses: 0, losses_max: 1 }
    }

    pub(crate) fn step(&mut self, reply: Option<Reply>) -> Step<Swapped> {
        match reply {
            Some(Reply::Value(found)) if found == self.expected => Step::Done(Swapped::Yes),
            Some(Reply::Value(found)) if found == self.new && self.losses > 0 => Step::Done(Swapped::Already),
            Some(Reply::Value(found)) => Step::Done(Swapped::No(found)),
            Some(Reply::Lost) if self.losses + 1 == self.losses_max => Step::Done(Swapped::Unknown),
            Some(Reply::Lost) => {
                self.losses += 1;
                Step::Do(self.op())
            }
            None => Step::Do(self.op()),
        }
    }

    const fn op(&self) -> Op {
        Op::CompareAndSwap { word: self.word, expected: self.expected, new: self.new }
    }
}
