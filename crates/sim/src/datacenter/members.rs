//! Nodes that leave the cluster and join it again: the roster that balancers go by, and the person who changes it.
//!
//! A node leaves as `sidelong leave` has it (`app::reload`). All balancers that live hear that it is to leave, a move holds it, all go by
//! a roster without it, and then its memory is gone. It joins with new memory at its first site, whose budget a repair raises.
//! The person may die at any step, and another one goes on.

use rand_distr::{Distribution as _, Exp1};
use sidelong_layout::{EdgeId, NodeId, NodeState, Ownership, SiteId, Slots};
use sidelong_state::{Goal, Holder, Memo, Move, Op, Outcome, Plan, Pool, Reply, Step, Word};

use super::{DataCenter, Event};
use crate::Time;
use crate::datacenter::Setup;
use crate::error::{Error, Result};

/// Pause before the person looks again.
const LOOK_NS: u64 = 1_000_000;
/// Chance that a balancer that goes by an older roster hears of the newest one at a scan.
const HEARS: f64 = 0.125;
/// A person who is due to die does so within this many steps. If the change ends before, the person lives.
const DOOM_STEPS: f64 = 128.0;

/// Who is a member, and the person who changes that.
pub(super) struct Members {
    /// Raised by each change.
    epoch: u64,
    standings: Vec<Standing>,
    /// How many persons there have been before.
    pub(super) life: u64,
    stage: Stage,
    /// By site, what the person knows of its lock.
    memos: Vec<Memo>,
    /// The person dies after this many more steps.
    doomed: Option<u32>,
    pub(super) joins: u64,
    pub(super) leaves: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Member,
    Leaving,
    Away,
}

enum Stage {
    Idle,
    /// Waits until all balancers that live go by the newest roster.
    Await {
        node: usize,
        then: Then,
    },
    /// Holds a node that is to leave.
    Hold {
        node: usize,
        doing: Hold,
    },
}

#[derive(Clone, Copy)]
enum Then {
    Hold,
    Forget,
    End,
}

enum Hold {
    Look,
    Move(Box<Move>),
    /// Writes the word of a node anew that is held already: it held this one.
    Renew(u64),
}

impl Members {
    pub(super) fn new(setup: &Setup) -> Members {
        Members {
            epoch: 0,
            standings: vec![Standing::Member; setup.nodes.len()],
            life: 0,
            stage: Stage::Idle,
            memos: vec![Memo::default(); setup.sites],
            doomed: None,
            joins: 0,
            leaves: 0,
        }
    }

    /// The members by slot; none has a foreign server.
    pub(super) fn foreign(&self) -> Slots<bool> {
        (0..self.standings.len()).map(|node| self.has(node).then_some(false)).collect()
    }

    /// The load has ended: nobody dies any more, and who is away joins.
    pub(super) fn end(&mut self, mut turn: impl FnMut(u32)) {
        self.doomed = None;
        let away = self.standings.iter().enumerate().filter(|(_, of)| **of != Standing::Member);
        away.for_each(|(node, _)| turn(node as u32));
    }

    pub(super) fn has(&self, node: usize) -> bool {
        self.standings[node] != Standing::Away
    }

    /// Whether all are members, and nobody changes that.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.standings.iter().all(|of| *of == Standing::Member)
    }

    /// The cluster as the newest roster has it.
    pub(super) fn pool(&self, setup: &Setup) -> Pool {
        let homes = setup.nodes.iter().map(|(home, _)| Some(SiteId::new(*home)));
        let pool = Pool::new(vec![setup.floor; setup.sites], homes);
        if !setup.nodes_leave() {
            return pool;
        }
        let away = (0..setup.nodes.len()).map(|node| !self.has(node));
        let fronts = (0..setup.balancers).map(EdgeId::new);
        pool.with_vacant(vec![false; setup.sites], away).with_fronts(fronts).of_epoch(self.epoch)
    }

    fn stand(&mut self, node: usize, standing: Standing, then: Then) {
        self.standings[node] = standing;
        self.epoch += 1;
        self.stage = Stage::Await { node, then };
    }
}

