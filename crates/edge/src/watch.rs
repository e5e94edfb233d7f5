//! The watch thread: every S it looks at all nodes from the side, brings the view up to date, and lets the policy decide
//! whether one of them changes its site.
//!
//! Everything that takes time happens here, so that a request never waits for it. In server-based reconfiguration (R's
//! baseline) a node runs the same thread beside its own server, with a view that serves nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_load::Reading;
use sidelong_policy::admission::Traffic;
use sidelong_policy::index::{Capacity, Weights};
use sidelong_policy::reconfigure::{NodeView, Reconfigurer, SiteView, Snapshot, Standing};
use sidelong_reconfig::{Ended, Links, Mover};
use sidelong_state::Plan;

use crate::clock;
use crate::gate::Admission;
use crate::metrics::Metrics;
use crate::seen::Seen;
use crate::view::View;

/// From its start on, a watch thread decides on no move for so long unless it has seen all nodes before: those of a site
/// may just be starting, and need no help from others.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// Something that people want to know of. Times are of this machine's monotonic clock.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The view is complete for the first time.
    Ready,
    /// A move or repair has ended.
    Ended(Ended),
    /// The first request went to a node since it came to its site.
    FirstRequest {
        /// The node.
        node: NodeId,
        /// Its site.
        site: SiteId,
        /// When the request was routed.
        at: Time,
    },
    /// A node is taken out, or taken back in.
    Health {
        /// The node.
        node: NodeId,
        /// Whether requests go to it.
        up: bool,
    },
    /// Requests were turned away in the last second or so, or a target was missed; or neither is so any more.
    Admission {
        /// Of which site.
        site: SiteId,
        /// How many were let in since this was last told.
        admitted: u64,
        /// And turned away: 0 where all are let in.
        rejected: u64,
        /// Why most of them were, or all are let in.
        why: &'static str,
        /// Whether the site's target is held, where that is known.
        met: Option<bool>,
    },
    /// No node's words or load could be read for too long, or they can again.
    View {
        /// Whether the edge now routes by what it knows itself.
        stale: bool,
    },
}

/// What the load of all nodes is read by: fills in a reading for each node, and returns how many records were there and
/// had to be rejected.
pub type ReadLoads = Box<dyn FnMut(Time, &mut [Reading]) -> u64 + Send>;

/// Who decides on moves, if anyone does here.
#[derive(Debug)]
pub enum Decider {
    /// Nobody: the rigid and over-provisioned configurations, or reconfiguration by the servers.
    Nobody,
    /// An edge, for all sites (load-balancer-based, R 3.1).
    Edge(Box<Reconfigurer>),
    /// A node, for the site that it serves: one reconfigurer for each site (server-based, R 3.1).
    Node(NodeId, Vec<Reconfigurer>),
}

/// Everything that the thread needs.
pub struct Watch {
    /// What it keeps up to date.
    pub view: Arc<View>,
    /// What it counts in.
    pub metrics: Option<Arc<Metrics>>,
    /// What it shows people.
    pub seen: Option<Arc<Seen>>,
    /// Links to the cluster's words.
    pub links: Links,
    /// Reads the load.
    pub loads: ReadLoads,
    /// What the load index is made of.
    pub weights: Weights,
    /// What each node can do.
    pub capacities: Vec<Capacity>,
    /// Floor, ceiling and priority of each site.
    pub sites: Vec<SiteView>,
    /// Whom to let in, if not everybody.
    pub admission: Option<Admission>,
    /// Who decides.
    pub decider: Decider,
    /// Who carries it out.
    pub mover: Mover,
    /// S: the time between two looks.
    pub sensitivity: Duration,
    /// Hears what happens.
    pub events: Box<dyn FnMut(Event) + Send>,
}

impl Watch {
    /// Looks and decides until `stop`, then carries what is under way to its end, for `drain` at most.
    pub fn run(mut self, stop: &AtomicBool, drain: Duration) {
        let nodes = self.capacities.len();
        let mut tick = Tick {
            readings: vec![Reading::default(); nodes],
            snapshot: Vec::with_capacity(nodes),
            standings: Vec::with_capacity(self.sites.len()),
            traffic: Vec::with_capacity(nodes),
            up: vec![true; nodes],
            heard: vec![false; nodes],
            begun: clock::now(),
            ready: false,
            stale: false,
        };
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.look(&mut tick);
            // A fixed rate: what a look takes is not added, and a look that was missed is not made up for.
            next = (next + self.sensitivity).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        self.decider = Decider::Nobody;
        let deadline = Instant::now() + drain;
        while !self.mover.is_idle() && Instant::now() < deadline {
            self.drive();
            std::thread::sleep(self.sensitivity);
        }
    }

