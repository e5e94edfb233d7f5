//! The 8-byte words that are changed by remote atomics: site lock, site budget, node ownership; and the
//! acknowledgement, which only the node's own CPU writes.
//!
//! Each change is a compare-and-swap of the whole word that raises its sequence, so a late operation of a stalled or
//! dead process finds another value and fails. Sequences wrap: at one change a microsecond 36 bits last 19 hours, and a
//! late operation would have to sleep through a whole turn and wake at the very value it expects.

use crate::describe::{Word, values};
use crate::id::{EdgeId, NODES_MAX, SiteId};

pub(crate) const LOCK: Word = Word::new("lock", &[("owner", 12), ("incarnation", 12), ("sequence", 40)]);
pub(crate) const BUDGET: Word = Word::new("budget", &[("floor", 14), ("current", 14), ("generation", 36)]);
pub(crate) const OWNERSHIP: Word =
    Word::new("ownership", &[("state", 4), ("site", 12), ("next", 12), ("generation", 36)])
        .with(NodeState::VALUES);
/// Also a [`Change`](crate::Change).
pub(crate) const ACK: Word =
    Word::new("ack", &[("code", 8), ("cause", 4), ("step", 4), ("generation", 36), ("kind", 4)])
        .with(kind::VALUES);
const SEQUENCE_40: u64 = LOCK.max(2);
/// The largest generation of an ownership word or a budget, after which it wraps to 0.
pub const SEQUENCE_MAX: u64 = OWNERSHIP.max(3);

/// A site's lock, whose holder may reconfigure the site: `owner:12 incarnation:12 sequence:40`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lock {
    /// The holder; `None` while free.
    pub owner: Option<EdgeId>,
    /// Which life of the holder, 12 bits: a process that died and came back is another holder.
    pub incarnation: u16,
    /// Raised by every change, 40 bits. It doubles as the shared update counter of Balaji et al. 2004, 3.1.2.
    pub sequence: u64,
}

impl Lock {
    /// The word's value.
    pub const fn encode(self) -> u64 {
        LOCK.pack([owner_field(self.owner), self.incarnation as u64, self.sequence])
    }

    /// From the word's value; every value means something.
    pub const fn decode(word: u64) -> Self {
        let [owner, incarnation, sequence] = LOCK.unpack(word);
        Lock { owner: owner_of(owner), incarnation: incarnation as u16, sequence }
    }

    /// The successor held by `owner` in its life `incarnation`: taken, renewed or stolen.
    pub const fn held_by(self, owner: EdgeId, incarnation: u16) -> Self {
        Lock { owner: Some(owner), incarnation, sequence: self.sequence.wrapping_add(1) & SEQUENCE_40 }
    }

    /// The successor that is free.
    pub const fn freed(self) -> Self {
        Lock { owner: None, incarnation: 0, sequence: self.sequence.wrapping_add(1) & SEQUENCE_40 }
    }
}

/// The number of nodes that a site may still give: `floor:14 current:14 generation:36`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Budget {
    /// Guaranteed nodes; no move takes the site below.
    pub floor: u16,
    /// Nodes that serve the site and are not reserved by a move; never more than actually serve it.
    pub current: u16,
    /// Raised by every change, 36 bits.
    pub generation: u64,
}

impl Budget {
    /// The word's value.
    pub const fn encode(self) -> u64 {
        BUDGET.pack([self.floor as u64, self.current as u64, self.generation])
    }

    /// From the word's value.
    pub const fn decode(word: u64) -> Self {
        let [floor, current, generation] = BUDGET.unpack(word);
        Budget { floor: floor as u16, current: current as u16, generation }
    }

    /// The successor after one node was reserved for another site; `None` at the floor.
    pub const fn reserved(self) -> Option<Self> {
        self.reserved_above(self.floor)
    }

    /// The successor after one node was reserved although it may be guaranteed; `None` if there is none.
    pub const fn reserved_by_force(self) -> Option<Self> {
        self.reserved_above(0)
    }

