//! A small cluster in which everything happens that the protocols must survive: edges crash, stall past their lease and
//! lose completions, and operations take effect long after. The model checker explores all of its histories, the random
//! walk some of a larger one. Both step the machines that run live.

use sidelong_layout::{ChangeResult, ChangeStep, Fault, FaultCause, Lock, Ownership, SiteId};
use sidelong_state::{Goal, Op, Outcome, Plan, Reply, Time, Timing, Word};

use crate::model::edge::{Edge, Machine};
use crate::model::front::{Deed, Front};
use crate::model::memory::{Flight, Memory, drained_node};
use crate::model::roster::Change;

/// A lease is renewed at 2, used until 5, stolen after 12; a node may drain for 3, which is not a multiple of the poll.
const LEASE_NS: u64 = 6;
const DRAIN_NS_MAX: u64 = 3;
/// So long may a node change, in a world whose sites have commands.
pub(crate) const CHANGE_NS_MAX: u64 = 5;

pub(crate) fn timing() -> Timing {
    Timing::new(LEASE_NS, 1, DRAIN_NS_MAX, 2).expect("valid")
}

/// Which protocol the edges run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Leased,
    Paper,
}

/// A rule of the protocol that the memory breaks, to verify that the checks detect it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weakness {
    None,
    /// Sequences of locks do not count, as if taking, stealing and freeing did not raise them.
    LockSequence,
    /// Generations of nodes do not count, as if the node were read after the reservation, and repairs fenced nothing.
    NodeGeneration,
    /// Generations of budgets do not count.
    BudgetGeneration,
    /// Ownerships that say nothing and floors stay as they are, whatever is swapped there.
    Unrepaired,
    /// Fronts are not asked: a node acknowledges once it has no request of the old site, as if none were on its way.
    FrontsUnasked,
    /// Fronts are not asked, and a node that knows of no request acknowledges at once.
    FalseAcknowledgement,
    /// A front sends a request by the ownership that it chose the node by, however old.
    NoSecondLook,
    /// Nodes are not asked whether their commands have ended.
    CommandsUnasked,
    /// A front states that it has seen an ownership before its requests can see it.
    StatesFirst,
    /// A front that joins does not raise the epoch, and sends requests all the same.
    JoinsUnannounced,
    /// A mover reads the epoch before it makes the node drain.
    EpochReadFirst,
    /// A repair does not ask whether there is a newer roster.
    EpochUnread,
    /// Who has a site leave does not write the words anew of nodes that are free or held.
    RestUnfenced,
    /// A repair lets a node land at a site that is about to leave.
    ClosingLands,
    /// A board that another node has by now is not gone: who does not hear of that, such as the first edge, uses it.
    OldBoardStays,
    /// A mover takes a lock of a new board for one of the old that it has seen held for long.
    MemosKept,
}

/// The constants of a world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) floors: Vec<u16>,
    /// The site that each node serves at first.
    pub(crate) homes: Vec<Option<usize>>,
    /// Whether the nodes' servers are not Sidelong's, and so acknowledge nothing.
    pub(crate) foreign: bool,
    /// Whether nodes run commands when they change sites.
    pub(crate) commands: bool,
    /// How the roster changes, in order.
    pub(crate) changes: Vec<Change>,
    /// How many fronts there are in the end, and requests that they send in all.
    pub(crate) fronts: usize,
    pub(crate) requests: u8,
    /// What each edge wants, in order.
    pub(crate) scripts: Vec<Vec<Plan>>,
    /// How often an edge retries a plan that found the site busy.
    pub(crate) retries: u8,
    /// Crashes, stalls and lost completions in all.
    pub(crate) faults: u8,
    pub(crate) protocol: Protocol,
    pub(crate) weakness: Weakness,
    /// What a fault may make of each word: any one of these values.
    pub(crate) corruptions: Vec<(Word, u64)>,
    /// Whether completions get lost.
    pub(crate) losses: bool,
    /// Whether crashed edges come back, in another life.
    pub(crate) restarts: bool,
    /// Whether plans use the site that a node serves at the time, whatever the script says.
    pub(crate) fresh_plans: bool,
}

impl Setup {
    fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.floors.len()).map(SiteId::new)
    }
}

