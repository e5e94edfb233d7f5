//! What the edges of a cluster know of each other: how many requests each has at every node, how many it has seen
//! answered, and its verdict on every site. Nobody coordinates them.
//!
//! Each offers a region of its own, its share ([`ShareMap`]), and reads those of the others from the side, as it reads the
//! nodes' records. That is a thread's own work: an edge that cannot be reached keeps neither the watch thread nor a request
//! waiting, and one whose watch thread hangs still tells what it has under way. A cluster with one edge has neither
//! thread nor region.
//!
//! A share counts while its beat rises, by the clock of who reads it. Of an edge that is dead, hangs or cannot be reached
//! everything is left out after the time from which records are old: its requests were cut off with it, or are seen in
//! the nodes' records alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sidelong_fabric::{
    Access, Batch, Directory, Error, Host, Initiator, LinkId, OpError, Region, RegionSpec,
};
use sidelong_layout::{NodeId, NodeShare, RegionKind, ShareMap, SiteId, Time};
use sidelong_policy::admission::{Verdict, Why};
use sidelong_reconfig::Backoff;

use crate::clock;
use crate::gate::Gate;
use crate::view::View;

/// How long the reads of all shares may take together.
const READ_MAX: Duration = Duration::from_millis(10);
/// To connect to one edge, of which a look tries one.
const CONNECT_MAX: Duration = Duration::from_millis(50);
/// Pauses between tries to connect: the first, doubled up to the last.
const RECONNECT_NS: (u64, u64) = (10_000_000, 1_000_000_000);
/// An edge that has not answered in time is not asked for so long, doubled up to the last.
const SILENCE_NS: (u64, u64) = (20_000_000, 320_000_000);

/// The name of the region with an edge's share.
pub fn share_region(edge: &str) -> String {
    format!("{edge}.share")
}

/// Offers the share of the edge of that name, in its life `incarnation`. It counts once [`Exchange::run`] has begun.
///
/// # Errors
/// Where memory cannot be had, or a live process has the edge's name.
pub fn offer_share(host: &Host, edge: &str, map: ShareMap, incarnation: u64) -> Result<Region, Error> {
    let (kind, access) = (RegionKind::Share, Access::ReadOnly);
    host.offer(&RegionSpec { name: &share_region(edge), kind, len: map.len(), access, incarnation }, |_| ())
}

/// The other edges as last heard, for people.
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
    /// Those of these names, none of them heard yet.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let seen = |name| PeerSeen { name, heard_ns: AtomicU64::new(0), unanswered: AtomicU64::new(0) };
        Peers(names.into_iter().map(seen).collect())
    }

    /// Each one's name, when it was last heard, and its requests that were not answered then.
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
    /// Whose requests it tells, and where it says what the others have.
    pub view: Arc<View>,
    /// Whose verdicts it tells, likewise.
    pub gate: Option<Arc<Gate>>,
    /// Whom it hears, and what it shows people of them.
    pub peers: Arc<Peers>,
    /// Where it tells; none where this edge cannot be reached.
    pub share: Option<Region>,
    /// Where the others' shares are found.
    pub directory: Arc<dyn Directory>,
    /// How they are reached.
    pub initiator: Initiator,
    /// Between two looks.
    pub period: Duration,
}

