//! What moves cost: how long nodes were seen to change from one site to another.
//!
//! A node that changes runs the commands of its sites and serves nobody ([`NodeState::Changing`]). If that takes seconds, a
//! move pays only for a load that lasts longer. So a site whose changes take longer than the settings say waits that long
//! instead: its load must have been high or low for that long, and it gives no node away for that long after a move. The factor
//! is 1: a node then serves for at least as long as it changed, and a load that lasts is answered at most one such time later.
//! Who waits for as long as the remedy takes is at most twice as bad as who knows how long the trouble will last (Karlin et al.
//! 1988, Competitive snoopy caching).
//!
//! A site below its floor, or without a node for its requests, does not wait for that.
//!
//! The drain before a change does not count: it is as long as the requests of the moment, and the node works. Without commands
//! no node changes, and the settings alone apply.
//!
//! A cost that no move confirms fades. Otherwise one slow change, in a bad minute, would keep the site from answering shorter
//! loads for ever: only moves show that they have become fast.
//!
//! Times are measured on the ownership words that the scans show, so the changes of all movers count. A reconfigurer that has
//! just started knows of no cost until it has seen a change.

use std::time::Duration;

use sidelong_layout::{NodeState, Ownership};

use crate::Time;

/// The longest that a site waits because of its changes; the cluster file may set a history of as much. While movers or
/// machines are silent, a node may look for hours as if it changed.
const COST_MAX: Duration = Duration::from_secs(60);

/// After a node could not change to a site, this long no other one is planned for it, and twice as long after each further one,
/// at most [`DOUBLINGS_MAX`] times. What fails on one node, a wrong command, most likely fails on all, and each that has tried
/// waits for a person.
pub(super) const BARRED: Duration = Duration::from_secs(60);
const DOUBLINGS_MAX: u32 = 6;

/// Attempts that failed, in a row.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Failures {
    count: u32,
    last: Time,
}

impl Failures {
    pub(super) fn add(&mut self, now: Time) {
        *self = Failures { count: self.count.saturating_add(1), last: now };
    }

    /// Whether it is too early for another attempt, if there is one so long after the first.
    pub(super) fn bar(self, now: Time, first: Duration) -> bool {
        let doublings = self.count.saturating_sub(1).min(DOUBLINGS_MAX);
        self.count > 0 && now.since(self.last) < first.saturating_mul(1 << doublings)
    }
}

/// A node that is seen changing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    since: Time,
    /// Not the time of its end: a reconfigurer may have missed that by far.
    last: Time,
}

impl Change {
    /// Takes in what a node's ownership is now, and returns the change that this ends.
    pub(super) fn watch(slot: &mut Option<Change>, ownership: Ownership, now: Time) -> Option<Change> {
        if ownership.state != NodeState::Changing {
            return slot.take();
        }
        slot.get_or_insert(Change { since: now, last: now }).last = now;
        None
    }

    /// How long it was seen: less than two scans too short.
    pub(super) fn lasted(self) -> Duration {
        self.last.since(self.since)
    }
}

/// A cost halves whenever no move has ended for so many times itself.
const FADES_AFTER: u32 = 10;

/// What the moves of a site cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Cost {
    /// At the end of the last move.
    time: Duration,
    ended: Time,
}

impl Cost {
    /// After another move of the site, whose node changed for `took`. A faster one halves the cost, so that one change without
    /// much to do does not make the site forget the slow ones, and ten make it forget them.
    pub(super) fn charge(&mut self, took: Duration, now: Time) {
        *self = Cost { time: took.max(self.time(now) / 2).min(COST_MAX), ended: now };
    }

    /// How long its changes take.
    pub(super) fn time(self, now: Time) -> Duration {
        let halves_after = self.time * FADES_AFTER;
        let halvings = now.since(self.ended).as_nanos().checked_div(halves_after.as_nanos()).unwrap_or(0);
        self.time / 1_u32.checked_shl(halvings.min(31) as u32).unwrap_or(u32::MAX)
    }
}
