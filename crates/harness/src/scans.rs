//! Scans of a cluster from outside, as its edges make them.

use sidelong_app::{Failure, Monitor, Parts};
use sidelong_config::Cluster;
use sidelong_layout::NodeId;

/// Scans all nodes of a cluster again and again.
pub struct Scans {
    monitor: Monitor,
    nodes: usize,
}

impl Scans {
    /// Links to all nodes.
    ///
    /// # Errors
    /// If the fabric cannot be used.
    pub fn new(cluster: Cluster) -> Result<Self, Failure> {
        let parts = Parts::new(cluster)?;
        Ok(Scans { nodes: parts.cluster.nodes.len(), monitor: Monitor::new(&parts)? })
    }

    /// Scans once. Returns how many nodes have a fresh record.
    pub fn scan(&mut self) -> usize {
        self.monitor.look();
        (0..self.nodes).filter(|node| self.is_heard(*node)).count()
    }

    /// Whether a node had a fresh record, by its place in the cluster file.
    pub fn is_heard(&self, node: usize) -> bool {
        self.monitor.hot(NodeId::new(node)).is_some()
    }
}
