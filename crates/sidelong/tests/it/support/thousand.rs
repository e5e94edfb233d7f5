//! A thousand nodes on one machine: their servers are one nginx, and their agents' memory is written by the test.

use std::fmt::Write as _;
use std::fs::File;
use std::process::Command;
use std::sync::atomic::Ordering;

use sidelong_config::Configuration;
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec};
use sidelong_layout::{
    Hot, Instance, LOAD_BYTES, LOAD_HOT, Ownership, RegionKind, SiteId, WORDS_OWNERSHIP, valid,
};
use sidelong_load::monotonic_ns;
use sidelong_reconfig::{expose_words, load_region};
use sidelong_state::Publisher;

use super::words::{read_word, write_word};
use super::{Cluster, Running, STALE_MAX, eventually, may_open, try_get};

pub const NODES: usize = 1_000;

/// All nodes at alpha but one, at beta; they move by no decision, and records stay fresh for a minute. For one front, without edges.
pub fn two_sites() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", NODES - 1), ("beta", 1)]).foreign();
    cluster.file.edges.clear();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.load.stale = STALE_MAX;
    cluster
}

/// Open files of a test with all nodes, and of nginx, by a wide margin: a connection is one, as are the regions of [`Agents`].
const OPEN: u64 = 4_096;

/// One nginx that answers at all nodes' addresses, and keeps connections.
pub fn servers(cluster: &Cluster) -> Running {
    assert!(may_open(OPEN), "a thousand nodes need {OPEN} descriptors");
    let directory = cluster.path("servers");
    std::fs::create_dir(&directory).unwrap();
    let mut listens = String::new();
    (0..NODES).for_each(|node| _ = writeln!(listens, "listen {};", cluster.node(node)));
    let text = format!(
        "daemon off;\npid {0}/pid;\nerror_log stderr;\nevents {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n\
         server {{\n{listens}return 200;\n}}\n}}\n",
        directory.display()
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&directory).arg("-c").arg(file).args(["-e", "stderr"]);
    let servers = Running::start_command(command);
    eventually("the servers answer", || {
        try_get(cluster.node(NODES - 1), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });
    servers
}

/// The memory of all nodes' agents.
pub struct Agents {
    words: Vec<File>,
    loads: Vec<(Region, Publisher)>,
    sites: usize,
}

impl Agents {
    /// Each node serves its site in the cluster file. The front runs: its board tells which cluster it is.
    pub fn expose(cluster: &Cluster) -> Self {
        let instance = Instance { cluster: identity(cluster), incarnation: 1 };
        let host = Host::Shm(ShmHost::new(cluster.run_dir()));
        let sites = cluster.file.sites.iter().enumerate();
        let sites = sites.flat_map(|(site, entry)| std::iter::repeat_n(SiteId::new(site), entry.nodes));
        let exposed = cluster.file.nodes.iter().zip(sites).map(|(node, site)| {
            let words = expose_words(&host, &node.name, Some(site), instance).unwrap();
            let file = cluster.run_dir().join(format!("{}.region", words.key().name));
            let name = &load_region(&node.name);
            let (kind, access) = (RegionKind::Load, Access::ReadOnly);
            let spec = RegionSpec { name, kind, len: LOAD_BYTES, access, instance };
            let words = File::options().read(true).write(true).open(file).unwrap();
            (words, (host.expose(&spec, |_| ()).unwrap(), Publisher::new(1)))
        });
        let (words, loads) = exposed.unzip();
        let mut agents = Agents { words, loads, sites: cluster.file.sites.len() };
        agents.say_idle();
        agents
    }

    /// Tells once more that all nodes are idle.
    pub fn say_idle(&mut self) {
        for (region, publisher) in &mut self.loads {
            let hot = Hot { valid: valid::ALL, time_ns: monotonic_ns(), workers: 4, ..Hot::default() };
            for (index, word) in publisher.publish(hot) {
                region.store(LOAD_HOT + index * 8, word, Ordering::Release);
            }
        }
    }

    /// From now on a node serves this site.
    pub fn moves(&self, node: usize, site: SiteId) {
        let words = &self.words[node];
        let before = Ownership::decode(read_word(words, WORDS_OWNERSHIP), self.sites).unwrap();
        write_word(words, WORDS_OWNERSHIP, Ownership::serving(site, before.generation + 1).encode());
    }
}

/// What parts of the same cluster know each other by.
fn identity(cluster: &Cluster) -> u64 {
    let mut found = None;
    eventually("there is a board", || {
        found = cluster.regions().iter().find_map(|name| {
            u64::from_str_radix(name.strip_prefix("board-")?.strip_suffix(".region")?, 16).ok()
        });
        found.is_some()
    });
    found.unwrap()
}
