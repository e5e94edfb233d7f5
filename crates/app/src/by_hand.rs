//! What a person decides about a node: to drain it, to resume it, or to move it.
//!
//! The person is a mover like an edge: it takes the site's lock and carries out a plan by the same protocol, with the same
//! floors. If it is killed on the way, an edge repairs the site.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sidelong_config::Cluster;
use sidelong_layout::{EdgeId, FrontWord, NodeId, NodeState, Ownership, SiteId, Time};
use sidelong_reconfig::Links;
use sidelong_state::{Goal, Memo, Move, Op, Outcome, Plan, Protocol, Reply, Step, Undrained, Word};
use time::OffsetDateTime;

use crate::ended::{not_changed, undrained};
use crate::failure::{Failure, some};
use crate::history::{BY_HAND, HELD, Log, PINNED, RESUMED, Record, text, whole_us};
use crate::parts::Parts;
use crate::stamp::user;

/// If neither the node nor the board is heard within this time, the cluster does not run.
const FIRST_MAX: Duration = Duration::from_secs(2);
/// How long a site may be busy with other moves and repairs, beyond the time of a drain.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// The bound of a drain that waits as long as it takes: a year.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Why nothing more is done by a roster that is not the newest.
const CHANGED: &str = "the cluster has changed meanwhile; try again";
/// An attempt that takes longer waits for requests.
const DRAINS_MIN: Duration = Duration::from_secs(1);
/// Pause before another attempt.
const RETRY: Duration = Duration::from_millis(5);
/// Between two scans while a node drains, which make broken links anew.
const SCAN_EVERY: Duration = Duration::from_millis(100);

/// What the person wants.
#[derive(Clone, Copy, PartialEq)]
pub enum Wish {
    /// To hold the node: it finishes its requests, and serves nobody.
    Drain,
    /// To give a node that is held or pinned back.
    Resume,
    /// To have the node serve this site, and stay there.
    Move(SiteId),
    /// To have a node that is free serve this site.
    Give(SiteId),
}

/// Checks that nodes of the cluster may be moved by hand.
///
/// # Errors
/// If its protocol has no such moves.
pub fn check(cluster: &Cluster) -> Result<(), Failure> {
    match cluster.baseline.protocol {
        Protocol::Lease => Ok(()),
        Protocol::Paper => Err(Failure::new(
            "the published protocol has no moves by hand: use baseline.protocol = \"lease\"",
        )),
    }
}

/// Whether a mover may give the node to a site at once, without making it drain.
fn is_at_rest(own: Ownership) -> bool {
    matches!(own.state, NodeState::Free | NodeState::Held)
}

/// A person's links to a running cluster.
pub struct Hand {
    parts: Parts,
    links: Links,
    node: NodeId,
    name: String,
    wish: Wish,
    /// Takes the node although its site falls below its floor.
    pub force: bool,
    /// Waits for the node's requests as long as they take.
    pub waits: bool,
    /// Longest time of attempts that fail at once, of which each may be by what was read too long ago; `None` for as long as a drain may
    /// take.
    pub(crate) patience: Option<Duration>,
}

impl Hand {
    /// Links to the cluster of `parts`, to make of a node what `wish` says.
    ///
    /// # Errors
    /// If the cluster has no moves by hand.
    pub fn new(parts: Parts, node: NodeId, wish: Wish) -> Result<Self, Failure> {
        check(&parts.cluster)?;
        let unread = parts.cluster.fronts.values().find(|front| !parts.shares(front));
        if let Some(front) = unread {
            let name = &front.name;
            return Err(Failure::new(format!(
                "nobody can read which requests {name} has: give it fabric_listen, to move nodes by hand"
            )));
        }
        let links = parts.links(None)?;
        let mut hand = Hand {
            parts,
            links,
            node,
            name: String::new(),
            wish,
            force: false,
            waits: false,
            patience: None,
        };
        hand.turn_to(node, wish)?;
        Ok(hand)
    }

