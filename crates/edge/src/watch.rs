//! The watch thread. Once an interval it scans all nodes, updates the view, shows the brain the scan, and carries out
//! what the brain decides.
//!
//! Everything that takes time happens here, so that a request never waits for it. In server-based reconfiguration (the
//! baseline of Balaji et al. 2004) a node runs the same thread beside its own server, with a view that serves no
//! request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use sidelong_fabric::SharedWords;
use sidelong_layout::{NodeId, SiteId, Slots, Time};
use sidelong_load::{Reading, RecordOf};
use sidelong_policy::SettingsError;
use sidelong_policy::admission::{AdmissionSettings, Promise};
use sidelong_policy::brain::{Brain, SiteSeen};
use sidelong_policy::cluster::{NodeView, SiteView};
use sidelong_policy::index::{Capacity, Weights};
use sidelong_policy::reconfigure::ReconfigureSettings;
use sidelong_reconfig::{Links, Members, Mover, Pool, Timing};

use crate::adapters::{Adapter, AdapterMembers};
use crate::clock;
use crate::event::Event;
use crate::gate::{Gatekeeper, RejectedLast};
use crate::metrics::Metrics;
use crate::probes::{Places, Probes};
use crate::seen::ScanDisplay;
use crate::view::View;

/// Reads the load of all nodes.
pub trait ReadLoads: Send {
    /// Scans the words and the load: fills in a reading for each slot of a node, and returns the number of records that were there
    /// but rejected.
    fn scan(&mut self, now: Time, links: &mut Links, readings: &mut [Reading]) -> u64;

    /// Goes by other nodes from now on.
    fn adopt(&mut self, links: &mut Links, records: &Slots<RecordOf>);
}

/// What a newer roster has changed for the thread.
pub struct Adopted {
    /// Who is in the cluster.
    pub members: Arc<Members>,
    /// The nodes and sites as movers know them.
    pub pool: Pool,
    /// Floors, ceilings and priorities of sites.
    pub sites: Slots<SiteView>,
    /// Which requests each site rejects last.
    pub last: Slots<RejectedLast>,
    /// By slot of a site, whether its requests that outlast a drain are cut.
    pub cuts: Vec<bool>,
    /// How long a node may drain.
    pub drain_max: Duration,
    /// The waits of moves that begin from now on.
    pub timing: Timing,
    /// Which nodes there are, and whether the server of each is foreign.
    pub foreign: Slots<bool>,
    /// Each node's capacity, as far as the file says it.
    pub capacities: Vec<Capacity>,
    /// The weights of the load index.
    pub weights: Weights,
    /// Where the nodes' records are.
    pub records: Slots<RecordOf>,
    /// As [`Watch::servers`].
    pub servers: (Slots<Places>, Duration),
    /// Nodes whose server or agent is at another address: nothing of what was seen is theirs.
    pub moved: Vec<NodeId>,
    /// What admission goes by, if there is any.
    pub admission: Option<(AdmissionSettings, Slots<Promise>)>,
    /// What moves go by.
    pub reconfigure: ReconfigureSettings,
    /// For the proxy of another make, if there is one.
    pub adapter: Option<AdapterMembers>,
    /// Has requests, and everybody else, go by it. Who has left gets none any more by then, and who has come not yet.
    pub publish: Box<dyn FnOnce() + Send>,
    /// Set by whoever comes first: the thread that begins with it, or who has waited for too long, and wants it no more.
    pub is_taken: Arc<AtomicBool>,
    /// Hears that it was adopted, or why not.
    pub done: SyncSender<Result<(), SettingsError>>,
}

/// Another process takes over from this one as the front.
pub struct Leave {
    /// Where this one states to it what its own requests see.
    pub words: Arc<SharedWords>,
    /// Hears once this one moves no node any more, and states nothing elsewhere.
    pub done: SyncSender<()>,
}

/// Shows that a thread goes on.
#[derive(Clone)]
pub struct Pulse {
    beats: Arc<AtomicU64>,
    every: Duration,
}

impl Pulse {
    /// Of a thread that begins a round so often.
    pub fn new(every: Duration) -> Self {
        Pulse { beats: Arc::default(), every }
    }

    /// How often it begins a round.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// How many rounds it has begun. It hangs if this stays.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }
}

