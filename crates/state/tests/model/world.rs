//! A small cluster in which everything that can happen to the protocols does: edges that crash, stall past their
//! lease, lose completions, and operations that take effect long after. The model checker goes through all of its
//! histories, the random walk through some of a larger one; both step the machines that run live.

use sidelong_layout::{Lock, NodeState, SiteId};
use sidelong_state::{Outcome, Plan, Pool, Reply, Time, Timing, Word};

use crate::edge::{Edge, Ended, Machine};
use crate::memory::{Flight, Memory, drained_node};

/// A lease is renewed at 2, used until 5, stolen after 12; a node may drain for 3, which is not a multiple of the poll.
const LEASE_NS: u64 = 6;

pub(crate) fn timing() -> Timing {
    Timing::new(LEASE_NS, 1, 3, 2).expect("valid")
}

/// Which protocol the edges run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Leased,
    Paper,
}

/// A rule of the protocol that the memory breaks, to see that the checks miss it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weakness {
    None,
    /// Sequences of locks do not count: as if taking, stealing and freeing did not raise them.
    LockSequence,
    /// Generations of nodes do not count: as if the node were read after the reservation, and repairs fenced nobody.
    NodeGeneration,
    /// Generations of budgets do not count.
    BudgetGeneration,
}

/// What does not change in a world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) floors: Vec<u16>,
    /// The site that each node serves at first.
    pub(crate) homes: Vec<Option<usize>>,
    /// What each edge wants, in order.
    pub(crate) scripts: Vec<Vec<Plan>>,
    /// How often an edge tries a plan again that found the site busy.
    pub(crate) retries: u8,
    /// Crashes, stalls and lost completions in all.
    pub(crate) faults: u8,
    pub(crate) protocol: Protocol,
    pub(crate) weakness: Weakness,
    /// Whether completions get lost.
    pub(crate) losses: bool,
    /// Whether crashed edges come back, in another life.
    pub(crate) restarts: bool,
    /// Whether plans take the site that a node serves at the time, whatever the script says.
    pub(crate) fresh_plans: bool,
}

impl Setup {
    pub(crate) fn pool(&self) -> Pool {
        Pool { sites: self.floors.len() as u16, nodes: self.homes.len() as u16 }
    }

    fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.floors.len()).map(SiteId::new)
    }
}

/// The state of it all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) clock: Time,
    pub(crate) memory: Memory,
    pub(crate) edges: Vec<Edge>,
    /// Operations whose sender hears no more of them.
    pub(crate) late: Vec<Flight>,
    pub(crate) faults_left: u8,
}

/// What may happen next. Numbers are places in the world's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// An edge's posted operation takes effect, and it goes on.
    Complete(usize),
    /// An edge's wait is over.
    Wake(usize),
    /// An edge with nothing to do looks after a lock that stands.
    Watch(usize, SiteId),
    /// A node has done the old site's requests, and says so.
    Acknowledge(usize),
    /// Every edge waits, and time passes.
    Advance,
    /// An operation takes effect that nobody waits for.
    Late(usize),
    /// An operation never takes effect.
    Drop(usize),
    /// Fault: an edge dies; its posted operation may be late.
    Crash(usize),
    /// Fault: an edge sleeps with an operation posted, which takes effect when it wakes.
    Stall(usize),
    /// Fault: an edge sleeps with an operation posted, which takes effect at once.
    Doze(usize),
    /// Fault: an edge hears nothing of its operation, which may be late.
    Lose(usize),
    /// A crashed edge comes back.
    Restart(usize),
}

