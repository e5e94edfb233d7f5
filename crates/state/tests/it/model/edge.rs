//! An edge: its machine, the operation that it posted, and its next action.

use sidelong_layout::{EdgeId, Ownership, SiteId};
use sidelong_state::{
    Goal, Holder, Memo, Move, Op, Outcome, PaperMove, Plan, Reply, Step, Time, UpdateCounter,
};

use crate::model::memory::{Flight, Memory, drained_node};
use crate::model::roster::Roster;
use crate::model::world::{Protocol, Setup, Weakness, timing};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are large")]
pub(crate) enum Machine {
    Leased(Move),
    Paper(PaperMove),
}

impl Machine {
    pub(crate) fn site(&self) -> SiteId {
        match self {
            Machine::Leased(machine) => machine.site(),
            Machine::Paper(machine) => machine.site(),
        }
    }

    pub(crate) fn step_name(&self) -> &'static str {
        match self {
            Machine::Leased(machine) => machine.step_name(),
            Machine::Paper(machine) => machine.step_name(),
        }
    }

    fn step(&mut self, now: Time, reply: Option<Reply>) -> Step<Outcome> {
        match self {
            Machine::Leased(machine) => machine.step(now, reply),
            Machine::Paper(machine) => machine.step(reply),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Edge {
    index: usize,
    incarnation: u64,
    pub(crate) machine: Option<Machine>,
    pub(crate) posted: Option<Flight>,
    pub(crate) wake: Option<Time>,
    /// The reply to the posted operation, if it took effect while the edge sleeps.
    pub(crate) reply: Option<Reply>,
    /// With an operation posted.
    pub(crate) asleep: bool,
    pub(crate) crashed: bool,
    /// How often the lock that it holds had been freed when it took it.
    pub(crate) tenure: Option<u32>,
    /// The roster that it goes by.
    roster: Roster,
    /// The epoch when it last posted a swap that makes a node drain.
    drained_at: Option<u64>,
    memos: Vec<Memo>,
    next_plan: usize,
    retries_left: u8,
    pub(crate) last: Option<Outcome>,
}

impl Edge {
    pub(crate) fn new(index: usize, setup: &Setup) -> Self {
        Edge {
            index,
            incarnation: 1,
            machine: None,
            posted: None,
            reply: None,
            wake: None,
            asleep: false,
            crashed: false,
            tenure: None,
            roster: Roster::FIRST,
            drained_at: None,
            memos: vec![Memo::default(); setup.floors.len()],
            next_plan: 0,
            retries_left: setup.retries,
            last: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.machine.is_none() && self.wake.is_none() && !self.crashed
    }

    pub(crate) fn is_idle_or_dead(&self) -> bool {
        self.crashed || self.is_idle()
    }

    pub(crate) fn may_act(&self, now: Time) -> bool {
        matches!(&self.machine, Some(Machine::Leased(machine)) if machine.may_act(now))
    }

    /// Starts the next plan, if there is one.
    pub(crate) fn begin(&mut self, setup: &Setup, now: Time, memory: &Memory) {
        self.learn(setup, memory);
        while let Some(&plan) = setup.scripts[self.index].get(self.next_plan) {
            if self.roster.closes(plan.site().index(), setup) {
                self.next_plan += 1;
                continue;
            }
            if self.lacks(&plan, setup, &self.roster) {
                return;
            }
            // Made from the current state; void if it is of another site than in the script.
            let seen = memory.node(plan.node.index());
            let is_fresh = |seen: &Ownership| setup.fresh_plans || seen.site == plan.from();
            let plan = seen.filter(is_fresh).map_or(plan, |expected| Plan { expected, ..plan });
            if plan.from().is_some_and(|_| !plan.is_met()) || plan.from().is_none() && plan.goal != Goal::Hold
            {
                let machine = self.machine_for(plan, setup);
                return self.start(machine, setup, now, memory);
            }
            self.next_plan += 1;
        }
    }

    /// Takes the newest roster of which the board tells, if that is newer.
    fn learn(&mut self, setup: &Setup, memory: &Memory) {
        let hears = setup.weakness != Weakness::OldBoardStays || self.index > 0;
        if hears && memory.epoch > self.roster.epoch {
            let term = self.roster.term(setup);
            self.roster = Roster::of_epoch(memory.epoch);
            if self.roster.term(setup) != term && setup.weakness != Weakness::MemosKept {
                self.memos.fill(Memo::default());
            }
        }
    }

    fn lacks(&self, plan: &Plan, setup: &Setup, roster: &Roster) -> bool {
        !roster.has_site(plan.site().index(), setup) || !roster.has_node(plan.node.index(), setup)
    }

    /// Whether its next plan has become possible by a newer roster.
    pub(crate) fn waits_for(&self, setup: &Setup, memory: &Memory) -> bool {
        let next = setup.scripts[self.index].get(self.next_plan);
        let comes = |plan| !self.lacks(plan, setup, &memory.roster) && memory.epoch == memory.roster.epoch;
        next.is_some_and(|plan| self.lacks(plan, setup, &self.roster) && comes(plan))
    }

    /// What a read of the epoch finds in a weak world.
    pub(crate) fn epoch_before(&self, weakness: Weakness) -> Option<u64> {
        match weakness {
            Weakness::EpochReadFirst => self.drained_at,
            Weakness::EpochUnread => Some(0),
            _ => None,
        }
    }

    /// Watches a site whose lock is held.
    pub(crate) fn watch(&mut self, site: SiteId, setup: &Setup, now: Time, memory: &Memory) {
        self.learn(setup, memory);
        let memo = self.memos[site.index()];
        let repair = Move::repair(site, self.holder(), self.roster.pool(setup), timing(), memo);
        self.start(Machine::Leased(repair), setup, now, memory);
    }

    pub(crate) fn wake_up(&mut self, setup: &Setup, now: Time, memory: &Memory) {
        self.wake = None;
        if self.machine.is_some() {
            self.go_on(setup, now, None, memory);
        } else {
            self.begin(setup, now, memory);
        }
    }

    /// Receives the reply to the posted operation, and wakes up if asleep.
    pub(crate) fn answer(&mut self, reply: Reply, setup: &Setup, now: Time, memory: &Memory) {
        (self.posted, self.reply, self.asleep) = (None, None, false);
        self.go_on(setup, now, Some(reply), memory);
    }

    /// Steps the machine, and does what it wants.
    fn go_on(&mut self, setup: &Setup, now: Time, reply: Option<Reply>, memory: &Memory) {
        let machine = self.machine.as_mut().expect("a machine at work");
        let site = machine.site();
        match machine.step(now, reply) {
            Step::Do(op) => self.posted = Some(self.flight(op, site, setup, memory)),
            Step::WaitUntil(time) => {
                assert!(time > now, "a wait for the past would spin");
                self.wake = Some(time);
            }
            Step::Done(ended) => self.end(ended, setup, now, memory),
        }
    }

    /// Dies; its posted operation may be late.
    pub(crate) fn crash(&mut self, setup: &Setup) -> Option<Flight> {
        let posted = self.posted;
        let (index, next_plan, incarnation) = (self.index, self.next_plan, self.incarnation);
        *self = Edge { next_plan, incarnation, crashed: true, ..Edge::new(index, setup) };
        posted
    }

    pub(crate) fn restart(&mut self, setup: &Setup, now: Time, memory: &Memory) {
        self.crashed = false;
        self.incarnation += 1;
        self.begin(setup, now, memory);
    }

    fn holder(&self) -> Holder {
        Holder::new(EdgeId::new(self.index), self.incarnation)
    }

    fn machine_for(&self, plan: Plan, setup: &Setup) -> Machine {
        let memo = self.memos[plan.site().index()];
        let holder = self.holder();
        match setup.protocol {
            Protocol::Leased => {
                Machine::Leased(Move::new(plan, holder, self.roster.pool(setup), timing(), memo))
            }
            Protocol::Paper => {
                let edges = setup.scripts.len() as u16;
                Machine::Paper(PaperMove::new(plan, EdgeId::new(self.index), edges, UpdateCounter::default()))
            }
        }
    }

    fn start(&mut self, machine: Machine, setup: &Setup, now: Time, memory: &Memory) {
        self.machine = Some(machine);
        self.go_on(setup, now, None, memory);
    }

    fn flight(&mut self, op: Op, site: SiteId, setup: &Setup, memory: &Memory) -> Flight {
        if setup.weakness == Weakness::EpochReadFirst && drained_node(op).is_some() {
            self.drained_at = Some(memory.epoch);
        }
        let tenure = self.tenure.unwrap_or(memory.freed(site));
        Flight { op, edge: self.index, site, tenure, term: self.roster.term(setup) }
    }

    fn end(&mut self, outcome: Outcome, setup: &Setup, now: Time, memory: &Memory) {
        let machine = self.machine.take().expect("it ended");
        self.tenure = None;
        self.last = Some(outcome);
        let again = match &machine {
            Machine::Leased(machine) => {
                self.memos[machine.site().index()] = machine.memo();
                matches!(
                    outcome,
                    Outcome::Busy | Outcome::Behind | Outcome::LeaseLost | Outcome::Recovered { .. }
                )
            }
            Machine::Paper(_) => false,
        };
        if self.next_plan == setup.scripts[self.index].len() {
            // It was watching, and will watch again.
            self.wait_for_lock(machine.site(), outcome, now);
        } else if again && self.retries_left > 0 {
            self.retries_left -= 1;
            if !self.wait_for_lock(machine.site(), outcome, now) {
                self.begin(setup, now, memory);
            }
        } else {
            self.next_plan += 1;
            self.retries_left = setup.retries;
            self.begin(setup, now, memory);
        }
    }

    /// Waits until a busy lock may be stolen.
    fn wait_for_lock(&mut self, site: SiteId, outcome: Outcome, now: Time) -> bool {
        let busy = outcome == Outcome::Busy;
        let sighting = self.memos[site.index()].sighting.filter(|_| busy);
        self.wake =
            sighting.map(|sighting| sighting.since.after_ns(timing().steal_ns())).filter(|wake| *wake > now);
        self.wake.is_some()
    }
}
