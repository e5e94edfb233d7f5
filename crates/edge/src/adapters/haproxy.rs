//! Controls HAProxy by its Runtime API: a server has weight 0 in each backend whose site its node does not serve, and elsewhere a
//! weight by what its node has left.
//!
//! If it is controlled by choice, its Lua also asks shared memory for the server of each request (`fronts/haproxy`, `memory`). It never
//! takes one at weight 0, so what follows from weights holds all the same. HAProxy's own counts stay what counts for moves: Lua learns of
//! a request's answer, and of its end only by filters, whose interface HAProxy calls unstable, and which cost it nine tenths more CPU
//! time a request.
//!
//! Clients that a site does not admit are rejected by rules of its configuration, which read what it is told of the site's verdict
//! ([`verdicts`]); by choice its Lua asks memory for that, too.
//!
//! A thread of its own talks to HAProxy, so that the watch thread never waits for it. They share what is wanted and what was
//! counted, under locks that the watch thread only tries. The weights outlast the front. It never changes the
//! administrative state of a server of HAProxy's file: what a person has put into maintenance stays there.

mod driver;
pub(crate) mod protocol;
mod servers;
mod verdicts;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use sidelong_layout::{NodeId, Ownership, SiteId, Time, valid};
use sidelong_load::Reading;
use sidelong_policy::admission::Verdict;
use sidelong_policy::index::LoadIndex;
use sidelong_policy::pace::{NodeAtScan, Pace};

use self::driver::{Driver, Logs, send};
pub use self::protocol::Server as HaproxyServer;
use self::servers::{Counted, Servers, Wanted, is_same};
pub use self::servers::{HaproxyCluster, HaproxyNode};
use self::verdicts::Verdicts;
pub use self::verdicts::haproxy_admission;
use super::memory::MemoryAdapter;
use super::{Adapter, AdapterMembers};
use crate::gate::Gate;
use crate::view::{View, WorkersAt};

/// The time over which loads are averaged. Weights are changed at most once in 20 ms, and a few requests are no trend.
const SMOOTHED_OVER: Duration = Duration::from_millis(100);
/// The least share that a node has left. Nodes that are all full still share by what they can do, and one that is free because it
/// is several times slower is no better than they.
const LEFT_MIN: f32 = 1.0 / 4.0;
const WEIGHT_MAX: f32 = 256.0;
/// HAProxy is asked at least as often. What is sent in that time is less than the 2^15 requests that a reading can tell apart.
const SILENT_MAX: Duration = Duration::from_millis(500);
/// It is asked sooner when the nodes' records say that a site's last request has ended, but so long after the last time at least.
const AGAIN: Duration = Duration::from_millis(5);

/// HAProxy, controlled by a front.
pub struct HaproxyAdapter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    nodes: Vec<Node>,
    pace: Pace,
    told: DesiredState,
    shown_at: Time,
    /// What its Lua reads, if it does.
    choice: Option<MemoryAdapter>,
    /// The number of HAProxy's answers that were taken, and when one was, or should have been.
    heard: u64,
    heard_at: Time,
    over: Over,
}

/// Of each site, whether it has requests by what HAProxy said last, and none by its nodes' records.
struct Over(Vec<bool>);

/// What the watch thread keeps of a node.
#[derive(Clone, Default)]
struct Node {
    workers: u32,
    speed: f32,
    /// The share of its capacity that is left, averaged; `None` before the first scan.
    left: Option<f32>,
    counted: Counted,
    stated: Option<(Ownership, u32)>,
}

/// What HAProxy is to be told.
#[derive(Clone)]
struct DesiredState {
    cluster: Arc<HaproxyCluster>,
    nodes: Vec<Wanted>,
    /// Of each site; `None` if no site has a target, or HAProxy's Lua asks for it.
    verdicts: Option<Vec<Verdict>>,
}

/// What the two threads tell each other.
struct Shared {
    told: Mutex<DesiredState>,
    seen: Mutex<ReportedState>,
    stop: AtomicBool,
}

/// What HAProxy said last.
struct ReportedState {
    /// Which nodes it was asked for.
    cluster: Arc<HaproxyCluster>,
    /// How often it has answered.
    answers: u64,
    /// Of each node what was counted, and what is stated while HAProxy answers.
    nodes: Vec<(Counted, Option<(Ownership, u32)>)>,
}