/// Everything that the thread needs.
pub struct Watch {
    /// The view that it updates.
    pub view: Arc<View>,
    /// The metrics that it counts in.
    pub metrics: Option<Arc<Metrics>>,
    /// Where it stores scans for display.
    pub seen: Option<Arc<ScanDisplay>>,
    /// The proxy of another make whose requests the view counts; `None` for this process's own.
    pub adapter: Option<Box<dyn Adapter>>,
    /// Who is in the cluster.
    pub members: Arc<Members>,
    /// Links to the cluster's words.
    pub links: Links,
    /// Reads the load.
    pub loads: Box<dyn ReadLoads>,
    /// The weights of the load index.
    pub weights: Weights,
    /// Each node's capacity, as far as the file says it.
    pub capacities: Vec<Capacity>,
    /// Where to probe the nodes' servers once their records are no longer heard, and the longest wait for a connection.
    pub servers: (Slots<Places>, Duration),
    /// Decides.
    pub brain: Brain,
    /// Passes verdicts to requests; `None` without admission control.
    pub gatekeeper: Option<Gatekeeper>,
    /// Carries out moves.
    pub mover: Mover,
    /// S: the interval between two scans.
    pub sensitivity: Duration,
    /// What it is to go by from now on, if that may change while it runs.
    pub adopts: Option<Receiver<Adopted>>,
    /// The highest epoch that the board had in earlier lives of this part.
    pub seen_epoch: u64,
    /// Keeps one that the board has now, for the next life.
    pub keep_epoch: Box<dyn Fn(u64) + Send>,
    /// Receives events.
    pub events: Box<dyn FnMut(Event) + Send>,
    /// Beats once an interval.
    pub pulse: Pulse,
    /// Has it leave what it does for the cluster to another process, if one may take over.
    pub leaves: Option<Receiver<Leave>>,
}

/// Longest wait for a move under way before another process takes over. That puts right what is left of it, as any other front does.
const MOVE_END_MAX: Duration = Duration::from_secs(1);

impl Watch {
    /// Scans and decides until `stop`, then completes operations in progress, for at most `drain`.
    pub fn run(mut self, stop: &AtomicBool, drain: Duration) {
        let nodes = self.capacities.len();
        let mut tick = Tick {
            readings: vec![Reading::default(); nodes],
            up: vec![true; nodes],
            probes: Probes::new(std::mem::take(&mut self.servers)),
            ready: false,
            stale: false,
            waiting: Vec::new(),
            role: Role::Leads,
        };
        // Before it looks: a mover that has not seen the epoch then is seen (`state::drained`). No epoch of the board is lower than one
        // before, so that a part which has seen it once may begin while the board is away.
        while self.seen_epoch < self.mover.epoch() && !stop.load(Ordering::Relaxed) {
            // By a newer roster the board may be elsewhere.
            self.take_over(&mut tick);
            self.leave(&mut tick);
            self.pulse.beat();
            self.links.scan(clock::now());
            if self.raise_epoch() {
                break;
            }
            std::thread::sleep(self.sensitivity);
        }
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.pulse.beat();
            self.leave(&mut tick);
            self.look(&mut tick);
            // A fixed rate: the time of a scan is not added, and missed scans are skipped.
            next = (next + self.sensitivity).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let deadline = Instant::now() + drain;
        while tick.role == Role::Leads && !self.mover.is_idle() && Instant::now() < deadline {
            self.pulse.beat();
            self.drive(&mut tick);
            std::thread::sleep(self.sensitivity);
        }
    }

    /// Leaves what it does for the cluster to another process, if it is told to.
    fn leave(&mut self, tick: &mut Tick) {
        let Some(Ok(Leave { words, done })) = self.leaves.as_ref().map(Receiver::try_recv) else { return };
        let deadline = Instant::now() + MOVE_END_MAX;
        tick.role = Role::Leaves;
        while !self.mover.is_idle() && Instant::now() < deadline {
            self.pulse.beat();
            self.look(tick);
            std::thread::sleep(self.sensitivity);
        }
        tick.role = Role::HasLeft;
        self.links.leave_to(words);
        // Who waited may have given up.
        let _ = done.send(());
    }

    /// Whether the board has the epoch that this goes by now.
    fn raise_epoch(&mut self) -> bool {
        let epoch = self.mover.epoch();
        let is_there = self.links.raise_epoch(epoch);
        if is_there && self.seen_epoch < epoch {
            self.seen_epoch = epoch;
            (self.keep_epoch)(epoch);
        }
        is_there
    }

    fn take_over(&mut self, tick: &mut Tick) {
        while let Some(Ok(adopted)) = self.adopts.as_ref().map(Receiver::try_recv) {
            self.adopt(adopted, tick);
        }
    }

