//! The meaning of a cluster file: every node has a name and a site.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sidelong_layout::{Slots, fnv1a};
use sidelong_os::ServerAddress;
use sidelong_policy::admission::{AdmissionRule, Requests, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::index::Weights;
use sidelong_state::{Drain, Scheme};

use crate::check::{self, Problem};
use crate::error::{Error, Location, Result};
use crate::file::{ClusterFile, EdgeEntry, FrontEntry, Identity, NodeEntry, RateEntry, Ready, SiteEntry};
use crate::lines::At;
use crate::run_dir::default_run_dir;
use crate::secret::Secret;
use crate::sections::{
    Admission, Balancing, Baseline, CachePeer, Caching, Etcd, Ganglia, Limits, Load, Reconfig, Verbs,
    Workload,
};
use crate::slots::{Capacity, SlotTable, Standing};
use crate::words::{Configuration, Fabric, MovedBy, Service};

/// For a command that takes too long to be killed with its process group.
const KILL_MAX: Duration = Duration::from_secs(4);
/// Time for a node's process to notice that it changes sites.
const NOTICE_MAX: Duration = Duration::from_secs(5);

/// A checked cluster. All processes that read the same file and have the same [`SlotTable`] get the same one.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// The file, with the run directory that it means.
    pub file: Arc<ClusterFile>,
    /// Epoch of the roster that has that file; 0 if no part has adopted it yet.
    pub epoch: u64,
    /// What parts must have alike of a cluster that has begun: a hash of the names of its sites, nodes, movers and caches in the order of
    /// the first file.
    pub founding: u64,
    /// Who is not there, or not for long.
    pub standing: Standing,
    /// Its name.
    pub name: String,
    /// The directory of its regions, keys and process files.
    pub run_dir: PathBuf,
    /// How its processes reach each other's memory.
    pub fabric: Fabric,
    /// The secret that its processes share, if they are on several machines.
    pub secret: Option<Secret>,
    /// Where its file is kept, if they are on several machines and it can change while they run.
    pub etcd: Option<Etcd>,
    /// The RDMA device that they use, if any.
    pub verbs: Verbs,
    /// How load gets from the nodes to the edges.
    pub load: Load,
    /// Which node of its site gets a request.
    pub balance: Balancing,
    /// Which requests the edges admit.
    pub admission: Admission,
    /// When nodes move between sites, and how.
    pub reconfig: Reconfig,
    /// What the papers compare their designs with. Its scheme, balance and rule of admission stand in their tables above, too.
    pub baseline: Baseline,
    /// The limits of an edge.
    pub limits: Limits,
    /// The Ganglia monitor that gets the nodes' figures.
    pub ganglia: Ganglia,
    /// What the caches have alike, and each in the order of the file.
    pub cache: Caching,
    /// The caches that memcached's clients use, by slot.
    pub caches: Slots<CachePeer>,
    /// By slot, at least one.
    pub sites: Slots<Site>,
    /// By slot, at least one, at most [`sidelong_layout::NODES_MAX`].
    pub nodes: Slots<Node>,
    /// In the order of the file.
    pub edges: Vec<Edge>,
    /// The edges and the fronts of other proxies, by slot. At least one.
    pub fronts: Slots<Front>,
    /// How many slots there are. Memory that parts read of each other has room for so many.
    pub capacity: Capacity,
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
    /// The address that programs connect to, if a front sends their connections to nodes.
    pub connect: Option<SocketAddr>,
    /// Nodes at the start.
    pub nodes: usize,
    /// Nodes that it always keeps, at least 1.
    pub floor: usize,
    /// Nodes that it has at most: the file's limit, or the whole pool.
    pub ceiling: usize,
    /// Of two sites that want a node, the one with the higher priority gets it.
    pub priority: u8,
    /// The target of the requests that are admitted, if any.
    pub target: Option<Target>,
    /// Requests that are rejected last.
    pub rejected_last: Vec<Requests>,
    /// The requests of a client that was admitted within this time are, too.
    pub visit: Option<Duration>,
    /// The part of the pool, 0 to 1, that no other site can take from it.
    pub share: f64,
    /// The command that a node runs before it serves the site: a program and its arguments. Empty for none.
    pub on_enter: Vec<String>,
    /// The command that a node runs after it has left the site. Empty for none.
    pub on_leave: Vec<String>,
    /// What becomes of its requests that outlast a drain.
    pub drain: Drain,
    /// The Zipf exponent of its requests, if it is not the workload's.
    pub alpha: Option<f64>,
    /// The rate of its requests over time, in an open loop with rates by site.
    pub rates: Vec<RateEntry>,
}

