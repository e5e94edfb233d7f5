//! One scan of a whole cluster as figures to show, and what only several scans tell: rates and moves.
//!
//! It is a copy: a frozen page keeps one while further scans are taken.

use std::collections::VecDeque;
use std::time::Duration;

use sidelong_config::Cluster;
use sidelong_layout::{NodeId, Ownership, SEQUENCE_MAX, SiteId, Time, valid};
use sidelong_load as load;

use super::asking::{Admitted, Documents, Heard};
use sidelong_app::Monitor;

/// Most moves that are remembered.
const MOVES_MAX: usize = 64;
/// A rate covers one to two times this.
const RATE_SPAN: Duration = Duration::from_millis(500);
/// A node counts as gone after a silence of this many times the age from which its record is stale.
const GONE_AFTER: u32 = 3;
/// Words change less often than this; a generation that jumps further belongs to a restarted node.
const CHANGES_PER_MS_MAX: u64 = 2;
/// A jump up to this is always possible.
const CHANGES_SLACK: u64 = 64;

/// Whether a node's figures can be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Status {
    Fresh,
    /// It is there, but has published nothing yet.
    Never,
    /// All copies were torn.
    Torn,
    /// The last record is too old.
    Stale,
    /// It has announced its end, cannot be reached, or has been silent for long.
    Gone,
}

impl Status {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Status::Fresh => "fresh",
            Status::Never => "never",
            Status::Torn => "torn",
            Status::Stale => "stale",
            Status::Gone => "gone",
        }
    }

    fn of(reading: &load::Reading, stale: Duration) -> Status {
        let is_silent = u128::from(reading.age_ns) > (stale * GONE_AFTER).as_nanos();
        match reading.status {
            load::Status::Fresh => Status::Fresh,
            load::Status::NeverWritten => Status::Never,
            load::Status::Stale | load::Status::Torn if is_silent => Status::Gone,
            load::Status::Stale => Status::Stale,
            load::Status::Torn => Status::Torn,
            load::Status::Gone => Status::Gone,
        }
    }
}

/// The connections to a node's server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Connections {
    pub(super) open: u32,
    /// Connections or requests that wait for a worker.
    pub(super) queued: u32,
}

/// The workers of a node's server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Workers {
    pub(super) busy: u32,
    pub(super) all: u16,
}

/// What only a node's own server tells.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Served {
    pub(super) service_us: u32,
    /// Since its start.
    pub(super) total: u64,
}

/// A node. Figures are present only while its record is fresh and contains them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NodeRow {
    pub(super) name: String,
    /// Its word; `None` where that cannot be read.
    pub(super) ownership: Option<Ownership>,
    pub(super) status: Status,
    /// Age of the record when it was read; `None` if there is none.
    pub(super) age: Option<Duration>,
    pub(super) run_queue: Option<u16>,
    pub(super) cpu_permille: Option<u16>,
    pub(super) memory_permille: Option<u16>,
    pub(super) net_bytes_per_s: Option<u64>,
    pub(super) connections: Option<Connections>,
    pub(super) workers: Option<Workers>,
    /// Requests that its foreign server handles at a time, as edges learned.
    pub(super) learned_workers: Option<u32>,
    pub(super) served: Option<Served>,
    pub(super) requests_per_s: Option<f64>,
}

impl NodeRow {
    fn new(name: String) -> Self {
        NodeRow {
            name,
            ownership: None,
            status: Status::Gone,
            age: None,
            run_queue: None,
            cpu_permille: None,
            memory_permille: None,
            net_bytes_per_s: None,
            connections: None,
            workers: None,
            learned_workers: None,
            served: None,
            requests_per_s: None,
        }
    }

    /// The index of the site that it serves, leaves or belongs to.
    pub(super) fn site(&self) -> Option<usize> {
        Some(self.ownership?.site?.index())
    }

    pub(super) fn state(&self) -> &'static str {
        self.ownership.map_or("unknown", |ownership| ownership.state.word())
    }
}

/// A site, with the sums over the nodes that serve or leave it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SiteRow {
    pub(super) floor: usize,
    pub(super) ceiling: usize,
    pub(super) serving: usize,
    /// Nodes moving to it.
    pub(super) coming: usize,
    /// Nodes moving away from it.
    pub(super) leaving: usize,
    pub(super) sums: Sums,
}

