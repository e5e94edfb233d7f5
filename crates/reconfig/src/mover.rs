//! Whoever moves nodes: one machine of `state` at a time, and the signs that a site needs repair.

use sidelong_layout::{EdgeId, Lock, NodeState, SiteId};
use sidelong_state::{
    Holder, Memo, Move, Outcome, PaperMove, PaperOutcome, Plan, Pool, Reply, Step, Time, Timing,
    UpdateCounter,
};

use crate::links::{Links, Scan, is_exact};

/// Which protocol moves are made by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Leases, budgets, draining and repair (`state`'s module documentation).
    #[default]
    Lease,
    /// As the papers print it (R 3.1.2), with nothing for crashes. For comparison.
    Paper,
}

/// How a move or repair ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By the protocol with leases.
    Lease(Outcome),
    /// By the papers'.
    Paper(PaperOutcome),
}

impl How {
    /// A word for it, the same for all of a kind.
    pub const fn word(self) -> &'static str {
        match self {
            How::Lease(outcome) => outcome.word(),
            How::Paper(outcome) => outcome.word(),
        }
    }
}

/// A move or repair that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What was to be moved; `None` for a repair.
    pub plan: Option<Plan>,
    /// The site whose lock was taken.
    pub site: SiteId,
    /// How it ended.
    pub how: How,
    /// When it began.
    pub began: Time,
    /// When it ended.
    pub ended: Time,
}

impl Ended {
    /// Whether the node of the plan now serves its new site.
    pub fn moved(&self) -> bool {
        matches!(self.how, How::Lease(Outcome::Moved) | How::Paper(PaperOutcome::Moved))
    }
}

/// Carries out one move or repair at a time.
#[derive(Debug)]
pub struct Mover {
    edge: EdgeId,
    holder: Holder,
    owners: u16,
    pool: Pool,
    timing: Timing,
    protocol: Protocol,
    memos: Vec<Memo>,
    counters: Vec<UpdateCounter>,
    /// The sequence of each site's lock when it was last seen free.
    looked: Vec<u64>,
    /// Since when each site's budget is known not to be that of the scan while its lock is free.
    inexact_since: Vec<Option<Time>>,
    /// Kept between scans for its memory only.
    tallies: Vec<Tally>,
    job: Option<(Job, Option<Plan>, Time)>,
}

/// Nodes of a site in a scan.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    serving: usize,
    /// On their way there.
    incoming: usize,
}

#[derive(Debug)]
enum Job {
    Lease(Box<Move>),
    Paper(Box<PaperMove>),
}

