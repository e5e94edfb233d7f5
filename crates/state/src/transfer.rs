//! The job of moving one node: reserve it from the donor's budget, drain it, land it at the receiver or hold it.
//!
//! ```text
//! node word ── donor's budget: reserve ── node: drain ── wait: drained ───┬─ land at the receiver ── raise its budget
//!   (Free or Held: nothing to reserve or drain) ── epoch ─────────────────┘
//!   (where sites have commands: change, and wait for its end, before it lands)
//!                                                        drained, to be held ── settle
//!                                                        not drained in time ── land at the donor ──── raise its budget
//!                          node was taken ── give the reservation back
//!                                                        change failed ──┬─ land at the donor, pinned
//!                                                                        └─ settle: held, if the donor's site does not run
//!   (Pinned at its own site, or no longer: nothing to count) ── settle
//! ```
//!
//! A mover whose roster is not the cluster's newest lands no node: it gives the node back.
//!
//! Safety depends on the order of reads (see the crate's page): the node before the reservation, the budget before the
//! landing. Every raise expects the exact word that was read before. If that has changed, or the fate of a swap is
//! unknown, the budget is rebuilt instead.

use sidelong_layout::{Budget, ChangeResult, NodeState, Ownership, SiteId};

use crate::Time;
use crate::changed::{ChangeEnd, Changed};
use crate::drained::{Drained, Testimony};
use crate::lease::Timing;
use crate::moving::{Outcome, Plan};
use crate::op::{Reply, Step, Word, done};
use crate::pool::Pool;
use crate::primitive::{Load, Swap, Swapped};
use crate::reconcile::Reconcile;

/// Attempts to reserve while the donor's budget keeps changing.
const TRIES_MAX: u8 = 3;

/// How a transfer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transferred {
    /// With certainty: none of its operations can take effect any more.
    As(Outcome),
    /// The fate of a swap of the node is unknown: recover.
    Doubtful,
}

/// A node on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Transfer {
    plan: Plan,
    pool: Pool,
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "a machine spends its life in the large ones")]
enum Phase {
    ReadNode {
        load: Load,
    },
    /// Whether a roster is newer, for a node that need not drain.
    ReadEpoch {
        word: Ownership,
        load: Load,
    },
    ReadDonor {
        donor: SiteId,
        word: Ownership,
        load: Load,
    },
    Reserve {
        donor: SiteId,
        word: Ownership,
        reserved: Budget,
        tries: u8,
        swap: Swap,
    },
    Drain {
        donor: SiteId,
        drained: Ownership,
        reserved: Budget,
        swap: Swap,
    },
    Await {
        donor: SiteId,
        word: Ownership,
        deadline: Option<Time>,
        drained: Drained,
    },
    /// The node begins to change.
    Change {
        word: Ownership,
        swap: Swap,
    },
    AwaitChange {
        deadline: Option<Time>,
        changed: Changed,
    },
    /// A swap that changes what no budget counts.
    Settle {
        then: Outcome,
        swap: Swap,
    },
    ReadBudget {
        site: SiteId,
        word: Ownership,
        landed: Ownership,
        then: Outcome,
        load: Load,
    },
    Land {
        site: SiteId,
        budget: Budget,
        then: Outcome,
        swap: Swap,
    },
    Raise {
        site: SiteId,
        then: Outcome,
        swap: Swap,
    },
    Reconcile {
        reconcile: Reconcile,
        then: Outcome,
    },
}

impl Transfer {
    pub(crate) fn new(plan: Plan, pool: Pool, timing: Timing) -> Self {
        let phase = Phase::ReadNode { load: Load::new(Word::Ownership(plan.node)) };
        Transfer { plan, pool, timing, phase }
    }

