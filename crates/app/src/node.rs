//! One node of a cluster, with its built-in origin server, or as the agent of a foreign server that runs beside it.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sidelong_config::{self as config, Cluster, Service};
use sidelong_edge::{Admin, Counts, NodeMetrics, Pages};
use sidelong_fabric::{Access, Region, RegionSpec, RunDirectory};
use sidelong_layout::{KERNEL_BYTES, LOAD_BYTES, NodeState, Ownership, RegionKind, SiteId, WORDS_OWNERSHIP};
use sidelong_load::{
    Choice, Keeper, KeeperSpec, KernelRecord, KernelSpec, OriginGauge, OriginLoad, Origins, OwnReader,
    Recorder, Responder, ResponderKind, Scheme, Scope, ServerLine, drop_privileges,
};
use sidelong_os::ServerAddress;
use sidelong_reconfig::{expose_changing_words, expose_words, expose_words_as, load_region};
use sidelong_state::NodeAgent;
use sidelong_workload::origin::{OriginConfig, OriginGauges, ServiceTime, serve};

use crate::cgroup;
use crate::changer::{Changer, Sites};
use crate::documents;
use crate::edge::watch_for_node;
use crate::event::Event;
use crate::fabric::Exposer;
use crate::failure::Failure;
use crate::follower::{Follower, Take};
use crate::foreign;
use crate::history::Log;
use crate::hosts::Hosts;
use crate::last_seen;
use crate::listen;
use crate::part::{PartSpec, Running, Shutdown, StopReceiver};
use crate::parts::{self, Parts};
use crate::regions::Guard;
use crate::roster;

/// What a node may be given beside its entry in the cluster file.
#[derive(Default)]
pub struct NodeOptions {
    /// The socket at which the built-in origin serves; `None` to open one at the entry's address.
    pub listener: Option<TcpListener>,
    /// The control group that the process joins, and whose load is the node's.
    pub join_cgroup: Option<PathBuf>,
    /// The words before each command of a site: a program that becomes the command, and that ends with this process, so that no
    /// command runs beside those of the node's next life. Empty to run commands as they are.
    pub runner: Vec<OsString>,
    /// Whether the process has the agents of other nodes, too. Then the kernel keeps no record, for which the process would drop its privileges.
    pub is_one_of_many: bool,
    /// Whether the node begins free if it was held, as nobody knows any more why.
    pub forgets_hold: bool,
}

/// Whether a process on this machine has the agent of a node, by itself or among others.
pub fn is_here(cluster: &Cluster, node: &str) -> bool {
    RunDirectory::at(&cluster.run_dir).has_holder(&load_region(node))
}

