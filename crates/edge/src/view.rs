//! The view: an edge's latest picture of all nodes, written by its watch thread and read by every request.
//!
//! It consists of atomics. A request takes no lock, allocates nothing, and may see one node's old value beside
//! another's new one. The choice is then checked against the node's own latest word. The view also holds what the edge
//! knows by itself, its own requests and failures, so that a stale view still routes.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sidelong_layout::{NodeId, NodeShare, NodeState, Ownership, SiteId, Time};
use sidelong_policy::balance::{AnswerTime, Balance, Candidates, Errors, SCAN_MAX};
use sidelong_policy::cluster::Traffic;
use sidelong_policy::documents;
use sidelong_policy::health::{self, Failure, Health};
use sidelong_policy::index::{LoadIndex, Reading};

/// The picture of all nodes, and the choice among them.
#[derive(Debug)]
pub struct View {
    nodes: Box<[NodeSlot]>,
    /// [`AnswerTime`] of each node, stored apart because only one rule reads it.
    answer_times: Box<[AtomicU64]>,
    /// [`Errors`] of each node, stored apart because few nodes have any.
    errors: Box<[AtomicU64]>,
    sites: Box<[SiteSlot]>,
    /// How many slots of nodes and of sites are gone over; there is room for more.
    used: (AtomicUsize, AtomicUsize),
    /// When the requests of each node's old site are cut while it drains, if they are, ns on this machine's monotonic clock.
    cut_at_ns: Box<[AtomicU64]>,
    /// How long a node drains before that.
    drain_ns: AtomicU64,
    /// When the watch thread last refreshed it, ns on this machine's monotonic clock; 0 before the first time.
    refreshed_ns: AtomicU64,
    /// When the other edges' requests were last summed up, likewise.
    heard_ns: AtomicU64,
    stale_ns: u64,
    balance: Balance,
    health: health::HealthSettings,
}

/// What is known of one node. It has a cache line of its own, because each request changes one of them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct NodeSlot {
    /// Its ownership word as last read; 0 before.
    ownership: AtomicU64,
    /// The [`Reading`].
    reading: AtomicU64,
    /// The [`Health`].
    health: AtomicU64,
    /// This edge's own requests there.
    in_flight: AtomicU32,
    /// This edge's requests there that are fully sent, and whose answer has not begun.
    unanswered: AtomicU32,
    /// Successful answers that have begun.
    answers: AtomicU64,
    /// Requests of the other edges whose answer has not begun; their answers since this edge first heard them.
    others_unanswered: AtomicU32,
    others_answers: AtomicU64,
    /// Set when the node joins a site, cleared by the first request to it.
    arrived: AtomicBool,
    /// When that request was sent, in ns; taken by the watch thread.
    first_request_ns: AtomicU64,
}

const _: () = assert!(size_of::<NodeSlot>() == 64);

#[derive(Debug)]
#[repr(align(64))]
struct SiteSlot {
    /// Increases with each request.
    ticket: AtomicU64,
    /// Requests that wait for a node.
    waiting: AtomicU32,
    /// Whether its requests at a node that leaves it are cut.
    is_cut: AtomicBool,
    /// How long a good answer took at its slowest node when a node last failed, in us; 0 if that was not known.
    answer_us: AtomicU64,
    members: AtomicUsize,
    /// The nodes that serve the site: the first `members` entries.
    nodes: Box<[AtomicU16]>,
}

impl View {
    /// A view of `nodes` nodes and `sites` sites, of which nothing is known yet. Readings older than `stale` do not
    /// count. There is room for so many; see [`View::adopt`].
    pub fn new(
        nodes: usize,
        sites: usize,
        stale: Duration,
        balance: Balance,
        health: health::HealthSettings,
    ) -> Self {
        let site = || SiteSlot {
            ticket: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            answer_us: AtomicU64::new(0),
            members: AtomicUsize::new(0),
            nodes: (0..nodes).map(|_| AtomicU16::new(0)).collect(),
        };
        View {
            nodes: (0..nodes).map(|_| NodeSlot::default()).collect(),
            answer_times: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
            errors: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
            sites: (0..sites).map(|_| site()).collect(),
            used: (AtomicUsize::new(nodes), AtomicUsize::new(sites)),
            cut_at_ns: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
            drain_ns: AtomicU64::new(0),
            refreshed_ns: AtomicU64::new(0),
            heard_ns: AtomicU64::new(0),
            stale_ns: stale.as_nanos() as u64,
            balance,
            health,
        }
    }

