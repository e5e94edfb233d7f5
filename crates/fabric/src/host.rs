//! The target's side: memory that this process offers to others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelong_layout::{HEADER_BYTES, RegionHeader, RegionKind};

use crate::memory::Memory;
use crate::{Access, Error, Key, shm, sim, tcp};

/// What to offer.
#[derive(Clone, Debug)]
pub struct RegionSpec<'a> {
    /// Unique in the cluster; part of a file name.
    pub name: &'a str,
    /// What it holds.
    pub kind: RegionKind,
    /// Bytes, header included; a multiple of 8.
    pub len: usize,
    /// What its key grants.
    pub access: Access,
    /// Which life of the offering process.
    pub incarnation: u64,
}

impl RegionSpec<'_> {
    pub(crate) fn header(&self) -> RegionHeader {
        RegionHeader::new(self.kind, self.incarnation, self.len)
    }
}

/// Where this process offers regions.
#[derive(Debug)]
pub enum Host {
    /// Files in a run directory, mapped by peers on this machine.
    Shm(shm::ShmHost),
    /// A thread that answers over TCP.
    Tcp(tcp::TcpHost),
    /// A simulated machine.
    Sim(sim::SimHost),
}

impl Host {
    /// Offers a region. `init` writes its first contents (as words, the header already there) before anyone can see
    /// it; where an earlier life of this process left the region behind and the backend kept its memory, the contents
    /// are as they were, `init` is not called, and the header has the new incarnation.
    ///
    /// # Errors
    /// Where memory cannot be had, or a live process offers the name.
    pub fn offer(&self, spec: &RegionSpec<'_>, init: impl FnOnce(&mut [u64])) -> Result<Region, Error> {
        assert!(
            spec.len.is_multiple_of(8) && spec.len >= HEADER_BYTES,
            "a region is whole words after its header"
        );
        match self {
            Host::Shm(host) => host.offer(spec, init),
            Host::Tcp(host) => host.offer(spec, init),
            Host::Sim(host) => host.offer(spec, init),
        }
    }
}

/// A region as its owner holds it. Peers lose it when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Arc<Memory>,
    key: Key,
    /// What must live as long as the region: a lock on its file.
    _keep: Option<std::fs::File>,
}

impl Region {
    pub(crate) fn new(memory: Arc<Memory>, key: Key, keep: Option<std::fs::File>) -> Self {
        Region { inner: Arc::new(Inner { memory, key, _keep: keep }) }
    }

    /// The grant for others.
    pub fn key(&self) -> &Key {
        &self.inner.key
    }

    /// The word at `offset` bytes, by the CPU: allowed on every region.
    pub fn load(&self, offset: usize) -> u64 {
        self.inner.memory.load(offset)
    }

    /// Stores a word by the CPU, after all earlier stores where `ordering` is `Release`.
    ///
    /// # Panics
    /// On a region whose key grants atomics: its words are changed by remote atomics alone, the owner's changes
    /// included (through a link to itself).
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        assert!(
            self.inner.key.access == Access::ReadOnly,
            "words under remote atomics are not stored by the CPU"
        );
        self.inner.memory.store(offset, value, ordering);
    }
}
