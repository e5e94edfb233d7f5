//! The data in memory that others read or change one-sidedly: load records, 8-byte words, region headers.
//!
//! Plain data only. This crate does no I/O, holds no pointer and asks no clock. `fabric` moves these bytes, `state`
//! defines in which order, `policy` reads the decoded values. Each struct's declaration also describes it ([`describe`]). A
//! region carries the hash of what describes its kind. So two builds that disagree refuse each other by name instead of
//! misreading a field, and those that disagree on one kind of region use all others.
#![forbid(unsafe_code)]

mod cache;
mod change;
mod choice;
mod claim;
pub mod describe;
mod front;
mod hash;
mod header;
mod id;
mod kernel;
mod map;
mod policy;
mod record;
mod region;
mod share;
mod slots;
mod time;
mod vocabulary;
mod word;
mod workers;

pub use cache::{
    CACHE_BUCKET, CACHE_DOCUMENT_BYTES, CACHE_ITEM_BYTES, CACHE_READS, CACHE_UNIT, CacheDocument, CacheEntry,
    CacheItem, CacheLife, CacheMap,
};
pub use change::{Change, ChangeResult, ChangeStep, Fault, FaultCause};
pub use choice::{ChoiceMap, EncodedAddress, NAME_BYTES};
pub use claim::{Claim, ClaimMap};
pub use front::{FrontMap, FrontWord};
pub use hash::{fnv1a, mix64};
pub use header::{HEADER_BYTES, HEADER_EPOCH, LAYOUT_VERSION, MAGIC, RegionHeader};
pub use id::{EDGES_MAX, EdgeId, NODES_MAX, NodeId, SITES_MAX, SiteId};
pub use kernel::{
    BEAT_BYTES, Beat, KERNEL_BEAT, KERNEL_BYTES, KERNEL_MACHINE, KERNEL_PLACES, KERNEL_SOCKETS,
    MACHINE_BYTES, Machine, PLACE_BYTES, PLACE_PENDING, PLACE_TICK, PLACES_MAX, Pending, SLOT_BYTES,
    SOCKETS_BYTES, Slot, Sockets, TICK_BYTES, Tick, kept, kernel_slot,
};
pub use map::{
    BoardMap, LOAD_ACK, LOAD_BYTES, LOAD_DETAIL, LOAD_HOT, LOAD_SHAPES, WORDS_BYTES, WORDS_OWNERSHIP,
};
pub use policy::{HEALTH, READING, VERDICT};
pub use record::{ByServer, DETAIL_BYTES, Detail, HOT_BYTES, Hot, Rejected, valid};
pub use region::{HEADER_HASH, HeaderError, Instance, RegionKind};
pub use share::{NodeShare, ShareMap};
pub use slots::Slots;
pub use time::Time;
pub use vocabulary::UnknownWord;
pub use word::{Ack, Budget, Lock, NodeState, Ownership, SEQUENCE_MAX};
pub use workers::{SLOTS, Worker, WorkersMap};

/// A cache line, in bytes: the unit of layout. Each word that is changed remotely has its own line, and every known NIC
/// reads a record of one line at once.
pub const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests;
