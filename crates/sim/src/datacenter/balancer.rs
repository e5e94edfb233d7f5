//! A balancer: an edge's view, and what it decides and does at each look. It is to `edge::view` and `edge::watch` what a
//! body is to another: the brain is `sidelong-policy`'s, the hands are `sidelong-reconfig`'s.

use sidelong_layout::{EdgeId, Ownership, SiteId};
use sidelong_policy::SettingsError;
use sidelong_policy::balance::{Balance, Candidates};
use sidelong_policy::index::{LoadIndex, Reading, Weights};
use sidelong_policy::reconfigure::{Need, NodeView, Reconfigurer, SiteView, Snapshot, Standing};
use sidelong_reconfig::{Mover, Scan, SiteWords};
use sidelong_state::{Plan, Pool};

use crate::Time;
use crate::datacenter::Setup;
use crate::datacenter::gate::Gate;
use crate::datacenter::node::Node;
use crate::datacenter::words::read_look;

pub(super) struct Balancer {
    edge: EdgeId,
    /// None while it is dead.
    pub(super) brain: Option<Brain>,
    /// Which life it is in, or has ended last.
    pub(super) life: u64,
    /// After so many more operations of its moves it dies.
    pub(super) doomed: Option<u32>,
}

/// What a life of it knows.
pub(super) struct Brain {
    pub(super) mover: Mover,
    /// None where nothing moves.
    reconfigurer: Option<Reconfigurer>,
    /// None where everybody is let in.
    pub(super) gate: Option<Gate>,
    /// When it is to look next.
    pub(super) look_at: Time,
    /// Whether it has looked: before that nothing is routed.
    pub(super) is_ready: bool,
    /// As of the last look; `None` where a word could not be read.
    ownerships: Vec<Option<Ownership>>,
    sites: Vec<Option<SiteWords>>,
    /// Each node's word as last read.
    seen: Vec<Option<Ownership>>,
    readings: Vec<Reading>,
    /// Its own requests at each node.
    pub(super) in_flight: Vec<u32>,
    /// Set when a node has come to a site, until a request goes to it.
    arrived: Vec<bool>,
    members: Vec<Vec<u32>>,
    tickets: Vec<u64>,
    /// By site, requests that wait for a node.
    pub(super) waiting: Vec<Vec<u32>>,
    snapshot: Vec<NodeView>,
    views: Vec<SiteView>,
    /// None where moves go by load alone.
    standings: Option<Vec<Standing>>,
}

impl Balancer {
    pub(super) fn new(index: usize) -> Balancer {
        Balancer { edge: EdgeId::new(index), brain: None, life: 0, doomed: None }
    }

    /// Another life begins, which knows nothing.
    pub(super) fn begin(&mut self, setup: &Setup, now: Time) -> Result<(), SettingsError> {
        self.life += 1;
        let (nodes, sites) = (setup.nodes.len(), setup.sites);
        let pool = Pool { sites: sites as u16, nodes: nodes as u16 };
        let owners = setup.balancers as u16;
        let view = |site: usize| SiteView {
            floor: setup.floor,
            ceiling: nodes as u16,
            priority: (site % usize::from(setup.priority_levels)) as u8,
            waiting: 0,
            busy: false,
        };
        let reconfigurer = || Reconfigurer::new(setup.policy, sites, nodes);
        self.brain = Some(Brain {
            mover: Mover::new(self.edge, self.life, owners, pool, setup.timing, setup.protocol),
            reconfigurer: setup.moves.then(reconfigurer).transpose()?,
            gate: Gate::new(setup)?,
            look_at: now,
            is_ready: false,
            ownerships: vec![None; nodes],
            sites: vec![None; sites],
            seen: vec![None; nodes],
            readings: vec![Reading::default(); nodes],
            in_flight: vec![0; nodes],
            arrived: vec![false; nodes],
            members: vec![Vec::new(); sites],
            tickets: vec![0; sites],
            waiting: vec![Vec::new(); sites],
            snapshot: Vec::with_capacity(nodes),
            views: (0..sites).map(view).collect(),
            standings: setup.by_target.then(Vec::new),
        });
        Ok(())
    }
}

