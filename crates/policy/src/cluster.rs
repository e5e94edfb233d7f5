//! The cluster as a scan shows it, from which decisions are made. Plain values without decisions.

use sidelong_layout::{Hot, NodeState, Ownership, SiteId};

use crate::index::Capacity;

/// A node, as an edge sees it now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeView {
    /// Its ownership word; `None` if it could not be read. The node then counts for its last owner, and is not moved.
    pub ownership: Option<Ownership>,
    /// Its record; `None` if it was rejected or is too old. Its load is then unknown, and its site gives no node.
    pub load: Option<Hot>,
    /// Whether its connections work ([`crate::health::State::Up`]).
    pub up: bool,
    /// Whether it does not work even when tried again ([`crate::health::Health::has_failed_again`]). A node that is
    /// neither up nor dead is in doubt: it is not moved, and its site waits for it.
    pub dead: bool,
    /// What it can do.
    pub capacity: Capacity,
    /// The edges' requests there, as far as this edge knows.
    pub in_flight: u32,
}

impl NodeView {
    /// What is seen in a slot that no node has: nothing serves or will serve.
    pub(crate) const VACANT: NodeView = NodeView {
        ownership: Some(Ownership { state: NodeState::Held, site: None, next: None, generation: 0 }),
        load: None,
        up: true,
        dead: false,
        capacity: Capacity { workers: 1, speed: 1.0, cpus: 1.0, net_bytes_per_s: 0 },
        in_flight: 0,
    };
}

/// A site: its promises, and the requests that wait for it. By default it is a slot that no site has, which gets no node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteView {
    /// Nodes that it is guaranteed (Reconf-PQ).
    pub floor: u16,
    /// Most nodes that it may have; at least `floor`.
    pub ceiling: u16,
    /// Its priority; a higher number is more important (Reconf-P).
    pub priority: u8,
    /// Requests for it that this edge holds back.
    pub waiting: u32,
    /// Whether its lock was held at the scan, by another edge or for a move of this one. Such sites come last.
    pub busy: bool,
}

/// What the edges see of a node from outside, over all that this edge hears. By default nothing is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Requests sent there whose answer has not begun.
    pub in_flight: u32,
    /// Successful answers that have begun, counted from any start; it never decreases.
    pub answers: u64,
    /// Whether its connections work, regardless of its record.
    pub up: bool,
}

/// How well the promise to a site is kept, as admission control sees it at the same scan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// Queue delay relative to its budget; 1.0 is all of it. `None` without a target, or if nothing is known: moves
    /// then depend on the site's load alone.
    pub strain: Option<f64>,
    /// The part of its clients that is admitted, 0 to 1.
    pub admitted: f64,
    /// The part of the pool, 0 to 1, up to which it gives nodes only to sites below their floors.
    pub share: f64,
}

impl Default for Standing {
    /// A site without promises.
    fn default() -> Self {
        Standing { strain: None, admitted: 1.0, share: 0.0 }
    }
}

/// Everything that a scan shows, by node and by [`SiteId`].
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// All nodes of the cluster.
    pub nodes: &'a [NodeView],
    /// All sites.
    pub sites: &'a [SiteView],
    /// How well their promises are kept; empty without promises or knowledge: moves then depend on load alone.
    pub standings: &'a [Standing],
}

impl Snapshot<'_> {
    pub(crate) fn standing(&self, site: SiteId) -> Standing {
        self.standings.get(site.index()).copied().unwrap_or_default()
    }
}

/// The site that a node serves, or will serve once it has drained and changed.
pub(crate) fn destination(ownership: Ownership) -> Option<SiteId> {
    match ownership.state {
        NodeState::Free | NodeState::Held => None,
        NodeState::Serving | NodeState::Pinned => ownership.site,
        NodeState::Draining | NodeState::Changing => ownership.next,
    }
}