    const fn reserved_above(self, floor: u16) -> Option<Self> {
        if self.current > floor { Some(self.with_current(self.current - 1)) } else { None }
    }

    /// The successor that counts `current` nodes.
    pub const fn with_current(self, current: u16) -> Self {
        self.rebuilt(self.floor, current)
    }

    /// The successor that guarantees `floor` nodes and counts `current`.
    pub const fn rebuilt(self, floor: u16, current: u16) -> Self {
        Budget { floor, current, generation: raised(self.generation) }
    }
}

values! {
    /// What a node is doing, as the cluster sees it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum NodeState {
        /// It belongs to no site, and any site may take it.
        Free = 0,
        /// It serves `Ownership::site`.
        Serving = 1,
        /// It leaves `Ownership::site` for `Ownership::next`, or to be held: gets no new requests until it has acknowledged.
        Draining = 2,
        /// It belongs to `Ownership::site` and serves nobody, until a person resumes or moves it.
        Held = 3,
        /// It serves `Ownership::site`, and only a person takes it from there.
        Pinned = 4,
        /// It has left `Ownership::site`, if it had one, and runs the commands that make it serve `Ownership::next`.
        Changing = 5,
    }
}

impl NodeState {
    /// Its name on pages and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            NodeState::Free => "free",
            NodeState::Serving => "serving",
            NodeState::Draining => "draining",
            NodeState::Held => "held",
            NodeState::Pinned => "pinned",
            NodeState::Changing => "changing",
        }
    }
}

/// Which site a node serves: `state:4 site:12 next_site:12 generation:36`, in the node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ownership {
    /// What the node is doing.
    pub state: NodeState,
    /// The site that it serves, leaves or, while held, belongs to.
    pub site: Option<SiteId>,
    /// While draining or changing, the site that it will serve; `None` if it will be held.
    pub next: Option<SiteId>,
    /// Raised by every change, 36 bits.
    pub generation: u64,
}

impl Ownership {
    /// A node that serves `site`, at `generation`.
    pub const fn serving(site: SiteId, generation: u64) -> Self {
        Ownership {
            state: NodeState::Serving,
            site: Some(site),
            next: None,
            generation: generation & SEQUENCE_MAX,
        }
    }

    /// The word's value.
    #[inline]
    pub const fn encode(self) -> u64 {
        OWNERSHIP.pack([self.state as u64, site_field(self.site), site_field(self.next), self.generation])
    }

    /// From the word's value, in a cluster of so many sites; `None` for what no mover of such a cluster writes: a state
    /// that this version does not know, a state without its site, a site that does not exist, a move from a site to itself.
    #[inline]
    pub const fn decode(word: u64, sites: usize) -> Option<Self> {
        let [state, from, to, generation] = OWNERSHIP.unpack(word);
        if from > sites as u64 || to > sites as u64 || from != 0 && from == to {
            return None;
        }
        let (site, next) = (site_of(from), site_of(to));
        let state = match (state, site, next) {
            (0, None, None) => NodeState::Free,
            (1, Some(_), None) => NodeState::Serving,
            (2, Some(_), _) => NodeState::Draining,
            (3, Some(_), None) => NodeState::Held,
            (4, Some(_), None) => NodeState::Pinned,
            (5, _, Some(_)) => NodeState::Changing,
            _ => return None,
        };
        Some(Ownership { state, site, next, generation })
    }

    /// The successor of `word`, whatever that is: serving `site`, or free.
    pub const fn replacing(word: u64, site: Option<SiteId>) -> Self {
        let state = if site.is_some() { NodeState::Serving } else { NodeState::Free };
        Ownership { state, site, next: None, generation: raised(word & SEQUENCE_MAX) }
    }

