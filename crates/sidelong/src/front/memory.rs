//! Proxies that are led by shared memory: offers it, and says who uses it.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Group;
use sidelong_config::{Cluster, FrontEntry, Node, ServerAddress};
use sidelong_edge::{LedByMemory, LedCluster, led_regions};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Host, RunDirectory};
use sidelong_layout::{
    ChoiceMap, EncodedAddress, HEADER_BYTES, NodeId, NodeState, Ownership, RegionHeader, RegionKind, SLOTS,
    Time, Worker, WorkersMap,
};
use sidelong_load::monotonic_ns;

use crate::failure::{Failure, say};
use crate::parts::Parts;

/// Where the files of a front are.
pub(super) fn directory(cluster: &Cluster, entry: &FrontEntry) -> PathBuf {
    entry.dir.clone().unwrap_or_else(|| cluster.run_dir.clone())
}

/// Says whether the front runs, and whose workers ask it.
pub(super) fn check(cluster: &Cluster, entry: &FrontEntry) -> Result<(), Failure> {
    say(survey(cluster, entry)?)
}

/// That the front runs, and whose workers ask it.
///
/// # Errors
/// If it does not, or none does.
pub(super) fn survey(cluster: &Cluster, entry: &FrontEntry) -> Result<String, Failure> {
    let run = RunDirectory::at(directory(cluster, entry));
    let nodes = cluster.nodes.len();
    let [choice, workers] = led_regions(&entry.name).map(|region| format!("{region}.region"));
    let open = |name: &str, kind, len| -> Result<File, Failure> {
        let path = run.path().join(name);
        let wrong = |why: String| Failure::new(format!("{}: {why}", path.display()));
        let file = run
            .read(name)
            .map_err(|error| wrong(format!("{error}; `sidelong front {}` makes it", entry.name)))?;
        let mut words = [0; HEADER_BYTES];
        file.read_exact_at(&mut words, 0).map_err(|error| wrong(error.to_string()))?;
        let words = std::array::from_fn(|i| u64::from_le_bytes(words.as_chunks().0[i]));
        RegionHeader::checked(&words, 0, kind, len).map_err(|error| wrong(error.to_string()))?;
        Ok(file)
    };
    let word = |file: &File, offset: usize| -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, offset as u64)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let map = ChoiceMap { nodes, sites: cluster.sites.len(), servers: servers(cluster).len() };
    let choice = open(&choice, RegionKind::Choice, map.len())?;
    let scanned = word(&choice, ChoiceMap::TIME)?;
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(scanned));
    if scanned == 0 || age > cluster.load.stale {
        return Err(Failure::new(format!(
            "front {} does not run, or hangs: {} sends requests by itself",
            entry.name, entry.proxy
        )));
    }
    let mut held = String::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        let ownership = word(&choice, map.ownership(NodeId::new(index)))?;
        let state = Ownership::decode(ownership, cluster.sites.len()).map(|ownership| ownership.state);
        if state == Some(NodeState::Held) {
            let _ = writeln!(held, "node {0} is held: `sidelong resume {0}` gives it back", node.name);
        }
    }
    let map = WorkersMap { nodes };
    let file = open(&workers, RegionKind::Workers, map.len())?;
    let mut pids = Vec::new();
    for slot in 0..SLOTS {
        pids.extend(Worker::decode(word(&file, map.owner(slot))?).map(|worker| worker.pid.to_string()));
    }
    if pids.is_empty() {
        return Err(Failure::new(format!(
            "front {} runs, and no worker of {} has sent a request by it: compare its configuration with `sidelong front config {}`",
            entry.name, entry.proxy, entry.name
        )));
    }
    let (workers, ask) = if pids.len() == 1 { ("worker", "asks") } else { ("workers", "ask") };
    Ok(format!(
        "front {} runs, and scanned {:.1} ms ago\n{} {workers} of {} {ask} it: {}\n{held}",
        entry.name,
        age.as_secs_f64() * 1e3,
        pids.len(),
        entry.proxy,
        pids.join(", ")
    ))
}

/// Where the nodes' servers answer.
fn servers(cluster: &Cluster) -> Vec<EncodedAddress> {
    let encoded = |node: NodeId, address: &ServerAddress| match address {
        ServerAddress::Tcp(address) => EncodedAddress::tcp(node, *address),
        ServerAddress::Unix(path) => EncodedAddress::unix(node, path.as_os_str().as_bytes()),
    };
    let of = |(index, node): (usize, &Node)| {
        node.addresses.iter().map(|address| encoded(NodeId::new(index), address)).collect::<Vec<_>>()
    };
    cluster.nodes.iter().enumerate().flat_map(of).collect()
}

/// What workers must know of the cluster, if no front has led them yet.
pub(super) fn described(cluster: &Cluster) -> LedCluster {
    LedCluster {
        sites: cluster.sites.iter().map(|site| site.name.clone()).collect(),
        nodes: cluster.nodes.len(),
        servers: servers(cluster),
        stale: cluster.load.stale,
        rotation: cluster.admission.rotation,
        balance: cluster.balance.policy,
        drain_max: cluster.reconfig.drain_max,
        has_led: false,
    }
}

/// Offers the memory by which the proxy is led.
pub(super) fn led(parts: &Parts, entry: &FrontEntry) -> Result<LedByMemory, Failure> {
    let run = match &entry.dir {
        Some(dir) => RunDirectory::open_public(dir)?,
        None => parts.run.clone(),
    };
    let files = led_regions(&entry.name).map(|region| format!("{region}.region"));
    let has_led = files.iter().any(|file| run.path().join(file).exists());
    let cluster = LedCluster { has_led, ..described(&parts.cluster) };
    let host = Host::Shm(ShmHost::new(run.path()));
    let now = Time::from_ns(monotonic_ns());
    let led = LedByMemory::offer(&host, &entry.name, &cluster, parts.life(), now)?;
    let named = |error| Failure::new(format!("{}: {error}", run.path().display()));
    let [choice, workers] = files;
    if entry.dir.is_some() {
        run.publish_file(&choice).map_err(named)?;
    }
    if let Some(name) = &entry.group {
        let group = Group::from_name(name).map_err(|errno| Failure::new(errno.to_string()))?;
        let group = group.ok_or_else(|| {
            Failure::new(format!(
                "front {}: there is no group {name:?}: name that of the proxy's workers",
                entry.name
            ))
        })?;
        run.share_file(&workers, group.gid.as_raw()).map_err(|error| {
            Failure::new(format!(
                "front {}: cannot give {workers} to group {name}: {error}; run the front as a member of it",
                entry.name
            ))
        })?;
    }
    Ok(led)
}
