//! One-sided memory: regions that a process exposes, keys that grant their use, links to them, and batches of reads,
//! writes, compare-and-swaps and fetch-and-adds over many peers with one wait. Two-sided operations stand beside them:
//! messages to a region's inbox, and writes that notify it.
//!
//! | backend | who does the work | where |
//! |---|---|---|
//! | [`shm`] | the initiator's CPU, in mapped memory | one machine |
//! | [`tcp`] | a thread on the target: two-sided, and slower on a busy target | anywhere |
//! | [`verbs`] | the two adapters: InfiniBand, RoCE | machines with RDMA devices |
//! | [`sim`] | virtual time, with delays, losses, crashes and reordering from a seed | tests, the simulator |
//!
//! Each is a variant of [`Host`], of [`Key`]'s locator and of the [`Initiator`]'s links. All pass the same conformance
//! suite (`tests/it/conformance.rs`).
//!
//! Processes find each other's regions through a [`Directory`]: a directory of the file system on one machine, the
//! [`control`] endpoint of the exposing process between machines.
//!
//! What every backend promises:
//! - Operations of one batch on one link take effect in the order in which they were added, and on different links in any
//!   order.
//! - An operation that succeeded has taken effect, visibly to all others, when the run ends.
//! - An operation that failed with [`OpError::Timeout`] or [`OpError::PeerGone`] may have taken effect, or may yet.
//! - Atomics are atomic against other atomics of the same backend, not against stores. So a word is changed by atomics
//!   alone, or by its owner's stores alone.
//! - A read is atomic for 8 bytes only. Readers validate longer copies with the check in `layout`.
//!
//! The project's `unsafe` code is here, in `memory` and `verbs::sys`, and nowhere else.

mod access;
mod backoff;
mod batch;
pub mod control;
mod directory;
pub mod door;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod host;
mod inbox;
mod initiator;
mod key;
mod limits;
mod memory;
mod owned;
mod region;
mod scan;
mod service;
pub mod shm;
pub mod sim;
pub mod tcp;
pub mod verbs;
mod words;

pub use access::Access;
pub use backoff::Backoff;
pub use batch::{Batch, LinkId, OpId};
pub use directory::{Directory, RunDirectory, hold_as};
pub use error::{Error, OpError};
pub use host::Host;
pub use inbox::{Inbox, InboxSpec, Message};
pub use initiator::Initiator;
pub use key::Key;
pub use limits::{INBOX_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, OP_BYTES_MAX};
pub use owned::OwnedRegion;
pub use region::{Region, RegionSpec};
pub use scan::{LinkRef, Pace, Patience, Problem, ReadOutcome, Reader, ScanCounts, Scanner, Target};
pub use words::SharedWords;
