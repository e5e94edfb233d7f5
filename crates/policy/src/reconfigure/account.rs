//! The sums of one look: for each site its nodes, what they can do, and the work that they have.
//!
//! Work is counted in workers of ordinary speed that it keeps busy, so it does not change when a node leaves or joins,
//! and the load after a move follows: the same work over another rate.

use sidelong_layout::{NodeState, Ownership, SiteId, valid};

use super::{NodeView, Snapshot};
use crate::index::{Capacity, LoadIndex, Weights};

/// Kept between looks for its memory only.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Account {
    pub(super) nodes: Vec<Node>,
    pub(super) sites: Vec<Site>,
    /// What all nodes that are up can do.
    pub(super) rate: f64,
}

/// A node's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Node {
    /// Busy and queued over workers.
    pub(super) load: LoadIndex,
    /// What it can do: its workers, in those of ordinary speed.
    pub(super) rate: f64,
    workers: u32,
}

/// A site's sums.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Site {
    /// Nodes that serve it and are up.
    pub(super) up: u32,
    /// Nodes on their way to it that are up.
    incoming: u32,
    /// Whether a node of it has no record: the work is then a lower bound.
    pub(super) unknown: bool,
    /// What its nodes can do, those on their way included.
    pub(super) rate: f64,
    /// Workers of the same nodes.
    workers: f64,
    /// What its nodes have to do, and what waits at the edge.
    pub(super) work: f64,
    /// Of that, what its nodes are at.
    pub(super) busy: f64,
}

impl Account {
    /// Sums up a look at nodes that were last `seen` owned like this. Nodes of sites that the snapshot does not hold are
    /// of no site.
    pub(super) fn take(&mut self, snapshot: &Snapshot<'_>, seen: &[Option<Ownership>], weights: &Weights) {
        self.sites.clear();
        self.sites.resize(snapshot.sites.len(), Site::default());
        self.nodes.clear();
        self.nodes.extend(snapshot.nodes.iter().map(|view| Node::of(view, weights)));

        self.rate = 0.0;
        let nodes = snapshot.nodes.iter().zip(&self.nodes).zip(seen);
        for ((view, node), seen) in nodes.filter(|((view, _), _)| view.up) {
            self.rate += node.rate;
            let Some(ownership) = *seen else { continue };
            let place =
                |site: Option<SiteId>| site.map(SiteId::index).filter(|site| *site < snapshot.sites.len());
            // The requests at a node are those of the site that it serves or leaves: that still has to do them, or the
            // next ones of the same clients, and its other nodes will.
            if let Some(site) = place(ownership.site) {
                let site = &mut self.sites[site];
                site.work += node.load.ratio() * node.rate;
                site.busy += node.load.ratio().min(1.0) * node.rate;
                site.unknown |= view.load.is_none();
            }
            if let Some(site) = place(super::destination(ownership)) {
                let site = &mut self.sites[site];
                site.rate += node.rate;
                site.workers += f64::from(node.workers);
                match ownership.state {
                    NodeState::Serving => site.up += 1,
                    _ => site.incoming += 1,
                }
            }
        }
        for (site, view) in self.sites.iter_mut().zip(snapshot.sites) {
            let speed = if site.workers > 0.0 { site.rate / site.workers } else { 1.0 };
            site.work += f64::from(view.waiting) * speed;
        }
    }
}

impl Node {
    fn of(view: &NodeView, weights: &Weights) -> Self {
        let load = view.load.as_ref();
        let origin = load.is_some_and(|hot| hot.valid & valid::ORIGIN != 0);
        let weights = if origin { &Weights::CONNECTIONS } else { weights };
        let workers = view.capacity.workers(load);
        Node {
            // How busy it is, not how soon it would be done: its speed is in the rate.
            load: weights.read(load, &Capacity { speed: 1.0, ..view.capacity }, view.in_flight).index(),
            rate: f64::from(workers) * f64::from(view.capacity.speed),
            workers,
        }
    }
}

impl Site {
    /// Nodes that are up and serve it or will.
    pub(super) fn coming(&self) -> u32 {
        self.up + self.incoming
    }

    /// The same nodes with other work.
    pub(super) fn with_work(self, work: f64) -> Self {
        Site { work, ..self }
    }

    /// Work over rate.
    pub(super) fn load(&self) -> f64 {
        self.load_with(0.0)
    }

    /// What the load would be with `rate` more, or less.
    pub(super) fn load_with(&self, rate: f64) -> f64 {
        /// Below any worker's rate, above what the rounding of sums leaves.
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
