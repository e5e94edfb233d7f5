//! What a cluster file means: every node named and placed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::check::{self, Problem};
use crate::error::{Error, Place, Result};
use crate::file::{ClusterFile, EdgeEntry, Identity, NodeEntry, RateEntry, SiteEntry};
use crate::lines::At;
use crate::secret::Secret;
use crate::sections::{Admission, Balance, Ganglia, Limits, Load, Reconfig, Verbs, Workload};
use crate::words::{AdmissionRule, Configuration, Fabric, Service};

/// A cluster, checked. All processes that read the same file get the same one, indices included.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Where its regions, keys and process files lie.
    pub run_dir: PathBuf,
    /// How memory of other processes is reached.
    pub fabric: Fabric,
    /// What its processes know and nobody else, if they are on several machines.
    pub secret: Option<Secret>,
    /// Which RDMA device they use, where they use one.
    pub verbs: Verbs,
    /// How load gets from the nodes to the edges.
    pub load: Load,
    /// Which node of its site gets a request.
    pub balance: Balance,
    /// Whom the edges let in.
    pub admission: Admission,
    /// When nodes move between sites, and how.
    pub reconfig: Reconfig,
    /// What an edge puts up with.
    pub limits: Limits,
    /// Who else is told the nodes' figures.
    pub ganglia: Ganglia,
    /// In the order of the file, at least one.
    pub sites: Vec<Site>,
    /// In the order of the file, at least one, at most [`sidelong_layout::NODES_MAX`].
    pub nodes: Vec<Node>,
    /// In the order of the file, at least one.
    pub edges: Vec<Edge>,
    /// The load to put on the edges, if the file has one.
    pub workload: Option<Workload>,
}

/// One hosted service.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// The Host headers that mean it, in lower case and without ports, at least one.
    pub hosts: Vec<String>,
    /// Nodes at the start.
    pub nodes: usize,
    /// Nodes that it never falls below, at least 1.
    pub floor: usize,
    /// Nodes that it never rises above: the file's, or the whole pool.
    pub ceiling: usize,
    /// Where two sites want a node, the higher gets it.
    pub priority: u8,
    /// What those who are let in are promised, if anything.
    pub target: Option<Target>,
    /// Of the pool, 0 to 1: up to which it gives way to no other site.
    pub share: f64,
    /// Of its requests, in place of the workload's.
    pub alpha: Option<f64>,
    /// When how many of them come, in an open loop of rates by site.
    pub rates: Vec<RateEntry>,
}

/// What is held for a site by turning requests away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// `response_ms_p99`.
    ResponseP99(Duration),
    /// `queue_ms_max`.
    QueueMax(Duration),
}

/// A server of the pool.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name, which no other node or edge has.
    pub name: String,
    /// Where its origin answers HTTP.
    pub listen: SocketAddr,
    /// Where it serves its regions over tcp or verbs, port 0 for any free one; with a secret where it tells how to reach
    /// them.
    pub fabric_listen: SocketAddr,
    /// Where it serves `/metrics`.
    pub admin: Option<SocketAddr>,
    /// Requests that its origin serves at a time.
    pub workers: u16,
    /// How long for each.
    pub service: Service,
    /// The fixed time or the mean, unless `service` is none.
    pub service_time: Duration,
    /// Requests that wait for a worker; 503 beyond it.
    pub queue_depth_max: u32,
    /// Real files that its origin serves.
    pub root: Option<PathBuf>,
    /// CPUs that it may take at most, by a control group that `up` makes.
    pub cpu_share: Option<f64>,
    /// CPUs that it has. None for as many as the machine that compares.
    pub cpus: Option<f64>,
    /// Mbit/s that its network carries, if known.
    pub net_mbit: Option<f64>,
    /// The cgroup directory that holds it.
    pub cgroup: Option<PathBuf>,
    /// The site that it serves at the start, an index of [`Cluster::sites`]. None for what is left over.
    pub site: Option<usize>,
}

/// A front-tier proxy: nothing in it is worked out.
pub type Edge = EdgeEntry;

impl Cluster {
    pub(crate) fn new(file: &ClusterFile) -> std::result::Result<Cluster, Problem> {
        check::sections(file)?;
        check::entries(file)?;
        let pool: usize = file.nodes.iter().map(|entry| entry.count).sum();
        let sites = sites(file, pool);
        let nodes = nodes(file, &sites, pool)?;
        check::processes(file, &nodes)?;
        Ok(Cluster {
            name: file.cluster.name.clone(),
            run_dir: file.cluster.run_dir.clone().unwrap_or_else(|| default_run_dir(&file.cluster.name)),
            fabric: file.cluster.fabric,
            secret: secret(&file.cluster),
            verbs: file.verbs.clone(),
            load: file.load.clone(),
            balance: file.balance.clone(),
            admission: file.admission.clone(),
            reconfig: file.reconfig.clone(),
            limits: file.limits.clone(),
            ganglia: file.ganglia.clone(),
            sites,
            nodes: nodes.into_iter().map(|(node, _)| node).collect(),
            edges: file.edges.clone(),
            workload: file.workload.clone(),
        })
    }
}

