//! One run: a cluster, its edges, and a scheduler that lets one of them go on at a time; from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use sidelong_fabric::sim::{Faults, Network};
use sidelong_layout::{NodeId, SiteId};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_reconfig::{Protocol, Report};
use sidelong_state::Outcome;

use crate::simulated::check::{Rule, Tenure, check, moved_under_free_lock};
use crate::simulated::cluster::{Cluster, EDGES, LEASE, Machine, NODES, Truth, sites};
use crate::simulated::edge::{Life, Next, Order, Setting};
use crate::simulated::lots::Lots;
use crate::simulated::report::{Log, Summary, Violation};

/// How often an edge is let go on while there are faults.
const STORM_STEPS: usize = 3_000;
/// In so many steps one edge crashes, and one falls asleep: a dozen of each in a run.
const CRASH_ONCE_IN: usize = 250;
const SLEEP_ONCE_IN: usize = 200;
const NEVER: usize = usize::MAX;
/// How long they are gone: longer than it takes to steal a lock, and shorter.
const GONE: Range<Duration> = Duration::ZERO..LEASE.saturating_mul(4);
/// When the last operation of the storm has taken effect: some time was still left for its end.
const LATE_MAX: Duration = GONE.end.saturating_add(Duration::from_millis(20));
/// From the last fault on, until all is mended and stays so.
const MENDED_WITHIN: Duration = LEASE.saturating_mul(20);
const STAYS_MENDED: Duration = LEASE.saturating_mul(5);

/// Runs the cluster of `seed`. With `told`, every line of its history is printed.
pub(crate) fn run(seed: u64, protocol: Protocol, told: bool) -> Result<Summary, Violation> {
    let mut run = Run::new(seed, protocol, told);
    match run.storm().and_then(|()| run.calm()) {
        Ok(()) => Ok(Summary { history: run.log.hash, ..run.summary }),
        Err(rule) => Err(Violation { rule, story: run.log.story() }),
    }
}

/// What a storm is like. Mild ones are as telling as wild ones: where words are out of reach, less happens and less is
/// promised.
#[derive(Debug)]
struct Weather {
    /// Of all operations: lost, and some microseconds late.
    loss_permille: u32,
    late_permille: u32,
    /// Of the operations of moves and repairs, one in so many takes effect up to four leases after its end was
    /// reported, and holds up its link as long.
    very_late_once_in: usize,
    node_crash_once_in: usize,
    board_crash_once_in: usize,
    /// What an edge takes from one operation to the next, at most.
    pace: Duration,
}

impl Weather {
    fn of(lots: &Lots) -> Self {
        let one_of = |choice: &[usize]| choice[lots.below(choice.len())];
        Weather {
            loss_permille: one_of(&[0, 2, 20]) as u32,
            late_permille: one_of(&[0, 2, 20]) as u32,
            very_late_once_in: one_of(&[NEVER, 150]),
            node_crash_once_in: one_of(&[NEVER, 1_000]),
            board_crash_once_in: one_of(&[NEVER, NEVER, NEVER, 2_000]),
            pace: Duration::from_micros(one_of(&[1, 1_000]) as u64),
        }
    }
}

struct Run {
    setting: Setting,
    cluster: Cluster,
    edges: Vec<Edge>,
    lots: Lots,
    weather: Weather,
    /// Whether there are faults.
    stormy: bool,
    /// Dead machines, and when they come back.
    back_at: BTreeMap<Machine, Duration>,
    /// Sites whose lock was freed by somebody who could not reach all words, and said so.
    excused: BTreeSet<SiteId>,
    last: Truth,
    log: Log,
    summary: Summary,
}

struct Edge {
    life: Life,
    incarnation: u64,
    /// When it may go on.
    ready_at: Duration,
    idle: bool,
    /// From the lock that it takes until it tells how that ended.
    tenure: Option<Tenure>,
}

impl Run {
    fn new(seed: u64, protocol: Protocol, told: bool) -> Self {
        let lots = Lots::new(seed, 0);
        let network = Network::new(seed, Faults::default());
        let cluster = Cluster::start(&network, &lots);
        let setting = Setting { seed, network, keys: cluster.keys.clone(), protocol };
        let edge = |index| Edge {
            life: Life::begin(&setting, index, 1),
            incarnation: 1,
            ready_at: Duration::ZERO,
            idle: true,
            tenure: None,
        };
        let edges = (0..EDGES).map(edge).collect();
        let last = cluster.truth();
        let mut run = Run {
            weather: Weather::of(&lots),
            setting,
            cluster,
            edges,
            lots,
            stormy: true,
            back_at: BTreeMap::new(),
            excused: BTreeSet::new(),
            last,
            log: Log::new(told),
            summary: Summary::default(),
        };
        run.log.note(Duration::ZERO, format_args!("{:?}; {}", run.weather, run.last));
        run
    }

