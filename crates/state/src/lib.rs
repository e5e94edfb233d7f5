//! The protocols over one-sided memory: which process may move a node, and how a move survives the death of its mover.
//!
//! Every protocol here is a state machine that does nothing by itself. [`Move::step`] is given the time and the result
//! of its last operation. It returns the next [`Op`] to post, a time to wait for, or its outcome. The driver that posts
//! to real memory, the simulated network and the model checker (tests/it/model) step the same machines. So this crate does
//! no I/O, asks no clock, draws no random numbers, and allocates only what the pool's size bounds.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use sidelong_layout::{EdgeId, SiteId};
//! use sidelong_state::{Holder, Memo, Move, Outcome, Pool, Reply, Step, Time, Timing};
//!
//! let timing = Timing::new(100_000_000, 10_000_000, 1_000_000_000, 1_000_000)?;
//! let (holder, pool) = (Holder::new(EdgeId::new(0), 1), Pool::new([0; 2], [None; 8]));
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
//! | `pool` | the sites and nodes of the cluster file, and what words may say there ([`Pool`]) |
//! | `primitive` | one read, or one compare-and-swap, with a bounded number of lost completions |
//! | `lease` | a site's lock: taken, renewed, stolen ([`Timing`], [`Memo`], [`Sighting`]) |
//! | `moving` | [`Move`], the machine that edges run: the lock around a job, renewals between its operations |
//! | `transfer` | the job of moving one node, from the reservation to the raised budget |
//! | `drained` | when a node has left its old site: its acknowledgement, and what each front says |
//! | `changed` | how a node's change of sites ended, where sites have commands |
//! | `reconcile` | the job of repair: budgets rebuilt from the nodes, unfinished moves settled |
//! | `counter` | dual update counters (Balaji et al. 2004, 3.1.2) |
//! | `paper` | the papers' own protocol as printed, for comparison ([`PaperMove`]) |
//! | `protocol` | the choice between the two ([`Protocol`]) |
//! | `agent` | the node's side: when to acknowledge ([`NodeAgent`]) |
//! | `record` | load records: judged by readers ([`Newest`]), published by the node ([`Publisher`]) |
//! | `scheme` | who keeps a load record, and how it is read ([`Scheme`]) |
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
//! A reservation is refused at the floor, so no site falls below it. Each step keeps the inequality:
//!
//! * **Reserve** (`current - 1`) makes one reservation; **drain** (a node leaves S) uses one up.
//! * **Land** (a node comes to S) reads the budget *before* the node's swap and raises it *after*, from the exact value
//!   that it read. A reconcile in between, which may have counted the node already, has changed the budget, and the
//!   raise fails. The same holds for returning a reservation: only from the exact value that the reservation left.
//! * **Reconcile** reads the budget, then raises the generation of every node that serves S while it counts, then
//!   swaps the budget. A mover reads the node's word *before* it reserves. So a reservation made before the budget was
//!   read expects a node word that is gone by the time of the swap: it is dead, and may be forgotten. A reservation made
//!   later changed the budget, and the swap fails. (If the node were read after reserving, a reservation could outlive
//!   its reconcile: `tests/it/model` keeps that as a control that must fail.)
//! * A crash or a lost completion at any step leaves a budget too low, never too high.
//!
//! Recovery rests on a second rule, also checked: **while a site's lock is free, no node drains towards the site, and
//! no operation of any earlier holder can take effect, however late it arrives.** A holder that knows the fate of all
//! its operations frees the lock. A holder that does not, because a completion was lost, repairs first. A holder that
//! died or overslept leaves the lock, and the edge that steals it repairs before it frees it. That pass raises the
//! generation of *every* node and budget, because the late operation may be aimed at any. (The one exception is a node
//! out of reach of the repair: its site's floor is safe, but it may drain late. An edge that sees that runs
//! [`Move::repair`].)
//!
//! # Nodes that a person keeps
//! A person's [`Plan`] holds a node, which then serves nobody, or pins it to a site ([`Goal`]). A drain to be held is under
//! the donor's lock, since it has no receiver, so that no node is on its way under a lock that is free. No budget counts a
//! held node. To resume it is to land it: its site's budget is read before and raised after, and a repair after a theft
//! renews held nodes too, because a late resumption may be aimed at one. A plan
//! by force ignores the donor's floor, but takes no node that its budget does not have.
//!
//! # Nodes that change what they run
//! Where sites have commands, a node goes through one state more: when it has left its old site, the mover makes it change, and
//! the node says in place of an acknowledgement how its commands ended ([`Change`](sidelong_layout::Change)). No budget counts
//! it meanwhile. It serves the new site only if it says that this runs. If it says that the old site runs again, it is pinned
//! there; in any other case, also if it says nothing in time, it is held. A repair sends a node that drains back, because its
//! commands have not begun, and awaits the end of a change like the mover.
//!
//! # When a node has left its old site
//! A move lands a node only when no request of the old site is under way there. A node with a server of its own
//! acknowledges that. But it may be idle while a front, which has not yet seen it drain, is about to send it a request; and a
//! server that is not Sidelong's acknowledges nothing. So the fronts are asked as well. Each one states for each node the
//! generation that it has seen, and its requests that have not ended (`layout::FrontWord`):
//!
//! * A front raises its count, *then* reads the ownership again, and takes the count back if the node no longer serves the
//!   site.
//! * A front that sees a new ownership shows it to its requests first, *then* counts them, and states both.
//!
//! So "all fronts have seen the draining generation, and all counts are 0" stays true until the node lands. A front that is
//! known to be gone has no requests. One that hangs keeps the node from moving, and costs no site its floor: the move is
//! rolled back. `tests/it/model` has both rules as controls that must fail, and what was done before: a node that acknowledges
//! when it is idle.
//!
//! Where a site's requests are cut ([`Drain::Cut`]), fronts end them themselves once the node has drained for as long as a drain
//! may last, and the mover waits somewhat longer ([`CUT_NS_MAX`]). The protocol is the same: the counts decide.
//!
//! # A board that begins anew
//! Where the board is memory of one process, it may go to another ([`Word`]): the old one is gone before the new one begins, with free locks and
//! budgets of no node. Reservations of the old one that are still alive expect nodes' words from before a repair by the new one, which raises
//! them as it counts. A mover reads the old epoch no more, and so gives back what drains. It must forget what it has seen of the old locks: the words of
//! new ones may be the same. `tests/it/model` has both as controls that must fail.
//!
//! # Words that no mover wrote
//! Memory may hold anything: another program wrote there, or a bit flipped. A mover does not act on a word that no mover
//! of the cluster can have written ([`Pool`]), and [`Move::repair`] puts it right. From any contents of all words the
//! cluster becomes legal: locks are free, each node serves a site or is free, each budget is exact and has the floor of
//! the cluster file. It takes two leases, after which an observer takes over a lock or repairs under a free one, and
//! for each site one repair, whose longest wait is that for nodes that drain to the site. Until then a site may be below
//! its floor. `tests/it/model` begins from all such contents, and corrupts any word at any moment of a move.
#![forbid(unsafe_code)]

mod agent;
mod changed;
mod counter;
mod drained;
mod lease;
mod moving;
mod op;
mod paper;
mod pool;
mod primitive;
mod protocol;
mod reconcile;
mod record;
mod scheme;
mod transfer;

pub use agent::NodeAgent;
pub use counter::UpdateCounter;
pub use drained::Undrained;
pub use lease::{Holder, Memo, Sighting, Timing, TimingError};
pub use moving::{Goal, Move, Outcome, Plan, STEPS};
pub use op::{Op, Reply, Step, Word};
pub use paper::PaperMove;
pub use pool::{CUT_NS_MAX, Pool};
pub use protocol::{Drain, Protocol};
pub use record::{COPIES_MAX, Newest, Publisher, Record, Unusable, Verdict};
pub use scheme::Scheme;

pub use sidelong_layout::Time;

#[cfg(test)]
mod tests;
