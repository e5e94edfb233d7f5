//! A front without a proxy: the kernel sends each connection to a site's address to a node.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sidelong_config::{Cluster, FrontEntry};
use sidelong_edge::{Led, LedByConnect};
use sidelong_fabric::Host;
use sidelong_fabric::shm::ShmHost;
use sidelong_layout::{ChoiceMap, Time, WorkersMap};
use sidelong_load::{
    ConnectError, ConnectSpec, Connections, Directed, keep_privileges_to_detach, monotonic_ns,
};

use super::memory::described;
use crate::cgroup;
use crate::failure::{Failure, say};
use crate::parts::Parts;

/// Begins to direct connections.
pub(super) fn led(parts: &Parts, entry: &FrontEntry) -> Result<Box<dyn Led>, Failure> {
    let place = Place::of(&parts.cluster, entry)?;
    let life = parts.life();
    let directed =
        Directed::start(&place.spec(&parts.cluster, life.0)).map_err(|error| wrong(entry, &error))?;
    keep_privileges_to_detach()?;
    let host = Host::Shm(ShmHost::new(parts.run.path()));
    let now = Time::from_ns(monotonic_ns());
    Ok(Box::new(LedByConnect::start(&host, &entry.name, &described(&parts.cluster), life, directed, now)?))
}

/// The addresses to use.
pub(super) fn lines(cluster: &Cluster) -> String {
    let mut lines = String::new();
    for site in &cluster.sites {
        let address = site.connect.map(|address| address.to_string()).unwrap_or_default();
        let _ = writeln!(lines, "{address} site {}", site.name);
    }
    lines
}

/// Says whether the programs are attached and the front scans, and where the connections are.
pub(super) fn check(cluster: &Cluster, entry: &FrontEntry) -> Result<(), Failure> {
    let place = Place::of(cluster, entry)?;
    // Of any cluster file: the front has refused others.
    let found = Connections::read(&place.spec(cluster, 0)).map_err(|error| match error {
        ConnectError::Directory { path, source } => Failure::new(format!(
            "{}: {source}; `sidelong front {}` attaches the programs",
            path.display(),
            entry.name
        )),
        error => wrong(entry, &error),
    })?;
    if !found.missing.is_empty() {
        return Err(Failure::new(format!(
            "front {}: not attached to {}: {}; start the front again",
            entry.name,
            place.group.display(),
            found.missing.join(", ")
        )));
    }
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(found.scanned_ns));
    if found.scanned_ns == 0 || age > cluster.load.stale {
        return Err(Failure::new(format!(
            "front {} does not run, or hangs: connections go to the nodes that served their site last, in random order",
            entry.name
        )));
    }
    let mut said = format!(
        "front {} runs, and scanned {:.1} ms ago\nprograms are attached to {}\n",
        entry.name,
        age.as_secs_f64() * 1e3,
        place.group.display()
    );
    for (node, connections) in cluster.nodes.iter().zip(&found.at) {
        let _ = writeln!(said, "node {} has {connections} connections", node.name);
    }
    say(said)
}

/// Where programs are attached and pinned.
struct Place {
    directory: PathBuf,
    group: PathBuf,
    sites: Vec<SocketAddr>,
}

impl Place {
    fn of(cluster: &Cluster, entry: &FrontEntry) -> Result<Self, Failure> {
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
        let sites = cluster.sites.iter().filter_map(|site| site.connect).collect();
        Ok(Place { directory, group, sites })
    }

    fn spec(&self, cluster: &Cluster, identity: u64) -> ConnectSpec<'_> {
        let nodes = cluster.nodes.len();
        let servers = cluster.nodes.iter().map(|node| node.addresses.len()).sum();
        ConnectSpec {
            directory: &self.directory,
            group: &self.group,
            sites: &self.sites,
            choice: ChoiceMap { nodes, sites: cluster.sites.len(), servers },
            counts: WorkersMap { nodes },
            cluster: identity,
        }
    }
}

fn wrong(entry: &FrontEntry, error: &ConnectError) -> Failure {
    Failure::new(format!("front {}: {error}", entry.name))
}
