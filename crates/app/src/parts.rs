//! One process's view of its cluster: translates the cluster file into the settings of each crate.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sidelong_config::{self as config, Capacity, Cluster, Configuration, Forwarded, MovedBy, Service};
use sidelong_edge::{
    About, AdapterMembers, Adopted, ConfigState, DocumentSettings, EdgeSettings, Fact, Forwarding,
    GangliaSettings, Gate, Gatekeeper, Limits, Loads, NodeAddress, ReadLoads, RejectedLast, SiteHosts, Tls,
    View,
};
use sidelong_fabric::{Access, Directory as _, Host, Region, RunDirectory, shm::ShmHost};
use sidelong_layout::{
    BoardMap, EDGES_MAX, EdgeId, Instance, NodeId, RegionKind, SiteId, Slots, WORDS_BYTES,
};
use sidelong_load::{self as load, Foreign, OneSided, RecordOf, Records, Scheme, Sockets, Source};
use sidelong_os::{open_files_max, raise_open_files};
use sidelong_policy::SettingsError;
use sidelong_policy::admission::{self, Controller, Promise};
use sidelong_policy::brain::{Brain, Decider};
use sidelong_policy::cluster::SiteView;
use sidelong_policy::health;
use sidelong_policy::index;
use sidelong_policy::reconfigure::{ReconfigureSettings, Reconfigurer};
use sidelong_reconfig::{
    BoardInit, FrontMember, Links, Members, Mover, SharedMembers, board_map, expose_board, load_region,
    words_region,
};
use sidelong_state::{Holder, Pool, Timing};

use crate::fabric::Fabric;
use crate::failure::Failure;
use crate::reads::{CountedLoads, ReadCounts};
use crate::{part, regions, roster};

/// Shortest time between two starts of one process, less than a start takes. A lock word holds 12 bits of the
/// incarnation, so they repeat after four minutes, long after the lease of the earlier process.
const LIFE_MS_MIN: u64 = 64;