impl Cluster {
    /// Whether requests may be turned away as overload: by a target of some site, or by A's rule.
    pub fn has_admission(&self) -> bool {
        match self.admission.rule {
            AdmissionRule::Target => self.sites.iter().any(|site| site.target.is_some()),
            AdmissionRule::Paper => true,
            AdmissionRule::None => false,
        }
    }
}

impl ClusterFile {
    /// What the file means.
    ///
    /// # Errors
    /// Where a program made or changed it and a value is not usable; names the key. What [`ClusterFile::parse`] returned
    /// is checked already.
    pub fn cluster(&self) -> Result<Cluster> {
        Cluster::new(self).map_err(|problem| Error::Check {
            place: Place::Key(problem.at.to_string()),
            found: problem.found,
            expected: problem.expected,
        })
    }
}

/// Where a cluster of this name keeps its files unless its file says otherwise: in memory where /dev/shm is, apart for
/// each user, else under the directory for temporary files.
pub fn default_run_dir(name: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    base.join(format!("sidelong-{}", rustix::process::getuid().as_raw())).join(name)
}

/// The one that is given; the checks see to it that there are not two.
fn secret(identity: &Identity) -> Option<Secret> {
    let file = identity.secret_file.clone().map(Secret::File);
    identity.secret.clone().map(Secret::Text).or(file)
}

/// The sites with the nodes that they start with, which over-provisioning raises to what reconfiguration could give
/// each at most (R 4.3.1: 6 of 8 nodes, "leaving 1 node for each of the other web-sites").
fn sites(file: &ClusterFile, pool: usize) -> Vec<Site> {
    let floors: usize = file.sites.iter().map(|site| site.floor).sum();
    let site = |entry: &SiteEntry| {
        let ceiling = entry.ceiling.unwrap_or(usize::MAX);
        let nodes = match file.reconfig.configuration {
            Configuration::OverProvisioned => (pool - (floors - entry.floor)).min(ceiling),
            Configuration::Reconfigured | Configuration::Rigid => entry.nodes,
        };
        Site {
            name: entry.name.clone(),
            hosts: entry.hosts.clone(),
            nodes,
            floor: entry.floor,
            ceiling: ceiling.min(pool),
            priority: entry.priority,
            // The checks see to it that there are not two.
            target: entry.response_p99.map(Target::ResponseP99).or(entry.queue_max.map(Target::QueueMax)),
            share: entry.share,
            alpha: entry.alpha,
            rates: entry.rates.clone(),
        }
    };
    file.sites.iter().map(site).collect()
}

/// The nodes, each with the entry that it came from, and dealt out to the sites in their order. Where the sites have
/// more than the pool the last entry is copied on.
fn nodes(
    file: &ClusterFile,
    sites: &[Site],
    pool: usize,
) -> std::result::Result<Vec<(Node, usize)>, Problem> {
    let wanted: usize = sites.iter().map(|site| site.nodes).sum();
    let copies = wanted.saturating_sub(pool);
    check::pool(file, pool + copies, copies)?;

    let last = file.nodes.len() - 1;
    let counts =
        file.nodes.iter().enumerate().map(|(i, entry)| entry.count + if i == last { copies } else { 0 });
    let mut owners = sites.iter().enumerate().flat_map(|(i, site)| std::iter::repeat_n(i, site.nodes));
    let mut nodes = Vec::with_capacity(pool + copies);
    for (i, (entry, count)) in file.nodes.iter().zip(counts).enumerate() {
        for k in 0..count {
            nodes.push((node(entry, i, k, owners.next())?, i));
        }
    }
    Ok(nodes)
}

/// The `k`-th node of `entry`, counting from 0, which is the file's `i`-th.
fn node(entry: &NodeEntry, i: usize, k: usize, site: Option<usize>) -> std::result::Result<Node, Problem> {
    let at = At::entry("node", i);
    let name =
        if k == 0 && entry.count == 1 { entry.name.clone() } else { format!("{}{}", entry.name, k + 1) };
    let fabric_listen = match entry.fabric_listen {
        Some(address) if address.port() != 0 => check::port_after(at.key("fabric_listen"), address, k)?,
        Some(any_port) => any_port,
        None => SocketAddr::new(entry.listen.ip(), 0),
    };
    Ok(Node {
        name,
        listen: check::port_after(at.key("listen"), entry.listen, k)?,
        fabric_listen,
        admin: entry.admin.map(|address| check::port_after(at.key("admin"), address, k)).transpose()?,
        workers: entry.workers,
        service: entry.service,
        service_time: entry.service_time,
        queue_depth_max: entry.queue_depth_max,
        root: entry.root.clone(),
        cpu_share: entry.cpu_share,
        cpus: entry.cpus.or(entry.cpu_share),
        net_mbit: entry.net_mbit,
        cgroup: entry.cgroup.clone(),
        site,
    })
}
