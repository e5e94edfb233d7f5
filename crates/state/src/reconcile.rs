//! Repair: rebuilds budgets from the nodes' words, and settles unfinished moves.
//!
//! One pass reads the budgets concerned, goes over all nodes, and swaps the budgets to the counts. Every node that is
//! counted has its generation raised after the budget was read, by this pass or by another process, so no earlier
//! reservation can take it any more. A budget that changed meanwhile is read and counted again, a bounded number of
//! times.
//!
//! [`Reconcile::site`] rebuilds one budget: a mover uses it when it cannot tell whether a change of its own is
//! included. [`Reconcile::recover`] follows a holder whose last operations have an unknown fate. It settles the nodes
//! on their way under the site's lock, to it or to be held: forward once they have left their old site, back if they do not in
//! time. Where sites have commands, a node that drains goes back at once, because its commands have not begun, and so does one
//! that is on its way to a site that is about to leave; one that changes
//! serves its new site if they succeed, is pinned to its old one if that runs again, and is held otherwise. It raises the generation of every other node that could be taken,
//! and counts for all sites, because a late operation may be aimed at any.
//!
//! The model checker shows that the simpler way fails in two places. First, a budget whose swap was lost is counted
//! again, not swapped again: finding the new value proves nothing, because a mover that landed another node may have
//! written the same. Second, a repair after a theft rebuilds *all* budgets and raises *all* nodes: the dead holder's
//! reservation is missing at a donor that only it knew, and its last swap may be aimed at a node that does not drain
//! yet.
//!
//! A word that no mover of this cluster writes is put right ([`Pool`]): recovery sends a node whose word is invalid to
//! its home in the cluster file, and every budget that is swapped gets the file's floor.
//!
//! Only the newest roster tells what a word should say. So the epoch is read before a budget is swapped and before a node is
//! sent home, each time after the words that were judged. If there is a newer roster, these words stay as they are.
//!
//! A node out of reach is skipped and not counted. A reservation that the pass forgets may drain it, which costs its
//! site nothing that was counted. When it is back, its site has one node more than its budget says, and it may drain
//! under a free lock. An edge that sees that runs a repair.

use sidelong_layout::{Budget, ChangeResult, NodeId, NodeState, Ownership, SiteId};

use crate::Time;
use crate::changed::{ChangeEnd, Changed};
use crate::drained::{Drained, Testimony};
use crate::lease::{Sighting, Timing};
use crate::op::{Reply, Step, Word, done};
use crate::pool::Pool;
use crate::primitive::{Load, Swap, Swapped};

/// Passes over a budget that keeps changing. Every pass but the last failed because another process changed the budget,
/// and a move changes it twice. After giving up, the budget stays as the others left it.
const PASSES_MAX: u8 = 8;
/// Swaps of one node that keeps changing.
const TRIES_MAX: u8 = 3;

/// A repair in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reconcile {
    pool: Pool,
    timing: Timing,
    /// During recovery: the site whose unfinished moves are settled.
    receiver: Option<SiteId>,
    tallies: Vec<Tally>,
    passes: u8,
    deadline: Option<Time>,
    change_deadline: Option<Time>,
    /// The word that is waited for, or was in the repair before.
    awaited: Option<Sighting>,
    left_out: u16,
    phase: Phase,
}

/// One site's budget as read, and the nodes counted since.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Tally {
    site: SiteId,
    budget: u64,
    count: u16,
    open: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    ReadBudget {
        tally: usize,
        load: Load,
    },
    ReadNode {
        node: u16,
        load: Load,
    },
    Await {
        node: u16,
        tries: u8,
        word: Ownership,
        drained: Drained,
    },
    AwaitChange {
        node: u16,
        tries: u8,
        changed: Changed,
    },
    Raise {
        node: u16,
        tries: u8,
        to: Ownership,
        swap: Swap,
    },
    /// Whether a roster is newer, before `then`.
    ReadEpoch {
        then: Rewrite,
        load: Load,
    },
    Swap {
        tally: usize,
        swap: Swap,
    },
    Over,
}

