//! The machine that an edge runs to move a node, or to repair a site: a job under the site's lock.
//!
//! Between any two operations of the job it renews the lease when due, and lets the job post nothing while the lease
//! has expired. A job that ends with a known outcome frees the lock. A job that does not leaves it, and the edge that
//! steals it repairs the site first. That is then all that this machine does, because the plan is older than the
//! repair.

use sidelong_layout::{Fault, NodeId, NodeState, Ownership, SiteId};

use crate::Time;
use crate::drained::Undrained;
use crate::lease::{Acquire, Acquired, Holder, Lease, Memo, Release, Renewal, Sighting, Timing};
use crate::op::{Reply, Step, done};
use crate::pool::Pool;
use crate::reconcile::Reconcile;
use crate::transfer::{Transfer, Transferred};

/// Every name that [`Move::step_name`] returns before the end: the steps at which a test may kill a process.
pub const STEPS: &[&str] = &[
    "read-lock",
    "take-lock",
    "steal-lock",
    "read-node",
    "read-epoch",
    "read-donor-budget",
    "reserve",
    "drain",
    "await-ack",
    "await-fronts",
    "change",
    "await-change",
    "settle",
    "read-receiver-budget",
    "land",
    "raise-budget",
    "roll-back-read-budget",
    "roll-back",
    "give-back",
    "reconcile-read-budget",
    "reconcile-read-node",
    "reconcile-raise-node",
    "reconcile-read-epoch",
    "reconcile-budget",
    "recover-read-budget",
    "recover-read-node",
    "recover-read-epoch",
    "recover-await-ack",
    "recover-await-fronts",
    "recover-await-change",
    "recover-node",
    "recover-budget",
    "renew-lock",
    "free-lock",
];

/// A node, and what to make of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// The node.
    pub node: NodeId,
    /// Its ownership when the plan was made. If it has changed, the plan is void.
    pub expected: Ownership,
    /// What becomes of it.
    pub goal: Goal,
    /// Whether the donor may fall below its floor.
    pub force: bool,
}

/// What becomes of a planned node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Goal {
    /// It serves the site.
    Serve(SiteId),
    /// It serves the site, and only a person takes it from there.
    Pin(SiteId),
    /// It serves nobody ([`NodeState::Held`](sidelong_layout::NodeState::Held)).
    Hold,
}

impl Goal {
    const fn state(self) -> NodeState {
        match self {
            Goal::Serve(_) => NodeState::Serving,
            Goal::Pin(_) => NodeState::Pinned,
            Goal::Hold => NodeState::Held,
        }
    }

    /// The site that the node will serve.
    pub const fn site(self) -> Option<SiteId> {
        match self {
            Goal::Serve(site) | Goal::Pin(site) => Some(site),
            Goal::Hold => None,
        }
    }
}

impl Plan {
    /// That `node` serves `to`.
    pub const fn new(node: NodeId, expected: Ownership, to: SiteId) -> Self {
        Plan { node, expected, goal: Goal::Serve(to), force: false }
    }

    /// The site that it leaves; `None` for a free node.
    pub const fn from(&self) -> Option<SiteId> {
        self.expected.site
    }

    /// The site whose lock the plan needs: the receiver or, without one, the donor.
    ///
    /// # Panics
    /// If a free node is to be held, which nobody needs to drain.
    pub fn site(&self) -> SiteId {
        self.goal.site().or(self.from()).expect("a node that serves nobody cannot drain")
    }

    /// Whether the node is as planned already.
    pub fn is_met(&self) -> bool {
        self.planned(self.expected) == self.expected.renewed()
    }

    /// The successor of `word` that the plan asks for.
    pub(crate) fn planned(&self, word: Ownership) -> Ownership {
        word.now(self.goal.state(), self.site())
    }
}