    /// Makes it cut the requests of the sites for which that is said, at a node that has drained for `drain_max`.
    pub fn cutting(self, drain_max: Duration, sites: impl Iterator<Item = bool>) -> Self {
        self.cut(drain_max, sites);
        self
    }

    /// Makes it cut the requests of other sites from now on, or after another time.
    pub(crate) fn cut(&self, drain_max: Duration, sites: impl Iterator<Item = bool>) {
        self.drain_ns.store(drain_max.as_nanos() as u64, Ordering::Relaxed);
        self.sites.iter().zip(sites).for_each(|(site, is_cut)| site.is_cut.store(is_cut, Ordering::Relaxed));
    }

    // For requests.

    /// Chooses a node for a request of `site`, other than `tried`, and counts the request there until
    /// [`View::release`]. If none is up, one is chosen that accepts connections as far as is known. `None` if no node is usable.
    pub fn choose(&self, site: SiteId, tried: Option<NodeId>, now: Time) -> Option<NodeId> {
        let slot = &self.sites[site.index()];
        let ticket = slot.ticket.fetch_add(1, Ordering::Relaxed);
        let mut candidates = self.candidates(site, tried, now);
        // A node on trial takes one request; a request that loses the race for it chooses again.
        for attempt in 0..3 {
            let random = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.as_ns().rotate_left(attempt);
            let chosen = self.pick(&mut candidates, ticket, random)?;
            let node = candidates.node(chosen);
            if self.enter(node, site, candidates.least, now) {
                return Some(node);
            }
        }
        None
    }

    /// A candidate that is up; if none is, one that accepts connections as far as is known.
    pub(crate) fn pick(&self, candidates: &mut SiteView<'_>, ticket: u64, random: u64) -> Option<usize> {
        self.balance.choose(candidates, ticket, random).or_else(|| {
            candidates.least = Least::Connects;
            self.balance.choose(candidates, ticket, random)
        })
    }

    /// Chooses `home` for a request of `site`, and counts the request there as [`View::choose`] does. False if it is not usable, or
    /// has much more to do than the site's other nodes.
    pub(crate) fn choose_home(&self, site: SiteId, home: NodeId, now: Time) -> bool {
        let candidates = self.candidates(site, None, now);
        let nodes = (0..candidates.len().min(SCAN_MAX)).filter(|candidate| candidates.usable(*candidate));
        let (nodes, of_all) = nodes.fold((0, 0u32), |(nodes, of_all), candidate| {
            (nodes + 1, of_all.saturating_add(candidates.in_flight(candidate)))
        });
        documents::takes_more(self.in_flight_of_all(home, now), of_all, nodes)
            && self.is_usable(home, site, now)
            && self.enter(home, site, Least::Up, now)
    }

    /// Whether `node` serves `site` and answers, as far as is known.
    pub(crate) fn is_usable(&self, node: NodeId, site: SiteId, now: Time) -> bool {
        self.serves(node, site) && self.is_up(node, now)
    }

    /// Counts a request of `site` at `node`. False if it may not be sent there.
    fn enter(&self, node: NodeId, site: SiteId, least: Least, now: Time) -> bool {
        if !(self.admit(node, now) || least == Least::Connects && self.health(node).connects()) {
            return false;
        }
        let slot = &self.nodes[node.index()];
        // The node's word is read again after the count is raised: see `View::front`.
        slot.in_flight.fetch_add(1, Ordering::SeqCst);
        if !self.serves(node, site) {
            self.release(node);
            return false;
        }
        if slot.arrived.load(Ordering::Relaxed) && slot.arrived.swap(false, Ordering::Relaxed) {
            slot.first_request_ns.store(now.as_ns(), Ordering::Relaxed);
        }
        true
    }

