//! The job of moving one node: reserved from the donor's budget, drained, landed at the receiver.
//!
//! ```text
//! node word ── donor's budget: reserve ── node: drain ── acknowledgement ─┬─ land at the receiver ── raise its budget
//!   (Free: nothing to reserve or drain) ──────────────────────────────────┘
//!                                             no acknowledgement in time ──── land at the donor ──── raise its budget
//!                          node was taken ── give the reservation back
//! ```
//!
//! The order of reads is what safety rests on (see the crate's own page): the node before the reservation, the budget
//! before the landing. Every raise starts from the very word that its reason left; where that is gone, or the fate of
//! a swap is unknown, the budget is rebuilt instead.

use sidelong_layout::{Ack, Budget, NodeId, NodeState, Ownership, SiteId};

use crate::Time;
use crate::lease::Timing;
use crate::moving::Outcome;
use crate::op::{Pool, Reply, Step, Word, done};
use crate::primitive::{Load, Swap, Swapped};
use crate::reconcile::Reconcile;

/// Reservations tried while the donor's budget keeps changing.
const TRIES_MAX: u8 = 3;

/// How a transfer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transferred {
    /// In certainty: no operation of it can take effect any more.
    As(Outcome),
    /// The fate of a swap of the node is unknown: recover.
    Doubtful,
}

/// A node on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Transfer {
    node: NodeId,
    from: Option<SiteId>,
    to: SiteId,
    pool: Pool,
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    ReadNode { load: Load },
    ReadDonor { donor: SiteId, word: Ownership, load: Load },
    Reserve { donor: SiteId, word: Ownership, reserved: Budget, tries: u8, swap: Swap },
    Drain { donor: SiteId, drained: Ownership, reserved: Budget, swap: Swap },
    AwaitAck { donor: SiteId, word: Ownership, deadline: Option<Time>, load: Load },
    ReadBudget { site: SiteId, word: Ownership, then: Outcome, load: Load },
    Land { site: SiteId, budget: Budget, then: Outcome, swap: Swap },
    Raise { site: SiteId, then: Outcome, swap: Swap },
    Reconcile { reconcile: Reconcile, then: Outcome },
}

impl Transfer {
    pub(crate) fn new(node: NodeId, from: Option<SiteId>, to: SiteId, pool: Pool, timing: Timing) -> Self {
        let phase = Phase::ReadNode { load: Load::new(Word::Ownership(node)) };
        Transfer { node, from, to, pool, timing, phase }
    }

