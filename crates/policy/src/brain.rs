//! The brain: decides which part of each site's clients is admitted, and which node moves.
//!
//! A driver (the edge, the simulator) scans its cluster once an interval, shows the brain the result
//! ([`Brain::scan`]), and carries out the answer: an outlook for each site and at most one move. The brain asks no
//! clock and touches no memory but its own, so the same scans give the same decisions in every driver.

use std::time::Duration;

use sidelong_layout::{NodeId, Ownership, Slots};

use crate::SettingsError;
use crate::Time;
use crate::admission::{self, AdmissionSettings, Answers, Controller, Outlook, Promise};
use crate::cluster::{NodeView, SiteView, Snapshot, Standing, Traffic};
use crate::index::Capacity;
use crate::reconfigure::{MovePlan, ReconfigureSettings, Reconfigurer};
use crate::workers::{Learner, Workers};

/// After its first scan, a brain plans no move for this long unless it has seen all nodes at once: a site's nodes may
/// just be starting, and need no help from others.
pub const SETTLE_MAX: Duration = Duration::from_secs(3);

/// A node that is found dead must stay so for this long before its site gets another. Until then it is suspected only,
/// because a busy machine delays records and refuses requests, too (the suspicion of Das et al. 2002, SWIM, 4.2). In this
/// time a node that refuses requests is tried at least twice more ([`crate::health`]). With the age at which a record
/// is too old it is less than the second that a request waits at an edge for a node, so that the next node serves it.
pub const SUSPECT_FOR: Duration = Duration::from_millis(500);

/// Who decides on moves.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Decider {
    /// No one: in the rigid and over-provisioned configurations, and in edges under server-based reconfiguration.
    #[default]
    Nobody,
    /// An edge, for all sites (load-balancer-based, Balaji et al. 2004, 3.1).
    Edge(Box<Reconfigurer>),
    /// A node, for the site that it serves: one reconfigurer for each site (server-based, Balaji et al. 2004, 3.1).
    Node(NodeId, Vec<Reconfigurer>),
}

/// What a scan shows of a site.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SiteSeen {
    /// See [`SiteView::waiting`].
    pub waiting: u32,
    /// See [`SiteView::busy`].
    pub busy: bool,
    /// The answers that the driver has seen so far.
    pub answers: Answers,
    /// The mean [`admission::Verdict::pressure`] of the other edges that know the site; `None` if none does.
    pub others: Option<f64>,
}

/// The decisions after a scan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decisions<'a> {
    /// By site; empty without admission.
    pub outlooks: &'a [Outlook],
    /// The move to start now.
    pub plan: Option<MovePlan>,
}

/// The state between scans. Each edge has one.
#[derive(Clone, PartialEq, Debug)]
pub struct Brain {
    admission: Option<Controller>,
    decider: Decider,
    by_load_alone: bool,
    sites: Vec<SiteView>,
    nodes: Vec<NodeView>,
    traffic: Vec<Traffic>,
    answers: Vec<Answers>,
    others: Vec<Option<f64>>,
    standings: Vec<Standing>,
    /// By node, whether the slot has none; empty if each has one.
    is_vacant: Vec<bool>,
    /// By node, whether its record was ever read.
    heard: Vec<bool>,
    /// By node, since when it is found dead.
    dead_since: Vec<Option<Time>>,
    /// By node, what is learned of a foreign server; empty if there is none.
    learners: Vec<Option<Learner>>,
    looked: Option<Time>,
    began: Option<Time>,
    /// Whether all nodes were seen at once.
    is_settled: bool,
}

impl Brain {
    /// A brain for sites with these floors, ceilings and priorities. Without admission control all requests are
    /// admitted.
    pub fn new(admission: Option<Controller>, decider: Decider, sites: Vec<SiteView>) -> Self {
        Brain {
            admission,
            decider,
            by_load_alone: false,
            sites,
            nodes: Vec::new(),
            traffic: Vec::new(),
            answers: Vec::new(),
            others: Vec::new(),
            standings: Vec::new(),
            is_vacant: Vec::new(),
            heard: Vec::new(),
            dead_since: Vec::new(),
            learners: Vec::new(),
            looked: None,
            began: None,
            is_settled: false,
        }
    }