impl Action {
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Action::Crash(_) | Action::Stall(_) | Action::Doze(_)) || self.is_loss()
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
                        .filter(|&site| self.looks_left(site))
                        .map(|site| Action::Watch(index, site)),
                );
            }
            if edge.crashed && setup.restarts {
                actions.push(Action::Restart(index));
            }
        }
        for node in 0..setup.homes.len() {
            if self.memory.awaits_acknowledgement(node) {
                actions.push(Action::Acknowledge(node));
            }
        }
        for late in 0..self.late.len() {
            actions.push(Action::Late(late));
            actions.push(Action::Drop(late));
        }
        if self.next_time().is_some() {
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
            Action::Advance => self.clock = self.next_time().expect("enabled"),
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
            Action::Restart(index) => self.edges[index].restart(setup, self.clock, &self.memory),
        }
        self.late.retain(|flight| self.memory.may_take_effect(flight, setup));
        self.late.sort();
    }

    /// What an edge posted takes effect, unless it did already.
    fn take_effect(&mut self, index: usize, setup: &Setup) -> Reply {
        let edge = &mut self.edges[index];
        edge.reply.take().unwrap_or_else(|| {
            let flight = edge.posted.expect("posted");
            let reply = self.memory.take_effect(flight, setup);
            edge.tenure = self.memory.tenure_begun(flight).or(edge.tenure);
            reply
        })
    }

    /// The next moment at which something happens, once every edge that is awake waits. Operations take no time but
    /// by a fault.
    fn next_time(&self) -> Option<Time> {
        let awake = || self.edges.iter().filter(|edge| !edge.asleep);
        if awake().any(|edge| edge.posted.is_some() || edge.wake.is_some_and(|wake| wake <= self.clock)) {
            return None;
        }
        let sleeper_holds = self.edges.iter().any(|edge| edge.asleep && edge.may_act(self.clock));
        let past_lease = sleeper_holds.then(|| self.clock.after_ns(LEASE_NS));
        awake().filter_map(|edge| edge.wake).min().or(past_lease)
    }

    /// Whether a lock stands that no edge at work will free, or a node drains under a free one. (An edge would find
    /// that out by watching; that it looks in vain at other times changes nothing, and is left out.)
    fn looks_left(&self, site: SiteId) -> bool {
        match Lock::decode(self.memory.value(Word::Lock(site))).owner {
            Some(owner) => {
                let holder = &self.edges[owner.index()];
                holder.asleep || holder.machine.as_ref().is_none_or(|machine| machine.site() != site)
            }
            None => (0..self.memory.nodes()).any(|node| self.memory.node(node).next == Some(site)),
        }
    }

    /// No site below its floor.
    pub(crate) fn floors_hold(&self, setup: &Setup) -> bool {
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
            self.memory.node(node).serves(site)
                && drained_node(flight.op).is_some_and(|(index, expected)| {
                    index == node && expected == self.memory.value(flight.op.word())
                })
        };
        posted.chain(&self.late).any(drains)
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

    /// Under a free lock no node drains towards its site.
    pub(crate) fn free_means_settled(&self, setup: &Setup) -> bool {
        (0..setup.homes.len()).all(|node| {
            let word = self.memory.node(node);
            let lock = |site| Lock::decode(self.memory.value(Word::Lock(site)));
            word.next.is_none_or(|site| lock(site).owner.is_some())
        })
    }

    /// Whether nothing more happens although an edge lives.
    pub(crate) fn has_ended(&self, setup: &Setup) -> bool {
        let quiet = self.edges.iter().all(Edge::is_idle_or_dead) && self.late.is_empty();
        quiet && !self.edges.iter().all(|edge| edge.crashed) && self.actions(setup).is_empty()
    }

    pub(crate) fn locks_are_free(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| Lock::decode(self.memory.value(Word::Lock(site))).owner.is_none())
    }

    pub(crate) fn budgets_are_exact(&self, setup: &Setup) -> bool {
        setup.sites().all(|site| self.memory.budget(site).current == self.memory.serving(site))
    }

    pub(crate) fn nodes_are_settled(&self, setup: &Setup) -> bool {
        (0..setup.homes.len()).all(|node| self.memory.node(node).state != NodeState::Draining)
    }

    /// Edges that want nodes for the same site have seen one overload. Faults apart, one of them acts.
    pub(crate) fn overload_answered_once(&self, setup: &Setup) -> bool {
        let mut receivers = setup.scripts.iter().flatten().map(|plan| plan.to);
        let first = receivers.next();
        let one_receiver = receivers.all(|receiver| Some(receiver) == first);
        !one_receiver || self.faults_left < setup.faults || self.moves() <= 1
    }

    /// Edges whose last move put a node where they wanted it.
    pub(crate) fn moves(&self) -> usize {
        self.edges.iter().filter(|edge| edge.last == Some(Ended::Leased(Outcome::Moved))).count()
    }

    /// The names of the steps that edges are at, for coverage.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.edges.iter().filter_map(|edge| edge.machine.as_ref().map(Machine::step_name))
    }
}

/// A plan by numbers.
pub(crate) fn plan(node: usize, from: usize, to: usize) -> Plan {
    let node = sidelong_layout::NodeId::new(node);
    Plan { node, from: Some(SiteId::new(from)), to: SiteId::new(to) }
}
