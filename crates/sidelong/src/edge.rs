//! `sidelong edge`: one edge of a cluster file.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use listenfd::ListenFd;
use sidelong_edge::{
    Counts, Edge, EdgeSettings, Event as EdgeEvent, Exchange, Ganglia, Gate, Gatekeeper, Metrics, Peers,
    Seen, View, Watch, offer_share,
};
use sidelong_fabric::Region;
use sidelong_layout::{EdgeId, Fault, NodeId, ShareMap};
use sidelong_policy::brain::Brain;
use sidelong_policy::reconfigure::MovePlan;
use sidelong_reconfig::{Cause, Ended, How, offer_board, offer_front};
use sidelong_state::{Outcome, PaperOutcome, Undrained};
use signal_hook::consts::SIGUSR1;

use crate::cli::PartArgs;
use crate::event::Event;
use crate::fabric::Offering;
use crate::failure::{Failure, some};
use crate::hangup::Hangup;
use crate::history::{Log, Record};
use crate::parent::{self, end_with_parent};
use crate::parts::Parts;
use crate::reads::ReadCounts;
use crate::regions::Guard;

/// Longest wait for a move in progress when the edge ends.
const MOVE_DRAIN_MAX: Duration = Duration::from_secs(1);

/// Longest wait for the edge to listen once the view is complete.
const LISTEN_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    Hangup::ignore()?.log()?;
    // Without a handler the signal would end the edge.
    let reopen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&reopen))?;
    let parts = Arc::new(Parts::load(args)?);
    let _held = parent::hold(args, &parts.run)?;
    let edges = &parts.cluster.edges;
    let index = edges.iter().position(|edge| edge.name == args.name).ok_or_else(|| {
        let names: Vec<_> = edges.iter().map(|edge| edge.name.as_str()).collect();
        Failure::new(format!(
            "{} has no edge {:?}; it has {}",
            args.config.display(),
            args.name,
            names.join(", ")
        ))
    })?;

    let view = Arc::new(parts.view());
    let settings = EdgeSettings { access_log_reopen: reopen, ..parts.edge_settings(index) };
    let listener = handed_over(&args.name, settings.listen)?;
    let Observed { mut counts, reads, history } = Observed::new(&parts, &args.name)?;
    let ganglia = ganglia(&parts, &settings)?;
    counts.extend(ganglia.as_ref().map(Ganglia::counts));
    let gatekeeper = parts.gatekeeper(settings.threads);
    let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
    let memory = Memory::offer(&parts, index, &[])?;
    if let Some(offer) = &memory.offer {
        counts.extend(offer.counts());
    }
    let exchange = exchange(&parts, index, &view, gate.as_ref(), &memory)?;
    let peers = exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers));
    let about = parts.about(parts.scheme()?);
    let edge = Edge::new(settings, listener, Arc::clone(&view), gate, peers, about, counts)?;
    let owner = parts.owner(Some(index), None);
    let brain = parts.brain(parts.decider(None)?, true)?;
    let events = events(args, &parts, history.as_ref(), Some(edge.listen()));
    let front = Some((owner, memory.front.clone()));
    let shown = (Some(edge.metrics()), Some(edge.seen()));
    let mut watch = watch(&parts, owner, brain, events, (view, front), shown, reads)?;
    watch.gatekeeper = gatekeeper;
    tell_notes(args, &parts)?;
    let threads = Threads::start(watch, exchange)?;
    let _ganglia = ganglia.map(|ganglia| ganglia.start(edge.seen())).transpose()?;
    edge.run()?;
    threads.end();
    history.into_iter().for_each(Log::finish);
    memory.guard.map_or(Ok(()), |guard| guard.result())
}

/// What a front counts and records beside its requests.
pub(crate) struct Observed {
    pub(crate) counts: Vec<Counts>,
    pub(crate) reads: Arc<ReadCounts>,
    pub(crate) history: Option<Log>,
}

impl Observed {
    /// Of the front of that name.
    pub(crate) fn new(parts: &Parts, name: &str) -> Result<Self, Failure> {
        let mut counts = parts.fabric.counts();
        let reads = Arc::new(ReadCounts::default());
        counts.push(Arc::clone(&reads).counts());
        let history = Log::open(parts, name)?;
        counts.extend(history.as_ref().map(Log::counts));
        Ok(Observed { counts, reads, history })
    }
}

