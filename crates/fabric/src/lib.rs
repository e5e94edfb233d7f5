//! One-sided memory: regions that a process offers, keys that grant their use, links to them, and batches of reads,
//! writes, compare-and-swaps and fetch-and-adds over many peers with one wait. Beside them, two-sided: messages to a
//! region's inbox, and writes that it is told of.
//!
//! | backend | who does the work | where |
//! |---|---|---|
//! | [`shm`] | the initiator's CPU, in mapped memory | one machine |
//! | [`tcp`] | a thread on the target: two-sided, and slower the busier the target is | anywhere |
//! | `verbs` (a cargo feature) | the two adapters: InfiniBand, RoCE | where there are some |
//! | [`sim`] | nobody: virtual time, with delays, losses, crashes and reordering from a seed | tests, the simulator |
//!
//! Each is a variant of [`Host`], of [`Key`]'s locator and of the [`Initiator`]'s links, and held to the same conformance
//! suite (`tests/conformance.rs`).
//!
//! How processes find each other's regions is a [`Directory`]: on one machine a directory of it, between machines the
//! [`control`] endpoint of whoever offers.
//!
//! What every backend promises:
//! - operations of one batch on one link take effect in the order in which they were added; on different links in any;
//! - one that succeeded has taken effect, for all others to see, when the run ends;
//! - one that failed with [`OpError::Timeout`] or [`OpError::PeerGone`] may have taken effect, or may yet;
//! - atomics are atomic against other atomics of the same backend, not against stores: a word is changed by atomics
//!   alone or by its owner's stores alone;
//! - a read is not atomic beyond 8 bytes: readers validate what they got (`layout`'s check).
//!
//! The memory-unsafe code of the project lives here, in `memory` and `verbs::sys`.

mod batch;
pub mod control;
mod directory;
mod error;
mod host;
mod inbox;
mod initiator;
mod key;
mod memory;
mod service;
pub mod shm;
pub mod sim;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use batch::{Batch, OP_BYTES_MAX, OpId};
pub use directory::{Directory, RunDirectory};
pub use error::{Error, OpError};
pub use host::{Host, NAME_BYTES_MAX, Region, RegionSpec};
pub use inbox::{INBOX_BYTES_MAX, Inbox, InboxSpec, Message};
pub use initiator::{Initiator, LinkId};
pub use key::{Access, Key};
