//! How nodes keep each other's references up to date: the protocols, their messages and settings.

use sidelong_layout::vocabulary;

use sidelong_policy::SettingsError;
use sidelong_policy::cache::store::{Eviction, Place, Room};

vocabulary! {
    /// How a reader learns that a reference into another node's memory has become invalid. All but [`Protocol::Rpc`] and
    /// [`Protocol::Ledger`] are those of Gu and Wang 2004 (2.2).
    Protocol {
        /// The baseline, without references: each miss is a remote procedure call that returns the bytes.
        Rpc = "rpc",
        /// Only by reads that fail.
        Lazy = "lazy",
        /// At each change, all holders of a reference are told.
        Aggressive = "aggressive",
        /// A home that sees too many failed reads tells all its readers what has changed.
        #[default]
        Sender = "sender",
        /// A reader with too many failed reads asks all homes what has changed.
        Receiver = "receiver",
        /// A master counts all nodes' reads. If too many fail, it makes all homes tell their readers.
        Accumulated = "accumulated",
        /// Ours. It sends no messages of its own. A home notes for each reader which of its references became invalid.
        /// The reader fetches the notes with its next read of that home, or gets them with the next answer. In turn it
        /// reports its one-sided reads with its next request, so that the home keeps those objects. Under the other
        /// protocols a home does not learn of such reads, and evicts objects that are read all the time.
        Ledger = "ledger",
    }
}

/// Capacity and protocol settings of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheSettings {
    /// The protocol.
    pub protocol: Protocol,
    /// The eviction rule of both caches.
    pub eviction: Eviction,
    /// Room for objects whose home is this node.
    pub outgoing: Room,
    /// Room for objects read from other nodes.
    pub incoming: Room,
    /// Room for references to other nodes' objects.
    pub references: Room,
    /// Sender, receiver, accumulated: the part of reads that may fail. Gu and Wang use 0.1.
    pub threshold: f64,
    /// The same protocols: the number of reads over which that part is taken. Gu and Wang give none; with few reads,
    /// chance alone crosses the threshold.
    pub sample_reads: u32,
    /// Most changes that a home remembers, and most [`Change`]s of one update.
    pub changes_max: u32,
    /// Ledger: most notes that a message carries, in either direction.
    pub carried_max: u32,
    /// Ledger: most notes that are fetched with a one-sided read. With 0 only messages carry them, which suffices: 7 (a
    /// cache line) lowered failures from 0.10 % to 0.08 % at four times the bytes.
    pub notes_max: u32,
}

impl CacheSettings {
    /// Where the paper leaves a value open, the default is one that costs little if it is wrong; `docs/sim.md` sweeps
    /// it.
    pub const fn new(protocol: Protocol, outgoing: Room, incoming: Room, references_max: u32) -> Self {
        CacheSettings {
            protocol,
            eviction: Eviction::Lru,
            outgoing,
            incoming,
            references: Room::entries(references_max),
            threshold: 0.1,
            sample_reads: 100,
            changes_max: 4_096,
            carried_max: 16,
            notes_max: 0,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// If a store has no room, or a rate is not defined.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.outgoing.check()?;
        self.incoming.check()?;
        self.references.check()?;
        SettingsError::unless_figure("threshold", self.threshold)?;
        SettingsError::if_zero("sample_reads", self.sample_reads == 0)?;
        SettingsError::if_zero("changes_max", self.changes_max == 0)?;
        SettingsError::if_zero("carried_max", self.carried_max == 0)
    }
}

/// The new state of an object that a reader may have a reference to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The object.
    pub key: u64,
    /// Its current place, if it still has one.
    pub place: Option<Place>,
}

