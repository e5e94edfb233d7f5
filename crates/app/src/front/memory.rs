//! Exposes the memory by which a proxy is controlled.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use nix::unistd::Group;
use sidelong_config::{Capacity, Cluster, FrontEntry, Node, ServerAddress};
use sidelong_edge::{AdapterCluster, Exposure, MemoryAdapter, adapter_regions};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Host, RunDirectory};
use sidelong_layout::{ChoiceMap, EncodedAddress, Instance, NodeId, Time};
use sidelong_load::monotonic_ns;

use crate::failure::Failure;
use crate::parts::{Parts, began_ms};

/// Where the files of a front are.
pub fn directory(cluster: &Cluster, entry: &FrontEntry) -> PathBuf {
    entry.dir.clone().unwrap_or_else(|| cluster.run_dir.clone())
}

/// Where the nodes' servers answer, by place in a front's memory.
fn servers(cluster: &Cluster) -> Vec<(usize, EncodedAddress)> {
    let ChoiceMap { nodes, servers, .. } = choice_map(cluster);
    let each = servers / nodes;
    let encoded = |node: NodeId, address: &ServerAddress| match address {
        ServerAddress::Tcp(address) => EncodedAddress::tcp(node, *address),
        ServerAddress::Unix(path) => EncodedAddress::unix(node, path.as_os_str().as_bytes()),
    };
    let of = |(slot, node): (usize, &Node)| {
        let own = node.addresses.iter().map(|address| encoded(NodeId::new(slot), address)).enumerate();
        own.map(|(place, address)| (slot * each + place, address)).collect::<Vec<_>>()
    };
    cluster.nodes.entries().flat_map(of).collect()
}

/// What the memory of a front has room for: each node's server, or one of each node for each site.
pub fn choice_map(cluster: &Cluster) -> ChoiceMap {
    let Capacity { nodes, sites, .. } = cluster.capacity;
    let has_many = cluster.nodes.values().any(|node| node.addresses.len() > 1);
    ChoiceMap { nodes, sites, servers: if has_many { nodes * sites } else { nodes } }
}

/// What workers must know of the cluster, if no front has controlled them yet.
pub(super) fn described(cluster: &Cluster) -> AdapterCluster {
    AdapterCluster {
        room: choice_map(cluster),
        sites: cluster.sites.map(|site| site.name.clone()),
        servers: servers(cluster),
        stale: cluster.load.stale,
        rotation: cluster.admission.rotation,
        balance: cluster.balance.policy,
        drain_max: cluster.reconfig.drain_max,
        has_controlled: false,
    }
}

/// The directory of a front's files, opened.
pub(super) fn run_of(parts: &Parts, entry: &FrontEntry) -> Result<RunDirectory, Failure> {
    Ok(match &entry.dir {
        Some(dir) => RunDirectory::open_public(dir)?,
        None => parts.run.clone(),
    })
}

/// Exposes the memory by which the proxy is controlled.
pub(super) fn adapter(parts: &Parts, entry: &FrontEntry) -> Result<MemoryAdapter, Failure> {
    let run = run_of(parts, entry)?;
    let files = adapter_regions(&entry.name).map(|region| format!("{region}.region"));
    let has_controlled = files.iter().any(|file| run.path().join(file).exists());
    let cluster = AdapterCluster { has_controlled, ..described(&parts.cluster) };
    let group = entry.group.as_ref().map(|name| group(&entry.name, name)).transpose()?;
    let (described, identity) = (cluster.clone(), parts.instance());
    let (name, is_public) = (entry.name.clone(), entry.dir.is_some());
    let expose = move || -> Result<_, Failure> {
        let host = Host::Shm(ShmHost::new(run.path()));
        let instance = Instance { incarnation: began_ms(), ..identity };
        let exposed = MemoryAdapter::regions(&host, &name, &described, instance)?;
        let named = |error| Failure::new(format!("{}: {error}", run.path().display()));
        let [choice, workers] = &files;
        if is_public {
            run.publish_file(choice).map_err(named)?;
        }
        if let Some(group) = &group {
            run.share_file(workers, group.gid.as_raw()).map_err(|error| {
                Failure::new(format!(
                    "front {name}: cannot give {workers} to group {}: {error}; run the front as a member of it",
                    group.name
                ))
            })?;
        }
        Ok(exposed)
    };
    let now = Time::from_ns(monotonic_ns());
    let exposes: Exposure = Box::new(move || expose().map_err(|Failure(why)| why));
    MemoryAdapter::exposed_by(exposes, &cluster, now).map_err(Failure::new)
}

fn group(front: &str, name: &str) -> Result<Group, Failure> {
    let group = Group::from_name(name).map_err(|errno| Failure::new(errno.to_string()))?;
    group.ok_or_else(|| {
        Failure::new(format!("front {front}: there is no group {name:?}: name that of the proxy's workers"))
    })
}