/// The whole state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) clock: Time,
    pub(crate) memory: Memory,
    pub(crate) edges: Vec<Edge>,
    /// Operations whose sender no longer waits for them.
    pub(crate) late: Vec<Flight>,
    pub(crate) faults_left: u8,
    pub(crate) requests_left: u8,
    /// When a word was last corrupted.
    pub(crate) corrupted: Option<Time>,
}

/// A possible next action. Numbers are indexes in the world's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// An edge's posted operation takes effect, and the edge continues.
    Complete(usize),
    /// An edge's wait is over.
    Wake(usize),
    /// An idle edge watches a lock that is held.
    Watch(usize, SiteId),
    /// A node has finished the old site's requests, and acknowledges.
    Acknowledge(usize),
    /// A node's commands have ended.
    Change(usize, ChangeResult),
    /// A front goes on.
    Front(usize, Deed),
    /// Every edge waits, and time passes.
    Advance,
    /// A late operation takes effect.
    Late(usize),
    /// An operation never takes effect.
    Drop(usize),
    /// Fault: an edge dies; its posted operation may be late.
    Crash(usize),
    /// Fault: a front dies.
    Die(usize),
    /// Fault: an edge sleeps with an operation posted, which takes effect when it wakes.
    Stall(usize),
    /// Fault: an edge sleeps with an operation posted, which takes effect at once.
    Doze(usize),
    /// Fault: an edge gets no reply to its operation, which may be late.
    Lose(usize),
    /// Fault: a word holds something else.
    Corrupt(Word, u64),
    /// A crashed edge comes back.
    Restart(usize),
    /// A front that died comes back, and has seen nothing.
    Return(usize),
    /// The next change of the roster is written.
    Enroll,
    /// Who closes a site writes the word of a node that is free or held anew.
    Renew(usize),
    /// The board's epoch is raised to that of the newest roster.
    Announce,
    /// An edge whose plan waits for a site or node that it does not know takes the newest roster.
    Learn(usize),
}

impl Action {
    pub(crate) fn is_fault(self) -> bool {
        let is_of_edge = matches!(self, Action::Crash(_) | Action::Stall(_) | Action::Doze(_));
        is_of_edge || self.is_loss() || matches!(self, Action::Corrupt(..) | Action::Die(_))
    }