    pub(crate) const fn step_name(&self) -> &'static str {
        match &self.phase {
            Phase::ReadNode { .. } => "read-node",
            Phase::ReadEpoch { .. } => "read-epoch",
            Phase::ReadDonor { .. } => "read-donor-budget",
            Phase::Reserve { .. } => "reserve",
            Phase::Drain { .. } => "drain",
            Phase::Await { drained, .. } if drained.reads_epoch() => "read-epoch",
            Phase::Await { drained, .. } if drained.asks_fronts() => "await-fronts",
            Phase::Await { .. } => "await-ack",
            Phase::Change { .. } => "change",
            Phase::AwaitChange { .. } => "await-change",
            Phase::Settle { .. } => "settle",
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
                Phase::ReadEpoch { word, load } => {
                    let word = *word;
                    match done!(load.step(reply.take())) {
                        Some(newest) if newest > self.pool.epoch() => Err(Transferred::As(Outcome::Behind)),
                        Some(_) => Ok(self.go(word)),
                        None => Err(Transferred::As(Outcome::Unreachable)),
                    }
                }
                Phase::ReadDonor { donor, word, load } => {
                    let (donor, word) = (*donor, *word);
                    match done!(load.step(reply.take())) {
                        Some(budget) => self.reserve(donor, word, budget, 1),
                        None => Err(Transferred::As(Outcome::Unreachable)),
                    }
                }
                Phase::Reserve { donor, word, reserved, tries, swap } => {
                    let (donor, word, reserved, tries) = (*donor, *word, *reserved, *tries);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(self.drain(donor, word, reserved)),
                        Swapped::No(_) if tries == TRIES_MAX => Err(Transferred::As(Outcome::Contended)),
                        Swapped::No(found) => self.reserve(donor, word, found, tries + 1),
                        Swapped::Already | Swapped::Unknown => {
                            Ok(self.reconcile(donor, Outcome::Uncertain { left_out: 0 }))
                        }
                    }
                }
                Phase::Drain { donor, drained, reserved, swap } => {
                    let (donor, drained, reserved) = (*donor, *drained, *reserved);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(self.wait(donor, drained)),
                        Swapped::No(_) => Ok(self.raise(donor, reserved, Outcome::NodeChanged)),
                        Swapped::Already | Swapped::Unknown => Err(Transferred::Doubtful),
                    }
                }
                Phase::Await { donor, word, deadline, drained } => {
                    let (donor, word) = (*donor, *word);
                    let deadline = *deadline
                        .get_or_insert(self.timing.drain_deadline(now).after_ns(self.pool.cut_ns_max(donor)));
                    // As it was: one that was pinned stays so.
                    let back = word.now(self.plan.expected.state, donor);
                    match done!(drained.step(reply.take())) {
                        Testimony::Left => Ok(self.go(word)),
                        Testimony::Behind => Ok(read_budget(word, donor, back, Outcome::Behind)),
                        Testimony::Not(undrained) if now >= deadline => {
                            Ok(read_budget(word, donor, back, Outcome::NotDrained(undrained)))
                        }
                        Testimony::Not(_) => {
                            return Step::WaitUntil(self.timing.next_poll(now).min(deadline));
                        }
                    }
                }
                Phase::Change { word, swap } => {
                    let word = *word;
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => {
                            let changed = Changed::new(self.plan.node, word);
                            Ok(Phase::AwaitChange { deadline: None, changed })
                        }
                        Swapped::No(_) => Err(Transferred::As(Outcome::NodeChanged)),
                        Swapped::Already | Swapped::Unknown => Err(Transferred::Doubtful),
                    }
                }
                Phase::AwaitChange { deadline, changed } => {
                    let change_ns_max = self.pool.change_ns_max().unwrap_or_default();
                    let deadline = *deadline.get_or_insert(now.after_ns(change_ns_max));
                    let result = match done!(changed.step(reply.take())) {
                        ChangeEnd::Ended(result) => Ok(Some(result)),
                        ChangeEnd::Other(_) => Err(Transferred::As(Outcome::NodeChanged)),
                        ChangeEnd::Nothing if now >= deadline => Ok(None),
                        ChangeEnd::Nothing => {
                            return Step::WaitUntil(self.timing.next_poll(now).min(deadline));
                        }
                    };
                    let (word, held) = (changed.word, changed.held());
                    result.map(|result| self.changed(word, held, result))
                }
                Phase::Settle { then, swap } => {
                    let then = *then;
                    Err(match done!(swap.step(reply.take())) {
                        Swapped::Yes => Transferred::As(then),
                        Swapped::No(_) => Transferred::As(Outcome::NodeChanged),
                        Swapped::Already | Swapped::Unknown => Transferred::Doubtful,
                    })
                }
                Phase::ReadBudget { site, word, landed, then, load } => {
                    let (site, word, landed, then) = (*site, *word, *landed, *then);
                    match done!(load.step(reply.take())) {
                        Some(budget) => Ok(self.land(site, word, landed, Budget::decode(budget), then)),
                        None => Err(Transferred::Doubtful),
                    }
                }
                Phase::Land { site, budget, then, swap } => {
                    let (site, budget, then) = (*site, *budget, *then);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes => Ok(self.raise(site, budget, then)),
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
        let Plan { expected: word, .. } = self.plan;
        let value = value.ok_or(Transferred::As(Outcome::Unreachable))?;
        // The whole word is compared: a node that left its site and came back is not the one in the plan.
        if value != word.encode() || word.on_its_way().is_some() {
            return Err(Transferred::As(Outcome::NodeChanged));
        }
        Ok(match word.serving_site() {
            Some(donor) if self.plan.goal.site() == Some(donor) => self.arrive_uncounted(word),
            Some(donor) => Phase::ReadDonor { donor, word, load: Load::new(Word::Budget(donor)) },
            None => Phase::ReadEpoch { word, load: Load::new(Word::Epoch) },
        })
    }

    /// On from a word whose node serves nobody and has no request.
    fn go(&self, word: Ownership) -> Phase {
        match (self.plan.goal.site(), self.pool.change_ns_max()) {
            (Some(to), Some(_)) => {
                let changing = word.changing_to(to);
                let swap = Swap::once(Word::Ownership(self.plan.node), word.encode(), changing.encode());
                Phase::Change { word: changing, swap }
            }
            (Some(to), None) => self.arrive(word, to),
            (None, _) => self.arrive_uncounted(word),
        }
    }

    /// To the planned word, by which the node serves `to`.
    fn arrive(&self, word: Ownership, to: SiteId) -> Phase {
        read_budget(word, to, self.plan.planned(word), Outcome::Moved)
    }

    /// To the planned word, where that changes no budget.
    fn arrive_uncounted(&self, word: Ownership) -> Phase {
        self.settle(word, self.plan.planned(word), Outcome::Moved)
    }

    fn settle(&self, word: Ownership, to: Ownership, then: Outcome) -> Phase {
        let swap = Swap::once(Word::Ownership(self.plan.node), word.encode(), to.encode());
        Phase::Settle { then, swap }
    }

    /// On after a change. A node that is back at its old site stays there until a person has looked at it.
    fn changed(&self, word: Ownership, held: Ownership, result: Option<ChangeResult>) -> Phase {
        let fault = match result {
            Some(ChangeResult::Changed) => {
                return self.arrive(word, self.plan.site());
            }
            Some(ChangeResult::Undone(fault) | ChangeResult::Failed(fault)) => Some(fault),
            None => None,
        };
        let then = Outcome::NotChanged { fault };
        match (result, self.plan.expected.serving_site()) {
            (Some(ChangeResult::Undone(_)), Some(donor)) => {
                read_budget(word, donor, word.now(NodeState::Pinned, donor), then)
            }
            _ => self.settle(word, held, then),
        }
    }

    fn drain(&self, donor: SiteId, word: Ownership, reserved: Budget) -> Phase {
        let to = self.plan.goal.site();
        let drained = word.draining_to(to).expect("it serves the donor, which is not the receiver");
        let swap = Swap::once(Word::Ownership(self.plan.node), word.encode(), drained.encode());
        Phase::Drain { donor, drained, reserved, swap }
    }

    fn wait(&self, donor: SiteId, word: Ownership) -> Phase {
        let drained = Drained::new(self.plan.node, word.generation, &self.pool);
        Phase::Await { donor, word, deadline: None, drained }
    }

    fn land(&self, site: SiteId, word: Ownership, landed: Ownership, budget: Budget, then: Outcome) -> Phase {
        let swap = Swap::once(Word::Ownership(self.plan.node), word.encode(), landed.encode());
        Phase::Land { site, budget, then, swap }
    }

    fn reconcile(&self, site: SiteId, then: Outcome) -> Phase {
        Phase::Reconcile { reconcile: Reconcile::site(site, self.pool.clone(), self.timing), then }
    }

    /// One node less than `budget` says; what it says is not believed where no mover can have written it.
    fn reserve(&self, donor: SiteId, word: Ownership, budget: u64, tries: u8) -> Result<Phase, Transferred> {
        let found = Budget::decode(budget);
        if !self.pool.allows(donor, found) {
            return Ok(self.reconcile(donor, Outcome::Contended));
        }
        let reserved = if self.plan.force { found.reserved_by_force() } else { found.reserved() };
        let reserved = reserved.ok_or(Transferred::As(Outcome::AtFloor))?;
        let swap = Swap::once(Word::Budget(donor), budget, reserved.encode());
        Ok(Phase::Reserve { donor, word, reserved, tries, swap })
    }

    /// One node more than `budget` says, if it still says so and is to be believed.
    fn raise(&self, site: SiteId, budget: Budget, then: Outcome) -> Phase {
        let raised = budget.with_current(budget.current.saturating_add(1));
        if !self.pool.allows(site, raised) {
            return self.reconcile(site, then);
        }
        let swap = Swap::once(Word::Budget(site), budget.encode(), raised.encode());
        Phase::Raise { site, then, swap }
    }
}

fn read_budget(word: Ownership, site: SiteId, landed: Ownership, then: Outcome) -> Phase {
    Phase::ReadBudget { site, word, landed, then, load: Load::new(Word::Budget(site)) }
}
