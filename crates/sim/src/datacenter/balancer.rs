//! A balancer: an edge's view, and what it does at each scan. It drives the same brain (`sidelong-policy`) and the same
//! mover (`sidelong-reconfig`) as `edge::watch`.

use std::time::Duration;

use sidelong_layout::{EdgeId, FrontWord, Ownership, SiteId, Slots};
use sidelong_policy::SettingsError;
use sidelong_policy::admission::Controller;
use sidelong_policy::balance::{AnswerTime, Balance, Candidates};
use sidelong_policy::brain::{Brain, Decider, SiteSeen};
use sidelong_policy::cluster::{NodeView, SiteView, Traffic};
use sidelong_policy::index::{LoadIndex, Reading, Weights};
use sidelong_policy::reconfigure::{Need, Reconfigurer};
use sidelong_reconfig::{Mover, Scan, SiteWords};

use crate::Time;
use crate::datacenter::Setup;
use crate::datacenter::gate::Gate;
use crate::datacenter::members::Members;
use crate::datacenter::node::Node;
use crate::datacenter::words::read_look;

pub(super) struct Balancer {
    edge: EdgeId,
    /// `None` while it is dead.
    pub(super) state: Option<State>,
    /// The current life, or the last one.
    pub(super) life: u64,
    /// It dies after this many more operations of its moves.
    pub(super) doomed: Option<u32>,
}

/// The state of one life.
pub(super) struct State {
    pub(super) mover: Mover,
    brain: Brain,
    /// Whether it is about to go by a newer roster.
    pub(super) adopts: bool,
    /// `None` if all requests are admitted.
    pub(super) gate: Option<Gate>,
    /// Time of the next scan.
    pub(super) look_at: Time,
    /// Whether it has scanned; nothing is routed before.
    pub(super) is_ready: bool,
    /// As of the last scan; `None` if a word could not be read.
    ownerships: Vec<Option<Ownership>>,
    sites: Vec<Option<SiteWords>>,
    /// Each node's word as last read.
    seen: Vec<Option<Ownership>>,
    readings: Vec<Reading>,
    /// Its own requests at each node.
    pub(super) in_flight: Vec<u32>,
    /// How long each took to answer.
    answer_times: Vec<AnswerTime>,
    /// Set when a node joins a site, cleared by the first request to it.
    arrived: Vec<bool>,
    members: Vec<Vec<u32>>,
    tickets: Vec<u64>,
    /// By site, requests that wait for a node.
    pub(super) waiting: Vec<Vec<u32>>,
}

impl Balancer {
    pub(super) fn new(index: usize) -> Balancer {
        Balancer { edge: EdgeId::new(index), state: None, life: 0, doomed: None }
    }

    /// Starts another life, which knows nothing but the members.
    pub(super) fn begin(&mut self, setup: &Setup, members: &Members, now: Time) -> Result<(), SettingsError> {
        self.life += 1;
        let (nodes, sites) = (setup.nodes.len(), setup.sites);
        let owners = setup.balancers as u16;
        let decider = match setup.moves {
            true => Decider::Edge(Box::new(Reconfigurer::new(setup.policy, sites, nodes)?)),
            false => Decider::Nobody,
        };
        let controller = |(settings, promise)| Controller::new(settings, vec![promise; sites], nodes);
        let admission = setup.admission.map(controller).transpose()?;
        let brain = Brain::new(admission, decider, site_views(setup).to_vec());
        let brain = brain.with_nodes(&members.foreign());
        self.state = Some(State {
            mover: Mover::new(
                self.edge,
                self.life,
                owners,
                members.pool(setup),
                setup.timing,
                setup.protocol,
            ),
            brain: if setup.by_target { brain } else { brain.by_load_alone() },
            adopts: false,
            gate: Gate::new(setup),
            look_at: now,
            is_ready: false,
            ownerships: vec![None; nodes],
            sites: vec![None; sites],
            seen: vec![None; nodes],
            readings: vec![Reading::default(); nodes],
            in_flight: vec![0; nodes],
            answer_times: vec![AnswerTime::default(); nodes],
            arrived: vec![false; nodes],
            members: vec![Vec::new(); sites],
            tickets: vec![0; sites],
            waiting: vec![Vec::new(); sites],
        });
        Ok(())
    }

    /// Whether the operation that it waits for is one of those before it goes by a newer roster.
    pub(super) fn adopts(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.adopts)
    }
}

fn site_views(setup: &Setup) -> Slots<SiteView> {
    let view = |site: usize| SiteView {
        floor: setup.floor,
        ceiling: setup.nodes.len() as u16,
        priority: (site % usize::from(setup.priority_levels)) as u8,
        waiting: 0,
        busy: false,
    };
    (0..setup.sites).map(view).collect()
}

impl State {
    /// Goes by the newest roster from now on.
    pub(super) fn adopt(&mut self, setup: &Setup, members: &Members) -> Result<(), SettingsError> {
        let admission = setup
            .admission
            .map(|(settings, promise)| (settings, std::iter::repeat_n(promise, setup.sites).collect()));
        self.brain.adopt(&members.foreign(), &site_views(setup), admission.as_ref(), setup.policy)?;
        self.mover.adopt(members.pool(setup), setup.timing);
        for node in (0..self.seen.len()).filter(|node| !members.has(*node)) {
            (self.seen[node], self.arrived[node]) = (None, false);
        }
        self.relist();
        Ok(())
    }

