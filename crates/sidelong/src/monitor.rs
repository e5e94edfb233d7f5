//! What `up` and `top` know of the nodes, read from their memory as an edge reads it. It changes nothing there.

use std::time::Duration;

use sidelong_layout::{Hot, NodeId, NodeState, Ownership, SiteId, Time};
use sidelong_load::{Reading, Source};
use sidelong_reconfig::Links;

use crate::failure::Failure;
use crate::parts::Parts;

/// The latest look, and sums over the looks since they were last taken.
pub(crate) struct Monitor {
    links: Links,
    loads: Box<dyn Source + Send>,
    readings: Vec<Reading>,
    at: Time,
    /// For each site, the sum over looks of nodes in use.
    busy: Vec<f64>,
    looks: u64,
}

impl Monitor {
    pub(crate) fn new(parts: &Parts) -> Result<Self, Failure> {
        let mut monitor = Monitor {
            links: parts.read_only_links()?,
            loads: parts.source()?,
            readings: vec![Reading::default(); parts.cluster.nodes.len()],
            at: Time::default(),
            busy: vec![0.0; parts.cluster.sites.len()],
            looks: 0,
        };
        monitor.look();
        Ok(monitor)
    }

    /// Reads everything.
    pub(crate) fn look(&mut self) {
        self.at = Time::from_ns(sidelong_load::monotonic_ns());
        self.links.scan(self.at);
        self.loads.refresh(self.at.as_ns(), &mut self.readings);
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
    pub(crate) fn take_busy(&mut self) -> Vec<f64> {
        let looks = self.looks.max(1) as f64;
        self.looks = 0;
        self.busy.iter_mut().map(|sum| std::mem::take(sum) / looks).collect()
    }

    /// When the last look began.
    pub(crate) fn at(&self) -> Time {
        self.at
    }

    /// The record of `node` with all that is known of it.
    pub(crate) fn reading(&self, node: NodeId) -> &Reading {
        &self.readings[node.index()]
    }

    /// The record of `node`, if it is fresh.
    pub(crate) fn hot(&self, node: NodeId) -> Option<&Hot> {
        self.readings[node.index()].fresh()
    }

    /// What last went wrong with reading the record of `node`.
    pub(crate) fn problem(&self, node: NodeId) -> Option<&str> {
        self.loads.problem(node.index())
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
        let reading = self.reading(node);
        reading.fresh().map(|_| Duration::from_nanos(reading.age_ns))
    }

    /// The oldest of them.
    pub(crate) fn age_max(&self) -> Option<Duration> {
        (0..self.readings.len()).filter_map(|node| self.age(NodeId::new(node))).max()
    }
}
