//! One edge of a cluster: a front with a data path of its own. What it shares with a front of another proxy is here, too.

mod memory;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidelong_config::{self as config, Cluster};
use sidelong_edge::{
    AdapterMembers, Admin, Adopted, COMPLETE_MAX, Counts, Edge, EdgeSettings, Event as EdgeEvent, Exchange,
    Ganglia, Gate, Gatekeeper, Metrics, Peers, Pulse, ScanDisplay, View, Watch,
};
use sidelong_layout::{EdgeId, NodeId, Slots, Time};
use sidelong_os::{ServerAddress, Worker};
use sidelong_policy::brain::Brain;

pub(crate) use self::memory::Memory;
use crate::ended;
use crate::event::Event;
use crate::fabric;
use crate::failure::Failure;
use crate::follower::Take;
use crate::handover::{self, Alike, Ends, Estate, Heir};
use crate::history::{Log, Record};
use crate::last_seen;
use crate::part::{Events, Front, PartSpec, Running, Shutdown};
use crate::parts::{self, Parts};
use crate::reads::ReadCounts;
use crate::roster::{self, SeenEpoch};

/// Longest wait for a move in progress when the edge ends.
pub(crate) const MOVE_DRAIN_MAX: Duration = Duration::from_secs(1);

/// Longest wait for the thread that decides to go by another roster. It looks at each scan.
const ADOPT_MAX: Duration = Duration::from_secs(5);

/// Interval at which the history has a move again that fails in the same way.
const FAILURES_EVERY: Duration = Duration::from_secs(60);

/// How often a part starts anew, at most. Changes do not follow each other as fast as starts.
const STARTS_MAX: usize = 8;

/// Pause between two looks whether all nodes have been read.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What an edge may be given beside its entry in the cluster file.
#[derive(Default)]
pub struct EdgeOptions {
    /// The socket that clients connect to; `None` to open one at the entry's address.
    pub listener: Option<TcpListener>,
    /// Opens the access log anew once it is set.
    pub access_log_reopen: Arc<AtomicBool>,
    /// Whether it takes over from another process of this machine that runs the edge, if there is one.
    pub takes_over: bool,
    /// Set if that process is to be stopped first, since none can take over from it.
    pub stop_first: Arc<AtomicBool>,
}

/// Starts an edge. It is ready once its events say so.
///
/// # Errors
/// If the cluster has no edge of that name, or the edge cannot expose its memory, listen, or use a file of its entry.
pub fn start(spec: PartSpec, options: EdgeOptions) -> Result<Running, Failure> {
    by_newest(&spec.name, || attempt(&spec, &options))
}