/// A server of the pool.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name, which no other node or edge has.
    pub name: String,
    /// Where its server answers HTTP: at one address for all sites, as the built-in origin does at a TCP port, or at one for each
    /// slot of a site. All are on one machine.
    pub addresses: Vec<ServerAddress>,
    /// Whether that server is foreign: one that is not Sidelong's, which others start and which knows nothing of the node.
    /// Otherwise it is the built-in origin, in the node's own process.
    pub is_foreign: bool,
    /// Where it serves its regions over tcp or verbs, port 0 for any free one. With a secret: its control endpoint.
    pub fabric_listen: SocketAddr,
    /// Its admin endpoint.
    pub admin: Option<SocketAddr>,
    /// Requests that its server serves at once, if known. Of the built-in origin it is.
    pub workers: Option<u16>,
    /// How long a worker holds each; none for a foreign server.
    pub service: Service,
    /// The fixed time or the mean, unless `service` is none.
    pub service_time: Duration,
    /// How many times as long requests take in truth.
    pub slowdown: f64,
    /// Requests that wait for a worker; 503 beyond it.
    pub queue_depth_max: u32,
    /// The directory of the files that its origin serves.
    pub root: Option<PathBuf>,
    /// CPUs that it may use, by a control group that `up` makes.
    pub cpu_share: Option<f64>,
    /// CPUs that it has. None: as many as the edge's machine.
    pub cpus: Option<f64>,
    /// Mbit/s that its network carries, if known.
    pub net_mbit: Option<f64>,
    /// Whether connections to its foreign server from elsewhere than the edges do not keep it from moving.
    pub is_exclusive: bool,
    /// Whether its foreign server speaks HTTP/2 in clear text, by prior knowledge.
    pub http2: bool,
    /// What its foreign server must answer after a move's commands, if anything.
    pub ready: Option<Ready>,
    /// The processes whose load is the node's, if the file names them.
    pub group: Option<Group>,
    /// The slot of the site that it serves at the start. None for nodes left over.
    pub site: Option<usize>,
}

impl Node {
    /// Where its server answers HTTP for the site with that slot.
    pub fn address(&self, site: usize) -> &ServerAddress {
        self.addresses.get(site).unwrap_or(&self.addresses[0])
    }

    /// The TCP port at which its server answers for all sites; `None` if it is at Unix sockets, or has addresses for each site.
    pub fn port(&self) -> Option<SocketAddr> {
        match &self.addresses[..] {
            [one] => one.tcp(),
            _ => None,
        }
    }

    /// Its server's host; `None` if it is at Unix sockets alone, on the machine of all parts.
    pub fn host(&self) -> Option<IpAddr> {
        self.addresses.iter().find_map(|address| Some(address.tcp()?.ip()))
    }
}

/// How the file names the processes whose load is a node's: a control group, or what leads to one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// `cgroup`: its directory.
    Directory(PathBuf),
    /// `unit`: a systemd unit.
    Unit(String),
    /// `pid_file`: a file with the ID of a process in it.
    PidFile(PathBuf),
}

/// An edge as the file has it.
pub type Edge = EdgeEntry;

/// What sends requests to nodes and moves them: an edge, or the front of a proxy of another make.
#[derive(Clone, PartialEq, Debug)]
pub struct Front {
    /// Its name, which no other part has.
    pub name: String,
    /// Where others reach its regions over tcp or verbs; with a secret, its control endpoint.
    pub fabric_listen: Option<SocketAddr>,
    /// An address of its machine.
    pub host: IpAddr,
    /// Its admin endpoint.
    pub admin: Option<SocketAddr>,
    /// The proxy that it controls; `None` for an edge.
    pub controls: Option<FrontEntry>,
}

