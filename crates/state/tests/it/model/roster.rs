//! Who belongs to the cluster: the newest roster, which whoever changes it writes before the board's epoch is raised, and the
//! older one that an edge may still go by.

use sidelong_layout::{EdgeId, SiteId};
use sidelong_state::Pool;

use crate::model::world::{CHANGE_NS_MAX, Setup, Weakness};

/// What joins or is removed while the edges work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Change {
    /// A front begins to send requests.
    FrontJoins(usize),
    /// A front's machine has burnt, and a person says so.
    FrontIsLost(usize),
    /// A node that is free.
    NodeJoins(usize),
    /// A site without nodes.
    SiteJoins(usize),
    /// A site is to leave: no node is to come there any more.
    SiteCloses(usize),
    /// It has left, since no node's word names it.
    SiteLeaves(usize),
    /// Another node has the board from now on, where it begins anew. The one before is gone.
    BoardGoes,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Roster {
    pub(crate) epoch: u64,
    /// The changes of the world's list that it has.
    changes: usize,
}

impl Roster {
    pub(crate) const FIRST: Roster = Roster { epoch: 0, changes: 0 };

    /// Each has one change more than the one before.
    pub(crate) fn of_epoch(epoch: u64) -> Self {
        Roster { epoch, changes: epoch as usize }
    }

    /// With the next change of the list.
    pub(crate) fn next(&self, setup: &Setup) -> Option<Roster> {
        (self.changes < setup.changes.len())
            .then_some(Roster { epoch: self.epoch + 1, changes: self.changes + 1 })
    }

    /// The change that comes next.
    pub(crate) fn next_change(&self, setup: &Setup) -> Option<Change> {
        setup.changes.get(self.changes).copied()
    }

    /// The change that it ends with.
    pub(crate) fn last(&self, setup: &Setup) -> Option<Change> {
        self.changes.checked_sub(1).map(|last| setup.changes[last])
    }

    /// Whether `joins` has happened, or is no change of this world.
    fn has(&self, joins: Change, setup: &Setup) -> bool {
        self.has_had(joins, setup) || !setup.changes.contains(&joins)
    }

    fn has_had(&self, change: Change, setup: &Setup) -> bool {
        setup.changes[..self.changes].contains(&change)
    }

    /// Which board it names: how often that went to another node.
    pub(crate) fn term(&self, setup: &Setup) -> usize {
        setup.changes[..self.changes].iter().filter(|change| **change == Change::BoardGoes).count()
    }

    pub(crate) fn has_site(&self, site: usize, setup: &Setup) -> bool {
        self.has(Change::SiteJoins(site), setup) && !self.has_had(Change::SiteLeaves(site), setup)
    }

    /// Whether no node is to come to the site any more.
    pub(crate) fn closes(&self, site: usize, setup: &Setup) -> bool {
        self.has_had(Change::SiteCloses(site), setup)
    }

    pub(crate) fn has_node(&self, node: usize, setup: &Setup) -> bool {
        self.has(Change::NodeJoins(node), setup)
    }

    pub(crate) fn has_front(&self, front: usize, setup: &Setup) -> bool {
        let lost = Change::FrontIsLost(front);
        self.has(Change::FrontJoins(front), setup) && !self.has_had(lost, setup)
    }

    /// The cluster as an edge knows it by this roster.
    pub(crate) fn pool(&self, setup: &Setup) -> Pool {
        let (sites, nodes) = (setup.floors.len(), setup.homes.len());
        let homes = setup.homes.iter().map(|home| home.map(SiteId::new));
        let pool = Pool::new(setup.floors.iter().copied(), homes);
        let pool = pool.with_silent(setup.homes.iter().map(|_| setup.foreign));
        let asks = setup.commands && setup.weakness != Weakness::CommandsUnasked;
        let pool = pool.with_changes(asks.then_some(CHANGE_NS_MAX)).of_epoch(self.epoch);
        let pool = pool.with_vacant(
            (0..sites).map(|site| !self.has_site(site, setup)),
            (0..nodes).map(|node| !self.has_node(node, setup)),
        );
        let lands = setup.weakness == Weakness::ClosingLands;
        let pool = pool.with_closing((0..sites).map(|site| !lands && self.closes(site, setup)));
        match setup.weakness {
            Weakness::FrontsUnasked | Weakness::FalseAcknowledgement => pool,
            _ => {
                let fronts = (0..setup.fronts).filter(|front| self.has_front(*front, setup));
                pool.with_fronts(fronts.map(EdgeId::new))
            }
        }
    }
}
