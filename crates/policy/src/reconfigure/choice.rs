//! The rules: which site receives, which site gives, and which node.

use std::cmp::Reverse;

use sidelong_layout::{NodeId, NodeState, SiteId, valid};

use super::cost::BARRED;
use super::plan::{MovePlan, Need, Source};
use super::situation::Situation;
use super::stages::Stage;
use crate::index::LoadIndex;

/// A site that should get another node. Ordered by its fields: the greatest is the neediest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Receiver {
    is_free: bool,
    need: Need,
    priority: u8,
    load: LoadIndex,
    site: Reverse<SiteId>,
}

/// A node that a receiver could get. Ordered by its fields: the least is the best.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    source: Source,
    donor_priority: u8,
    was_in_vain: bool,
    unknown: bool,
    load: LoadIndex,
    in_flight: u32,
    node: NodeId,
}

impl Situation<'_> {
    /// The best node for the neediest site that can get one, or the first of two moves that end with a better one.
    /// `staged` waits for the second of two such moves, and gets no other.
    pub(super) fn plan(&self, staged: Option<SiteId>) -> Option<(MovePlan, Option<Stage>)> {
        let sites = (0..self.snapshot.sites.len()).map(SiteId::new).filter(|site| staged != Some(*site));
        let mut receivers: Vec<_> = sites.filter_map(|site| self.receiver(site)).collect();
        receivers.sort_unstable_by(|a, b| b.cmp(a));

        receivers.into_iter().find_map(|Receiver { need, site: Reverse(to), .. }| {
            let offers = (0..self.snapshot.nodes.len()).map(NodeId::new);
            let Offer { node, source, .. } = offers.filter_map(|node| self.offer(node, to, need)).min()?;
            let expected = self.snapshot.nodes[node.index()].ownership?;
            let spared = need == Need::High && source <= Source::Idle && staged.is_none();
            let stage = if spared { self.stage(node, to) } else { None };
            // The donor itself has the better node, so it can give that one directly.
            let own = stage.as_ref().filter(|stage| Some(stage.from) == expected.site);
            let (node, stage) = match own.map(|stage| stage.node) {
                None => (node, stage),
                Some(better) => match self.offer(better, to, need) {
                    Some(Offer { source: as_good, .. }) if as_good == source => (better, None),
                    _ => (node, None),
                },
            };
            let expected = self.snapshot.nodes[node.index()].ownership?;
            let (to, need) = stage.as_ref().map_or((to, need), |stage| (stage.from, Need::Stage));
            Some((
                MovePlan { node, expected, to, reason: self.reason(expected.site, to, need, source) },
                stage,
            ))
        })
    }

    /// The site, if it should get another node now.
    fn receiver(&self, site: SiteId) -> Option<Receiver> {
        let (view, sums) = (&self.snapshot.sites[site.index()], &self.account.sites[site.index()]);
        let history = &self.histories[site.index()];
        let ours = self.settings.only.is_none_or(|only| only == site);
        let is_time = history.is_settled(self.settings, self.now) && !history.failures.bar(self.now, BARRED);
        if !ours || !is_time || sums.coming() >= u32::from(view.ceiling) {
            return None;
        }
        let need = if sums.coming() < u32::from(view.floor) {
            Need::Floor
        } else if sums.load().is_infinite() {
            Need::Stranded
        } else if history.was_high(self.settings, self.now) {
            Need::High
        } else {
            return None;
        };
        // Requests that an edge rejects are load, too.
        let load = LoadIndex::from_load(sums.load().max(history.strain.offered_with(sums, 0.0)));
        Some(Receiver { is_free: !view.busy, need, priority: view.priority, load, site: Reverse(site) })
    }

    /// Whether others send it requests that nobody counts: then it stays.
    pub(super) fn is_shared(&self, node: NodeId) -> bool {
        self.snapshot.nodes[node.index()].load.is_some_and(|hot| hot.valid & valid::SHARED != 0)
    }

    /// The node, if `to` can get it.
    fn offer(&self, node: NodeId, to: SiteId, need: Need) -> Option<Offer> {
        let (view, sums) = (&self.snapshot.nodes[node.index()], &self.account.nodes[node.index()]);
        let ownership = view.ownership.filter(|_| view.up && !self.is_shared(node))?;
        let (source, donor_priority) = match (ownership.state, ownership.site) {
            (NodeState::Free, _) => (Source::Free, 0),
            (NodeState::Serving, Some(from)) => {
                (self.source(from, to, need, sums.rate)?, self.snapshot.sites[from.index()].priority)
            }
            _ => return None,
        };
        let was_in_vain = self.drains[node.index()].bar(self.now);
        if was_in_vain && need <= Need::High {
            return None;
        }
        let (load, in_flight, unknown) = (sums.load, view.in_flight, view.load.is_none());
        Some(Offer { source, donor_priority, was_in_vain, unknown, load, in_flight, node })
    }

    /// Why `from` can spare a node of that rate for `to`; `None` if it cannot, or is not a site of this cluster.
    fn source(&self, from: SiteId, to: SiteId, need: Need, rate: f64) -> Option<Source> {
        let (donor, receiver) = (self.snapshot.sites.get(from.index())?, &self.snapshot.sites[to.index()]);
        let (sums, history) = (&self.account.sites[from.index()], &self.histories[from.index()]);
        if from == to || sums.up <= u32::from(donor.floor) {
            return None;
        }
        let (needy, strain) = (&self.account.sites[to.index()], &self.histories[to.index()].strain);
        let is_lower = donor.priority < receiver.priority;
        // A load is used once the last move has affected it, and if all nodes have reported. What that move cost is no reason
        // to leave a site without a node.
        let is_time = match need > Need::High {
            true => history.is_settled(self.settings, self.now),
            false => history.may_give(self.settings, self.now),
        };
        let known = is_time && !sums.unknown;
        let spare = known && self.has_share_without(from, rate);
        let idle = history.was_low(self.settings, self.now)
            && sums.load_with(-rate) < self.settings.low
            && history.strain.idles_without(sums, self.settings, rate)
            && (is_lower || need > Need::High || strain.deserves_idle(needy, self.settings));
        if known && sums.up > u32::from(donor.ceiling) {
            Some(Source::Surplus)
        } else if spare && idle {
            Some(Source::Idle)
        } else if spare && is_lower && (need > Need::High || strain.deserves_busy(needy)) {
            Some(Source::LowerPriority)
        } else if spare && donor.priority == receiver.priority && self.pays(from, to, need, rate) {
            Some(Source::Pays)
        } else if need == Need::Floor {
            Some(Source::Guarantee)
        } else {
            None
        }
    }

    /// The cost model between equals: the receiver's load clearly exceeds the donor's, and the move would lower the
    /// greater of the two. If one of them has a target, the receiver must be full and the donor must stay out of
    /// danger.
    fn pays(&self, from: SiteId, to: SiteId, need: Need, rate: f64) -> bool {
        /// The least gain, as a share of the load. It exceeds the rounding of indices, twice half of 1e-4 of a high
        /// load, so that no move pays in both directions. It is less than the gain from one of 4,999 nodes. Larger
        /// sites get no node from busy ones of equal priority until those are idle.
        const GAIN_MIN: f64 = 2e-4;
        if need == Need::High && self.is_by_target(from, to) {
            let [donor, receiver] = [from, to].map(|site| &self.account.sites[site.index()]);
            let [gives, takes] = [from, to].map(|site| &self.histories[site.index()].strain);
            return takes.is_full(receiver, self.settings) && gives.holds_without(donor, rate);
        }
        let averaged =
            |site: SiteId| self.account.sites[site.index()].with_work(self.histories[site.index()].work);
        let (donor, receiver) = (averaged(from), averaged(to));
        let load = receiver.load();
        let load_after = receiver.load_with(rate).max(donor.load_with(-rate));
        load >= donor.load() * (1.0 + self.settings.margin) && load_after < load * (1.0 - GAIN_MIN)
    }
}
