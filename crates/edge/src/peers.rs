//! What the edges of a cluster know of each other: each one's requests at every node, the answers that it has seen, and
//! its verdict on every site. There is no coordinator.
//!
//! Each edge exposes a region of its own, its share ([`ShareMap`]), and reads those of the others one-sidedly, as it
//! reads the nodes' records. A separate thread does this. So an edge that cannot be reached delays neither the watch
//! thread nor a request, and an edge whose watch thread hangs still shares its counts. A cluster with one edge has
//! neither thread nor region.
//!
//! A share counts while its beat rises, by the reader's clock. If an edge is dead, hangs or cannot be reached, its
//! share is dropped after the time from which records are stale: its requests ended with it, or show only in the nodes'
//! records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sidelong_fabric::{
    Access, Directory, Error, Host, Initiator, LinkRef, OpError, Pace, Patience, ReadOutcome, Reader, Region,
    RegionSpec, Scanner, Target,
};
use sidelong_layout::{Instance, NodeId, NodeShare, RegionKind, ShareMap, SiteId, Time};
use sidelong_policy::admission::{Verdict, Why};

use crate::clock;
use crate::gate::Gate;
use crate::view::View;

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

/// The other edges as last heard, for display.
#[derive(Debug)]
pub struct Peers(Box<[PeerSeen]>);

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
        let seen = |name| PeerSeen { name, heard_ns: AtomicU64::new(0), unanswered: AtomicU64::new(0) };
        Peers(names.into_iter().map(seen).collect())
    }

    /// Each one's name, when it was last heard, and its unanswered requests then.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<Time>, u64)> {
        self.0.iter().map(|peer| {
            let heard_ns = peer.heard_ns.load(Ordering::Relaxed);
            let heard_at = (heard_ns > 0).then_some(Time::from_ns(heard_ns));
            (peer.name.as_str(), heard_at, peer.unanswered.load(Ordering::Relaxed))
        })
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
            // As in the watch thread: missed scans are skipped.
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
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
    map: ShareMap,
    stale: Duration,
    links: Vec<LinkRef>,
    heard: Vec<PeerState>,
    /// By node, the answers that the others have seen since the last scan.
    more: Vec<u64>,
}

impl Thread {
    pub(crate) fn new(with: Exchange) -> Self {
        let Exchange { view, gate, peers, share, directory, initiator, period: _ } = with;
        let map = ShareMap { nodes: view.nodes().count(), sites: view.sites().count() };
        let patience = Patience { tries_max: 1, ..Patience::default() };
        let mut scanner = Scanner::new(directory, initiator, (peers.0.len(), 0), patience);
        scanner.set_pace(Pace::WHOLE);
        let link = |(item, peer): (usize, &PeerSeen)| {
            let (region, shapes) = (&*share_region(&peer.name), &[(RegionKind::Share, map.len())]);
            let access = Access::ReadOnly;
            scanner.link(&Target { region, shapes, guess: 0, access, items: item..item + 1 })
        };
        let shares = Shares {
            map,
            stale: view.stale(),
            links: peers.0.iter().enumerate().map(link).collect(),
            heard: peers.0.iter().map(|_| PeerState::new(map)).collect(),
            more: vec![0; map.nodes],
        };
        // Memory that outlived an earlier life still has its beat.
        let beat = share.as_ref().map_or(0, |share| share.load(ShareMap::BEAT));
        Thread { view, gate, peers, share, map, beat, scanner, shares }
    }

    pub(crate) fn scan(&mut self, now: Time) {
        self.tell(now);
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
        let Thread { view, gate, peers, scanner, shares: Shares { stale, links, heard, more, .. }, .. } =
            self;
        for ((link, heard), seen) in links.iter().zip(&mut *heard).zip(&peers.0) {
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
            let unanswered = heard.nodes.iter().map(|node| u64::from(node.in_flight)).sum();
            seen.heard_ns.store(heard.rose_at.map_or(0, Time::as_ns), Ordering::Relaxed);
            seen.unanswered.store(if fresh { unanswered } else { 0 }, Ordering::Relaxed);
        }
        let counted = || heard.iter().filter(|heard| heard.counts);
        for (index, more) in more.iter().enumerate() {
            let sum = counted().fold(0, |sum: u32, heard| sum.saturating_add(heard.nodes[index].in_flight));
            view.hear(NodeId::new(index), sum, *more);
        }
        view.heard(now);
        if let Some(gate) = gate {
            for site in view.sites() {
                gate.hear(site, counted().map(|heard| heard.verdicts[site.index()]));
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
        (ShareMap::INCARNATION, self.map.len() - ShareMap::INCARNATION)
    }

    fn take(&mut self, item: usize, words: Result<&[u64], OpError>, now: Time) -> ReadOutcome {
        if let Ok(words) = words {
            self.heard[item].see(words, self.stale, now, &mut self.more);
        }
        ReadOutcome::Busy
    }
}

/// What one edge has shared.
#[derive(Debug)]
struct PeerState {
    map: ShareMap,
    /// Its life, and its beat then; `None` before it was first seen.
    life: Option<(u64, u64)>,
    /// When the beat was seen to rise.
    rose_at: Option<Time>,
    nodes: Vec<NodeShare>,
    verdicts: Vec<Verdict>,
    /// Whether it was fresh at the last scan.
    counts: bool,
}

impl PeerState {
    fn new(map: ShareMap) -> Self {
        PeerState {
            map,
            life: None,
            rose_at: None,
            nodes: vec![NodeShare::default(); map.nodes],
            verdicts: vec![Verdict::open(Why::Blind); map.sites],
            counts: false,
        }
    }

    /// Takes a copy from the incarnation on, and adds the answers since the previous one to `more`.
    fn see(&mut self, words: &[u64], stale: Duration, now: Time, more: &mut [u64]) {
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
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let new = NodeShare::decode(at(self.map.node(NodeId::new(index))));
            if was_fresh {
                more[index] = more[index].saturating_add(new.answers_since(*node));
            }
            *node = new;
        }
        for (index, verdict) in self.verdicts.iter_mut().enumerate() {
            *verdict = Verdict::decode(at(self.map.verdict(SiteId::new(index))));
        }
    }

    fn is_fresh(&self, now: Time, stale: Duration) -> bool {
        self.rose_at.is_some_and(|rose_at| now.since(rose_at) <= stale)
    }
}

#[cfg(test)]
mod tests;
