//! `sidelong edge`: one edge of a cluster file.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_edge::{
    Admission, Edge, Event as EdgeEvent, Exchange, Ganglia, Gate, Peers, Settings, View, Watch, offer_share,
};
use sidelong_fabric::Region;
use sidelong_layout::{EdgeId, ShareMap};
use sidelong_reconfig::{Ended, How, offer_board};
use sidelong_state::{Outcome, PaperOutcome};

use crate::cli::PartArgs;
use crate::event::Event;
use crate::fabric::Offer;
use crate::failure::Failure;
use crate::looks::LookCounts;
use crate::parent::{self, end_with_parent};
use crate::parts::Parts;

/// A move under way when the edge is told to end has this long.
const MOVE_DRAIN_MAX: Duration = Duration::from_secs(1);

/// Pingora has this long to begin to listen once the view is there.
const LISTEN_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args)?;
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
    let settings = parts.edge_settings(index);
    let mut counts = parts.fabric.counts();
    let ganglia = ganglia(&parts, &settings)?;
    counts.extend(ganglia.as_ref().map(Ganglia::counts));
    let looks = Arc::new(LookCounts::default());
    counts.push(Arc::clone(&looks).counts());
    let admission = parts.admission()?;
    let gate = admission.as_ref().map(Admission::gate);
    let memory = Memory::offer(&parts, index)?;
    if let Some(offer) = &memory.offer {
        counts.extend(offer.counts());
    }
    let exchange = exchange(&parts, index, &view, gate.as_ref(), &memory)?;
    let peers = exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers));
    let edge = Edge::new(settings, Arc::clone(&view), gate, peers, parts.about(parts.scheme()?), counts)?;
    let owner = parts.owner(Some(index), None);
    let mut watch = watch(&parts, owner, args.events, view, Some(&edge), looks)?;
    watch.admission = admission;
    if args.events {
        Event::Note { text: parts.scheme_note()? }.tell();
        // On one machine all parts take the same, and `up` says which.
        if parts.cluster.secret.is_some() {
            Event::Note { text: parts.fabric.note().to_owned() }.tell();
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |name: &str, run: Box<dyn FnOnce(&AtomicBool) + Send>| {
        let stop = Arc::clone(&stop);
        std::thread::Builder::new().name(name.into()).spawn(move || run(&stop))
    };
    let exchange =
        exchange.map(|exchange| spawn("peers", Box::new(|stop| exchange.run(stop)))).transpose()?;
    let watch = spawn("watch", Box::new(|stop| watch.run(stop, MOVE_DRAIN_MAX)))?;
    let _ganglia = ganglia.map(|ganglia| ganglia.start(edge.seen())).transpose()?;
    edge.run()?;
    stop.store(true, Ordering::Relaxed);
    for thread in [Some(watch), exchange].into_iter().flatten() {
        // Its panic was printed where it happened.
        let _ = thread.join();
    }
    Ok(())
}

/// What an edge offers to others, for as long as it lives.
struct Memory {
    /// None where there is nothing to offer.
    offer: Option<Offer>,
    /// What it shares with other edges, where there are any.
    share: Option<Region>,
    _board: Option<Region>,
}

impl Memory {
    fn offer(parts: &Parts, index: usize) -> Result<Self, Failure> {
        let edge = &parts.cluster.edges[index];
        let shares = parts.cluster.edges.len() > 1 && parts.shares(edge);
        if !shares && !parts.fabric.shares_memory() {
            return Ok(Memory { offer: None, share: None, _board: None });
        }
        let any_port = SocketAddr::new(edge.listen.ip(), 0);
        let offer = parts.fabric.offer(edge.fabric_listen.unwrap_or(any_port))?;
        let share = match shares {
            false => None,
            true => {
                let map = ShareMap { nodes: parts.cluster.nodes.len(), sites: parts.cluster.sites.len() };
                let share = offer_share(&offer.host, &edge.name, map, parts.began_ms)?;
                offer.publish(&share)?;
                Some(share)
            }
        };
        // In shared memory the board is nobody's: the first process to come makes it. Else it is the first node's.
        let board = match parts.fabric.shares_memory() {
            false => None,
            true => Some(offer_board(&offer.host, parts.board_map(), &parts.board_init(), parts.began_ms)?),
        };
        Ok(Memory { offer: Some(offer), share, _board: board })
    }
}

/// Who tells the other edges, and hears them, where there are any.
fn exchange(
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

/// Who tells a Ganglia monitor, where there is one to be told by this edge.
fn ganglia(parts: &Parts, settings: &Settings) -> Result<Option<Ganglia>, Failure> {
    let Some(ganglia) = parts.ganglia_settings(&settings.name) else { return Ok(None) };
    let gmond = ganglia.gmond;
    let told = Ganglia::new(ganglia, &settings.nodes);
    told.map(Some)
        .map_err(|error| Failure::new(format!("ganglia: there is no way to gmond {gmond}: {error}")))
}

/// The thread that looks and decides, for an edge or (R's baseline) for a node.
fn watch(
    parts: &Arc<Parts>,
    owner: EdgeId,
    tell: bool,
    view: Arc<View>,
    edge: Option<&Edge>,
    looks: Arc<LookCounts>,
) -> Result<Watch, Failure> {
    Ok(Watch {
        view,
        metrics: edge.map(Edge::metrics),
        seen: edge.map(Edge::seen),
        links: parts.links()?,
        loads: parts.loads(looks)?,
        weights: parts.weights(),
        capacities: parts.capacities(),
        sites: parts.sites(),
        admission: None,
        decider: parts.decider(None)?,
        mover: parts.mover(owner)?,
        sensitivity: parts.cluster.reconfig.sensitivity,
        events: events(Arc::clone(parts), tell, edge.map(Edge::listen)),
    })
}

/// The same thread beside a node's own server.
pub(crate) fn watch_for_node(parts: &Arc<Parts>, node: usize, tell: bool) -> Result<Watch, Failure> {
    let owner = parts.owner(None, Some(node));
    let mut watch = watch(parts, owner, tell, Arc::new(parts.view()), None, Arc::default())?;
    watch.decider = parts.decider(Some(sidelong_layout::NodeId::new(node)))?;
    Ok(watch)
}

/// What happens, by name. An edge that listens at `listen` is ready when clients can connect, too.
fn events(parts: Arc<Parts>, tell: bool, listen: Option<SocketAddr>) -> Box<dyn FnMut(EdgeEvent) + Send> {
    Box::new(move |event| {
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
        tracing::info!(?event);
        if tell {
            event.tell();
        }
    })
}

/// Until someone listens there, within reason.
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
            from: plan.from.map(|site| parts.site_name(site)),
            to: parts.site_name(plan.to),
            at_ns,
            took_ns: ended.ended.since(ended.began).as_nanos() as u64,
        },
        plan => Event::Ended {
            site: parts.site_name(ended.site),
            node: plan.map(|plan| parts.node_name(plan.node)),
            how: how(ended.how).to_owned(),
            at_ns,
        },
    }
}

fn how(how: How) -> &'static str {
    match how {
        How::Lease(Outcome::Moved) | How::Paper(PaperOutcome::Moved) => "moved",
        How::Lease(Outcome::Busy) | How::Paper(PaperOutcome::Busy) => "busy",
        How::Lease(Outcome::Recent) | How::Paper(PaperOutcome::Recent) => "recent",
        How::Lease(Outcome::AtFloor) => "the donor is at its floor",
        How::Lease(Outcome::NodeChanged) | How::Paper(PaperOutcome::NodeChanged) => "the node had changed",
        How::Lease(Outcome::NotDrained) => "the node did not finish its requests in time",
        How::Lease(Outcome::Contended) => "the donor's budget kept changing",
        How::Lease(Outcome::Unreachable) => "a word could not be reached",
        How::Lease(Outcome::Uncertain { .. }) => "completions were lost; repaired",
        How::Lease(Outcome::Recovered { .. }) => "repaired",
        How::Lease(Outcome::LeaseLost) => "the lease was lost",
        How::Paper(PaperOutcome::Lost) => "completions were lost",
    }
}
