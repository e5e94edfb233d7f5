//! Nodes that stayed at their site, because requests there did not end in time.
//!
//! Whatever keeps a node, a WebSocket or a client that hangs, most likely still does so a moment later, and while the node drains it takes
//! no new request. So it is left alone for a multiple of the time that this took, and for twice as long after each further attempt.
//!
//! As in `cost.rs`, times are measured on the ownership words that the scans show, so the attempts of all movers count.

use std::time::Duration;

use sidelong_layout::{NodeState, Ownership};

use super::cost::Failures;
use crate::Time;

/// Of the time until it may be tried again, a node drains at most a ninth.
const RESTS: u32 = 8;

/// The drains of a node.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Drains {
    since: Option<Time>,
    /// How long the last one took that was in vain.
    took: Duration,
    in_vain: Failures,
}

impl Drains {
    /// Takes in what a node's ownership was at the last scan, and is now.
    pub(super) fn watch(&mut self, before: Ownership, ownership: Ownership, now: Time) {
        if ownership.state == NodeState::Draining {
            self.since.get_or_insert(now);
            return;
        }
        let Some(since) = self.since.take() else { return };
        if ownership.serving_site().is_some_and(|site| before.site == Some(site)) {
            self.took = now.since(since);
            self.in_vain.add(now);
        } else {
            self.in_vain = Failures::default();
        }
    }

    /// Whether it is too early for another attempt.
    pub(super) fn bar(&self, now: Time) -> bool {
        self.in_vain.bar(now, RESTS * self.took)
    }
}
