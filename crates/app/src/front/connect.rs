//! A front without a proxy: the kernel sends each connection to a site's address to a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use sidelong_config::{Cluster, FrontEntry, Site};
use sidelong_edge::{Adapter, ConnectAdapter};
use sidelong_fabric::Host;
use sidelong_fabric::shm::ShmHost;
use sidelong_layout::{SiteId, Time, WorkersMap};
use sidelong_load::{ConnectError, ConnectSpec, Directed, keep_privileges_to_detach, monotonic_ns};

use super::choice_map;
use super::memory::described;
use crate::cgroup;
use crate::failure::Failure;
use crate::parts::Parts;

/// Begins to direct connections.
pub(super) fn adapter(parts: &Parts, entry: &FrontEntry) -> Result<Box<dyn Adapter>, Failure> {
    let place = Attached::of(&parts.cluster, entry)?;
    let instance = parts.instance();
    let directed = Directed::start(&place.spec(&parts.cluster, instance.cluster))
        .map_err(|error| connect_failure(entry, &error))?;
    keep_privileges_to_detach()?;
    let host = Host::Shm(ShmHost::new(parts.run.path()));
    let now = Time::from_ns(monotonic_ns());
    let cluster = described(&parts.cluster);
    Ok(Box::new(ConnectAdapter::start(&host, &entry.name, &cluster, instance, directed, now)?))
}

/// Where programs are attached and pinned.
pub struct Attached {
    directory: PathBuf,
    /// The control group whose connections are directed.
    pub group: PathBuf,
    sites: Vec<(SiteId, SocketAddr)>,
}

impl Attached {
    /// Where the entry says, or the defaults.
    ///
    /// # Errors
    /// If there is no such file system.
    pub fn of(cluster: &Cluster, entry: &FrontEntry) -> Result<Self, Failure> {
        let mounted = |kind: &str, advice: &str| {
            cgroup::mount_of(kind)?
                .ok_or_else(|| Failure::new(format!("front {}: no {kind} is mounted: {advice}", entry.name)))
        };
        let directory = match &entry.dir {
            Some(dir) => dir.clone(),
            None => mounted("bpf", "mount -t bpf bpf /sys/fs/bpf")?
                .join("sidelong")
                .join(&cluster.name)
                .join(&entry.name),
        };
        let group = match &entry.cgroup {
            Some(group) => group.clone(),
            None => mounted("cgroup2", "mount -t cgroup2 none /sys/fs/cgroup")?,
        };
        Ok(Attached { directory, group, sites: addresses(cluster) })
    }

    /// What identifies the programs of a cluster with that identity; 0 for any.
    pub fn spec(&self, cluster: &Cluster, identity: u64) -> ConnectSpec<'_> {
        let choice = choice_map(cluster);
        ConnectSpec {
            directory: &self.directory,
            group: &self.group,
            sites: &self.sites,
            choice,
            counts: WorkersMap { nodes: choice.nodes },
            cluster: identity,
        }
    }
}

/// The addresses of sites that programs connect to.
pub(super) fn addresses(cluster: &Cluster) -> Vec<(SiteId, SocketAddr)> {
    let connect = |(slot, site): (usize, &Site)| Some((SiteId::new(slot), site.connect?));
    cluster.sites.entries().filter_map(connect).collect()
}

/// A failure of the entry's programs.
pub fn connect_failure(entry: &FrontEntry, error: &ConnectError) -> Failure {
    Failure::new(format!("front {}: {error}", entry.name))
}