    fn look(&mut self, tick: &mut Tick) {
        self.take_over(tick);
        let now = clock::now();
        let rejected = self.loads.scan(now, &mut self.links, &mut tick.readings);
        // The board may have been away when the roster was taken over.
        if self.seen_epoch < self.mover.epoch() && self.links.last_scan().sites.iter().any(Option::is_some) {
            self.raise_epoch();
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|_| rejected > 0) {
            metrics.discarded_reads(rejected);
        }

        if let Some(adapter) = &mut self.adapter {
            adapter.count(&self.view, &tick.readings, now);
        }
        tick.probes.scanned(&tick.readings, &self.view, clock::now);
        let (mut relist, mut seen) = (false, 0);
        for (index, reading) in tick.readings.iter().enumerate() {
            let node = NodeId::new(index);
            let ownership = self.links.ownership(node);
            seen += usize::from(ownership.is_some());
            // From now on this edge's own requests are counted at once.
            let (own, all) = (self.view.in_flight(node), self.view.in_flight_of_all(node, now));
            let capacity = self.brain.capacity(node, self.capacities[index]);
            let mut load = self.weights.read(reading.fresh(), &capacity, all);
            if tick.probes.is_full(node) {
                load = load.unheard();
            }
            self.view.date_cut(node, ownership, now);
            relist |= self.view.observe(node, ownership, load.counted_from(own));
        }
        if relist {
            self.view.relist();
        }
        if let Some(adapter) = &mut self.adapter {
            let gate = self.gatekeeper.as_ref().map(Gatekeeper::gate);
            adapter.show(&self.view, gate.as_deref(), now);
        }
        for node in self.view.nodes() {
            let front = match &self.adapter {
                Some(adapter) => adapter.front(&self.view, node),
                None => self.view.front(node),
            };
            if let Some((seen, requests)) = front {
                self.links.state(node, seen, requests);
            }
        }
        // One unreachable node is that node's trouble; if all are, it is the view's.
        if seen > 0 {
            self.view.refreshed(now);
        }
        if let Some(seen) = &self.seen {
            seen.show(now, &tick.readings, &self.links, |node| self.brain.workers(node));
        }
        self.tell(tick, now, seen);
        if let Some(metrics) = &self.metrics {
            let waiting = |(slot, since): (usize, &Option<Time>)| Some((self.front(slot)?, (*since)?));
            let waiting = tick.waiting.iter().enumerate().filter_map(waiting);
            waiting.for_each(|(front, since)| metrics.moves_waiting(front, Some(now.since(since))));
        }
        // Words are put right where no moves are planned, too.
        if tick.role == Role::Leads {
            self.mover.look(self.links.last_scan(), now);
        }
        if self.brain.decides() {
            self.decide(tick, now);
        }
        match tick.role {
            Role::Leads | Role::Leaves => self.drive(tick),
            Role::HasLeft => self.links.state_epoch(self.mover.epoch()),
        }
    }

    fn adopt(&mut self, adopted: Adopted, tick: &mut Tick) {
        if adopted.is_taken.swap(true, Ordering::AcqRel) {
            return;
        }
        let Adopted {
            members,
            pool,
            sites,
            last,
            cuts,
            drain_max,
            timing,
            foreign,
            capacities,
            weights,
            records,
            servers,
            moved,
            admission,
            reconfigure,
            ..
        } = adopted;
        let result = self.brain.adopt(&foreign, &sites, admission.as_ref(), reconfigure);
        if result.is_ok() {
            let nodes = members.nodes.len();
            for slot in 0..nodes.max(self.members.nodes.len()) {
                let (before, now) = (self.members.nodes.get(slot), members.nodes.get(slot));
                let node = NodeId::new(slot);
                let is_moved = moved.contains(&node);
                if is_moved {
                    self.links.forget(node);
                }
                if before.is_some() && (before != now || is_moved) {
                    tick.up[slot] = true;
                    tick.probes.vacate(node, &self.view);
                    self.view.vacate(node);
                    self.seen.iter().for_each(|seen| seen.vacate(node));
                }
            }
            for slot in 0..self.members.sites.len() {
                let (before, now) = (self.members.sites.get(slot), members.sites.get(slot));
                if before.is_some() && before != now {
                    let site = SiteId::new(slot);
                    self.metrics.iter().for_each(|metrics| metrics.vacate(site));
                    self.gatekeeper.iter_mut().for_each(|gatekeeper| gatekeeper.vacate(site));
                }
            }
            self.view.cut(drain_max, cuts.into_iter());
            self.view.adopt(nodes, members.sites.len());
            self.view.relist();
            // Requests know who has come before any can be sent there, which takes a scan.
            (adopted.publish)();
            if let (Some(adapter), Some(members)) = (&mut self.adapter, &adopted.adapter) {
                adapter.adopt(members);
            }
            // On the board that the roster names, before its nodes are looked at.
            self.links.adopt(&members);
            self.loads.adopt(&mut self.links, &records);
            if members.board != self.members.board {
                self.mover.change_boards();
            }
            self.mover.adopt(pool, timing);
            self.raise_epoch();
            if let (Some(gatekeeper), Some((_, promises))) = (&self.gatekeeper, &admission) {
                gatekeeper.gate().adopt(promises, &last);
            }
            tick.readings.resize(nodes, Reading::default());
            tick.up.resize(nodes, true);
            tick.probes.adopt(servers);
            for (slot, since) in tick.waiting.iter_mut().enumerate() {
                let (before, now) = (self.members.fronts.get(slot), members.fronts.get(slot));
                if let (Some(left), Some(metrics), true) = (before, &self.metrics, before != now) {
                    *since = None;
                    metrics.moves_waiting(&left.name, None);
                }
            }
            (self.capacities, self.weights, self.members) = (capacities, weights, members);
        }
        // Who waited may have given up.
        let _ = adopted.done.send(result);
    }

