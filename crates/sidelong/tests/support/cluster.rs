//! A cluster file, a run directory and a loopback address, which no other test has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sidelong_config::{ClusterFile, EdgeEntry, NodeEntry, SiteEntry, Workload, WorkloadKind};
use tempfile::TempDir;

use super::{Running, eventually, try_get};

/// Whoever listens at this port of an address of 127.0.0.0/8 has the address for a test. No client's own port is ever
/// taken from these addresses, so all other ports of it are free.
const CLAIM: u16 = 4999;
const NODES: u16 = 5001;
const EDGES: u16 = 8001;
const ADMIN: u16 = 9001;
const NODES_ADMIN: u16 = 7001;

/// A cluster that may be run, whole or in parts. Change `file` before.
pub struct Cluster {
    pub file: ClusterFile,
    directory: TempDir,
    address: IpAddr,
    _claim: TcpListener,
}

impl Cluster {
    /// Sites of these names and numbers of nodes, with floors of 1 and the host NAME.test; two edges; no load.
    pub fn new(sites: &[(&str, usize)]) -> Self {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("sidelong-test-").tempdir_in(base).unwrap();
        let claim = claim();
        let address = claim.local_addr().unwrap().ip();
        let at = |port| SocketAddr::new(address, port);
        let mut file = ClusterFile::default();
        // A machine that does much else besides may be slow to connect, which is no fault of anybody's.
        file.limits.connect_timeout = Duration::from_secs(2);
        file.cluster.name = "test".into();
        file.cluster.run_dir = Some(directory.path().join("run"));
        file.sites =
            sites.iter().map(|(name, nodes)| SiteEntry::new(*name, format!("{name}.test"), *nodes)).collect();
        let nodes: usize = sites.iter().map(|(_, nodes)| nodes).sum();
        file.nodes = (0..nodes as u16)
            .map(|k| NodeEntry {
                admin: Some(at(NODES_ADMIN + k)),
                ..NodeEntry::new(format!("n{}", k + 1), 1, at(NODES + k))
            })
            .collect();
        file.edges = (0..2)
            .map(|k| EdgeEntry {
                admin: Some(at(ADMIN + k)),
                ..EdgeEntry::new(format!("edge{}", k + 1), at(EDGES + k))
            })
            .collect();
        Cluster { file, directory, address, _claim: claim }
    }

    /// The layout of `config demo`: three sites with 3, 3 and 2 nodes.
    pub fn demo() -> Self {
        Self::new(&[("alpha", 3), ("beta", 3), ("gamma", 2)])
    }

    /// With bursts of `burst` requests, to each of its sites in turn, and an end after `requests`.
    pub fn with_load(mut self, burst: u64, requests: Option<u64>) -> Self {
        let kind = WorkloadKind::SingleFile;
        self.file.workload = Some(Workload { kind, burst, requests, ..Workload::default() });
        self
    }

    /// Whose nodes hold each request for so long.
    pub fn with_service(mut self, time: Duration) -> Self {
        for node in &mut self.file.nodes {
            node.service_time = time;
        }
        self
    }

    /// A file of its own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// An address of its own at `port`.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// Where clients reach the `index`-th edge.
    pub fn edge(&self, index: usize) -> SocketAddr {
        self.file.edges[index].listen
    }

    /// Where the `index`-th edge has its metrics.
    pub fn admin(&self, index: usize) -> SocketAddr {
        self.file.edges[index].admin.unwrap()
    }

    /// Where the `index`-th node has its metrics.
    pub fn node_admin(&self, index: usize) -> SocketAddr {
        self.file.nodes[index].admin.unwrap()
    }

    /// Writes the cluster file as it is now.
    pub fn config(&self) -> PathBuf {
        let path = self.path("cluster.toml");
        std::fs::write(&path, self.file.to_toml().unwrap()).unwrap();
        path
    }

    /// `sidelong up` on it.
    pub fn up(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        command.arg("up").arg("--config").arg(self.config()).args(arguments);
        Running::start_command(command)
    }

    /// The same, once every edge answers for every site.
    pub fn serving(&self, arguments: &[&str]) -> Running {
        let mut up = self.up(arguments);
        self.await_serving(&mut up);
        // Until then it is starting, and ends otherwise where it is told to.
        eventually("it says that it is up", || up.err().contains(" is up: "));
        up
    }

    /// Waits until every edge answers for every site.
    pub fn await_serving(&self, up: &mut Running) {
        for edge in &self.file.edges {
            for site in &self.file.sites {
                eventually("every edge answers for every site", || {
                    assert!(up.is_running(), "ended: {}{}", up.out(), up.err());
                    try_get(edge.listen, &site.hosts[0], "/o/1/1").is_ok_and(|reply| reply.status == 200)
                });
            }
        }
    }

    /// A single part of it, by hand.
    pub fn part(&self, kind: &str, name: &str) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        command.args([kind, name]).arg("--config").arg(self.config());
        Running::start_command(command)
    }

    /// The processes that `up` has started for it.
    pub fn parts(&self) -> Vec<Part> {
        let config = self.run_dir().join("cluster.toml");
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let part = |pid: i32| {
            // Gone meanwhile, or another's: none of ours.
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

    /// The process of one part.
    pub fn find(&self, kind: &str, name: &str) -> Part {
        let mut found = self.parts().into_iter().filter(|part| part.kind == kind && part.name == name);
        let part = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
        assert_eq!(found.next(), None, "one process is one part");
        part
    }

    /// Regions and keys that lie in its run directory.
    pub fn regions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.run_dir()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| [".region", ".tcpkey", ".new"].iter().any(|end| name.ends_with(end))).collect()
    }
}

/// A process of a cluster that `up` has started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub kind: String,
    pub name: String,
    pid: Pid,
}

impl Part {
    /// CPU time that it has taken, in ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    /// Ends it, as a crash would.
    pub fn kill(&self) {
        kill_process(self.pid, Signal::KILL).unwrap();
    }

    pub fn is_alive(&self) -> bool {
        test_kill_process(self.pid).is_ok()
    }
}

/// A loopback address, and what keeps others from taking it. The addresses that processes begin with lie apart.
fn claim() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() << 5;
    let mut tries = (0..1024).map(|_| NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(first));
    let listener = tries.find_map(|number| {
        let [_, b, c, d] = number.to_be_bytes();
        // Not 127.0.0.0/16, which everyone uses, and no address that ends as networks and broadcasts do.
        let address = Ipv4Addr::new(127, b.clamp(1, 254), c, d.clamp(1, 254));
        TcpListener::bind((address, CLAIM)).ok()
    });
    listener.expect("a loopback address that nobody else has")
}