    /// The nodes of `site` for a request that has been at `tried`.
    pub(crate) fn candidates(&self, site: SiteId, tried: Option<NodeId>, now: Time) -> SiteView<'_> {
        let (stale, deaf) = (self.is_stale(now), self.is_deaf(now));
        let slot = &self.sites[site.index()];
        SiteView { view: self, slot, site, tried, least: Least::Up, now, stale, deaf }
    }

    /// The request to `node` is fully sent, and waits for its answer until [`View::waited`].
    pub fn waits(&self, node: NodeId) {
        self.nodes[node.index()].unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// The awaited answer has begun, or will not come.
    pub fn waited(&self, node: NodeId) {
        self.nodes[node.index()].unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// A successful answer of `node` has begun, `took` after the request was sent.
    pub fn answered(&self, node: NodeId, now: Time, took: Duration) {
        self.nodes[node.index()].answers.fetch_add(1, Ordering::Relaxed);
        let word = &self.answer_times[node.index()];
        // Of two simultaneous answers either will do.
        let time = AnswerTime::decode(word.load(Ordering::Relaxed)).seen(now, took);
        word.store(time.encode(), Ordering::Relaxed);
    }

    /// The time until a request of `site` at `node` is cut, as far as is known; `None` if it never is.
    pub(crate) fn cut_in(&self, node: NodeId, site: SiteId, now: impl Fn() -> Time) -> Option<Duration> {
        if !self.sites[site.index()].is_cut.load(Ordering::Relaxed) {
            return None;
        }
        let drains = |own: Ownership| own.state == NodeState::Draining && own.site == Some(site);
        Some(match self.ownership(node).is_some_and(drains) {
            true => Time::from_ns(self.cut_at_ns[node.index()].load(Ordering::Relaxed)).since(now()),
            false => Duration::MAX,
        })
    }

    /// `node` has answered a request of `site` with a server error.
    pub fn erred(&self, site: SiteId, node: NodeId, now: Time) {
        let slot = &self.sites[site.index()];
        let members = slot.nodes.iter().take(slot.members.load(Ordering::Acquire).min(SCAN_MAX));
        let times = members.filter_map(|member| {
            let word = &self.answer_times[usize::from(member.load(Ordering::Relaxed))];
            AnswerTime::decode(word.load(Ordering::Relaxed)).now_us(now)
        });
        let answer_us = times.fold(0.0, f64::max);
        slot.answer_us.store(answer_us as u64, Ordering::Relaxed);
        let word = &self.errors[node.index()];
        // Of two simultaneous errors either will do.
        let errors = Errors::decode(word.load(Ordering::Relaxed)).seen(now, answer_us);
        word.store(errors.encode(), Ordering::Relaxed);
    }

    /// A request has left `node`.
    pub fn release(&self, node: NodeId) {
        self.nodes[node.index()].in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request succeeded at `node`.
    pub fn on_success(&self, node: NodeId) {
        self.change_health(node, Health::on_success);
    }

    /// A connection to `node` was made, without a request.
    pub(crate) fn on_connection(&self, node: NodeId) {
        self.change_health(node, Health::on_connection);
    }

    /// Nothing has come of a trial of `node`.
    pub(crate) fn untried(&self, node: NodeId) {
        self.change_health(node, Health::untried);
    }

    /// `node` is heard again.
    pub(crate) fn heard_again(&self, node: NodeId) {
        self.change_health(node, Health::heard_again);
    }

    /// A request failed at `node`.
    pub fn on_failure(&self, node: NodeId, now: Time, failure: Failure) {
        self.change_health(node, |health| health.on_failure(now, failure, &self.health));
    }

    /// A request of `site` waits for a node while the returned value lives.
    pub(crate) fn wait(&self, site: SiteId) -> Waiting<'_> {
        let waiting = &self.sites[site.index()].waiting;
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }

    /// Whether a request may be sent to `node` now, as its trial if it is out.
    pub(crate) fn admit(&self, node: NodeId, now: Time) -> bool {
        let word = &self.nodes[node.index()].health;
        let old = word.load(Ordering::Relaxed);
        match Health::decode(old).state(now) {
            health::State::Up => true,
            health::State::Down { .. } => false,
            health::State::Trial => Health::decode(old).trial(now, &self.health).is_some_and(|trial| {
                word.compare_exchange(old, trial.encode(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
            }),
        }
    }

    fn change_health(&self, node: NodeId, change: impl Fn(Health) -> Health) {
        let word = &self.nodes[node.index()].health;
        // Contended only while a node fails; then any one of the changes will do.
        for _ in 0..8 {
            let old = word.load(Ordering::Relaxed);
            let new = change(Health::decode(old)).encode();
            if new == old || word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    // For the watch thread.

    /// Notes when the requests of a node's old site are cut, if a scan shows that it drains. Call it before [`View::observe`], so
    /// that who sees the word sees the time.
    pub fn date_cut(&self, node: NodeId, ownership: Option<Ownership>, now: Time) {
        let Some(ownership) = ownership.filter(|own| own.state == NodeState::Draining) else { return };
        if self.nodes[node.index()].ownership.load(Ordering::Relaxed) != ownership.encode() {
            let at = now.after_ns(self.drain_ns.load(Ordering::Relaxed));
            self.cut_at_ns[node.index()].store(at.as_ns(), Ordering::Relaxed);
        }
    }

    /// Takes a scan's result for `node`: its word, and its load. Returns whether the node now serves another site than
    /// before.
    pub fn observe(&self, node: NodeId, ownership: Option<Ownership>, reading: Reading) -> bool {
        self.nodes[node.index()].reading.store(reading.encode(), Ordering::Relaxed);
        ownership.is_some_and(|ownership| self.see(node, ownership))
    }

    /// Takes the word of `node`, as it was read or written. Returns whether the node now serves another site than before.
    pub fn see(&self, node: NodeId, ownership: Ownership) -> bool {
        let slot = &self.nodes[node.index()];
        let old = slot.ownership.swap(ownership.encode(), Ordering::SeqCst);
        if old == ownership.encode() {
            return false;
        }
        let served = self.judge(old).and_then(Ownership::serving_site);
        let came = old != 0 && ownership.serving_site().is_some() && ownership.serving_site() != served;
        if came {
            slot.arrived.store(true, Ordering::Relaxed);
        }
        served != ownership.serving_site()
    }

    /// What this edge states about `node` as a front: the ownership that its requests see, and its requests there, counted
    /// after that was visible to them. So a request of a former ownership is counted, or finds the new one when it reads
    /// the word again, and is not sent.
    pub fn front(&self, node: NodeId) -> Option<(Ownership, u32)> {
        let seen = self.ownership(node)?;
        Some((seen, self.nodes[node.index()].in_flight.load(Ordering::SeqCst)))
    }

    /// Rebuilds each site's list of nodes. Call it after a change of any ownership.
    pub fn relist(&self) {
        for id in self.sites() {
            let site = &self.sites[id.index()];
            let serving = self.nodes().filter(|node| self.serves(*node, id));
            let mut members = 0;
            for node in serving {
                site.nodes[members].store(node.index() as u16, Ordering::Relaxed);
                members += 1;
            }
            site.members.store(members, Ordering::Release);
        }
    }

    /// Goes over so many slots of nodes and of sites from now on: of the others nothing is known. Call [`View::relist`] afterwards.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn adopt(&self, nodes: usize, sites: usize) {
        assert!(nodes <= self.nodes.len() && sites <= self.sites.len(), "room for all");
        self.used.0.store(nodes, Ordering::Relaxed);
        self.used.1.store(sites, Ordering::Relaxed);
    }

    /// The node has left the cluster, with no request there: who gets its slot begins anew.
    pub fn vacate(&self, node: NodeId) {
        let slot = &self.nodes[node.index()];
        slot.ownership.store(0, Ordering::SeqCst);
        slot.reading.store(Reading::default().encode(), Ordering::Relaxed);
        for word in [
            &slot.health,
            &slot.first_request_ns,
            &self.answer_times[node.index()],
            &self.errors[node.index()],
        ] {
            word.store(0, Ordering::Relaxed);
        }
        slot.arrived.store(false, Ordering::Relaxed);
    }

    /// How many nodes and sites there is room for.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.nodes.len(), self.sites.len())
    }

    /// All nodes were scanned.
    pub fn refreshed(&self, now: Time) {
        self.refreshed_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    /// The time of the first request to `node` after it joined its site, returned once.
    pub fn take_first_request(&self, node: NodeId) -> Option<Time> {
        let word = &self.nodes[node.index()].first_request_ns;
        if word.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(Time::from_ns(word.swap(0, Ordering::Relaxed)))
    }

    /// Takes what the workers of another proxy have at `node`, in place of this process's own requests, and what they have seen
    /// of it since the last call.
    pub(crate) fn take(&self, node: NodeId, now: Time, at: &WorkersAt) {
        let slot = &self.nodes[node.index()];
        slot.unanswered.store(at.unanswered, Ordering::Relaxed);
        slot.in_flight.store(at.in_flight, Ordering::SeqCst);
        if at.answers > 0 {
            slot.answers.fetch_add(at.answers, Ordering::Relaxed);
            self.on_success(node);
        }
        // A worker has sent the one request of a trial.
        if at.on_trial {
            self.admit(node, now);
        }
        // Workers do not say which requests have failed. Those between others that were answered say nothing about the node.
        let failed = if at.answers > 0 { 0 } else { at.failed };
        for (failures, failure) in [(at.refused, Failure::Refused), (failed, Failure::Request(None))] {
            // More than what takes a node out change nothing.
            (0..failures.min(self.health.requests.into())).for_each(|_| self.on_failure(node, now, failure));
        }
        if at.in_flight > 0 || at.answers > 0 {
            self.has_come(node, now);
        }
    }

    /// Takes note that a request has come to `node`.
    pub(crate) fn has_come(&self, node: NodeId, now: Time) {
        let slot = &self.nodes[node.index()];
        if slot.arrived.load(Ordering::Relaxed) && slot.arrived.swap(false, Ordering::Relaxed) {
            slot.first_request_ns.store(now.as_ns(), Ordering::Relaxed);
        }
    }

    // For the thread that reads the other edges.

    /// What this edge shares about `node`.
    pub(crate) fn share(&self, node: NodeId) -> NodeShare {
        let slot = &self.nodes[node.index()];
        NodeShare { in_flight: slot.unanswered.load(Ordering::Relaxed), answers: self.answers(node) }
    }

    /// Takes the other edges' requests at `node`, and the `more` answers that they have seen.
    pub(crate) fn hear(&self, node: NodeId, unanswered: u32, more: u64) {
        let slot = &self.nodes[node.index()];
        // Usually nothing is new, and the line stays with the threads that serve requests.
        if slot.others_unanswered.load(Ordering::Relaxed) != unanswered {
            slot.others_unanswered.store(unanswered, Ordering::Relaxed);
        }
        if more > 0 {
            slot.others_answers.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// All other edges were read, or are left out.
    pub(crate) fn heard(&self, now: Time) {
        self.heard_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    // For metrics and the policy.

    /// The edges' requests and answers at `node`: this edge's now, the others' as last heard, unless that is too old.
    pub(crate) fn traffic(&self, node: NodeId, now: Time) -> Traffic {
        let slot = &self.nodes[node.index()];
        let others = if self.is_deaf(now) { 0 } else { self.others_at(node) };
        let NodeShare { in_flight, answers } = self.share(node);
        Traffic {
            in_flight: in_flight.saturating_add(others),
            answers: answers.saturating_add(slot.others_answers.load(Ordering::Relaxed)),
            up: self.is_proven(node, now),
        }
    }

    /// The edges' requests at `node`: all of this one's, and the unanswered ones of the others.
    pub(crate) fn in_flight_of_all(&self, node: NodeId, now: Time) -> u32 {
        let others = if self.is_deaf(now) { 0 } else { self.others_at(node) };
        self.in_flight(node).saturating_add(others)
    }

    fn others_at(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].others_unanswered.load(Ordering::Relaxed)
    }

    /// Whether the others' requests are unknown: they are not read, or were not for too long.
    fn is_deaf(&self, now: Time) -> bool {
        now.as_ns().saturating_sub(self.heard_ns.load(Ordering::Relaxed)) > self.stale_ns
    }

    /// Time since the last refresh; `None` before the first.
    pub fn age(&self, now: Time) -> Option<Duration> {
        match self.refreshed_ns.load(Ordering::Relaxed) {
            0 => None,
            refreshed => Some(now.since(Time::from_ns(refreshed))),
        }
    }

    /// The age from which the view and its sources are stale.
    pub(crate) fn stale(&self) -> Duration {
        Duration::from_nanos(self.stale_ns)
    }

    /// Whether it is too old to balance by. The edge then uses its own requests and failures.
    pub fn is_stale(&self, now: Time) -> bool {
        let refreshed = self.refreshed_ns.load(Ordering::Relaxed);
        now.as_ns().saturating_sub(refreshed) > self.stale_ns
    }

    /// The word of `node` as last read.
    pub fn ownership(&self, node: NodeId) -> Option<Ownership> {
        self.judge(self.nodes[node.index()].ownership.load(Ordering::SeqCst))
    }

    fn judge(&self, word: u64) -> Option<Ownership> {
        Ownership::decode(word, self.sites.len())
    }

    /// Whether the word of `node` was ever read.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        self.nodes[node.index()].ownership.load(Ordering::Relaxed) != 0
    }

    /// This edge's own requests at `node`.
    pub fn in_flight(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].in_flight.load(Ordering::Relaxed)
    }

    /// The load of `node`, updated to the present.
    pub fn index(&self, node: NodeId) -> LoadIndex {
        self.reading(node).now(self.in_flight(node))
    }

    /// The load of `node` at the last scan.
    fn index_at_look(&self, node: NodeId) -> LoadIndex {
        self.reading(node).index()
    }

    pub(crate) fn reading(&self, node: NodeId) -> Reading {
        Reading::decode(self.nodes[node.index()].reading.load(Ordering::Relaxed))
    }

    /// The health of `node`.
    pub(crate) fn health(&self, node: NodeId) -> Health {
        Health::decode(self.nodes[node.index()].health.load(Ordering::Relaxed))
    }

    /// The nodes that serve `site`.
    pub(crate) fn members(&self, site: SiteId) -> impl Iterator<Item = NodeId> + '_ {
        let slot = &self.sites[site.index()];
        let count = slot.members.load(Ordering::Acquire);
        slot.nodes[..count].iter().map(|node| NodeId::new(usize::from(node.load(Ordering::Relaxed))))
    }

    /// Whether requests go to `node`: it has not failed, or may be tried again.
    pub fn is_up(&self, node: NodeId, now: Time) -> bool {
        !matches!(self.health(node).state(now), health::State::Down { .. })
    }

    /// Whether `node` has answered correctly since its last failure, or nothing but requests speaks against it.
    pub fn is_proven(&self, node: NodeId, now: Time) -> bool {
        self.health(node).is_proven(now)
    }

    /// Whether `node` failed, and failed again when it was tried.
    pub fn has_failed_again(&self, node: NodeId) -> bool {
        self.health(node).has_failed_again()
    }

    /// Successful answers of `node` that have begun here.
    pub(crate) fn answers(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].answers.load(Ordering::Relaxed)
    }

    /// Requests of `site` that wait here for a node.
    pub fn waiting(&self, site: SiteId) -> u32 {
        self.sites[site.index()].waiting.load(Ordering::Relaxed)
    }

    /// All slots of nodes that are used. Of a vacant one nothing is known.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.used.0.load(Ordering::Relaxed)).map(NodeId::new)
    }

    /// All slots of sites that are used. A vacant one has no node.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.used.1.load(Ordering::Relaxed)).map(SiteId::new)
    }

    fn serves(&self, node: NodeId, site: SiteId) -> bool {
        self.ownership(node).is_some_and(|ownership| ownership.serves(site))
    }
}