    pub(crate) fn is_loss(self) -> bool {
        matches!(self, Action::Lose(_))
    }
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut world = World {
            clock: Time(0),
            memory: Memory::new(setup),
            edges: Vec::new(),
            late: Vec::new(),
            faults_left: setup.faults,
            requests_left: setup.requests,
            corrupted: None,
        };
        for index in 0..setup.scripts.len() {
            let mut edge = Edge::new(index, setup);
            edge.begin(setup, world.clock, &world.memory);
            world.edges.push(edge);
        }
        world
    }

    pub(crate) fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, edge) in self.edges.iter().enumerate() {
            if edge.posted.is_some() {
                actions.push(Action::Complete(index));
                if self.faults_left > 0 {
                    actions.push(Action::Crash(index));
                    if setup.losses && edge.reply.is_none() {
                        actions.push(Action::Lose(index));
                    }
                    if !edge.asleep {
                        actions.push(Action::Stall(index));
                        actions.push(Action::Doze(index));
                    }
                }
            }
            if edge.wake.is_some_and(|wake| wake <= self.clock) {
                actions.push(Action::Wake(index));
            }
            if edge.is_idle() && setup.protocol == Protocol::Leased {
                actions.extend(
                    setup
                        .sites()
                        .filter(|&site| self.looks_left(site, setup))
                        .map(|site| Action::Watch(index, site)),
                );
            }
            if edge.crashed && setup.restarts {
                actions.push(Action::Restart(index));
            }
            if edge.is_idle() && edge.waits_for(setup, &self.memory) {
                actions.push(Action::Learn(index));
            }
        }
        for node in 0..setup.homes.len() {
            let is_idle = !self.memory.fronts.iter().any(|front| front.sent(node).next().is_some());
            let acknowledges = is_idle || setup.weakness == Weakness::FalseAcknowledgement;
            if acknowledges && !setup.foreign && self.memory.awaits_acknowledgement(node) {
                actions.push(Action::Acknowledge(node));
            }
        }
        for node in (0..setup.homes.len()).filter(|node| self.memory.changes(*node)) {
            let fault = Fault { step: ChangeStep::Enter, cause: FaultCause::TimedOut };
            let back = self.memory.node(node).and_then(|word| word.site).map(|_| ChangeResult::Undone(fault));
            let results = [Some(ChangeResult::Changed), back, Some(ChangeResult::Failed(fault))];
            actions.extend(results.into_iter().flatten().map(|result| Action::Change(node, result)));
        }
        for (index, front) in self.memory.fronts.iter().enumerate() {
            let sends = self.memory.sends(index, setup);
            let deeds =
                if sends { front.deeds(self.memory.ownerships(), self.requests_left) } else { vec![] };
            actions.extend(deeds.into_iter().map(|deed| Action::Front(index, deed)));
            if self.faults_left > 0 && sends && !front.is_gone {
                actions.push(Action::Die(index));
            }
            if front.is_gone && setup.restarts {
                actions.push(Action::Return(index));
            }
        }
        if self.memory.roster.epoch > self.memory.epoch {
            actions.push(Action::Announce);
        } else if self.memory.may_enroll(setup) {
            actions.push(Action::Enroll);
        }
        let renewed = (0..setup.homes.len()).filter(|node| self.memory.is_to_be_renewed(*node, setup));
        actions.extend(renewed.map(Action::Renew));
        for late in 0..self.late.len() {
            actions.push(Action::Late(late));
            actions.push(Action::Drop(late));
        }
        if self.faults_left > 0 {
            let changes = |(word, value): &&(Word, u64)| self.memory.value(*word) != *value;
            let corruptions = setup.corruptions.iter().filter(changes);
            actions.extend(corruptions.map(|&(word, value)| Action::Corrupt(word, value)));
        }
        if self.next_time(setup).is_some() {
            actions.push(Action::Advance);
        }
        actions
    }

    pub(crate) fn act(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Complete(index) => {
                let reply = self.take_effect(index, setup);
                self.edges[index].answer(reply, setup, self.clock, &self.memory);
            }
            Action::Wake(index) => self.edges[index].wake_up(setup, self.clock, &self.memory),
            Action::Watch(index, site) => self.edges[index].watch(site, setup, self.clock, &self.memory),
            Action::Acknowledge(node) => self.memory.acknowledge(node),
            Action::Change(node, result) => self.memory.change(node, result),
            Action::Front(index, deed) => {
                let began = self.memory.go_on(index, deed, setup.weakness);
                self.requests_left -= u8::from(began);
            }
            Action::Die(index) => {
                self.faults_left -= 1;
                self.memory.fronts[index].die();
            }
            Action::Advance => self.clock = self.next_time(setup).expect("enabled"),
            Action::Late(late) => {
                let flight = self.late.remove(late);
                self.memory.take_effect(flight, setup);
            }
            Action::Drop(late) => {
                self.late.remove(late);
            }
            Action::Crash(index) => {
                self.faults_left -= 1;
                let flight = self.edges[index].crash(setup);
                self.late.extend(flight);
            }
            Action::Stall(index) => {
                self.faults_left -= 1;
                self.edges[index].asleep = true;
            }
            Action::Doze(index) => {
                self.faults_left -= 1;
                self.edges[index].asleep = true;
                self.edges[index].reply = Some(self.take_effect(index, setup));
            }
            Action::Lose(index) => {
                self.faults_left -= 1;
                self.late.extend(self.edges[index].posted);
                self.edges[index].answer(Reply::Lost, setup, self.clock, &self.memory);
            }
            Action::Corrupt(word, value) => {
                self.faults_left -= 1;
                self.corrupt(word, value);
            }
            Action::Enroll => {
                self.memory.enroll(setup);
                if self.memory.roster.last(setup) == Some(Change::BoardGoes) {
                    // Its words are as wrong as after a fault.
                    self.corrupted = Some(self.clock);
                }
            }
            Action::Renew(node) => self.memory.renew(node),
            Action::Announce => self.memory.epoch = self.memory.roster.epoch,
            Action::Learn(index) => self.edges[index].begin(setup, self.clock, &self.memory),
            Action::Return(index) => self.memory.fronts[index] = Front::new(setup.homes.len()),
            Action::Restart(index) => self.edges[index].restart(setup, self.clock, &self.memory),
        }
        self.late.retain(|flight| self.memory.may_take_effect(flight, setup));
        self.late.sort();
    }

    pub(crate) fn corrupt(&mut self, word: Word, value: u64) {
        self.memory.corrupt(word, value);
        self.corrupted = Some(self.clock);
    }

    /// An edge's posted operation takes effect, unless it already has.
    fn take_effect(&mut self, index: usize, setup: &Setup) -> Reply {
        let edge = &mut self.edges[index];
        edge.reply.take().unwrap_or_else(|| {
            let flight = edge.posted.expect("posted");
            if flight.op == Op::Read(Word::Epoch)
                && let Some(epoch) = edge.epoch_before(setup.weakness)
            {
                return Reply::Value(epoch);
            }
            let reply = self.memory.take_effect(flight, setup);
            edge.tenure = self.memory.tenure_begun(flight).or(edge.tenure);
            reply
        })
    }

    /// The next time at which something happens, once every edge that is awake waits. Without a fault operations take
    /// no time. After a corruption edges look at all sites at once, because the time that they take is checked.
    fn next_time(&self, setup: &Setup) -> Option<Time> {
        let is_due = |edge: &Edge| edge.is_idle() && setup.sites().any(|site| self.looks_left(site, setup));
        if (self.corrupted.is_some() || !setup.changes.is_empty()) && self.edges.iter().any(is_due) {
            return None;
        }
        let awake = || self.edges.iter().filter(|edge| !edge.asleep);
        if awake().any(|edge| edge.posted.is_some() || edge.wake.is_some_and(|wake| wake <= self.clock)) {
            return None;
        }
        let sleeper_holds = self.edges.iter().any(|edge| edge.asleep && edge.may_act(self.clock));
        let past_lease = sleeper_holds.then(|| self.clock.after_ns(LEASE_NS));
        awake().filter_map(|edge| edge.wake).min().or(past_lease)
    }

    /// Whether a lock is held that no working edge will free, or under a free lock a node drains or, after a corruption,
    /// a word is wrong. (An edge would notice by watching. Its other looks change nothing, and are left out.)
    fn looks_left(&self, site: SiteId, setup: &Setup) -> bool {
        match Lock::decode(self.memory.value(Word::Lock(site))).owner {
            Some(owner) => self.edges.get(owner.index()).is_none_or(|holder| {
                holder.asleep || holder.machine.as_ref().is_none_or(|machine| machine.site() != site)
            }),
            None => {
                let nodes = || (0..self.memory.nodes()).map(|node| self.memory.node(node));
                let is_sought = setup.weakness != Weakness::Unrepaired || self.memory.freed(site) < 2;
                nodes().flatten().any(|node| node.on_its_way() == Some(site))
                    || (self.corrupted.is_some()
                        || !setup.changes.is_empty() && self.memory.is_settled(setup))
                        && is_sought
                        && (nodes().any(|node| node.is_none()) || !self.budget_is_right(site, setup))
            }
        }
    }

    /// No site is below its floor, unless a person insists.
    pub(crate) fn floors_hold(&self, setup: &Setup) -> bool {
        if setup.scripts.iter().flatten().any(|plan| plan.force) {
            return true;
        }
        setup.sites().all(|site| self.memory.serving(site) >= setup.floors[site.index()])
    }

    /// `current` + reservations that can still take effect <= nodes that serve.
    pub(crate) fn budgets_hold(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| {
            let budget = self.memory.budget(site);
            let alive = (0..setup.homes.len()).filter(|&node| self.may_be_drained(node, site)).count() as u16;
            budget.current + alive <= self.memory.serving(site)
        })
    }

    fn may_be_drained(&self, node: usize, site: SiteId) -> bool {
        let posted = self.edges.iter().filter_map(|edge| edge.posted.as_ref());
        let drains = |flight: &Flight| {
            self.memory.node(node).is_some_and(|word| word.serves(site))
                && drained_node(flight.op).is_some_and(|(index, expected)| {
                    index == node && expected == self.memory.value(flight.op.word())
                })
        };
        posted.chain(&self.late).any(drains)
    }

    /// Every request that is at a node is of the site that it serves, or still leaves.
    pub(crate) fn requests_end_before_their_site(&self) -> bool {
        (0..self.memory.nodes()).all(|node| {
            let site = self.memory.node(node).and_then(|word| word.site);
            let mut sent = self.memory.fronts.iter().flat_map(|front| front.sent(node));
            sent.all(|request| site == Some(request.site))
        })
    }

    /// At most one edge relies on a site's lock.
    pub(crate) fn locks_exclude(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| {
            let relies = |edge: &&Edge| {
                edge.may_act(self.clock) && edge.machine.as_ref().is_some_and(|m| m.site() == site)
            };
            self.edges.iter().filter(relies).count() <= 1
        })
    }

    /// Under a free lock no node is on its way.
    pub(crate) fn free_means_settled(&self, setup: &Setup) -> bool {
        (0..setup.homes.len()).all(|node| {
            let site = self.memory.node(node).and_then(Ownership::on_its_way);
            let lock = |site| Lock::decode(self.memory.value(Word::Lock(site)));
            let has_site = |site: &SiteId| self.memory.roster.has_site(site.index(), setup);
            site.filter(has_site).is_none_or(|site| lock(site).owner.is_some())
        })
    }

    /// Whether nothing more happens although an edge is alive.
    pub(crate) fn has_ended(&self, setup: &Setup) -> bool {
        let quiet = self.edges.iter().all(Edge::is_idle_or_dead) && self.late.is_empty();
        quiet && !self.edges.iter().all(|edge| edge.crashed) && self.actions(setup).is_empty()
    }

    pub(crate) fn locks_are_free(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| Lock::decode(self.memory.value(Word::Lock(site))).owner.is_none())
    }

    pub(crate) fn budgets_are_exact(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| self.budget_is_right(site, setup))
    }

    fn budget_is_right(&self, site: SiteId, setup: &Setup) -> bool {
        let budget = self.memory.budget(site);
        budget.current == self.memory.serving(site) && budget.floor == setup.floors[site.index()]
    }

    pub(crate) fn nodes_are_settled(&self, setup: &Setup) -> bool {
        let is_settled = |word: Ownership| word.on_its_way().is_none();
        (0..setup.homes.len()).all(|node| self.memory.node(node).is_some_and(is_settled))
    }

    /// Whether all words are legal once the time for it has passed since a corruption: for each site two leases until its lock
    /// may be taken over, one wait for nodes that drain, and one for those that change. (An edge may wait longer for a lock that
    /// is long free.)
    pub(crate) fn is_in_time(&self, setup: &Setup) -> bool {
        let change_ns_max = if setup.commands { CHANGE_NS_MAX } else { 0 };
        let bound_ns = setup.floors.len() as u64 * (timing().steal_ns() + DRAIN_NS_MAX + change_ns_max);
        let is_due = self.corrupted.is_some_and(|at| self.clock > at.after_ns(bound_ns));
        !is_due
            || self.locks_are_free(setup) && self.nodes_are_settled(setup) && self.budgets_are_exact(setup)
    }

    /// Edges that want nodes for the same site have seen one overload. Without faults only one of them acts.
    pub(crate) fn overload_answered_once(&self, setup: &Setup) -> bool {
        let mut goals = setup.scripts.iter().flatten().map(|plan| plan.goal);
        let first = goals.next();
        let one_receiver = matches!(first, Some(Goal::Serve(_))) && goals.all(|goal| Some(goal) == first);
        !one_receiver || self.faults_left < setup.faults || self.moves() <= 1
    }

    /// Edges whose last move put a node where they wanted it.
    pub(crate) fn moves(&self) -> usize {
        self.edges.iter().filter(|edge| edge.last == Some(Outcome::Moved)).count()
    }

    /// The names of the steps that edges are at, for coverage.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.edges.iter().filter_map(|edge| edge.machine.as_ref().map(Machine::step_name))
    }
}

/// A plan by numbers.
pub(crate) fn plan(node: usize, from: usize, to: usize) -> Plan {
    let node = sidelong_layout::NodeId::new(node);
    Plan::new(node, Ownership::serving(SiteId::new(from), 0), SiteId::new(to))
}