/// Starts a node. It is ready once its events say so.
///
/// If the kernel is to keep the node's load record, the calling thread drops all privileges, and must be the only one.
///
/// # Errors
/// If the cluster has no node of that name, or the node cannot listen, expose its memory, or collect its load as the file says.
pub fn start(spec: PartSpec, options: NodeOptions) -> Result<Running, Failure> {
    let PartSpec { cluster, name, events } = spec;
    let cluster = roster::enter(cluster, &name)?;
    let index = parts::find("node", &name, cluster.nodes.entries().map(|(slot, node)| (slot, &*node.name)))?;
    let node = cluster.nodes[index].clone();
    let joined = options.join_cgroup.as_deref();

    let listen = |address| {
        listen::listen(address)
            .map_err(|error| Failure::new(format!("node {name}: cannot listen on {address}: {error}")))
    };
    let server = match node.port() {
        Some(address) if !node.is_foreign => {
            let listener = options.listener.map_or_else(|| listen(address), Ok)?;
            Server::Builtin { listener, gauges: Arc::default() }
        }
        _ => Server::Foreign,
    };
    let admin = node.admin.map(listen).transpose()?;

    // Done before other threads exist, because each has privileges of its own, and before an RDMA device is opened,
    // which refuses a process whose privileges have changed since.
    let began_ms = parts::began_ms();
    let mut scopes = Scopes::find(&cluster, index, joined)?;
    if options.is_one_of_many {
        scopes.kept = Err("one process has the agents of several nodes".to_owned());
    }
    let (choice, record) = choose_scheme(&cluster, index, &scopes, joined, began_ms)?;
    if record.is_some() && has_sockets(&node) {
        tracing::warn!("{} counts connections by port: the record of {} has none", choice.scheme, node.name);
    }
    let parts = Arc::new(Parts::begun_at(began_ms, cluster)?);
    let exposer = Arc::new(parts.fabric.expose(node.fabric_listen, parts.began_ms)?);
    let shutdown = Shutdown::new();
    let hosts = Hosts::of(&parts.cluster);
    let sites = Sites::of(&parts, &node, options.runner);
    // Held here, too: without a roster nothing is followed.
    let board = Arc::new(Board { exposer: Arc::clone(&exposer), held: Mutex::default() });
    board.follow(&parts, &name)?;
    let origins = |parts: &Parts, node: &config::Node| {
        let foreign = parts::foreign(node);
        foreign.map_or_else(Vec::new, |foreign| foreign::origins(&parts.cluster, &foreign.servers))
    };
    let known = Origins::from(origins(&parts, &node));
    let take: Take = {
        let (parts, hosts, sites) = (Arc::clone(&parts), Arc::clone(&hosts), Arc::clone(&sites));
        let known = known.clone();
        let board = Arc::clone(&board);
        let (name, shutdown) = (name.clone(), shutdown.clone());
        Box::new(move |cluster| {
            let parts = parts.by(cluster);
            board.follow(&parts, &name)?;
            hosts.replace(&parts.cluster);
            parts.fabric.adopting(&parts.cluster)();
            match parts.cluster.nodes.values().find(|node| node.name == name) {
                Some(node) => {
                    known.replace(origins(&parts, node));
                    sites.replace(&parts, node);
                }
                None => {
                    tracing::info!("{name} has left the cluster, and ends");
                    shutdown.finish();
                }
            }
            Ok(())
        })
    };
    let memory =
        Memory::expose(&parts, (index, options.forgets_hold), &exposer, record.as_ref(), take, &shutdown)?;
    let documents = documents::NodeDocuments::expose(&parts, &node, &hosts)?;
    server.judge(hosts, parts.cluster.capacity.sites, memory.words.clone());
    let make = Make { node: &node, server: &server, scope: scopes.sampled, origins: &known };
    let kept = match record {
        Some(record) => RecordKeeper::Kernel { _line: publish_line(&memory, &make)?, _record: record },
        None => RecordKeeper::Threads(keep_load(&parts, &node, choice.scheme, &exposer, &memory, &make)?),
    };
    let changer = Changer::start(&parts, sites, memory.words.clone(), memory.load.clone())?;
    let admin = match admin {
        Some(listener) => {
            let counts = changer.as_ref().map(Changer::counts);
            let counts =
                counts.into_iter().chain(documents.as_ref().map(documents::NodeDocuments::counts)).collect();
            Some(Admin::start(listener, pages(&parts, choice, &exposer, &memory, &make, counts)?)?)
        }
        None => None,
    };

    let stop = Arc::new(AtomicBool::new(false));
    let watch = if parts.cluster.baseline.by == config::MovedBy::Server {
        let history = Log::open(&parts, &name)?;
        let watch = watch_for_node(&events, &parts, history.as_ref(), index)?;
        let (stop, drain) = (Arc::clone(&stop), parts.cluster.reconfig.drain_max);
        Some(std::thread::Builder::new().name("watch".into()).spawn(move || {
            watch.run(&stop, drain);
            history.into_iter().for_each(Log::finish);
        })?)
    } else {
        events(&Event::Ready);
        None
    };

    let gauges = server.gauges();
    let origin = OriginConfig {
        documents: documents.map(documents::NodeDocuments::into_origin),
        ..origin_config(&node, index)
    };
    let told = shutdown.told();
    Running::start("node", shutdown, move || {
        let served = server.run(origin, told);
        if let Some(requests @ 1..) = gauges.map(|gauges| gauges.misdirected_total.load(Ordering::Relaxed)) {
            let event = Event::Misdirected { requests };
            event.log();
            events(&event);
        }
        drop(changer);
        stop.store(true, Ordering::Relaxed);
        if let Some(watch) = watch {
            // Its panic was printed where it happened.
            let _ = watch.join();
        }
        drop((admin, kept, board, exposer));
        served.and_then(|()| memory.guard.result())
    })
}

