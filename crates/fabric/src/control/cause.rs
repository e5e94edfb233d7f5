//! Why one side of a session refuses the other, and how often it did.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::wire::PROTOCOL;

/// Why a session was not begun, or ended, by one of its sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// The other side's protocol is another.
    #[error(
        "it speaks version {found} of the control protocol, this program version {PROTOCOL}: run one release everywhere"
    )]
    Version {
        /// What it speaks.
        found: u32,
    },
    /// The other side could not prove that it knows the secret: it has another one, or repeats a set-up that it has
    /// overheard.
    #[error("the secrets differ: all machines of a cluster need the same one")]
    Secret,
    /// A message that does not follow the last one of its session.
    #[error("a message was altered, repeated or left out on its way")]
    Replay,
    /// Not frames of this protocol.
    #[error("what it says is not the control protocol: is another program at that address?")]
    Malformed,
    /// The endpoint has no room.
    #[error("the endpoint has too many connections")]
    TooMany,
    /// Something was begun and not finished.
    #[error("it fell silent before it was done")]
    Silent,
}

impl Cause {
    /// The word for each, in the order in which they are counted.
    const WORDS: [&'static str; 6] = ["version", "secret", "replay", "malformed", "too-many", "silent"];

    fn index(self) -> usize {
        match self {
            Cause::Version { .. } => 0,
            Cause::Secret => 1,
            Cause::Replay => 2,
            Cause::Malformed => 3,
            Cause::TooMany => 4,
            Cause::Silent => 5,
        }
    }

    /// One word, for metrics.
    pub fn word(self) -> &'static str {
        Self::WORDS[self.index()]
    }
}

/// How often was refused since the start, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Cause::WORDS.len()]);

impl Refusals {
    /// Refusals for the causes of that word ([`Cause::word`]); which version was found does not matter.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause.index()]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each word with its count, those that never happened included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Cause::WORDS.into_iter().zip(self.0)
    }
}

/// What [`Refusals`] are read from.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Cause::WORDS.len()]);

impl Counts {
    pub(super) fn add(&self, cause: Cause) {
        self.0[cause.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Refusals {
        Refusals(std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_counted_by_its_own_word() {
        let causes = [
            Cause::Version { found: 9 },
            Cause::Secret,
            Cause::Replay,
            Cause::Malformed,
            Cause::TooMany,
            Cause::Silent,
        ];
        let counts = Counts::default();
        for (index, cause) in causes.into_iter().enumerate() {
            (0..=index).for_each(|_| counts.add(cause));
        }
        let read = counts.read();
        for ((word, count), cause) in read.iter().zip(causes) {
            assert_eq!((word, count), (cause.word(), read.of(cause)));
        }
        assert_eq!((read.of(Cause::Silent), read.of(Cause::Version { found: 1 }), read.total()), (6, 1, 21));
    }
}