/// Tells the parent of this part how load is collected and memory reached.
pub(crate) fn tell_notes(args: &PartArgs, parts: &Parts) -> Result<(), Failure> {
    if args.events {
        Event::Note { text: parts.scheme_note()? }.print();
        // On one machine all parts use the same fabric, and `up` prints it.
        if parts.cluster.secret.is_some() {
            Event::Note { text: parts.fabric.note().to_owned() }.print();
        }
    }
    Ok(())
}

/// The threads of a front.
pub(crate) struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts to scan and decide, and to exchange with the other fronts.
    pub(crate) fn start(watch: Watch, exchange: Option<Exchange>) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |name: &str, run: Box<dyn FnOnce(&AtomicBool) + Send>| {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new().name(name.into()).spawn(move || run(&stop))
        };
        let exchange =
            exchange.map(|exchange| spawn("peers", Box::new(|stop| exchange.run(stop)))).transpose()?;
        let watch = spawn("watch", Box::new(|stop| watch.run(stop, MOVE_DRAIN_MAX)))?;
        let threads = [Some(watch), exchange].into_iter().flatten().collect();
        Ok(Threads { stop, threads })
    }

    /// Waits until they have ended.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// The socket at `listen` that this process was started with (sd_listen_fds(3)), if it was started with any.
fn handed_over(name: &str, listen: SocketAddr) -> Result<Option<TcpListener>, Failure> {
    let mut handed = ListenFd::from_env();
    let refused = |found: &str| {
        Failure::new(format!(
            "edge {name}: LISTEN_FDS hands over {found}; expected a listening TCP socket at {listen}"
        ))
    };
    for index in 0..handed.len() {
        let taken = handed.take_tcp_listener(index);
        let Some(listener) = taken.map_err(|_| refused("what is none"))? else {
            continue;
        };
        let address = listener.local_addr()?;
        if address == listen || address.ip().is_unspecified() && address.port() == listen.port() {
            return Ok(Some(listener));
        }
    }
    if handed.len() > 0 { Err(refused("others")) } else { Ok(None) }
}

/// The memory that an edge, or another front, offers to others while it lives.
pub(crate) struct Memory {
    /// `None` if it has nothing to offer.
    pub(crate) offer: Option<Offering>,
    /// The share that other fronts read, if there are any.
    share: Option<Region>,
    /// What it states as a front, for other movers.
    pub(crate) front: Option<Region>,
    /// Holds the board as well.
    pub(crate) guard: Option<Guard>,
}

impl Memory {
    /// Offers it, and guards it together with `led`, the regions of a proxy that is led.
    pub(crate) fn offer(parts: &Parts, index: usize, led: &[Region]) -> Result<Self, Failure> {
        let member = &parts.cluster.fronts[index];
        let shares = parts.cluster.fronts.len() > 1 && parts.shares(member);
        // A person may move nodes, too.
        let states = parts.shares(member);
        if !states && !parts.fabric.shares_memory() {
            return Ok(Memory { offer: None, share: None, front: None, guard: None });
        }
        let any_port = SocketAddr::new(member.host, 0);
        let offer = parts.fabric.offer(member.fabric_listen.unwrap_or(any_port))?;
        let share = match shares {
            false => None,
            true => {
                let map = ShareMap { nodes: parts.cluster.nodes.len(), sites: parts.cluster.sites.len() };
                let share = offer_share(&offer.host, &member.name, map, parts.life())?;
                offer.publish(share.key())?;
                Some(share)
            }
        };
        let front = match states {
            false => None,
            true => {
                let nodes = parts.cluster.nodes.len();
                let front = offer_front(&offer.host, &member.name, nodes, parts.life())?;
                offer.publish(front.key())?;
                Some(front)
            }
        };
        // In shared memory the first process creates the board; otherwise it is the first node's.
        let board = match parts.fabric.shares_memory() {
            false => None,
            true => Some(offer_board(&offer.host, parts.board_map(), &parts.board_init(), parts.life())?),
        };
        let own = share.iter().chain(&front).chain(led).cloned().collect();
        let guard = Guard::start(own, board, parts.board_anew())?;
        Ok(Memory { offer: Some(offer), share, front, guard: Some(guard) })
    }
}

