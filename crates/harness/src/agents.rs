//! The memory of many nodes' agents, written by this process: no machine runs a thousand agents.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use sidelong_app::{Failure, Parts, roster};
use sidelong_config::Cluster;
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec, RunDirectory};
use sidelong_layout::{
    HEADER_EPOCH, Hot, LOAD_BYTES, LOAD_HOT, Ownership, RegionKind, SiteId, WORDS_OWNERSHIP, valid,
};
use sidelong_load::monotonic_ns;
use sidelong_reconfig::{expose_words, load_region};
use sidelong_state::Publisher;

/// Workers of each node.
const WORKERS: u16 = 4;

/// The memory of the agents of all nodes of a cluster on this machine.
pub struct Agents {
    run: RunDirectory,
    sites: usize,
    epoch: u64,
    nodes: Vec<Node>,
}

struct Node {
    /// Which this must keep.
    _words: Region,
    /// Its file: the CPU stores no word that others swap.
    words: File,
    load: Region,
    publisher: Publisher,
}

impl Agents {
    /// Each node serves its site in the cluster file, or that which its memory says, and is idle.
    ///
    /// # Errors
    /// If the memory cannot be allocated, or a node runs.
    pub fn expose(cluster: Cluster) -> Result<Self, Failure> {
        let parts = Parts::new(cluster)?;
        let (host, instance) = (Host::Shm(ShmHost::new(parts.run.path())), parts.instance());
        let expose = |node: &sidelong_config::Node| {
            let words = expose_words(&host, &node.name, node.site.map(SiteId::new), instance)?;
            let (name, kind, access) = (&load_region(&node.name), RegionKind::Load, Access::ReadOnly);
            let spec = RegionSpec { name, kind, len: LOAD_BYTES, access, instance };
            let file = parts.run.path().join(format!("{}.region", words.key().name));
            let words_file = File::options().read(true).write(true).open(file)?;
            Ok(Node {
                _words: words,
                words: words_file,
                load: host.expose(&spec, |_| ())?,
                publisher: Publisher::new(1),
            })
        };
        let nodes = parts.cluster.nodes.values().map(expose).collect::<Result<_, Failure>>()?;
        let (run, sites) = (parts.run, parts.cluster.capacity.sites);
        let mut agents = Agents { run, sites, epoch: 0, nodes };
        agents.say_idle();
        Ok(agents)
    }

    /// Tells once more that all nodes are idle.
    pub fn say_idle(&mut self) {
        for Node { load, publisher, .. } in &mut self.nodes {
            let hot = Hot { valid: valid::ALL, time_ns: monotonic_ns(), workers: WORKERS, ..Hot::default() };
            for (index, word) in publisher.publish(hot) {
                load.store(LOAD_HOT + index * 8, word, Ordering::Release);
            }
        }
    }

    /// States that all go by the newest roster, as soon as there is a newer one. Agents of a foreign server take nothing else from it, unless it is
    /// about their own entry.
    pub fn follow(&mut self) {
        if let Some(epoch) = roster::epoch(&self.run).filter(|epoch| *epoch != self.epoch) {
            self.nodes.iter().for_each(|node| node.load.store(HEADER_EPOCH, epoch, Ordering::Release));
            self.epoch = epoch;
        }
    }

    /// From now on a node serves this site.
    ///
    /// # Errors
    /// If its memory is lost.
    pub fn moves(&self, node: usize, site: SiteId) -> io::Result<()> {
        let (words, at) = (&self.nodes[node].words, WORDS_OWNERSHIP as u64);
        let mut word = [0; 8];
        words.read_exact_at(&mut word, at)?;
        let before = Ownership::decode(u64::from_le_bytes(word), self.sites);
        let generation = before.map_or(0, |before| before.generation) + 1;
        words.write_all_at(&Ownership::serving(site, generation).encode().to_le_bytes(), at)
    }
}
