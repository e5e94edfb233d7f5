//! The words, and the rules for their changes.

use sidelong_layout::{
    Ack, Budget, Change, ChangeResult, Lock, NodeId, NodeState, Ownership, SITES_MAX, SiteId,
};
use sidelong_state::{NodeAgent, Op, Reply, Word};

use crate::model::front::{Deed, Front};
use crate::model::roster::{Change as RosterChange, Roster};
use crate::model::world::{Protocol, Setup, Weakness};

/// The one rule that a node out of reach of a repair may break.
pub(crate) const LATE: &str = "an operation took effect after its lock was freed";

/// The generation of the budgets of a board that begins anew.
const NEW_BOARD: u64 = 1000;

/// An operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Flight {
    pub(crate) op: Op,
    /// The sender, the site whose lock it works under, and how often that lock had been freed when the sender took it.
    pub(crate) edge: usize,
    pub(crate) site: SiteId,
    pub(crate) tenure: u32,
    /// Which board the sender uses ([`Roster::term`]).
    pub(crate) term: usize,
}

/// A board that another node had: its locks, budgets and epoch.
type OldBoard = (Vec<u64>, Vec<u64>, u64);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Memory {
    locks: Vec<u64>,
    budgets: Vec<u64>,
    counters: Vec<Vec<u64>>,
    nodes: Vec<u64>,
    acks: Vec<u64>,
    agents: Vec<NodeAgent>,
    pub(crate) fronts: Vec<Front>,
    /// The newest roster, and the epoch on the board.
    pub(crate) roster: Roster,
    pub(crate) epoch: u64,
    /// The board before this one, if it went.
    old_board: Option<OldBoard>,
    /// Nodes whose word who closes a site has written anew.
    renewed: Vec<bool>,
    /// How often each lock was freed.
    freed: Vec<u32>,
    /// The rule that a change broke.
    pub(crate) broken: Option<&'static str>,
}

impl Memory {
    pub(crate) fn new(setup: &Setup) -> Self {
        let sites = setup.floors.len();
        let node = |home: &Option<usize>| match home {
            Some(site) => Ownership::serving(SiteId::new(*site), 0).encode(),
            None => 0,
        };
        let budget = |site: usize| {
            let current = setup.homes.iter().filter(|home| **home == Some(site)).count() as u16;
            Budget { floor: setup.floors[site], current, generation: 0 }.encode()
        };
        Memory {
            locks: vec![0; sites],
            budgets: (0..sites).map(budget).collect(),
            counters: vec![vec![0; setup.scripts.len()]; sites],
            nodes: setup.homes.iter().map(node).collect(),
            acks: vec![0; setup.homes.len()],
            agents: vec![NodeAgent::new(); setup.homes.len()],
            fronts: vec![Front::new(setup.homes.len()); setup.fronts],
            roster: Roster::FIRST,
            epoch: 0,
            old_board: None,
            renewed: vec![false; setup.homes.len()],
            freed: vec![0; sites],
            broken: None,
        }
    }

    pub(crate) fn value(&self, word: Word) -> u64 {
        match word {
            Word::Lock(site) => self.locks[site.index()],
            Word::Budget(site) => self.budgets[site.index()],
            Word::Counter(site, edge) => self.counters[site.index()][edge.index()],
            Word::Ownership(node) => self.nodes[node.index()],
            Word::Ack(node) => self.acks[node.index()],
            Word::Front(front, node) => self.fronts[front.index()].words[node.index()],
            Word::Epoch => self.epoch,
        }
    }

    fn place(&mut self, word: Word) -> &mut u64 {
        match word {
            Word::Lock(site) => &mut self.locks[site.index()],
            Word::Budget(site) => &mut self.budgets[site.index()],
            Word::Counter(site, edge) => &mut self.counters[site.index()][edge.index()],
            Word::Ownership(node) => &mut self.nodes[node.index()],
            Word::Ack(node) => &mut self.acks[node.index()],
            Word::Front(front, node) => &mut self.fronts[front.index()].words[node.index()],
            Word::Epoch => &mut self.epoch,
        }
    }

    /// Writes the next roster. Who is removed from it as lost has no request any more.
    pub(crate) fn enroll(&mut self, setup: &Setup) {
        self.roster = self.roster.next(setup).expect("enabled");
        self.renewed.fill(false);
        match self.roster.last(setup) {
            Some(RosterChange::FrontIsLost(front)) => self.fronts[front].burn(),
            Some(RosterChange::BoardGoes) => self.begin_board(setup),
            _ => {}
        }
    }