/// The exchange with the other fronts, if there are any.
pub(crate) fn exchange(
    parts: &Parts,
    index: usize,
    view: &Arc<View>,
    gate: Option<&Arc<Gate>>,
    memory: &Memory,
) -> Result<Option<Exchange>, Failure> {
    let peers = parts.peers(index);
    if peers.is_empty() && memory.share.is_none() {
        return Ok(None);
    }
    Ok(Some(Exchange {
        view: Arc::clone(view),
        gate: gate.cloned(),
        peers: Arc::new(Peers::new(peers)),
        share: memory.share.clone(),
        directory: parts.fabric.directory(),
        initiator: parts.fabric.initiator()?,
        period: parts.cluster.reconfig.sensitivity,
    }))
}

/// The sender of figures to Ganglia, if this edge is configured to be it.
fn ganglia(parts: &Parts, settings: &EdgeSettings) -> Result<Option<Ganglia>, Failure> {
    let Some(ganglia) = parts.ganglia_settings(&settings.name) else { return Ok(None) };
    let gmond = ganglia.gmond;
    let told = Ganglia::new(ganglia, &settings.nodes);
    told.map(Some).map_err(|error| Failure::new(format!("ganglia: cannot reach gmond at {gmond}: {error}")))
}

/// The thread that scans and decides, for a front or, in server-based reconfiguration, for a node.
pub(crate) fn watch(
    parts: &Arc<Parts>,
    owner: EdgeId,
    brain: Brain,
    events: Events,
    (view, front): (Arc<View>, Option<(EdgeId, Option<Region>)>),
    (metrics, seen): (Option<Arc<Metrics>>, Option<Arc<Seen>>),
    reads: Arc<ReadCounts>,
) -> Result<Watch, Failure> {
    let mut links = parts.links(front)?;
    let loads = parts.read_loads(&mut links, reads)?;
    Ok(Watch {
        view,
        metrics,
        seen,
        led: None,
        links,
        loads,
        weights: parts.cluster.balance.weights,
        capacities: parts.capacities(),
        brain,
        gatekeeper: None,
        mover: parts.mover(owner)?,
        sensitivity: parts.cluster.reconfig.sensitivity,
        events,
    })
}

/// The same thread for a node, beside its server.
pub(crate) fn watch_for_node(
    args: &PartArgs,
    parts: &Arc<Parts>,
    history: Option<&Log>,
    node: usize,
) -> Result<Watch, Failure> {
    let owner = parts.owner(None, Some(node));
    let brain = parts.brain(parts.decider(Some(NodeId::new(node)))?, false)?;
    let events = events(args, parts, history, None);
    watch(parts, owner, brain, events, (Arc::new(parts.view()), None), (None, None), Arc::default())
}

pub(crate) type Events = Box<dyn FnMut(EdgeEvent) + Send>;

/// Passes on events with names instead of numbers. An edge is ready only when clients can connect at `listen`.
pub(crate) fn events(
    args: &PartArgs,
    parts: &Arc<Parts>,
    history: Option<&Log>,
    listen: Option<SocketAddr>,
) -> Events {
    let (tell, name, parts) = (args.events, args.name.clone(), Arc::clone(parts));
    let recorder = history.map(Log::recorder);
    Box::new(move |event| {
        if let (EdgeEvent::Ended(ended), Some(recorder)) = (&event, &recorder)
            && let Some(record) = Record::of(&parts, &name, ended)
        {
            recorder.record(record);
        }
        let at_ns = sidelong_load::monotonic_ns();
        let event = match event {
            EdgeEvent::Ready => {
                if let Some(address) = listen {
                    await_listener(address);
                }
                Event::Ready
            }
            EdgeEvent::Ended(ended) => ended_event(&parts, &ended),
            EdgeEvent::FirstRequest { node, site, at } => Event::FirstRequest {
                node: parts.node_name(node),
                site: parts.site_name(site),
                at_ns: at.as_ns(),
            },
            EdgeEvent::Health { node, up } => Event::Health { node: parts.node_name(node), up, at_ns },
            EdgeEvent::Admission { site, admitted, rejected, why, met } => {
                Event::Admission { site: parts.site_name(site), admitted, rejected, why: why.to_owned(), met }
            }
            EdgeEvent::View { stale } => Event::View { stale, at_ns },
        };
        event.log();
        if tell {
            event.print();
        }
    })
}

