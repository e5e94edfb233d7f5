//! Moves in two stages (Balaji et al. 2004, 6: "a sequence of changes in the different tiers allowing the most
//! appropriate node be reconfigured to the high load tier").
//!
//! If some site has a node of far higher capacity than the one that would be spared, but has none to spare itself, the
//! spared node goes to that site, and then the better one to where it is needed.

use std::time::Duration;

use sidelong_layout::{NodeId, NodeState, Ownership, SiteId};

use super::plan::{MovePlan, Need, Source};
use super::situation::Situation;
use crate::Time;
use crate::cluster::destination;

/// The better node must have more than this multiple of the spared node's capacity: two moves cost twice as much, and
/// capacities are only what the cluster file claims.
const BETTER: f64 = 1.5;
/// Time for the first move to begin and to be made, besides what moves cost; then the second is dropped. Another edge may have
/// been faster.
const BEGINS: Duration = Duration::from_millis(20);
const LASTS: Duration = Duration::from_secs(1);

/// The second move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stage {
    /// The node that replaces it.
    ahead: NodeId,
    /// The better node.
    pub(super) node: NodeId,
    /// The site that it serves.
    pub(super) from: SiteId,
    /// The site that needs it.
    pub(super) to: SiteId,
    planned: Time,
}

impl Situation<'_> {
    /// A better node for `to` than `spared`, by way of its site: the one that leaves most room to both.
    pub(super) fn stage(&self, spared: NodeId, to: SiteId) -> Option<Stage> {
        let rate = self.account.nodes[spared.index()].rate;
        let direct = self.account.sites[to.index()].load_with(rate);
        let nodes = (0..self.snapshot.nodes.len()).map(NodeId::new);
        let stages = nodes.filter_map(|node| {
            let from = self.snapshot.nodes[node.index()]
                .ownership
                .filter(|own| self.is_free_to_go(node, *own))?
                .site?;
            let load = self.load_after(node, from, to, rate)?;
            let clearly = load * (1.0 + self.settings.margin) <= direct;
            clearly.then_some((load, Stage { ahead: spared, node, from, to, planned: self.now }))
        });
        stages.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, stage)| stage)
    }

    /// The greater load of the two sites once `to` has `node` of `from`, and `from` a node of `rate` instead. `None` if
    /// that is not allowed.
    fn load_after(&self, node: NodeId, from: SiteId, to: SiteId, rate: f64) -> Option<f64> {
        let (donor, receiver) = (self.snapshot.sites.get(from.index())?, &self.snapshot.sites[to.index()]);
        let (sums, history) = (&self.account.sites[from.index()], &self.histories[from.index()]);
        let better = self.account.nodes[node.index()].rate;
        let is_to_be = from != to
            && self.snapshot.nodes[node.index()].up
            && better > rate * BETTER
            && donor.priority <= receiver.priority
            && history.may_give(self.settings, self.now)
            && !sums.unknown
            && sums.up >= u32::from(donor.floor)
            && sums.coming() < u32::from(donor.ceiling);
        let donor_load = sums.load_with(rate - better);
        (is_to_be && self.can_spare(from, to, better - rate))
            .then(|| donor_load.max(self.account.sites[to.index()].load_with(better)))
    }

    /// Whether `from` can spare `rate`.
    fn can_spare(&self, from: SiteId, to: SiteId, rate: f64) -> bool {
        let (sums, strain) = (&self.account.sites[from.index()], &self.histories[from.index()].strain);
        sums.load_with(-rate) <= self.settings.high
            && self.has_share_without(from, rate)
            && (!self.is_by_target(from, to) || strain.holds_without(sums, rate))
    }

    /// Whether the second move may still come: the first is in progress or done, and the second is needed.
    pub(super) fn is_pending(&self, stage: &Stage) -> bool {
        let Stage { ahead, node, from, to, planned } = *stage;
        let owned = |node: NodeId| self.snapshot.nodes[node.index()].ownership;
        let passed = self.now.since(planned);
        let is_under_way = owned(ahead).is_some_and(|own| destination(own) == Some(from));
        let is_changing = owned(ahead).is_some_and(|own| own.state == NodeState::Changing);
        let lasts = self.histories[from.index()].cost.time(self.now) + LASTS;
        let (sums, view) = (&self.account.sites[to.index()], &self.snapshot.sites[to.index()]);
        (passed < lasts || is_changing)
            && (is_under_way || passed < BEGINS)
            && owned(node).is_some_and(|own| own.serves(from) && self.is_free_to_go(node, own))
            && self.histories[to.index()].is_high(self.settings, sums)
            && sums.coming() < u32::from(view.ceiling)
    }

    /// The second move, once the first is done, both sites have settled, and the better node can be spared.
    pub(super) fn follow(&self, stage: &Stage) -> Option<MovePlan> {
        let Stage { ahead, node, from, to, .. } = *stage;
        let owned = |node: NodeId| self.snapshot.nodes[node.index()].ownership;
        let (sums, floor) = (&self.account.sites[from.index()], self.snapshot.sites[from.index()].floor);
        let rate = self.account.nodes[node.index()].rate;
        let is_time = owned(ahead).is_some_and(|own| own.serves(from))
            && [from, to].iter().all(|site| self.histories[site.index()].is_settled(self.settings, self.now))
            && self.snapshot.nodes[node.index()].up
            && sums.up > u32::from(floor)
            && self.can_spare(from, to, rate);
        let expected = owned(node).filter(|own| is_time && self.is_free_to_go(node, *own))?;
        Some(MovePlan { node, expected, to, reason: self.reason(Some(from), to, Need::High, Source::Pays) })
    }

    /// Whether the node serves a site, and nobody keeps it there.
    fn is_free_to_go(&self, node: NodeId, ownership: Ownership) -> bool {
        let is_kept = self.is_shared(node) || self.drains[node.index()].bar(self.now);
        ownership.state == NodeState::Serving && !is_kept
    }
}
