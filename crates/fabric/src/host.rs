//! The target's side: memory that this process offers to others.

use std::any::Any;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelong_layout::{HEADER_BYTES, RegionHeader, RegionKind};

use crate::memory::Memory;
#[cfg(feature = "verbs")]
use crate::verbs;
use crate::{Access, Error, Inbox, InboxSpec, Key, shm, sim, tcp};

/// The longest name of a region, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// What to offer.
#[derive(Clone, Debug)]
pub struct RegionSpec<'a> {
    /// Unique in the cluster; part of a file name: letters, digits, `-`, `_` and `.`, not first.
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
    pub(crate) fn check(&self) -> Result<(), Error> {
        assert!(
            self.len.is_multiple_of(8) && self.len >= HEADER_BYTES,
            "a region is whole words after its header"
        );
        check_name(self.name)
    }

    /// Its first contents: the header, and what `init` makes of the rest.
    pub(crate) fn contents(&self, init: impl FnOnce(&mut [u64])) -> Vec<u64> {
        let mut words = vec![0; self.len / 8];
        let header = RegionHeader::new(self.kind, self.incarnation, self.len);
        words[..HEADER_BYTES / 8].copy_from_slice(&header.words());
        init(&mut words);
        words
    }

    /// Memory of this process that holds the first contents.
    pub(crate) fn memory(&self, init: impl FnOnce(&mut [u64])) -> Result<Memory, Error> {
        let memory = Memory::anonymous(self.len);
        let memory = memory.map_err(|source| Error::Map { name: self.name.into(), len: self.len, source })?;
        memory.fill(&self.contents(init));
        Ok(memory)
    }

    /// Memory that `file` maps, with the header written and the rest as it is found.
    pub(crate) fn mapped(&self, file: &File) -> Result<Memory, Error> {
        let memory = Memory::of_map(file, self.len, Access::Atomic);
        let memory = memory.map_err(|source| Error::Map { name: self.name.into(), len: self.len, source })?;
        memory.fill(&RegionHeader::new(self.kind, self.incarnation, self.len).words());
        Ok(memory)
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
    /// An RDMA device, which answers by itself.
    #[cfg(feature = "verbs")]
    Verbs(verbs::VerbsHost),
}

impl Host {
    /// Offers a region. `init` writes its first contents (as words, the header already there) before anyone can see
    /// it; where an earlier life of this process left the region behind and the backend kept its memory, the contents
    /// are as they were, `init` is not called, and the header has the new incarnation.
    ///
    /// # Errors
    /// Where memory cannot be had, a live process offers the name, or the name cannot be one.
    pub fn offer(&self, spec: &RegionSpec<'_>, init: impl FnOnce(&mut [u64])) -> Result<Region, Error> {
        spec.check()?;
        match self {
            Host::Shm(host) => host.offer(spec, init),
            Host::Tcp(host) => host.offer(spec, None, spec.memory(init)?),
            Host::Sim(host) => host.offer(spec, None, spec.memory(init)?),
            #[cfg(feature = "verbs")]
            Host::Verbs(host) => host.offer(spec, init),
        }
    }

    /// Offers memory that this process did not allocate: the first `spec.len` bytes of what `file` maps, such as a BPF map
    /// that may be mapped. Whoever else changes them is seen by peers without this process's help. Only the region's header
    /// is written here; the rest is as it is found.
    ///
    /// Over shm peers are given a descriptor of their own, on which they may do what this process may: it is for processes
    /// of one user, as the region files are. They map it without the right to write.
    ///
    /// # Errors
    /// As [`Host::offer`], and where the file cannot be mapped for writing, without which no device registers it.
    ///
    /// # Panics
    /// Where the key would grant more than reading: who else changes the words does not do it by atomics of the fabric.
    pub fn offer_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        assert!(spec.access == Access::ReadOnly, "memory of others is offered for reading");
        spec.check()?;
        match self {
            Host::Shm(host) => host.offer_mapped(spec, file),
            Host::Tcp(host) => host.offer(spec, None, spec.mapped(file)?),
            Host::Sim(host) => host.offer(spec, None, spec.mapped(file)?),
            #[cfg(feature = "verbs")]
            Host::Verbs(host) => host.offer_mapped(spec, file),
        }
    }

    /// As [`Host::offer`], with an inbox for messages and for word of writes. Over shm it takes the name `NAME.inbox`, and
    /// outlives its process as the region does, with what has not been received. Over verbs each link has the inbox's slots
    /// to itself, in pinned memory that comes and goes with the link.
    ///
    /// # Errors
    /// As [`Host::offer`].
    ///
    /// # Panics
    /// Where the key would grant reading only: who may not write may not send either.
    pub fn offer_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        assert!(spec.access == Access::Atomic, "an inbox is for those who may write");
        inbox.check();
        spec.check()?;
        match self {
            Host::Shm(host) => host.offer_with_inbox(spec, inbox, init),
            Host::Tcp(host) => {
                let queue = inbox.queue();
                Ok((host.offer(spec, Some(&queue), spec.memory(init)?)?, Inbox::of_queue(queue)))
            }
            Host::Sim(host) => {
                let queue = inbox.queue();
                Ok((host.offer(spec, Some(&queue), spec.memory(init)?)?, host.inbox(queue)))
            }
            #[cfg(feature = "verbs")]
            Host::Verbs(host) => host.offer_with_inbox(spec, inbox, init),
        }
    }
}

/// Names come from the operator and become file names: nothing leads out of the run directory.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.');
    if fits && name.bytes().all(allowed) { Ok(()) } else { Err(Error::Name { name: name.to_owned() }) }
}

/// A region as its owner holds it. With the last clone its peers lose it too; but for shm, whose memory stays.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Arc<Memory>,
    key: Key,
    /// What must live as long as the region: the lock on its file, the thread that answers for it.
    _hold: Box<dyn Any + Send + Sync>,
}

impl Region {
    pub(crate) fn new(memory: Arc<Memory>, key: Key, hold: impl Any + Send + Sync) -> Self {
        Region { inner: Arc::new(Inner { memory, key, _hold: Box::new(hold) }) }
    }

    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.inner.memory)
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
