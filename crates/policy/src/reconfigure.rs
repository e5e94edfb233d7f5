//! Reconfiguration: which node moves to another site. It is the load-balancer-based, history-aware reconfiguration of
//! Balaji et al. 2004 (3.1; section numbers below are those of that paper).
//!
//! At each scan, an interval S apart (3.1.4), [`Reconfigurer::step`] sums up a load for each site and plans at most one
//! move:
//!
//! 1. The receiver: a site whose load stayed high for T (3.1.3), or whose target is in danger; at once, a site that has
//!    fewer nodes than its floor, or none at all for waiting requests; dead ones do not count. The neediest comes first: by [`Need`], then
//!    priority, then load. Sites whose lock another edge holds come last. Otherwise all edges would try the same site, all
//!    but one in vain.
//! 2. The donor: a free node, or a site above its floor and share that is idle, of lower priority, or of equal priority if
//!    the move pays ([`Source`], best first). A site of higher priority with work of its own never gives.
//! 3. The node: the least loaded one (3.1.2: "selects a lightly loaded node serving a different web-site"), but for those that
//!    were just drained in vain (`drains.rs`), unless a site is below its floor or without a node. If nodes
//!    differ, it may be a weak one, while a third site has a far better one that it cannot spare. Then the weak node goes
//!    to that site, and the better one to where it is needed (6, multi-stage).
//!
//! Each move restarts the history of both sites, whether it was planned here or seen as a change of ownership. The paper's
//! reason: "some amount of time is taken for the load to get balanced". It is also the purpose of its dual update counters:
//! an edge that sees another edge's move makes none of its own for the same high load. A move whose node runs commands restarts
//! them again when it arrives, and the sites' T is then at least the time that this took (`cost.rs`).
//!
//! If edges hold targets, the need for nodes and what can be spared depend on how well targets are met (soft QoS:
//! `strain.rs`); otherwise on load alone, as in the paper.
//!
//! It never thrashes on constant load. A donor counts as idle only if it stays so *after* giving, and a move between equals
//! must lower the load of the busier one for good. Then no rule allows the way back (see the tests).
//!
//! The paper's baselines, rigid and over-provisioned configurations, have no reconfigurer. Server-based reconfiguration has
//! a reconfigurer in each node, for its own site: [`ReconfigureSettings::only`].

mod account;
mod choice;
mod cost;
mod drains;
mod history;
mod plan;
mod settings;
mod situation;
mod stages;
mod strain;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sidelong_layout::{NodeState, Ownership, SiteId};

use crate::cluster::{Snapshot, destination};
use crate::{SettingsError, Time};
use account::Account;
use cost::{Change, Failures};
use drains::Drains;
use history::History;
use situation::Situation;
use stages::Stage;

pub use plan::{MovePlan, Need, Reason, ReasonInWords, SiteFigures, Source};
pub use settings::ReconfigureSettings;

/// Decides which node changes its site. Each edge has one. It is a plain value without outside effects.
#[derive(Clone, PartialEq, Debug)]
pub struct Reconfigurer {
    settings: ReconfigureSettings,
    account: Account,
    histories: Vec<History>,
    /// The ownership of each node when it could last be read.
    seen: Vec<Option<Ownership>>,
    /// By node, the change that it is in.
    changes: Vec<Option<Change>>,
    drains: Vec<Drains>,
    looked: Option<Time>,
    /// The move that is to follow the last one.
    stage: Option<Stage>,
}

impl Reconfigurer {
    /// A reconfigurer for a cluster of `sites` and `nodes`.
    ///
    /// # Errors
    /// If the settings are invalid, or there are more than the words can number.
    pub fn new(settings: ReconfigureSettings, sites: usize, nodes: usize) -> Result<Self, SettingsError> {
        settings.check()?;
        SettingsError::if_too_many(sites, nodes)?;
        Ok(Reconfigurer {
            settings,
            account: Account::default(),
            histories: vec![History::default(); sites],
            seen: vec![None; nodes],
            changes: vec![None; nodes],
            drains: vec![Drains::default(); nodes],
            looked: None,
            stage: None,
        })
    }