impl Brain {
    /// Takes in a look: `None` where nothing could be read. Says of each node whose word changed.
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
            self.members.iter_mut().for_each(Vec::clear);
            for (node, seen) in self.seen.iter().enumerate() {
                if let Some(site) = seen.and_then(Ownership::serving_site) {
                    self.members[site.index()].push(node as u32);
                }
            }
        }
    }

    /// Decides, and hands what is to be done to the mover. Says why the site of a move that began is to have a node.
    pub(super) fn decide(&mut self, nodes: &[Node], now: Time) -> Option<Need> {
        if self.reconfigurer.is_none() && self.gate.is_none() {
            return None;
        }
        self.picture(nodes, now);
        if let Some(gate) = &mut self.gate {
            gate.look(&self.snapshot, &self.views, now);
            if let Some(standings) = &mut self.standings {
                standings.clear();
                standings.extend(gate.standings());
            }
        }
        let reconfigurer = self.reconfigurer.as_mut()?;
        self.mover.look(Scan { ownerships: &self.ownerships, sites: &self.sites }, now);
        let standings = self.standings.as_deref().unwrap_or_default();
        let snapshot = Snapshot { nodes: &self.snapshot, sites: &self.views, standings };
        // It is shown every look, so that its histories are right; a plan made while another is under way is dropped.
        let plan = reconfigurer.step(&snapshot, now).filter(|_| self.mover.is_idle())?;
        self.mover.begin(Plan { node: plan.node, from: plan.from, to: plan.to }, now);
        Some(plan.need)
    }

    /// What decisions are made from.
    fn picture(&mut self, nodes: &[Node], now: Time) {
        self.snapshot.clear();
        self.snapshot.extend(nodes.iter().enumerate().map(|(index, node)| NodeView {
            ownership: self.ownerships[index],
            load: Some(node.record(now)),
            up: true,
            capacity: node.capacity,
            in_flight: self.in_flight[index],
        }));
        for ((view, waiting), words) in self.views.iter_mut().zip(&self.waiting).zip(&self.sites) {
            view.waiting = waiting.len() as u32;
            view.busy = words.is_some_and(|words| self.mover.another_holds(words.lock));
        }
    }

    /// A node for a request of `site`, and whether it is the first there since that node came.
    pub(super) fn choose(&mut self, site: usize, balance: Balance, now: Time) -> Option<(usize, bool)> {
        let ticket = self.tickets[site];
        self.tickets[site] += 1;
        let random = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.as_ns();
        let candidates = Members { brain: self, site };
        let chosen = balance.choose(&candidates, ticket, random)?;
        let node = candidates.node(chosen);
        self.in_flight[node] += 1;
        Some((node, std::mem::take(&mut self.arrived[node])))
    }
}

/// One site's nodes, as [`Balance`] wants to see them.
struct Members<'a> {
    brain: &'a Brain,
    site: usize,
}

impl Members<'_> {
    fn node(&self, candidate: usize) -> usize {
        self.brain.members[self.site][candidate] as usize
    }
}

impl Candidates for Members<'_> {
    fn len(&self) -> usize {
        self.brain.members[self.site].len()
    }

    fn index(&self, candidate: usize) -> LoadIndex {
        let node = self.node(candidate);
        self.brain.readings[node].now(self.brain.in_flight[node])
    }

    fn index_at_look(&self, candidate: usize) -> LoadIndex {
        self.brain.readings[self.node(candidate)].index()
    }

    fn in_flight(&self, candidate: usize) -> u32 {
        self.brain.in_flight[self.node(candidate)]
    }

    fn usable(&self, candidate: usize) -> bool {
        let seen = self.brain.seen[self.node(candidate)];
        seen.is_some_and(|seen| seen.serves(SiteId::new(self.site)))
    }
}