    /// Makes moves ignore targets, for comparison.
    pub fn by_load_alone(self) -> Self {
        Brain { by_load_alone: true, ..self }
    }

    /// Makes it go by these nodes, by slot, and learn how many requests the servers handle at a time that are foreign, for which
    /// that is said.
    pub fn with_nodes(mut self, foreign: &Slots<bool>) -> Self {
        self.take_nodes(foreign);
        self
    }

    fn take_nodes(&mut self, foreign: &Slots<bool>) {
        let mut last = std::mem::take(&mut self.learners).into_iter();
        let learner = |is_foreign: Option<&bool>| {
            let known = last.next().flatten();
            (is_foreign == Some(&true)).then(|| known.unwrap_or_default())
        };
        let learners: Vec<_> = foreign.all().map(learner).collect();
        let learns = learners.iter().any(Option::is_some);
        self.learners = if learns { learners } else { Vec::new() };
        self.is_vacant = foreign.all().map(|node| node.is_none()).collect();
    }

    /// Goes by other nodes from now on, of which it is said whether their servers are foreign, by other sites with other floors,
    /// ceilings and priorities, and by other settings and promises as far as it has what they are for. What it has learned stays, but of
    /// slots that have become vacant.
    ///
    /// # Errors
    /// If settings are invalid, or there are more nodes or sites than words can name.
    pub fn adopt(
        &mut self,
        foreign: &Slots<bool>,
        sites: &Slots<SiteView>,
        admission: Option<&(AdmissionSettings, Slots<Promise>)>,
        reconfigure: ReconfigureSettings,
    ) -> Result<(), SettingsError> {
        let slots = (sites.len(), foreign.len());
        if let (Some(controller), Some((settings, promises))) = (&mut self.admission, admission) {
            controller.adopt(*settings, promises.to_vec(), foreign.len())?;
        }
        let reconfigurers = match &mut self.decider {
            Decider::Nobody => &mut [],
            Decider::Edge(reconfigurer) => std::slice::from_mut(&mut **reconfigurer),
            Decider::Node(_, reconfigurers) => &mut reconfigurers[..],
        };
        reconfigurers.iter_mut().try_for_each(|reconfigurer| reconfigurer.adopt(reconfigure, slots))?;
        self.sites.resize(sites.len(), SiteView::default());
        for (site, new) in self.sites.iter_mut().zip(sites.to_vec()) {
            *site = SiteView { waiting: site.waiting, busy: site.busy, ..new };
        }
        self.take_nodes(foreign);
        Ok(())
    }

    /// Whether there is anything to decide or to learn. If not, the driver need not show scans.
    pub fn decides(&self) -> bool {
        self.admission.is_some() || self.plans_moves() || !self.learners.is_empty()
    }

    /// How many requests the node's server handles at a time, as far as that was learned.
    pub fn workers(&self, node: NodeId) -> Workers {
        self.learner(node).map_or(Workers::Unknown, Learner::workers)
    }

    /// The node's capacity, of which the file says `given`.
    pub fn capacity(&self, node: NodeId, given: Capacity) -> Capacity {
        let learned = self.learner(node).and_then(Learner::at_a_time);
        Capacity { workers: learned.unwrap_or(given.workers), ..given }
    }

    fn learner(&self, node: NodeId) -> Option<&Learner> {
        self.learners.get(node.index())?.as_ref()
    }

    /// Whether it may plan moves.
    pub fn plans_moves(&self) -> bool {
        !matches!(self.decider, Decider::Nobody)
    }