impl Exchange {
    /// Tells and hears until `stop`.
    pub fn run(self, stop: &AtomicBool) {
        let period = self.period;
        let mut thread = Thread::new(self);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            thread.look(clock::now());
            // As the watch thread: a look that was missed is not made up for.
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The thread's own.
struct Thread {
    with: Exchange,
    map: ShareMap,
    beat: u64,
    links: Vec<Link>,
    heard: Vec<Heard>,
    batch: Batch,
    /// By node, the answers that the others have seen since the last look.
    more: Vec<u64>,
}

impl Thread {
    fn new(with: Exchange) -> Self {
        let map = ShareMap { nodes: with.view.nodes().count(), sites: with.view.sites().count() };
        let names = || with.peers.iter().map(|(name, ..)| name);
        Thread {
            map,
            // An earlier life's is in memory that outlived it.
            beat: with.share.as_ref().map_or(0, |share| share.load(ShareMap::BEAT)),
            links: names().map(|name| Link::new(share_region(name))).collect(),
            heard: names().map(|_| Heard::new(map)).collect(),
            batch: Batch::new(),
            more: vec![0; map.nodes],
            with,
        }
    }

    fn look(&mut self, now: Time) {
        self.tell(now);
        self.connect(now);
        self.read(now);
        self.sum(now);
    }

    fn tell(&mut self, now: Time) {
        let Exchange { share: Some(share), view, gate, .. } = &self.with else { return };
        for node in view.nodes() {
            share.store(self.map.node(node), view.share(node).encode(), Ordering::Relaxed);
        }
        let knows = !view.is_stale(now);
        for site in view.sites() {
            let own = gate.as_ref().filter(|_| knows).map(|gate| gate.verdict(site));
            let verdict = own.unwrap_or(Verdict::open(Why::Blind));
            share.store(self.map.verdict(site), verdict.encode(), Ordering::Relaxed);
        }
        self.beat += 1;
        share.store(ShareMap::BEAT, self.beat, Ordering::Release);
    }

    /// Tries one of those that are not heard and whose time has come: a link that works may lead to memory that its edge
    /// has left for a new region.
    fn connect(&mut self, now: Time) {
        let stale = self.with.view.stale();
        let links = self.links.iter_mut().zip(&self.heard);
        let wanting = links.filter(|(link, heard)| {
            link.retry.is_due(now) && (link.id.is_none() || !heard.is_fresh(now, stale))
        });
        let Some((link, _)) = wanting.min_by_key(|(link, _)| link.retry.due()) else { return };
        let (initiator, directory) = (&mut self.with.initiator, &*self.with.directory);
        let key = directory.find(&link.region, RegionKind::Share, self.map.len(), Access::ReadOnly);
        match key.and_then(|key| initiator.connect(&key, CONNECT_MAX)) {
            Ok(id) => {
                link.problem = None;
                if let Some(old) = link.id.replace(id) {
                    initiator.close(old);
                }
            }
            Err(error) => link.complain(&error),
        }
        // A link that is had may yet lead nowhere: it is of use once its edge is heard.
        link.retry.failed(now);
    }

    fn read(&mut self, now: Time) {
        self.batch.clear();
        let (batch, bytes) = (&mut self.batch, self.map.len() - ShareMap::INCARNATION);
        let asked = |link: &Link| link.id.filter(|_| link.silence.is_due(now));
        let ops: Vec<_> = self
            .links
            .iter()
            .map(|link| Some(batch.read(asked(link)?, ShareMap::INCARNATION, bytes)))
            .collect();
        if ops.iter().any(Option::is_some) {
            self.with.initiator.run(&mut self.batch, READ_MAX);
        }
        self.more.fill(0);
        for ((link, heard), op) in self.links.iter_mut().zip(&mut self.heard).zip(ops) {
            let Some(op) = op else { continue };
            match self.batch.words(op) {
                Ok(words) => {
                    link.silence.succeeded(now);
                    heard.see(words, self.with.view.stale(), now, &mut self.more);
                }
                Err(OpError::Timeout) => link.silence.failed(now),
                Err(_) => {
                    let broken = link.id.take();
                    broken.into_iter().for_each(|id| self.with.initiator.close(id));
                }
            }
        }
    }

    /// Puts together what is fresh, and says of whom that has changed.
    fn sum(&mut self, now: Time) {
        let Exchange { view, gate, peers, .. } = &self.with;
        let stale = view.stale();
        for ((link, heard), seen) in self.links.iter_mut().zip(&mut self.heard).zip(&peers.0) {
            let fresh = heard.is_fresh(now, stale);
            if fresh {
                link.retry.succeeded(now);
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
        let counted = || self.heard.iter().filter(|heard| heard.counts);
        for (index, more) in self.more.iter().enumerate() {
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

/// The way to one edge's share.
#[derive(Debug)]
struct Link {
    region: String,
    id: Option<LinkId>,
    retry: Backoff,
    /// Until when it is not asked.
    silence: Backoff,
    problem: Option<String>,
}

impl Link {
    fn new(region: String) -> Self {
        Link {
            region,
            id: None,
            retry: Backoff::new(RECONNECT_NS),
            silence: Backoff::new(SILENCE_NS),
            problem: None,
        }
    }

    fn complain(&mut self, error: &Error) {
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::info!(region = self.region, problem, "what another edge shares cannot be read");
            self.problem = Some(problem);
        }
    }
}

/// What one edge has told.
#[derive(Debug)]
struct Heard {
    map: ShareMap,
    /// Which life of it, and its beat then; `None` before it was first seen.
    life: Option<(u64, u64)>,
    /// When the beat was seen to rise.
    rose_at: Option<Time>,
    nodes: Vec<NodeShare>,
    verdicts: Vec<Verdict>,
    /// Whether it was fresh at the last look.
    counts: bool,
}

impl Heard {
    fn new(map: ShareMap) -> Self {
        Heard {
            map,
            life: None,
            rose_at: None,
            nodes: vec![NodeShare::default(); map.nodes],
            verdicts: vec![Verdict::open(Why::Blind); map.sites],
            counts: false,
        }
    }

    /// Takes in a copy of all from the incarnation on, and adds to `more` what was answered since the last one.
    fn see(&mut self, words: &[u64], stale: Duration, now: Time, more: &mut [u64]) {
        let at = |offset: usize| words[(offset - ShareMap::INCARNATION) / 8];
        let life = (at(ShareMap::INCARNATION), at(ShareMap::BEAT));
        let before = self.life.replace(life);
        if before == Some(life) {
            return;
        }
        // From what was last read of this life, if that is not long ago: else the answers of a long time would seem to
        // be of one moment.
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
