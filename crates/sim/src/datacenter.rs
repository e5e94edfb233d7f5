//! The shared data-center of Balaji et al. 2004 as a model: sites, nodes that move between them, and balancers that scan,
//! decide and move.
//!
//! Everything that decides is the live system's own: `sidelong_policy`'s reconfigurer and balance, `sidelong_reconfig`'s mover
//! with the machines of `sidelong_state`, and the words of `sidelong_layout` in regions of fabric's simulated network. An
//! operation of a move is one operation of that network, so moves of several balancers interleave operation by
//! operation, and a balancer may die between any two. What is modelled here is what that acts on: clients in a closed
//! loop, nodes with workers and a queue, records as old as their keepers let them be, and when a node sees its own word.
//!
//! A scan reads all words at once ([`Network::gather`]), and the nodes' records as they are when it ends: they reach the
//! policy's snapshot directly, not over the network.
//!
//! Two clocks run here, the model's [`Queue`] and the network's; whichever has the earlier event goes next.
//!
//! [`Network::gather`]: sidelong_fabric::sim::Network::gather

mod balancer;
mod clients;
mod gate;
mod measures;
mod members;
mod node;
mod setup;
#[cfg(test)]
mod tests;
mod truth;
mod words;

pub(crate) use measures::FIGURES;
pub use measures::Outcome;
pub use setup::{Demand, Setup};

use rand_distr::{Distribution as _, Exp1, StandardUniform};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use sidelong_layout::{FrontWord, NodeState, Ownership};
use sidelong_policy::reconfigure::Need;
use sidelong_reconfig::Report;
use sidelong_state::{Op, Reply, Step};

use crate::Time;
use crate::engine::Queue;
use crate::error::{Error, Result};
use balancer::{Balancer, State};
use clients::{Clients, Request};
use measures::Measures;
use members::Members;
use node::Node;
use truth::Truth;
use words::{Completion, Posted, Words, changed};

/// A balancer that is due to die does so within this many operations of its moves. A move has about ten, and its
/// acknowledgement is read several times.
const DOOM_OPERATIONS: f64 = 16.0;
/// After the load has ended, everything must be repaired within this many leases: two until a dead holder's lock is
/// taken over, for several holders one after the other. That takes up to 20 of them, and up to 35 if operations are lost.
const MENDED_LEASES: u64 = 60;
/// The load counts as balanced once it stays so for this many scans.
const BALANCED_LOOKS: u64 = 10;

/// A later event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// A client sends a request.
    Ask {
        client: u32,
    },
    /// A request arrives for a site, in an open loop.
    Come {
        site: u32,
    },
    /// A request arrives at its node, is done there, and its answer reaches the client.
    Arrive {
        request: u32,
    },
    Done {
        request: u32,
    },
    Answer {
        request: u32,
    },
    /// A balancer scans, dies, or comes back.
    Look {
        balancer: u32,
        life: u64,
    },
    Doom {
        balancer: u32,
        life: u64,
    },
    Back {
        balancer: u32,
    },
    /// A node's turn to leave or to join, and whoever changes that goes on.
    Turn {
        node: u32,
    },
    Person,
    /// A node reads its own word.
    Observe {
        node: u32,
    },
    /// The load changes; for the last site in an open loop, too.
    Step,
    Surge,
    /// Checks whether the load is balanced.
    Check,
}

/// Runs to the end of the load, and then until everything is repaired.
///
/// # Errors
/// If memory for the words is not available.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let mut center = DataCenter::new(setup)?;
    center.load()?;
    let end = center.queue.now();
    center.end_step(end);
    let mended_ns = center.mend(end)?;
    Ok(center.outcome(end, mended_ns))
}

/// An outcome's figures, in the order of their columns.
pub(crate) fn figures(outcome: &Outcome) -> Vec<f64> {
    FIGURES.iter().map(|(_, figure)| figure(outcome)).collect()
}

struct DataCenter<'a> {
    setup: &'a Setup,
    queue: Queue<Event>,
    words: Words,
    nodes: Vec<Node>,
    balancers: Vec<Balancer>,
    members: Members,
    clients: Clients,
    truth: Truth,
    measures: Measures,
    /// Requests per second for each site, in an open loop.
    offered_per_s: Vec<f64>,
    /// Random numbers of services, of arrivals, and of deaths.
    services: Pcg64Mcg,
    arrivals: Pcg64Mcg,
    deaths: Pcg64Mcg,
    /// The last load step: its time, and since when the load is balanced.
    step: Option<(Time, Option<Time>)>,
    is_over: bool,
}