    /// Goes by other settings from now on, for the same only receiver if it has one, in a cluster of so many sites and nodes. What is
    /// known of the others stays.
    ///
    /// # Errors
    /// As [`Reconfigurer::new`]. Nothing is changed then.
    pub fn adopt(
        &mut self,
        settings: ReconfigureSettings,
        (sites, nodes): (usize, usize),
    ) -> Result<(), SettingsError> {
        settings.check()?;
        SettingsError::if_too_many(sites, nodes)?;
        self.settings = ReconfigureSettings { only: self.settings.only, ..settings };
        self.histories.resize_with(sites, History::default);
        self.seen.resize(nodes, None);
        self.changes.resize(nodes, None);
        self.drains.resize(nodes, Drains::default());
        Ok(())
    }

    /// Takes one scan and returns the move to make now, if any. The same scans give the same moves.
    ///
    /// It takes time proportional to the nodes, times the sites that need one while none is available.
    ///
    /// # Panics
    /// If the snapshot has another number of sites or nodes than [`Reconfigurer::new`] was given.
    pub fn step(&mut self, snapshot: &Snapshot<'_>, now: Time) -> Option<MovePlan> {
        assert_eq!(snapshot.sites.len(), self.histories.len(), "a snapshot of all sites");
        assert_eq!(snapshot.nodes.len(), self.seen.len(), "a snapshot of all nodes");
        let passed = self.looked.map(|looked| now.since(looked));
        if passed.is_some_and(|passed| passed < self.settings.sensitivity / 2) {
            return None;
        }
        self.looked = Some(now);
        self.notice_moves(snapshot, now);
        self.account.take(snapshot, &self.seen, &self.settings.weights);
        for (site, (history, sums)) in self.histories.iter_mut().zip(&self.account.sites).enumerate() {
            let standing = snapshot.standing(SiteId::new(site));
            history.keep(sums, &standing, &self.settings, passed, now);
        }

        let Reconfigurer { settings, account, histories, drains, .. } = &*self;
        let situation = Situation { settings, snapshot, account, histories, drains, now };
        let pending = self.stage.filter(|stage| situation.is_pending(stage));
        let second = pending.and_then(|stage| situation.follow(&stage));
        let (plan, stage) = match second {
            Some(second) => (Some(second), None),
            None => match situation.plan(pending.map(|stage| stage.to)) {
                Some((plan, stage)) => (Some(plan), stage.or(pending)),
                None => (None, pending),
            },
        };
        self.stage = stage;
        let plan = plan?;
        self.restart(Some(plan.to), now);
        self.restart(plan.from(), now);
        Some(plan)
    }

    /// The load of a site at the last scan: the mean utilisation of its live nodes, weighted by their capacity. 1.0
    /// means that all workers are busy; more means queued requests. Requests that the edge holds back count as queued,
    /// and nodes on their way to the site count as idle nodes of it. Infinite if requests wait for a site without a
    /// node.
    pub fn load(&self, site: SiteId) -> f64 {
        self.account.sites.get(site.index()).map_or(0.0, account::Site::load)
    }

    /// Restarts the history of sites between which a node was moved, whoever moved it, and learns what moves cost.
    fn notice_moves(&mut self, snapshot: &Snapshot<'_>, now: Time) {
        for (node, view) in snapshot.nodes.iter().enumerate() {
            let Some(ownership) = view.ownership else { continue };
            let change = Change::watch(&mut self.changes[node], ownership, now);
            let Some(before) = self.seen[node].replace(ownership) else { continue };
            self.drains[node].watch(before, ownership, now);
            let (planned, to) = (destination(before), destination(ownership));
            let has_arrived = before.on_its_way().is_some() && ownership.serving_site().is_some();
            if planned != to {
                self.restart(planned, now);
                self.restart(to, now);
                let is_kept = matches!(ownership.state, NodeState::Pinned | NodeState::Held);
                if before.state == NodeState::Changing && is_kept {
                    self.history(planned, |history| history.failures.add(now));
                }
            } else if has_arrived {
                self.history(to, |history| history.failures = Failures::default());
                let took = change.map_or(Duration::ZERO, Change::lasted);
                for site in [before.site, to] {
                    self.history(site, |history| history.cost.charge(took, now));
                    // What the sites were like while the node changed is past. A mere drain is too short for that.
                    self.restart(site.filter(|_| change.is_some()), now);
                }
            }
        }
    }

    fn restart(&mut self, site: Option<SiteId>, now: Time) {
        self.history(site, |history| history.restart(now));
    }

    /// Changes the history of a site, if it is one of those known.
    fn history(&mut self, site: Option<SiteId>, change: impl FnOnce(&mut History)) {
        if let Some(history) = site.and_then(|site| self.histories.get_mut(site.index())) {
            change(history);
        }
    }
}
