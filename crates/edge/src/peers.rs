//! What the edges of a cluster know of each other: each one's requests at every node, the answers that it has seen, and
//! its verdict on every site. There is no coordinator.
//!
//! Each edge exposes a region of its own, its share ([`ShareMap`]), and reads those of the others one-sidedly, as it
//! reads the nodes' records. A separate thread does this. So an edge that cannot be reached delays neither the watch
//! thread nor a request, and an edge whose watch thread hangs still shares its counts. An edge that is alone
//! looks for others now and then.
//!
//! A share counts while its beat rises, by the reader's clock. If an edge is dead, hangs or cannot be reached, its
//! share is dropped after the time from which records are stale: its requests ended with it, or show only in the nodes'
//! records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sidelong_fabric::{
    Access, Directory, Error, Host, Initiator, LinkRef, OpError, Pace, Patience, ReadOutcome, Reader, Region,
    RegionSpec, Scanner, Target,
};
use sidelong_layout::{Instance, NodeId, NodeShare, RegionKind, ShareMap, SiteId, Time};
use sidelong_policy::admission::{Verdict, Why};

use crate::clock;
use crate::gate::Gate;
use crate::view::View;

/// Between two looks for other edges while there is none.
const ALONE: Duration = Duration::from_millis(50);

/// Name of the region that holds an edge's share.
pub fn share_region(edge: &str) -> String {
    format!("{edge}.share")
}

/// Exposes the share of the edge of that name. It counts once [`Exchange::run`] has begun.
///
/// # Errors
/// If memory cannot be allocated, or a live process has the edge's name.
pub fn expose_share(host: &Host, edge: &str, map: ShareMap, instance: Instance) -> Result<Region, Error> {
    let (kind, access) = (RegionKind::Share, Access::ReadOnly);
    host.expose(&RegionSpec { name: &share_region(edge), kind, len: map.len(), access, instance }, |_| ())
}

/// The other edges, which may change while they are read, and how each was last heard.
#[derive(Debug)]
pub struct Peers(ArcSwap<Vec<Arc<PeerSeen>>>);

#[derive(Debug)]
struct PeerSeen {
    name: String,
    /// When its beat last rose, in ns; 0 for never.
    heard_ns: AtomicU64,
    unanswered: AtomicU64,
}

impl Peers {
    /// The peers of these names, none of them heard yet.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let peers = Peers(ArcSwap::default());
        peers.replace(names);
        peers
    }

    /// Others are read from now on, as far as they were not before.
    pub fn replace(&self, names: impl IntoIterator<Item = String>) {
        let last = self.0.load();
        let seen = |name: String| match last.iter().find(|peer| peer.name == name) {
            Some(known) => Arc::clone(known),
            None => Arc::new(PeerSeen { name, heard_ns: AtomicU64::new(0), unanswered: AtomicU64::new(0) }),
        };
        self.0.store(Arc::new(names.into_iter().map(seen).collect()));
    }

    /// Each one's name, when it was last heard, and its unanswered requests then.
    pub(crate) fn heard(&self) -> Vec<(String, Option<Time>, u64)> {
        let heard = |peer: &Arc<PeerSeen>| {
            let heard_ns = peer.heard_ns.load(Ordering::Relaxed);
            let heard_at = (heard_ns > 0).then_some(Time::from_ns(heard_ns));
            (peer.name.clone(), heard_at, peer.unanswered.load(Ordering::Relaxed))
        };
        self.0.load().iter().map(heard).collect()
    }
}

/// Everything that the thread needs.
pub struct Exchange {
    /// Provides this edge's requests, and takes those of the others.
    pub view: Arc<View>,
    /// Provides this edge's verdicts, and takes those of the others.
    pub gate: Option<Arc<Gate>>,
    /// The other edges, and their state for display.
    pub peers: Arc<Peers>,
    /// Most edges that there may be.
    pub room: usize,
    /// This edge's share; `None` if this edge cannot be reached.
    pub share: Option<Region>,
    /// Where the others' shares are found.
    pub directory: Arc<dyn Directory>,
    /// The links to them.
    pub initiator: Initiator,
    /// Interval of scans.
    pub period: Duration,
}

