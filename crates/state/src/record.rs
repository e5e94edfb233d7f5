//! Load records: how a reader judges a copy, and how the one writer publishes.
//!
//! A reader never uses a record that is torn, of an earlier life of the node, or older than one it has used. It asks
//! for another copy a bounded number of times, and then reports why it has none.

use sidelong_layout::{Beat, Detail, Hot, Machine, Rejected, Slot, Sockets, Tick};

/// Copies of one record that a reader asks for before it gives up.
pub const COPIES_MAX: u8 = 3;

/// A record stored as `W` words.
pub trait Record<const W: usize>: Sized {
    /// The record in a copy of the memory, if the copy is consistent.
    ///
    /// # Errors
    /// As in `layout`.
    fn validated(words: &[u64; W]) -> Result<Self, Rejected>;
    /// The life of the writer that published it, and its number in that life: `(generation, sequence)`.
    fn version(&self) -> (u32, u32);
    /// As stored while the writer is inside (an odd sequence), or as published and sealed.
    fn published(self, generation: u32, sequence: u32) -> [u64; W];
}

macro_rules! record {
    ($name:ident) => {
        impl Record<{ $name::WORDS }> for $name {
            fn validated(words: &[u64; $name::WORDS]) -> Result<Self, Rejected> {
                $name::validated(words)
            }

            fn version(&self) -> (u32, u32) {
                (self.generation, self.sequence)
            }

            fn published(self, generation: u32, sequence: u32) -> [u64; $name::WORDS] {
                $name { generation, sequence, ..self }.sealed().words()
            }
        }
    };
}

record!(Hot);
record!(Detail);
record!(Beat);
record!(Slot);
record!(Tick);
record!(Machine);
record!(Sockets);

/// Why a reader has no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// No copy was consistent, or none was published.
    #[error("no usable copy in {COPIES_MAX} tries")]
    Rejected(#[from] Rejected),
    /// An earlier life of the node published it than the newest seen; its successor has not published yet.
    #[error("the record is of life {found} of the node, but life {newest} was already seen")]
    Foreign {
        /// The copy's generation.
        found: u32,
        /// The newest generation seen.
        newest: u32,
    },
    /// It is older than one seen before: two reads overtook each other.
    #[error("record {found} is older than record {newest}, which was already seen")]
    Older {
        /// The copy's sequence.
        found: u32,
        /// The newest sequence seen.
        newest: u32,
    },
}

/// What to do after a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<R> {
    /// Use it.
    Use(R),
    /// Read again.
    Again,
    /// Report the reason, and keep the last record.
    GiveUp(Unusable),
}

/// The newest record of one node that a reader has used, by which it judges copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Newest {
    version: Option<(u32, u32)>,
    rejected: u8,
}

impl Newest {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Newest { version: None, rejected: 0 }
    }

    /// Judges a copy. After [`Verdict::Again`] the next copy belongs to the same read; after the other verdicts a new
    /// read begins. An unchanged record is used again: its `time_ns` tells its age.
    pub fn judge<const W: usize, R: Record<W>>(&mut self, words: &[u64; W]) -> Verdict<R> {
        let record = match R::validated(words) {
            Ok(record) => record,
            Err(Rejected::Writing | Rejected::Torn) if self.rejected + 1 < COPIES_MAX => {
                self.rejected += 1;
                return Verdict::Again;
            }
            Err(rejected) => {
                self.rejected = 0;
                return Verdict::GiveUp(rejected.into());
            }
        };
        self.rejected = 0;
        let (generation, sequence) = record.version();
        match self.version {
            Some((newest, _)) if generation < newest => {
                Verdict::GiveUp(Unusable::Foreign { found: generation, newest })
            }
            Some((life, newest)) if generation == life && is_before(sequence, newest) => {
                Verdict::GiveUp(Unusable::Older { found: sequence, newest })
            }
            _ => {
                self.version = Some((generation, sequence));
                Verdict::Use(record)
            }
        }
    }
}

/// Sequences wrap: `sequence` is before `other` if it is less than half the range behind.
const fn is_before(sequence: u32, other: u32) -> bool {
    (sequence.wrapping_sub(other) as i32) < 0
}

/// Publishes records of one kind, for the node's CPU to store.
///
/// The caller makes every store with release ordering, in the order given. The first marks the record as being written,
/// the last seals it. Readers reject any copy from in between, in whatever order it was copied.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Publisher {
    generation: u32,
    sequence: u32,
}

impl Publisher {
    /// A publisher for this life of the node.
    pub const fn new(generation: u32) -> Self {
        Publisher { generation, sequence: 0 }
    }

    /// The stores that publish `record`: word indices and values. They include its sequence, check and generation.
    pub fn publish<const W: usize, R: Record<W> + Copy>(
        &mut self,
        record: R,
    ) -> impl Iterator<Item = (usize, u64)> + use<W, R> {
        let writing = record.published(self.generation, self.sequence + 1);
        self.sequence = match self.sequence.wrapping_add(2) {
            0 => 2, // 0 means "never"
            next => next,
        };
        let sealed = record.published(self.generation, self.sequence);
        let rest = (1..W).map(move |index| (index, sealed[index]));
        std::iter::once((0, writing[0])).chain(rest).chain(std::iter::once((0, sealed[0])))
    }
}