    /// Turns to another node.
    ///
    /// # Errors
    /// If it is about to leave, and is to be given to a site.
    pub(crate) fn turn_to(&mut self, node: NodeId, wish: Wish) -> Result<(), Failure> {
        let name = self.parts.node_name(node);
        if wish != Wish::Drain && self.parts.cluster.standing.leaving.contains(&name) {
            return Err(Failure::new(format!("{name} is about to leave the cluster")));
        }
        let to = wish.site().and_then(|site| self.parts.cluster.sites.get(site.index()));
        if let Some(site) = to.filter(|site| self.parts.closes(site)) {
            return Err(Failure::new(format!("{} is about to leave the cluster", site.name)));
        }
        (self.node, self.name, self.wish) = (node, name, wish);
        Ok(())
    }

    /// Carries it out, and returns what was done in words. [`await_words`](Self::await_words) comes first.
    ///
    /// # Errors
    /// If it cannot be done, with the reason.
    pub fn carry_out(mut self) -> Result<String, Failure> {
        self.work()
    }

    /// Does it, for what that is a step to.
    fn step(&mut self) -> Result<(), Failure> {
        self.work().map(|_| ())
    }

    fn work(&mut self) -> Result<String, Failure> {
        let wish = self.wish;
        let began = Instant::now();
        let drain_max = if self.waits { WAIT_MAX } else { self.parts.cluster.reconfig.drain_max };
        let deadline = began + drain_max + self.parts.change_max().unwrap_or_default() + BUSY_MAX;
        let mut memo = (None, Memo::default());
        let (mut tried, mut hopeful, mut drained) = (None, began, began);
        loop {
            let plan = match (self.plan(wish)?, tried) {
                (Next::Plan(plan), _) => plan,
                // Who took the lock over has finished what was begun.
                (Next::Met(_), Some(plan)) => return Ok(self.record(wish, plan, began.elapsed())),
                (Next::Met(said), None) => return Ok(said),
                (Next::Wait, _) if self.waits && self.is_behind() => {
                    return Err(Failure::new(CHANGED));
                }
                (Next::Wait, _) => {
                    self.rest(deadline)?;
                    continue;
                }
            };
            // It has less than it could give by that, and a mover repairs it, if there is one.
            let leaves = plan.expected.serving_site().filter(|site| plan.goal.site() != Some(*site));
            let is_awaited = !plan.force && began.elapsed() < BUSY_MAX;
            if is_awaited && leaves.is_some_and(|site| self.links.budget_is_too_high(site)) {
                if self.is_behind() {
                    return Err(Failure::new(CHANGED));
                }
                self.rest(deadline)?;
                continue;
            }
            // A memo is of one site.
            if memo.0 != Some(plan.site()) {
                memo = (Some(plan.site()), Memo::default());
            }
            let timing = self.parts.timing(drain_max)?;
            let mut machine = Move::new(plan, self.parts.person(), self.parts.pool(), timing, memo.1);
            let tries = Instant::now();
            let outcome = self.drive(&mut machine);
            if tries.elapsed() > DRAINS_MIN {
                drained = Instant::now();
            }
            tried = Some(plan);
            memo.1 = machine.memo();
            self.links.scan(now());
            let is_hopeless = matches!(outcome, Outcome::Unreachable | Outcome::AtFloor);
            if !is_hopeless {
                hopeful = Instant::now();
            }
            match outcome {
                Outcome::Moved => {
                    return Ok(self.record(wish, plan, began.elapsed()));
                }
                Outcome::AtFloor if !self.may_have_spare(plan, began) => return Err(self.at_floor(plan)),
                Outcome::NotDrained(kept) => return Err(self.not_drained(plan, kept)),
                Outcome::NotChanged { fault } => {
                    let fault = not_changed(fault);
                    self.keep(plan, "not-changed", None, Some(fault.clone()), began.elapsed());
                    return Err(self.not_changed(plan, &fault));
                }
                // This process goes by what was adopted when it began.
                Outcome::Behind => return Err(self.gave_up(plan, outcome)),
                // Who waits for requests waits for nothing else: what was read of nodes that have left is old.
                _ if self.waits && self.is_behind() => return Err(self.gave_up(plan, Outcome::Behind)),
                _ if self.patience.is_some_and(|patience| drained.elapsed() > patience) => {
                    return Err(self.gave_up(plan, outcome));
                }
                Outcome::AtFloor if hopeful.elapsed() > BUSY_MAX => return Err(self.at_floor(plan)),
                Outcome::Unreachable if hopeful.elapsed() > BUSY_MAX => {
                    return Err(self.gave_up(plan, outcome));
                }
                // It seems so until an edge has put the budget right.
                Outcome::AtFloor if Instant::now() < deadline => std::thread::sleep(SCAN_EVERY),
                // Somebody else was faster, or repaired the site first: the plan is made anew.
                _ if Instant::now() < deadline => std::thread::sleep(RETRY),
                outcome => return Err(self.gave_up(plan, outcome)),
            }
        }
    }