impl<'a> DataCenter<'a> {
    fn new(setup: &'a Setup) -> Result<Self> {
        let mut center = DataCenter {
            setup,
            queue: Queue::new(),
            words: Words::new(setup).map_err(Error::Words)?,
            nodes: (0..setup.nodes.len()).map(|node| setup.node(node)).collect(),
            members: Members::new(setup),
            balancers: (0..setup.balancers).map(Balancer::new).collect(),
            clients: Clients::new(setup),
            truth: Truth::new(setup),
            measures: Measures::new(setup),
            offered_per_s: setup.offered_per_s(false),
            services: Pcg64Mcg::seed_from_u64(setup.seed),
            arrivals: Pcg64Mcg::seed_from_u64(setup.seed ^ 1 << 63),
            deaths: Pcg64Mcg::seed_from_u64(!setup.seed),
            step: None,
            is_over: false,
        };
        for balancer in 0..setup.balancers {
            // Spread over the interval, too.
            let look_ns = setup.policy.sensitivity.as_nanos() as u64;
            let at = Time::from_ns(look_ns * balancer as u64 / setup.balancers as u64);
            center.balancers[balancer].begin(setup, &center.members, at).map_err(Error::Settings)?;
            center.push_look(balancer, at);
            center.push_doom(balancer, Time::default());
        }
        let first = Time::default().after_ns(2 * setup.policy.sensitivity.as_nanos() as u64);
        for client in center.clients.first() {
            center.queue.push(first, Event::Ask { client });
        }
        match setup.demand {
            Demand::Steps { .. } => center.queue.push(first.after_ns(setup.lease_ns), Event::Step),
            Demand::Open { open_ns, surge, .. } => {
                center.queue.push(first.after_ns(open_ns), Event::Step);
                if surge.is_some() {
                    center.queue.push(Time::from_ns(setup.surge_ns()), Event::Surge);
                }
                (0..setup.sites).for_each(|site| center.push_come(site, first));
            }
            Demand::Bursts { .. } => {}
        }
        (0..setup.nodes.len()).for_each(|node| center.push_turn(node, first, setup.leave_ns));
        center.queue.push(first, Event::Check);
        Ok(center)
    }

    /// Runs until the load has ended.
    fn load(&mut self) -> Result<()> {
        while !self.is_over && self.advance()? {}
        Ok(())
    }

    /// Runs without load or deaths until no lock is held, no node drains and all budgets are right. Returns the time in
    /// ns.
    fn mend(&mut self, end: Time) -> Result<u64> {
        let limit = end.after_ns(MENDED_LEASES * self.setup.lease_ns);
        self.balancers.iter_mut().for_each(|balancer| balancer.doomed = None);
        self.members.end(|node| self.queue.push(end, Event::Turn { node }));
        while self.queue.now() < limit && !self.is_mended() && self.advance()? {}
        Ok(self.queue.now().since(end).as_nanos() as u64)
    }

    fn is_mended(&self) -> bool {
        // Under the paper's protocol, locks stay held if their holders died, and there are no budgets.
        let is_exact = |site: usize| {
            let (lock, budget) = self.words.site(site);
            self.is_paper() || lock.owner.is_none() && u32::from(budget.current) == self.truth.serving[site]
        };
        let is_idle =
            |balancer: &Balancer| balancer.state.as_ref().is_some_and(|state| state.mover.is_idle());
        self.truth.lost() == 0
            && self.members.is_whole()
            && self.balancers.iter().all(is_idle)
            && (0..self.setup.sites).all(is_exact)
    }

    fn is_paper(&self) -> bool {
        self.setup.protocol == sidelong_reconfig::Protocol::Paper
    }