/// How many views were made in this process.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Raises the limit of open files to the highest allowed. Each link over tcp and each client connection is a socket, and the
/// default of 1,024 is too low for some 300 nodes.
fn raise_file_limit() {
    if let Err(error) = raise_open_files(None) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// What an edge has open besides its connections, without links over a network.
const OWN_FILES: usize = 40;

/// The files that this process may have open at once.
fn file_limit() -> usize {
    open_files_max().try_into().unwrap_or(usize::MAX)
}

/// One process's view of its cluster.
pub struct Parts {
    /// The cluster, as its file describes it.
    pub cluster: Cluster,
    /// The directory in which parts on this machine find each other.
    pub run: RunDirectory,
    /// How the memory of other parts is reached.
    pub fabric: Fabric,
    /// When this process started, in ms since 1970, which distinguishes it from earlier processes of its name.
    pub began_ms: u64,
    /// By which cluster file it goes, for its metrics.
    pub(crate) config: Arc<ConfigState>,
    /// How many there were in this process before.
    number: u64,
    /// Who is in the cluster now, while the rest of this view is of when it was made.
    pub(crate) members: Arc<SharedMembers>,
}

impl Parts {
    /// The view of a process that begins now.
    ///
    /// # Errors
    /// If the run directory or the fabric cannot be used.
    pub fn new(cluster: Cluster) -> Result<Self, Failure> {
        Parts::begun_at(began_ms(), cluster)
    }

    /// The view of a process that began at `began_ms`.
    ///
    /// # Errors
    /// If the run directory or the fabric cannot be used.
    pub(crate) fn begun_at(began_ms: u64, cluster: Cluster) -> Result<Self, Failure> {
        raise_file_limit();
        let cluster = if cluster.epoch == 0 { roster::current(cluster)? } else { cluster };
        let run = RunDirectory::open(&cluster.run_dir)?;
        let fabric = Fabric::new(&cluster, &run)?;
        let members = Arc::new(SharedMembers::from_pointee(members(&cluster)));
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Parts { cluster, run, fabric, began_ms, config: Arc::default(), number, members })
    }

    /// This process, as its regions name it.
    pub fn instance(&self) -> Instance {
        Instance { cluster: self.fabric.identity(), incarnation: self.began_ms }
    }

    /// The name of a node that is in the cluster now.
    pub fn node_name(&self, node: NodeId) -> String {
        let name = self.members.load().nodes.get(node.index()).cloned();
        name.unwrap_or_else(|| format!("node {} (which has left)", node.index()))
    }

    /// The name of a site that is in the cluster now.
    pub fn site_name(&self, site: SiteId) -> String {
        let name = self.members.load().sites.get(site.index()).cloned();
        name.unwrap_or_else(|| format!("site {} (which has left)", site.index()))
    }

    /// The scheme by which load is read, and the reason, as far as the reader can tell. Whether a thread or the kernel
    /// keeps a node's record is up to that node, and shows in its region.
    pub fn scheme(&self) -> Result<load::Choice, Failure> {
        let mut nodes = self.cluster.nodes.entries().map(|(node, _)| is_apart(&self.cluster, node));
        let shared = nodes.find_map(Result::err);
        let (mut choice, _) = load::Choice::new(self.cluster.load.scheme, || match &shared {
            // The node refuses a scheme that was requested by name.
            Some(shared) if self.cluster.load.scheme == Scheme::Auto => Err(shared.clone()),
            _ => Ok(()),
        })?;
        if self.cluster.load.scheme == Scheme::Auto && shared.is_none() {
            choice.reason = load::Reason::ChosenByNode;
        }
        Ok(choice)
    }

    pub(crate) fn scheme_note(&self) -> Result<String, Failure> {
        let load::Choice { scheme, reason } = self.scheme()?;
        Ok(format!("load by {scheme}, because {reason}"))
    }

    /// Whether the node shares its machine without a control group, which alone could separate its load.
    pub fn shares_machine(&self, node: usize) -> bool {
        is_apart(&self.cluster, node).is_err()
    }

    /// What a process tells of itself in its metrics.
    pub(crate) fn about(&self, load::Choice { scheme, reason }: load::Choice) -> About {
        let fabric = self.fabric.name();
        let facts = vec![
            Fact {
                name: "build",
                help: "The program",
                labels: vec![
                    ("version", env!("CARGO_PKG_VERSION").to_owned()),
                    ("layout", sidelong_layout::LAYOUT_VERSION.to_string()),
                ],
            },
            Fact {
                name: "load_scheme",
                help: "How load is collected, and why so",
                labels: vec![("scheme", scheme.to_string()), ("reason", reason.code().to_owned())],
            },
            Fact {
                name: "fabric",
                help: "How memory of other processes is reached",
                labels: vec![("fabric", fabric.to_owned())],
            },
        ];
        About { facts, config: Arc::clone(&self.config) }
    }

    /// The Ganglia monitor that the edge of that name reports to.
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

    /// The age limit of records, and defaults for the rest.
    fn load_limits(&self) -> load::Limits {
        let same_clock = self.fabric.is_of_one_machine();
        load::Limits { stale: self.cluster.load.stale, same_clock, ..load::Limits::default() }
    }

    /// Where the nodes' records are.
    fn records(&self) -> Slots<RecordOf> {
        let record =
            |node: &config::Node| RecordOf { region: load_region(&node.name), foreign: foreign(node) };
        self.cluster.nodes.map(record)
    }

    /// The source of load by the schemes in which nodes answer. A cluster in which they do has no vacant slot.
    fn sockets(&self, limits: load::Limits) -> Result<Sockets, Failure> {
        let names = self.cluster.nodes.values().map(|node| node.name.clone());
        Ok(Sockets::new(self.fabric.responders(), names, limits)?)
    }

    /// The source of all nodes' load, using the scanner of `links` for one-sided schemes.
    pub fn loads(&self, links: &mut Links) -> Result<Loads, Failure> {
        let (scheme, limits) = (self.scheme()?.scheme, self.load_limits());
        if !scheme.is_one_sided() {
            return Ok(Loads::Sockets(self.sockets(limits)?));
        }
        let is_kept = scheme.is_kept_by_kernel();
        Ok(Loads::Memory(Records::new(links.scanner_mut(), &self.records(), is_kept, limits)))
    }

    /// The source of all nodes' load for a thread that reads nothing else, with limits of its own.
    pub fn source_within(&self, limits: load::Limits) -> Result<Box<dyn Source + Send>, Failure> {
        let scheme = self.scheme()?.scheme;
        if !scheme.is_one_sided() {
            return Ok(Box::new(self.sockets(limits)?));
        }
        let (directory, initiator) = (self.fabric.directory(), self.fabric.initiator()?);
        let is_kept = scheme.is_kept_by_kernel();
        Ok(Box::new(OneSided::new(directory, initiator, &self.records(), is_kept, limits)))
    }

    /// Scans for an edge, and counts the reads in `counts`.
    pub(crate) fn read_loads(
        &self,
        links: &mut Links,
        counts: Arc<ReadCounts>,
    ) -> Result<Box<dyn ReadLoads>, Failure> {
        Ok(Box::new(CountedLoads { loads: self.loads(links)?, counts }))
    }

    /// The number of lock owners: the edges and fronts, then the nodes if they reconfigure.
    fn owners(&self) -> usize {
        let Capacity { fronts, nodes, .. } = self.cluster.capacity;
        if self.cluster.baseline.by == MovedBy::Server { fronts + nodes } else { fronts }
    }

    pub(crate) fn board_map(&self) -> BoardMap {
        board_map(self.cluster.capacity.sites, self.owners())
    }

    /// Exposes the board, or finds it.
    pub(crate) fn expose_board(&self, host: &Host) -> Result<Region, Failure> {
        let Cluster { epoch, standing, .. } = &self.cluster;
        let (map, init, began) = (self.board_map(), self.board_init(), (standing.board.term, *epoch));
        Ok(expose_board(host, map, &init, began, self.instance())?)
    }

    /// Whether the node of that name has the board, which is in no shared memory.
    pub(crate) fn has_board(&self, node: &str) -> bool {
        let is_given_up = self.cluster.standing.board.from.is_none();
        let has_it = self.cluster.board_holder().is_some_and(|holder| holder.name == node);
        !self.fabric.shares_memory() && is_given_up && has_it
    }

    /// Exposes the board anew, if it was lost in shared memory.
    pub(crate) fn board_anew(&self) -> regions::Exposure {
        let host = Host::Shm(ShmHost::new(self.run.path()));
        let (map, instance) = (self.board_map(), self.instance());
        // Nodes may have moved since the board was first created.
        let init: Vec<_> = self.board_init().into_iter().map(|site| BoardInit { nodes: 0, ..site }).collect();
        let run = self.run.clone();
        Box::new(move || {
            let began = (0, roster::epoch(&run).unwrap_or(0));
            expose_board(&host, map, &init, began, instance)
        })
    }

    pub(crate) fn board_init(&self) -> Vec<BoardInit> {
        // Nodes whose words are there may have moved. In memory that outlives processes the board is exposed before any words.
        let found = |node: &config::Node| {
            let (kind, len) = (RegionKind::Words, WORDS_BYTES);
            self.run.find(&words_region(&node.name), kind, len, Access::ReadOnly).is_ok()
        };
        let is_first = self.fabric.shares_memory() && !self.cluster.nodes.values().any(found);
        let site = |site: &config::Site| BoardInit {
            floor: site.floor as u16,
            nodes: if is_first { site.nodes as u16 } else { 0 },
        };
        self.cluster.sites.all().map(|entry| entry.map_or_else(BoardInit::default, site)).collect()
    }

    /// Links for a thread that moves nodes. `own` is the front that this process is.
    pub(crate) fn links(&self, own: Option<part::Front>) -> Result<Links, Failure> {
        let (directory, initiator) = (self.fabric.directory(), self.fabric.initiator()?);
        let room = (self.cluster.capacity.nodes, self.board_map());
        let mut links =
            Links::new(directory, initiator, room, &self.members.load()).patient(self.longest_for_links());
        if let Some((slot, region, predecessor)) = own {
            links = links.of_front(slot, region, predecessor);
        }
        Ok(links.expecting_kernel(self.scheme()?.scheme.is_kept_by_kernel()))
    }

    /// Links that only read.
    pub fn read_only_links(&self) -> Result<Links, Failure> {
        let (directory, initiator) = (self.fabric.directory(), self.fabric.initiator()?);
        let room = (self.cluster.capacity.nodes, self.board_map());
        Ok(Links::read_only(directory, initiator, room, &self.members.load())
            .patient(self.longest_for_links()))
    }

    /// How long a scan may wait for a link, so that it ends long before records are too old and leases lost.
    fn longest_for_links(&self) -> Duration {
        self.cluster.load.stale.min(self.cluster.reconfig.lease) / 6
    }

    /// The slot of an edge or front.
    pub(crate) fn front_slot(&self, name: &str) -> Result<usize, Failure> {
        find("edge or front", name, self.cluster.fronts.entries().map(|(slot, front)| (slot, &*front.name)))
    }

    /// The lock owner of an edge or another front by its slot, or of a node.
    pub fn owner(&self, front: Option<usize>, node: Option<usize>) -> EdgeId {
        EdgeId::new(front.unwrap_or_else(|| self.cluster.capacity.fronts + node.unwrap_or(0)))
    }

    /// The nodes and sites as movers know them.
    pub(crate) fn pool(&self) -> Pool {
        let Cluster { sites, nodes, .. } = &self.cluster;
        let floors = sites.all().map(|site| site.map_or(0, |site| self.floor(site)));
        let homes = nodes.all().map(|node| node?.site.map(SiteId::new));
        let silent = nodes.all().map(|node| node.is_some_and(|node| node.is_foreign));
        let (no_site, no_node) =
            (sites.all().map(|site| site.is_none()), nodes.all().map(|node| node.is_none()));
        Pool::new(floors, homes)
            .with_vacant(no_site, no_node)
            .with_closing(sites.all().map(|site| site.is_some_and(|site| self.closes(site))))
            .with_fronts(self.fronts())
            .with_silent(silent)
            .with_cuts(self.cuts())
            .with_changes(self.change_max().map(|time| time.as_nanos() as u64))
            .of_epoch(self.cluster.epoch)
    }

    /// The fronts that movers ask: all that have not been lost.
    fn fronts(&self) -> impl Iterator<Item = EdgeId> {
        let left = self
            .cluster
            .fronts
            .entries()
            .filter(|(_, front)| !self.cluster.standing.lost.contains(&front.name));
        left.map(|(index, _)| EdgeId::new(index))
    }

    /// By site, whether its requests that outlast a drain are cut.
    fn cuts(&self) -> impl Iterator<Item = bool> {
        self.cluster.sites.all().map(|site| site.is_some_and(|site| site.drain == config::Drain::Cut))
    }

    /// How long a node may take to run the commands of sites; `None` if no site has any.
    pub fn change_max(&self) -> Option<Duration> {
        self.cluster.has_commands().then(|| self.cluster.change_max())
    }

    /// The waits of a mover that lets a node drain for `drain_max`.
    pub(crate) fn timing(&self, drain_max: Duration) -> Result<Timing, Failure> {
        let settings = &self.cluster.reconfig;
        let ns = |time: Duration| time.as_nanos() as u64;
        Ok(Timing::live(ns(settings.lease), ns(drain_max), ns(settings.sensitivity))?)
    }

    pub(crate) fn mover(&self, owner: EdgeId) -> Result<Mover, Failure> {
        let settings = &self.cluster.reconfig;
        let life = self.began_ms / LIFE_MS_MIN;
        let timing = self.timing(settings.drain_max)?;
        let owners = self.owners() as u16;
        Ok(Mover::new(owner, life, owners, self.pool(), timing, self.cluster.baseline.protocol).several())
    }

    /// A person as a holder of locks. Two who begin at the same time are told apart by their processes, and in one process by how many
    /// there were; if not, one takes the other's lock over, as a thief would.
    pub(crate) fn person(&self) -> Holder {
        let life = self.began_ms / LIFE_MS_MIN + u64::from(std::process::id()) + self.number;
        Holder::new(EdgeId::new(EDGES_MAX - 1), life)
    }

    /// The decider on moves in an edge (`node` is `None`) or in a node.
    pub(crate) fn decider(&self, node: Option<NodeId>) -> Result<Decider, Failure> {
        let moves = self.cluster.baseline.configuration == Configuration::Reconfigured;
        match (node, self.cluster.baseline.by) {
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
        let settings = ReconfigureSettings { only, ..self.reconfigure_settings() };
        Ok(Reconfigurer::new(settings, self.cluster.sites.len(), self.cluster.nodes.len())?)
    }

    fn reconfigure_settings(&self) -> ReconfigureSettings {
        let settings = &self.cluster.reconfig;
        ReconfigureSettings {
            history: settings.history,
            sensitivity: settings.sensitivity,
            settle: settings.settle(),
            high: settings.high,
            low: settings.low,
            weights: self.cluster.balance.weights,
            ..ReconfigureSettings::default()
        }
    }

    /// The same process's view of a cluster by a newer roster.
    pub(crate) fn by(&self, cluster: Cluster) -> Self {
        let (run, fabric, config) = (self.run.clone(), self.fabric.clone(), Arc::clone(&self.config));
        let (began_ms, number, members) = (self.began_ms, self.number, Arc::clone(&self.members));
        Parts { cluster, run, fabric, began_ms, config, number, members }
    }

    /// What the thread that scans and decides adopts of it, where it answers, and whether it has begun. It has an adapter go by it, too, and others with `publish`.
    pub(crate) fn adopted(
        &self,
        (adapter, timing, moved): (Option<AdapterMembers>, Timing, Vec<NodeId>),
        publish: impl FnOnce() + Send + 'static,
    ) -> (Adopted, mpsc::Receiver<Result<(), SettingsError>>, Arc<AtomicBool>) {
        let (done, answer) = mpsc::sync_channel(1);
        let is_taken = Arc::new(AtomicBool::new(false));
        let (shared, members) = (Arc::clone(&self.members), Arc::new(members(&self.cluster)));
        let find = self.fabric.adopting(&self.cluster);
        let adopted = Adopted {
            members: Arc::clone(&members),
            pool: self.pool(),
            sites: self.sites(),
            last: self.rejected_last(),
            cuts: self.cuts().collect(),
            drain_max: self.cluster.reconfig.drain_max,
            timing,
            foreign: self.cluster.nodes.map(|node| node.is_foreign),
            capacities: self.capacities(),
            weights: self.cluster.balance.weights,
            records: self.records(),
            servers: self.cluster.tcp_servers(),
            moved,
            admission: self.admission_settings(),
            reconfigure: self.reconfigure_settings(),
            adapter,
            publish: Box::new(move || {
                shared.store(members);
                find();
                publish();
            }),
            is_taken: Arc::clone(&is_taken),
            done,
        };
        (adopted, answer, is_taken)
    }

    /// Whether the site is about to leave.
    pub(crate) fn closes(&self, site: &config::Site) -> bool {
        self.cluster.standing.closing.contains(&site.name)
    }

    /// The nodes that a site keeps in any case.
    fn floor(&self, site: &config::Site) -> u16 {
        if self.closes(site) { 0 } else { site.floor as u16 }
    }

    fn sites(&self) -> Slots<SiteView> {
        let site = |site: &config::Site| SiteView {
            floor: self.floor(site),
            ceiling: if self.closes(site) { 0 } else { site.ceiling as u16 },
            priority: site.priority,
            waiting: 0,
            busy: false,
        };
        self.cluster.sites.map(site)
    }

    /// The brain with `decider`, and with admission control if requested.
    pub(crate) fn brain(&self, decider: Decider, with_admission: bool) -> Result<Brain, Failure> {
        let settings = self.admission_settings().filter(|_| with_admission);
        let controller = |(settings, promises): (_, Slots<Promise>)| {
            Controller::new(settings, promises.to_vec(), self.cluster.nodes.len())
        };
        let brain = Brain::new(settings.map(controller).transpose()?, decider, self.sites().to_vec());
        Ok(brain.with_nodes(&self.cluster.nodes.map(|node| node.is_foreign)))
    }

    /// The gatekeeper of requests that this many threads serve; `None` if all are admitted.
    pub(crate) fn gatekeeper(&self, threads: usize) -> Option<Gatekeeper> {
        let (settings, promises) = self.admission_settings()?;
        let room = vec![Promise::default(); self.cluster.capacity.sites];
        let gate = Gate::new(&room, settings.rotation, self.cluster.load.stale, threads);
        gate.adopt(&promises, &self.rejected_last());
        Some(Gatekeeper::new(gate))
    }

    fn rejected_last(&self) -> Slots<RejectedLast> {
        let last =
            |site: &config::Site| RejectedLast { requests: site.rejected_last.clone(), visit: site.visit };
        self.cluster.sites.map(last)
    }

    /// The settings of admission control and the promise to each site; `None` if all requests are admitted.
    pub(crate) fn admission_settings(&self) -> Option<(admission::AdmissionSettings, Slots<Promise>)> {
        if !self.cluster.has_admission() {
            return None;
        }
        let settings = &self.cluster.admission;
        let promise = |site: &config::Site| Promise { target: site.target, share: site.share };
        let promises = self.cluster.sites.map(promise);
        let settings = admission::AdmissionSettings {
            rule: settings.rule,
            threshold: self.cluster.baseline.threshold.unwrap_or(1.0),
            lag: admission::lag(self.cluster.reconfig.sensitivity, self.cluster.load.period),
            rotation: settings.rotation,
            weights: self.cluster.balance.weights,
        };
        Some((settings, promises))
    }

    /// The capacity of each node, by slot. A node with half the pool's mean service time has twice the speed.
    pub(crate) fn capacities(&self) -> Vec<index::Capacity> {
        let seconds = |node: &config::Node| match node.service {
            Service::None => 0.0,
            Service::Fixed | Service::Exponential | Service::Burn => node.service_time.as_secs_f32(),
        };
        let nodes = &self.cluster.nodes;
        let mean = nodes.values().map(seconds).sum::<f32>() / nodes.values().count() as f32;
        let ours = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let capacity = |node: &config::Node| index::Capacity {
            // Of a server of which nothing else is known, one for each CPU, until the brain has learned it.
            workers: node.workers.map_or(ours as u32, u32::from),
            speed: if seconds(node) > 0.0 { mean / seconds(node) } else { 1.0 },
            cpus: node.cpus.unwrap_or(ours as f64) as f32,
            // 1 Mbit/s is 125,000 bytes/s.
            net_bytes_per_s: node.net_mbit.map_or(0, |mbit| (mbit * 125_000.0) as u64),
        };
        nodes.all().map(|node| node.map_or_else(index::Capacity::default, capacity)).collect()
    }

    pub(crate) fn view(&self) -> View {
        let Cluster { capacity, load, balance, .. } = &self.cluster;
        let health = health::HealthSettings::default();
        let view = View::new(capacity.nodes, capacity.sites, load.stale, balance.policy, health);
        view.adopt(self.cluster.nodes.len(), self.cluster.sites.len());
        view.cutting(self.cluster.reconfig.drain_max, self.cuts())
    }

    /// The other fronts that share their requests in flight: all on one machine, on several those with `fabric_listen`.
    pub(crate) fn peers(&self, name: &str) -> Vec<String> {
        let others = self.cluster.fronts.values().filter(|front| front.name != name && self.shares(front));
        others.map(|front| front.name.clone()).collect()
    }

    /// Whether an edge or another front shares its requests in flight with others.
    pub(crate) fn shares(&self, front: &config::Front) -> bool {
        self.fabric.is_of_one_machine() || front.fabric_listen.is_some()
    }

    /// The name of the region in which a node keeps documents, if it does.
    pub(crate) fn documents_region(&self, node: &config::Node) -> Option<String> {
        let keeps = self.cluster.cache.documents && node.root.is_some() && !node.is_foreign;
        keeps.then(|| format!("{}.documents", node.name))
    }

    /// Bytes of such a region.
    pub(crate) fn document_bytes(&self) -> usize {
        (self.cluster.cache.document_memory_mb as usize) << 20
    }

    /// The settings of an edge.
    pub(crate) fn edge_settings(&self, edge: &config::Edge) -> EdgeSettings {
        let limits = &self.cluster.limits;
        EdgeSettings {
            name: edge.name.clone(),
            listen: edge.listen,
            tls: certificates(edge),
            client_ca: edge.client_ca.clone(),
            admin: edge.admin,
            trusted_proxies: edge.trusted_proxies.clone(),
            proxy_protocol: edge.proxy_protocol,
            forwarding: Forwarding {
                x_forwarded: edge.forwarded != Forwarded::Forwarded,
                forwarded: edge.forwarded != Forwarded::XForwarded,
                via: edge.via.clone(),
            },
            access_log: edge.access_log.clone(),
            access_log_reopen: Arc::default(),
            threads: edge.threads,
            limits: Limits {
                header_bytes_max: limits.header_bytes_max as usize,
                header_timeout: limits.client_header_timeout,
                body_timeout: limits.client_body_timeout,
                response_timeout: limits.response_timeout,
                idle_timeout: limits.idle_timeout,
                // A request needs a descriptor to its node as well.
                connections_max: (limits.connections_max as usize)
                    .min(file_limit().saturating_sub(OWN_FILES) / 2),
                connections_per_client_max: limits.connections_per_client_max.map(|max| max as usize),
                body_bytes_max: limits.body_bytes_max,
                connect_timeout: limits.connect_timeout,
                retries: limits.retries,
            },
            sites: self.cluster.sites.map(|site| {
                let is_closing = self.closes(site);
                let hosts = if is_closing { Vec::new() } else { site.hosts.clone() };
                SiteHosts { name: site.name.clone(), hosts }
            }),
            nodes: self.cluster.nodes.map(|node| NodeAddress {
                name: node.name.clone(),
                addresses: node.addresses.clone(),
                http2: node.http2,
            }),
            documents: self.cluster.cache.documents.then(|| DocumentSettings {
                regions: self.cluster.nodes.all().map(|node| self.documents_region(node?)).collect(),
                memory_bytes: self.document_bytes(),
                directory: self.fabric.directory(),
                cluster: self.fabric.identity(),
            }),
        }
    }
}

/// Who is in the cluster, as those know it that link to its parts.
pub(crate) fn members(cluster: &Cluster) -> Members {
    let front =
        |front: &config::Front| FrontMember { name: front.name.clone(), is_led: front.controls.is_some() };
    Members {
        sites: cluster.sites.map(|site| site.name.clone()),
        nodes: cluster.nodes.map(|node| node.name.clone()),
        fronts: cluster.fronts.map(front),
        board: cluster.standing.board.term,
    }
}

/// The current time in ms since 1970, as the start of a process.
pub(crate) fn began_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(1, |time| time.as_millis() as u64)
}

