//! Everything that one decision is based on.

use sidelong_layout::SiteId;

use super::account::Account;
use super::drains::Drains;
use super::history::History;
use super::plan::{Need, Reason, SiteFigures, Source, micros};
use super::settings::ReconfigureSettings;
use crate::Time;
use crate::cluster::Snapshot;

/// Rates are sums of rounded values; a rate below another by this factor counts as equal.
const ROUNDED: f64 = 1.0 - 1e-6;

/// A scan, with what is remembered of earlier ones.
pub(super) struct Situation<'a> {
    pub(super) settings: &'a ReconfigureSettings,
    pub(super) snapshot: &'a Snapshot<'a>,
    pub(super) account: &'a Account,
    pub(super) histories: &'a [History],
    /// By node.
    pub(super) drains: &'a [Drains],
    pub(super) now: Time,
}

impl Situation<'_> {
    /// Why a node of `from` goes to `to`, with both sites' figures at this scan.
    pub(super) fn reason(&self, from: Option<SiteId>, to: SiteId, need: Need, source: Source) -> Reason {
        let of = |site: SiteId, is_receiver: bool| {
            let (sums, history) = (&self.account.sites[site.index()], &self.histories[site.index()]);
            let standing = self.snapshot.standing(site);
            SiteFigures {
                load: Some(sums.load()).filter(|load| load.is_finite()),
                nodes: sums.up,
                strain: standing.strain,
                admitted: standing.admitted,
                lasted_us: micros(history.lasted(is_receiver, self.now)),
            }
        };
        let donor = from.filter(|from| from.index() < self.histories.len());
        Reason { need, source, receiver: of(to, true), donor: donor.map(|from| of(from, false)) }
    }

    /// Whether `from` keeps its share of the pool without a node of that rate.
    pub(super) fn has_share_without(&self, from: SiteId, rate: f64) -> bool {
        let share = self.snapshot.standing(from).share;
        share == 0.0 || self.account.sites[from.index()].rate - rate >= share * self.account.rate * ROUNDED
    }

    /// Whether a move between these sites depends on targets.
    pub(super) fn is_by_target(&self, from: SiteId, to: SiteId) -> bool {
        [from, to].iter().any(|site| self.histories[site.index()].strain.is_known)
    }
}