    /// Proceeds to the next event, here or in the network; false if there is none.
    fn advance(&mut self) -> Result<bool> {
        self.measures.events += 1;
        let network_at = self.words.next_at();
        let event = match network_at {
            Some(at) => self.queue.pop_before(at),
            None => self.queue.pop(),
        };
        if let Some((now, event)) = event {
            self.happen(now, event)?;
            return Ok(true);
        }
        let Some(at) = network_at else { return Ok(false) };
        if let Some((now, posted, heard)) = self.words.next_by(at) {
            self.hear(now, posted, heard)?;
        }
        Ok(true)
    }

    fn happen(&mut self, now: Time, event: Event) -> Result<()> {
        match event {
            Event::Ask { client } => self.ask(client, now),
            Event::Come { site } => self.come(site as usize, now),
            Event::Arrive { request } => {
                let service_ns = self.service_ns();
                let of = self.clients.request(request);
                self.count_stray(of);
                let node = &mut self.nodes[of.node as usize];
                let done = node.arrive(now, service_ns);
                if !self.is_over {
                    let waited_ns = done.since(now).as_nanos() as u64 - node.service_ns(service_ns);
                    self.measures.waited(of.site as usize, waited_ns);
                }
                self.queue.push(done, Event::Done { request });
            }
            Event::Done { request } => {
                let node = self.clients.done(request);
                self.nodes[node].leave(now);
                self.queue.push(now.after_ns(self.setup.hop_ns), Event::Answer { request });
            }
            Event::Answer { request } => self.answer(request, now),
            Event::Look { balancer, life } => {
                let of = &mut self.balancers[balancer as usize];
                if of.life == life && of.state.is_some() {
                    self.measures.looks += 1;
                    self.words.look(balancer as usize, life, now);
                }
            }
            Event::Doom { balancer, life } => {
                let within = self.death() * DOOM_OPERATIONS;
                let of = &mut self.balancers[balancer as usize];
                if of.life == life && !self.is_over {
                    of.doomed = Some(within as u32);
                }
            }
            Event::Back { balancer } => {
                let of = &mut self.balancers[balancer as usize];
                of.begin(self.setup, &self.members, now).map_err(Error::Settings)?;
                self.words.state_all(balancer as usize, 0);
                self.adopt(balancer as usize, None, now)?;
                self.push_doom(balancer as usize, now);
            }
            Event::Turn { node } => self.turn(node as usize, now)?,
            Event::Person => self.change(None, now)?,
            Event::Observe { node } => self.observe(node as usize, now),
            Event::Step => self.change_load(now),
            Event::Surge => {
                let site = self.setup.sites - 1;
                let before = std::mem::replace(&mut self.offered_per_s, self.setup.offered_per_s(true));
                if before[site] == 0.0 {
                    self.push_come(site, now);
                }
            }
            Event::Check => self.check(now),
        }
        Ok(())
    }

    // Requests.

    fn ask(&mut self, client: u32, now: Time) {
        if self.is_over {
            return;
        }
        let Some(edge) = self.edge(client) else {
            // All are dead, so it tries again later.
            let later = now.after_ns(self.setup.policy.sensitivity.as_nanos() as u64);
            return self.queue.push(later, Event::Ask { client });
        };
        let life = self.balancers[edge].life;
        if let Some(request) = self.clients.ask(client, edge, life, now) {
            self.route(edge, request, now);
        }
    }

    /// A request of a client of the site, and the next arrival.
    fn come(&mut self, site: usize, now: Time) {
        let Demand::Open { askers, .. } = self.setup.demand else { return };
        if self.is_over {
            return;
        }
        self.push_come(site, now);
        let asker: u32 = StandardUniform.sample(&mut self.arrivals);
        let client = site as u32 * askers + asker % askers;
        let Some(edge) = self.edge(client) else {
            self.measures.errors += 1;
            return;
        };
        let Balancer { state: Some(state), life, .. } = &mut self.balancers[edge] else { return };
        if state.gate.as_mut().is_some_and(|gate| !gate.lets_in(site, client, now)) {
            self.measures.rejected(site, now.as_ns());
            return;
        }
        let request = self.clients.come(client, site, edge, *life, now);
        self.route(edge, request, now);
    }

    /// The edge that a client uses: its own, or the next one that is alive and has scanned.
    fn edge(&self, client: u32) -> Option<usize> {
        let is_ready = |balancer: &Balancer| balancer.state.as_ref().is_some_and(|state| state.is_ready);
        let (first, count) = (self.clients.edge(client), self.balancers.len());
        (first..first + count).map(|edge| edge % count).find(|edge| is_ready(&self.balancers[*edge]))
    }

