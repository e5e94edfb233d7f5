//! What a cluster file means to the crates: each setting in the type of whoever uses it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidelong_config::{
    self as config, AdmissionRule, BalancePolicy, Cluster, ClusterFile, Configuration, MovedBy, Service,
};
use sidelong_edge::{
    About, Admission, Decider, DoorLimits, GangliaSettings, Limits, NodeAddress, ReadLoads, Settings,
    SiteHosts, Tls, View,
};
use sidelong_fabric::RunDirectory;
use sidelong_layout::{BoardMap, EdgeId, NodeId, SiteId};
use sidelong_load::{self as load, OneSided, Scheme, Sockets, Source, Status};
use sidelong_policy::admission::{self, Promise, Rule, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::health;
use sidelong_policy::index::{Capacity, Weights};
use sidelong_policy::reconfigure::{self, Reconfigurer, SiteView};
use sidelong_reconfig::{BoardInit, Links, Mover, Protocol, board_map, load_region};
use sidelong_state::{Pool, Timing};

use crate::cli::PartArgs;
use crate::fabric::Fabric;
use crate::failure::Failure;
use crate::looks::LookCounts;

/// A margin of a lease that its holder does not use: what a clock may be off by within one lease, and then some.
const LEASE_MARGIN: u32 = 10;
/// Two lives of one process begin at least this far apart: it is less than it takes to start one. A lock word holds 12
/// bits of a life, which so repeat after four minutes, long after the lease of the earlier one.
const LIFE_MS_MIN: u64 = 64;
/// How often a mover asks a draining node whether it is done, where looks are rarer than that.
const ACK_POLL_MAX: Duration = Duration::from_millis(1);

/// What the cluster file at `path` means, with another fabric where one is asked for.
pub(crate) fn cluster(path: &Path, fabric: Option<config::Fabric>) -> Result<Cluster, Failure> {
    let mut file = ClusterFile::load(path)?;
    file.cluster.fabric = fabric.unwrap_or(file.cluster.fabric);
    Ok(file.cluster()?)
}

/// As many open files as this process may have. A link over tcp is a socket, and so is each connection of a client: by
/// default a process begins with 1,024, which a cluster of some 300 nodes is beyond.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// One process's view of its cluster.
pub(crate) struct Parts {
    pub(crate) cluster: Cluster,
    pub(crate) run: RunDirectory,
    pub(crate) fabric: Fabric,
    /// When this process began, in ms since 1970: which life of its name this is.
    pub(crate) began_ms: u64,
}

impl Parts {
    pub(crate) fn load(args: &PartArgs) -> Result<Self, Failure> {
        Parts::new(read(args)?)
    }

    pub(crate) fn new(cluster: Cluster) -> Result<Self, Failure> {
        Parts::begun_at(began_ms(), cluster)
    }

    /// Of a process that began then.
    pub(crate) fn begun_at(began_ms: u64, cluster: Cluster) -> Result<Self, Failure> {
        raise_file_limit();
        let run = RunDirectory::open(&cluster.run_dir)?;
        let fabric = Fabric::new(&cluster, &run)?;
        Ok(Parts { cluster, run, fabric, began_ms })
    }

    pub(crate) fn node_names(&self) -> Vec<String> {
        self.cluster.nodes.iter().map(|node| node.name.clone()).collect()
    }

    pub(crate) fn node_name(&self, node: NodeId) -> String {
        self.cluster.nodes[node.index()].name.clone()
    }

    pub(crate) fn site_name(&self, site: SiteId) -> String {
        self.cluster.sites[site.index()].name.clone()
    }

    /// The scheme that load is read by, and why, as far as it is the reader's to say: who keeps a node's record, a thread
    /// or the kernel, is that node's affair, and shows in what it offers.
    pub(crate) fn scheme(&self) -> Result<load::Choice, Failure> {
        let mut nodes = (0..self.cluster.nodes.len()).map(|node| self.kernel_scope(node, None));
        let shared = nodes.find_map(Result::err);
        let (mut choice, _) = Scheme::resolve(self.cluster.load.scheme.as_str(), || match &shared {
            // Asked for by name it is the node that refuses.
            Some(shared) if self.cluster.load.scheme == config::Scheme::Auto => Err(shared.clone()),
            _ => Ok(()),
        })?;
        if self.cluster.load.scheme == config::Scheme::Auto && shared.is_none() {
            choice.reason =
                "each node has its kernel keep the record where that does; else it is rdma-async".into();
        }
        Ok(choice)
    }

    pub(crate) fn scheme_note(&self) -> Result<String, Failure> {
        let load::Choice { scheme, reason } = self.scheme()?;
        Ok(format!("load by {scheme}, because {reason}"))
    }

    /// Whether some node could be told from others of its machine by a control group alone, and has none.
    pub(crate) fn shares_machine(&self) -> bool {
        (0..self.cluster.nodes.len()).any(|node| self.kernel_scope(node, None).is_err())
    }

    /// See [`kernel_scope`].
    pub(crate) fn kernel_scope(&self, node: usize, joined: Option<&Path>) -> Result<load::Scope, String> {
        kernel_scope(&self.cluster, node, joined)
    }

    /// What a process tells of itself that does not change; `load::Choice` is its own.
    pub(crate) fn about(&self, load::Choice { scheme, reason }: load::Choice) -> Vec<About> {
        let fabric = self.fabric.name();
        vec![
            About {
                name: "build",
                help: "The program",
                labels: vec![
                    ("version", env!("CARGO_PKG_VERSION").to_owned()),
                    ("verbs", cfg!(feature = "verbs").to_string()),
                ],
            },
            About {
                name: "load_scheme",
                help: "How load gets from the nodes to the edges, and why so",
                labels: vec![("scheme", scheme.to_string()), ("reason", reason)],
            },
            About {
                name: "fabric",
                help: "How memory of other processes is reached",
                labels: vec![("fabric", fabric.to_owned())],
            },
        ]
    }

    /// Whom the edge of that name tells of the nodes, besides its own metrics.
    pub(crate) fn ganglia_settings(&self, edge: &str) -> Option<GangliaSettings> {
        let ganglia = &self.cluster.ganglia;
        let is_it = ganglia.edge.as_ref().is_none_or(|name| name == edge);
        Some(GangliaSettings {
            gmond: ganglia.gmond.filter(|_| is_it)?,
            period: ganglia.period,
            metadata: ganglia.metadata,
            group: ganglia.group.clone(),
            prefix: ganglia.prefix.clone(),
        })
    }

    /// Where the load of all nodes is read.
    pub(crate) fn source(&self) -> Result<Box<dyn Source + Send>, Failure> {
        self.source_within(load::Limits {
            stale: self.cluster.load.stale,
            same_clock: self.fabric.is_of_one_machine(),
            ..load::Limits::default()
        })
    }

    /// The same with limits of the caller's.
    pub(crate) fn source_within(&self, limits: load::Limits) -> Result<Box<dyn Source + Send>, Failure> {
        let names = self.node_names();
        Ok(if self.scheme()?.scheme.is_one_sided() {
            let regions: Vec<_> = names.iter().map(|name| load_region(name)).collect();
            let source = OneSided::new(self.fabric.directory(), self.fabric.initiator()?, regions, limits);
            Box::new(source.expecting_kernel(self.scheme()?.scheme.is_kept_by_kernel()))
        } else {
            Box::new(Sockets::new(self.fabric.responders(), names, limits)?)
        })
    }

    /// Reads it for an edge, and says in `counts` what that took.
    pub(crate) fn loads(&self, counts: Arc<LookCounts>) -> Result<ReadLoads, Failure> {
        let mut source = self.source()?;
        Ok(Box::new(move |now, readings| {
            source.refresh(now.as_ns(), readings);
            counts.show(source.swept().unwrap_or_default());
            let rejected =
                |reading: &&mut load::Reading| matches!(reading.status, Status::Stale | Status::Torn);
            readings.iter_mut().filter(rejected).count() as u64
        }))
    }

    /// Edges hold locks; where servers reconfigure, nodes do, numbered after them.
    fn owners(&self) -> usize {
        let nodes = if self.cluster.reconfig.by == MovedBy::Server { self.cluster.nodes.len() } else { 0 };
        self.cluster.edges.len() + nodes
    }

    pub(crate) fn board_map(&self) -> BoardMap {
        board_map(self.cluster.sites.len(), self.owners())
    }

    pub(crate) fn board_init(&self) -> Vec<BoardInit> {
        let site = |site: &config::Site| BoardInit { floor: site.floor as u16, nodes: site.nodes as u16 };
        self.cluster.sites.iter().map(site).collect()
    }

    pub(crate) fn links(&self) -> Result<Links, Failure> {
        let (directory, initiator) = (self.fabric.directory(), self.fabric.initiator()?);
        let links = Links::new(directory, initiator, &self.node_names(), self.board_map());
        Ok(links.expecting_kernel(self.scheme()?.scheme.is_kept_by_kernel()))
    }

    /// The same for whoever only looks.
    pub(crate) fn read_only_links(&self) -> Result<Links, Failure> {
        Ok(Links::read_only(
            self.fabric.directory(),
            self.fabric.initiator()?,
            &self.node_names(),
            self.board_map(),
        ))
    }

    /// The lock owner that the `index`-th edge is, or for servers the node after all edges.
    pub(crate) fn owner(&self, edge: Option<usize>, node: Option<usize>) -> EdgeId {
        EdgeId::new(edge.unwrap_or_else(|| self.cluster.edges.len() + node.unwrap_or(0)))
    }

    pub(crate) fn mover(&self, owner: EdgeId) -> Result<Mover, Failure> {
        let settings = &self.cluster.reconfig;
        let ns = |time: Duration| time.as_nanos() as u64;
        let timing = Timing::new(
            ns(settings.lease),
            ns(settings.lease / LEASE_MARGIN),
            ns(settings.drain_max),
            ns(settings.sensitivity.min(ACK_POLL_MAX)),
        )?;
        let pool = Pool { sites: self.cluster.sites.len() as u16, nodes: self.cluster.nodes.len() as u16 };
        let protocol = match settings.protocol {
            config::Protocol::Lease => Protocol::Lease,
            config::Protocol::Paper => Protocol::Paper,
        };
        Ok(Mover::new(owner, self.began_ms / LIFE_MS_MIN, self.owners() as u16, pool, timing, protocol))
    }

    /// Who decides on moves in an edge (`node` is none) or in a node.
    pub(crate) fn decider(&self, node: Option<NodeId>) -> Result<Decider, Failure> {
        let moves = self.cluster.reconfig.configuration == Configuration::Reconfigured;
        match (node, self.cluster.reconfig.by) {
            (None, MovedBy::Edge) if moves => Ok(Decider::Edge(Box::new(self.reconfigurer(None)?))),
            (Some(node), MovedBy::Server) if moves => {
                let sites = (0..self.cluster.sites.len()).map(SiteId::new);
                let all: Result<_, _> = sites.map(|site| self.reconfigurer(Some(site))).collect();
                Ok(Decider::Node(node, all?))
            }
            _ => Ok(Decider::Nobody),
        }
    }

    fn reconfigurer(&self, only: Option<SiteId>) -> Result<Reconfigurer, Failure> {
        let settings = &self.cluster.reconfig;
        let settings = reconfigure::Settings {
            history: settings.history,
            sensitivity: settings.sensitivity,
            settle: settings.settle(),
            high: settings.high,
            low: settings.low,
            weights: self.weights(),
            only,
            ..reconfigure::Settings::default()
        };
        Ok(Reconfigurer::new(settings, self.cluster.sites.len(), self.cluster.nodes.len())?)
    }

    pub(crate) fn sites(&self) -> Vec<SiteView> {
        let site = |site: &config::Site| SiteView {
            floor: site.floor as u16,
            ceiling: site.ceiling as u16,
            priority: site.priority,
            waiting: 0,
            busy: false,
        };
        self.cluster.sites.iter().map(site).collect()
    }

    /// Who decides whom an edge lets in; `None` where that is everybody.
    pub(crate) fn admission(&self) -> Result<Option<Admission>, Failure> {
        let decided = self.admission_settings();
        let (nodes, stale) = (self.cluster.nodes.len(), self.cluster.load.stale);
        let admission = |(settings, promises)| Admission::new(settings, promises, nodes, stale);
        Ok(decided.map(admission).transpose()?)
    }

    /// By what that is decided, and what is promised to each site; `None` where everybody is let in.
    pub(crate) fn admission_settings(&self) -> Option<(admission::Settings, Vec<Promise>)> {
        if !self.cluster.has_admission() {
            return None;
        }
        let settings = &self.cluster.admission;
        let promise = |site: &config::Site| Promise {
            target: site.target.map(|target| match target {
                config::Target::ResponseP99(time) => Target::ResponseP99(time),
                config::Target::QueueMax(time) => Target::Queue(time),
            }),
            share: site.share,
        };
        let promises: Vec<_> = self.cluster.sites.iter().map(promise).collect();
        let rule = match settings.rule {
            AdmissionRule::Paper => Rule::Paper { threshold: settings.threshold },
            AdmissionRule::Target | AdmissionRule::None => Rule::Target,
        };
        let settings = admission::Settings {
            rule,
            // A verdict shows in the records of the period after it, which the look after that sees.
            lag: self.cluster.reconfig.sensitivity + 2 * self.cluster.load.period,
            rotation: settings.rotation,
            weights: self.weights(),
        };
        Some((settings, promises))
    }

    pub(crate) fn weights(&self) -> Weights {
        let weights = self.cluster.balance.weights;
        let more = match self.cluster.load.scheme {
            config::Scheme::ERdmaSync => Weights::EXTENDED,
            _ => Weights::SYSTEM,
        };
        Weights {
            cpu: weights.cpu as f32,
            memory: weights.memory as f32,
            network: weights.network as f32,
            connections: weights.connections as f32,
            run_queue: weights.run_queue.map_or(more.run_queue, |weight| weight as f32),
            interrupts: weights.interrupts.map_or(more.interrupts, |weight| weight as f32),
        }
    }

    /// What each node can do: a node of half the pool's mean service time has twice the speed.
    pub(crate) fn capacities(&self) -> Vec<Capacity> {
        let seconds = |node: &config::Node| match node.service {
            Service::None => 0.0,
            Service::Fixed | Service::Exponential | Service::Burn => node.service_time.as_secs_f32(),
        };
        let nodes = &self.cluster.nodes;
        let mean = nodes.iter().map(seconds).sum::<f32>() / nodes.len() as f32;
        let ours = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let capacity = |node: &config::Node| Capacity {
            workers: u32::from(node.workers),
            speed: if seconds(node) > 0.0 { mean / seconds(node) } else { 1.0 },
            cpus: node.cpus.unwrap_or(ours as f64) as f32,
            // 1 Mbit/s is 125,000 bytes/s.
            net_bytes_per_s: node.net_mbit.map_or(0, |mbit| (mbit * 125_000.0) as u64),
        };
        nodes.iter().map(capacity).collect()
    }

    pub(crate) fn view(&self) -> View {
        let balance = match self.cluster.balance.policy {
            BalancePolicy::Weighted => Balance::Weighted,
            BalancePolicy::RoundRobin => Balance::RoundRobin,
            BalancePolicy::LeastConnections => Balance::LeastConnections,
            BalancePolicy::PowerOfTwo => Balance::PowerOfTwo,
            BalancePolicy::LastLook => Balance::LastLook,
        };
        let (nodes, sites) = (self.cluster.nodes.len(), self.cluster.sites.len());
        View::new(nodes, sites, self.cluster.load.stale, balance, health::Settings::default())
    }

    /// The edges beside the `index`-th that tell what they have under way: all, or of those on several machines who says
    /// where.
    pub(crate) fn peers(&self, index: usize) -> Vec<String> {
        let edges = self.cluster.edges.iter().enumerate();
        let others = edges.filter(|(other, edge)| *other != index && self.shares(edge));
        others.map(|(_, edge)| edge.name.clone()).collect()
    }

    /// Whether the edge lets others read what it has under way.
    pub(crate) fn shares(&self, edge: &config::Edge) -> bool {
        self.fabric.is_of_one_machine() || edge.fabric_listen.is_some()
    }

    pub(crate) fn edge_settings(&self, edge: usize) -> Settings {
        let limits = &self.cluster.limits;
        let edge = &self.cluster.edges[edge];
        Settings {
            name: edge.name.clone(),
            listen: edge.listen,
            tls: edge
                .tls
                .as_ref()
                .map(|tls| Tls { certificate: tls.certificate.clone(), key: tls.key.clone() }),
            admin: edge.admin,
            access_log: edge.access_log.clone(),
            threads: edge.threads,
            limits: Limits {
                door: DoorLimits {
                    header_bytes_max: limits.header_bytes_max as usize,
                    header_timeout: limits.client_header_timeout,
                    body_timeout: limits.client_body_timeout,
                    response_timeout: limits.response_timeout,
                    idle_timeout: limits.idle_timeout,
                    connections_max: limits.connections_max as usize,
                },
                body_bytes_max: limits.body_bytes_max,
                connect_timeout: limits.connect_timeout,
                retries: limits.retries,
            },
            sites: self
                .cluster
                .sites
                .iter()
                .map(|site| SiteHosts { name: site.name.clone(), hosts: site.hosts.clone() })
                .collect(),
            nodes: self
                .cluster
                .nodes
                .iter()
                .map(|node| NodeAddress { name: node.name.clone(), address: node.listen })
                .collect(),
        }
    }
}

/// The cluster as a part's arguments have it.
pub(crate) fn read(args: &PartArgs) -> Result<Cluster, Failure> {
    let mut file = ClusterFile::load(&args.config)?;
    file.cluster.fabric = args.fabric.unwrap_or(file.cluster.fabric);
    Ok(file.cluster()?)
}

/// Now, in ms since 1970: which life of its name a process is that begins now.
pub(crate) fn began_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(1, |time| time.as_millis() as u64)
}

/// Whose load the kernel would keep for a node: that of its control group, which is `joined` where the node was put
/// into one, or of a machine that it has to itself.
///
/// # Errors
/// Why there is none, for after a colon.
pub(crate) fn kernel_scope(
    cluster: &Cluster,
    node: usize,
    joined: Option<&Path>,
) -> Result<load::Scope, String> {
    let nodes = &cluster.nodes;
    let own = nodes[node].listen.ip();
    let shares = |other: &config::Node| cluster.secret.is_none() || other.listen.ip() == own;
    match joined.or(nodes[node].cgroup.as_deref()) {
        Some(path) => Ok(load::Scope::Cgroup(path.to_owned())),
        None if nodes.iter().filter(|other| shares(other)).count() == 1 => Ok(load::Scope::Machine),
        None => Err(format!(
            "{} shares its machine with other nodes and has no control group (`cgroup` in the cluster file)",
            nodes[node].name
        )),
    }
}
