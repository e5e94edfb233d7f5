//! What an edge last saw of its cluster, for people: the watch thread writes it, metrics and Ganglia read it. Nothing is
//! decided by it.
//!
//! The watch thread never waits for a reader: where one is just copying, it shows its next look.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sidelong_layout::{Hot, NodeId, SiteId, Time};
use sidelong_load::Reading;
use sidelong_reconfig::Links;

/// The last look.
#[derive(Debug)]
pub struct Seen {
    look: Mutex<Look>,
    stale: Duration,
}

/// What it brought.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) nodes: Vec<NodeSeen>,
    /// When the lock and budget of each site were last read.
    pub(crate) boards: Vec<Option<Time>>,
}

/// What it brought of one node. Times are of this machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeSeen {
    /// Its record, if that could be decided from.
    hot: Option<Hot>,
    /// When the last good record was true, be it of an earlier look or of an earlier life of the node.
    pub(crate) record_at: Option<Time>,
    /// When its ownership word was last read.
    pub(crate) words_at: Option<Time>,
}

impl Seen {
    /// Of a cluster of so many nodes and sites, nothing yet. Records older than `stale` are not shown.
    pub(crate) fn new(nodes: usize, sites: usize, stale: Duration) -> Self {
        let look = Look { nodes: vec![NodeSeen::default(); nodes], boards: vec![None; sites] };
        Seen { look: Mutex::new(look), stale }
    }

    /// Of nodes with these records that were true at those times.
    #[cfg(test)]
    pub(crate) fn of_records(stale: Duration, records: &[(Option<Hot>, Time)]) -> Self {
        let node = |&(hot, at): &(Option<Hot>, Time)| NodeSeen { hot, record_at: Some(at), words_at: None };
        let look = Look { nodes: records.iter().map(node).collect(), boards: Vec::new() };
        Seen { look: Mutex::new(look), stale }
    }

    /// The watch thread has looked at `now`.
    pub(crate) fn show(&self, now: Time, readings: &[Reading], links: &Links) {
        let Ok(mut look) = self.look.try_lock() else { return };
        for (index, (seen, reading)) in look.nodes.iter_mut().zip(readings).enumerate() {
            seen.take(now, reading);
            if links.ownership(NodeId::new(index)).is_some() {
                seen.words_at = Some(now);
            }
        }
        for (index, read_at) in look.boards.iter_mut().enumerate() {
            if links.site(SiteId::new(index)).is_some() {
                *read_at = Some(now);
            }
        }
    }

    /// The last look.
    pub(crate) fn look(&self) -> Look {
        // It holds plain values, so a reader that died left nothing half done.
        self.look.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The record of `node` if it may still be decided from at `now`.
    pub(crate) fn fresh<'a>(&self, node: &'a NodeSeen, now: Time) -> Option<&'a Hot> {
        // Asked again, as the watch thread itself may hang.
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
        let seen = Seen::new(1, 1, Duration::from_millis(200));
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