impl HaproxyAdapter {
    /// Begins to control the HAProxy that answers at `socket`, for the front of that name; with `choice`, by that, too.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        front: &str,
        socket: PathBuf,
        cluster: HaproxyCluster,
        choice: Option<MemoryAdapter>,
    ) -> std::io::Result<Self> {
        let cluster = Arc::new(cluster);
        let nodes = vec![Wanted::default(); cluster.nodes.len()];
        let told = DesiredState { cluster: Arc::clone(&cluster), nodes, verdicts: None };
        let seen = ReportedState { cluster: Arc::clone(&cluster), answers: 0, nodes: Vec::new() };
        let shared = Arc::new(Shared {
            told: Mutex::new(told.clone()),
            seen: Mutex::new(seen),
            stop: AtomicBool::new(false),
        });
        let mut adapter = HaproxyAdapter {
            shared: Arc::clone(&shared),
            thread: None,
            nodes: cluster.nodes.map(Node::of).to_vec(),
            pace: Pace::new(cluster.nodes.len(), cluster.backends.len()),
            told,
            shown_at: Time::from_ns(0),
            choice,
            heard: 0,
            heard_at: Time::from_ns(0),
            over: Over(vec![false; cluster.sites.len()]),
        };
        let verdicts = Verdicts::new(&cluster.sites, cluster.stale);
        let (front, servers) = (front.to_owned(), Servers::new(cluster));
        let driver = Driver { front, socket, servers, verdicts, shared, logs: Logs::default() };
        adapter.thread = Some(std::thread::Builder::new().name("haproxy".into()).spawn(|| driver.run())?);
        Ok(adapter)
    }
}

impl Adapter for HaproxyAdapter {
    fn count(&mut self, view: &View, readings: &[Reading], now: Time) {
        if let Some(choice) = &mut self.choice {
            choice.tend(now);
            choice.count_from_now();
        }
        // The driver holds the lock for as long as it takes to copy; the next scan gets it.
        let Ok(seen) = self.shared.seen.try_lock() else { return };
        if !Arc::ptr_eq(&seen.cluster, &self.told.cluster) {
            return;
        }
        if self.heard != seen.answers || now.since(self.heard_at) >= SILENT_MAX {
            (self.heard, self.heard_at) = (seen.answers, now);
            if let Some(choice) = &mut self.choice {
                choice.was_told();
            }
        }
        for (index, (counted, stated)) in seen.nodes.iter().enumerate() {
            let node = &mut self.nodes[index];
            let answers = counted.answers.saturating_sub(node.counted.answers);
            let failed = counted.failures.saturating_sub(node.counted.failures);
            // One that is busy may refuse some connections, and answer others.
            let unconnected = counted.unconnected.saturating_sub(node.counted.unconnected);
            let is_refused = counted.is_down || answers == 0 && unconnected > 0;
            // HAProxy's count is as old as its answer. What its Lua has sent and seen answered since is known.
            let more = self.choice.as_ref().map_or(0, |choice| choice.more_than_told(index));
            let in_flight = counted.in_flight.saturating_add_signed(more);
            let at = WorkersAt {
                in_flight,
                // HAProxy does not tell which of them have an answer that has begun.
                unanswered: in_flight,
                answers,
                refused: is_refused.into(),
                // Nor in which order they came: beside answers they are no row of failures.
                failed: failed.min(if answers > 0 { 1 } else { u64::from(u32::MAX) }) as u32,
                // So are HAProxy's checks.
                on_trial: counted.sessions > node.counted.sessions || counted.is_down,
            };
            let id = NodeId::new(index);
            view.take(id, now, &at);
            if readings.get(index).and_then(at_work).unwrap_or(0) > 0 {
                // HAProxy tells so later.
                view.has_come(id, now);
            }
            (node.counted, node.stated) = (*counted, *stated);
        }
        drop(seen);
        if now.since(self.heard_at) < AGAIN {
            return;
        }
        let nodes = self.nodes.iter().zip(readings).enumerate().map(|(index, (node, reading))| {
            let site = view.ownership(NodeId::new(index)).and_then(Ownership::serving_site);
            (site, at_work(reading), node.counted.in_flight)
        });
        if self.over.see(nodes) {
            self.wake();
        }
    }