    /// The board begins anew, with the epoch of the newest roster, and no budget from which a node could be taken.
    fn begin_board(&mut self, setup: &Setup) {
        let budget = |floor: &u16| Budget { floor: *floor, current: 0, generation: NEW_BOARD }.encode();
        let budgets = setup.floors.iter().map(budget).collect();
        let locks = vec![0; self.locks.len()];
        self.old_board = Some((
            std::mem::replace(&mut self.locks, locks),
            std::mem::replace(&mut self.budgets, budgets),
            std::mem::replace(&mut self.epoch, self.roster.epoch),
        ));
    }

    /// Whether the next roster may be written. A site leaves once all can know that it closes, no node's word names it, and no mover can give
    /// it one that is free or held by an epoch that it read before: such a word was written anew.
    pub(crate) fn may_enroll(&self, setup: &Setup) -> bool {
        let is_known = self.epoch == self.roster.epoch;
        let has_no = |node: usize, site: SiteId| {
            self.node(node).is_some_and(|word| {
                let is_safe =
                    !is_at_rest(word) || self.renewed[node] || setup.weakness == Weakness::RestUnfenced;
                is_safe && ![word.site, word.next].contains(&Some(site))
            })
        };
        is_known
            && match self.roster.next_change(setup) {
                Some(RosterChange::SiteLeaves(site)) => {
                    (0..self.nodes()).all(|node| has_no(node, SiteId::new(site)))
                }
                next => next.is_some(),
            }
    }

    /// Whether who closes a site has yet to write the node's word anew.
    pub(crate) fn is_to_be_renewed(&self, node: usize, setup: &Setup) -> bool {
        let closes = matches!(self.roster.next_change(setup), Some(RosterChange::SiteLeaves(_)));
        closes
            && self.epoch == self.roster.epoch
            && setup.weakness != Weakness::RestUnfenced
            && !self.renewed[node]
            && self.node(node).is_some_and(is_at_rest)
    }

    pub(crate) fn renew(&mut self, node: usize) {
        let word = self.node(node).expect("it is at rest");
        self.nodes[node] = word.renewed().encode();
        self.renewed[node] = true;
    }

    /// Whether the roster does not change next, and all can know of it.
    pub(crate) fn is_settled(&self, setup: &Setup) -> bool {
        !self.may_enroll(setup) && self.epoch == self.roster.epoch
    }

    /// Whether a front has joined, and may look and send.
    pub(crate) fn sends(&self, front: usize, setup: &Setup) -> bool {
        let is_announced = self.epoch == self.roster.epoch
            || setup.weakness == Weakness::JoinsUnannounced
            || self.roster.last(setup) != Some(RosterChange::FrontJoins(front));
        is_announced && self.roster.has_front(front, setup)
    }

    /// A front does something; returns whether a request began.
    pub(crate) fn go_on(&mut self, front: usize, deed: Deed, weakness: Weakness) -> bool {
        self.fronts[front].act(deed, &self.nodes, weakness)
    }

