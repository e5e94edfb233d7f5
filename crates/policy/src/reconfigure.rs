//! Which node changes its site (R 3.1): load-balancer-based reconfiguration, aware of history.
//!
//! At each look, S apart (R 3.1.4), [`Reconfigurer::step`] sums up what it is shown into a load for each site, and
//! plans at most one move:
//!
//! 1. Who receives. A site whose load stayed high for T (R 3.1.3), or its target in danger; at once a site that has fewer
//!    live nodes than its floor, or none at all for requests that wait. The neediest first: [`Need`], then priority, then
//!    load. Those that another edge is at come last, or all edges would go for the same site, and all but one in vain.
//! 2. Who gives. A free node; else a site above its floor and share that is idle, or of lower priority, or of equal priority
//!    where the move pays ([`Source`], best first). Never a site of higher priority that has work of its own.
//! 3. Which node. The least loaded one (R 3.1.2: "selects a lightly loaded node serving a different web-site"). Where
//!    nodes are unlike it may be a poor one, and a third site have a far better one that it cannot spare: then the poor
//!    one goes there, and the better one to where it is needed (R 6, multi-stage).
//!
//! A move that was planned here, or that was seen because a node's ownership turned to another site, restarts the
//! history of both sites: R's "some amount of time is taken for the load to get balanced", and what its dual update
//! counters are for: an edge that sees another's move makes none of its own for the same high load.
//!
//! Where edges hold targets, need and what can be spared go by how these stand (soft QoS: `standing.rs`); where they do not, by
//! load alone, as in R.
//!
//! It never thrashes on constant load. A donor counts as idle only if it stays so *after* giving, and a move between
//! equals must lower the load of the busier one for good; no rule then allows the way back (see the tests).
//!
//! Rigid and over-provisioned configurations, R's baselines, are those without a reconfigurer. Server-based
//! reconfiguration is a reconfigurer for each node, for its own site: [`Settings::only`].

mod account;
mod choice;
mod history;
mod stages;
mod standing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sidelong_layout::{Hot, NODES_MAX, NodeId, NodeState, Ownership, SITES_MAX, SiteId};

use crate::index::{Capacity, Weights};
use crate::{SettingsError, Time};
use account::Account;
use choice::Look;
use history::History;
use stages::Stage;

pub use standing::Standing;

/// What a reconfigurer goes by. Loads are those of [`Reconfigurer::load`]: 1.0 is all workers busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// T: how long a load must stay high before a move, and low before the site counts as idle (R 3.1.3).
    pub history: Duration,
    /// S: the interval between two looks (R 3.1.4). It is the caller's to keep; a call sooner than half of it is no
    /// look. Half, so that a timer that was late last time costs no look.
    pub sensitivity: Duration,
    /// After a move neither of its sites takes or gives for this long. For a site that takes because its load is high,
    /// or gives because it is low, T passes anyhow.
    pub settle: Duration,
    /// A site with more load needs a node, if it has no target.
    pub high: f64,
    /// A site that would have less load even without the node can spare it.
    pub low: f64,
    /// Between sites of equal priority, by how much of the donor's load the receiver's must exceed it.
    pub margin: f64,
    /// Between sites of equal priority that both have work, loads are compared as they were over about this long
    /// (exponentially weighted): the requests of a moment are no reason to move a busy node. Idle ones move after T.
    pub average: Duration,
    /// For nodes whose record does not say how busy the workers are.
    pub weights: Weights,
    /// Receivers other than this are left to others: server-based reconfiguration (R 3.1), one for each site.
    pub only: Option<SiteId>,
}

impl Default for Settings {
    /// R gives no T and S in figures, and M 5.2.3 says the finer the better down to a millisecond: S = 1 ms, and T of
    /// two looks, so that one freak look moves nothing. High is queueing, low half of that. A margin of a quarter
    /// over 50 ms is ours: it keeps two busy sites with random arrivals apart (tests/bursts.rs).
    fn default() -> Self {
        Settings {
            history: Duration::from_millis(2),
            sensitivity: Duration::from_millis(1),
            settle: Duration::from_millis(2),
            high: 1.0,
            low: 0.5,
            margin: 0.25,
            average: Duration::from_millis(50),
            weights: Weights::SYSTEM,
            only: None,
        }
    }
}

impl Settings {
    /// # Errors
    /// Where a figure is none, or an idle site would be a loaded one.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::if_zero("sensitivity", self.sensitivity.is_zero())?;
        SettingsError::unless_figure("high", self.high)?;
        SettingsError::unless_figure("low", self.low)?;
        SettingsError::unless_figure("margin", self.margin)?;
        if self.low > self.high {
            return Err(SettingsError::Order { less: "low", more: "high" });
        }
        self.weights.check()
    }
}

/// A node, as the edge sees it just now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeView {
    /// Its ownership word; `None` where that could not be read: the node counts where it was, and is left alone.
    pub ownership: Option<Ownership>,
    /// Its record; `None` where that was rejected or is too old. Its site then gives nothing: its load is not known.
    pub load: Option<Hot>,
    /// Whether its connections work ([`crate::health::State::Up`]).
    pub up: bool,
    /// What it can do.
    pub capacity: Capacity,
    /// Requests that the edges have there, as far as this one knows.
    pub in_flight: u32,
}

/// A site: what it was promised, and what waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteView {
    /// Nodes that it is guaranteed (Reconf-PQ).
    pub floor: u16,
    /// Nodes that it may have; at least `floor`.
    pub ceiling: u16,
    /// The more, the more important (Reconf-P).
    pub priority: u8,
    /// Requests for it that this edge holds back.
    pub waiting: u32,
    /// Whether another edge held its lock when it was looked at: it comes after all that nobody is at.
    pub busy: bool,
}