    fn show(&mut self, view: &View, gate: Option<&Gate>, now: Time) {
        if let Some(choice) = &mut self.choice
            && choice.leads(view, now)
        {
            choice.tell(view, gate, now);
            choice.take_control(now);
        }
        let since_last = now.since(self.shown_at);
        self.shown_at = now;
        let passed = since_last.as_secs_f32() / SMOOTHED_OVER.as_secs_f32();
        let paced = self.nodes.iter().enumerate().map(|(index, node)| {
            let id = NodeId::new(index);
            let site = view.ownership(id).and_then(Ownership::serving_site);
            NodeAtScan { site, traffic: view.traffic(id, now), workers: node.workers, speed: node.speed }
        });
        self.pace.see(paced, since_last);
        let most = self.nodes.iter().map(Node::capacity).fold(f32::MIN_POSITIVE, f32::max);
        let is_stale = view.is_stale(now);
        let mut wanted = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let id = NodeId::new(index);
            if !is_stale {
                let left = left(view.index(id));
                node.left = Some(node.left.map_or(left, |old| old + (left - old) * passed.min(1.0)));
            }
            let left = node.left.unwrap_or(1.0);
            let capacity = node.capacity() / most * self.pace.of(id);
            // While nobody has heard a node, its servers keep what HAProxy's file gives them, unless it has a site to be given first.
            let at = self.told.cluster.nodes.get(index);
            let is_known = view.is_known(id) || at.is_none_or(|at| at.starts_free);
            let ownership = view.ownership(id).filter(|_| is_known);
            wanted.push(Wanted { ownership, weight: weight(capacity, left) });
        }
        // By choice, its Lua reads the verdicts in memory.
        let gate = gate.filter(|_| self.choice.is_none());
        let verdicts = gate.map(|gate| view.sites().map(|site| gate.verdict(site)).collect());
        let told = DesiredState { cluster: Arc::clone(&self.told.cluster), nodes: wanted, verdicts };
        let is_news = told.is_news(&self.told);
        match self.shared.told.try_lock() {
            Ok(mut shared) => shared.clone_from(&told),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone_from(&told),
            // It is told at the next scan, as news.
            Err(TryLockError::WouldBlock) => return,
        }
        self.told = told;
        if is_news {
            self.wake();
        }
    }

    fn front(&self, _: &View, node: NodeId) -> Option<(Ownership, u32)> {
        let stated = self.nodes.get(node.index())?.stated;
        stated.filter(|_| self.choice.as_ref().is_none_or(MemoryAdapter::is_whole))
    }

    fn adopt(&mut self, members: &AdapterMembers) {
        if let Some(choice) = &mut self.choice {
            choice.adopt(members);
        }
        let Some(cluster) = members.haproxy.clone().filter(|cluster| **cluster != *self.told.cluster) else {
            return;
        };
        let last = std::mem::replace(&mut self.told.cluster, cluster);
        let cluster = &self.told.cluster;
        self.nodes.resize(cluster.nodes.len(), Node::default());
        for (slot, node) in self.nodes.iter_mut().enumerate() {
            let now = cluster.nodes.get(slot);
            if !is_same(last.nodes.get(slot), now) {
                *node = Node::default();
            }
            (node.workers, node.speed) = now.map_or((0, 0.0), |at| (at.workers, at.speed));
        }
        // HAProxy is asked anew what it has for whom, and until then nothing is stated.
        self.nodes.iter_mut().for_each(|node| node.stated = None);
        self.told.nodes.resize(cluster.nodes.len(), Wanted::default());
        self.pace = Pace::new(cluster.nodes.len(), cluster.backends.len());
        self.over = Over(vec![false; cluster.sites.len()]);
        *self.shared.told.lock().unwrap_or_else(PoisonError::into_inner) = self.told.clone();
        self.wake();
    }
}

impl Drop for HaproxyAdapter {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Over {
    /// Takes each node's site, its requests by its record if that tells exactly, and those by what HAProxy said last. Returns whether
    /// a site's last request has ended since. Until HAProxy is asked again, the site counts as busy, and gives no node away.
    fn see(&mut self, nodes: impl Iterator<Item = (Option<SiteId>, Option<u32>, u32)>) -> bool {
        let mut sites = vec![(false, false); self.0.len()];
        for (site, at_work, in_flight) in nodes {
            if let Some((is_busy, has_some)) = site.and_then(|site| sites.get_mut(site.index())) {
                *is_busy |= at_work != Some(0);
                *has_some |= in_flight > 0;
            }
        }
        let mut is_news = false;
        for (was_over, (is_busy, has_some)) in self.0.iter_mut().zip(sites) {
            let is_over = has_some && !is_busy;
            is_news |= is_over && !*was_over;
            *was_over = is_over;
        }
        is_news
    }
}

impl HaproxyAdapter {
    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Node {
    fn of(at: &HaproxyNode) -> Self {
        Node { workers: at.workers, speed: at.speed, ..Node::default() }
    }

    fn capacity(&self) -> f32 {
        self.workers as f32 * self.speed
    }
}

impl DesiredState {
    /// Whether HAProxy must know at once what is different from before: who serves which site, and whether a site rejects clients.
    fn is_news(&self, before: &DesiredState) -> bool {
        let rejects = |told: &DesiredState| -> Vec<bool> {
            told.verdicts.iter().flatten().map(|verdict| verdict.arc().is_some()).collect()
        };
        let mut nodes = self.nodes.iter().zip(&before.nodes);
        nodes.any(|(new, old)| new.ownership != old.ownership) || rejects(self) != rejects(before)
    }