    pub(crate) fn ownerships(&self) -> &[u64] {
        &self.nodes
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// `None` where the word says nothing.
    pub(crate) fn node(&self, node: usize) -> Option<Ownership> {
        Ownership::decode(self.nodes[node], self.locks.len())
    }

    /// A fault: the word holds something else.
    pub(crate) fn corrupt(&mut self, word: Word, value: u64) {
        *self.place(word) = value;
    }

    pub(crate) fn budget(&self, site: SiteId) -> Budget {
        Budget::decode(self.budgets[site.index()])
    }

    pub(crate) fn serving(&self, site: SiteId) -> u16 {
        (0..self.nodes()).filter(|&node| self.node(node).is_some_and(|word| word.serves(site))).count() as u16
    }

    pub(crate) fn freed(&self, site: SiteId) -> u32 {
        self.freed[site.index()]
    }

    pub(crate) fn awaits_acknowledgement(&self, node: usize) -> bool {
        let ack = Ack::decode(self.acks[node]);
        let is_awaited = |word: Ownership| {
            word.state == NodeState::Draining && ack.is_none_or(|ack| ack.generation != word.generation)
        };
        self.node(node).is_some_and(is_awaited)
    }

    /// Whether the node runs its commands, as far as it knows.
    pub(crate) fn changes(&self, node: usize) -> bool {
        let changed = Change::decode(self.acks[node]);
        let is_at_it = |word: Ownership| {
            word.state == NodeState::Changing
                && changed.is_none_or(|changed| changed.generation != word.generation)
        };
        self.node(node).is_some_and(is_at_it)
    }

    pub(crate) fn change(&mut self, node: usize, result: ChangeResult) {
        let word = self.node(node).expect("it changes");
        self.acks[node] = Change { generation: word.generation, result }.encode();
    }

    pub(crate) fn acknowledge(&mut self, node: usize) {
        let ack = self.agents[node].observe(self.nodes[node], 0);
        self.acks[node] = ack.expect("it awaits one").encode();
    }

    /// Executes an operation and checks what it changes.
    pub(crate) fn take_effect(&mut self, flight: Flight, setup: &Setup) -> Reply {
        let word = flight.op.word();
        let is_of_this_board = flight.term == self.roster.term(setup);
        if !is_of_this_board && let Some(reply) = self.at_old_board(flight.op, setup) {
            return reply;
        }
        let before = self.value(word);
        let Op::CompareAndSwap { expected, new, .. } = flight.op else {
            *self.place(word) = flight.op.applied_to(before);
            return Reply::Value(before);
        };
        if !matches(word, before, expected, setup.weakness) {
            return Reply::Value(before);
        }
        let rule = match setup.protocol {
            Protocol::Leased => self.broken_rule(flight.op.word(), before, new, setup),
            Protocol::Paper => None,
        };
        // A node that is sent to a site that has left says nothing, and is repaired. A repair that finds a newer roster leaves budgets to the
        // next one, and so to the holder before it.
        let is_repaired = !self.roster.has_site(flight.site.index(), setup)
            || !setup.changes.is_empty() && matches!(word, Word::Budget(_));
        // What was under way when the board went is repaired by the next one.
        let is_repaired = is_repaired || !is_of_this_board;
        let late = (flight.tenure != self.freed(flight.site) && !is_repaired).then_some(LATE);
        self.broken = self.broken.or(rule).or(late);
        *self.place(word) = match word {
            // As if it were not known what the word should hold.
            Word::Ownership(node) if setup.weakness == Weakness::Unrepaired && self.says_nothing(node) => {
                before
            }
            Word::Budget(_) if setup.weakness == Weakness::Unrepaired => {
                Budget { floor: Budget::decode(before).floor, ..Budget::decode(new) }.encode()
            }
            _ => new,
        };
        if let Word::Lock(site) = word
            && Lock::decode(new).owner.is_none()
        {
            self.freed[site.index()] += 1;
        }
        Reply::Value(expected)
    }

    /// What becomes of an operation on a word of the board that has gone; `None` if it is not one.
    fn at_old_board(&mut self, op: Op, setup: &Setup) -> Option<Reply> {
        let (locks, budgets, epoch) = self.old_board.as_mut()?;
        let place = match op.word() {
            Word::Lock(site) => &mut locks[site.index()],
            Word::Budget(site) => &mut budgets[site.index()],
            Word::Epoch => epoch,
            Word::Counter(..) => return Some(Reply::Lost),
            Word::Ownership(_) | Word::Ack(_) | Word::Front(..) => return None,
        };
        if setup.weakness != Weakness::OldBoardStays {
            return Some(Reply::Lost);
        }
        let before = *place;
        *place = op.applied_to(before);
        Some(Reply::Value(before))
    }

    /// If the operation gave its sender a lock: the number of times that the lock had been freed.
    pub(crate) fn tenure_begun(&self, flight: Flight) -> Option<u32> {
        let Op::CompareAndSwap { word: Word::Lock(site), new, .. } = flight.op else { return None };
        let taken = Lock::decode(new).owner.is_some_and(|owner| owner.index() == flight.edge);
        (taken && self.value(Word::Lock(site)) == new).then(|| self.freed(site))
    }

    /// Whether a late operation may still change something. With sequences that count, it cannot once its expected
    /// value is gone.
    pub(crate) fn may_take_effect(&self, flight: &Flight, setup: &Setup) -> bool {
        match flight.op {
            Op::Read(_) => false,
            Op::FetchAndAdd { .. } => true,
            Op::CompareAndSwap { word, expected, .. } => {
                setup.protocol == Protocol::Paper
                    || setup.weakness != Weakness::None
                    || self.value(word) == expected
            }
        }
    }

    fn says_nothing(&self, node: NodeId) -> bool {
        self.node(node.index()).is_none()
    }

    fn broken_rule(&self, word: Word, before: u64, new: u64, setup: &Setup) -> Option<&'static str> {
        let weakness = setup.weakness;
        match word {
            Word::Lock(_) => {
                let raised = Lock::decode(before).sequence + 1 == Lock::decode(new).sequence;
                (!raised && weakness != Weakness::LockSequence)
                    .then_some("a lock's sequence was not raised by one")
            }
            Word::Budget(site) => {
                let (before, new) = (Budget::decode(before), Budget::decode(new));
                let raised =
                    before.generation + 1 == new.generation && new.floor == setup.floors[site.index()];
                (!raised && weakness != Weakness::BudgetGeneration).then_some("a budget was changed wrongly")
            }
            Word::Ownership(node) => self.check_node(node, before, new, setup),
            Word::Counter(..) | Word::Ack(_) | Word::Front(..) | Word::Epoch => {
                Some("a word was swapped that is not for swapping")
            }
        }
    }

