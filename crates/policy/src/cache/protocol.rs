//! How nodes keep each other's references up to date, what they say for that, and what it is set to.

use super::store::{Eviction, Place, Room};
use crate::SettingsError;

/// How a reader learns that what it knows of another node's memory has changed. All but [`Protocol::Rpc`] and
/// [`Protocol::Ledger`] are C's (2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Protocol {
    /// The baseline: no references. Each miss is a remote procedure call that brings the bytes.
    Rpc,
    /// Never, but by reads that fail.
    Lazy,
    /// At each change, whoever holds a reference is told.
    Aggressive,
    /// A home that sees too many reads fail tells all who read from it what has changed.
    #[default]
    Sender,
    /// A reader that sees too many of its reads fail asks all homes what has changed.
    Receiver,
    /// A master counts the reads of all; where too many fail, it has all homes tell.
    Accumulated,
    /// Ours. Nothing is sent for it. A home notes for each reader which of that reader's references went; the reader
    /// takes the notes along with its next read of that home, or gets them with the next answer. And a reader
    /// tells, along with its next question, what it read one-sidedly, so that the home keeps it: no other protocol
    /// tells it that, and it lets objects go that are read all the time.
    Ledger,
}

impl Protocol {
    /// All there are.
    pub const ALL: [Protocol; 7] = [
        Protocol::Rpc,
        Protocol::Lazy,
        Protocol::Aggressive,
        Protocol::Sender,
        Protocol::Receiver,
        Protocol::Accumulated,
        Protocol::Ledger,
    ];

    /// As settings and reports name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Protocol::Rpc => "rpc",
            Protocol::Lazy => "lazy",
            Protocol::Aggressive => "aggressive",
            Protocol::Sender => "sender",
            Protocol::Receiver => "receiver",
            Protocol::Accumulated => "accumulated",
            Protocol::Ledger => "ledger",
        }
    }
}

/// How much a node holds and when it tells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Who tells whom.
    pub protocol: Protocol,
    /// Which objects go, of those that the node is home to and of those that it read.
    pub eviction: Eviction,
    /// For objects that the node is home to.
    pub outgoing: Room,
    /// For objects that it read from others.
    pub incoming: Room,
    /// References to objects of others.
    pub references: Room,
    /// Sender, receiver, accumulated: the part of reads that may fail. C has 0.1.
    pub threshold: f64,
    /// The same: reads over which that part is taken. C does not say; with fewer, chance alone crosses the threshold.
    pub sample_reads: u32,
    /// Changes that a home remembers to tell of, and [`Change`]s of one update, at most.
    pub changes_max: u32,
    /// Ledger: notes that a message carries at most, in either direction.
    pub carried_max: u32,
    /// Ledger: notes that are taken along with a one-sided read at most. With 0 only messages carry them, which is
    /// enough: 7 (a cache line) lowered failures from 0.10 % to 0.08 % and took four times the bytes.
    pub notes_max: u32,
}

impl Settings {
    /// What C leaves open is chosen so that it costs least to get wrong; `docs/sim.md` sweeps it.
    pub const fn new(protocol: Protocol, outgoing: Room, incoming: Room, references_max: u32) -> Self {
        Settings {
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

    /// # Errors
    /// Where a store has room for nothing, or a rate cannot be told.
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

/// What became of an object that a reader may have a reference to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which.
    pub key: u64,
    /// Where it is now, if it is still there.
    pub place: Option<Place>,
}

/// What one node says to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// First of C's three messages: have this ready for me.
    Ask {
        /// The object.
        key: u64,
        /// The asker's own, and comes back with the answer.
        tag: u32,
        /// Send the bytes: reading them has failed too often, or references are not used.
        bytes_wanted: bool,
        /// One-sided reads of this home since the last question, and whether one that failed is why it asks.
        reads: u32,
        /// See `reads`.
        failed: bool,
        /// Ledger: what was read there.
        marks: Vec<Place>,
    },
    /// The second: here it is.
    Offer {
        /// The object.
        key: u64,
        /// Of the question.
        tag: u32,
        /// How large it is.
        bytes: u32,
        /// Where it can be read; without, the bytes follow.
        place: Option<Place>,
        /// Ledger: references of the asker that went.
        changes: Vec<Change>,
    },
    /// What has changed at a home.
    Update {
        /// The changes.
        changes: Vec<Change>,
        /// The number of the home's next change.
        until: u64,
    },
    /// Receiver: tell me what has changed.
    Refresh {
        /// Up to which of the home's changes the asker knows.
        since: u64,
    },
    /// Accumulated: what a node's reads came to.
    Tally {
        /// One-sided reads since the last.
        reads: u32,
        /// How many of them failed.
        failures: u32,
    },
    /// Accumulated: tell all who read from you.
    Propagate,
}

/// Bytes of a message's header: addresses, lengths, kind and key.
pub const HEADER_BYTES: u32 = 32;
/// Bytes of a change: a key and a place.
pub const CHANGE_BYTES: u32 = 16;
/// Bytes of a place.
pub const PLACE_BYTES: u32 = 8;
/// Bytes of a reader's notes at a home, as a one-sided read fetches them: a count, and keys.
pub const NOTE_BYTES: u32 = 8;

impl Message {
    /// How long it is on the wire, without the object's own bytes.
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

    /// How many of its bytes are there to keep references up to date, and whether all of it is.
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
    /// Counts reads, and says whether too many of the sample failed: then another sample begins.
    pub(super) fn is_over(&mut self, reads: u32, failures: u32, sample: u32, threshold: f64) -> bool {
        self.reads += reads;
        self.failures += failures;
        if self.reads < sample {
            return false;
        }
        let is_over = f64::from(self.failures) > threshold * f64::from(self.reads);
        // A sample that passes is forgotten by half, so that what is new shows.
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