    /// Whether a site rejects clients.
    fn rejects(&self) -> bool {
        self.verdicts.iter().flatten().any(|verdict| verdict.arc().is_some())
    }
}

impl Shared {
    fn told(&self) -> DesiredState {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what HAProxy has said; `None` if it says nothing, and then nothing is stated.
    fn publish(&self, servers: Option<&Servers>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match servers {
            Some(servers) => {
                let at = |node| (servers.counted(node), servers.stated(node));
                seen.nodes = servers.nodes().map(at).collect();
                seen.cluster = Arc::clone(&servers.cluster);
                seen.answers += 1;
            }
            None => seen.nodes.iter_mut().for_each(|(_, stated)| *stated = None),
        }
    }

    /// Waits so long, or until there is news.
    fn rest(&self, pause: Duration) {
        if !self.stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(pause);
        }
    }
}

/// The requests that a node has by its record; `None` if it does not tell exactly.
fn at_work(reading: &Reading) -> Option<u32> {
    let hot = reading.fresh().filter(|hot| hot.valid & valid::ORIGIN != 0)?;
    Some(hot.busy.saturating_add(hot.queued))
}

/// The share of its capacity that a node of this load has left.
fn left(load: LoadIndex) -> f32 {
    (1.0 - load.ratio() as f32).max(LEFT_MIN)
}

/// The weight of a node with this capacity, compared with the largest, of which this share is left. So new requests go to nodes in
/// proportion to what each can still take, which evens out how busy they are.
fn weight(capacity: f32, left: f32) -> u16 {
    (WEIGHT_MAX * capacity * left).round().clamp(1.0, WEIGHT_MAX) as u16
}

/// Asks the HAProxy at `socket` once which servers it has for which sites and nodes. Nothing is changed.
///
/// # Errors
/// What is wrong, and what to do.
pub fn survey_haproxy(
    socket: &Path,
    cluster: HaproxyCluster,
) -> Result<Vec<(SiteId, Option<NodeId>, HaproxyServer)>, String> {
    let wanted = vec![Wanted::default(); cluster.nodes.len()];
    let mut servers = Servers::new(Arc::new(cluster));
    let batch = servers.batch(&wanted, Vec::new());
    let replies = send(socket, &batch)?;
    servers
        .heard(&batch, &replies, Time::from_ns(0), |_| None, |_| false)
        .map_err(|wrong| wrong.to_string())?;
    Ok(servers.list().map(|(site, node, server)| (site, node, server.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_what_is_left() {
        assert_eq!(weight(1.0, left(LoadIndex(0))), 256);
        assert_eq!(weight(0.5, left(LoadIndex(0))), 128);
        assert_eq!(weight(1.0, left(LoadIndex(5_000))), 128);
        // Full nodes go on, by what they can do.
        assert_eq!(weight(1.0, left(LoadIndex(40_000))), 64);
        assert_eq!(weight(0.001, left(LoadIndex(40_000))), 1);
    }

    #[test]
    fn the_end_of_a_sites_requests_is_news_once() {
        let [alpha, beta] = [0, 1].map(|site| Some(SiteId::new(site)));
        let mut over = Over(vec![false; 2]);
        let mut sees = |nodes: [(Option<SiteId>, Option<u32>, u32); 3]| over.see(nodes.into_iter());
        assert!(!sees([(alpha, Some(1), 1), (alpha, Some(0), 1), (beta, Some(0), 0)]));
        let ended = [(alpha, Some(0), 1), (alpha, Some(0), 1), (beta, Some(0), 0)];
        assert!(sees(ended) && !sees(ended), "HAProxy is asked once");
        // Of a server whose record does not tell nothing is known.
        assert!(!sees([(alpha, None, 1), (alpha, Some(0), 0), (beta, Some(2), 0)]));
        assert!(sees(ended));
        assert!(sees([(alpha, Some(1), 1), (None, Some(0), 1), (beta, Some(0), 3)]), "the other site's");
    }
}