impl DataCenter<'_> {
    /// Whether a balancer hears of the newest roster now.
    pub(super) fn hears(&mut self, balancer: usize) -> bool {
        let state = self.balancers[balancer].state.as_ref();
        state.is_some_and(|state| state.mover.epoch() < self.members.epoch) && self.death() < HEARS
    }

    /// Has a balancer go by the newest roster, as soon as the board's epoch is that of the roster (`Links::raise_epoch`).
    /// Then it scans.
    pub(super) fn adopt(&mut self, balancer: usize, heard: Option<(Op, Reply)>, now: Time) -> Result<()> {
        let epoch = self.members.epoch;
        let Some(state) = &mut self.balancers[balancer].state else { return Ok(()) };
        let found = heard.and_then(|(op, reply)| match reply {
            Reply::Value(found) => Some(op.applied_to(found)),
            Reply::Lost => None,
        });
        state.adopts = epoch > 0 && found.is_none_or(|found| found < epoch);
        if state.adopts {
            let word = Word::Epoch;
            let op = found.map_or(Op::Read(word), |found| Op::CompareAndSwap {
                word,
                expected: found,
                new: epoch,
            });
            return self.post(balancer, op, now);
        }
        if state.mover.epoch() < epoch {
            state.adopt(self.setup, &self.members).map_err(Error::Settings)?;
        }
        self.push_look(balancer, now);
        Ok(())
    }

    /// Schedules that the node leaves or, if it is away, joins.
    pub(super) fn push_turn(&mut self, node: usize, now: Time, mean_ns: f64) {
        if self.setup.nodes_leave() {
            let times: f64 = Exp1.sample(&mut self.deaths);
            self.queue.push(now.after_ns((mean_ns * times) as u64), Event::Turn { node: node as u32 });
        }
    }

    /// The node's turn to leave, or to join.
    pub(super) fn turn(&mut self, node: usize, now: Time) -> Result<()> {
        let soon = now.after_ns(LOOK_NS);
        if !matches!(self.members.stage, Stage::Idle) {
            self.queue.push(soon, Event::Turn { node: node as u32 });
            return Ok(());
        }
        match self.members.standings[node] {
            Standing::Member if self.is_over => return Ok(()),
            Standing::Member | Standing::Leaving => {
                self.members.stand(node, Standing::Leaving, Then::Hold);
            }
            Standing::Away => {
                self.words.expose(self.setup, node).map_err(Error::Words)?;
                self.nodes[node] = self.setup.node(node);
                self.members.joins += 1;
                self.members.stand(node, Standing::Member, Then::End);
                self.notice(node, now);
            }
        }
        if self.setup.crash_ns > 0.0 && !self.is_over {
            self.members.doomed = Some((self.death() * DOOM_STEPS) as u32);
        }
        self.queue.push(soon, Event::Person);
        Ok(())
    }

    /// The person goes on: with the reply to an operation, or after a wait.
    pub(super) fn change(&mut self, reply: Option<Reply>, now: Time) -> Result<()> {
        match std::mem::replace(&mut self.members.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Await { node, .. } | Stage::Hold { node, .. } if self.person_dies() => {
                self.members.life += 1;
                self.measures.crashes += 1;
                let back_ns = 2.0 * self.death() * self.setup.back_ns;
                self.queue.push(now.after_ns(back_ns as u64), Event::Turn { node: node as u32 });
            }
            Stage::Await { node, then } if !self.all_know() => {
                self.members.stage = Stage::Await { node, then };
                self.queue.push(now.after_ns(LOOK_NS), Event::Person);
            }
            Stage::Await { node, then: Then::Hold } => self.hold(node, Hold::Look, None, now)?,
            Stage::Await { node, then: Then::Forget } => {
                self.words.withdraw(node).map_err(Error::Words)?;
                self.push_turn(node, now, self.setup.join_ns);
            }
            Stage::Await { node, then: Then::End } => self.push_turn(node, now, self.setup.leave_ns),
            Stage::Hold { node, doing } => self.hold(node, doing, reply, now)?,
        }
        Ok(())
    }

    /// Whether all balancers that live go by the newest roster.
    fn all_know(&self) -> bool {
        let mut living = self.balancers.iter().filter_map(|of| of.state.as_ref());
        living.all(|state| state.mover.epoch() == self.members.epoch)
    }

    fn person_dies(&mut self) -> bool {
        match &mut self.members.doomed {
            Some(0) => self.members.doomed.take().is_some(),
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Goes on to hold the node, as a person does by hand (`app::by_hand`).
    fn hold(&mut self, node: usize, doing: Hold, reply: Option<Reply>, now: Time) -> Result<()> {
        let word = self.words.ownership(node);
        let own = Ownership::decode(word, self.setup.sites);
        let (mut machine, reply) = match (doing, own) {
            (Hold::Renew(expected), _) if reply == Some(Reply::Value(expected)) => {
                self.leave(node, now);
                return Ok(());
            }
            (Hold::Move(machine), _) => (machine, reply),
            // Whoever goes by an older roster cannot give it to a site any more.
            (_, Some(own)) if matches!(own.state, NodeState::Held | NodeState::Free) => {
                let new = own.now(NodeState::Held, own.site.unwrap_or(SiteId::new(0))).encode();
                let op = Op::CompareAndSwap { word: Word::Ownership(NodeId::new(node)), expected: word, new };
                self.members.stage = Stage::Hold { node, doing: Hold::Renew(word) };
                return self.post(self.setup.balancers, op, now);
            }
            (_, Some(own)) if own.state == NodeState::Serving => {
                let plan = Plan { node: NodeId::new(node), expected: own, goal: Goal::Hold, force: false };
                let holder = Holder::new(EdgeId::new(self.setup.balancers), self.members.life);
                let memo = self.members.memos[plan.site().index()];
                let pool = self.members.pool(self.setup);
                (Box::new(Move::new(plan, holder, pool, self.setup.timing, memo)), None)
            }
            // It is on its way.
            _ => return self.look_later(node, Hold::Look, now.after_ns(LOOK_NS)),
        };
        match machine.step(now, reply) {
            Step::Do(op) => {
                self.members.stage = Stage::Hold { node, doing: Hold::Move(machine) };
                self.post(self.setup.balancers, op, now)
            }
            Step::WaitUntil(at) => self.look_later(node, Hold::Move(machine), at),
            Step::Done(outcome) => {
                self.members.memos[machine.site().index()] = machine.memo();
                match outcome {
                    Outcome::Moved => self.leave(node, now),
                    // It stays.
                    Outcome::AtFloor => {
                        self.members.stand(node, Standing::Member, Then::End);
                        self.queue.push(now.after_ns(LOOK_NS), Event::Person);
                    }
                    _ => return self.look_later(node, Hold::Look, now.after_ns(LOOK_NS)),
                }
                Ok(())
            }
        }
    }

    /// No request is left at the node.
    fn leave(&mut self, node: usize, now: Time) {
        self.members.leaves += 1;
        self.members.stand(node, Standing::Away, Then::Forget);
        self.queue.push(now.after_ns(LOOK_NS), Event::Person);
    }

    fn look_later(&mut self, node: usize, doing: Hold, at: Time) -> Result<()> {
        self.members.stage = Stage::Hold { node, doing };
        self.queue.push(at, Event::Person);
        Ok(())
    }
}
