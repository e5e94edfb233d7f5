//! A cluster whose parts seem to be on several machines: each has an address and a run directory of its own, and gets keys from the
//! others.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidelong_config::{self as config, ClusterFile, Fabric, NodeEntry};

use crate::etcd::Etcd;
use crate::{Cluster, Here, Running, SetOnDrop, eventually, metrics, try_get};

/// Their secret.
pub const SECRET: &str = "what everybody here knows";
/// Port of the nodes' control endpoints.
pub const FABRIC: u16 = 6001;

/// One cluster on as many machines as it has loopback addresses.
pub struct Machines {
    /// The cluster. Its first machine is the first node's.
    pub cluster: Cluster,
    /// Only for their addresses.
    pub others: Vec<Cluster>,
    /// Where the machines keep what etcd has, as their own files say.
    pub own_state_dir: Option<PathBuf>,
    /// A part that is on the machine of another.
    pub beside: Option<(&'static str, &'static str)>,
}

impl Machines {
    /// A site with one node and a site with two; each node on a machine of its own, and the edge on the last node's.
    pub fn three() -> Self {
        Self::of(&[("alpha", 1), ("beta", 2)], 1)
    }

    /// Sites with these names and numbers of nodes, of which the first two are on machines of their own, and so many edges, at most two.
    pub fn of(sites: &[(&str, usize)], edges: usize) -> Self {
        let mut cluster = Cluster::new(sites);
        let others = vec![Cluster::new(&[("none", 1)]), Cluster::new(&[("none", 1)])];
        cluster.file.edges.truncate(edges);
        cluster.file.cluster.fabric = Fabric::Tcp;
        cluster.file.cluster.secret_file = Some("secret".into());
        // Operations between two machines may take longer than on one.
        cluster.file.reconfig.lease = Duration::from_millis(500);
        for (k, node) in cluster.file.nodes.iter_mut().enumerate() {
            let machine = others.get(k).unwrap_or(&others[1]);
            let port = FABRIC + k as u16;
            let listen = machine.at(node.listen.unwrap().port());
            let entry = NodeEntry::new(node.name.clone(), 1, listen);
            let admin = node.admin.map(|admin| machine.at(admin.port()));
            *node = NodeEntry { fabric_listen: Some(machine.at(port)), admin, ..entry };
        }
        Machines { cluster, others, own_state_dir: None, beside: None }
    }

    /// Has etcd keep its file: the machines' own files are short.
    pub fn kept_by(&mut self, etcd: &Etcd) {
        let (secret, ports) = (self.cluster.path("secret"), FABRIC + 10..);
        write_secret(&secret, SECRET);
        let file = &mut self.cluster.file;
        file.cluster.secret_file = Some(secret);
        file.etcd = Some(config::Etcd { endpoints: etcd.endpoints(), ..config::Etcd::default() });
        for (edge, port) in file.edges.iter_mut().zip(ports) {
            edge.fabric_listen = Some(SocketAddr::new(edge.listen.ip(), port));
        }
    }

    /// What a part's machine has: its directory, with this secret, and its file.
    fn machine(&self, secret: &str, name: &str) -> (PathBuf, ClusterFile) {
        let machine = self.beside.filter(|(part, _)| *part == name).map_or(name, |(_, machine)| machine);
        let directory = self.cluster.path(machine);
        fs::create_dir_all(&directory).unwrap();
        write_secret(&directory.join("secret"), secret);
        let mut file = self.cluster.file.clone();
        if let Some(mut etcd) = file.etcd {
            etcd.state_dir.clone_from(&self.own_state_dir);
            file = ClusterFile { cluster: file.cluster, etcd: Some(etcd), ..ClusterFile::default() };
            file.cluster.secret_file = Some("secret".into());
        }
        file.cluster.run_dir = Some("run".into());
        (directory, file)
    }

    /// The file of a part's machine.
    pub fn config(&self, name: &str) -> PathBuf {
        let (directory, file) = self.machine(SECRET, name);
        let config = directory.join("cluster.toml");
        fs::write(&config, file.to_toml().unwrap()).unwrap();
        config
    }

    /// Starts one part as a process, whose machine has this secret.
    pub fn part_with(&self, secret: &str, kind: &str, name: &str, arguments: &[&str]) -> Running {
        let (directory, file) = self.machine(secret, name);
        let config = directory.join("cluster.toml");
        fs::write(&config, file.to_toml().unwrap()).unwrap();
        Running::start([&[kind, name], arguments, &["--config", config.to_str().unwrap()]].concat())
    }

    /// Starts one part in this process.
    pub fn here(&self, kind: &str, name: &str) -> Here {
        let (directory, mut file) = self.machine(SECRET, name);
        file.cluster.run_dir = Some(directory.join("run"));
        file.cluster.secret_file = Some(directory.join("secret"));
        Here::start(&file, kind, name).unwrap_or_else(|why| panic!("{kind} {name}: {why}"))
    }

    /// Starts one part as a process.
    pub fn part(&self, kind: &str, name: &str) -> Running {
        self.part_with(SECRET, kind, name, &[])
    }

    /// The whole file, written to where nobody reads it by itself.
    pub fn whole(&self) -> PathBuf {
        let path = self.cluster.path("whole.toml");
        fs::write(&path, self.cluster.file.to_toml().unwrap()).unwrap();
        path
    }

    /// Whether the edge answers for a site.
    pub fn answers(&self, site: &str) -> bool {
        let reply = try_get(self.cluster.edge(0), &format!("{site}.test"), "/o/1/10");
        reply.is_ok_and(|reply| reply.status == 200)
    }

    /// A metric of the edge.
    pub fn metric(&self, name: &str) -> f64 {
        metrics(self.cluster.admin(0)).get(name).copied().unwrap_or(0.0)
    }

    /// Asserts that parts that have ended have left nothing in their directories by which others could be told anything, but that they
    /// were there.
    pub fn assert_nothing_told(&self, names: &[&str]) {
        for name in names {
            let left = fs::read_dir(self.cluster.path(name).join("run")).unwrap();
            let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            // A node that moves itself keeps a history for `sidelong history`.
            let history = format!("{name}.history.jsonl");
            assert_eq!(left.find(|file| *file != history && !file.ends_with(".held")), None);
        }
    }

    /// Whether alpha has a node that was beta's.
    pub fn has_moved(&self) -> bool {
        let sites = metrics(self.cluster.admin(0));
        let serving = |k| format!("sidelong_edge_node_site{{node=\"n{k}\",site=\"alpha\"}}");
        (2..=3).any(|k| sites.get(&serving(k)) == Some(&1.0))
    }

    /// Keeps alpha's node busy until it gets another.
    pub fn await_move(&self) {
        self.under_load(|| eventually("alpha gets a node of beta's", || self.has_moved()));
    }

    /// Keeps alpha's node busy for as long as `wait` takes.
    pub fn under_load(&self, wait: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _ = try_get(self.cluster.edge(0), "alpha.test", "/o/1/10");
                    }
                });
            }
            // Also where the wait ends in a panic: the scope waits for its threads.
            let _over = SetOnDrop(&over);
            wait();
        });
    }
}

/// Writes a secret, which only its owner may read.
pub fn write_secret(path: &Path, secret: &str) {
    fs::write(path, secret).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
