//! The simulated world: what is in flight, ordered by time, and its effect on arrival.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use sidelong_layout::LINE_BYTES;

use super::network::{Event, Faults, Ticket};
use crate::access::Token;
use crate::batch::{Kind, Request};
use crate::inbox::{Letter, Queue, deliver};
use crate::memory::Memory;
use crate::{Access, OpError};

const LINE_WORDS: usize = LINE_BYTES / 8;

/// Which interface posted an operation, and so where its end is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Face {
    /// A batch, which waits for it.
    Batch,
    /// A simulation, which takes events.
    Events,
}

#[derive(Debug)]
pub(super) struct World {
    now: Duration,
    /// Source of unique numbers, which also order simultaneous events.
    serial: u64,
    rng: Pcg64,
    faults: Faults,
    queue: BinaryHeap<Reverse<Scheduled>>,
    hosts: Vec<Host>,
    host_names: BTreeMap<String, usize>,
    regions: Vec<Exposure>,
    /// A name keeps its number across lives.
    region_names: BTreeMap<String, usize>,
    links: BTreeMap<u64, Link>,
    /// Ends for batches to collect.
    ended: BTreeMap<Ticket, Outcome>,
    /// Ends and timers for `next` to return.
    events: VecDeque<Event>,
    /// Who goes on while a batch waits.
    pub(super) others: Option<Others>,
}

/// What is called while a batch waits.
pub(super) struct Others(pub(super) Box<dyn FnMut() + Send>);

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

type Outcome = Result<Vec<u64>, OpError>;

#[derive(Debug)]
struct Host {
    up: bool,
    /// Number of crashes so far.
    life: u64,
    /// Whether the peers were told of the last crash.
    told: bool,
}

#[derive(Debug)]
struct Exposure {
    host: usize,
    token: Token,
    access: Access,
    /// Gone once the owner dropped the region or the host crashed.
    memory: Weak<Memory>,
    inbox: Weak<Queue>,
}

/// What a link leads to.
#[derive(Clone, Copy, Debug)]
struct Target {
    region: usize,
    token: Token,
    host: usize,
    /// The host's life when the link was made.
    life: u64,
}

/// One read of a gather.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    target: Target,
    request: Request,
}

#[derive(Debug)]
struct Link {
    target: Target,
    /// When the last request arrives and the last answer: later ones do not overtake them.
    arrival: Duration,
    answer: Duration,
    /// When a lost request or answer is reported. All later operations of the link are lost until then.
    stalled_until: Duration,
    unheard_until: Duration,
}

#[derive(Debug)]
struct Scheduled {
    at: Duration,
    serial: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Arrive(Box<Arrival>),
    Resume(Box<Arrival>),
    Gather(Gathering),
    Report { ticket: Ticket, face: Face, outcome: Outcome },
    Wake { actor: u64 },
    Crash { host: usize },
}

/// A request in flight.
#[derive(Debug)]
struct Arrival {
    ticket: Ticket,
    face: Face,
    link: u64,
    target: Target,
    request: Request,
    /// The words of a write; otherwise room for the result.
    words: Vec<u64>,
    /// How long after its first lines the others are read, if it is to be torn.
    tear: Option<Duration>,
    deadline: Duration,
    /// Delay of the answer; `None` if it is lost.
    back: Option<Duration>,
}