    fn storm(&mut self) -> Result<(), Rule> {
        for _ in 0..STORM_STEPS {
            self.step()?;
            if self.lots.once_in(CRASH_ONCE_IN) {
                self.crash_edge();
            }
            if self.lots.once_in(SLEEP_ONCE_IN) {
                let (edge, time) = (self.lots.below(EDGES), self.lots.time(GONE));
                self.note(format_args!("e{edge} sleeps for {time:?}"));
                self.edges[edge].ready_at = self.edges[edge].ready_at.max(self.now() + time);
            }
            if self.lots.once_in(self.weather.node_crash_once_in) {
                self.crash(Machine::Node(NodeId::new(self.lots.below(NODES))));
            }
            if self.lots.once_in(self.weather.board_crash_once_in) {
                self.crash(Machine::Board);
            }
        }
        Ok(())
    }

    /// No more faults and no new moves: goes on until nothing is unfinished, and for a while after.
    fn calm(&mut self) -> Result<(), Rule> {
        self.stormy = false;
        let began = self.now();
        self.note(format_args!("the storm is over"));
        self.edges.iter_mut().for_each(|edge| edge.ready_at = edge.ready_at.min(began));
        self.back_at.values_mut().for_each(|at| *at = began.min(*at));
        // What is very late is mended only after it has come: the lock that an edge gave up taking, say.
        while !self.is_mended() || self.now() < began + LATE_MAX {
            if self.now() > began + MENDED_WITHIN {
                self.note(format_args!("{}", self.last.unfinished().unwrap_or("an edge is at work")));
                return Err(Rule::Whole);
            }
            self.step()?;
        }
        self.summary.mended_after = self.now() - began;
        let words = self.last.clone();
        while self.now() < began + self.summary.mended_after + STAYS_MENDED {
            self.step()?;
            if !self.last.is_but_for_acks(&words) {
                self.note(format_args!("all was mended, and then it changed"));
                return Err(Rule::Whole);
            }
        }
        Ok(())
    }

    fn is_mended(&self) -> bool {
        // The papers' budgets are never touched, and draining is unknown to them.
        let unfinished = match self.setting.protocol {
            Protocol::Lease => self.last.unfinished().is_some(),
            Protocol::Paper => self.last.locks.iter().any(|lock| lock.owner.is_some()),
        };
        self.back_at.is_empty() && !unfinished && self.edges.iter().all(|edge| edge.idle)
    }

    /// One edge goes on, or time does; then looks at what that did.
    fn step(&mut self) -> Result<(), Rule> {
        self.bring_machines_back()?;
        let now = self.now();
        let ready: Vec<_> = (0..EDGES).filter(|edge| self.edges[*edge].ready_at <= now).collect();
        match self.lots.pick(&ready) {
            Some(edge) => self.let_go(edge),
            None => {
                let edges = self.edges.iter().map(|edge| edge.ready_at);
                let at = edges.chain(self.cluster.next_at()).min().expect("there are edges");
                self.setting.network.advance(at - now);
                self.look()
            }
        }
    }

    fn let_go(&mut self, index: usize) -> Result<(), Rule> {
        let goes = self.edges[index].life.next.clone();
        let posts = if let Next::Post(step) = goes { Some(step) } else { None };
        let very_late = self.stormy && posts.is_some() && self.lots.once_in(self.weather.very_late_once_in);
        let Weather { loss_permille, late_permille, .. } = self.weather;
        self.setting.network.set_faults(match (self.stormy, very_late) {
            (false, _) => Faults::default(),
            (true, false) => Faults { loss_permille, late_permille, ..Faults::default() },
            (true, true) => Faults { delay: GONE, late_permille: 1000, ..Faults::default() },
        });
        self.tell(index, &goes, very_late);
        let edge = &mut self.edges[index];
        if let Some("take-lock" | "steal-lock") = posts {
            edge.tenure = Some(Tenure::new(posts == Some("steal-lock"), &self.last));
        }
        edge.life.go_on(Order { may_plan: self.stormy });
        self.look()?;

        let now = self.now();
        let edge = &mut self.edges[index];
        if let (Some("free-lock"), Some(tenure)) = (posts, &mut edge.tenure) {
            tenure.freed.get_or_insert(self.last.clone());
        }
        match edge.life.next {
            Next::Scan { after, idle } => (edge.ready_at, edge.idle) = (now + after, idle),
            Next::Begin(_) | Next::Post(_) | Next::Hear => {
                edge.idle = false;
                edge.ready_at = now + self.lots.time(Duration::ZERO..self.weather.pace);
            }
            Next::End(ended) => {
                let tenure = edge.tenure.take();
                self.judge(ended, tenure)?;
            }
        }
        Ok(())
    }