/// The certificates of an edge, and their keys.
pub fn certificates(edge: &config::Edge) -> Vec<Tls> {
    let files = |tls: &config::Tls| Tls { certificate: tls.certificate.clone(), key: tls.key.clone() };
    edge.tls.iter().map(files).collect()
}

/// The foreign server of a node, if it has one.
pub(crate) fn foreign(node: &config::Node) -> Option<Foreign> {
    let servers = || node.addresses.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    node.is_foreign.then(|| Foreign { servers: servers(), workers: node.workers })
}

/// Whether the load of a node can be told from that of others: it has a control group, or its machine to itself. Which
/// group a foreign server has, only its agent finds out.
///
/// # Errors
/// If it cannot, with the reason.
pub(crate) fn is_apart(cluster: &Cluster, node: usize) -> Result<(), String> {
    match &cluster.nodes[node] {
        config::Node { group: Some(_), .. } | config::Node { is_foreign: true, .. } => Ok(()),
        _ => is_alone(cluster, node),
    }
}

/// Whether a node has its machine to itself.
///
/// # Errors
/// If it has not.
pub(crate) fn is_alone(cluster: &Cluster, node: usize) -> Result<(), String> {
    let node = &cluster.nodes[node];
    let shares = |other: &&config::Node| cluster.secret.is_none() || other.host() == node.host();
    if cluster.nodes.values().filter(shares).count() == 1 {
        return Ok(());
    }
    Err(format!(
        "{} shares its machine with other nodes and has no control group (`cgroup` in the cluster file)",
        node.name
    ))
}

/// The number of the part of that name among parts of a kind, which have these numbers and names.
pub(crate) fn find<'a>(
    kind: &str,
    name: &str,
    parts: impl Iterator<Item = (usize, &'a str)> + Clone,
) -> Result<usize, Failure> {
    parts.clone().find(|(_, known)| *known == name).map(|(number, _)| number).ok_or_else(|| {
        let known = parts.map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { format!("no {kind}") } else { known };
        Failure::new(format!("the cluster file has no {kind} {name:?}; it has {known}"))
    })
}
