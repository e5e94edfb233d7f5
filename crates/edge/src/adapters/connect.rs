//! Controls programs that no proxy stands before: the kernel sends their connections to a node, and is a worker that reads
//! the same memory as others' (`memory`), in maps that it shares with the front.

use sidelong_fabric::{Access, Error, Host, RegionSpec};
use sidelong_layout::{Instance, NodeId, Ownership, RegionKind, Time};
use sidelong_load::{ConnectError, Directed, Reading};

use super::memory::{AdapterCluster, MemoryAdapter, adapter_regions};
use super::{Adapter, AdapterMembers};
use crate::gate::Gate;
use crate::view::View;

/// The connections of a control group, controlled by a front. They stay so if the front is killed. If it ends, no more connections
/// are directed; what counts those that are open goes when they are gone, at the end of this front or of the next one.
pub struct ConnectAdapter {
    memory: MemoryAdapter,
    directed: Option<Directed>,
}

impl ConnectAdapter {
    /// Controls the programs through their memory.
    ///
    /// # Errors
    /// If the memory cannot be mapped, or a live process has the front's name.
    pub fn start(
        host: &Host,
        front: &str,
        cluster: &AdapterCluster,
        instance: Instance,
        directed: Directed,
        now: Time,
    ) -> Result<Self, Error> {
        let (choice, counts) = cluster.maps();
        let names = adapter_regions(front);
        let unmapped = |source| Error::Map { name: names[0].clone(), len: choice.len(), source };
        let files = directed.memory().map_err(unmapped)?;
        let access = Access::ReadOnly;
        let expose = |index: usize, kind, len| {
            let spec = RegionSpec { name: &names[index], kind, len, access, instance };
            host.expose_mapped(&spec, &files[index])
        };
        let regions =
            [expose(0, RegionKind::Choice, choice.len())?, expose(1, RegionKind::Workers, counts.len())?];
        let whole_at = directed.has_lost_counts().then(|| now.after(cluster.drain_max));
        let memory = MemoryAdapter::over(regions, cluster, whole_at, now);
        memory.seat_kernel();
        Ok(ConnectAdapter { memory, directed: Some(directed) })
    }

    /// Ends: what is attached and pinned goes, unless connections are open that the next front must know of.
    fn end(&self, mut directed: Directed) -> Result<(), ConnectError> {
        directed.stop()?;
        match self.memory.in_flight() {
            0 => directed.remove(),
            open => {
                tracing::warn!(
                    "{open} connections are open, and stay counted: start the front again to move nodes"
                );
                Ok(())
            }
        }
    }
}

impl Adapter for ConnectAdapter {
    fn count(&mut self, view: &View, readings: &[Reading], now: Time) {
        self.memory.count(view, readings, now);
    }

    fn show(&mut self, view: &View, gate: Option<&Gate>, now: Time) {
        self.memory.show(view, gate, now);
    }

    fn front(&self, view: &View, node: NodeId) -> Option<(Ownership, u32)> {
        self.memory.front(view, node)
    }

    fn adopt(&mut self, members: &AdapterMembers) {
        self.memory.adopt(members);
        if let Some(Err(error)) = self.directed.as_mut().map(|directed| directed.direct(&members.connect)) {
            tracing::error!("connections go to the sites as before: {error}");
        }
    }
}

impl Drop for ConnectAdapter {
    fn drop(&mut self) {
        let Some(directed) = self.directed.take() else { return };
        if let Err(error) = self.end(directed) {
            tracing::error!("connections may still be directed: {error}");
        }
    }
}
