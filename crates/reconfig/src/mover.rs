//! The mover: carries out moves, each by a machine of `state`, and notices when a site needs repair.

use sidelong_layout::{Budget, EdgeId, Lock, NodeId, SiteId};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_state::{
    Holder, Memo, Move, Outcome, PaperMove, Plan, Pool, Protocol, Reply, Step, Time, Timing, Undrained,
    UpdateCounter,
};

use crate::links::{Links, Scan, is_exact, is_too_high};

/// Why a site is repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Its lock was unchanged for two leases: the holder is dead.
    Abandoned,
    /// Its lock is free, and a node is on its way under it or its budget is not the number of nodes that serve it.
    Unsettled,
    /// Its budget has another floor than the cluster file.
    Floor {
        /// The one on the board.
        found: u16,
        /// The file's.
        expected: u16,
    },
    /// The ownership word of a node whose home it is names no state or site of this cluster.
    Ownership(NodeId),
}

/// What a mover does under a site's lock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Task {
    /// It gives the site a node.
    Move(MovePlan),
    /// It repairs the site.
    Repair(SiteId, Cause),
}

impl Task {
    /// The site whose lock it takes.
    pub const fn site(&self) -> SiteId {
        match self {
            Task::Move(plan) => plan.to,
            Task::Repair(site, _) => *site,
        }
    }

    /// The plan of a move.
    pub const fn plan(&self) -> Option<&MovePlan> {
        match self {
            Task::Move(plan) => Some(plan),
            Task::Repair(..) => None,
        }
    }
}

/// The report of a move or repair that has ended, for metrics, the log and the history.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Report {
    /// What was to be done.
    pub task: Task,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub began: Time,
    /// When it ended.
    pub ended: Time,
}

impl Report {
    /// The plan of the move; `None` for a repair.
    pub const fn plan(&self) -> Option<&MovePlan> {
        self.task.plan()
    }

    /// Whether the node of the plan now serves its new site.
    pub fn moved(&self) -> bool {
        self.outcome == Outcome::Moved
    }

    /// The front that kept the node where it was by saying nothing: it may hang, or nothing of it may be left.
    pub const fn silent_front(&self) -> Option<EdgeId> {
        match self.outcome {
            Outcome::NotDrained(Undrained::Unseen(front) | Undrained::Unread(front)) => Some(front),
            _ => None,
        }
    }

    /// Whether it is a move whose node has drained for nothing, as each other one would.
    fn was_in_vain(&self) -> bool {
        use Undrained::{Board, Unread, Unseen};
        let is_so = match self.outcome {
            Outcome::NotDrained(why) => matches!(why, Board | Unread(_) | Unseen(_)),
            outcome => matches!(outcome, Outcome::Behind | Outcome::LeaseLost),
        };
        is_so && self.plan().is_some()
    }

    /// Whether it is a move for which another mover was faster, as two compete for most moves.
    pub fn was_late(&self) -> bool {
        self.plan().is_some() && matches!(self.outcome, Outcome::Busy | Outcome::Recent)
    }
}

/// Most moves and repairs that a mover of [`Mover::several`] has under way. Each takes the time of a few operations in every
/// scan, and one that waits for a node's commands takes up its place for seconds.
pub const MOVES_MAX: usize = 8;

/// Carries out moves and repairs: one at a time, or several of different sites.
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
    /// Words of each site that were found wrong while its lock was free.
    wrong: Vec<Option<Wrong>>,
    /// By site.
    disputes: Vec<Dispute>,
    setbacks: Setbacks,
    /// Whether the last scan could not read the board.
    is_blind: bool,
    /// By site. Reused between scans only for its memory.
    tallies: Vec<Tally>,
    /// At most one for each site and each node.
    tasks: Vec<Begun>,
    tasks_max: usize,
}

/// A task that is under way.
#[derive(Debug)]
struct Begun {
    machine: Machine,
    task: Task,
    began: Time,
}

