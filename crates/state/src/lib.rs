//! The protocols over one-sided memory: who may move a node, and how a move survives the death of whoever makes it.
//!
//! Every protocol here is a state machine that does nothing by itself. [`Move::step`] is told the time and what came
//! of its last operation, and answers with the next [`Op`] to post, a time to wait for, or its outcome. A driver that
//! posts to real memory, the simulated network and the model checker (tests/model) step the very same machines.
//! So this crate does no I/O, asks no clock, draws no random numbers, and allocates only what the pool's size bounds.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use sidelong_layout::{EdgeId, SiteId};
//! use sidelong_state::{Holder, Memo, Move, Outcome, Pool, Reply, Step, Time, Timing};
//!
//! let timing = Timing::new(100_000_000, 10_000_000, 1_000_000_000, 1_000_000)?;
//! let (holder, pool) = (Holder::new(EdgeId::new(0), 1), Pool { sites: 2, nodes: 8 });
//! let mut machine = Move::repair(SiteId::new(0), holder, pool, timing, Memo::default());
//!
//! let mut memory = BTreeMap::new(); // where a driver would have links to regions
//! let (mut now, mut reply) = (Time(0), None);
//! let outcome = loop {
//!     match machine.step(now, reply.take()) {
//!         Step::Do(op) => {
//!             let word = memory.entry(op.word()).or_insert(0);
//!             reply = Some(Reply::Value(*word));
//!             *word = op.applied_to(*word);
//!         }
//!         Step::WaitUntil(time) => now = time,
//!         Step::Done(outcome) => break outcome,
//!     }
//! };
//! assert_eq!(outcome, Outcome::Recovered { left_out: 0 });
//! # Ok::<(), sidelong_state::TimingError>(())
//! ```
//!
//! # Map
//! | module | what it holds |
//! |---|---|
//! | `op` | what machines and drivers exchange: [`Time`], [`Word`], [`Op`], [`Reply`], [`Step`] |
//! | `primitive` | one read, or one compare-and-swap, with a bounded number of lost completions |
//! | `lease` | a site's lock: taken, renewed, stolen ([`Timing`], [`Memo`], [`Sighting`]) |
//! | `moving` | [`Move`], the machine that edges run: the lock around a job, renewals between its operations |
//! | `transfer` | the job of moving one node, from the reservation to the raised budget |
//! | `reconcile` | the job of repair: budgets rebuilt from the nodes, unfinished moves settled |
//! | `counter` | dual update counters (R 3.1.2) |
//! | `paper` | the papers' own protocol as printed, for comparison ([`PaperMove`]) |
//! | `agent` | the node's side: when to acknowledge ([`NodeAgent`]) |
//! | `record` | load records: judged by readers ([`Newest`]), published by the node ([`Publisher`]) |
//!
//! # What holds, and why
//! The lock serves efficiency; safety rests on the words of nodes and budgets. Let `serving(S)` be the number of nodes
//! whose ownership says that they serve site S. A reservation is *alive* while its compare-and-swap of a node can still
//! take effect. Then always
//!
//! ```text
//! budget(S).current + alive reservations from S <= serving(S)
//! ```
//!
//! and as a reservation is refused at the floor, no site falls below it. Each step keeps this true:
//!
//! * **Reserve** (`current - 1`) makes one reservation; **drain** (a node leaves S) uses one up.
//! * **Land** (a node comes to S) reads the budget *before* the node's swap and raises it *after*, from the very value
//!   it read. A reconcile in between, which may have counted the node already, has changed the budget, and the raise
//!   fails. The same holds for giving a reservation back: only from the very value that the reservation left.
//! * **Reconcile** reads the budget, then raises the generation of every node that serves S while it counts, then
//!   swaps the budget. A mover reads the node's word *before* it reserves. So a reservation made before the budget was
//!   read expects a node word that is gone by the time of the swap: it is dead, and forgetting it is right. One made
//!   later changed the budget, and the swap fails. (Read the node after reserving, and a reservation outlives its
//!   reconcile: `tests/model` keeps that as a control that must fail.)
//! * Whatever is left undone, at any step, by a crash or a lost completion, leaves a budget too low, never too high.
//!
//! Recovery rests on a second rule, also checked: **while a site's lock is free, no node drains towards the site, and
//! no operation of any earlier holder can take effect, however late it arrives.** A holder that knows the fate of all
//! its operations frees the lock. One that does not, because a completion was lost, first repairs. One that died or
//! overslept leaves the lock, and whoever steals it repairs before it is freed: that pass raises the generation of
//! *every* node and budget, for the late operation may be aimed at any. (A node that is out of reach of the repair is
//! the one exception: its site's floor is safe, but it may drain late. Whoever sees that runs [`Move::repair`].)
#![forbid(unsafe_code)]

mod agent;
mod counter;
mod lease;
mod moving;
mod op;
mod paper;
mod primitive;
mod reconcile;
mod record;
mod transfer;

pub use agent::NodeAgent;
pub use counter::UpdateCounter;
pub use lease::{Holder, Memo, Sighting, Timing, TimingError};
pub use moving::{Move, Outcome, Plan, STEPS};
pub use op::{Op, Pool, Reply, Step, Word};
pub use paper::{PaperMove, PaperOutcome};
pub use record::{COPIES_MAX, Newest, Publisher, Record, Unusable, Verdict};

pub use sidelong_layout::Time;

#[cfg(test)]
mod tests;
