//! What must hold at every step, by the words themselves and not by what anybody has read of them.

use sidelong_layout::{NodeId, NodeState, Ownership, SiteId};
use sidelong_reconfig::Protocol;

use crate::simulated::cluster::{FLOORS, Truth, nodes, sites};

/// What was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rule {
    /// No site falls below its floor.
    Floor,
    /// A budget promises no node that does not serve.
    Budget,
    /// Every change of a word raises its sequence.
    Sequence,
    /// A node goes to a site by leaving its old one, and leaves it by acknowledging.
    Leave,
    /// Whoever frees a lock has settled what drained towards its site.
    Settled,
    /// Under a free lock no operation of an earlier holder takes effect.
    Fenced,
    /// A lock becomes free in bounded time, and what was left undone under it is mended.
    Whole,
}

/// Between two looks at the words, with at most a few operations between them.
pub(crate) fn check(before: &Truth, after: &Truth, protocol: Protocol) -> Result<(), Rule> {
    let keeps_floor = sites().all(|site| after.serving(site) >= FLOORS[site.index()]);
    ensure(keeps_floor, Rule::Floor)?;
    if protocol == Protocol::Paper {
        return Ok(()); // It has no budgets, no draining, and locks without a sequence.
    }
    let is_backed = sites().all(|site| after.budgets[site.index()].current <= after.serving(site));
    ensure(is_backed, Rule::Budget)?;

    let locks = before.locks.iter().zip(&after.locks).map(|(b, a)| (b == a, b.sequence, a.sequence));
    let budgets =
        before.budgets.iter().zip(&after.budgets).map(|(b, a)| (b == a, b.generation, a.generation));
    let owned = before.nodes.iter().zip(&after.nodes).map(|(b, a)| (b == a, b.generation, a.generation));
    let is_raised = |(same, before, after)| same || after > before;
    ensure(locks.chain(budgets).chain(owned).all(is_raised), Rule::Sequence)?;

    let leaves = |node: usize| {
        let acknowledged = before.acks[node].map(|ack| ack.generation);
        leaves_lawfully(before.nodes[node], after.nodes[node], acknowledged)
    };
    ensure(nodes().all(|node| leaves(node.index())), Rule::Leave)
}

/// Of a word that changed once. (Of one that changed more often since the last look, as that of a node which came back,
/// not all values were seen.)
fn leaves_lawfully(before: Ownership, after: Ownership, acknowledged: Option<u64>) -> bool {
    if after.generation != before.generation + 1 {
        return true;
    }
    match (before.state, after.state) {
        (NodeState::Free, NodeState::Free | NodeState::Serving) => true,
        (NodeState::Serving, NodeState::Serving | NodeState::Draining) => before.site == after.site,
        (NodeState::Draining, NodeState::Serving) => {
            after.site == before.site
                || (after.site == before.next && acknowledged == Some(before.generation))
        }
        _ => false,
    }
}

/// What an edge found when it took a lock, and what it left when it freed it.
pub(crate) struct Tenure {
    stolen: bool,
    taken: Truth,
    pub(crate) freed: Option<Truth>,
}

impl Tenure {
    pub(crate) fn new(stolen: bool, taken: &Truth) -> Self {
        Tenure { stolen, taken: taken.clone(), freed: None }
    }

    /// Whether nothing drains towards the site but what did so before under a free lock, which is for a repair.
    pub(crate) fn has_settled(&self, site: SiteId) -> bool {
        let Some(freed) = self.freed.as_ref().filter(|freed| freed.locks[site.index()].owner.is_none())
        else {
            return true; // Its last operation was lost.
        };
        let was_so =
            |node: NodeId| !self.stolen && self.taken.nodes[node.index()] == freed.nodes[node.index()];
        nodes().filter(|node| freed.nodes[node.index()].next == Some(site)).all(was_so)
    }
}

/// The sites towards which a node began or ceased to drain while their lock was free all the time.
pub(crate) fn moved_under_free_lock(before: &Truth, after: &Truth) -> impl Iterator<Item = SiteId> {
    let was_free = |site: SiteId| {
        let (before, after) = (before.locks[site.index()], after.locks[site.index()]);
        before == after && after.owner.is_none()
    };
    sites().filter(move |site| was_free(*site)).filter(|site| {
        nodes().any(|node| {
            let (before, after) = (before.nodes[node.index()], after.nodes[node.index()]);
            before.next != after.next && [before.next, after.next].contains(&Some(*site))
        })
    })
}

fn ensure(holds: bool, rule: Rule) -> Result<(), Rule> {
    if holds { Ok(()) } else { Err(rule) }
}