impl Mover {
    /// One of `owners` that may hold locks, in its life `incarnation`: of that the last 12 bits tell lives apart.
    pub fn new(
        edge: EdgeId,
        incarnation: u64,
        owners: u16,
        pool: Pool,
        timing: Timing,
        protocol: Protocol,
    ) -> Self {
        let sites = usize::from(pool.sites);
        Mover {
            edge,
            holder: Holder::new(edge, incarnation),
            owners,
            pool,
            timing,
            protocol,
            memos: vec![Memo::default(); sites],
            counters: vec![UpdateCounter::default(); sites],
            looked: vec![0; sites],
            inexact_since: vec![None; sites],
            tallies: vec![Tally::default(); sites],
            job: None,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Whether a site whose lock is this word is in another's hands, so that a move to it would now come to nothing. With
    /// the papers' protocol nobody looks before trying.
    pub fn another_holds(&self, lock: u64) -> bool {
        let lock = Lock::decode(lock);
        self.protocol == Protocol::Lease && lock.owner.is_some() && !self.holder.has(lock)
    }

    /// Begins a move.
    ///
    /// # Panics
    /// Where something is under way.
    pub fn begin(&mut self, plan: Plan, now: Time) {
        assert!(self.is_idle(), "one move at a time");
        let site = plan.to.index();
        let job = match self.protocol {
            Protocol::Lease => {
                let machine = Move::new(plan, self.holder, self.pool, self.timing, self.memos[site]);
                Job::Lease(Box::new(machine))
            }
            Protocol::Paper => {
                let machine = PaperMove::new(plan, self.edge, self.owners, self.counters[site]);
                Job::Paper(Box::new(machine))
            }
        };
        self.job = Some((job, Some(plan), now));
    }

    /// Looks at a scan, as is to be done with each: takes note of what others reconfigured, so that it is not news to the
    /// next move, and begins the repair of what a dead holder left. The papers' protocol has neither.
    pub fn look(&mut self, scan: Scan<'_>, now: Time) {
        if self.protocol == Protocol::Paper {
            return;
        }
        let unread = self.tally(scan);
        for site in (0..usize::from(self.pool.sites)).map(SiteId::new) {
            let needed = self.needs_repair(site, scan, unread, now);
            if needed && self.is_idle() {
                let memo = self.memos[site.index()];
                let machine = Move::repair(site, self.holder, self.pool, self.timing, memo);
                self.job = Some((Job::Lease(Box::new(machine)), None, now));
            }
        }
    }

    /// Counts the nodes of each site, once for all of them, and says how many could not be read.
    fn tally(&mut self, scan: Scan<'_>) -> usize {
        self.tallies.fill(Tally::default());
        let mut unread = 0;
        for node in scan.ownerships {
            let Some(node) = node else {
                unread += 1;
                continue;
            };
            let (site, drains) = match node.state {
                NodeState::Draining => (node.next, true),
                _ => (node.serving_site(), false),
            };
            if let Some(tally) = site.and_then(|site| self.tallies.get_mut(site.index())) {
                tally.incoming += usize::from(drains);
                tally.serving += usize::from(!drains);
            }
        }
        unread
    }

    fn needs_repair(&mut self, site: SiteId, scan: Scan<'_>, unread: usize, now: Time) -> bool {
        let Some(words) = scan.sites[site.index()] else { return false };
        let overdue = |since: Time| now >= since.after_ns(self.timing.steal_ns());
        if let Some(since) = self.memos[site.index()].see(now, words.lock) {
            // Held: by a live holder, or by a dead one if nothing has changed for too long.
            self.inexact_since[site.index()] = None;
            return overdue(since);
        }
        // A scan's words are not all of one moment, so that a node that came just now may not show in it yet. One that came
        // before the last scan does, and whoever plans moves has seen it.
        let sequence = Lock::decode(words.lock).sequence;
        let looked = std::mem::replace(&mut self.looked[site.index()], sequence);
        self.memos[site.index()].counter.note(looked);
        // Free: then no node drains towards it, and its budget is right but for a moment.
        let Tally { serving, incoming } = self.tallies[site.index()];
        let inexact_since = &mut self.inexact_since[site.index()];
        let exact = is_exact(words.budget, serving, unread);
        if exact == Some(false) || incoming > 0 {
            return overdue(*inexact_since.get_or_insert(now));
        }
        // Where not all could be read there is no news, good or bad.
        if exact == Some(true) {
            *inexact_since = None;
        }
        false
    }

    /// Goes on with what is under way until it has ended or waits. `before` hears the name of each operation before it
    /// is posted.
    pub fn drive(
        &mut self,
        links: &mut Links,
        clock: impl Fn() -> Time,
        mut before: impl FnMut(&'static str),
    ) -> Option<Ended> {
        let mut reply = None;
        loop {
            match self.step(clock(), reply.take())? {
                Step::Do(op) => {
                    before(self.step_name());
                    reply = Some(links.execute(op));
                }
                Step::WaitUntil(_) => return None,
                Step::Done(ended) => return Some(Ended { ended: clock(), ..ended }),
            }
        }
    }

    /// One step of what is under way, for whoever posts operations in another way than [`Mover::drive`]: without a reply at
    /// first and after a wait, with one after an operation. `None` where nothing is under way.
    ///
    /// # Panics
    /// Where a reply is missing or comes uninvited.
    pub fn step(&mut self, now: Time, reply: Option<Reply>) -> Option<Step<Ended>> {
        let (job, plan, began) = self.job.as_mut()?;
        let (site, how) = match job {
            Job::Lease(machine) => {
                let outcome = match machine.step(now, reply) {
                    Step::Do(op) => return Some(Step::Do(op)),
                    Step::WaitUntil(time) => return Some(Step::WaitUntil(time)),
                    Step::Done(outcome) => outcome,
                };
                self.memos[machine.site().index()] = machine.memo();
                (machine.site(), How::Lease(outcome))
            }
            Job::Paper(machine) => {
                let outcome = match machine.step(reply) {
                    Step::Do(op) => return Some(Step::Do(op)),
                    Step::WaitUntil(time) => return Some(Step::WaitUntil(time)),
                    Step::Done(outcome) => outcome,
                };
                self.counters[machine.site().index()] = machine.counter();
                (machine.site(), How::Paper(outcome))
            }
        };
        let ended = Ended { plan: *plan, site, how, began: *began, ended: now };
        self.job = None;
        Some(Step::Done(ended))
    }

    /// The operation that is posted or comes next; "over" where nothing is under way.
    pub fn step_name(&self) -> &'static str {
        match &self.job {
            Some((Job::Lease(machine), ..)) => machine.step_name(),
            Some((Job::Paper(machine), ..)) => machine.step_name(),
            None => "over",
        }
    }
}
