//! A front that controls HAProxy by its Runtime API.

use std::path::Path;

use sidelong_config::{Cluster, Drain, FrontEntry, Node};
use sidelong_edge::{Adapter, HaproxyAdapter, HaproxyCluster, HaproxyNode, MemoryAdapter};
use sidelong_policy::index::Capacity;

use crate::failure::Failure;
use crate::parts::Parts;

/// Begins to control HAProxy; by `choice`, if its Lua chooses.
pub(super) fn adapter(
    parts: &Parts,
    entry: &FrontEntry,
    choice: Option<MemoryAdapter>,
) -> Result<Box<dyn Adapter>, Failure> {
    let cluster = haproxy_cluster(&parts.cluster, entry, &parts.capacities());
    let adapter = HaproxyAdapter::start(&entry.name, haproxy_socket(entry).to_owned(), cluster, choice)
        .map_err(|error| Failure::new(format!("front {}: cannot start a thread: {error}", entry.name)))?;
    Ok(Box::new(adapter))
}

/// What is to be known of the cluster to control HAProxy.
pub fn haproxy_cluster(cluster: &Cluster, entry: &FrontEntry, capacities: &[Capacity]) -> HaproxyCluster {
    let node = |slot: usize, node: &Node| HaproxyNode {
        name: node.name.clone(),
        address: node.address(0).tcp(),
        starts_free: node.site.is_none(),
        workers: capacities[slot].workers,
        speed: capacities[slot].speed,
    };
    HaproxyCluster {
        sites: cluster.sites.map(|site| site.name.clone()),
        backends: cluster.sites.map(|site| haproxy_backend(Some(entry), &site.name).to_owned()),
        cuts: cluster.sites.map(|site| site.drain == Drain::Cut).to_vec(),
        added: entry.add_servers.clone(),
        nodes: cluster.nodes.map_slots(node),
        drain_max: cluster.reconfig.drain_max,
        scan: cluster.reconfig.sensitivity,
        stale: cluster.load.stale,
    }
}

/// HAProxy's backend of a site.
pub fn haproxy_backend<'a>(adapter: Option<&'a FrontEntry>, site: &'a str) -> &'a str {
    adapter.and_then(|entry| entry.backends.get(site)).map_or(site, String::as_str)
}

/// The socket, which a checked file has.
pub fn haproxy_socket(entry: &FrontEntry) -> &Path {
    entry.socket.as_deref().unwrap_or(Path::new("/run/haproxy/admin.sock"))
}
