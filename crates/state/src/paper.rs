//! The protocol of the paper as published (Balaji et al. 2004, 3.1.2), for comparison and as the model's control:
//! `protocol = "paper"`.
//!
//! The internal lock of the receiver by compare-and-swap, the dual update counters, the node's word swapped straight
//! from one site to the other, and a fetch-and-add on the counter of every other edge. Nothing more: no lease, so a
//! holder that dies stops its site's reconfiguration for ever; no budget, so two receivers can strip one donor below
//! its floor; no draining; no fencing of late operations. `tests/it/model` shows each.

use sidelong_layout::{EdgeId, Lock, NodeState, Ownership, SITES_MAX, SiteId};

use crate::counter::UpdateCounter;
use crate::moving::{Outcome, Plan};
use crate::op::{Op, Reply, Step, Word, done};
use crate::primitive::{Load, Swap, Swapped};

/// One reconfiguration by the paper's protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PaperMove {
    plan: Plan,
    edge: EdgeId,
    edges: u16,
    counter: UpdateCounter,
    phase: Phase,
    posted: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Lock(Swap),
    ReadCounter(Load),
    ReadNode(Load),
    Take(Swap),
    Notify { edge: u16 },
    Unlock { swap: Swap, then: Outcome },
    Over,
}

const FREE: Lock = Lock { owner: None, incarnation: 0, sequence: 0 };

impl PaperMove {
    /// Moves a node by `plan` for `edge`, one of `edges`, whose local update counter for the receiver is `counter`.
    pub fn new(plan: Plan, edge: EdgeId, edges: u16, counter: UpdateCounter) -> Self {
        let lock = Swap::once(Word::Lock(plan.site()), FREE.encode(), held(edge));
        PaperMove { plan, edge, edges, counter, phase: Phase::Lock(lock), posted: false }
    }

    /// The local update counter, to pass to the next machine for the same receiver.
    pub const fn counter(&self) -> UpdateCounter {
        self.counter
    }

    /// The site whose lock it takes.
    pub fn site(&self) -> SiteId {
        self.plan.site()
    }

    /// The operation that is posted or comes next.
    pub const fn step_name(&self) -> &'static str {
        match &self.phase {
            Phase::Lock(_) => "take-lock",
            Phase::ReadCounter(_) => "read-counter",
            Phase::ReadNode(_) => "read-node",
            Phase::Take(_) => "take-node",
            Phase::Notify { .. } => "notify",
            Phase::Unlock { .. } => "free-lock",
            Phase::Over => "over",
        }
    }

    /// Continues: without a reply at first, with one after each operation.
    ///
    /// # Panics
    /// If a reply is missing or unexpected, or the machine is over.
    pub fn step(&mut self, reply: Option<Reply>) -> Step<Outcome> {
        assert_eq!(self.posted, reply.is_some(), "each operation has one reply");
        let step = self.advance(reply);
        self.posted = matches!(step, Step::Do(_));
        if let Step::Done(_) = step {
            self.phase = Phase::Over;
        }
        step
    }

    fn advance(&mut self, mut reply: Option<Reply>) -> Step<Outcome> {
        loop {
            self.phase = match &mut self.phase {
                Phase::Lock(swap) => match done!(swap.step(reply.take())) {
                    Swapped::Yes => Phase::ReadCounter(Load::new(Word::Counter(self.plan.site(), self.edge))),
                    Swapped::No(_) => return Step::Done(Outcome::Busy),
                    Swapped::Already | Swapped::Unknown => return Step::Done(Outcome::Lost),
                },
                Phase::ReadCounter(load) => match done!(load.step(reply.take())) {
                    Some(shared) if self.counter.may_reconfigure(shared) => {
                        Phase::ReadNode(Load::new(Word::Ownership(self.plan.node)))
                    }
                    Some(_) => self.unlock(Outcome::Recent),
                    None => return Step::Done(Outcome::Lost),
                },
                Phase::ReadNode(load) => match done!(load.step(reply.take())) {
                    Some(value) => self.take_node(value),
                    None => return Step::Done(Outcome::Lost),
                },
                Phase::Take(swap) => match done!(swap.step(reply.take())) {
                    Swapped::Yes => self.notify(0),
                    Swapped::No(_) => self.unlock(Outcome::NodeChanged),
                    Swapped::Already | Swapped::Unknown => return Step::Done(Outcome::Lost),
                },
                Phase::Notify { edge } => match reply.take() {
                    Some(_) => {
                        let next = *edge + 1;
                        self.notify(next)
                    }
                    None => {
                        let edge = EdgeId::new(*edge as usize);
                        return Step::Do(Op::FetchAndAdd {
                            word: Word::Counter(self.plan.site(), edge),
                            add: 1,
                        });
                    }
                },
                Phase::Unlock { swap, then } => {
                    let then = *then;
                    return Step::Done(match done!(swap.step(reply.take())) {
                        Swapped::Yes => then,
                        _ => Outcome::Lost,
                    });
                }
                Phase::Over => panic!("stepped after its end"),
            }
        }
    }

    fn take_node(&self, value: u64) -> Phase {
        match Ownership::decode(value, SITES_MAX) {
            Some(word) if word.state != NodeState::Draining && word.site == self.plan.from() => {
                let taken = word.now_serving(self.plan.site());
                Phase::Take(Swap::once(Word::Ownership(self.plan.node), value, taken.encode()))
            }
            _ => self.unlock(Outcome::NodeChanged),
        }
    }

    /// Raises the counters of the other edges, from `edge` on.
    fn notify(&self, edge: u16) -> Phase {
        match (edge..self.edges).find(|&edge| edge as usize != self.edge.index()) {
            Some(edge) => Phase::Notify { edge },
            None => self.unlock(Outcome::Moved),
        }
    }

    fn unlock(&self, then: Outcome) -> Phase {
        Phase::Unlock { swap: Swap::once(Word::Lock(self.plan.site()), held(self.edge), FREE.encode()), then }
    }
}

/// The paper's lock word: the owner alone.
const fn held(edge: EdgeId) -> u64 {
    Lock { owner: Some(edge), ..FREE }.encode()
}
