//! The sums of one scan: for each site its nodes, their capacity, and their work.
//!
//! Work is measured in busy workers of ordinary speed, so it does not change when a node leaves or joins. The load
//! after a move follows: the same work over another rate.

use sidelong_layout::{NodeState, Ownership, SiteId, valid};

use crate::cluster::{NodeView, Snapshot, destination};
use crate::index::{Capacity, LoadIndex, Weights};

/// Reused between scans only for its memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Account {
    pub(super) nodes: Vec<Node>,
    pub(super) sites: Vec<Site>,
    /// Capacity of all nodes that are not dead or held.
    pub(super) rate: f64,
}

/// A node's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Node {
    /// Busy and queued over workers.
    pub(super) load: LoadIndex,
    /// Its capacity: its workers, converted to ordinary speed.
    pub(super) rate: f64,
    workers: u32,
}

/// A site's sums.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Site {
    /// Nodes that serve it and are up.
    pub(super) up: u32,
    /// Nodes that serve it and are in doubt.
    doubtful: u32,
    /// Nodes on their way to it that are not dead.
    incoming: u32,
    /// Whether one of its nodes has no record; the work is then a lower bound.
    pub(super) unknown: bool,
    /// Capacity of its nodes, including those on their way.
    pub(super) rate: f64,
    /// Workers of the same nodes.
    workers: f64,
    /// The work of its nodes, and what waits at the edge.
    pub(super) work: f64,
    /// The part that its nodes are working on.
    pub(super) busy: f64,
}

impl Account {
    /// Sums up a scan of nodes whose ownership was last `seen`. Nodes of sites that are not in the snapshot belong to
    /// no site.
    pub(super) fn take(&mut self, snapshot: &Snapshot<'_>, seen: &[Option<Ownership>], weights: &Weights) {
        self.sites.clear();
        self.sites.resize(snapshot.sites.len(), Site::default());
        self.nodes.clear();
        self.nodes.extend(snapshot.nodes.iter().map(|view| Node::of(view, weights)));

        self.rate = 0.0;
        let nodes = snapshot.nodes.iter().zip(&self.nodes).zip(seen);
        let is_held = |own: Ownership| own.state == NodeState::Held;
        for ((view, node), seen) in nodes.filter(|((view, _), seen)| !view.dead && !seen.is_some_and(is_held))
        {
            self.rate += node.rate;
            let Some(ownership) = *seen else { continue };
            let place =
                |site: Option<SiteId>| site.map(SiteId::index).filter(|site| *site < snapshot.sites.len());
            // The requests at a node belong to the site that it serves or leaves. That site still has to do them, or
            // its clients' next ones, on its other nodes.
            // At one that changes there is none: its load is that of the commands.
            let is_at_work = ownership.state != NodeState::Changing;
            if let Some(site) = place(ownership.site).filter(|_| is_at_work) {
                let site = &mut self.sites[site];
                site.work += node.load.ratio() * node.rate;
                site.busy += node.load.ratio().min(1.0) * node.rate;
                site.unknown |= view.load.is_none();
            }
            if let Some(site) = place(destination(ownership)) {
                let site = &mut self.sites[site];
                site.rate += node.rate;
                site.workers += f64::from(node.workers);
                match ownership.state {
                    NodeState::Serving | NodeState::Pinned if view.up => site.up += 1,
                    NodeState::Serving | NodeState::Pinned => site.doubtful += 1,
                    _ => site.incoming += 1,
                }
            }
        }
        for (site, view) in self.sites.iter_mut().zip(snapshot.sites) {
            let speed = if site.workers > 0.0 { site.rate / site.workers } else { 1.0 };
            // Requests that wait for a node in doubt to be tried say nothing about the load.
            let waiting = if site.up == 0 && site.doubtful > 0 { 0 } else { view.waiting };
            site.work += f64::from(waiting) * speed;
        }
    }
}

impl Node {
    fn of(view: &NodeView, weights: &Weights) -> Self {
        let load = view.load.as_ref();
        let origin = load.is_some_and(|hot| hot.valid & (valid::ORIGIN | valid::WORKERS) != 0);
        let weights = if origin { &Weights::CONNECTIONS } else { weights };
        let workers = view.capacity.workers(load);
        Node {
            // The load is how busy it is, without its speed, which is in the rate.
            load: weights.read(load, &Capacity { speed: 1.0, ..view.capacity }, view.in_flight).index(),
            rate: f64::from(workers) * f64::from(view.capacity.speed),
            workers,
        }
    }
}

impl Site {
    /// Nodes that serve it or will.
    pub(super) fn coming(&self) -> u32 {
        self.up + self.doubtful + self.incoming
    }

    /// The same site with other work.
    pub(super) fn with_work(self, work: f64) -> Self {
        Site { work, ..self }
    }

    /// Work over rate.
    pub(super) fn load(&self) -> f64 {
        self.load_with(0.0)
    }

    /// The load after adding `rate`, which may be negative.
    pub(super) fn load_with(&self, rate: f64) -> f64 {
        /// Less than any worker's rate, more than the rounding errors of sums.
        const RATE_MIN: f64 = 1e-6;
        let rate = self.rate + rate;
        if self.work == 0.0 {
            0.0
        } else if rate < RATE_MIN {
            f64::INFINITY
        } else {
            self.work / rate
        }
    }
}