/// How often a floor was repaired recently. Two edges whose cluster files differ in it undo each other's repairs, less and
/// less often.
#[derive(Clone, Copy, Debug, Default)]
struct Dispute {
    times: u32,
    last: Time,
}

/// The wait before the next repair of a floor, or the next move after one in vain, doubles at most this often.
const DOUBLINGS_MAX: u32 = 6;

impl Dispute {
    fn wait_ns(&self, now: Time, first_ns: u64) -> u64 {
        first_ns.saturating_mul(1 << self.times_lately(now, first_ns).min(DOUBLINGS_MAX))
    }

    fn grow(&mut self, now: Time, first_ns: u64) {
        *self = Dispute { times: self.times_lately(now, first_ns).saturating_add(1), last: now };
    }

    /// None if the last repair was longer ago than twice the longest wait.
    fn times_lately(&self, now: Time, first_ns: u64) -> u32 {
        let peace_ns = first_ns.saturating_mul(2 << DOUBLINGS_MAX);
        if now > self.last.after_ns(peace_ns) { 0 } else { self.times }
    }
}

/// Moves in vain since the last that succeeded: the board or a front said nothing or goes by a newer roster, or the lease was lost. The next one would end in
/// the same way, after its node has drained for nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Setbacks {
    times: u32,
    /// When the last one ended.
    last: Time,
    /// When the next move may begin.
    until: Time,
}

impl Setbacks {
    /// A move in vain has ended. The first may be chance, so that the next move follows at once. From then on moves wait longer and
    /// longer: for up to 64 leases or four times what the last one took, whichever is more. Of several at a time one counts.
    fn grow(&mut self, began: Time, now: Time, lease_ns: u64) {
        if self.times > 0 && began < self.last {
            return;
        }
        let took_ns = now.since(began).as_nanos() as u64;
        (self.times, self.last) = (self.times.saturating_add(1), now);
        if self.times > 1 {
            let unit_ns = lease_ns.max(took_ns >> (DOUBLINGS_MAX - 2));
            self.until = now.after_ns(unit_ns.saturating_mul(1 << self.times.min(DOUBLINGS_MAX)));
        }
    }
}

/// A word of a site that is wrong.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    since: Time,
    /// The site's when it was found.
    budget: Budget,
    /// Whether the lock was held meanwhile.
    was_held: bool,
}

/// Nodes of a site in a scan.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    serving: usize,
    /// Nodes on their way under its lock.
    on_their_way: usize,
    /// A node that has its home there and an invalid word.
    invalid: Option<NodeId>,
    /// Whether its budget counts more nodes than that.
    is_too_high: bool,
}

#[derive(Debug)]
enum Machine {
    Lease(Box<Move>),
    Paper(Box<PaperMove>),
}