/// Waits until the address accepts connections, for [`LISTEN_MAX`] at most.
fn await_listener(address: SocketAddr) {
    let deadline = Instant::now() + LISTEN_MAX;
    while TcpStream::connect_timeout(&address, LISTEN_MAX).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ended_event(parts: &Parts, ended: &Ended) -> Event {
    let at_ns = ended.ended.as_ns();
    match ended.plan {
        Some(plan) if ended.moved() => Event::Moved {
            node: parts.node_name(plan.node),
            from: plan.from().map(|site| parts.site_name(site)),
            to: parts.site_name(plan.to),
            why: why(parts, &plan),
            at_ns,
            took_ns: ended.ended.since(ended.began).as_nanos() as u64,
        },
        plan => Event::Ended {
            site: parts.site_name(ended.site),
            node: plan.map(|plan| parts.node_name(plan.node)),
            why: plan.map(|plan| why(parts, &plan)).or(ended.cause.map(|cause| told(parts, cause))),
            how: how(parts, ended.how),
            at_ns,
        },
    }
}

/// Why a node was to move, in words.
fn why(parts: &Parts, plan: &MovePlan) -> String {
    let from = plan.from().map(|site| parts.site_name(site));
    plan.reason.told(from.as_deref(), &parts.site_name(plan.to)).to_string()
}

/// Why a site was repaired, in words.
pub(crate) fn told(parts: &Parts, cause: Cause) -> String {
    match cause {
        Cause::Abandoned => "its lock stood unchanged for two leases".to_owned(),
        Cause::Unsettled => "its budget was not what its nodes said, or one was left on its way".to_owned(),
        Cause::Floor { found, expected } => {
            format!("its floor on the board was {found}, the cluster file says {expected}")
        }
        Cause::Ownership(node) => {
            format!("the ownership word of {} said nothing in this cluster", parts.node_name(node))
        }
    }
}

fn how(parts: &Parts, how: How) -> String {
    let how = match how {
        How::Lease(Outcome::Moved) | How::Paper(PaperOutcome::Moved) => "moved",
        How::Lease(Outcome::Busy) | How::Paper(PaperOutcome::Busy) => "busy",
        How::Lease(Outcome::Recent) | How::Paper(PaperOutcome::Recent) => "recent",
        How::Lease(Outcome::AtFloor) => "the donor is at its floor",
        How::Lease(Outcome::NodeChanged) | How::Paper(PaperOutcome::NodeChanged) => "the node had changed",
        How::Lease(Outcome::NotDrained(kept)) => {
            return format!("its old site's requests had not ended in time: {}", undrained(parts, kept));
        }
        How::Lease(Outcome::NotChanged { fault }) => return not_changed(fault),
        How::Lease(Outcome::Contended) => "the donor's budget kept changing",
        How::Lease(Outcome::Unreachable) => "a word could not be reached",
        How::Lease(Outcome::Uncertain { .. }) => "completions were lost; repaired",
        How::Lease(Outcome::Recovered { .. }) => "repaired",
        How::Lease(Outcome::LeaseLost) => "the lease was lost",
        How::Paper(PaperOutcome::Lost) => "completions were lost",
    };
    how.to_owned()
}

/// What kept a node at its old site, in words.
pub(crate) fn undrained(parts: &Parts, kept: Undrained) -> String {
    let front = |front: EdgeId| &parts.cluster.fronts[front.index()].name;
    match kept {
        Undrained::Node => "its server has not finished them".to_owned(),
        Undrained::Requests(edge, requests) => {
            format!("{} has {} there", front(edge), some(requests as usize, "request"))
        }
        Undrained::Unseen(edge) => format!("{} has not seen that the node leaves; it may hang", front(edge)),
        Undrained::Unread(edge) => format!("what {} has there cannot be read", front(edge)),
    }
}

/// Why a node could not change sites, in words.
pub(crate) fn not_changed(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "its commands did not end in time".to_owned(), |fault| fault.to_string())
}