/// How a move or repair ended: a [`Move`], or a [`PaperMove`](crate::PaperMove).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The node is as the plan has it.
    Moved,
    /// Another edge holds the receiver's lock.
    Busy,
    /// The receiver was reconfigured since this edge last looked, so the load must settle first.
    Recent,
    /// The donor is at its floor.
    AtFloor,
    /// The node's ownership differs from the plan.
    NodeChanged,
    /// The old site's requests at the node had not ended in time, as far as the mover could tell, and it stays there.
    NotDrained(Undrained),
    /// The node's commands failed or said nothing in time. If it runs its old site again, it is pinned there; otherwise it is
    /// held.
    NotChanged {
        /// What failed first, if the node said so.
        fault: Option<Fault>,
    },
    /// The donor's budget kept changing.
    Contended,
    /// The cluster has a newer roster than this mover's: it may have fronts that the mover did not ask. Nothing was changed,
    /// or the node is back at its old site.
    Behind,
    /// A needed word was out of reach. Nothing was changed, except the lock for a while.
    Unreachable,
    /// Completions were lost, or budgets kept changing, and a repair followed. The node may or may not have moved.
    Uncertain {
        /// As in [`Outcome::Recovered`].
        left_out: u16,
    },
    /// The site was repaired, as requested or because the lock was taken over from a dead holder.
    Recovered {
        /// Words that were out of reach or kept changing, and so were left as they were. If it is not 0, nodes may be
        /// idle until another repair.
        left_out: u16,
    },
    /// The lock was stolen or could not be renewed. Nothing more was written; the next holder repairs.
    LeaseLost,
    /// Completions were lost under the published protocol, which does not cover this: the lock may stay.
    Lost,
}

impl Outcome {
    /// Its code in metrics and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Moved => "moved",
            Outcome::Busy => "busy",
            Outcome::Recent => "recent",
            Outcome::AtFloor => "at-floor",
            Outcome::NodeChanged => "node-changed",
            Outcome::NotDrained(_) => "not-drained",
            Outcome::NotChanged { .. } => "not-changed",
            Outcome::Contended => "contended",
            Outcome::Behind => "behind",
            Outcome::Unreachable => "unreachable",
            Outcome::Uncertain { .. } => "uncertain",
            Outcome::Recovered { .. } => "recovered",
            Outcome::LeaseLost => "lease-lost",
            Outcome::Lost => "lost",
        }
    }
}

/// A move or a repair, from taking the receiver's lock to freeing it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Move {
    site: SiteId,
    pool: Pool,
    timing: Timing,
    plan: Option<Plan>,
    memo: Memo,
    stage: Stage,
    posted: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "a machine spends its life in the largest one")]