/// What answers the node's requests.
enum Server {
    /// The built-in origin, in this process.
    Builtin { listener: TcpListener, gauges: Arc<OriginGauges> },
    /// A foreign server. This process is its agent, and answers no request.
    Foreign,
}

impl Server {
    /// The gauges of the built-in origin.
    fn gauges(&self) -> Option<Arc<OriginGauges>> {
        match self {
            Server::Builtin { gauges, .. } => Some(Arc::clone(gauges)),
            Server::Foreign => None,
        }
    }

    /// Lets the built-in origin count requests for sites that the node does not serve. A proxy that sends one may not have seen
    /// a move, and has not kept the node from moving.
    fn judge(&self, hosts: Arc<Hosts>, sites: usize, words: Region) {
        let Some(gauges) = self.gauges() else { return };
        gauges.judge(move |host| {
            // A host that is no site's was not sent here by Sidelong.
            let Some(site) = hosts.site(host) else { return true };
            let word = Ownership::decode(words.load(WORDS_OWNERSHIP), sites);
            word.is_some_and(|word| word.site == Some(SiteId::new(site)))
        });
    }

    /// Runs until it is told to end. The built-in origin then finishes the requests in flight.
    fn run(self, origin: OriginConfig, mut told: StopReceiver) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let shutdown = async move {
                told.next().await;
            };
            let Server::Builtin { listener, gauges } = self else {
                shutdown.await;
                return Ok(());
            };
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let drained = serve(listener, origin, gauges, shutdown).await?;
            if drained.cut > 0 {
                tracing::warn!(
                    connections = drained.cut,
                    "cut connections whose requests did not end in time"
                );
            }
            Ok(())
        })
    }
}

/// Whether its server listens at a Unix socket.
fn has_sockets(node: &config::Node) -> bool {
    node.addresses.iter().any(|address| address.tcp().is_none())
}

/// Whose load the node's record has.
struct Scopes {
    /// In a record that the kernel keeps; or why it cannot keep one.
    kept: Result<Scope, String>,
    /// The scope of a record that a thread makes: the kernel's one, so that records agree whoever keeps them; without it that of
    /// this process, and nobody's if that is not the server.
    sampled: Option<Scope>,
}

impl Scopes {
    /// For the node, with the control group that `up` made for it, if it did.
    fn find(cluster: &Cluster, index: usize, joined: Option<&Path>) -> Result<Self, Failure> {
        let node = &cluster.nodes[index];
        if node.is_foreign {
            let found = foreign::scope(node)?;
            let kept = match &found {
                None => Err(format!("the server of {} is on another machine", node.name)),
                // Where the scheme is not named, the one that knows more is used.
                Some(_) if has_sockets(node) && cluster.load.scheme == Scheme::Auto => Err(format!(
                    "it counts connections by port, and the server of {} is at a Unix socket",
                    node.name
                )),
                Some(Scope::Machine) => parts::is_alone(cluster, index).map(|()| Scope::Machine),
                Some(group) => Ok(group.clone()),
            };
            return Ok(Scopes { kept, sampled: found });
        }
        let own = parts::is_apart(cluster, index).map(|()| match &node.group {
            Some(config::Group::Directory(path)) => Scope::Cgroup(path.clone()),
            _ => Scope::Machine,
        });
        let sampled = own.clone().unwrap_or_else(|_| Scope::Process(std::process::id()));
        let kept = joined.map_or(own, |group| Ok(Scope::Cgroup(group.to_owned())));
        Ok(Scopes { kept, sampled: Some(sampled) })
    }
}