    /// Takes one scan, in the order of nodes and sites. [`NodeView::up`] and [`NodeView::dead`] tell whether the node's
    /// connections work; the brain itself detects nodes whose records have stopped, and believes that a node is dead
    /// after [`SUSPECT_FOR`]. `wall_ns` is the time of day, in ns since 1970. A plan that is made while the driver's
    /// mover is busy is dropped, and made again if it still holds.
    ///
    /// # Panics
    /// If the number of nodes or sites differs from that of the controller and reconfigurers.
    pub fn scan(
        &mut self,
        nodes: impl Iterator<Item = (NodeView, Traffic)>,
        sites: impl Iterator<Item = SiteSeen>,
        mover_has_room: bool,
        now: Time,
        wall_ns: u64,
    ) -> Decisions<'_> {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.since(looked));
        self.take_in(nodes, sites, passed, now);
        if let Some(controller) = &mut self.admission {
            controller.step(
                &admission::AdmissionSnapshot {
                    nodes: &self.nodes,
                    sites: &self.sites,
                    traffic: &self.traffic,
                    answers: &self.answers,
                    others: &self.others,
                    wall_ns,
                },
                now,
            );
            self.standings.clear();
            if !self.by_load_alone {
                self.standings.extend(controller.standings());
            }
        }
        let plan = self.plan(now).filter(|_| mover_has_room);
        Decisions { outlooks: self.admission.as_ref().map_or(&[], Controller::outlooks), plan }
    }

    fn take_in(
        &mut self,
        nodes: impl Iterator<Item = (NodeView, Traffic)>,
        sites: impl Iterator<Item = SiteSeen>,
        passed: Duration,
        now: Time,
    ) {
        self.nodes.clear();
        self.traffic.clear();
        for (index, (mut node, traffic)) in nodes.enumerate() {
            if index == self.heard.len() {
                self.heard.push(false);
                self.dead_since.push(None);
            }
            if self.is_vacant.get(index).is_some_and(|is_vacant| *is_vacant) {
                (self.heard[index], self.dead_since[index]) = (false, None);
                self.nodes.push(NodeView::VACANT);
                self.traffic.push(Traffic { up: true, ..Traffic::default() });
                continue;
            }
            self.heard[index] |= node.load.is_some();
            // A node whose record has gone old is dead or hangs, even if no request has noticed yet. A node that was
            // never heard may be about to start.
            let is_silent = node.load.is_none() && self.heard[index];
            node.up &= !is_silent;
            // A foreign server's record is that of its agent, which may be silent while the server works.
            let is_foreign = self.learners.get(index).is_some_and(Option::is_some);
            let since = &mut self.dead_since[index];
            *since = (node.dead || is_silent && !is_foreign).then(|| since.unwrap_or(now));
            node.dead = since.is_some_and(|since| now.since(since) >= SUSPECT_FOR);
            if let Some(Some(learner)) = self.learners.get_mut(index) {
                learner.see(&node, &traffic, passed);
                learner.apply(&mut node);
            }
            self.nodes.push(node);
            self.traffic.push(traffic);
        }
        self.answers.clear();
        self.others.clear();
        for (site, seen) in self.sites.iter_mut().zip(sites) {
            (site.waiting, site.busy) = (seen.waiting, seen.busy);
            self.answers.push(seen.answers);
            self.others.push(seen.others);
        }
    }

    /// The reconfigurer is shown every scan, so that its histories are right.
    fn plan(&mut self, now: Time) -> Option<MovePlan> {
        let began = *self.began.get_or_insert(now);
        self.is_settled |= self.nodes.iter().all(|node| node.ownership.is_some());
        if !self.is_settled && now.since(began) < SETTLE_MAX {
            return None;
        }
        let reconfigurer = match &mut self.decider {
            Decider::Nobody => return None,
            Decider::Edge(reconfigurer) => reconfigurer,
            Decider::Node(node, reconfigurers) => {
                let site = self.nodes[node.index()].ownership.and_then(Ownership::serving_site)?;
                &mut reconfigurers[site.index()]
            }
        };
        let snapshot = Snapshot { nodes: &self.nodes, sites: &self.sites, standings: &self.standings };
        reconfigurer.step(&snapshot, now)
    }
}

#[cfg(test)]
mod tests;
