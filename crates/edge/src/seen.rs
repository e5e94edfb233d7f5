//! An edge's last scan, for display: the watch thread writes it, metrics and Ganglia read it. No decision uses it.
//!
//! The watch thread never waits for a reader: while one copies, the scan is not stored.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sidelong_layout::{Hot, NodeId, SiteId, Time};
use sidelong_load::Reading;
use sidelong_policy::workers::Workers;
use sidelong_reconfig::Links;

/// The last scan.
#[derive(Debug)]
pub struct ScanDisplay {
    last: Mutex<LastScan>,
    stale: Duration,
}

/// The content of the last scan.
#[derive(Clone, Debug)]
pub(crate) struct LastScan {
    pub(crate) nodes: Vec<NodeSeen>,
    /// When the lock and budget of each site were last read.
    pub(crate) boards: Vec<Option<Time>>,
}

/// One node in the last scan. Times are of this machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeSeen {
    /// Its record, if it was fresh enough to decide from.
    hot: Option<Hot>,
    /// Time of the figures in its last valid record, from any scan or life of the node.
    pub(crate) record_at: Option<Time>,
    /// When its ownership word was last read.
    pub(crate) words_at: Option<Time>,
    /// How many requests its server handles at a time, as far as that was learned.
    pub(crate) workers: Workers,
}

impl ScanDisplay {
    /// An empty one, with room for this number of nodes and sites. Records older than `stale` are not shown.
    pub(crate) fn new((nodes, sites): (usize, usize), stale: Duration) -> Self {
        let last = LastScan { nodes: vec![NodeSeen::default(); nodes], boards: vec![None; sites] };
        ScanDisplay { last: Mutex::new(last), stale }
    }

    /// Nodes with these records, at these times.
    #[cfg(test)]
    pub(crate) fn of_records(stale: Duration, records: &[(Option<Hot>, Time)]) -> Self {
        let node =
            |&(hot, at): &(Option<Hot>, Time)| NodeSeen { hot, record_at: Some(at), ..NodeSeen::default() };
        let last = LastScan { nodes: records.iter().map(node).collect(), boards: Vec::new() };
        ScanDisplay { last: Mutex::new(last), stale }
    }

    /// Stores a scan of the watch thread at `now`, and what was learned of each node's workers.
    pub(crate) fn show(
        &self,
        now: Time,
        readings: &[Reading],
        links: &Links,
        workers: impl Fn(NodeId) -> Workers,
    ) {
        let Ok(mut last) = self.last.try_lock() else { return };
        for (index, (seen, reading)) in last.nodes.iter_mut().zip(readings).enumerate() {
            seen.take(now, reading);
            seen.workers = workers(NodeId::new(index));
            seen.words_at = links.read_at(NodeId::new(index)).or(seen.words_at);
        }
        for (index, read_at) in last.boards.iter_mut().enumerate() {
            if links.site(SiteId::new(index)).is_some() {
                *read_at = Some(now);
            }
        }
    }

    /// The node has left the cluster.
    pub(crate) fn vacate(&self, node: NodeId) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.nodes[node.index()] = NodeSeen::default();
    }

    /// The last scan.
    pub(crate) fn last(&self) -> LastScan {
        // It holds plain values, so a reader that panicked left it consistent.
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The record of `node`, if it is fresh enough to decide from at `now`.
    pub(crate) fn fresh<'a>(&self, node: &'a NodeSeen, now: Time) -> Option<&'a Hot> {
        // Checked again, because the watch thread itself may hang.
        let is_young = node.record_at.is_some_and(|at| now.since(at) <= self.stale);
        node.hot.as_ref().filter(|_| is_young)
    }
}

impl NodeSeen {
    fn take(&mut self, now: Time, reading: &Reading) {
        self.hot = reading.fresh().copied();
        if reading.hot.is_some() && reading.age_ns != u64::MAX {
            self.record_at = Some(Time::from_ns(now.as_ns().saturating_sub(reading.age_ns)));
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelong_load::Status;

    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn reading(status: Status, age_ms: u64) -> Reading {
        let hot = (status != Status::Gone).then(Hot::default);
        Reading { hot, status, age_ns: age_ms * 1_000_000, ..Reading::default() }
    }

    #[test]
    fn the_age_of_a_record_grows_on_when_its_node_is_gone() {
        let seen = ScanDisplay::new((1, 1), Duration::from_millis(200));
        let mut node = NodeSeen::default();
        node.take(ms(999), &Reading::default());
        assert_eq!((node.record_at, seen.fresh(&node, ms(999))), (None, None));

        node.take(ms(1000), &reading(Status::Fresh, 3));
        assert_eq!(node.record_at, Some(ms(997)));
        assert!(seen.fresh(&node, ms(1000)).is_some());
        assert!(seen.fresh(&node, ms(1198)).is_none(), "nobody has looked since");

        node.take(ms(1300), &reading(Status::Stale, 303));
        assert_eq!((node.record_at, seen.fresh(&node, ms(1300))), (Some(ms(997)), None));
        node.take(ms(5000), &reading(Status::Gone, 0));
        assert_eq!((node.record_at, seen.fresh(&node, ms(5000))), (Some(ms(997)), None));
        node.take(ms(5001), &reading(Status::Fresh, 0));
        assert!(seen.fresh(&node, ms(5001)).is_some());
    }
}