    fn look(&mut self, tick: &mut Tick) {
        let now = clock::now();
        self.links.scan(now);
        let rejected = (self.loads)(now, &mut tick.readings);
        if let Some(metrics) = self.metrics.as_ref().filter(|_| rejected > 0) {
            metrics.rejected_reads(rejected);
        }

        let (mut relist, mut seen) = (false, 0);
        for (index, reading) in tick.readings.iter().enumerate() {
            let node = NodeId::new(index);
            let ownership = self.links.ownership(node);
            seen += usize::from(ownership.is_some());
            // Since then requests of this edge alone are known at once.
            let (own, all) = (self.view.in_flight(node), self.view.in_flight_of_all(node, now));
            let load = self.weights.read(reading.fresh(), &self.capacities[index], all);
            relist |= self.view.observe(node, ownership, load.counted_from(own));
        }
        if relist {
            self.view.relist();
        }
        // One node out of reach is that node's trouble; all of them are the view's.
        if seen > 0 {
            self.view.refreshed(now);
        }
        if let Some(seen) = &self.seen {
            seen.show(now, &tick.readings, &self.links);
        }
        self.tell(tick, now, seen);
        self.picture(tick, now);
        if let Some(admission) = &mut self.admission {
            admission.look(&tick.snapshot, &tick.traffic, &self.sites, now);
            tick.standings.clear();
            tick.standings.extend(admission.standings());
            admission.tell(now, &mut self.events);
        }
        self.decide(tick, now);
        self.drive();
    }

    /// Says what has changed since the last look.
    fn tell(&mut self, tick: &mut Tick, now: Time, seen: usize) {
        if !tick.ready && seen == self.capacities.len() {
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

    /// What decisions are made from, where any are.
    fn picture(&mut self, tick: &mut Tick, now: Time) {
        tick.snapshot.clear();
        tick.traffic.clear();
        if self.admission.is_none() && matches!(self.decider, Decider::Nobody) {
            return;
        }
        for (index, reading) in tick.readings.iter().enumerate() {
            let node = NodeId::new(index);
            let hot = reading.fresh();
            tick.heard[index] |= hot.is_some();
            // A node whose record has gone old is dead or hangs, though no request may have found that out yet. One that
            // was never heard may be about to start.
            let alive = hot.is_some() || !tick.heard[index];
            tick.snapshot.push(NodeView {
                ownership: self.links.ownership(node),
                load: hot.copied(),
                up: alive && self.view.is_proven(node, now),
                capacity: self.capacities[index],
                in_flight: self.view.in_flight_of_all(node, now),
            });
            tick.traffic.push(self.view.traffic(node, now));
        }
        for (index, site) in self.sites.iter_mut().enumerate() {
            let id = SiteId::new(index);
            site.waiting = self.view.waiting(id);
            site.busy = self.links.site(id).is_some_and(|words| self.mover.another_holds(words.lock));
        }
    }

    fn decide(&mut self, tick: &mut Tick, now: Time) {
        if matches!(self.decider, Decider::Nobody) {
            return;
        }
        self.mover.look(self.links.last_scan(), now);
        if !tick.ready && now.since(tick.begun) < SETTLE_MAX {
            return;
        }
        let snapshot = Snapshot { nodes: &tick.snapshot, sites: &self.sites, standings: &tick.standings };
        let reconfigurer = match &mut self.decider {
            Decider::Nobody => return,
            Decider::Edge(reconfigurer) => reconfigurer,
            Decider::Node(node, reconfigurers) => {
                match self.links.ownership(*node).and_then(|own| own.serving_site()) {
                    Some(site) => &mut reconfigurers[site.index()],
                    None => return,
                }
            }
        };
        // It is shown every look, so that its histories are right; a plan made while another is under way is dropped,
        // and made again if it still holds.
        if let Some(plan) = reconfigurer.step(&snapshot, now)
            && self.mover.is_idle()
        {
            let plan = Plan { node: plan.node, from: plan.from, to: plan.to };
            self.mover.begin(plan, now);
        }
    }

    fn drive(&mut self) {
        let Some(ended) = self.mover.drive(&mut self.links, clock::now, |_| ()) else { return };
        if let Some(metrics) = &self.metrics {
            match ended.plan {
                Some(plan) if ended.moved() => {
                    let elapsed = ended.ended.since(ended.began);
                    metrics.moved(plan.from, plan.to, elapsed);
                }
                _ => metrics.abandoned(ended.how.word()),
            }
        }
        (self.events)(Event::Ended(ended));
    }
}

/// What is kept from look to look.
struct Tick {
    readings: Vec<Reading>,
    snapshot: Vec<NodeView>,
    standings: Vec<Standing>,
    traffic: Vec<Traffic>,
    up: Vec<bool>,
    /// Whether a record of each node was ever read.
    heard: Vec<bool>,
    begun: Time,
    ready: bool,
    stale: bool,
}