/// What only the newest roster tells how to write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rewrite {
    /// The budgets whose nodes have been counted.
    Budgets,
    /// A node whose word says nothing.
    Node { node: u16, value: u64, tries: u8 },
}

impl Reconcile {
    /// Rebuilds one budget.
    pub(crate) fn site(site: SiteId, pool: Pool, timing: Timing) -> Self {
        Reconcile::new(vec![site], None, pool, timing, None)
    }

    /// Settles unfinished moves to `receiver` and rebuilds all budgets. `awaited` is the word that the repair before waited for when
    /// it lost the lock.
    pub(crate) fn recover(receiver: SiteId, pool: Pool, timing: Timing, awaited: Option<Sighting>) -> Self {
        let sites = (0..pool.sites()).map(SiteId::new).filter(|site| pool.has_site(*site)).collect();
        Reconcile::new(sites, Some(receiver), pool, timing, awaited)
    }

    fn new(
        sites: Vec<SiteId>,
        receiver: Option<SiteId>,
        pool: Pool,
        timing: Timing,
        awaited: Option<Sighting>,
    ) -> Self {
        let tally = |site| Tally { site, budget: 0, count: 0, open: true };
        let tallies: Vec<Tally> = sites.into_iter().map(tally).collect();
        let phase = read_budget(&tallies, 0, &pool);
        let (deadline, change_deadline) = (None, None);
        Reconcile {
            pool,
            timing,
            receiver,
            tallies,
            passes: 1,
            deadline,
            change_deadline,
            awaited,
            left_out: 0,
            phase,
        }
    }

    /// The word that it waits for.
    pub(crate) const fn awaited(&self) -> Option<Sighting> {
        self.awaited
    }