    /// Sends a request to a node, or lets it wait for one.
    fn route(&mut self, edge: usize, request: u32, now: Time) {
        let Some(state) = &mut self.balancers[edge].state else { return };
        let site = self.clients.request(request).site as usize;
        match state.choose(site, self.setup.balance, now) {
            Some((node, is_first)) => {
                if is_first && let Some(after) = self.clients.first_request(site, now) {
                    self.measures.first_request_after(after);
                }
                self.clients.sent(request, node);
                self.queue.push(now.after_ns(self.setup.hop_ns), Event::Arrive { request });
            }
            None => state.waiting[site].push(request),
        }
    }

    fn answer(&mut self, request: u32, now: Time) {
        let request = self.clients.answered(request);
        let balancer = &mut self.balancers[request.edge as usize];
        match &mut balancer.state {
            Some(state) if balancer.life == request.life => {
                state.answered(request.node as usize, now, now.since(request.asked));
                if !self.is_over {
                    self.measures.answered(request.asked.as_ns(), now.as_ns());
                }
            }
            _ => self.measures.errors += 1,
        }
        if self.clients.is_done() {
            self.is_over = true;
        }
        self.ask(request.client, now);
    }

    /// Counts a request of an edge that lives if it reaches a node that no longer serves its site.
    fn count_stray(&mut self, request: Request) {
        let Request { site, edge, life, node, .. } = request;
        let own = Ownership::decode(self.words.ownership(node as usize), self.setup.sites);
        let is_of_it = own.is_some_and(|own| {
            let has_left = matches!(own.state, NodeState::Free | NodeState::Held);
            !has_left && own.site.is_some_and(|of| of.index() == site as usize)
        });
        let edge = &self.balancers[edge as usize];
        let lives = edge.life == life && edge.state.is_some();
        self.measures.strays += u64::from(!is_of_it && lives);
    }

    fn service_ns(&mut self) -> f64 {
        let mean = self.setup.service_ns;
        if !self.setup.is_exponential {
            return mean;
        }
        let times: f64 = Exp1.sample(&mut self.services);
        mean * times
    }

    // Scans and moves.

    fn hear(&mut self, now: Time, posted: Posted, heard: Completion) -> Result<()> {
        let Posted { balancer, life, op } = posted;
        if let Some(node) = op.and_then(changed) {
            self.notice(node.index(), now);
        }
        let Some(of) = self.balancers.get(balancer) else {
            let Completion::Reply(reply) = heard else { return Ok(()) };
            return if life == self.members.life { self.change(Some(reply), now) } else { Ok(()) };
        };
        if of.life != life || of.state.is_none() {
            return Ok(());
        }
        match heard {
            Completion::Reply(reply) if of.adopts() => self.adopt(balancer, op.map(|op| (op, reply)), now),
            Completion::Reply(reply) => self.drive(balancer, Some(reply), now),
            Completion::Look(words) => self.looked(balancer, words.as_deref(), now),
        }
    }

    fn looked(&mut self, balancer: usize, words: Option<&[u64]>, now: Time) -> Result<()> {
        if self.hears(balancer) {
            return self.adopt(balancer, None, now);
        }
        let Some(state) = &mut self.balancers[balancer].state else { return Ok(()) };
        let mut news = Vec::new();
        state.see(words, &self.nodes, now, |node| news.push(node));
        if self.setup.nodes_leave() {
            (0..self.nodes.len())
                .for_each(|node| self.words.state(balancer, node, state.front(node).encode()));
        }
        self.measures.staged += u64::from(state.decide(&self.nodes, now) == Some(Need::Stage));
        let waiting: Vec<u32> = state.waiting.iter_mut().flat_map(std::mem::take).collect();
        // Operations that took effect after their end was reported are noticed here.
        news.into_iter().for_each(|node| self.notice(node, now));
        waiting.into_iter().for_each(|request| self.route(balancer, request, now));
        self.drive(balancer, None, now)
    }

