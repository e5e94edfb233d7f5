//! Why one side of a session refuses the other, and the number of such refusals.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why one side refused to begin a session, or ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// The other side speaks another version of the protocol.
    #[error(
        "it speaks version {found} of the protocol between machines, this program version {expected}: run one release everywhere"
    )]
    Version {
        /// The version of the other side.
        found: u32,
        /// The version of this program.
        expected: u32,
    },
    /// The other side could not prove that it knows the secret: its secret differs, or it replays a recorded handshake.
    #[error("the secrets differ: all machines of a cluster need the same one")]
    Secret,
    /// A message out of sequence: altered, replayed, or after a lost one.
    #[error("a message was altered, repeated or lost on the way")]
    Replay,
    /// Bytes that are not frames of this protocol.
    #[error("it does not speak the protocol between machines: is another program at that address?")]
    Malformed,
    /// The endpoint has its maximum number of connections.
    #[error("the endpoint has too many connections")]
    TooMany,
    /// The other side did not complete a message in time.
    #[error("it began a message and did not finish it in time")]
    Silent,
}

impl Cause {
    /// The word for each cause, in the order in which they are counted.
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

    /// Its code in metrics: one word.
    pub fn word(self) -> &'static str {
        Self::WORDS[self.index()]
    }
}

/// The number of refusals since the start, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Cause::WORDS.len()]);

impl Refusals {
    /// Refusals for this cause; versions are not told apart.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause.index()]
    }

    /// Refusals of any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each cause's word ([`Cause::word`]) with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Cause::WORDS.into_iter().zip(self.0)
    }
}

/// The counters that [`Refusals`] are read from.
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
            Cause::Version { found: 9, expected: 2 },
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
        assert_eq!(
            (read.of(Cause::Silent), read.of(Cause::Version { found: 1, expected: 2 }), read.total()),
            (6, 1, 21)
        );
    }
}
