//! A cluster file, a run directory and a loopback address that no other test uses.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use sidelong_config::{ClusterFile, EdgeEntry, NodeEntry, SiteEntry, Workload, WorkloadKind};
use tempfile::TempDir;

use crate::eventually;
use crate::http::{metrics, try_get};
use crate::process::{Done, Running};

/// A test claims an address of 127.0.0.0/8 by listening on this port of it. Clients' own ports are never taken from
/// these addresses, so all other ports are free.
const CLAIM: u16 = 4999;
const NODES: u16 = 5001;
const EDGES: u16 = 8001;
const ADMIN: u16 = 9001;
const NODES_ADMIN: u16 = 7001;

/// A cluster that can be run, whole or in parts. Change `file` before.
pub struct Cluster {
    /// Its cluster file.
    pub file: ClusterFile,
    directory: TempDir,
    address: IpAddr,
    _claim: TcpListener,
}

/// The edge with a number.
fn edge(address: IpAddr, number: u16) -> EdgeEntry {
    let at = |port| SocketAddr::new(address, port + number);
    EdgeEntry { admin: Some(at(ADMIN)), ..EdgeEntry::new(format!("edge{}", number + 1), at(EDGES)) }
}

/// The node with a number.
fn node(address: IpAddr, number: u16) -> NodeEntry {
    let at = |port| SocketAddr::new(address, port + number);
    NodeEntry { admin: Some(at(NODES_ADMIN)), ..NodeEntry::new(format!("n{}", number + 1), 1, at(NODES)) }
}

impl Cluster {
    /// Sites with these names and numbers of nodes, floors of 1 and the host NAME.test; two edges; no load.
    pub fn new(sites: &[(&str, usize)]) -> Self {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("sidelong-test-").tempdir_in(base).unwrap();
        let claim = claim();
        let address = claim.local_addr().unwrap().ip();
        let mut file = ClusterFile::default();
        // On a busy machine connecting may be slow.
        file.limits.connect_timeout = Duration::from_secs(2);
        file.cluster.name = "test".into();
        file.cluster.run_dir = Some(directory.path().join("run"));
        file.sites =
            sites.iter().map(|(name, nodes)| SiteEntry::new(*name, format!("{name}.test"), *nodes)).collect();
        let nodes: usize = sites.iter().map(|(_, nodes)| nodes).sum();
        file.nodes = (0..nodes as u16).map(|k| node(address, k)).collect();
        file.edges = (0..2).map(|k| edge(address, k)).collect();
        Cluster { file, directory, address, _claim: claim }
    }

    /// With another edge.
    pub fn with_edge(mut self) -> Self {
        self.push_edge();
        self
    }

    /// Adds an entry for another edge.
    pub fn push_edge(&mut self) {
        self.file.edges.push(edge(self.address, self.file.edges.len() as u16));
    }

    /// Adds an entry for the node of that name, `n` and a number.
    pub fn add_node(&mut self, name: &str) {
        let number: u16 = name[1..].parse().expect("a number");
        self.file.nodes.push(node(self.address, number - 1));
    }

    /// The layout of `config demo`: three sites with 3, 3 and 2 nodes.
    pub fn demo() -> Self {
        Self::new(&[("alpha", 3), ("beta", 3), ("gamma", 2)])
    }

    /// With bursts of `burst` requests for each of its sites in turn, which end after `requests`.
    pub fn with_load(mut self, burst: u64, requests: Option<u64>) -> Self {
        let kind = WorkloadKind::SingleFile;
        self.file.workload = Some(Workload { kind, burst, requests, ..Workload::default() });
        self
    }

    /// Its nodes hold each request for this time.
    pub fn with_service(mut self, time: Duration) -> Self {
        for node in &mut self.file.nodes {
            node.service_time = Some(time);
        }
        self
    }

    /// Its servers are others' and answer at the nodes' addresses; the nodes are their agents.
    pub fn foreign(mut self) -> Self {
        for node in &mut self.file.nodes {
            let entry = NodeEntry::foreign(node.name.clone(), 1, node.listen.unwrap());
            *node = NodeEntry { admin: node.admin, ..entry };
        }
        self
    }

    /// A file in its own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where its parts meet.
    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// An address of its own at `port`.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// The client address of the `index`-th edge.
    pub fn edge(&self, index: usize) -> SocketAddr {
        self.file.edges[index].listen
    }

    /// Where the `index`-th node's server answers.
    pub fn node(&self, index: usize) -> SocketAddr {
        let node = &self.file.nodes[index];
        node.listen.or(node.server.as_ref().and_then(|server| server.tcp())).unwrap()
    }

    /// The admin address of the `index`-th edge.
    pub fn admin(&self, index: usize) -> SocketAddr {
        self.file.edges[index].admin.unwrap()
    }

    /// A metric of the `index`-th edge, whose name has `sidelong_edge_` before this.
    pub fn figure(&self, index: usize, name: &str) -> Option<f64> {
        metrics(self.admin(index)).get(&format!("sidelong_edge_{name}")).copied()
    }

    /// The admin address of the `index`-th node.
    pub fn node_admin(&self, index: usize) -> SocketAddr {
        self.file.nodes[index].admin.unwrap()
    }