    /// What it has seen of a node, and its requests there.
    pub(super) fn front(&self, node: usize) -> FrontWord {
        FrontWord { seen: self.seen[node].map(|seen| seen.generation), requests: self.in_flight[node] }
    }

    fn relist(&mut self) {
        self.members.iter_mut().for_each(Vec::clear);
        for (node, seen) in self.seen.iter().enumerate() {
            if let Some(site) = seen.and_then(Ownership::serving_site) {
                self.members[site.index()].push(node as u32);
            }
        }
    }

    /// Takes a scan; `None` if nothing could be read. Reports each node whose word changed.
    pub(super) fn see(
        &mut self,
        words: Option<&[u64]>,
        nodes: &[Node],
        now: Time,
        mut changed: impl FnMut(usize),
    ) {
        match words {
            Some(words) => read_look(words, &mut self.ownerships, &mut self.sites),
            None => {
                self.ownerships.fill(None);
                self.sites.fill(None);
            }
        }
        self.is_ready |= words.is_some();
        let mut relist = false;
        for (index, node) in nodes.iter().enumerate() {
            let hot = node.record(now);
            self.readings[index] = Weights::SYSTEM.read(Some(&hot), &node.capacity, self.in_flight[index]);
            let Some(new) = self.ownerships[index] else { continue };
            let old = self.seen[index].replace(new);
            if old == Some(new) {
                continue;
            }
            changed(index);
            let (was, is) = (old.and_then(Ownership::serving_site), new.serving_site());
            self.arrived[index] |= old.is_some() && is.is_some() && is != was;
            relist |= is != was;
        }
        if relist {
            self.relist();
        }
    }

    /// Shows the brain the scan, and starts what it decides. Returns the need of the receiver of a move that started.
    pub(super) fn decide(&mut self, nodes: &[Node], now: Time) -> Option<Need> {
        let State { mover, brain, gate, ownerships, sites, in_flight, waiting, .. } = self;
        if !brain.decides() {
            return None;
        }
        if brain.plans_moves() {
            mover.look(Scan { ownerships, invalid: &[], sites }, now);
        }
        let nodes = nodes.iter().enumerate().map(|(index, node)| {
            let (ownership, in_flight) = (ownerships[index], in_flight[index]);
            let (load, capacity) = (Some(node.record(now)), node.capacity);
            let seen = NodeView { ownership, load, up: true, dead: false, capacity, in_flight };
            (seen, Traffic { in_flight, answers: 0, up: true })
        });
        let sites = waiting.iter().zip(&*sites).map(|(waiting, words)| SiteSeen {
            waiting: waiting.len() as u32,
            busy: words.is_some_and(|words| mover.another_holds(words.lock)),
            // The model's balancers do not read each other.
            ..SiteSeen::default()
        });
        // The model has its own time of day.
        let decisions = brain.scan(nodes, sites, mover.may_begin(now), now, now.as_ns());
        if let Some(gate) = gate {
            gate.show(decisions.outlooks, now);
        }
        let plan = decisions.plan.filter(|plan| mover.may_leave(plan))?;
        mover.begin(plan, now);
        Some(plan.reason.need)
    }

    /// A node's answer has arrived, `took` after the request.
    pub(super) fn answered(&mut self, node: usize, now: Time, took: Duration) {
        self.in_flight[node] -= 1;
        self.answer_times[node] = self.answer_times[node].seen(now, took);
    }

    /// A node for a request of `site`, and whether it is the first there since that node joined.
    pub(super) fn choose(&mut self, site: usize, balance: Balance, now: Time) -> Option<(usize, bool)> {
        let ticket = self.tickets[site];
        self.tickets[site] += 1;
        let random = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.as_ns();
        let candidates = SiteNodes { state: self, site, now };
        let chosen = balance.choose(&candidates, ticket, random)?;
        let node = candidates.node(chosen);
        self.in_flight[node] += 1;
        Some((node, std::mem::take(&mut self.arrived[node])))
    }
}

/// One site's nodes, in the form that [`Balance`] needs.
struct SiteNodes<'a> {
    state: &'a State,
    site: usize,
    now: Time,
}

impl SiteNodes<'_> {
    fn node(&self, candidate: usize) -> usize {
        self.state.members[self.site][candidate] as usize
    }
}

impl Candidates for SiteNodes<'_> {
    fn len(&self) -> usize {
        self.state.members[self.site].len()
    }

    fn index(&self, candidate: usize) -> LoadIndex {
        let node = self.node(candidate);
        self.state.readings[node].now(self.state.in_flight[node])
    }

    fn index_at_look(&self, candidate: usize) -> LoadIndex {
        self.state.readings[self.node(candidate)].index()
    }

    fn answer_us(&self, candidate: usize) -> Option<f64> {
        self.state.answer_times[self.node(candidate)].now_us(self.now)
    }

    fn in_flight(&self, candidate: usize) -> u32 {
        self.state.in_flight[self.node(candidate)]
    }

    fn usable(&self, candidate: usize) -> bool {
        let seen = self.state.seen[self.node(candidate)];
        seen.is_some_and(|seen| seen.serves(SiteId::new(self.site)))
    }
}