impl Cluster {
    /// Where the server of each node answers by TCP, at one address or at one for each site, and the longest wait for a connection to it.
    pub fn tcp_servers(&self) -> (Slots<Vec<Option<SocketAddr>>>, Duration) {
        let places = |node: &Node| node.addresses.iter().map(ServerAddress::tcp).collect();
        (self.nodes.map(places), self.limits.connect_timeout)
    }

    /// Whether it has caches, and neither sites nor nodes nor edges.
    pub fn has_only_caches(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a file means, where names keep the slots that `last` gives them. Slots that nobody has any more are given to others
    /// if `reuse` allows it.
    pub(crate) fn new(
        file: &ClusterFile,
        last: &SlotTable,
        reuse: bool,
    ) -> std::result::Result<Cluster, Problem> {
        check::sections(file)?;
        if !file.has_only_caches() && !file.is_short() {
            check::entries(file)?;
        }
        let pool: usize = file.nodes.iter().map(|entry| entry.count).sum();
        let sites = sites(file, pool);
        let nodes = nodes(file, &sites, pool)?;
        check::processes(file, &nodes)?;
        let sites = last.sites.seat(sites, |site| &site.name, reuse);
        let nodes = nodes.into_iter().map(|(node, _)| in_slots(node, file, &sites)).collect();
        let nodes = last.nodes.seat(nodes, |node| &node.name, reuse);
        let fronts = last.fronts.seat(fronts(file), |front| &front.name, reuse);
        let caches = last.caches.seat(file.cache.peers.clone(), |peer| &peer.name, reuse);
        let capacity = last.capacity.unwrap_or_else(|| {
            let room = Capacity::of(sites.len(), nodes.len(), fronts.len(), caches.len());
            match file.baseline.by {
                MovedBy::Edge => room,
                // Nodes take locks, too, and are numbered after the fronts.
                MovedBy::Server => {
                    Capacity { sites: sites.len(), nodes: nodes.len(), fronts: fronts.len(), ..room }
                }
            }
        });
        let name = file.cluster.name.clone();
        let run_dir = file.cluster.run_dir.clone().unwrap_or_else(|| default_run_dir(&name));
        let mut meant = file.clone();
        meant.cluster.run_dir = Some(run_dir.clone());
        Ok(Cluster {
            file: Arc::new(meant),
            epoch: 0,
            founding: last.founding.unwrap_or_else(|| founding(&sites, &nodes, &fronts, &caches)),
            standing: Standing::default(),
            name,
            run_dir,
            fabric: file.cluster.fabric,
            secret: secret(&file.cluster),
            etcd: file.etcd.clone(),
            verbs: file.verbs.clone(),
            load: Load { scheme: file.scheme(), ..file.load.clone() },
            balance: Balancing { weights: weights(file), policy: file.balance_policy() },
            admission: Admission { rule: file.admission_rule(), ..file.admission.clone() },
            reconfig: file.reconfig.clone(),
            baseline: file.baseline.clone(),
            limits: file.limits.clone(),
            ganglia: file.ganglia.clone(),
            cache: file.cache.clone(),
            caches,
            sites,
            nodes,
            edges: file.edges.clone(),
            fronts,
            capacity,
            workload: file.workload.clone(),
        })
    }
}

impl Cluster {
    /// Whether its parts share the memory of one machine: caches may join and leave while they run.
    pub fn is_of_one_machine(&self) -> bool {
        self.secret.is_none() && matches!(self.fabric, Fabric::Auto | Fabric::Shm)
    }

    /// Whether its parts share a roster, by which the cluster can change while it runs: they are on one machine, or etcd has it.
    pub fn has_roster(&self) -> bool {
        self.is_of_one_machine() || self.etcd.is_some()
    }

    /// Whether nodes may join and leave while its parts run: these share a roster; they read load by themselves, and no node takes locks or keeps what edges look up by the names of all nodes.
    pub fn is_open(&self) -> bool {
        let is_read = self.load.scheme.is_one_sided() || self.load.scheme == Scheme::Auto;
        self.has_roster() && is_read && self.baseline.by == MovedBy::Edge && !self.cache.documents
    }