/// A message between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The first of the three messages of Gu and Wang: a request to have an object ready.
    Ask {
        /// The object.
        key: u64,
        /// The asking node's number for the request; the answer repeats it.
        tag: u32,
        /// Send the bytes: reads have failed too often, or references are not used.
        bytes_wanted: bool,
        /// One-sided reads of this home since the last request, and whether a failed one is the reason for asking.
        reads: u32,
        /// See `reads`.
        failed: bool,
        /// Ledger: what was read there.
        marks: Vec<Place>,
    },
    /// The second message: the object is ready.
    Offer {
        /// The object.
        key: u64,
        /// The number of the request.
        tag: u32,
        /// Its size.
        bytes: u32,
        /// Its place; `None` if the bytes follow.
        place: Option<Place>,
        /// Ledger: references of the asking node that became invalid.
        changes: Vec<Change>,
    },
    /// Changes at a home.
    Update {
        /// The changes.
        changes: Vec<Change>,
        /// The number of the home's next change.
        until: u64,
    },
    /// Receiver: a request for changes.
    Refresh {
        /// The number of the home's changes that the asking node knows.
        since: u64,
    },
    /// Accumulated: a count of a node's reads.
    Tally {
        /// One-sided reads since the last count.
        reads: u32,
        /// Failed ones among them.
        failures: u32,
    },
    /// Accumulated: a request to tell all readers.
    Propagate,
}

/// Bytes of a message's header: addresses, lengths, kind and key.
pub const HEADER_BYTES: u32 = 32;
/// Bytes of a change: a key and a place.
pub const CHANGE_BYTES: u32 = 16;
/// Bytes of a place.
pub const PLACE_BYTES: u32 = 8;
/// Bytes of one note in what a one-sided read fetches: a count, and keys.
pub const NOTE_BYTES: u32 = 8;

impl Message {
    /// Its length on the wire, without the object's bytes.
    pub fn bytes(&self) -> u32 {
        HEADER_BYTES
            + match self {
                Message::Ask { marks, .. } => marks.len() as u32 * PLACE_BYTES,
                Message::Offer { changes, .. } | Message::Update { changes, .. } => {
                    changes.len() as u32 * CHANGE_BYTES
                }
                Message::Refresh { .. } | Message::Tally { .. } => 8,
                Message::Propagate => 0,
            }
    }

    /// How many of its bytes serve to keep references up to date, and whether all of them do.
    pub(super) fn update_bytes(&self) -> (u32, bool) {
        match self {
            Message::Ask { .. } | Message::Offer { .. } => (self.bytes() - HEADER_BYTES, false),
            _ => (self.bytes(), true),
        }
    }
}

/// The part of reads that fail, over a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Rate {
    pub(super) reads: u32,
    pub(super) failures: u32,
}

impl Rate {
    /// Counts reads; returns whether too many of the sample failed, which starts another sample.
    pub(super) fn is_over(&mut self, reads: u32, failures: u32, sample: u32, threshold: f64) -> bool {
        // Other nodes say how many.
        self.reads = self.reads.saturating_add(reads);
        self.failures = self.failures.saturating_add(failures);
        if self.reads < sample {
            return false;
        }
        let is_over = f64::from(self.failures) > threshold * f64::from(self.reads);
        // After a sample within the limit, half of it is kept, so that new reads count more.
        *self = if is_over {
            Rate::default()
        } else {
            Rate { reads: self.reads / 2, failures: self.failures / 2 }
        };
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_of_a_full_sample_only() {
        let mut rate = Rate::default();
        assert!(!rate.is_over(9, 9, 10, 0.1));
        assert!(rate.is_over(1, 0, 10, 0.1));
        assert_eq!(rate, Rate::default());
        assert!(!rate.is_over(10, 1, 10, 0.1));
        assert_eq!(rate, Rate { reads: 5, failures: 0 });
    }

    #[test]
    fn messages_are_as_long_as_what_they_carry() {
        let place = Place::default();
        let ask = Message::Ask {
            key: 1,
            tag: 0,
            bytes_wanted: false,
            reads: 0,
            failed: false,
            marks: vec![place; 3],
        };
        assert_eq!((ask.bytes(), ask.update_bytes()), (56, (24, false)));
        let update = Message::Update { changes: vec![Change { key: 1, place: None }], until: 1 };
        assert_eq!(update.update_bytes(), (48, true));
    }
}