    /// Continues the balancer's move until it waits for an operation or for its next scan. It does not scan while it
    /// performs operations, because a live edge uses one thread for both.
    fn drive(&mut self, balancer: usize, reply: Option<Reply>, now: Time) -> Result<()> {
        let of = &mut self.balancers[balancer];
        let Some(state) = &mut of.state else { return Ok(()) };
        match state.mover.step(now, reply) {
            Some(Step::Do(op)) => {
                let dies = match &mut of.doomed {
                    Some(0) => true,
                    Some(left) => {
                        *left -= 1;
                        false
                    }
                    None => false,
                };
                // The last operation of a balancer that dies may or may not be sent.
                if !dies || self.death() < 0.5 {
                    self.post(balancer, op, now)?;
                }
                if dies {
                    self.die(balancer, now);
                }
            }
            step => {
                // A fixed rate: the time of a scan is not added, and missed scans are skipped.
                state.look_at = state.look_at.after(self.setup.policy.sensitivity).max(now);
                let look_at = state.look_at;
                self.push_look(balancer, look_at);
                if let Some(Step::Done(report)) = step {
                    self.count(&report);
                }
            }
        }
        Ok(())
    }

    /// One operation of a balancer, or of the person.
    fn post(&mut self, mover: usize, op: Op, now: Time) -> Result<()> {
        let life = self.balancers.get(mover).map_or(self.members.life, |balancer| balancer.life);
        self.measures.operations += 1;
        self.words.post(mover, life, op, now).map_err(Error::Words)
    }

    fn count(&mut self, report: &Report) {
        match report.plan() {
            None => self.measures.repairs += 1,
            Some(_) if !report.moved() => self.measures.not_moved += 1,
            Some(_) => (),
        }
    }

    /// A node's word may have changed: records the truth, and schedules the node to read it.
    fn notice(&mut self, node: usize, now: Time) {
        self.truth.note(node, self.words.ownership(node), now);
        if !std::mem::replace(&mut self.nodes[node].is_to_look, true) {
            let at = self.nodes[node].next_period(now);
            self.queue.push(at, Event::Observe { node: node as u32 });
        }
    }

    fn observe(&mut self, node: usize, now: Time) {
        let word = self.words.ownership(node);
        let of = &mut self.nodes[node];
        of.is_to_look = false;
        match of.observe(word) {
            Some(ack) => self.words.acknowledge(node, ack),
            // It drains, and still has requests of its old site.
            None if self.truth.is_leaving(node) => self.notice(node, now),
            None => (),
        }
    }

    fn die(&mut self, balancer: usize, now: Time) {
        let gone_ns = 2.0 * self.death() * self.setup.back_ns;
        let of = &mut self.balancers[balancer];
        of.doomed = None;
        let Some(state) = of.state.take() else { return };
        self.measures.crashes += 1;
        self.words.state_all(balancer, FrontWord::GONE);
        self.queue.push(now.after_ns(gone_ns as u64), Event::Back { balancer: balancer as u32 });
        let State { waiting, .. } = state;
        for request in waiting.into_iter().flatten() {
            let request = self.clients.answered(request);
            self.measures.errors += 1;
            self.queue.push(now, Event::Ask { client: request.client });
        }
    }

    fn push_look(&mut self, balancer: usize, at: Time) {
        let life = self.balancers[balancer].life;
        self.queue.push(at, Event::Look { balancer: balancer as u32, life });
    }

    fn push_doom(&mut self, balancer: usize, now: Time) {
        if self.setup.crash_ns == 0.0 || !self.setup.moves {
            return;
        }
        let times: f64 = Exp1.sample(&mut self.deaths);
        let at = now.after_ns((self.setup.crash_ns * times) as u64);
        let life = self.balancers[balancer].life;
        self.queue.push(at, Event::Doom { balancer: balancer as u32, life });
    }

    /// Schedules the next request for `site`.
    fn push_come(&mut self, site: usize, now: Time) {
        let per_ns = self.offered_per_s[site] / 1e9;
        if per_ns > 0.0 {
            let times: f64 = Exp1.sample(&mut self.arrivals);
            self.queue.push(now.after_ns((times / per_ns) as u64), Event::Come { site: site as u32 });
        }
    }

    /// A random number from 0 to 1.
    fn death(&mut self) -> f64 {
        StandardUniform.sample(&mut self.deaths)
    }

    // The load.