impl Exchange {
    /// Publishes and reads shares until `stop`.
    pub fn run(self, stop: &AtomicBool) {
        let period = self.period;
        let mut thread = Thread::new(self);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            thread.scan(clock::now());
            // Alone it only waits for others.
            let period = if thread.shares.peers.is_empty() { ALONE } else { period };
            // As in the watch thread: missed scans are skipped.
            next = (next + period).max(Instant::now());
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The thread's own state.
pub(crate) struct Thread {
    view: Arc<View>,
    gate: Option<Arc<Gate>>,
    peers: Arc<Peers>,
    share: Option<Region>,
    map: ShareMap,
    beat: u64,
    scanner: Scanner,
    shares: Shares,
}

/// The shares of the other edges.
struct Shares {
    /// The part of what peers expose that has words of nodes and sites that there are.
    used: ShareMap,
    stale: Duration,
    /// The edges, as far as they are linked.
    peers: Arc<Vec<Arc<PeerSeen>>>,
    links: Vec<LinkRef>,
    heard: Vec<PeerState>,
    /// By node, the answers that the others have seen since the last scan.
    more: Vec<u64>,
}

impl Thread {
    pub(crate) fn new(with: Exchange) -> Self {
        let Exchange { view, gate, peers, room, share, directory, initiator, period: _ } = with;
        let (nodes, sites) = view.room();
        let map = ShareMap { slots: nodes.max(sites) };
        let patience = Patience { tries_max: 1, ..Patience::default() };
        let mut scanner = Scanner::new(directory, initiator, (room, 0), patience);
        scanner.set_pace(Pace::WHOLE);
        let shares = Shares {
            used: ShareMap { slots: 0 },
            stale: view.stale(),
            peers: Arc::default(),
            links: Vec::new(),
            heard: Vec::new(),
            more: vec![0; nodes],
        };
        // Memory that outlived an earlier life still has its beat.
        let beat = share.as_ref().map_or(0, |share| share.load(ShareMap::BEAT));
        Thread { view, gate, peers, share, map, beat, scanner, shares }
    }

    /// Reads the edges that there are now.
    fn adopt(&mut self) {
        let Thread { peers, scanner, shares, map, .. } = self;
        if Arc::ptr_eq(&shares.peers, &peers.0.load()) {
            return;
        }
        let now = peers.0.load_full();
        // Each keeps what is known of it.
        let mut known: Vec<_> =
            shares.peers.iter().map(|peer| peer.name.clone()).zip(shares.heard.drain(..)).collect();
        shares.links.drain(..).for_each(|link| scanner.unlink(link));
        for (item, peer) in now.iter().enumerate() {
            let (region, shapes) = (&*share_region(&peer.name), &[(RegionKind::Share, map.len())]);
            let access = Access::ReadOnly;
            shares.links.push(scanner.link(&Target {
                region,
                shapes,
                guess: 0,
                access,
                items: item..item + 1,
            }));
            let place = known.iter().position(|(name, _)| *name == peer.name);
            shares.heard.push(place.map_or_else(|| PeerState::new(*map), |place| known.swap_remove(place).1));
        }
        shares.peers = now;
    }

    pub(crate) fn scan(&mut self, now: Time) {
        self.adopt();
        self.tell(now);
        let slots = self.view.nodes().count().max(self.view.sites().count());
        if std::mem::replace(&mut self.shares.used, ShareMap { slots }) != self.shares.used {
            self.scanner.readers_changed();
        }
        self.shares.more.fill(0);
        self.scanner.scan(now, &mut [&mut self.shares]);
        self.sum(now);
    }

    fn tell(&mut self, now: Time) {
        let Thread { share: Some(share), view, gate, map, beat, .. } = self else { return };
        for node in view.nodes() {
            share.store(map.node(node), view.share(node).encode(), Ordering::Relaxed);
        }
        let knows = !view.is_stale(now);
        for site in view.sites() {
            let own = gate.as_ref().filter(|_| knows).map(|gate| gate.verdict(site));
            let verdict = own.unwrap_or(Verdict::open(Why::Blind));
            share.store(map.verdict(site), verdict.encode(), Ordering::Relaxed);
        }
        *beat = beat.wrapping_add(1);
        share.store(ShareMap::BEAT, *beat, Ordering::Release);
    }

    /// Sums up the fresh shares, and logs edges whose state has changed.
    fn sum(&mut self, now: Time) {
        let Thread { view, gate, scanner, shares: Shares { used, stale, peers, links, heard, more }, .. } =
            self;
        for ((link, heard), seen) in links.iter().zip(&mut *heard).zip(peers.iter()) {
            let fresh = heard.is_fresh(now, *stale);
            // A link that works may lead to memory that its edge has abandoned for a new region.
            if fresh {
                scanner.trust(*link, now)
            } else {
                scanner.doubt(*link)
            }
            if fresh != heard.counts {
                match fresh {
                    true => tracing::info!(edge = seen.name, "another edge is heard: its requests count"),
                    false => tracing::warn!(edge = seen.name, "another edge is not heard: it is left out"),
                }
                heard.counts = fresh;
            }
            let slots = heard.slots.iter().take(used.slots);
            let unanswered = slots.map(|(node, _)| u64::from(node.in_flight)).sum();
            seen.heard_ns.store(heard.rose_at.map_or(0, Time::as_ns), Ordering::Relaxed);
            seen.unanswered.store(if fresh { unanswered } else { 0 }, Ordering::Relaxed);
        }
        let counted = || heard.iter().filter(|heard| heard.counts);
        for (index, more) in more.iter().enumerate().take(view.nodes().count()) {
            let sum = counted().fold(0, |sum: u32, heard| sum.saturating_add(heard.slots[index].0.in_flight));
            view.hear(NodeId::new(index), sum, *more);
        }
        view.heard(now);
        if let Some(gate) = gate {
            for site in view.sites() {
                gate.hear(site, counted().map(|heard| heard.slots[site.index()].1));
            }
            gate.heard(now);
        }
    }
}

impl Reader for Shares {
    fn link(&self, item: usize) -> Option<LinkRef> {
        Some(self.links[item])
    }

    fn place(&mut self, _item: usize, _shape: usize) -> (usize, usize) {
        (ShareMap::INCARNATION, self.used.len() - ShareMap::INCARNATION)
    }

    fn take(&mut self, item: usize, words: Result<&[u64], OpError>, now: Time) -> ReadOutcome {
        if let Ok(words) = words {
            self.heard[item].see(words, self.used, (self.stale, now), &mut self.more);
        }
        ReadOutcome::Busy
    }
}

/// What one edge has shared.
#[derive(Debug)]
struct PeerState {
    /// Its life, and its beat then; `None` before it was first seen.
    life: Option<(u64, u64)>,
    /// When the beat was seen to rise.
    rose_at: Option<Time>,
    /// By slot, of the node and of the site that have it.
    slots: Vec<(NodeShare, Verdict)>,
    /// Whether it was fresh at the last scan.
    counts: bool,
}

impl PeerState {
    fn new(map: ShareMap) -> Self {
        let slots = vec![(NodeShare::default(), Verdict::open(Why::Blind)); map.slots];
        PeerState { life: None, rose_at: None, slots, counts: false }
    }

    /// Takes a copy of what is `used` from the incarnation on, and adds the answers since the previous one to `more`, by node.
    fn see(&mut self, words: &[u64], used: ShareMap, (stale, now): (Duration, Time), more: &mut [u64]) {
        let at = |offset: usize| words[(offset - ShareMap::INCARNATION) / 8];
        let life = (at(ShareMap::INCARNATION), at(ShareMap::BEAT));
        let before = self.life.replace(life);
        if before == Some(life) {
            return;
        }
        // Answers count from the last copy of this life, if that is recent. Otherwise the answers of a long time would
        // seem to have come at once.
        let follows = before.is_some_and(|(incarnation, _)| incarnation == life.0);
        let was_fresh = follows && self.is_fresh(now, stale);
        self.rose_at = follows.then_some(now);
        for (index, (node, verdict)) in self.slots.iter_mut().enumerate().take(used.slots) {
            let new = NodeShare::decode(at(used.node(NodeId::new(index))));
            if let Some(more) = more.get_mut(index).filter(|_| was_fresh) {
                *more = more.saturating_add(new.answers_since(*node));
            }
            *node = new;
            *verdict = Verdict::decode(at(used.verdict(SiteId::new(index))));
        }
    }

    fn is_fresh(&self, now: Time, stale: Duration) -> bool {
        self.rose_at.is_some_and(|rose_at| now.since(rose_at) <= stale)
    }
}

#[cfg(test)]
mod tests;