/// Everything that a look shows, by [`NodeId`] and [`SiteId`].
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// All nodes of the cluster.
    pub nodes: &'a [NodeView],
    /// All sites.
    pub sites: &'a [SiteView],
    /// How the promises to them stand; none where nothing was promised, or nobody knows: moves then go by load alone.
    pub standings: &'a [Standing],
}

impl Snapshot<'_> {
    fn standing(&self, site: SiteId) -> Standing {
        self.standings.get(site.index()).copied().unwrap_or_default()
    }
}

/// Why a site is to have another node; the most pressing last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Need {
    /// A better node of it is to go to another site next, whose load stayed high for T.
    Stage,
    /// Its load stayed high for T, or its target in danger.
    High,
    /// Requests wait, and no node of it is up.
    Stranded,
    /// Fewer nodes of it are up than its floor.
    Floor,
}

/// Why a node can be spared; the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// It serves no site.
    Free,
    /// Its site has more nodes than its ceiling, since some came back to life.
    Surplus,
    /// Its site was idle for T, and stays so without it.
    Idle,
    /// Its site has work, and a lower priority than the receiver.
    LowerPriority,
    /// Its site has equal priority and clearly less load, and the greater load of the two falls; where one of them has a
    /// target, that of the donor holds without the node.
    Pays,
    /// Its site has more than its floor while the receiver has less.
    Guarantee,
}

/// One move, to be made true by `reconfig`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MovePlan {
    /// The node.
    pub node: NodeId,
    /// The ownership that this was decided from: if it is another by now, the plan is void.
    pub expected: Ownership,
    /// The site that it leaves; `None` for a free node.
    pub from: Option<SiteId>,
    /// The site that it is to serve.
    pub to: SiteId,
    /// Why `to` is to have another.
    pub need: Need,
    /// Why this one can be spared.
    pub source: Source,
    /// The load of `to`; infinite where nothing serves it and requests wait.
    pub load: f64,
}

/// Decides which node changes its site. One for each edge; a value without any outside.
#[derive(Clone, PartialEq, Debug)]
pub struct Reconfigurer {
    settings: Settings,
    account: Account,
    histories: Vec<History>,
    /// The ownership of each node when it was last readable.
    seen: Vec<Option<Ownership>>,
    looked: Option<Time>,
    /// What is to follow the last move.
    stage: Option<Stage>,
}

impl Reconfigurer {
    /// For a cluster of `sites` and `nodes`.
    ///
    /// # Errors
    /// Where the settings make no sense, or there are more than the words can name.
    pub fn new(settings: Settings, sites: usize, nodes: usize) -> Result<Self, SettingsError> {
        settings.check()?;
        for (what, found, max) in [("sites", sites, SITES_MAX), ("nodes", nodes, NODES_MAX)] {
            if found > max {
                return Err(SettingsError::TooMany { what, found, max });
            }
        }
        Ok(Reconfigurer {
            settings,
            account: Account::default(),
            histories: vec![History::default(); sites],
            seen: vec![None; nodes],
            looked: None,
            stage: None,
        })
    }

    /// One look: the move to make now, if any. The same looks give the same moves.
    ///
    /// It takes time in proportion to the nodes, times the sites that need one while none can be had.
    ///
    /// # Panics
    /// Where the snapshot is of another number of sites or nodes than [`Reconfigurer::new`] was told.
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

        let Reconfigurer { settings, account, histories, .. } = &*self;
        let look = Look { settings, snapshot, account, histories, now };
        let pending = self.stage.filter(|stage| look.is_pending(stage));
        let second = pending.and_then(|stage| look.follow(&stage));
        let (plan, stage) = match second {
            Some(second) => (Some(second), None),
            None => match look.plan(pending.map(|stage| stage.to)) {
                Some((plan, stage)) => (Some(plan), stage.or(pending)),
                None => (None, pending),
            },
        };
        self.stage = stage;
        let plan = plan?;
        self.restart(Some(plan.to), now);
        self.restart(plan.from, now);
        Some(plan)
    }

    /// The load of a site at the last look: the mean utilisation of its live nodes, weighted by what each can do, where
    /// 1.0 is all workers busy and more is requests that queue. Requests that the edge holds back count as queued, and
    /// nodes on their way to the site as empty ones of it. Infinite where requests wait for a site without a node.
    pub fn load(&self, site: SiteId) -> f64 {
        self.account.sites.get(site.index()).map_or(0.0, account::Site::load)
    }

    /// Restarts the history of sites between which a node was moved, by whomever.
    fn notice_moves(&mut self, snapshot: &Snapshot<'_>, now: Time) {
        for (node, view) in snapshot.nodes.iter().enumerate() {
            let Some(ownership) = view.ownership else { continue };
            if let Some(before) = self.seen[node].replace(ownership)
                && destination(before) != destination(ownership)
            {
                self.restart(destination(before), now);
                self.restart(destination(ownership), now);
            }
        }
    }

    fn restart(&mut self, site: Option<SiteId>, now: Time) {
        if let Some(history) = site.and_then(|site| self.histories.get_mut(site.index())) {
            history.restart(&self.settings, now);
        }
    }
}

/// The site that a node serves, or will once it has drained.
fn destination(ownership: Ownership) -> Option<SiteId> {
    match ownership.state {
        NodeState::Free => None,
        NodeState::Serving => ownership.site,
        NodeState::Draining => ownership.next,
    }
}