    fn check_node(&self, node: NodeId, before: u64, new: u64, setup: &Setup) -> Option<&'static str> {
        let decoded = |word: u64| Ownership::decode(word, self.locks.len());
        let Some(new) = decoded(new) else { return Some("a node's word was made to say nothing") };
        if new.serving_site().is_some_and(|site| !self.roster.has_site(site.index(), setup)) {
            return Some("a node serves a site that has left");
        }
        // One that said nothing may become anything.
        let before = decoded(before)?;
        if before.generation + 1 != new.generation && setup.weakness != Weakness::NodeGeneration {
            return Some("a node's generation was not raised by one");
        }
        let acknowledged = Ack::decode(self.acks[node.index()]).map(|ack| ack.generation);
        let has_left = setup.foreign || acknowledged == Some(before.generation);
        let changed = Change::decode(self.acks[node.index()]);
        let changed = changed.filter(|change| change.generation == before.generation);
        let result = changed.map(|changed| changed.result);
        let must_change = setup.commands;
        let lawful = match (before.state, new.state) {
            (NodeState::Free, NodeState::Free) => true,
            (NodeState::Free | NodeState::Held, NodeState::Serving | NodeState::Pinned) => !must_change,
            (NodeState::Free, NodeState::Changing) => must_change && new.site.is_none(),
            (NodeState::Held, NodeState::Changing) => {
                must_change && new.site.is_none_or(|site| before.site == Some(site))
            }
            (NodeState::Draining, NodeState::Changing) => {
                must_change && has_left && (new.site, new.next) == (before.site, before.next)
            }
            (NodeState::Changing, NodeState::Serving | NodeState::Pinned) => match result {
                Some(ChangeResult::Changed) => new.site == before.next,
                Some(ChangeResult::Undone(_)) => new.site == before.site && new.state == NodeState::Pinned,
                Some(ChangeResult::Failed(_)) | None => false,
            },
            (NodeState::Changing, NodeState::Held) => new.site == before.site.or(before.next),
            (
                NodeState::Serving | NodeState::Pinned,
                NodeState::Serving | NodeState::Pinned | NodeState::Draining,
            )
            | (NodeState::Held, NodeState::Held) => before.site == new.site,
            (NodeState::Draining, NodeState::Serving | NodeState::Pinned) => {
                new.site == before.site || (new.site == before.next && has_left && !must_change)
            }
            (NodeState::Draining, NodeState::Held) => {
                before.next.is_none() && new.site == before.site && has_left
            }
            _ => false,
        };
        (!lawful).then_some("a node was sent to a site without leaving its old one")
    }
}

/// Whether a mover may give the node to a site at once, without making it drain.
fn is_at_rest(word: Ownership) -> bool {
    matches!(word.state, NodeState::Free | NodeState::Held)
}

/// Compares as the memory does, or as a weak one would.
fn matches(word: Word, before: u64, expected: u64, weakness: Weakness) -> bool {
    const FORTY_BITS: u64 = (1 << 40) - 1;
    const THIRTY_SIX_BITS: u64 = (1 << 36) - 1;
    let ignored = match (word, weakness) {
        (Word::Lock(_), Weakness::LockSequence) | (Word::Budget(_), Weakness::BudgetGeneration) => FORTY_BITS,
        (Word::Ownership(_), Weakness::NodeGeneration) => THIRTY_SIX_BITS,
        _ => 0,
    };
    before | ignored == expected | ignored
}

/// The node that `op` takes from its site, and the word that it expects.
pub(crate) fn drained_node(op: Op) -> Option<(usize, u64)> {
    let Op::CompareAndSwap { word: Word::Ownership(node), expected, new } = op else { return None };
    let drains = Ownership::decode(new, SITES_MAX).is_some_and(|word| word.state == NodeState::Draining);
    drains.then_some((node.index(), expected))
}