    /// The name of an edge or front.
    fn front(&self, slot: usize) -> Option<&str> {
        self.members.fronts.get(slot).map(|front| front.name.as_str())
    }

    /// Reports what has changed since the last scan.
    fn tell(&mut self, tick: &mut Tick, now: Time, seen: usize) {
        if !tick.ready && seen == self.members.nodes.values().count() {
            tick.ready = true;
            (self.events)(Event::Ready);
        }
        let stale = tick.ready && self.view.is_stale(now);
        if stale != tick.stale {
            tick.stale = stale;
            (self.events)(Event::View { stale });
        }
        for node in self.view.nodes() {
            if let Some(at) = self.view.take_first_request(node)
                && let Some(site) = self.view.ownership(node).and_then(|o| o.serving_site())
            {
                (self.events)(Event::FirstRequest { node, site, at });
            }
            let up = self.view.is_proven(node, now);
            if up != tick.up[node.index()] {
                tick.up[node.index()] = up;
                (self.events)(Event::Health { node, up });
            }
        }
    }

    /// Shows the brain the scan, and starts what it decides.
    fn decide(&mut self, tick: &Tick, now: Time) {
        let Watch { view, links, capacities, brain, gatekeeper, mover, events, .. } = self;
        let nodes = tick.readings.iter().zip(&*capacities).enumerate().map(|(index, (reading, capacity))| {
            let node = NodeId::new(index);
            let seen = NodeView {
                ownership: links.ownership(node),
                load: reading.fresh().copied(),
                up: view.is_proven(node, now),
                dead: view.has_failed_again(node),
                capacity: *capacity,
                in_flight: view.in_flight_of_all(node, now),
            };
            (seen, view.traffic(node, now))
        });
        let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
        let sites = view.sites().map(|site| SiteSeen {
            waiting: view.waiting(site),
            busy: mover.is_at(site) || links.site(site).is_some_and(|words| mover.another_holds(words.lock)),
            ..gate.as_ref().map_or_else(SiteSeen::default, |gate| gate.seen(site, now))
        });
        let decisions = brain.scan(nodes, sites, mover.may_begin(now), now, sidelong_os::wall_ns());
        if let Some(gatekeeper) = gatekeeper {
            gatekeeper.show(decisions.outlooks, now);
            gatekeeper.tell(now, events);
        }
        let plan = decisions.plan.filter(|plan| mover.takes(plan) && mover.may_leave(plan));
        if let Some(plan) = plan.filter(|_| tick.role == Role::Leads) {
            mover.begin(plan, now);
        }
    }

    fn drive(&mut self, tick: &mut Tick) {
        while let Some(report) = self.mover.drive(&mut self.links, clock::now, |_| ()) {
            if report.moved() {
                // Not only at the next scan: a node that begins anew asks fronts what it served, and nobody else may have read that it came.
                if let Some(node) = report.plan().map(|plan| plan.node)
                    && let Some(own) = self.links.left_as(node)
                    && self.view.ownership(node).is_none_or(|seen| seen.generation < own.generation)
                    && self.view.see(node, own)
                {
                    self.view.relist();
                }
                // All have said that the node had left.
                for (slot, since) in tick.waiting.iter_mut().enumerate() {
                    if let (Some(_), Some(front), Some(metrics)) =
                        (since.take(), self.front(slot), &self.metrics)
                    {
                        metrics.moves_waiting(front, None);
                    }
                }
            } else if let Some(front) = report.silent_front() {
                tick.waiting.resize(tick.waiting.len().max(front.index() + 1), None);
                tick.waiting[front.index()].get_or_insert(report.began);
            }
            if let Some(metrics) = &self.metrics {
                match report.plan() {
                    Some(plan) if report.moved() => metrics.moved(plan, report.ended.since(report.began)),
                    _ => metrics.abandoned(report.outcome.word()),
                }
            }
            (self.events)(Event::Ended(report));
        }
    }
}

/// What this thread does for the cluster beside looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// It moves nodes and puts words right.
    Leads,
    /// It begins nothing more.
    Leaves,
    /// Another process does it.
    HasLeft,
}

/// State between scans.
struct Tick {
    readings: Vec<Reading>,
    up: Vec<bool>,
    probes: Probes,
    ready: bool,
    stale: bool,
    /// By front, since when it has kept nodes from moving by saying nothing, if it has.
    waiting: Vec<Option<Time>>,
    role: Role,
}
