//! The messages of both sides of a measurement over the control endpoint, apart from the measured operations.
//!
//! Everything that the target does for a measurement belongs to its session: regions, receivers and background threads
//! end with it, however the other side ends.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::results::{Completion, Operation, PerfFabric};
use serde::{Deserialize, Serialize};
use sidelong_fabric::Access;
use sidelong_layout::{HEADER_BYTES, LINE_BYTES};

/// The kind of request at the endpoint.
pub(super) const KIND: u8 = 129;
/// Version of these messages. Raise it with every change here.
pub(super) const VERSION: u32 = 3;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// The first message: what will be measured.
    Measure(Measurement),
    /// Answer each write to the one region by a write to this.
    Echo(Echo),
    /// Run this many busy threads from now on.
    Background { threads: u32 },
    /// What the target has used so far.
    Usage,
}

/// What is to be measured, by which the target knows what to expose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) version: u32,
    pub(super) fabric: PerfFabric,
    pub(super) operation: Operation,
    pub(super) peers: u32,
    /// Bytes of the longest operation.
    pub(super) bytes: usize,
    /// Capacity of the inbox in messages, if there is one.
    pub(super) slots: usize,
    /// How the target waits for messages.
    pub(super) completion: Completion,
}

impl Measurement {
    /// Bytes of each region.
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
    Exposed(Exposed),
    Done,
    Used(Used),
}

/// The measuring side's memory, where writes are answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Echo {
    /// Address of the endpoint that gives its key.
    pub(super) address: SocketAddr,
    /// Directory of the key, on the same machine.
    pub(super) run_dir: PathBuf,
}

/// What the target has exposed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Exposed {
    /// Prefix of the regions' names, followed by a number.
    pub(super) prefix: String,
    /// Directory of the keys, on the same machine.
    pub(super) run_dir: PathBuf,
    /// The CPU that the target is pinned to.
    pub(super) cpu: Option<usize>,
}

impl Exposed {
    pub(super) fn region(&self, peer: u32) -> String {
        region(&self.prefix, peer)
    }
}

pub(super) fn region(prefix: &str, peer: u32) -> String {
    format!("{prefix}-{peer}")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Used {
    /// CPU time of the target's process, without its background threads.
    pub(super) cpu_ns: u64,
    /// Messages that its receiver has taken.
    pub(super) received: u64,
}