/// Sums over nodes whose record is fresh.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Sums {
    pub(super) nodes: usize,
    pub(super) busy: u64,
    pub(super) workers: u64,
    pub(super) queued: u64,
    pub(super) connections: u64,
    /// `None` if no node reports its own.
    pub(super) run_queue: Option<u64>,
    pub(super) net_bytes_per_s: u64,
    pub(super) requests_per_s: f64,
    cpu_permille: u64,
    cpu_nodes: u64,
    /// The oldest figure.
    pub(super) age_max: Option<Duration>,
}

impl Sums {
    fn add(&mut self, node: &NodeRow) {
        if node.status != Status::Fresh {
            return;
        }
        self.nodes += 1;
        let (connections, workers) = (node.connections.unwrap_or_default(), node.workers.unwrap_or_default());
        self.busy += u64::from(workers.busy);
        self.workers += u64::from(workers.all);
        self.queued += u64::from(connections.queued);
        self.connections += u64::from(connections.open);
        if let Some(threads) = node.run_queue {
            *self.run_queue.get_or_insert(0) += u64::from(threads);
        }
        self.net_bytes_per_s = self.net_bytes_per_s.saturating_add(node.net_bytes_per_s.unwrap_or_default());
        self.requests_per_s += node.requests_per_s.unwrap_or_default();
        if let Some(cpu) = node.cpu_permille {
            self.cpu_permille += u64::from(cpu);
            self.cpu_nodes += 1;
        }
        self.age_max = self.age_max.max(node.age);
    }

    /// Requests per worker, by which reconfiguration decides.
    pub(super) fn load(&self) -> Option<f64> {
        (self.workers > 0).then(|| (self.busy + self.queued) as f64 / self.workers as f64)
    }

    /// The mean over the nodes that report it.
    pub(super) fn cpu_percent(&self) -> Option<f64> {
        (self.cpu_nodes > 0).then(|| self.cpu_permille as f64 / self.cpu_nodes as f64 / 10.0)
    }
}

/// A node whose site was seen to change.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Moved {
    /// Time since the first scan.
    pub(super) at: Duration,
    pub(super) node: usize,
    /// Sites by index; `None` if it was free.
    pub(super) from: Option<usize>,
    pub(super) to: Option<usize>,
    /// The mover's reason, once it is known.
    pub(super) why: Option<String>,
}

/// Everything that is shown.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) cluster: String,
    /// The scheme and the fabric by which load is collected.
    pub(super) scheme: String,
    pub(super) fabric: &'static str,
    /// By index, for both kinds of row.
    pub(super) site_names: Vec<String>,
    pub(super) sites: Vec<SiteRow>,
    pub(super) nodes: Vec<NodeRow>,
    /// By site, as the edges report; empty if no requests are ever rejected.
    pub(super) admitted: Vec<Admitted>,
    /// Of all edges, if nodes keep documents.
    pub(super) documents: Option<Documents>,
    pub(super) totals: Sums,
    /// Time since the first scan.
    pub(super) elapsed: Duration,
    /// Moves since then.
    pub(super) moves: u64,
    /// Newest last.
    pub(super) moved: VecDeque<Moved>,
}

impl Look {
    pub(super) fn count(&self, status: Status) -> usize {
        self.nodes.iter().filter(|node| node.status == status).count()
    }

    pub(super) fn site_name(&self, site: Option<usize>) -> &str {
        site.and_then(|site| self.site_names.get(site)).map_or("free", String::as_str)
    }
}

/// Takes scans.
pub(super) struct Looker {
    look: Look,
    /// Slots of the nodes and of the sites, which are numbered by place here.
    slots: (Vec<NodeId>, Vec<SiteId>),
    stale: Duration,
    past: Vec<Past>,
    began: Option<Time>,
}

/// What is remembered of a node.
#[derive(Clone, Default)]
struct Past {
    rate: Rate,
    /// The last word that showed the node settled, not moving, and when it was seen.
    settled: Option<(Ownership, Time)>,
}