    /// Whether requests may be rejected for overload: by the target of a site, or by the rule `paper`.
    pub fn has_admission(&self) -> bool {
        match self.admission.rule {
            AdmissionRule::Target => self.sites.values().any(|site| site.target.is_some()),
            AdmissionRule::Paper => true,
            AdmissionRule::None => false,
        }
    }

    /// The node that has the board, where parts do not share memory; `None` if it has left.
    pub fn board_holder(&self) -> Option<&Node> {
        match &self.standing.board.node {
            Some(name) => self.nodes.values().find(|node| node.name == *name),
            None => self.nodes.values().next(),
        }
    }

    /// Whether a change of sites takes a step on the node: a command of a site, or a server that must be ready. Movers then
    /// wait for the node between the old site and the new one.
    pub fn has_commands(&self) -> bool {
        let runs = |site: &Site| !site.on_enter.is_empty() || !site.on_leave.is_empty();
        self.sites.values().any(runs) || self.nodes.values().any(|node| node.ready.is_some())
    }

    /// The longest time that a node may take to change from one site to another: to leave the old site, to enter the new one
    /// and be ready, and, if that fails, to leave the new site, to enter the old one and be ready again. Or, if it is not known
    /// what runs there, to leave all other sites and enter the new one.
    pub fn change_max(&self) -> Duration {
        let leaves = self.sites.values().filter(|site| !site.on_leave.is_empty()).count();
        let enters = usize::from(self.sites.values().any(|site| !site.on_enter.is_empty()));
        let commands = (2 * (leaves.min(1) + enters)).max(leaves + enters) as u32;
        let readies = self.nodes.values().filter_map(|node| node.ready.as_ref());
        let ready = readies.map(|ready| ready.timeout).max().unwrap_or_default();
        commands * (self.reconfig.command_max + KILL_MAX) + 2 * ready + NOTICE_MAX
    }
}

impl ClusterFile {
    /// Whether it has no part of a cluster, but says where etcd has its file.
    pub fn is_short(&self) -> bool {
        let is_empty = self.sites.is_empty() && self.nodes.is_empty() && self.cache.peers.is_empty();
        is_empty && self.edges.is_empty() && self.fronts.is_empty() && self.etcd.is_some()
    }

    /// Whether it has caches, and neither sites nor nodes nor edges.
    pub(crate) fn has_only_caches(&self) -> bool {
        let is_empty = self.sites.is_empty() && self.nodes.is_empty();
        is_empty && self.edges.is_empty() && self.fronts.is_empty() && !self.cache.peers.is_empty()
    }

    /// How load is collected.
    pub fn scheme(&self) -> Scheme {
        self.baseline.scheme.unwrap_or(self.load.scheme)
    }

    /// Has load collected by `scheme`, whichever table it stands in.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        let is_baseline = !scheme.is_one_sided() && scheme != Scheme::Auto;
        self.baseline.scheme = is_baseline.then_some(scheme);
        self.load.scheme = if is_baseline { Scheme::Auto } else { scheme };
    }

    /// Which node of its site gets a request.
    pub fn balance_policy(&self) -> Balance {
        self.baseline.balance.unwrap_or(self.balance.policy)
    }

    /// Has `policy` choose the node of a request, whichever table it stands in.
    pub fn set_balance(&mut self, policy: Balance) {
        let is_baseline = policy == Balance::LastLook;
        self.baseline.balance = is_baseline.then_some(policy);
        self.balance.policy = if is_baseline { Balance::default() } else { policy };
    }

    /// Has requests rejected by `rule`, whichever table it stands in. `threshold` is that of the published rule.
    pub fn set_admission(&mut self, rule: AdmissionRule, threshold: f64) {
        let is_baseline = rule == AdmissionRule::Paper;
        self.baseline.threshold = is_baseline.then_some(threshold);
        self.admission.rule = if is_baseline { AdmissionRule::default() } else { rule };
    }

    fn admission_rule(&self) -> AdmissionRule {
        self.baseline.threshold.map_or(self.admission.rule, |_| AdmissionRule::Paper)
    }