/// `None` if the cluster has changed meanwhile.
fn attempt(spec: &PartSpec, options: &EdgeOptions) -> Result<Option<Running>, Failure> {
    let parts = Arc::new(Parts::new(roster::enter(spec.cluster.clone(), &spec.name)?)?);
    let edges = &parts.cluster.edges;
    let entry = &edges[parts::find("edge", &spec.name, edges.iter().map(|edge| &*edge.name).enumerate())?];
    let slot = parts.front_slot(&spec.name)?;
    let view = Arc::new(parts.view());
    let settings = EdgeSettings {
        access_log_reopen: Arc::clone(&options.access_log_reopen),
        ..parts.edge_settings(entry)
    };
    let Observed { mut counts, reads, history } = Observed::new(&parts, &spec.name)?;
    let ganglia = ganglia(&parts, &settings)?;
    counts.extend(ganglia.as_ref().map(Ganglia::counts));
    let gatekeeper = parts.gatekeeper(settings.threads);
    let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
    let shutdown = Shutdown::new();
    let alike = Alike {
        epoch: parts.cluster.epoch,
        nodes: parts.cluster.capacity.nodes,
        identity: fabric::identity(&parts.cluster),
        fabric: parts.fabric.name(),
        listen: entry.listen,
        sensitivity: parts.cluster.reconfig.sensitivity,
    };
    let drain_max = settings.limits.response_timeout;
    // What a supervisor has handed over goes on after this process.
    let handed = options.listener.as_ref().map(TcpListener::try_clone).transpose()?;
    let mut listener = handed.map(|listener| (listener, true));
    let (mut before, mut locks) = (None, HashMap::new());
    if options.takes_over {
        // What may be wrong shows while the other still serves.
        settings.check()?;
        match handover::inherit(&parts.run, &spec.name, &alike, drain_max)? {
            Heir::OfNobody => {}
            Heir::OfNewerRoster => return Ok(None),
            Heir::OfOther(why) => {
                options.stop_first.store(true, Ordering::Relaxed);
                return Err(why);
            }
            Heir::Of(inherited) => {
                listener = listener.or(Some(inherited.listener));
                (before, locks) = (Some(inherited.before), inherited.locks);
            }
        }
    }
    let mut memory = Memory::expose(&parts, slot, locks)?;
    if let Some(exposer) = &memory.exposer {
        counts.extend(exposer.counts());
    }
    last_seen::answer(memory.exposer.as_ref(), &parts, &view);
    let exchange = exchange(&parts, &spec.name, &view, gate.as_ref(), &memory)?;
    let members = (Arc::clone(&parts.members), exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers)));
    let about = parts.about(parts.scheme()?);
    let goes_on = listener.as_ref().is_some_and(|(_, goes_on)| *goes_on);
    let mut edge = Edge::new(settings, listener, Arc::clone(&view), gate, members, about, counts)?;
    let (live, name) = (edge.live(), spec.name.clone());
    let (adopts, take) = adopting(&parts, (&spec.name, &shutdown), exchange.as_ref(), move |parts| {
        let entry = parts.cluster.edges.iter().find(|edge| edge.name == name);
        let prepared = entry.map(|entry| live.prepare(parts.edge_settings(entry))).transpose()?;
        let live = Arc::clone(&live);
        let publish = move || prepared.into_iter().for_each(|prepared| live.replace(prepared));
        Ok(Ready { adapter: None, publish: Box::new(publish) })
    });
    if !memory.guard(&parts, slot, (take, before.clone()), &shutdown)? {
        return overtaken(&parts, &spec.name, true);
    }
    let owner = parts.owner(Some(slot), None);
    let brain = parts.brain(parts.decider(None)?, true)?;
    let name = spec.name.clone();
    let heard = events(&spec.events, name, &parts, history.as_ref());
    let words = before.as_ref().map(|before| Arc::clone(&before.words));
    let front = Some((owner, memory.front.clone(), words));
    let shown = (Some(edge.metrics()), Some(edge.seen()));
    let mut watch = watch(&parts, owner, brain, heard, (view, front), shown, reads)?;
    watch.gatekeeper = gatekeeper;
    watch.adopts = Some(adopts);
    let (leaves, leave) = mpsc::sync_channel(1);
    watch.leaves = Some(leave);
    tell_notes(&spec.events, &parts)?;
    let pulse = watch.pulse.clone();
    let watching = Worker::start("watch", move |stop| watch.run(stop, MOVE_DRAIN_MAX))?;
    let (live, seen) = (edge.live(), edge.seen());
    let outward = Arc::new(Mutex::new(Some(Outward {
        _exchange: exchanging(exchange)?,
        _ganglia: ganglia.map(|ganglia| ganglia.start(seen, move || live.nodes())).transpose()?,
        _admin: edge.answer()?,
    })));
    let accepting = Arc::new(Mutex::new(Some(edge.listener().try_clone()?)));
    let (ends, speaks) = (Ends::new(shutdown.clone()), Arc::clone(&outward));
    let estate = Estate {
        alike,
        config: Arc::clone(&parts.config),
        leaves,
        accepting: Arc::clone(&accepting),
        goes_on,
        locks: None,
        close: Box::new(move || drop(taken(&speaks))),
        before: before.clone(),
        ends: ends.clone(),
    };
    let door = memory.open_door(&parts.run, &spec.name, estate);
    let (config, name) = (Arc::clone(&parts.config), spec.name.clone());
    let mut told = shutdown.told();
    let running = Running::start("edge", shutdown, move || {
        if let Some(before) = &before {
            let began = Instant::now();
            while !edge.is_complete() && began.elapsed() < COMPLETE_MAX && !ends.shutdown.is_told() {
                std::thread::sleep(LOOK_EVERY);
            }
            before.accept();
            tracing::info!("{name} has taken over from the process before");
        }
        let served = edge.run(async || {
            let how = told.next().await;
            // While anybody has the socket, clients connect, though nobody accepts.
            drop(taken(&accepting));
            // Its requests may take as long as those of this process.
            before.iter().for_each(|before| before.finish());
            how
        });
        drop(taken(&outward));
        before.inspect(|before| before.end(&ends.shutdown, drain_max));
        drop(watching);
        history.into_iter().for_each(Log::finish);
        served?;
        let ended = memory.end(&config).and_then(|()| ends.result());
        // Whoever knocks until then hears that it is to wait.
        drop(door);
        ended
    })?;
    Ok(Some(running.with_pulse(pulse)))
}