impl Looker {
    /// For a cluster whose load is collected by `scheme` over `fabric`.
    pub(super) fn new(cluster: &Cluster, scheme: String, fabric: &'static str) -> Self {
        let site = |site: &sidelong_config::Site| SiteRow {
            floor: site.floor,
            ceiling: site.ceiling,
            ..SiteRow::default()
        };
        Looker {
            look: Look {
                cluster: cluster.name.clone(),
                scheme,
                fabric,
                site_names: cluster.sites.values().map(|site| site.name.clone()).collect(),
                sites: cluster.sites.values().map(site).collect(),
                nodes: cluster.nodes.values().map(|node| NodeRow::new(node.name.clone())).collect(),
                admitted: Vec::new(),
                documents: None,
                totals: Sums::default(),
                elapsed: Duration::ZERO,
                moves: 0,
                moved: VecDeque::new(),
            },
            slots: (
                cluster.nodes.entries().map(|(slot, _)| NodeId::new(slot)).collect(),
                cluster.sites.entries().map(|(slot, _)| SiteId::new(slot)).collect(),
            ),
            stale: cluster.load.stale,
            past: vec![Past::default(); cluster.nodes.values().count()],
            began: None,
        }
    }

    /// The last scan.
    pub(super) fn latest(&self) -> &Look {
        &self.look
    }

    /// Takes the last scan of `monitor`.
    pub(super) fn take(&mut self, monitor: &Monitor) {
        let (nodes, sites) = self.slots.clone();
        let place = |site: SiteId| sites.iter().position(|slot| *slot == site).map(SiteId::new);
        let seen = nodes.into_iter().map(|node| {
            let mut reading = *monitor.reading(node);
            if let (Some(hot), Some(mean)) = (&mut reading.hot, monitor.cpu_permille(node)) {
                hot.cpu_permille = mean;
            }
            let ownership = monitor.ownership(node);
            let placed = |own: Ownership| Ownership {
                site: own.site.and_then(place),
                next: own.next.and_then(place),
                ..own
            };
            (reading, ownership.map(placed))
        });
        self.see(monitor.at(), seen);
    }

    /// Takes the edges' answers.
    pub(super) fn hear(&mut self, heard: Heard) {
        self.look.admitted = heard.admitted;
        self.look.documents = (!heard.documents.is_empty()).then(|| Documents::sum(&heard.documents));
        for (row, learned) in self.look.nodes.iter_mut().zip(heard.learned_workers) {
            row.learned_workers = learned;
        }
    }

    /// Takes a reading and an ownership for each node in turn, as of `at`.
    fn see(&mut self, at: Time, seen: impl Iterator<Item = (load::Reading, Option<Ownership>)>) {
        let Looker { look, stale, past, began, .. } = self;
        look.elapsed = at.since(*began.get_or_insert(at));
        look.totals = Sums::default();
        for site in &mut look.sites {
            *site = SiteRow { floor: site.floor, ceiling: site.ceiling, ..SiteRow::default() };
        }
        let rows = look.nodes.iter_mut().zip(past).enumerate();
        for ((index, (row, past)), (reading, ownership)) in rows.zip(seen) {
            fill(row, &reading, ownership, *stale, &mut past.rate);
            if let Some((moves, from)) = past.moves(ownership, at) {
                look.moves += moves;
                if from != row.site() {
                    let moved = Moved { at: look.elapsed, node: index, from, to: row.site(), why: None };
                    look.moved.push_back(moved);
                }
            }
            look.totals.add(row);
            if let Some(site) = row.site().and_then(|site| look.sites.get_mut(site)) {
                site.sums.add(row);
                site.leaving += usize::from(ownership.and_then(Ownership::on_its_way).is_some());
                site.serving += usize::from(ownership.and_then(Ownership::serving_site).is_some());
            }
            let next = ownership.and_then(|ownership| ownership.next);
            if let Some(site) = next.and_then(|site| look.sites.get_mut(site.index())) {
                site.coming += 1;
            }
        }
        let surplus = look.moved.len().saturating_sub(MOVES_MAX);
        look.moved.drain(..surplus);
    }
}

/// How long after a move its reason is looked for, and how long before it was seen the move may have ended.
const EXPLAINED_MAX: Duration = Duration::from_secs(2);