impl Mover {
    /// The mover of one of the `owners` of locks, in its life `incarnation`, whose low 12 bits distinguish lives.
    pub fn new(
        edge: EdgeId,
        incarnation: u64,
        owners: u16,
        pool: Pool,
        timing: Timing,
        protocol: Protocol,
    ) -> Self {
        let sites = pool.sites();
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
            wrong: vec![None; sites],
            disputes: vec![Dispute::default(); sites],
            setbacks: Setbacks::default(),
            is_blind: false,
            tallies: vec![Tally::default(); sites],
            tasks: Vec::new(),
            tasks_max: 1,
        }
    }

    /// Lets it have up to [`MOVES_MAX`] moves and repairs under way, so that a node whose commands take seconds does not keep
    /// other sites waiting. The published protocol keeps to one. For [`Mover::drive`], as [`Mover::step`] continues one alone.
    #[must_use]
    pub fn several(self) -> Self {
        let tasks_max = if self.protocol == Protocol::Lease { MOVES_MAX } else { 1 };
        Mover { tasks_max, ..self }
    }

    /// Epoch of the roster that it goes by.
    pub fn epoch(&self) -> u64 {
        self.pool.epoch()
    }

    /// Goes by another roster from now on. What is under way ends by the one that it began with.
    pub fn adopt(&mut self, pool: Pool, timing: Timing) {
        let sites = pool.sites().max(self.memos.len());
        self.memos.resize(sites, Memo::default());
        self.counters.resize(sites, UpdateCounter::default());
        self.looked.resize(sites, 0);
        self.wrong.resize(sites, None);
        self.disputes.resize(sites, Dispute::default());
        self.tallies.resize(sites, Tally::default());
        if self.pool.epoch() != pool.epoch() {
            self.setbacks = Setbacks::default();
        }
        (self.pool, self.timing) = (pool, timing);
    }

    /// Leaves what is under way to whoever repairs it, because the board begins anew elsewhere, and nothing that is known of the one before holds there.
    /// Its first repairs count the nodes of each site, as after the death of a mover.
    pub fn change_boards(&mut self) {
        let sites = self.memos.len();
        self.tasks.clear();
        self.memos = vec![Memo::default(); sites];
        self.counters = vec![UpdateCounter::default(); sites];
        self.looked = vec![0; sites];
        self.wrong = vec![None; sites];
    }

    /// Whether nothing is in progress.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    fn has_room(&self) -> bool {
        self.tasks.len() < self.tasks_max
    }

    /// Whether a move may begin now: there is room, the board was read, and there is no wait after moves in vain.
    pub fn may_begin(&self, now: Time) -> bool {
        self.has_room() && !self.is_blind && now >= self.setbacks.until
    }

    /// Whether a move to the site, or its repair, is in progress.
    pub fn is_at(&self, site: SiteId) -> bool {
        self.tasks.iter().any(|begun| begun.task.site() == site)
    }

    /// Whether that move can begin beside what is under way: there is room, and neither its site nor its node takes part in another one.
    pub fn takes(&self, plan: &MovePlan) -> bool {
        let mut plans = self.tasks.iter().filter_map(|begun| begun.task.plan());
        self.has_room() && !self.is_at(plan.to) && plans.all(|other| other.node != plan.node)
    }

    /// Whether the site that the node would leave may have what its budget says, by the last [look](Self::look). If it has not, it is repaired
    /// two leases after its lock was last held.
    pub fn may_leave(&self, plan: &MovePlan) -> bool {
        plan.from().is_none_or(|site| !self.tallies[site.index()].is_too_high)
    }

    /// Whether another owner holds a site's lock with this word, so that a move to the site would fail now. Under the
    /// published protocol no owner checks before trying.
    pub fn another_holds(&self, lock: u64) -> bool {
        let lock = Lock::decode(lock);
        self.protocol == Protocol::Lease && lock.owner.is_some() && !self.holder.has(lock)
    }

    /// Starts a move. It ends without effect if the node's ownership is no longer the one that it was planned from.
    ///
    /// # Panics
    /// Unless it [takes](Mover::takes) the plan.
    pub fn begin(&mut self, move_plan: MovePlan, now: Time) {
        assert!(self.takes(&move_plan), "one move of a site or node at a time, and a bounded number");
        let MovePlan { node, expected, to, .. } = move_plan;
        let (plan, site) = (Plan::new(node, expected, to), to.index());
        let machine = match self.protocol {
            Protocol::Lease => {
                let machine = Move::new(plan, self.holder, self.pool.clone(), self.timing, self.memos[site]);
                Machine::Lease(Box::new(machine))
            }
            Protocol::Paper => {
                let machine = PaperMove::new(plan, self.edge, self.owners, self.counters[site]);
                Machine::Paper(Box::new(machine))
            }
        };
        self.tasks.push(Begun { machine, task: Task::Move(move_plan), began: now });
    }

    /// Takes a scan; call it with each. It notes what others reconfigured, so that this is not news to the next move,
    /// and starts the repair of what a dead holder left and of words that no mover of this cluster writes. The published
    /// protocol has neither.
    pub fn look(&mut self, scan: Scan<'_>, now: Time) {
        if self.protocol == Protocol::Paper {
            return;
        }
        self.is_blind = scan.sites.iter().all(Option::is_none);
        let unread = self.tally(scan);
        for site in (0..self.pool.sites()).map(SiteId::new) {
            if !self.pool.has_site(site) {
                continue;
            }
            if let Some(words) = scan.sites[site.index()] {
                let tally = &mut self.tallies[site.index()];
                tally.is_too_high = is_too_high(words.budget, tally.serving, unread);
            }
            let Some(cause) = self.needs_repair(site, scan, unread, now) else { continue };
            if self.has_room() && !self.is_at(site) {
                if let Cause::Floor { .. } = cause {
                    self.disputes[site.index()].grow(now, self.timing.steal_ns());
                }
                let memo = self.memos[site.index()];
                let machine = Move::repair(site, self.holder, self.pool.clone(), self.timing, memo);
                let machine = Machine::Lease(Box::new(machine));
                self.tasks.push(Begun { machine, task: Task::Repair(site, cause), began: now });
            }
        }
    }

    /// Counts the nodes of each site, and returns how many could not be read. A node whose word is invalid was read, and
    /// serves no site.
    fn tally(&mut self, scan: Scan<'_>) -> usize {
        self.tallies.fill(Tally::default());
        let mut unread = 0_usize;
        for (slot, node) in scan.ownerships.iter().enumerate() {
            if !self.pool.has_node(NodeId::new(slot)) {
                continue;
            }
            let Some(node) = node else {
                unread += 1;
                continue;
            };
            if let Some(tally) = node.on_its_way().and_then(|site| self.tallies.get_mut(site.index())) {
                tally.on_their_way += 1;
            }
            if let Some(tally) = node.serving_site().and_then(|site| self.tallies.get_mut(site.index())) {
                tally.serving += 1;
            }
        }
        for node in scan.invalid {
            // Any site may repair a node without a home.
            let any =
                || (0..self.pool.sites()).find(|site| self.pool.has_site(SiteId::new(*site))).unwrap_or(0);
            let home = self.pool.home(*node).map_or_else(any, SiteId::index);
            if let Some(tally) = self.tallies.get_mut(home) {
                tally.invalid = tally.invalid.or(Some(*node));
            }
        }
        unread.saturating_sub(scan.invalid.len())
    }

    fn needs_repair(&mut self, site: SiteId, scan: Scan<'_>, unread: usize, now: Time) -> Option<Cause> {
        let words = scan.sites[site.index()]?;
        let steal_ns = self.timing.steal_ns();
        if let Some(since) = self.memos[site.index()].see(now, words.lock) {
            // Held by a live holder; or by a dead one, if nothing has changed for too long. A holder that leaves the budget as it is, because
            // the site seems to be at its floor, may come again and again.
            let wrong = self.wrong[site.index()].filter(|wrong| wrong.budget == words.budget);
            self.wrong[site.index()] = wrong.map(|wrong| Wrong { was_held: true, ..wrong });
            return (now >= since.after_ns(steal_ns)).then_some(Cause::Abandoned);
        }
        // A scan's words are read at different moments, so a node that has just joined may not show yet. A node that
        // joined before the last scan does, and the planner has seen it.
        let sequence = Lock::decode(words.lock).sequence;
        let looked = std::mem::replace(&mut self.looked[site.index()], sequence);
        self.memos[site.index()].counter.note(looked);
        // Free: no node is on its way under it, and its budget is right except for a moment.
        let Tally { serving, on_their_way, invalid, .. } = self.tallies[site.index()];
        let (found, expected) = (words.budget.floor, self.pool.floor(site));
        let exact = is_exact(words.budget, serving, unread);
        let cause = if let Some(node) = invalid {
            Some(Cause::Ownership(node))
        } else if exact == Some(false) || on_their_way > 0 {
            Some(Cause::Unsettled)
        } else {
            (found != expected).then_some(Cause::Floor { found, expected })
        };
        let wrong = &mut self.wrong[site.index()];
        *wrong = wrong.filter(|wrong| !wrong.was_held || wrong.budget == words.budget);
        let found = Wrong { since: now, budget: words.budget, was_held: false };
        let mut since = || wrong.insert(Wrong { was_held: false, ..wrong.unwrap_or(found) }).since;
        match cause {
            Some(Cause::Floor { .. }) => {
                let wait_ns = self.disputes[site.index()].wait_ns(now, steal_ns);
                cause.filter(|_| now >= since().after_ns(wait_ns))
            }
            Some(_) => cause.filter(|_| now >= since().after_ns(steal_ns)),
            None => {
                // If not all could be read, nothing is known; then what was found before others held the lock is old.
                *wrong = wrong.filter(|wrong| exact.is_none() && !wrong.was_held);
                None
            }
        }
    }

    /// Continues all moves and repairs until each waits or one has ended, which it returns; call it again then. `before` gets
    /// the name of each operation before it is posted.
    pub fn drive(
        &mut self,
        links: &mut Links,
        clock: impl Fn() -> Time,
        mut before: impl FnMut(&'static str),
    ) -> Option<Report> {
        for task in 0..self.tasks.len() {
            let mut reply = None;
            loop {
                match self.step_task(task, clock(), reply.take()) {
                    Step::Do(op) => {
                        before(self.tasks[task].step_name());
                        reply = Some(links.execute(op));
                    }
                    Step::WaitUntil(_) => break,
                    Step::Done(report) => return Some(Report { ended: clock(), ..report }),
                }
            }
        }
        None
    }

    /// One step of the only move or repair, for callers that post operations in another way than [`Mover::drive`]:
    /// without a reply at first and after a wait, with one after an operation. `None` if nothing is in progress.
    ///
    /// # Panics
    /// If a reply is missing or unexpected.
    pub fn step(&mut self, now: Time, reply: Option<Reply>) -> Option<Step<Report>> {
        (!self.is_idle()).then(|| self.step_task(0, now, reply))
    }

    fn step_task(&mut self, task: usize, now: Time, reply: Option<Reply>) -> Step<Report> {
        let Begun { machine, task: what, began } = &mut self.tasks[task];
        let site = what.site().index();
        let step = match machine {
            Machine::Lease(machine) => machine.step(now, reply),
            Machine::Paper(machine) => machine.step(reply),
        };
        let outcome = match step {
            Step::Do(op) => return Step::Do(op),
            Step::WaitUntil(time) => return Step::WaitUntil(time),
            Step::Done(outcome) => outcome,
        };
        match machine {
            Machine::Lease(machine) => self.memos[site] = machine.memo(),
            Machine::Paper(machine) => self.counters[site] = machine.counter(),
        }
        let report = Report { task: *what, outcome, began: *began, ended: now };
        if report.moved() {
            self.setbacks = Setbacks::default();
        } else if report.was_in_vain() {
            self.setbacks.grow(report.began, now, self.timing.lease_ns());
        }
        if report.plan().is_none() && outcome != Outcome::Busy {
            // What is wrong yet is found anew.
            self.wrong[site] = None;
        }
        self.tasks.remove(task);
        Step::Done(report)
    }

    /// The operation of the only move or repair that is posted or comes next; "over" if nothing is in progress.
    pub fn step_name(&self) -> &'static str {
        self.tasks.first().map_or("over", Begun::step_name)
    }
}

impl Begun {
    fn step_name(&self) -> &'static str {
        match &self.machine {
            Machine::Lease(machine) => machine.step_name(),
            Machine::Paper(machine) => machine.step_name(),
        }
    }
}