    fn change_load(&mut self, now: Time) {
        let Demand::Steps { count, step_ns, .. } = self.setup.demand else {
            // The open load has ended.
            self.is_over = true;
            return;
        };
        self.end_step(now);
        let step = self.clients.steps();
        if step == count {
            self.is_over = true;
            return;
        }
        for client in self.clients.change() {
            self.queue.push(now, Event::Ask { client });
        }
        self.step = Some((now, None));
        self.queue.push(now.after_ns(step_ns), Event::Step);
    }

    fn check(&mut self, now: Time) {
        if self.is_over {
            return;
        }
        let look_ns = self.setup.policy.sensitivity.as_nanos() as u64;
        // The start of a burst is a load step.
        if let Some(began) = self.clients.take_burst() {
            self.end_step(now);
            self.step = Some((began, None));
        }
        let is_balanced = self.is_balanced();
        if let Some((_, since)) = &mut self.step {
            let lasts =
                since.is_some_and(|since| now.since(since).as_nanos() as u64 >= BALANCED_LOOKS * look_ns);
            if !lasts {
                *since = is_balanced.then(|| since.unwrap_or(now));
            }
        }
        self.queue.push(now.after_ns(look_ns), Event::Check);
    }

    /// Records how soon after the last step the load was balanced.
    fn end_step(&mut self, now: Time) {
        if let Some((began, since)) = self.step.take() {
            let took = since.unwrap_or(now).since(began);
            self.measures.balanced_after(took.as_nanos() as u64, since.is_some());
        }
    }

    /// Whether no site is overloaded while another has a node to spare, that is, is above its floor and is idle without
    /// the node or has lower priority.
    fn is_balanced(&self) -> bool {
        let Setup { policy, floor, priority_levels, workers, .. } = self.setup;
        let load = |site: usize, nodes: u32| {
            let work = f64::from(self.clients.at_nodes(site) + self.waiting(site));
            if work == 0.0 { 0.0 } else { work / f64::from(nodes * workers) }
        };
        let priority = |site: usize| site % usize::from(*priority_levels);
        let (mut has_idle, mut least, mut overloaded) = (false, usize::MAX, None);
        for site in 0..self.setup.sites {
            let nodes = self.truth.serving[site];
            if load(site, nodes) > policy.high {
                overloaded = overloaded.max(Some(priority(site)));
            }
            if nodes > u32::from(*floor) {
                has_idle |= load(site, nodes - 1) < policy.low;
                least = least.min(priority(site));
            }
        }
        overloaded.is_none_or(|priority| !has_idle && least >= priority)
    }

    fn waiting(&self, site: usize) -> u32 {
        let states = self.balancers.iter().filter_map(|balancer| balancer.state.as_ref());
        states.map(|state| state.waiting[site].len() as u32).sum()
    }

    fn outcome(self, end: Time, mended_ns: u64) -> Outcome {
        let now = self.queue.now();
        let (mut doubled, mut stuck) = (0, 0);
        for site in 0..self.setup.sites {
            let (lock, budget) = self.words.site(site);
            stuck += u64::from(lock.owner.is_some());
            if !self.is_paper() {
                doubled += u64::from(u32::from(budget.current).saturating_sub(self.truth.serving[site]));
            }
        }
        let surge = Time::from_ns(self.setup.surge_ns());
        let came = self.truth.came.last().copied().flatten().filter(|came| *came >= surge);
        let came = came.map(|came| came.since(surge));
        let lasts = matches!(self.setup.demand, Demand::Steps { .. } | Demand::Open { .. });
        let outcome = self.measures.outcome(self.setup, lasts.then(|| end.as_ns()));
        Outcome {
            moves: self.truth.moves,
            surge_to_node_ms: came.map_or(0.0, |came| came.as_secs_f64() * 1e3),
            thrash: self.truth.thrash,
            leaves: self.members.leaves,
            joins: self.members.joins,
            floor_violations: self.truth.floor_violations,
            below_floor_ms: self.truth.below_floor_ns(now) as f64 / 1e6,
            nodes_lost: self.truth.lost(),
            nodes_doubled: doubled,
            locks_stuck: stuck,
            mended_ms: mended_ns as f64 / 1e6,
            ..outcome
        }
    }
}