/// What the node's own part of a record is made of.
struct Make<'a> {
    node: &'a config::Node,
    server: &'a Server,
    /// [`Scopes::sampled`].
    scope: Option<Scope>,
    /// Whose connections to a foreign server do not bypass the edges.
    origins: &'a Origins,
}

impl Make<'_> {
    /// The gauges of the built-in origin.
    fn gauge(&self) -> Option<OriginGauge> {
        let (gauges, workers) = (self.server.gauges()?, self.node.workers.unwrap_or_default());
        Some(Box::new(move || OriginLoad {
            connections: gauges.connections.load(Ordering::Relaxed),
            queued: gauges.queued(),
            busy: gauges.in_service(),
            workers,
            service_us: u32::try_from(gauges.service_mean().as_micros()).unwrap_or(u32::MAX),
            served: gauges.served_total.load(Ordering::Relaxed),
            errors: gauges.errors_total.load(Ordering::Relaxed),
            sent_bytes: gauges.sent_bytes_total.load(Ordering::Relaxed),
        }))
    }

    /// A maker of records; `None` if nothing is known.
    fn recorder(&self) -> Result<Option<Recorder>, Failure> {
        let Some(scope) = &self.scope else { return Ok(None) };
        let recorder = Recorder::new(scope, self.gauge())?;
        Ok(Some(match parts::foreign(self.node) {
            Some(foreign) => recorder.of_foreign(foreign, self.origins.clone(), self.node.is_exclusive)?,
            None => recorder,
        }))
    }

    /// Decides what to acknowledge, from the node's ownership word and the requests in flight at the origin. Of a foreign
    /// server it does not know them, and acknowledges nothing.
    fn acknowledge(&self, words: Region) -> impl FnMut() -> Option<u64> + Send + 'static {
        let gauges = self.server.gauges();
        let mut agent = NodeAgent::new();
        move || {
            let gauges = gauges.as_ref()?;
            let word = words.load(WORDS_OWNERSHIP);
            // Read after the word: see `NodeAgent::observe`.
            let in_flight = gauges.outstanding.load(Ordering::Relaxed);
            agent.observe(word, in_flight).map(|ack| ack.encode())
        }
    }
}

/// The memory that a node exposes to others while it lives.
struct Memory {
    load: Region,
    words: Region,
    /// Holds the board as well, if it is in shared memory.
    guard: Guard,
}

/// The board, as long as the roster says that this node has it.
struct Board {
    exposer: Arc<Exposer>,
    /// Which one it is ([`config::BoardStanding::term`]).
    held: Mutex<Option<(u64, Region)>>,
}

impl Board {
    /// Goes by the roster of `parts`. A board that the node has no more is gone when this returns.
    fn follow(&self, parts: &Parts, node: &str) -> Result<(), Failure> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let term = parts.has_board(node).then_some(parts.cluster.standing.board.term);
        if held.as_ref().map(|(term, _)| *term) == term {
            return Ok(());
        }
        if let Some((_, region)) = held.take() {
            self.exposer.withdraw(region);
            tracing::info!("another node is to have the board");
        }
        if let Some(term) = term {
            let region = parts.expose_board(&self.exposer.host)?;
            self.exposer.publish(region.key())?;
            *held = Some((term, region));
        }
        Ok(())
    }
}