    pub(crate) const fn step_name(&self) -> &'static str {
        match &self.phase {
            Phase::ReadNode { .. } => "read-node",
            Phase::ReadDonor { .. } => "read-donor-budget",
            Phase::Reserve { .. } => "reserve",
            Phase::Drain { .. } => "drain",
            Phase::AwaitAck { .. } => "await-ack",
            Phase::ReadBudget { then: Outcome::Moved, .. } => "read-receiver-budget",
            Phase::ReadBudget { .. } => "roll-back-read-budget",
            Phase::Land { then: Outcome::Moved, .. } => "land",
            Phase::Land { .. } => "roll-back",
            Phase::Raise { then: Outcome::Moved, .. } => "raise-budget",
            Phase::Raise { .. } => "give-back",
            Phase::Reconcile { reconcile, .. } => reconcile.step_name(),
        }
    }

    pub(crate) fn step(&mut self, now: Time, mut reply: Option<Reply>) -> Step<Transferred> {
        loop {
            let next = match &mut self.phase {
                Phase::ReadNode { load } => {
                    let value = done!(load.step(reply.take()));
                    self.judge_node(value)
                }
                Phase::ReadDonor { donor, word, load } => {
                    let (donor, word) = (*donor, *word);
                    match done!(load.step(reply.take())) {
                        Some(budget) => reserve(donor, word, budget, 1),
                        None => Err(Transferred::As(Outcome::Unreachable)),
                    }
                }
                Phase::Reserve { donor, word, reserved, tries, swap } => {
                    let (donor, word, reserved, tries) = (*donor, *word, *reserved, *tries);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(self.drain(donor, word, reserved)),
                        Swapped::No(_) if tries == TRIES_MAX => Err(Transferred::As(Outcome::Contended)),
                        Swapped::No(found) => reserve(donor, word, found, tries + 1),
                        Swapped::Already | Swapped::Unknown => {
                            Ok(self.reconcile(donor, Outcome::Uncertain { left_out: 0 }))
                        }
                    }
                }
                Phase::Drain { donor, drained, reserved, swap } => {
                    let (donor, drained, reserved) = (*donor, *drained, *reserved);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(self.await_ack(donor, drained, None)),
                        Swapped::No(_) => Ok(raise(donor, reserved, Outcome::NodeChanged)),
                        Swapped::Already | Swapped::Unknown => Err(Transferred::Doubtful),
                    }
                }
                Phase::AwaitAck { donor, word, deadline, load } => {
                    let (donor, word) = (*donor, *word);
                    let deadline = *deadline.get_or_insert(self.timing.drain_deadline(now));
                    let ack = done!(load.step(reply.take())).and_then(Ack::decode);
                    if ack.is_some_and(|ack| ack.generation == word.generation) {
                        Ok(read_budget(self.to, word, Outcome::Moved))
                    } else if now >= deadline {
                        Ok(read_budget(donor, word, Outcome::NotDrained))
                    } else {
                        self.phase = self.await_ack(donor, word, Some(deadline));
                        return Step::WaitUntil(self.timing.next_poll(now).min(deadline));
                    }
                }
                Phase::ReadBudget { site, word, then, load } => {
                    let (site, word, then) = (*site, *word, *then);
                    match done!(load.step(reply.take())) {
                        Some(budget) => Ok(self.land(site, word, Budget::decode(budget), then)),
                        None => Err(Transferred::Doubtful),
                    }
                }
                Phase::Land { site, budget, then, swap } => {
                    let (site, budget, then) = (*site, *budget, *then);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(raise(site, budget, then)),
                        Swapped::No(_) => Err(Transferred::As(Outcome::NodeChanged)),
                        Swapped::Already | Swapped::Unknown => Err(Transferred::Doubtful),
                    }
                }
                Phase::Raise { site, then, swap } => {
                    let (site, then) = (*site, *then);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Err(Transferred::As(then)),
                        Swapped::No(_) | Swapped::Already | Swapped::Unknown => {
                            Ok(self.reconcile(site, then))
                        }
                    }
                }
                Phase::Reconcile { reconcile, then } => {
                    let then = *then;
                    let left_out = done!(reconcile.step(now, reply.take()));
                    Err(Transferred::As(if left_out == 0 { then } else { Outcome::Uncertain { left_out } }))
                }
            };
            match next {
                Ok(phase) => self.phase = phase,
                Err(end) => return Step::Done(end),
            }
        }
    }

    fn judge_node(&self, value: Option<u64>) -> Result<Phase, Transferred> {
        let word = Ownership::decode(value.ok_or(Transferred::As(Outcome::Unreachable))?);
        let word = word.filter(|word| word.state != NodeState::Draining && word.site == self.from);
        let word = word.ok_or(Transferred::As(Outcome::NodeChanged))?;
        Ok(match word.site {
            Some(donor) => Phase::ReadDonor { donor, word, load: Load::new(Word::Budget(donor)) },
            None => read_budget(self.to, word, Outcome::Moved),
        })
    }

    fn drain(&self, donor: SiteId, word: Ownership, reserved: Budget) -> Phase {
        let drained = word.draining_to(self.to).expect("it serves the donor, which is not the receiver");
        let swap = Swap::once(Word::Ownership(self.node), word.encode(), drained.encode());
        Phase::Drain { donor, drained, reserved, swap }
    }

    fn await_ack(&self, donor: SiteId, word: Ownership, deadline: Option<Time>) -> Phase {
        Phase::AwaitAck { donor, word, deadline, load: Load::new(Word::Ack(self.node)) }
    }

    fn land(&self, site: SiteId, word: Ownership, budget: Budget, then: Outcome) -> Phase {
        let landed = word.now_serving(site);
        let swap = Swap::once(Word::Ownership(self.node), word.encode(), landed.encode());
        Phase::Land { site, budget, then, swap }
    }

    fn reconcile(&self, site: SiteId, then: Outcome) -> Phase {
        Phase::Reconcile { reconcile: Reconcile::site(site, self.pool, self.timing), then }
    }
}

fn reserve(donor: SiteId, word: Ownership, budget: u64, tries: u8) -> Result<Phase, Transferred> {
    let reserved = Budget::decode(budget).reserved().ok_or(Transferred::As(Outcome::AtFloor))?;
    let swap = Swap::once(Word::Budget(donor), budget, reserved.encode());
    Ok(Phase::Reserve { donor, word, reserved, tries, swap })
}

fn read_budget(site: SiteId, word: Ownership, then: Outcome) -> Phase {
    Phase::ReadBudget { site, word, then, load: Load::new(Word::Budget(site)) }
}

/// One more node than `budget` says, if it still says so.
fn raise(site: SiteId, budget: Budget, then: Outcome) -> Phase {
    let raised = budget.with_current(budget.current + 1);
    let swap = Swap::once(Word::Budget(site), budget.encode(), raised.encode());
    Phase::Raise { site, then, swap }
}