    /// Whether the board tells of a newer roster than that which this goes by.
    fn is_behind(&mut self) -> bool {
        let known = self.parts.cluster.epoch;
        matches!(self.links.execute(Op::Read(Word::Epoch)), Reply::Value(epoch) if epoch > known)
    }

    /// Has the board tell of the roster that this goes by: whoever goes by an earlier one is to see that before it gives a node to a site.
    ///
    /// # Errors
    /// If the board cannot be read.
    pub(crate) fn announce(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + FIRST_MAX;
        while !self.links.raise_epoch(self.parts.cluster.epoch) {
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    "the board cannot be read, by which all move nodes: `sidelong status` says who has it",
                ));
            }
            std::thread::sleep(RETRY);
            self.links.scan(now());
        }
        Ok(())
    }

    /// Holds the node, which is to leave by the roster that this goes by, until no request is left there. `former` becomes what the node was
    /// before, also if this fails: it may be held all the same, if no answer said so.
    /// The word of a node that was held or free already is written anew. So whoever goes by an earlier roster cannot give it to a
    /// site any more: the word has changed, or the epoch has.
    ///
    /// # Errors
    /// If it cannot be held, with the reason.
    pub(crate) fn leave(&mut self, former: &mut Option<Ownership>) -> Result<(), Failure> {
        let mut deadline = Instant::now() + BUSY_MAX;
        let some = self.parts.cluster.sites.entries().next().map_or(0, |(slot, _)| slot);
        loop {
            let own = self.own()?;
            // If it is held after the first look, this has held it.
            if former.is_none() || own.state != NodeState::Held {
                *former = Some(own);
            }
            if !is_at_rest(own) {
                match self.step() {
                    // It is held, or somebody else has freed it meanwhile.
                    Err(_) if is_at_rest(self.own()?) => {
                        deadline = Instant::now() + BUSY_MAX;
                        continue;
                    }
                    stepped => return stepped,
                }
            }
            // What is held is of a site.
            if self.swap(own, own.now(NodeState::Held, own.site.unwrap_or(SiteId::new(some)))) {
                return Ok(());
            }
            self.rest(deadline)?;
        }
    }

    /// Has one of these nodes that are free serve the node's site, if that could not spare the node otherwise.
    ///
    /// # Errors
    /// If the node cannot be read.
    pub(crate) fn replace_by(&mut self, others: &[NodeId]) -> Result<(), Failure> {
        let (node, wish) = (self.node, self.wish);
        let Some(site) = self.own()?.serving_site() else { return Ok(()) };
        if self.serving(site) > self.parts.cluster.sites[site.index()].floor {
            return Ok(());
        }
        let is_free =
            |other: &&NodeId| self.links.ownership(**other).is_some_and(|own| own.state == NodeState::Free);
        let free: Vec<_> = others.iter().filter(is_free).copied().collect();
        let mut given = free.into_iter().map(|other| {
            self.turn_to(other, Wish::Give(site))?;
            self.step()
        });
        let is_given = given.any(|given| given.is_ok());
        tracing::debug!(is_given, "another node in place of one that leaves");
        self.turn_to(node, wish)
    }

    /// Makes of the node what it was before it was to leave.
    ///
    /// # Errors
    /// If it stays held, with the reason.
    pub(crate) fn give_back(&mut self, former: Ownership) -> Result<(), Failure> {
        let own = self.own()?;
        // It was not held, or somebody has given it to a site, or pinned it, meanwhile.
        if !matches!(own.state, NodeState::Held | NodeState::Draining | NodeState::Changing) {
            return Ok(());
        }
        match (former.state, former.site) {
            (NodeState::Held, _) => Ok(()),
            (NodeState::Free, _) => match self.swap(own, Ownership::replacing(own.encode(), None)) {
                true => Ok(()),
                false => Err(Failure::new("its word has changed")),
            },
            (NodeState::Pinned, Some(site)) => {
                self.wish = Wish::Move(site);
                self.step()
            }
            _ => self.step(),
        }
    }

    /// Has the node be of none of the sites that close, once no request is left there: what serves one becomes free; what a person holds is
    /// then of the site that stays.
    ///
    /// # Errors
    /// If it cannot leave its site, with the reason.
    pub(crate) fn free(&mut self, closing: &[SiteId], stays: SiteId) -> Result<(), Failure> {
        self.force = true;
        let mut deadline = Instant::now() + self.parts.cluster.reconfig.drain_max + BUSY_MAX;
        let mut was_held = None;
        loop {
            let own = self.own()?;
            let is_of_it = |site: Option<SiteId>| site.is_some_and(|site| closing.contains(&site));
            if !is_of_it(own.site) && !is_of_it(own.next) {
                // Whoever has read the epoch before could yet give one that is free or held to a site that closes. Then its word has changed.
                if !is_at_rest(own) || self.swap(own, own.renewed()) {
                    return Ok(());
                }
                self.rest(deadline)?;
                continue;
            }
            match own.state {
                NodeState::Held => {
                    let next = match was_held.get_or_insert(true) {
                        true => own.now(NodeState::Held, stays),
                        false => Ownership::replacing(own.encode(), None),
                    };
                    self.swap(own, next);
                }
                NodeState::Serving | NodeState::Pinned => {
                    was_held = Some(false);
                    self.step()?;
                    // Its requests may have taken long.
                    deadline = Instant::now() + BUSY_MAX;
                }
                NodeState::Free | NodeState::Draining | NodeState::Changing => {}
            }
            self.rest(deadline)?;
        }
    }

    /// The node's ownership as last read, which this waits for.
    fn own(&mut self) -> Result<Ownership, Failure> {
        if !self.has_words() {
            self.await_words().map_err(Failure::new)?;
        }
        let own = self.links.ownership(self.node);
        own.ok_or_else(|| Failure::new(format!("{} cannot be read", self.name)))
    }

    /// Waits for a moment, and reads all words again.
    ///
    /// # Errors
    /// If that has gone on until `deadline`.
    fn rest(&mut self, deadline: Instant) -> Result<(), Failure> {
        if Instant::now() >= deadline {
            return Err(Failure::new(format!("{} does not come to rest", self.name)));
        }
        std::thread::sleep(RETRY);
        self.links.scan(now());
        Ok(())
    }

    /// Swaps the node's word, unless it has changed.
    fn swap(&mut self, own: Ownership, next: Ownership) -> bool {
        let (word, expected, new) = (Word::Ownership(self.node), own.encode(), next.encode());
        self.links.execute(Op::CompareAndSwap { word, expected, new }) == Reply::Value(expected)
    }

    /// Waits until the words can be read, for a bounded time.
    ///
    /// # Errors
    /// If the cluster does not run, with what is missing.
    pub fn await_words(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + FIRST_MAX;
        loop {
            self.links.scan(now());
            if self.has_words() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(match (self.links.problem(self.node), self.links.ownership(self.node)) {
                    (Some(problem), _) => problem.to_owned(),
                    (None, None) => format!("{} has said nothing yet", self.name),
                    (None, Some(_)) => format!("{} has no board", self.parts.cluster.name),
                });
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Whether any node was heard.
    pub fn hears_somebody(&self) -> bool {
        self.nodes().any(|node| self.links.ownership(node).is_some())
    }

    /// Whether the node's word, and those of the sites that it is about, were read.
    fn has_words(&self) -> bool {
        let own = self.links.ownership(self.node);
        let is_known = |site: SiteId| self.links.site(site).is_some();
        let sites = [own.and_then(|own| own.site), self.wish.site()];
        own.is_some() && sites.into_iter().flatten().all(is_known)
    }

    /// What is to be done, by the last scan.
    fn plan(&self, wish: Wish) -> Result<Next, Failure> {
        let Some(own) = self.links.ownership(self.node) else { return Ok(Next::Wait) };
        let name = &self.name;
        let goal = match (wish, own.state, own.site) {
            (_, NodeState::Draining | NodeState::Changing, _) => return Ok(Next::Wait),
            (Wish::Drain, NodeState::Free, _) => {
                return Err(Failure::new(format!("{name} serves no site, so there is nothing to drain")));
            }
            (Wish::Drain, NodeState::Held, _) => return Ok(Next::Met(format!("{name} is held already"))),
            (Wish::Drain, ..) => Goal::Hold,
            (Wish::Resume, NodeState::Held | NodeState::Pinned, Some(site)) => Goal::Serve(site),
            (Wish::Resume, ..) => {
                let what = own.site.map_or("free".to_owned(), |site| format!("at {}", self.site(site)));
                return Ok(Next::Met(format!("{name} is {what}, and not held")));
            }
            (Wish::Move(to), NodeState::Pinned, Some(site)) if to == site => {
                return Ok(Next::Met(format!("{name} is pinned at {} already", self.site(site))));
            }
            (Wish::Move(to), ..) => Goal::Pin(to),
            (Wish::Give(to), NodeState::Free, _) => Goal::Serve(to),
            (Wish::Give(_), ..) => return Ok(Next::Met(format!("{name} is not free"))),
        };
        Ok(Next::Plan(Plan { node: self.node, expected: own, goal, force: self.force }))
    }

    fn drive(&mut self, machine: &mut Move) -> Outcome {
        let mut scanned = Instant::now();
        let mut reply = None;
        loop {
            match machine.step(now(), reply.take()) {
                Step::Do(op) => reply = Some(self.links.execute(op)),
                Step::WaitUntil(time) => {
                    if scanned.elapsed() > SCAN_EVERY {
                        self.links.scan(now());
                        scanned = Instant::now();
                    }
                    std::thread::sleep(time.since(now()));
                }
                Step::Done(outcome) => return outcome,
            }
        }
    }

    /// Keeps in the history what was done; returns it in words.
    fn record(&self, wish: Wish, plan: Plan, took: Duration) -> String {
        let Plan { expected, .. } = plan;
        let name = &self.name;
        let to = self.site(plan.site());
        let left = expected.serving_site().filter(|site| plan.goal.site() != Some(*site));
        let below = left.and_then(|site| self.below_floor(site));
        let (how, mut said) = match wish {
            Wish::Drain => (HELD, format!("{name} is held; `sidelong resume {name}` gives it back to {to}")),
            Wish::Resume | Wish::Give(_) => (RESUMED, format!("{name} serves {to}")),
            Wish::Move(_) if left.is_some() || expected.serving_site().is_none() => {
                ("moved", format!("{name} serves {to}, pinned there until `sidelong resume {name}`"))
            }
            Wish::Move(_) => (PINNED, format!("{name} is pinned at {to} until `sidelong resume {name}`")),
        };
        if let Some(below) = &below {
            let _ = write!(said, "; {below}");
        }
        let why = match (how, below) {
            ("moved", below) => {
                Some(below.map_or("pinned there".to_owned(), |below| format!("pinned there; {below}")))
            }
            (_, below) => below,
        };
        self.keep(plan, how, why, None, took);
        said
    }

    /// Keeps in the history what was made of the node.
    fn keep(&self, plan: Plan, how: &str, why: Option<String>, fault: Option<String>, took: Duration) {
        let record = Record {
            at: text(OffsetDateTime::now_utc()),
            by: user(),
            node: Some(self.name.clone()),
            from: plan.from().map(|site| self.site(site).to_owned()),
            to: self.site(plan.site()).to_owned(),
            how: how.to_owned(),
            took_us: whole_us(took),
            why,
            reason: None,
            fault,
        };
        match Log::open(&self.parts, BY_HAND) {
            Ok(Some(log)) => {
                log.recorder().record(record);
                log.finish();
            }
            Ok(None) => {}
            Err(Failure(why)) => tracing::warn!("{why}"),
        }
    }

    /// Which floor is broken, in words.
    fn below_floor(&self, site: SiteId) -> Option<String> {
        let floor = self.parts.cluster.sites[site.index()].floor;
        let serving = self.serving(site);
        (serving < floor)
            .then(|| format!("{} has {}, below its floor of {floor}", self.site(site), some(serving, "node")))
    }

    /// Whether the donor has a node to spare, whatever its budget says: that is too low until it is repaired. At first not all nodes
    /// are read.
    fn may_have_spare(&self, plan: Plan, began: Instant) -> bool {
        let Some(site) = plan.from() else { return false };
        let floor = if self.force { 0 } else { self.parts.cluster.sites[site.index()].floor };
        let unread = self.nodes().any(|node| self.links.ownership(node).is_none());
        self.serving(site) > floor || unread && began.elapsed() < FIRST_MAX
    }

    fn at_floor(&self, plan: Plan) -> Failure {
        let site = plan.from().unwrap_or(plan.site());
        let floor = self.parts.cluster.sites[site.index()].floor;
        let (name, site) = (&self.name, self.site(site));
        Failure::new(if self.force {
            format!("{site} has no node to spare at all: others take its nodes at this moment")
        } else {
            // Who leaves takes nothing by force.
            let help = match self.parts.cluster.standing.leaving.contains(name) {
                true => format!("give {site} another node first, or lower its floor"),
                false => "--force takes it nevertheless".to_owned(),
            };
            format!("{site} is at its floor of {floor} and cannot spare {name}; {help}")
        })
    }

    fn not_drained(&mut self, plan: Plan, kept: Undrained) -> Failure {
        // A server that has not finished some requests does not say whose they are.
        let theirs = match kept {
            Undrained::Node => self.at_fronts(plan.node),
            _ => Vec::new(),
        };
        let kept = [vec![undrained(&self.parts, kept)], theirs].concat().join(", ");
        let site = self.site(plan.from().unwrap_or(plan.site()));
        let (name, bound) = (&self.name, self.parts.cluster.reconfig.drain_max);
        let longer = if plan.goal == Goal::Hold { "; --wait waits for them" } else { "" };
        Failure::new(format!(
            "requests of {site} at {name} had not ended after {bound:?} (reconfig.drain_ms_max), so it stays there: {kept}{longer}"
        ))
    }

    /// What each front that has requests at a node has there now, in words.
    fn at_fronts(&mut self, node: NodeId) -> Vec<String> {
        let fronts = self.parts.cluster.fronts.entries().map(|(slot, _)| EdgeId::new(slot));
        let said = fronts.filter_map(|front| {
            let Reply::Value(word) = self.links.execute(Op::Read(Word::Front(front, node))) else {
                return None;
            };
            let requests = FrontWord::decode(word).requests;
            let is_kept = word != FrontWord::GONE && requests > 0;
            is_kept.then(|| undrained(&self.parts, Undrained::Requests(front, requests)))
        });
        said.collect()
    }

    fn not_changed(&self, plan: Plan, fault: &str) -> Failure {
        let (name, to) = (&self.name, self.site(plan.site()));
        let now = match self.links.ownership(self.node) {
            Some(own) if own.state == NodeState::Pinned => {
                format!("; it serves {} again, pinned there", self.site(own.site.unwrap_or(plan.site())))
            }
            Some(own) if own.state == NodeState::Held => "; it is held".to_owned(),
            _ => String::new(),
        };
        Failure::new(format!(
            "{name} could not change to {to}: {fault}{now}. The log of `sidelong node {name}` says more"
        ))
    }

    fn gave_up(&self, plan: Plan, outcome: Outcome) -> Failure {
        let (name, site) = (&self.name, self.site(plan.site()));
        Failure::new(match outcome {
            Outcome::Busy | Outcome::Recent | Outcome::Contended | Outcome::AtFloor => {
                format!("{site} was reconfigured by others all the time; try again")
            }
            Outcome::Behind => CHANGED.to_owned(),
            Outcome::Unreachable => format!("the words of {site} and {name} cannot be reached"),
            outcome => format!("{name} could not be brought there ({}); try again", outcome.word()),
        })
    }

    /// The nodes that serve a site, by the last scan.
    fn serving(&self, site: SiteId) -> usize {
        let owners = self.nodes().filter_map(|node| self.links.ownership(node));
        owners.filter(|own| own.serves(site)).count()
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.links.nodes()
    }

    fn site(&self, site: SiteId) -> &str {
        &self.parts.cluster.sites[site.index()].name
    }
}

impl Wish {
    fn site(self) -> Option<SiteId> {
        match self {
            Wish::Move(site) | Wish::Give(site) => Some(site),
            Wish::Drain | Wish::Resume => None,
        }
    }
}

/// What to do next.
enum Next {
    Plan(Plan),
    /// Nothing: it is as wanted.
    Met(String),
    /// Others are at it.
    Wait,
}

fn now() -> Time {
    Time::from_ns(sidelong_load::monotonic_ns())
}
