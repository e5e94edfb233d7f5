//! What `up` knows of the nodes, read from their memory as an edge reads it.

use std::time::Duration;

use sidelong_edge::ReadLoads;
use sidelong_layout::{Hot, NodeId, NodeState, Ownership, SiteId, Time};
use sidelong_load::Reading;
use sidelong_reconfig::Links;

use crate::failure::Failure;
use crate::parts::Parts;

/// The latest look, and sums over the looks since they were last taken.
pub(crate) struct Monitor {
    links: Links,
    loads: ReadLoads,
    readings: Vec<Reading>,
    at: Time,
    /// For each site, the sum over looks of nodes in use.
    busy: Vec<f64>,
    looks: u32,
}

impl Monitor {
    pub(super) fn new(parts: &Parts) -> Result<Self, Failure> {
        let mut monitor = Monitor {
            links: parts.links()?,
            loads: parts.loads()?,
            readings: vec![Reading::default(); parts.cluster.nodes.len()],
            at: Time::default(),
            busy: vec![0.0; parts.cluster.sites.len()],
            looks: 0,
        };
        monitor.look();
        Ok(monitor)
    }

    pub(super) fn look(&mut self) {
        self.at = Time::from_ns(sidelong_load::monotonic_ns());
        self.links.scan(self.at);
        (self.loads)(self.at, &mut self.readings);
        self.looks += 1;
        for (index, reading) in self.readings.iter().enumerate() {
            let Some(hot) = reading.fresh().filter(|hot| hot.workers > 0) else { continue };
            let site = self.links.ownership(NodeId::new(index)).and_then(|ownership| ownership.site);
            if let Some(site) = site {
                self.busy[site.index()] +=
                    f64::from(hot.busy.min(hot.workers.into())) / f64::from(hot.workers);
            }
        }
    }

    /// Nodes in use by each site, averaged since the last call: how busy a node's workers are counts as so much of a
    /// node (R 4.3.2).
    pub(super) fn take_busy(&mut self) -> Vec<f64> {
        let looks = f64::from(self.looks.max(1));
        self.looks = 0;
        self.busy.iter_mut().map(|sum| std::mem::take(sum) / looks).collect()
    }

    /// The record of `node`, if it is fresh.
    pub(crate) fn hot(&self, node: NodeId) -> Option<&Hot> {
        self.readings[node.index()].fresh()
    }

    pub(crate) fn ownership(&self, node: NodeId) -> Option<Ownership> {
        self.links.ownership(node)
    }

    /// How many nodes serve `site`.
    pub(crate) fn serving(&self, site: SiteId) -> usize {
        let nodes = (0..self.readings.len()).map(NodeId::new);
        nodes.filter(|node| self.ownership(*node).is_some_and(|o| o.serves(site))).count()
    }

    /// How many are between two sites.
    pub(crate) fn draining(&self) -> usize {
        let nodes = (0..self.readings.len()).map(NodeId::new);
        nodes.filter(|node| self.ownership(*node).is_some_and(|o| o.state == NodeState::Draining)).count()
    }

    /// How old the record of `node` was when it was read.
    pub(crate) fn age(&self, node: NodeId) -> Option<Duration> {
        Some(self.at.since(Time::from_ns(self.hot(node)?.time_ns)))
    }

    /// The oldest of them.
    pub(crate) fn age_max(&self) -> Option<Duration> {
        (0..self.readings.len()).filter_map(|node| self.age(NodeId::new(node))).max()
    }
}