/// What the workers of another proxy have at one node, and what they have seen of it since they were last asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkersAt {
    /// Requests that have not ended.
    pub in_flight: u32,
    /// Requests whose answer has not begun.
    pub unanswered: u32,
    /// Successful answers that have begun.
    pub answers: u64,
    /// Connections that the node has refused.
    pub refused: u32,
    /// Other failures of the node.
    pub failed: u32,
    /// Whether one of them has sent a request to try whether the node is back.
    pub on_trial: bool,
}

/// A request that waits; see [`View::wait`].
pub(crate) struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a node must be at least to be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    /// Up, or to be tried by a request that has not been elsewhere: what has failed at one node may fail at each.
    Up,
    /// As [`Health::connects`] says.
    Connects,
}

/// One site's nodes, in the form that [`Balance`] needs.
pub(crate) struct SiteView<'a> {
    view: &'a View,
    slot: &'a SiteSlot,
    site: SiteId,
    tried: Option<NodeId>,
    least: Least,
    now: Time,
    stale: bool,
    /// Whether the other edges' requests are unknown.
    deaf: bool,
}

impl SiteView<'_> {
    pub(crate) fn node(&self, candidate: usize) -> NodeId {
        NodeId::new(usize::from(self.slot.nodes[candidate].load(Ordering::Relaxed)))
    }

    /// Server errors that count as requests in flight there.
    fn errors(&self, node: NodeId) -> u32 {
        let errors = Errors::decode(self.view.errors[node.index()].load(Ordering::Relaxed));
        errors.now(self.now, self.slot.answer_us.load(Ordering::Relaxed) as f64)
    }
}