enum Stage {
    Locking(Acquire),
    Holding(Holding),
    Freeing { release: Release, then: Outcome },
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Holding {
    lease: Lease,
    job: Job,
    renewal: Option<Renewal>,
    /// The reply to the job that arrived when a renewal was due.
    kept: Option<Reply>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are transfers")]
enum Job {
    Transfer(Transfer),
    Recover { reconcile: Reconcile, doubtful: bool },
}

impl Move {
    /// Moves a node by `plan`. `memo` comes from the last machine for the same site.
    ///
    /// # Panics
    /// If the node is as planned already, or serves nobody and is to be held.
    pub fn new(plan: Plan, holder: Holder, pool: Pool, timing: Timing, memo: Memo) -> Self {
        assert!(!plan.is_met(), "a move from a site to itself");
        Move::with(plan.site(), Some(plan), holder, pool, timing, memo)
    }

    /// Repairs `site` and all unfinished moves to it. Needed at start-up, when its lock is unchanged for too long
    /// ([`Memo::see`]), when a node drains to it while its lock is free, when a node comes back, and
    /// when a budget or a node's word is one that no mover writes ([`Pool`]).
    pub fn repair(site: SiteId, holder: Holder, pool: Pool, timing: Timing, memo: Memo) -> Self {
        Move::with(site, None, holder, pool, timing, memo)
    }

    fn with(
        site: SiteId,
        plan: Option<Plan>,
        holder: Holder,
        pool: Pool,
        timing: Timing,
        memo: Memo,
    ) -> Self {
        let stage = Stage::Locking(Acquire::new(site, holder, timing, plan.is_some()));
        Move { site, pool, timing, plan, memo, stage, posted: false }
    }

    /// The site whose lock it takes.
    pub const fn site(&self) -> SiteId {
        self.site
    }

    /// What to pass to the next machine for the same site.
    pub const fn memo(&self) -> Memo {
        self.memo
    }

    /// Whether it holds the site's lock, as far as it can know at `now`.
    pub fn may_act(&self, now: Time) -> bool {
        matches!(&self.stage, Stage::Holding(holding) if holding.lease.may_act(now))
    }

    /// The operation that is posted or comes next, one of [`STEPS`]; "over" at the end.
    pub const fn step_name(&self) -> &'static str {
        match &self.stage {
            Stage::Locking(acquire) => acquire.step_name(),
            Stage::Holding(Holding { renewal: Some(_), .. }) => "renew-lock",
            Stage::Holding(Holding { job: Job::Transfer(transfer), .. }) => transfer.step_name(),
            Stage::Holding(Holding { job: Job::Recover { reconcile, .. }, .. }) => reconcile.step_name(),
            Stage::Freeing { .. } => "free-lock",
            Stage::Over => "over",
        }
    }

    /// Continues: without a reply at first and after a wait, with one after an operation.
    ///
    /// # Panics
    /// If a reply is missing or unexpected, or the machine is over.
    pub fn step(&mut self, now: Time, reply: Option<Reply>) -> Step<Outcome> {
        assert_eq!(self.posted, reply.is_some(), "each operation has one reply");
        let step = self.advance(now, reply);
        self.posted = matches!(step, Step::Do(_));
        if let Step::Done(_) = step {
            self.stage = Stage::Over;
        }
        step
    }

    fn advance(&mut self, now: Time, mut reply: Option<Reply>) -> Step<Outcome> {
        loop {
            match &mut self.stage {
                Stage::Locking(acquire) => match done!(acquire.step(now, reply.take(), &mut self.memo)) {
                    Acquired::Held { lease, taken_over } => {
                        let job = self.job(taken_over);
                        self.stage = Stage::Holding(Holding { lease, job, renewal: None, kept: None });
                    }
                    Acquired::Busy => return Step::Done(Outcome::Busy),
                    Acquired::Recent => return Step::Done(Outcome::Recent),
                    Acquired::Unreachable => return Step::Done(Outcome::Unreachable),
                },
                Stage::Holding(holding) => match done!(holding.step(now, reply.take(), self.timing)) {
                    Held::Ended(then) => {
                        self.memo.awaited = None;
                        self.stage = Stage::Freeing { release: holding.lease.release(), then };
                    }
                    Held::Doubtful => {
                        holding.job = Job::recovery(self.site, &self.pool, self.timing, None, true)
                    }
                    Held::Lost => {
                        self.memo.awaited = holding.job.awaited();
                        return Step::Done(Outcome::LeaseLost);
                    }
                },
                Stage::Freeing { release, then } => {
                    let then = *then;
                    if let Some(sequence) = done!(release.step(reply.take())) {
                        self.memo.counter.note(sequence);
                    }
                    return Step::Done(then);
                }
                Stage::Over => panic!("stepped after its end"),
            }
        }
    }

    fn job(&self, taken_over: bool) -> Job {
        match self.plan {
            Some(plan) if !taken_over => Job::Transfer(Transfer::new(plan, self.pool.clone(), self.timing)),
            _ => Job::recovery(self.site, &self.pool, self.timing, self.memo.awaited, false),
        }
    }
}

enum Held {
    Ended(Outcome),
    Doubtful,
    Lost,
}

impl Holding {
    fn step(&mut self, now: Time, mut reply: Option<Reply>, timing: Timing) -> Step<Held> {
        if self.renewal.is_none() && now >= self.lease.renew_at() {
            self.kept = reply.take();
            self.renewal = Some(Renewal::new(now, &self.lease));
        }
        if let Some(renewal) = &mut self.renewal {
            if !done!(renewal.step(now, reply.take(), &mut self.lease, timing)) {
                return Step::Done(Held::Lost);
            }
            self.renewal = None;
            reply = self.kept.take();
        }
        match self.job.step(now, reply) {
            Step::WaitUntil(time) => Step::WaitUntil(time.min(self.lease.renew_at())),
            other => other,
        }
    }
}

impl Job {
    fn recovery(
        site: SiteId,
        pool: &Pool,
        timing: Timing,
        awaited: Option<Sighting>,
        doubtful: bool,
    ) -> Self {
        Job::Recover { reconcile: Reconcile::recover(site, pool.clone(), timing, awaited), doubtful }
    }

    const fn awaited(&self) -> Option<Sighting> {
        match self {
            Job::Transfer(_) => None,
            Job::Recover { reconcile, .. } => reconcile.awaited(),
        }
    }

    fn step(&mut self, now: Time, reply: Option<Reply>) -> Step<Held> {
        Step::Done(match self {
            Job::Transfer(transfer) => match done!(transfer.step(now, reply)) {
                Transferred::As(outcome) => Held::Ended(outcome),
                Transferred::Doubtful => Held::Doubtful,
            },
            Job::Recover { reconcile, doubtful } => {
                let left_out = done!(reconcile.step(now, reply));
                let doubtful = *doubtful;
                Held::Ended(if doubtful {
                    Outcome::Uncertain { left_out }
                } else {
                    Outcome::Recovered { left_out }
                })
            }
        })
    }
}