/// Reads in flight together.
#[derive(Debug)]
struct Gathering {
    ticket: Ticket,
    places: Arc<[Place]>,
    deadline: Duration,
    back: Duration,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        World {
            now: Duration::ZERO,
            serial: 0,
            rng: Pcg64::seed_from_u64(seed),
            faults,
            queue: BinaryHeap::new(),
            hosts: Vec::new(),
            host_names: BTreeMap::new(),
            regions: Vec::new(),
            region_names: BTreeMap::new(),
            links: BTreeMap::new(),
            ended: BTreeMap::new(),
            events: VecDeque::new(),
            others: None,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    // Hosts and their regions.

    pub(super) fn host(&mut self, name: &str) -> usize {
        *self.host_names.entry(name.to_owned()).or_insert_with(|| {
            self.hosts.push(Host { up: true, life: 0, told: false });
            self.hosts.len() - 1
        })
    }

    /// The number and token of a new region; `None` if a live one has the name.
    pub(super) fn expose(
        &mut self,
        host: usize,
        name: &str,
        access: Access,
        memory: &Arc<Memory>,
        inbox: Weak<Queue>,
    ) -> Option<(usize, Token)> {
        assert!(self.hosts[host].up, "a crashed host exposes nothing until it is restarted");
        let token = Token(self.next_serial().into());
        let exposure = Exposure { host, token, access, memory: Arc::downgrade(memory), inbox };
        match self.region_names.get(name) {
            Some(&region) if self.regions[region].memory.strong_count() > 0 => None,
            Some(&region) => {
                self.regions[region] = exposure;
                Some((region, token))
            }
            None => {
                self.regions.push(exposure);
                self.region_names.insert(name.to_owned(), self.regions.len() - 1);
                Some((self.regions.len() - 1, token))
            }
        }
    }

    pub(super) fn crash(&mut self, host: usize) {
        let told = self.rng.random();
        let crashed = &mut self.hosts[host];
        *crashed = Host { up: false, life: crashed.life + 1, told };
        for exposure in self.regions.iter_mut().filter(|exposure| exposure.host == host) {
            exposure.memory = Weak::new();
            exposure.inbox = Weak::new();
        }
    }

    pub(super) fn crash_at(&mut self, at: Duration, host: usize) {
        self.schedule(at, What::Crash { host });
    }

    pub(super) fn restart(&mut self, host: usize) {
        self.hosts[host].up = true;
    }

    // Links and their operations.

    pub(super) fn connect(&mut self, region: usize, token: Token) -> u64 {
        let id = self.next_serial();
        let link = Link {
            target: self.target(region, token),
            arrival: Duration::ZERO,
            answer: Duration::ZERO,
            stalled_until: Duration::ZERO,
            unheard_until: Duration::ZERO,
        };
        self.links.insert(id, link);
        id
    }

    fn target(&self, region: usize, token: Token) -> Target {
        let host = self.regions[region].host;
        Target { region, token, host, life: self.hosts[host].life }
    }

    pub(super) fn place(&self, region: usize, token: Token, request: Request) -> Place {
        Place { target: self.target(region, token), request }
    }

    pub(super) fn close(&mut self, link: u64) {
        self.links.remove(&link);
    }

    pub(super) fn post(
        &mut self,
        link: u64,
        request: Request,
        mut words: Vec<u64>,
        timeout: Duration,
        face: Face,
    ) -> Ticket {
        let ticket = Ticket(self.next_serial());
        let deadline = self.now + timeout;
        // Everything is drawn for each operation, so that one more fault does not shift all later draws.
        let lost = self.chance(self.faults.loss_permille);
        let late = self.chance(self.faults.late_permille);
        let lost_there = self.rng.random::<bool>() && lost;
        let (there, back) = (self.delay(), self.delay());
        let may_tear =
            self.faults.torn_permille > 0 && request.kind == Kind::Read && request.len > LINE_BYTES;
        let tear = if may_tear && self.chance(self.faults.torn_permille) { Some(self.delay()) } else { None };

        let now = self.now;
        let sent = self.links.get_mut(&link).expect("an open link");
        if now < sent.stalled_until {
            let at = deadline.min(sent.stalled_until);
            self.report(at, ticket, face, Err(OpError::Timeout));
        } else if lost_there {
            sent.stalled_until = deadline;
            self.report(deadline, ticket, face, Err(OpError::Timeout));
        } else {
            let arrival = (if late { deadline } else { now } + there).max(sent.arrival);
            sent.arrival = arrival;
            let target = sent.target;
            if arrival > deadline {
                self.report(deadline, ticket, face, Err(OpError::Timeout));
            }
            words.resize(request.words(), 0);
            let back = (!lost).then_some(back);
            let arrive = Arrival { ticket, face, link, target, request, words, tear, deadline, back };
            self.schedule(arrival, What::Arrive(Box::new(arrive)));
        }
        ticket
    }

    /// Everything is drawn once, as for one operation.
    pub(super) fn post_gather(&mut self, places: &Arc<[Place]>, timeout: Duration) -> Ticket {
        let ticket = Ticket(self.next_serial());
        let deadline = self.now + timeout;
        let is_late = self.chance(self.faults.late_permille);
        let is_lost = self.chance(self.faults.loss_permille);
        let (there, back) = (self.delay(), self.delay());
        if is_lost || is_late || there > timeout {
            self.report(deadline, ticket, Face::Events, Err(OpError::Timeout));
        } else {
            let gathering = Gathering { ticket, places: Arc::clone(places), deadline, back };
            self.schedule(self.now + there, What::Gather(gathering));
        }
        ticket
    }

    /// The reads have arrived at their targets.
    fn read_all(&mut self, gathering: Gathering) {
        let Gathering { ticket, places, deadline, back } = gathering;
        let mut words = vec![0; places.iter().map(|place| place.request.words()).sum()];
        let mut rest = &mut words[..];
        let mut outcome = Some(Ok(()));
        for Place { target, request } in &*places {
            let (to, after) = rest.split_at_mut(request.words());
            rest = after;
            outcome = self.read(*target, request, to);
            if outcome != Some(Ok(())) {
                break;
            }
        }
        let answer = self.now + back;
        match outcome {
            Some(outcome) if answer <= deadline => {
                self.report(answer, ticket, Face::Events, outcome.map(|()| words));
            }
            _ => self.report(deadline, ticket, Face::Events, Err(OpError::Timeout)),
        }
    }

    /// A request has arrived at its target. Its end is reported here, unless the deadline has passed.
    fn arrive(&mut self, mut arrival: Arrival) {
        if let Some(later) = arrival.tear.take() {
            // Whatever cannot be read now is refused later.
            _ = self.effect(&mut arrival);
            return self.schedule(self.now + later, What::Resume(Box::new(arrival)));
        }
        let outcome = self.effect(&mut arrival);
        self.answer(arrival, outcome);
    }

    /// The other lines of a torn read are read.
    fn resume(&mut self, mut arrival: Arrival) {
        let first = arrival.words.clone();
        let outcome = self.effect(&mut arrival);
        for (late, early) in arrival.words.chunks_mut(LINE_WORDS).zip(first.chunks(LINE_WORDS)) {
            if self.rng.random() {
                late.copy_from_slice(early);
            }
        }
        self.answer(arrival, outcome);
    }

    fn answer(&mut self, arrival: Arrival, outcome: Option<Result<(), OpError>>) {
        let Arrival { ticket, face, words, deadline, back, .. } = arrival;
        if self.now > deadline {
            return;
        }
        let Some(link) = self.links.get_mut(&arrival.link) else {
            return self.report(self.now, ticket, face, Err(OpError::Closed));
        };
        let timeout = Err(OpError::Timeout);
        let (Some(back), Some(outcome)) = (back, outcome) else {
            link.unheard_until = link.unheard_until.max(deadline);
            return self.report(deadline, ticket, face, timeout);
        };
        link.answer = link.answer.max(self.now + back);
        let (answer, unheard_until) = (link.answer, link.unheard_until);
        if self.now < unheard_until {
            self.report(deadline.min(unheard_until), ticket, face, timeout);
        } else if answer > deadline {
            self.report(deadline, ticket, face, timeout);
        } else {
            self.report(answer, ticket, face, outcome.map(|()| words));
        }
    }

    /// Performs a request at its target: its answer, or `None` if there is none.
    fn effect(&self, arrival: &mut Arrival) -> Option<Result<(), OpError>> {
        let exposure = &self.regions[arrival.target.region];
        let memory = self.memory(arrival.target)?;
        Some(memory.and_then(|memory| {
            match memory.apply(&arrival.request, exposure.access, &mut arrival.words) {
                Err(OpError::NoInbox) => {
                    let inbox = exposure.inbox.upgrade().ok_or(OpError::NoInbox)?;
                    let put = |words: &[u64], len, immediate| {
                        inbox.put(Letter { words: words.to_vec(), len, immediate })
                    };
                    deliver(&arrival.request, &memory, &arrival.words, put)
                }
                applied => applied,
            }
        }))
    }

    fn read(&self, target: Target, request: &Request, to: &mut [u64]) -> Option<Result<(), OpError>> {
        let access = self.regions[target.region].access;
        Some(self.memory(target)?.and_then(|memory| memory.apply(request, access, to)))
    }

    /// The memory at a target, or its refusal; `None` if it does not answer.
    fn memory(&self, target: Target) -> Option<Result<Arc<Memory>, OpError>> {
        let Target { region, token, host, life } = target;
        let (host, exposure) = (&self.hosts[host], &self.regions[region]);
        if host.life != life && host.told {
            return Some(Err(OpError::PeerGone));
        }
        if !host.up {
            return None;
        }
        let memory = exposure.memory.upgrade().filter(|_| host.life == life && exposure.token.matches(token));
        Some(memory.ok_or(OpError::KeyRejected))
    }

    // Time.

    pub(super) fn wake_at(&mut self, at: Duration, actor: u64) {
        self.schedule(at, What::Wake { actor });
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while self.queue.peek().is_some_and(|Reverse(next)| next.at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// Advances time until a message arrives, for at most `timeout`.
    pub(super) fn receive(&mut self, inbox: &Queue, timeout: Duration) -> Option<Letter> {
        let until = self.now + timeout;
        loop {
            if let Some(letter) = inbox.take() {
                return Some(letter);
            }
            if self.queue.peek().is_none_or(|Reverse(next)| next.at > until) {
                self.now = until;
                return None;
            }
            self.step();
        }
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        while self.events.is_empty() && self.step() {}
        self.events.pop_front()
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        if self.events.is_empty() { self.queue.peek().map(|Reverse(next)| next.at) } else { Some(self.now) }
    }

    pub(super) fn next_by(&mut self, at: Duration) -> Option<Event> {
        while self.events.is_empty() && self.next_at().is_some_and(|next| next <= at) {
            self.step();
        }
        self.events.pop_front()
    }

    /// The end of an operation that a batch posted.
    pub(super) fn wait(&mut self, ticket: Ticket) -> Outcome {
        loop {
            if let Some(outcome) = self.wait_once(ticket) {
                return outcome;
            }
        }
    }

    /// The end of an operation that a batch posted, if it has ended; otherwise the next thing happens.
    pub(super) fn wait_once(&mut self, ticket: Ticket) -> Option<Outcome> {
        let ended = self.ended.remove(&ticket);
        assert!(ended.is_some() || self.step(), "an operation that will never be reported");
        ended
    }

    /// Proceeds to the next event; returns whether there is one.
    fn step(&mut self) -> bool {
        let Some(Reverse(Scheduled { at, what, .. })) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match what {
            What::Arrive(arrival) => self.arrive(*arrival),
            What::Resume(arrival) => self.resume(*arrival),
            What::Gather(gathering) => self.read_all(gathering),
            What::Report { ticket, face: Face::Batch, outcome } => {
                self.ended.insert(ticket, outcome);
            }
            What::Report { ticket, face: Face::Events, outcome } => {
                self.events.push_back(Event::Done { at, ticket, outcome });
            }
            What::Wake { actor } => self.events.push_back(Event::Wake { at, actor }),
            What::Crash { host } => self.crash(host),
        }
        true
    }

    fn report(&mut self, at: Duration, ticket: Ticket, face: Face, outcome: Outcome) {
        self.schedule(at, What::Report { ticket, face, outcome });
    }

    fn schedule(&mut self, at: Duration, what: What) {
        let scheduled = Scheduled { at: at.max(self.now), serial: self.next_serial(), what };
        self.queue.push(Reverse(scheduled));
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    // Chance.

    fn chance(&mut self, permille: u32) -> bool {
        self.rng.random_range(0..1000) < permille
    }

    fn delay(&mut self) -> Duration {
        let nanos = |duration: Duration| duration.as_nanos() as u64;
        let (start, end) = (nanos(self.faults.delay.start), nanos(self.faults.delay.end));
        Duration::from_nanos(self.rng.random_range(start..end.max(start + 1)))
    }
}

// Ordered by time, then by number.

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}