    /// What the file means.
    ///
    /// # Errors
    /// If a program made or changed the file and a value is not usable; names the key. What [`ClusterFile::parse`] returns
    /// is checked already.
    pub fn cluster(&self) -> Result<Cluster> {
        self.cluster_after(&SlotTable::default(), false)
    }

    /// What the file means in a cluster that runs, or ran: names keep the slots that `last` gives them. Slots that nobody has any
    /// more are given to others if `reuse` allows it.
    ///
    /// # Errors
    /// As [`ClusterFile::cluster`].
    pub fn cluster_after(&self, last: &SlotTable, reuse: bool) -> Result<Cluster> {
        Cluster::new(self, last, reuse).map_err(|problem| Error::Check {
            place: Location::Key(problem.at.to_string()),
            found: problem.found,
            expected: problem.expected,
        })
    }
}

/// Where the file leaves them out, what only the kernel sees counts by the scheme whose records have it (Vaidyanathan
/// et al. 2006, 5.2.1).
fn weights(file: &ClusterFile) -> Weights {
    let weights = file.balance.weights;
    if file.scheme() == Scheme::ERdmaSync { weights.or(Weights::EXTENDED) } else { weights }
}

/// The one that is given; the checks exclude two.
fn secret(identity: &Identity) -> Option<Secret> {
    let file = identity.secret_file.clone().map(Secret::File);
    identity.secret.clone().map(Secret::Text).or(file)
}

/// The sites with the nodes that they start with, which over-provisioning raises to what reconfiguration could give
/// each at most (Balaji et al. 2004, 4.3.1: 6 of 8 nodes, "leaving 1 node for each of the other web-sites").
fn sites(file: &ClusterFile, pool: usize) -> Vec<Site> {
    let floors: usize = file.sites.iter().map(|site| site.floor).sum();
    let site = |entry: &SiteEntry| {
        let ceiling = entry.ceiling.unwrap_or(usize::MAX);
        let nodes = match file.baseline.configuration {
            Configuration::OverProvisioned => (pool - (floors - entry.floor)).min(ceiling),
            Configuration::Reconfigured | Configuration::Rigid => entry.nodes,
        };
        Site {
            name: entry.name.clone(),
            hosts: entry.hosts.clone(),
            connect: entry.connect,
            nodes,
            floor: entry.floor,
            ceiling: ceiling.min(pool),
            priority: entry.priority,
            // The checks exclude two.
            target: entry.response_p99.map(Target::ResponseP99).or(entry.queue_max.map(Target::Queue)),
            // The checks exclude what names none.
            rejected_last: entry.rejected_last.iter().filter_map(|text| text.parse().ok()).collect(),
            visit: entry.visit,
            share: entry.share,
            on_enter: entry.on_enter.clone().unwrap_or_default(),
            on_leave: entry.on_leave.clone().unwrap_or_default(),
            drain: entry.drain,
            alpha: entry.alpha,
            rates: entry.rates.clone(),
        }
    };
    file.sites.iter().map(site).collect()
}

/// The edges, then the fronts of other proxies.
fn fronts(file: &ClusterFile) -> Vec<Front> {
    let edge = |entry: &EdgeEntry| Front {
        name: entry.name.clone(),
        fabric_listen: entry.fabric_listen,
        host: entry.listen.ip(),
        admin: entry.admin,
        controls: None,
    };
    let front = |entry: &FrontEntry| Front {
        name: entry.name.clone(),
        fabric_listen: entry.fabric_listen,
        host: entry.fabric_listen.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip()),
        admin: entry.admin,
        controls: Some(entry.clone()),
    };
    file.edges.iter().map(edge).chain(file.fronts.iter().map(front)).collect()
}

/// The nodes, dealt out to the sites in order, each with the index of its entry. If the sites have more nodes than the
/// pool, the last entry is copied.
fn nodes(
    file: &ClusterFile,
    sites: &[Site],
    pool: usize,
) -> std::result::Result<Vec<(Node, usize)>, Problem> {
    if file.has_only_caches() || file.is_short() {
        return Ok(Vec::new());
    }
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
            nodes.push((node(entry, i, k, &file.sites, owners.next())?, i));
        }
    }
    Ok(nodes)
}