impl Looker {
    /// Adds the reasons of new moves, as `recent` returns them: node, receiver and reason of moves within a time.
    pub(super) fn explain(&mut self, recent: impl Fn(Duration) -> Vec<[String; 3]>) {
        let Look { moved, elapsed, nodes, site_names, .. } = &mut self.look;
        let is_new = |moved: &&mut Moved| moved.why.is_none() && *elapsed < moved.at + EXPLAINED_MAX;
        let mut unexplained = moved.iter_mut().rev().filter(is_new).peekable();
        if unexplained.peek().is_none() {
            return;
        }
        let mut known = recent(2 * EXPLAINED_MAX);
        for moved in unexplained {
            let (node, to) = (&nodes[moved.node].name, moved.to.and_then(|to| site_names.get(to)));
            let is_it = |[of, site, _]: &[String; 3]| of == node && Some(site) == to;
            if let Some(found) = known.iter().position(is_it) {
                moved.why = known.remove(found).into_iter().next_back();
            }
        }
    }
}

fn fill(
    row: &mut NodeRow,
    reading: &load::Reading,
    ownership: Option<Ownership>,
    stale: Duration,
    rate: &mut Rate,
) {
    row.ownership = ownership;
    row.status = Status::of(reading, stale);
    row.age =
        reading.hot.filter(|_| reading.age_ns != u64::MAX).map(|_| Duration::from_nanos(reading.age_ns));
    let hot = reading.fresh();
    let figure = |bit| hot.filter(|hot| hot.valid & bit != 0);
    row.run_queue = figure(valid::RUN_QUEUE).map(|hot| hot.run_queue);
    row.cpu_permille = figure(valid::CPU).map(|hot| hot.cpu_permille);
    row.memory_permille = figure(valid::MEMORY).map(|hot| hot.memory_permille);
    row.net_bytes_per_s = figure(valid::NETWORK).map(|hot| hot.net_bytes_per_s);
    let origin = figure(valid::ORIGIN);
    row.connections = figure(valid::ORIGIN | valid::CONNECTIONS)
        .map(|hot| Connections { open: hot.connections, queued: hot.queued });
    row.workers =
        figure(valid::ORIGIN | valid::WORKERS).map(|hot| Workers { busy: hot.busy, all: hot.workers });
    row.served = hot.and_then(|hot| Some(Served { service_us: hot.service_us()?, total: hot.served }));
    row.requests_per_s = origin.and_then(|hot| rate.see(hot.generation, hot.time_ns, hot.served));
}

impl Past {
    /// The number of moves that ended since the last scan, and the site from which the first of them began.
    ///
    /// Each move raises a word's generation twice, so none is missed between two scans. A drain that was given up and
    /// reverted also counts as one.
    fn moves(&mut self, ownership: Option<Ownership>, at: Time) -> Option<(u64, Option<usize>)> {
        let now = ownership.filter(|ownership| ownership.on_its_way().is_none())?;
        let (before, seen) = self.settled.replace((now, at))?;
        let changes = now.generation.wrapping_sub(before.generation) & SEQUENCE_MAX;
        let possible = at.since(seen).as_millis() as u64 * CHANGES_PER_MS_MAX + CHANGES_SLACK;
        if changes == 0 || changes > possible {
            return None;
        }
        let from = before.site.map(|site| site.index());
        // A free node is taken by one change.
        Some(((changes / 2).max(u64::from(before.site != now.site)), from))
    }
}

/// Requests per second, over the last half to whole second.
#[derive(Clone, Copy, Default)]
struct Rate {
    generation: u32,
    /// Times in ns and counts of the two marks: where the rate starts, and where the next one will start.
    marks: Option<[(u64, u64); 2]>,
}

impl Rate {
    fn see(&mut self, generation: u32, time_ns: u64, total: u64) -> Option<f64> {
        let now = (time_ns, total);
        let [from, next] = match self.marks.filter(|_| self.generation == generation) {
            // The later mark becomes the one that the rate is taken from.
            Some(marks @ [_, next]) if next.0 <= time_ns && next.1 <= total => marks,
            _ => [now, now],
        };
        self.generation = generation;
        let is_due = time_ns.saturating_sub(next.0) >= RATE_SPAN.as_nanos() as u64;
        self.marks = Some(if is_due { [next, now] } else { [from, next] });
        let [from, _] = self.marks?;
        let span_ns = time_ns - from.0;
        (span_ns > 0).then(|| (total - from.1) as f64 * 1e9 / span_ns as f64)
    }
}

#[cfg(test)]
pub(super) mod tests;