    /// Writes the cluster file as it is now.
    pub fn config(&self) -> PathBuf {
        let path = self.path("cluster.toml");
        // In one step, because a running part may be reading it.
        let new = self.path("cluster.toml.new");
        std::fs::write(&new, self.file.to_toml().unwrap()).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    /// A command of the program on it, which goes on.
    pub fn start(&self, words: &[&str]) -> Running {
        let config = self.config();
        let words = words.iter().map(|word| OsStr::new(*word));
        Running::start(words.chain([OsStr::new("--config"), config.as_os_str()]))
    }

    /// A command of the program on it, once it has ended.
    pub fn run(&self, words: &[&str]) -> Done {
        self.start(words).finish()
    }

    /// `sidelong up` on it.
    pub fn up(&self, arguments: &[&str]) -> Running {
        self.start(&[&["up"], arguments].concat())
    }

    /// `sidelong up` on it, once every edge answers for every site.
    pub fn serving(&self, arguments: &[&str]) -> Running {
        let mut up = self.up(arguments);
        self.await_serving(&mut up);
        // Before that it is starting, and would end differently when told to stop.
        eventually("it says that it is up", || up.err().contains(" is up: "));
        up
    }

    /// Waits until every edge answers for every site.
    pub fn await_serving(&self, up: &mut Running) {
        self.await_answers(|| assert!(up.is_running(), "ended: {}{}", up.out(), up.err()));
    }

    /// Waits until every edge answers for every site; `look` may fail meanwhile.
    pub(crate) fn await_answers(&self, mut look: impl FnMut()) {
        for edge in &self.file.edges {
            for site in &self.file.sites {
                eventually("every edge answers for every site", || {
                    look();
                    try_get(edge.listen, &site.hosts[0], "/o/1/1").is_ok_and(|reply| reply.status == 200)
                });
            }
        }
    }

    /// Waits until every region is whole, every edge answers for every site, and `top` sees every node serve.
    pub fn await_whole(&self, up: &mut Running) {
        eventually("every region is whole", || {
            assert!(up.is_running(), "ended: {}{}", up.out(), up.err());
            let regions = self.regions();
            let is_whole = |name: &String| {
                let found = std::fs::metadata(self.run_dir().join(name));
                !name.ends_with(".new") && found.is_ok_and(|found| found.len() > 64)
            };
            // A record and a word for each node, a share and a front for each edge, and the board.
            regions.len() == 2 * self.file.nodes.len() + 2 * self.file.edges.len() + 1
                && regions.iter().all(is_whole)
        });
        self.await_serving(up);
        eventually("every node serves", || {
            let done = self.run(&["top", "--once", "--json"]);
            assert!(matches!(done.code, Some(0 | 2)), "{done:?}");
            done.code == Some(0) && {
                let report = done.json();
                let serves = |node: &Value| node["status"] == "fresh" && node["state"] == "serving";
                report["nodes"].as_array().unwrap().iter().all(serves)
            }
        });
    }

    /// A single part of it, started by hand.
    pub fn part(&self, kind: &str, name: &str) -> Running {
        self.start(&[kind, name])
    }

    /// The processes that `up` has started for it.
    pub fn parts(&self) -> Vec<Part> {
        let config = self.run_dir().join("cluster.toml");
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let part = |pid: i32| {
            // Gone meanwhile, or another cluster's.
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<_> = line.split('\0').collect();
            let ours = words.iter().any(|word| Path::new(word) == config);
            let [_, kind, name, ..] = words[..] else { return None };
            ours.then(|| Part {
                kind: kind.to_owned(),
                name: name.to_owned(),
                pid: Pid::from_raw(pid).unwrap(),
            })
        };
        pids.filter_map(part).collect()
    }

    /// The process of one part, once it runs: `up` may be about to start it again.
    pub fn find(&self, kind: &str, name: &str) -> Part {
        let mut found = Vec::new();
        eventually(&format!("there is {kind} {name}"), || {
            found = self.parts();
            found.retain(|part| part.kind == kind && part.name == name);
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "one process is one part");
        found.remove(0)
    }

    /// Regions and keys in its run directory.
    pub fn regions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.run_dir()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| [".region", ".tcpkey", ".new"].iter().any(|end| name.ends_with(end))).collect()
    }
}

/// A process of a cluster that `up` has started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What it is: node, edge, front or cache.
    pub kind: String,
    /// Its name in the cluster.
    pub name: String,
    pid: Pid,
}

impl Part {
    /// CPU time used, in ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    /// Kills it, as a crash would.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// The ID of its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether there is such a process, which may have ended and not been waited for.
    pub fn is_alive(&self) -> bool {
        test_kill_process(self.pid).is_ok()
    }
}

/// A loopback address, and the listener that claims it. Processes start searching at different addresses.
fn claim() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() << 10;
    let mut tries = (0..1024).map(|_| NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(first));
    let listener = tries.find_map(|number| {
        // Each number has another address: what a test leaves behind must not be met by the next. Not 127.0.0.0/16, which
        // everyone uses, and none that ends like those of networks and broadcasts.
        let [b, c, d] = [254 * 254, 254, 1].map(|unit| 1 + (number / unit % 254) as u8);
        TcpListener::bind((Ipv4Addr::new(127, b, c, d), CLAIM)).ok()
    });
    listener.expect("a loopback address that nobody else has")
}