    /// Whether an edge left a site as it says that it did.
    fn judge(&mut self, ended: Report, tenure: Option<Tenure>) -> Result<(), Rule> {
        let site = ended.task.site();
        if let Outcome::Recovered { left_out: 1.. } | Outcome::Uncertain { left_out: 1.. } = ended.outcome {
            self.excused.insert(site);
        }
        let has_settled = tenure.is_none_or(|tenure| tenure.has_settled(site));
        if has_settled || self.excused.contains(&site) { Ok(()) } else { Err(Rule::Settled) }
    }

    fn tell(&mut self, index: usize, next: &Next, very_late: bool) {
        let name = format!("e{index}#{}", self.edges[index].incarnation);
        match next {
            Next::Scan { .. } => self.note(format_args!("{name} scans")),
            Next::Hear => self.note(format_args!("{name} goes on")),
            Next::Begin(MovePlan { node, expected, to, .. }) => {
                let from = expected.site.map(|site| site.index());
                self.note(format_args!("{name} plans n{} from {from:?} to s{}", node.index(), to.index()));
            }
            Next::Post(step) => {
                self.summary.steps.insert(step);
                let late = if very_late { ", which will be very late" } else { "" };
                self.note(format_args!("{name} {step}{late}"));
            }
            Next::End(ended) => {
                let how = format!("{:?}", ended.outcome);
                self.note(format_args!("{name} ended at s{}: {how}", ended.task.site().index()));
                self.summary.moved += usize::from(ended.moved());
                *self.summary.outcomes.entry(how).or_default() += 1;
            }
        }
    }

    /// One dies where it stands, and starts another life at some time. What it has posted may land yet.
    fn crash_edge(&mut self) {
        let index = self.lots.below(EDGES);
        let (now, gone) = (self.now(), self.lots.time(GONE));
        self.note(format_args!("e{index} crashes, for {gone:?}"));
        let edge = &mut self.edges[index];
        if edge.tenure.take().is_some_and(|tenure| tenure.freed.is_some()) {
            self.excused.extend(sites()); // It takes what it could not reach to the grave.
        }
        edge.incarnation += 1;
        edge.life.end();
        edge.life = Life::begin(&self.setting, index, edge.incarnation);
        (edge.ready_at, edge.idle) = (now + gone, true);
        self.summary.edge_crashes += 1;
    }

    fn crash(&mut self, machine: Machine) {
        if self.cluster.is_doomed(machine) {
            return;
        }
        let at = self.now() + self.lots.time(Duration::ZERO..Duration::from_millis(1));
        let gone = self.lots.time(GONE);
        self.note(format_args!("{machine:?} crashes at {at:?}, for {gone:?}"));
        self.cluster.crash(machine, at);
        self.back_at.insert(machine, at + gone);
        self.summary.machine_crashes += 1;
        if machine == Machine::Board {
            self.excused.extend(sites()); // The locks are gone.
        }
    }

    fn bring_machines_back(&mut self) -> Result<(), Rule> {
        let now = self.now();
        let is_due = |(machine, at): &(&Machine, &Duration)| **at <= now && self.cluster.is_down(**machine);
        let back: Vec<_> = self.back_at.iter().filter(is_due).map(|(machine, _)| *machine).collect();
        for machine in back {
            self.back_at.remove(&machine);
            self.note(format_args!("{machine:?} is back"));
            self.cluster.restart(machine);
            let truth = self.cluster.truth();
            let before = match machine {
                Machine::Node(_) => &self.last,
                Machine::Board => &Truth { locks: truth.locks.clone(), ..self.last.clone() },
            };
            let checked = check(before, &truth, self.setting.protocol);
            self.note(format_args!("{truth}"));
            checked?;
            self.last = truth;
        }
        Ok(())
    }

    /// The run looks at all words, and the nodes at theirs.
    fn look(&mut self) -> Result<(), Rule> {
        let truth = self.cluster.truth();
        if truth != self.last {
            self.note(format_args!("{truth}"));
        }
        check(&self.last, &truth, self.setting.protocol)?;
        let all_told = self.edges.iter().all(|edge| edge.tenure.as_ref().is_none_or(|t| t.freed.is_none()));
        let is_unfenced = |site| !self.excused.contains(&site) && all_told;
        let unfenced = moved_under_free_lock(&self.last, &truth).any(is_unfenced);
        if unfenced && self.setting.protocol == Protocol::Lease {
            return Err(Rule::Fenced);
        }
        self.cluster.look_after_nodes(&self.lots);
        self.last = self.cluster.truth();
        Ok(())
    }

    fn now(&self) -> Duration {
        self.setting.network.now()
    }

    fn note(&mut self, what: fmt::Arguments<'_>) {
        self.log.note(self.setting.network.now(), what);
    }
}
