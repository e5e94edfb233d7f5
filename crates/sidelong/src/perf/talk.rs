//! What both sides of a measurement say to each other over the control endpoint, beside the operations that are measured.
//!
//! All of a measurement at the target belongs to its session: regions, receivers and background threads go with it,
//! however the other side ends.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sidelong_fabric::Access;
use sidelong_layout::{HEADER_BYTES, LINE_BYTES};

use crate::perf::args::{Completion, Operation, PerfFabric};

/// The kind of request at the endpoint.
pub(super) const KIND: u8 = 129;
/// Raised by every change of what stands here.
pub(super) const VERSION: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// The first: what will be measured.
    Offer(Offer),
    /// Answer each write to the one region by a write to this.
    Echo(Echo),
    /// So many busy threads from here on.
    Background { threads: u32 },
    /// What the target has used so far.
    Usage,
}

/// What the target is to offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) version: u32,
    pub(super) fabric: PerfFabric,
    pub(super) operation: Operation,
    pub(super) peers: u32,
    /// Of the longest operation.
    pub(super) bytes: usize,
    /// Messages that the inbox has room for, where there is one.
    pub(super) slots: usize,
    /// How the target waits for messages.
    pub(super) completion: Completion,
}

impl Offer {
    /// Of each region.
    pub(super) fn region_bytes(&self) -> usize {
        HEADER_BYTES + self.bytes.next_multiple_of(LINE_BYTES)
    }

    pub(super) fn access(&self) -> Access {
        if self.operation == Operation::Read { Access::ReadOnly } else { Access::Atomic }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Offered(Offered),
    Done,
    Used(Used),
}

/// The measuring side's memory, where writes are answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Echo {
    /// Of the endpoint that tells its key.
    pub(super) address: SocketAddr,
    /// Where the key lies, for those on the same machine.
    pub(super) run_dir: PathBuf,
}

/// What the target has offered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Offered {
    /// Regions are named by this and a number.
    pub(super) prefix: String,
    /// Where keys lie, for those on the same machine.
    pub(super) run_dir: PathBuf,
    /// The one that the target is held to.
    pub(super) cpu: Option<usize>,
}

impl Offered {
    pub(super) fn region(&self, peer: u32) -> String {
        region(&self.prefix, peer)
    }
}

pub(super) fn region(prefix: &str, peer: u32) -> String {
    format!("{prefix}-{peer}")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Used {
    /// CPU time of the target's process; its background threads are another.
    pub(super) cpu_ns: u64,
    /// Messages that its receiver has taken.
    pub(super) received: u64,
}