impl Memory {
    fn expose(
        parts: &Parts,
        (index, forgets_hold): (usize, bool),
        exposer: &Exposer,
        record: Option<&KernelRecord>,
        take: Take,
        shutdown: &Shutdown,
    ) -> Result<Self, Failure> {
        let host = &exposer.host;
        let node = &parts.cluster.nodes[index];
        let (kind, len) = match record {
            Some(_) => (RegionKind::Kernel, KERNEL_BYTES),
            None => (RegionKind::Load, LOAD_BYTES),
        };
        let name = &load_region(&node.name);
        let instance = parts.instance();
        let spec = RegionSpec { name, kind, len, access: Access::ReadOnly, instance };
        let load = match record {
            Some(record) => host.expose_mapped(&spec, &record.memory()?)?,
            None => host.expose(&spec, |_| ())?,
        };
        // Before the words: see `Parts::board_init`.
        let board = match parts.fabric.shares_memory() {
            true => Some(parts.expose_board(host)?),
            false => None,
        };
        let home = node.site.map(SiteId::new);
        let last = last_seen::of(parts, &node.name);
        let words =
            match (last.map(|last| if forgets_hold { last_seen::without_hold(last) } else { last }), home) {
                // Which site runs there, if any, nobody knows.
                (Some((NodeState::Serving | NodeState::Pinned, Some(site))), _) | (None, Some(site))
                    if parts.cluster.has_commands() =>
                {
                    expose_changing_words(host, &node.name, site, instance)?
                }
                (Some(last), _) => expose_words_as(host, &node.name, last, instance)?,
                (None, site) => expose_words(host, &node.name, site, instance)?,
            };
        for region in [Some(&load), Some(&words), board.as_ref()].into_iter().flatten() {
            exposer.publish(region.key())?;
        }
        last_seen::begun(parts, &node.name);
        let (own, lost) = (vec![load.clone(), words.clone()], shutdown.clone());
        let follower = Follower::new(&node.name, parts, Some(exposer), vec![load.clone()], take);
        let guard = Guard::start(own, board, parts.board_anew(), follower, move || lost.finish())?;
        Ok(Memory { load, words, guard })
    }
}

/// Chooses the scheme by which this node's load is collected. If the kernel is to keep the record, it does so from now
/// on, and this process has dropped all privileges.
fn choose_scheme(
    cluster: &Cluster,
    index: usize,
    scopes: &Scopes,
    joined: Option<&Path>,
    began_ms: u64,
) -> Result<(Choice, Option<KernelRecord>), Failure> {
    if let Some(group) = joined {
        cgroup::join(group)?;
    }
    let keep = || {
        let scope = scopes.kept.clone()?;
        // At a Unix socket the kernel's programs count no connections, so that a part of them would be taken for all.
        let addresses = parts::foreign(&cluster.nodes[index]).map(|foreign| foreign.servers);
        let tcp = addresses.and_then(|all| all.iter().map(ServerAddress::tcp).collect::<Option<_>>());
        let spec = KernelSpec { servers: tcp.unwrap_or_default(), ..KernelSpec::new(scope, began_ms) };
        KernelRecord::start(&spec).map_err(|error| error.to_string())
    };
    let (choice, record) = Choice::new(cluster.load.scheme, keep)?;
    // A warning if a kernel feature or a privilege is missing. That nodes share a machine is evident from the file.
    if scopes.kept.is_ok() && record.is_none() && cluster.load.scheme == Scheme::Auto {
        tracing::warn!("load by {}, because {}", choice.scheme, choice.reason);
    } else {
        tracing::info!("load by {}, because {}", choice.scheme, choice.reason);
    }
    if record.is_some() {
        drop_privileges()?;
    }
    Ok((choice, record))
}