    pub(crate) const fn step_name(&self) -> &'static str {
        match (&self.phase, self.receiver.is_some()) {
            (Phase::ReadBudget { .. }, false) => "reconcile-read-budget",
            (Phase::ReadNode { .. }, false) => "reconcile-read-node",
            (Phase::Raise { .. }, false) => "reconcile-raise-node",
            (Phase::ReadEpoch { .. }, false) => "reconcile-read-epoch",
            (Phase::Swap { .. }, false) => "reconcile-budget",
            (Phase::ReadBudget { .. }, true) => "recover-read-budget",
            (Phase::ReadNode { .. }, true) => "recover-read-node",
            (Phase::Await { drained, .. }, _) if drained.reads_epoch() => "recover-read-epoch",
            (Phase::Await { drained, .. }, _) if drained.asks_fronts() => "recover-await-fronts",
            (Phase::Await { .. }, _) => "recover-await-ack",
            (Phase::AwaitChange { .. }, _) => "recover-await-change",
            (Phase::Raise { .. }, true) => "recover-node",
            (Phase::ReadEpoch { .. }, true) => "recover-read-epoch",
            (Phase::Swap { .. }, true) => "recover-budget",
            (Phase::Over, _) => "over",
        }
    }

    /// Returns the number of words left unchanged: out of reach, or changed repeatedly by others.
    pub(crate) fn step(&mut self, now: Time, mut reply: Option<Reply>) -> Step<u16> {
        loop {
            self.phase = match &mut self.phase {
                Phase::ReadBudget { tally, load } => {
                    let (tally, value) = (*tally, done!(load.step(reply.take())));
                    match value {
                        Some(value) => self.tallies[tally].budget = value,
                        None => self.leave_out(tally),
                    }
                    read_budget(&self.tallies, tally + 1, &self.pool)
                }
                Phase::ReadNode { node, load } => {
                    let (node, value) = (*node, done!(load.step(reply.take())));
                    match value {
                        Some(value) => self.judge(node, value, 0),
                        None => self.leave_out_node(node),
                    }
                }
                Phase::Await { node, tries, word, drained } => {
                    let (node, tries, word) = (*node, *tries, *word);
                    let since = Sighting::since(&mut self.awaited, now, word.encode());
                    let deadline = *self.deadline.get_or_insert(self.timing.drain_deadline(since));
                    let testimony = done!(drained.step(reply.take()));
                    let Some(from) = word.site else { unreachable!("it drains") };
                    if testimony == Testimony::Left {
                        let arrived = match word.next {
                            Some(to) => word.now_serving(to),
                            None => word.now(NodeState::Held, from),
                        };
                        raise(node, tries, word.encode(), arrived)
                    } else if now >= deadline || testimony == Testimony::Behind {
                        raise(node, tries, word.encode(), word.now_serving(from))
                    } else {
                        return Step::WaitUntil(self.timing.next_poll(now).min(deadline));
                    }
                }
                Phase::AwaitChange { node, tries, changed } => {
                    let change_ns_max = self.pool.change_ns_max().unwrap_or_default();
                    let since = Sighting::since(&mut self.awaited, now, changed.word.encode());
                    let deadline = *self.change_deadline.get_or_insert(since.after_ns(change_ns_max));
                    let found = done!(changed.step(reply.take()));
                    let (node, tries, word) = (*node, *tries, changed.word);
                    let to = match (found, word.next) {
                        (ChangeEnd::Ended(ChangeResult::Changed), Some(to)) => Ok(word.now_serving(to)),
                        (ChangeEnd::Ended(ChangeResult::Undone(_)), _) => Ok(changed.pinned()),
                        (ChangeEnd::Ended(_), _) => Ok(changed.held()),
                        (ChangeEnd::Other(value), _) => Err(value),
                        (ChangeEnd::Nothing, _) if now >= deadline => Ok(changed.held()),
                        (ChangeEnd::Nothing, _) => {
                            return Step::WaitUntil(self.timing.next_poll(now).min(deadline));
                        }
                    };
                    match to {
                        Ok(to) => raise(node, tries, word.encode(), to),
                        Err(value) => self.judge(node, value, tries),
                    }
                }
                Phase::Raise { node, tries, to, swap } => {
                    let (node, tries, to) = (*node, *tries, *to);
                    match done!(swap.step(reply.take())) {
                        Swapped::Yes | Swapped::Already => self.count(node, to),
                        Swapped::No(found) => self.judge(node, found, tries),
                        Swapped::Unknown => self.leave_out_node(node),
                    }
                }
                Phase::ReadEpoch { then, load } => {
                    let (then, newest) = (*then, done!(load.step(reply.take())));
                    let is_newest = newest.is_some_and(|newest| newest <= self.pool.epoch());
                    match then {
                        Rewrite::Budgets if is_newest => self.swap_budget(0),
                        Rewrite::Budgets => self.leave_out_rest(),
                        Rewrite::Node { node, value, tries } if is_newest => {
                            let home = self.pool.home(NodeId::new(usize::from(node)));
                            raise(node, tries + 1, value, Ownership::replacing(value, home))
                        }
                        Rewrite::Node { node, .. } => self.leave_out_node(node),
                    }
                }
                Phase::Swap { tally, swap } => {
                    let (tally, swapped) = (*tally, done!(swap.step(reply.take())));
                    self.tallies[tally].open = swapped != Swapped::Yes;
                    self.swap_budget(tally + 1)
                }
                Phase::Over => return Step::Done(self.left_out),
            }
        }
    }

    /// What to do about a node with this value. With `tries` above 0 a failed swap found it: another process raised its
    /// generation after the budgets were read, so it need not be raised again.
    fn judge(&mut self, node: u16, value: u64, tries: u8) -> Phase {
        let Some(word) = self.pool.ownership(value) else { return self.restore(node, value, tries) };
        let raised = tries > 0;
        match (word.state, word.site) {
            (NodeState::Draining | NodeState::Changing, _)
                if self.receiver.is_none() || word.on_its_way() != self.receiver =>
            {
                self.next_node(node)
            }
            (NodeState::Draining | NodeState::Changing, _) if tries == TRIES_MAX => self.leave_out_node(node),
            (NodeState::Draining, Some(from))
                if word
                    .next
                    .is_some_and(|to| self.pool.closes(to) || self.pool.change_ns_max().is_some()) =>
            {
                raise(node, tries + 1, value, word.now_serving(from))
            }
            (NodeState::Draining, _) => self.wait(node, tries + 1, word),
            (NodeState::Changing, _) => {
                let changed = Changed::new(NodeId::new(usize::from(node)), word);
                Phase::AwaitChange { node, tries: tries + 1, changed }
            }
            _ if raised => self.count(node, word),
            (NodeState::Serving | NodeState::Pinned, Some(site))
                if self.receiver.is_some() || self.tally(site).is_some() =>
            {
                raise(node, 1, value, word.renewed())
            }
            (NodeState::Free | NodeState::Held, _) if self.receiver.is_some() => {
                raise(node, 1, value, word.renewed())
            }
            _ => self.next_node(node),
        }
    }

    fn wait(&self, node: u16, tries: u8, word: Ownership) -> Phase {
        let drained = Drained::new(NodeId::new(usize::from(node)), word.generation, &self.pool);
        Phase::Await { node, tries, word, drained }
    }

    /// Sends a node home whose word says nothing; what it did is not known.
    fn restore(&mut self, node: u16, value: u64, tries: u8) -> Phase {
        if self.receiver.is_none() {
            return self.next_node(node);
        }
        if tries == TRIES_MAX {
            return self.leave_out_node(node);
        }
        read_epoch(Rewrite::Node { node, value, tries })
    }

    fn count(&mut self, node: u16, word: Ownership) -> Phase {
        if let Some(tally) = word.serving_site().and_then(|site| self.tally(site)) {
            tally.count += 1;
        }
        self.next_node(node)
    }

    fn tally(&mut self, site: SiteId) -> Option<&mut Tally> {
        self.tallies.iter_mut().find(|tally| tally.open && tally.site == site)
    }

    fn leave_out(&mut self, tally: usize) {
        self.tallies[tally].open = false;
        self.left_out = self.left_out.saturating_add(1);
    }

    /// Ends, with the budgets that are still open as others left them.
    fn leave_out_rest(&mut self) -> Phase {
        let open = self.tallies.iter().filter(|tally| tally.open).count();
        self.left_out = self.left_out.saturating_add(open as u16);
        Phase::Over
    }

    fn leave_out_node(&mut self, node: u16) -> Phase {
        self.left_out = self.left_out.saturating_add(1);
        self.next_node(node)
    }

    fn next_node(&mut self, node: u16) -> Phase {
        read_node(usize::from(node) + 1, &self.pool)
    }

    /// Swaps the next budget; after the last one, repeats those that had changed.
    fn swap_budget(&mut self, from: usize) -> Phase {
        if let Some(tally) = (from..self.tallies.len()).find(|&tally| self.tallies[tally].open) {
            let Tally { site, budget, count, .. } = self.tallies[tally];
            let new = Budget::decode(budget).rebuilt(self.pool.floor(site), count).encode();
            return Phase::Swap { tally, swap: Swap::once(Word::Budget(site), budget, new) };
        }
        self.tallies.retain(|tally| tally.open);
        if self.tallies.is_empty() || self.passes == PASSES_MAX {
            return self.leave_out_rest();
        }
        self.passes += 1;
        self.receiver = None;
        self.tallies.iter_mut().for_each(|tally| tally.count = 0);
        read_budget(&self.tallies, 0, &self.pool)
    }
}

fn read_budget(tallies: &[Tally], tally: usize, pool: &Pool) -> Phase {
    match tallies.get(tally) {
        Some(Tally { site, .. }) => Phase::ReadBudget { tally, load: Load::new(Word::Budget(*site)) },
        None => read_node(0, pool),
    }
}

fn read_epoch(then: Rewrite) -> Phase {
    Phase::ReadEpoch { then, load: Load::new(Word::Epoch) }
}

/// The first node from `from` on; after the last, the budgets.
fn read_node(from: usize, pool: &Pool) -> Phase {
    match (from..pool.nodes()).map(NodeId::new).find(|node| pool.has_node(*node)) {
        Some(node) => Phase::ReadNode { node: node.index() as u16, load: Load::new(Word::Ownership(node)) },
        None => read_epoch(Rewrite::Budgets),
    }
}

fn raise(node: u16, tries: u8, from: u64, to: Ownership) -> Phase {
    let swap = Swap::new(Word::Ownership(NodeId::new(node as usize)), from, to.encode());
    Phase::Raise { node, tries, to, swap }
}