/// The `k`-th node of `entry`, counting from 0, which is the file's `i`-th.
fn node(
    entry: &NodeEntry,
    i: usize,
    k: usize,
    sites: &[SiteEntry],
    site: Option<usize>,
) -> std::result::Result<Node, Problem> {
    let at = At::entry("node", i);
    let name =
        if k == 0 && entry.count == 1 { entry.name.clone() } else { format!("{}{}", entry.name, k + 1) };
    let (key, first) = check::server(at, entry, sites)?;
    let address = |first: &ServerAddress| {
        Ok(match first {
            ServerAddress::Tcp(first) => check::port_after(at.key(key), *first, k)?.into(),
            // The checks exclude several.
            ServerAddress::Unix(_) => first.clone(),
        })
    };
    let host =
        first.iter().find_map(|address| Some(address.tcp()?.ip())).unwrap_or(Ipv4Addr::LOCALHOST.into());
    let fabric_listen = match entry.fabric_listen {
        Some(address) if address.port() != 0 => check::port_after(at.key("fabric_listen"), address, k)?,
        Some(any_port) => any_port,
        None => SocketAddr::new(host, 0),
    };
    Ok(Node {
        name,
        addresses: first.iter().map(address).collect::<std::result::Result<_, Problem>>()?,
        is_foreign: entry.is_foreign(),
        fabric_listen,
        admin: entry.admin.map(|address| check::port_after(at.key("admin"), address, k)).transpose()?,
        workers: entry.workers(),
        service: entry.service(),
        service_time: entry.service_time(),
        slowdown: entry.slowdown.unwrap_or(1.0),
        queue_depth_max: entry.queue_depth_max(),
        root: entry.root.clone(),
        cpu_share: entry.cpu_share,
        cpus: entry.cpus.or(entry.cpu_share),
        net_mbit: entry.net_mbit,
        is_exclusive: entry.exclusive.unwrap_or(host.to_canonical().is_loopback()),
        http2: entry.http2,
        ready: entry.ready.clone(),
        group: group(entry),
        site,
    })
}

/// See [`Cluster::founding`].
fn founding(
    sites: &Slots<Site>,
    nodes: &Slots<Node>,
    fronts: &Slots<Front>,
    caches: &Slots<CachePeer>,
) -> u64 {
    let mut text = String::new();
    let sites: Vec<_> = sites.values().map(|site| &site.name).collect();
    let nodes: Vec<_> = nodes.values().map(|node| (&node.name, node.is_foreign)).collect();
    let fronts: Vec<_> = fronts.values().map(|front| &front.name).collect();
    let _ = write!(text, "{sites:?} {nodes:?} {fronts:?}");
    if !caches.is_empty() {
        // What is where in their memory follows from its size.
        let caches: Vec<_> = caches.values().map(|cache| (&cache.name, cache.memory_mb)).collect();
        let _ = write!(text, " {caches:?}");
    }
    fnv1a(text.as_bytes())
}

/// A node as of [`nodes`], where sites stand in their slots. No request of a vacant one comes, so that any address will do there.
fn in_slots(mut node: Node, file: &ClusterFile, sites: &Slots<Site>) -> Node {
    let place = |site: usize| {
        let name = &sites.get(site)?.name;
        file.sites.iter().position(|entry| entry.name == *name)
    };
    if node.addresses.len() > 1 {
        let slots = (0..sites.len()).map(|site| node.address(place(site).unwrap_or(0)).clone());
        node.addresses = slots.collect();
    }
    let home = node.site.and_then(|site| sites.position(|known| known.name == file.sites[site].name));
    Node { site: home, ..node }
}

/// The one that is given; the checks exclude two.
fn group(entry: &NodeEntry) -> Option<Group> {
    let unit = || entry.unit.clone().map(Group::Unit);
    let process = || entry.pid_file.clone().map(Group::PidFile);
    entry.cgroup.clone().map(Group::Directory).or_else(unit).or_else(process)
}