/// What speaks for an edge to others than its clients: they listen to one process at a time.
struct Outward {
    _exchange: Option<Worker>,
    _ganglia: Option<Worker>,
    _admin: Option<Admin>,
}

fn taken<T>(of: &Mutex<Option<T>>) -> Option<T> {
    of.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The thread that exchanges with the other fronts, if there are any.
pub(crate) fn exchanging(exchange: Option<Exchange>) -> std::io::Result<Option<Worker>> {
    exchange.map(|exchange| Worker::start("peers", move |stop| exchange.run(stop))).transpose()
}

/// What becomes of a start that a change of the cluster has overtaken: `None` to begin anew, by the file that etcd has, if the part `may`. Where
/// there is no etcd, the file that it was started with may have changed, too.
///
/// # Errors
/// If it is to end.
pub(crate) fn overtaken(parts: &Parts, name: &str, may: bool) -> Result<Option<Running>, Failure> {
    match may && parts.cluster.etcd.is_some() {
        true => Ok(None),
        false => Err(Failure::new(format!(
            "the cluster has changed while {name} was starting: start it once more"
        ))),
    }
}

/// Starts an edge or front, anew if the cluster has changed meanwhile: whoever changed it may not have waited for this part.
pub(crate) fn by_newest(
    name: &str,
    attempt: impl Fn() -> Result<Option<Running>, Failure>,
) -> Result<Running, Failure> {
    for _ in 0..STARTS_MAX {
        if let Some(running) = attempt()? {
            return Ok(running);
        }
        tracing::info!("the cluster has changed while {name} was starting: it starts anew");
    }
    Err(Failure::new(format!(
        "the cluster has changed {STARTS_MAX} times while {name} was starting: start it again once that has ended"
    )))
}

/// What a front has made ready of a newer roster: nothing fails once it goes by it.
pub(crate) struct Ready {
    /// For the proxy that it controls, if it does.
    pub(crate) adapter: Option<AdapterMembers>,
    /// Has its own requests go by it.
    pub(crate) publish: Box<dyn FnOnce() + Send>,
}

/// The thread's end of what the front of that name adopts from newer rosters, and what has it adopt them, as `prepare` makes it ready.
pub(crate) fn adopting(
    parts: &Arc<Parts>,
    (name, shutdown): (&str, &Shutdown),
    exchange: Option<&Exchange>,
    prepare: impl Fn(&Parts) -> Result<Ready, Failure> + Send + 'static,
) -> (Receiver<Adopted>, Take) {
    let (sender, adopts) = mpsc::sync_channel(1);
    let (parts, name) = (Arc::clone(parts), name.to_owned());
    let peers = exchange.map(|exchange| Arc::clone(&exchange.peers));
    let shutdown = shutdown.clone();
    let mut known = places(&parts.cluster);
    let take = move |cluster: Cluster| {
        let is_there = cluster.fronts.values().any(|front| front.name == name);
        if !is_there || cluster.standing.leaving.contains(&name) {
            tracing::info!("{name} leaves the cluster, and ends");
            parts.config.leave();
            shutdown.finish();
            return Ok(());
        }
        let newer = parts.by(cluster);
        let (peers, others) = (peers.clone(), newer.peers(&name));
        let Ready { adapter, publish } = prepare(&newer)?;
        let timing = newer.timing(newer.cluster.reconfig.drain_max)?;
        let places = places(&newer.cluster);
        let is_moved = |slot: &usize| {
            let (before, now) = (known.get(*slot), places.get(*slot));
            before.zip(now).is_some_and(|(before, now)| before.name == now.name && before != now)
        };
        let moved = (0..places.len()).filter(is_moved).map(NodeId::new).collect();
        let (adopted, answer, is_taken) = newer.adopted((adapter, timing, moved), move || {
            peers.into_iter().for_each(|peers| peers.replace(others.iter().cloned()));
            publish();
        });
        let gone = || Failure::new("the thread that decides has ended, or hangs");
        sender.try_send(adopted).map_err(|_| gone())?;
        let answered = answer.recv_timeout(ADOPT_MAX).or_else(|error| match error {
            // It is at it, or sees that nobody waits any more.
            RecvTimeoutError::Timeout if is_taken.swap(true, Ordering::AcqRel) => {
                answer.recv_timeout(ADOPT_MAX)
            }
            error => Err(error),
        });
        match answered {
            Ok(result) => {
                result?;
                known = places;
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new("the thread that decides does not answer")),
        }
    };
    (adopts, Box::new(take))
}

/// Where a node's server is. If its agent alone is elsewhere, what is known of the node stays: requests go on there, and links find the agent.
#[derive(PartialEq)]
struct Place {
    name: String,
    servers: Vec<ServerAddress>,
}

/// Where the nodes of a cluster are, by slot.
fn places(cluster: &Cluster) -> Slots<Place> {
    let place = |node: &config::Node| Place { name: node.name.clone(), servers: node.addresses.clone() };
    cluster.nodes.map(place)
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

/// Tells the caller of a part how load is collected and memory reached.
pub(crate) fn tell_notes(events: &Events, parts: &Parts) -> Result<(), Failure> {
    events(&Event::Note { text: parts.scheme_note()? });
    // On one machine all parts use the same fabric, and `up` prints it.
    if parts.cluster.secret.is_some() {
        events(&Event::Note { text: parts.fabric.note().to_owned() });
    }
    Ok(())
}

/// The exchange with the other fronts, if there are any.
pub(crate) fn exchange(
    parts: &Parts,
    name: &str,
    view: &Arc<View>,
    gate: Option<&Arc<Gate>>,
    memory: &Memory,
) -> Result<Option<Exchange>, Failure> {
    let peers = parts.peers(name);
    if peers.is_empty() && memory.share.is_none() {
        return Ok(None);
    }
    Ok(Some(Exchange {
        view: Arc::clone(view),
        gate: gate.cloned(),
        peers: Arc::new(Peers::new(peers)),
        room: parts.cluster.capacity.fronts,
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
    let told = Ganglia::new(ganglia);
    told.map(Some).map_err(|error| Failure::new(format!("ganglia: cannot reach gmond at {gmond}: {error}")))
}

/// The thread that scans and decides, for a front or, in server-based reconfiguration, for a node.
pub(crate) fn watch(
    parts: &Arc<Parts>,
    owner: EdgeId,
    brain: Brain,
    events: EdgeEvents,
    (view, front): (Arc<View>, Option<Front>),
    (metrics, shown): (Option<Arc<Metrics>>, Option<Arc<ScanDisplay>>),
    reads: Arc<ReadCounts>,
) -> Result<Watch, Failure> {
    // Where the board may be away while others serve.
    let far = front.as_ref().filter(|_| parts.cluster.etcd.is_some());
    let name = far.map(|(slot, ..)| &parts.cluster.fronts[slot.index()].name);
    let seen = name.map(|name| SeenEpoch::of(name, &parts.cluster, &parts.run));
    // A node sends no requests, and so probes no servers.
    let servers = if front.is_some() { parts.cluster.tcp_servers() } else { Default::default() };
    let mut links = parts.links(front)?;
    let loads = parts.read_loads(&mut links, reads)?;
    Ok(Watch {
        view,
        metrics,
        seen: shown,
        adapter: None,
        adopts: None,
        seen_epoch: seen.as_ref().map_or(0, SeenEpoch::read),
        keep_epoch: Box::new(move |epoch| {
            if let Some(Err(error)) = seen.as_ref().map(|seen| seen.keep(epoch)) {
                tracing::warn!(%error, "started again, this part waits until it can read the board");
            }
        }),
        members: parts.members.load_full(),
        links,
        loads,
        weights: parts.cluster.balance.weights,
        capacities: parts.capacities(),
        servers,
        brain,
        gatekeeper: None,
        mover: parts.mover(owner)?,
        sensitivity: parts.cluster.reconfig.sensitivity,
        events,
        leaves: None,
        pulse: Pulse::new(parts.cluster.reconfig.sensitivity),
    })
}

/// The same thread for a node, beside its server.
pub(crate) fn watch_for_node(
    told: &Events,
    parts: &Arc<Parts>,
    history: Option<&Log>,
    node: usize,
) -> Result<Watch, Failure> {
    let owner = parts.owner(None, Some(node));
    let brain = parts.brain(parts.decider(Some(NodeId::new(node)))?, false)?;
    let name = parts.node_name(NodeId::new(node));
    let events = events(told, name, parts, history);
    watch(parts, owner, brain, events, (Arc::new(parts.view()), None), (None, None), Arc::default())
}

pub(crate) type EdgeEvents = Box<dyn FnMut(EdgeEvent) + Send>;

/// Passes on the events of the mover of that name, with names instead of numbers.
pub(crate) fn events(told: &Events, name: String, parts: &Arc<Parts>, history: Option<&Log>) -> EdgeEvents {
    let (told, parts) = (Arc::clone(told), Arc::clone(parts));
    let recorder = history.map(Log::recorder);
    let mut failed = None;
    Box::new(move |event| {
        let at_ns = sidelong_load::monotonic_ns();
        let event = match event {
            EdgeEvent::Ready => Event::Ready,
            EdgeEvent::Ended(report) => {
                let record = Record::of(&parts, &name, &report);
                let event = ended::event(&parts, &report, &record);
                // What keeps a node where it is may last for hours, and movers try again at each scan.
                let is_again = |(at, last): &(Time, _)| {
                    *last == (report.task.site(), record.node.clone(), report.outcome)
                        && report.ended.since(*at) < FAILURES_EVERY
                };
                let is_news = !report.was_late() && !failed.as_ref().is_some_and(is_again);
                if is_news && !report.moved() {
                    failed = Some((report.ended, (report.task.site(), record.node.clone(), report.outcome)));
                }
                if let Some(recorder) = recorder.as_ref().filter(|_| is_news) {
                    recorder.record(record);
                }
                event
            }
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
        told(&event);
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_start_that_a_change_overtakes_begins_anew_a_bounded_number_of_times() {
        let start = |changes: usize| {
            let attempts = Cell::new(0);
            let started = by_newest("edge1", || {
                attempts.set(attempts.get() + 1);
                let running = || Running::start("edge", Shutdown::new(), || Ok(()));
                (attempts.get() > changes).then(running).transpose()
            });
            (attempts.get(), started.is_ok())
        };
        assert_eq!(start(0), (1, true));
        assert_eq!(start(2), (3, true));
        assert_eq!(start(usize::MAX), (STARTS_MAX, false));
    }
}
