//! The target's side: memory that this process exposes to others.

use std::fs::File;

use crate::inbox::{Inbox, InboxSpec};
use crate::{Access, Error, OwnedRegion, Region, RegionSpec, shm, sim, tcp, verbs};

/// Where this process exposes regions.
#[derive(Debug)]
pub enum Host {
    /// Files in a run directory, mapped by peers on this machine.
    Shm(shm::ShmHost),
    /// A thread that answers over TCP.
    Tcp(tcp::TcpHost),
    /// A simulated machine.
    Sim(sim::SimHost),
    /// An RDMA device, which answers by itself.
    Verbs(verbs::VerbsHost),
}

impl Host {
    /// Exposes a region. `init` fills its first contents, as words after the header, before any peer can see them. If an
    /// earlier life of this process left the region and the backend kept its memory, the contents stay, `init` is not
    /// called, and the header gets the new incarnation.
    ///
    /// # Errors
    /// If memory cannot be allocated, a live process exposes the name, or the name is invalid.
    pub fn expose(&self, spec: &RegionSpec<'_>, init: impl FnOnce(&mut [u64])) -> Result<Region, Error> {
        spec.check()?;
        match self {
            Host::Shm(host) => host.expose(spec, init),
            Host::Tcp(host) => host.expose(spec, None, spec.memory(init)?),
            Host::Sim(host) => host.expose(spec, None, spec.memory(init)?),
            Host::Verbs(host) => host.expose(spec, init),
        }
    }

    /// Exposes memory that this process did not allocate: the first `spec.len` bytes of what `file` maps, such as a
    /// mappable BPF map. Peers see what others write there without this process's help. Only the region's header is
    /// written here.
    ///
    /// Over shm, each peer gets a descriptor of its own, with the rights that this process has. So it is for processes
    /// of one user, as the region files are. Peers map it read-only.
    ///
    /// # Errors
    /// As [`Host::expose`], and if the file cannot be mapped for writing, which RDMA devices need to register it.
    ///
    /// # Panics
    /// If the key would grant more than reading, because the other writers do not use the fabric's atomics.
    pub fn expose_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        assert!(spec.access == Access::ReadOnly, "memory of others is exposed for reading");
        spec.check()?;
        match self {
            Host::Shm(host) => host.expose_mapped(spec, file),
            Host::Tcp(host) => host.expose(spec, None, spec.mapped(file)?),
            Host::Sim(host) => host.expose(spec, None, spec.mapped(file)?),
            Host::Verbs(host) => host.expose_mapped(spec, file),
        }
    }

    /// Exposes a region that this process alone changes, as bytes, and that is empty at first: what an earlier life left of it
    /// is gone, and no peer reads that any more.
    ///
    /// # Errors
    /// As [`Host::expose`].
    ///
    /// # Panics
    /// If the key would grant more than reading.
    pub fn expose_owned(&self, spec: &RegionSpec<'_>) -> Result<OwnedRegion, Error> {
        assert!(spec.access == Access::ReadOnly, "its owner alone changes it");
        spec.check()?;
        let region = match self {
            Host::Shm(host) => host.expose_emptied(spec)?,
            Host::Tcp(host) => host.expose(spec, None, spec.memory_with(&spec.header())?)?,
            Host::Sim(host) => host.expose(spec, None, spec.memory_with(&spec.header())?)?,
            Host::Verbs(host) => host.expose(spec, |_| {})?,
        };
        Ok(OwnedRegion::new(region))
    }

    /// As [`Host::expose`], with an inbox for messages and notifications of writes. Over shm the inbox takes the name
    /// `NAME.inbox`. It outlives its process as the region does, with the messages not yet received. Over verbs each
    /// link has all of the inbox's slots to itself, in pinned memory that lives as long as the link.
    ///
    /// # Errors
    /// As [`Host::expose`].
    ///
    /// # Panics
    /// If the key would grant reading only: sending needs the right to write.
    pub fn expose_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        assert!(spec.access == Access::Atomic, "an inbox is for those who may write");
        inbox.check();
        spec.check()?;
        match self {
            Host::Shm(host) => host.expose_with_inbox(spec, inbox, init),
            Host::Tcp(host) => {
                let queue = inbox.queue();
                Ok((host.expose(spec, Some(&queue), spec.memory(init)?)?, Inbox::of_queue(queue)))
            }
            Host::Sim(host) => {
                let queue = inbox.queue();
                Ok((host.expose(spec, Some(&queue), spec.memory(init)?)?, host.inbox(queue)))
            }
            Host::Verbs(host) => host.expose_with_inbox(spec, inbox, init),
        }
    }
}