    /// The successor that leaves its site for `next`, or to be held; `None` unless it serves another site now.
    pub fn draining_to(self, next: Option<SiteId>) -> Option<Self> {
        let leaves = self.serving_site().is_some() && self.site != next;
        leaves.then(|| Ownership {
            state: NodeState::Draining,
            site: self.site,
            next,
            generation: raised(self.generation),
        })
    }

    /// The successor whose node changes to `next`: from the site that it has left, or from none if that is `next` itself.
    pub fn changing_to(self, next: SiteId) -> Self {
        Ownership {
            state: NodeState::Changing,
            site: self.site.filter(|site| *site != next),
            next: Some(next),
            generation: raised(self.generation),
        }
    }

    /// The successor that serves `site`.
    pub const fn now_serving(self, site: SiteId) -> Self {
        self.now(NodeState::Serving, site)
    }

    /// The successor that is of `site` in a state that has no other.
    pub const fn now(self, state: NodeState, site: SiteId) -> Self {
        Ownership { state, site: Some(site), next: None, generation: raised(self.generation) }
    }

    /// The successor that says the same, and fences off all who read the word before.
    pub const fn renewed(self) -> Self {
        Ownership { generation: raised(self.generation), ..self }
    }

    /// Whether the node counts for `site`: it serves it and is not leaving.
    pub fn serves(self, site: SiteId) -> bool {
        self.serving_site() == Some(site)
    }

    /// The site whose requests the node may be sent.
    pub fn serving_site(self) -> Option<SiteId> {
        match self.state {
            NodeState::Serving | NodeState::Pinned => self.site,
            NodeState::Free | NodeState::Draining | NodeState::Held | NodeState::Changing => None,
        }
    }

    /// While the node is on its way, the site whose lock its mover holds: where it goes or, to be held, where it was.
    pub fn on_its_way(self) -> Option<SiteId> {
        match self.state {
            NodeState::Draining | NodeState::Changing => self.next.or(self.site),
            NodeState::Free | NodeState::Serving | NodeState::Held | NodeState::Pinned => None,
        }
    }
}

const fn raised(generation: u64) -> u64 {
    generation.wrapping_add(1) & SEQUENCE_MAX
}

values! {
    /// What the word is in which a node acknowledges.
    pub(crate) mod kind: u64 {
        ACK = 1,
        CHANGED = 2,
        UNDONE = 3,
        FAILED = 4,
    }
}

/// The last ownership that the node itself acted on: `generation:36 state:4`. Stored by the node's CPU only.
///
/// A draining node acknowledges once the requests of the site that it leaves are done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ack {
    /// The generation of the ownership word that is in effect on the node.
    pub generation: u64,
}

impl Ack {
    /// The word's value.
    #[inline]
    pub const fn encode(self) -> u64 {
        ACK.pack([0, 0, 0, self.generation, kind::ACK])
    }

    /// From the word's value; `None` before the first acknowledgement.
    #[inline]
    pub const fn decode(word: u64) -> Option<Self> {
        let [_, _, _, generation, of] = ACK.unpack(word);
        if of == kind::ACK { Some(Ack { generation }) } else { None }
    }
}

// An identifier in a 12-bit field is its index plus one, so that zeroed memory names nobody.

const fn owner_field(owner: Option<EdgeId>) -> u64 {
    match owner {
        Some(owner) => owner.index() as u64 + 1,
        None => 0,
    }
}

const fn owner_of(field: u64) -> Option<EdgeId> {
    if field == 0 { None } else { Some(EdgeId::new(field as usize - 1)) }
}

const fn site_field(site: Option<SiteId>) -> u64 {
    match site {
        Some(site) => site.index() as u64 + 1,
        None => 0,
    }
}

#[inline]
const fn site_of(field: u64) -> Option<SiteId> {
    if field == 0 { None } else { Some(SiteId::new(field as usize - 1)) }
}

const _: () = assert!(BUDGET.max(1) == NODES_MAX as u64 && BUDGET.max(2) == SEQUENCE_MAX);