impl Candidates for SiteView<'_> {
    fn len(&self) -> usize {
        self.slot.members.load(Ordering::Acquire)
    }

    fn index(&self, candidate: usize) -> LoadIndex {
        let node = self.node(candidate);
        let own = self.view.in_flight(node).saturating_add(self.errors(node));
        if self.stale { LoadIndex(own) } else { self.view.reading(node).now(own) }
    }

    fn index_at_look(&self, candidate: usize) -> LoadIndex {
        self.view.index_at_look(self.node(candidate))
    }

    fn answer_us(&self, candidate: usize) -> Option<f64> {
        let word = &self.view.answer_times[self.node(candidate).index()];
        AnswerTime::decode(word.load(Ordering::Relaxed)).now_us(self.now)
    }

    fn in_flight(&self, candidate: usize) -> u32 {
        let node = self.node(candidate);
        let others = if self.deaf { 0 } else { self.view.others_at(node) };
        self.view.in_flight(node).saturating_add(others).saturating_add(self.errors(node))
    }

    fn usable(&self, candidate: usize) -> bool {
        let node = self.node(candidate);
        let is_fit = match (self.least, self.tried) {
            (Least::Up, None) => self.view.is_up(node, self.now),
            (Least::Up, Some(_)) => self.view.health(node).state(self.now) == health::State::Up,
            (Least::Connects, _) => self.view.health(node).connects(),
        };
        is_fit && self.tried != Some(node) && self.view.serves(node, self.site)
    }
}

#[cfg(test)]
mod tests;