/// Keeps the node's record as long as it lives.
enum RecordKeeper {
    Kernel {
        // Dropped before the record, so that its last line is published. A foreign server has none.
        _line: Option<Arc<ServerLine>>,
        _record: KernelRecord,
    },
    Threads(#[expect(dead_code, reason = "it is held, not used")] LoadThreads),
}

/// Makes the origin publish its own line whenever a request or connection begins or ends.
fn publish_line(memory: &Memory, make: &Make<'_>) -> Result<Option<Arc<ServerLine>>, Failure> {
    let (Server::Builtin { gauges, .. }, Some(gauge)) = (make.server, make.gauge()) else { return Ok(None) };
    let line = Arc::new(ServerLine::open(memory.load.clone(), gauge)?);
    let published = Arc::downgrade(&line);
    gauges.watch(move || {
        if let Some(line) = published.upgrade() {
            line.publish();
        }
    });
    Ok(Some(line))
}

/// The threads that keep the node's record, acknowledge moves, and answer requests for load.
struct LoadThreads {
    _keeper: Keeper,
    _responder: Option<Responder>,
}

fn keep_load(
    parts: &Parts,
    node: &config::Node,
    scheme: Scheme,
    exposer: &Exposer,
    memory: &Memory,
    make: &Make<'_>,
) -> Result<LoadThreads, Failure> {
    let load = &parts.cluster.load;
    let spec = KeeperSpec { period: period(load, node.is_foreign), proc_period: load.proc_period };
    let acknowledge = make.acknowledge(memory.words.clone());
    let kept = if scheme.is_kept_by_thread() { make.recorder()? } else { None };
    let keeper = Keeper::start(memory.load.clone(), kept, acknowledge, spec)?;

    let kind = match scheme {
        Scheme::SocketAsync => Some(ResponderKind::Async(memory.load.clone())),
        Scheme::SocketSync => {
            make.recorder()?.map(|recorder| ResponderKind::Sync(memory.load.clone(), Box::new(recorder)))
        }
        Scheme::Auto | Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync => None,
    };
    let any_port = SocketAddr::new(node.fabric_listen.ip(), 0);
    let responder = kind.map(|kind| Responder::listen(any_port, kind)).transpose()?;
    if let Some(responder) = &responder {
        exposer.publish_responder(&node.name, responder.address())?;
    }
    Ok(LoadThreads { _keeper: keeper, _responder: responder })
}

/// How often the node's record is published. A foreign server has no gauges that change in between, so its record need only be
/// far from stale.
fn period(load: &config::Load, is_foreign: bool) -> Duration {
    if is_foreign { load.period.max(load.stale / PUBLISHED_PER_STALE) } else { load.period }
}

/// How often a foreign server's record is published in `load.stale_ms`, so that one whose agent is kept waiting is not stale.
const PUBLISHED_PER_STALE: u32 = 5;

/// The pages of the node's admin endpoint.
fn pages(
    parts: &Parts,
    choice: Choice,
    exposer: &Exposer,
    memory: &Memory,
    make: &Make<'_>,
    more: Vec<Counts>,
) -> Result<Pages, Failure> {
    let origin = make.gauge();
    let mut own = OwnReader::new(memory.load.clone(), parts::foreign(make.node));
    // Under socket-sync no thread keeps the record; a scrape makes one, as an edge's request does.
    let mut recorder = match choice.scheme {
        Scheme::SocketSync => make.recorder()?,
        Scheme::Auto | Scheme::SocketAsync | Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync => None,
    };
    let read = move |now_ns| {
        let record = match &mut recorder {
            Some(recorder) => recorder.own(now_ns),
            None => own.read(),
        };
        (record, origin.as_ref().map(|origin| origin()))
    };
    let counts = parts.fabric.counts().into_iter().chain(exposer.counts()).chain(more).collect();
    let metrics = NodeMetrics::new(parts.about(choice), counts, parts.cluster.load.stale, Box::new(read));
    Ok(Pages {
        metrics: Box::new(move || metrics.encode()),
        health: Box::new(|| Ok("ok\n")),
        ready: Box::new(|| Ok("ok\n")),
        status: None,
    })
}

/// How long a worker of the node takes for a request in truth.
pub fn service_time(node: &config::Node) -> ServiceTime {
    let time = node.service_time.mul_f64(node.slowdown);
    match node.service {
        Service::Fixed => ServiceTime::Fixed(time),
        Service::Exponential => ServiceTime::Exponential { mean: time },
        Service::Burn => ServiceTime::Burn { mean: time },
        Service::None => ServiceTime::None,
    }
}

fn origin_config(node: &config::Node, index: usize) -> OriginConfig {
    OriginConfig {
        name: Some(node.name.clone()),
        workers: u32::from(node.workers.unwrap_or_default()),
        service: service_time(node),
        seed: index as u64,
        queue_depth_max: node.queue_depth_max,
        root: node.root.clone(),
        ..OriginConfig::default()
    }
}
