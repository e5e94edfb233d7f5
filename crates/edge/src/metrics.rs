//! Metrics in OpenMetrics: here those of an edge, in `gate` and `documents` parts of them, in `node` those of a node, in `cache` those of a cache, in `process` those of any process.
//! docs/metrics.md lists them.
//!
//! Counters are raised where things happen, those of requests by each thread for itself. Figures of the view and the last scan are read at the scrape.

mod agents;
mod cache;
mod documents;
mod emit;
mod figures;
mod format;
mod gate;
mod node;
mod process;
mod requests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_policy::workers::Workers;
use sidelong_proxy::Refusal;
use sidelong_reconfig::SharedMembers;

use crate::clock;
use crate::live::LiveSettings;
use crate::seen::NodeSeen;
use crate::status::State;
use documents::DocumentCollector;
use emit::{Labels, age, family, flag};
use figures::{Head, gauge};

pub use agents::{AgentsMetrics, AgentsStatus};
pub use cache::{CacheMetrics, ReadStat};
pub use emit::{About, ConfigState, Counts, Fact};
pub(crate) use figures::{HOT, HotFigure as Figure, Kind};
pub(crate) use format::Format;
use gate::GateCollector;
pub use node::{NodeMetrics, ReadOwn};
use requests::{RequestCollector, Requests};

/// Upper bounds of the buckets for moves, in seconds.
const MOVE_S: [f64; 10] = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct MoveLabels {
    from: String,
    to: String,
    /// One of [`sidelong_policy::reconfigure::Need::ALL`].
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct EndLabel {
    end: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ForLabel {
    r#for: String,
}

/// `sidelong_edge_node_site` has a series for each node and site up to this many, some 4 MB of text. In a larger cluster
/// each node has one series, for the site that it serves.
const NODE_SITE_SERIES_MAX: usize = 65_536;

/// An edge's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    config: Arc<ConfigState>,
    requests: Arc<Requests>,
    moves: Family<MoveLabels, Counter>,
    abandoned: Family<EndLabel, Counter>,
    waiting: Family<ForLabel, Gauge<f64, AtomicU64>>,
    move_seconds: Histogram,
    discarded_reads: Counter,
    /// Names of the sites, for labels.
    members: Arc<SharedMembers>,
}

impl Metrics {
    /// Metrics of an edge with this many threads that serve clients.
    pub(crate) fn new(
        state: Arc<State>,
        live: Option<Arc<LiveSettings>>,
        threads: usize,
        about: About,
        counts: Vec<Counts>,
    ) -> Self {
        let mut registry = Registry::with_prefix("sidelong_edge");
        about.facts.into_iter().for_each(|fact| fact.register(&mut registry));
        let members = Arc::clone(&state.members);
        let requests = Arc::new(Requests::new(threads, state.view.room().1, Arc::clone(&members)));
        registry.register_collector(Box::new(RequestCollector(Arc::clone(&requests))));
        let metrics = Metrics {
            requests,
            moves: Family::default(),
            abandoned: Family::default(),
            waiting: Family::default(),
            move_seconds: Histogram::new(MOVE_S),
            discarded_reads: Counter::default(),
            registry: Registry::default(),
            config: about.config,
            members,
        };
        registry.register(
            "moves",
            "Nodes moved by this edge, by site and by why the receiver was to have one",
            metrics.moves.clone(),
        );
        registry.register(
            "moves_abandoned",
            "Moves begun and not completed, and repairs, by how they ended",
            metrics.abandoned.clone(),
        );
        registry.register_with_unit(
            "moves_waiting",
            "How long no node has moved because an edge or front says nothing, by its name; absent while none waits",
            Unit::Seconds,
            metrics.waiting.clone(),
        );
        registry.register_with_unit(
            "move_duration",
            "From the decision until the node serves its new site",
            Unit::Seconds,
            metrics.move_seconds.clone(),
        );
        registry.register(
            "discarded_reads",
            "Load records that were read and not used: torn, stale or of another process",
            metrics.discarded_reads.clone(),
        );
        if let Some(gate) = state.gate.clone() {
            let state = Arc::clone(&state);
            registry.register_collector(Box::new(GateCollector { gate, state }));
        }
        if let Some(documents) = state.documents.clone() {
            registry.register_collector(Box::new(DocumentCollector(documents)));
        }
        registry.register_collector(Box::new(ViewCollector { state, live }));
        for counts in counts {
            registry.register_collector(Box::new(counts));
        }
        Metrics { registry, ..metrics }
    }

    /// Counts a request of a thread (by index) that was cut.
    pub(crate) fn cut(&self, thread: usize, site: SiteId) {
        self.requests.cut(thread, site);
    }

    /// Counts a request of a thread that was sent to `tries` nodes and answered with `status`, 0 if not at all, after `elapsed`.
    pub(crate) fn answered(
        &self,
        thread: usize,
        site: Option<SiteId>,
        status: u16,
        elapsed: Duration,
        tries: u32,
    ) {
        self.requests.answered(thread, site, status, elapsed, tries);
    }

    /// Counts a move that was carried out, in `elapsed`.
    pub fn moved(&self, plan: &MovePlan, elapsed: Duration) {
        let members = self.members.load();
        let name = |site: SiteId| members.sites.get(site.index()).map_or("none", String::as_str).to_owned();
        let from = plan.from().map_or_else(|| "none".to_owned(), name);
        let reason = plan.reason.need.word();
        self.moves.get_or_create(&MoveLabels { from, to: name(plan.to), reason }).inc();
        self.move_seconds.observe(elapsed.as_secs_f64());
    }

    /// Counts a move or repair that ended otherwise; `end` is one of a closed set of words.
    pub fn abandoned(&self, end: &'static str) {
        self.abandoned.get_or_create(&EndLabel { end }).inc();
    }

    /// Shows how long moves have waited for an edge or front that says nothing; `None` if they do not.
    pub(crate) fn moves_waiting(&self, front: &str, time: Option<Duration>) {
        match time {
            Some(time) => {
                let label = ForLabel { r#for: front.to_owned() };
                self.waiting.get_or_create(&label).set(time.as_secs_f64());
            }
            None => _ = self.waiting.remove(&ForLabel { r#for: front.to_owned() }),
        }
    }

    /// Counts a client of a thread that was disconnected before it had sent a whole request.
    pub(crate) fn refused(&self, thread: usize, why: Refusal) {
        self.requests.refused(thread, why);
    }

    /// A site has left the cluster: who gets its slot begins anew.
    pub(crate) fn vacate(&self, site: SiteId) {
        self.requests.clear(site);
    }

    /// Counts load records that were read and not used.
    pub fn discarded_reads(&self, count: u64) {
        self.discarded_reads.inc_by(count);
    }

    /// The metrics as OpenMetrics text.
    pub(crate) fn encode(&self) -> String {
        process::encode(&self.registry, Some(&self.config))
    }
}

/// Reads the view and the last scan at the scrape.
#[derive(Debug)]
struct ViewCollector {
    state: Arc<State>,
    live: Option<Arc<LiveSettings>>,
}

const VIEW_AGE: Head<'static> = gauge("view_age", "seconds", "Since the view was last refreshed");
const VIEW_STALE: Head<'static> = gauge(
    "view_stale",
    "",
    "1 while the view is too old, and the edge routes by its own requests and failures",
);
const LOG_DROPPED: Head<'static> = Head {
    name: "access_log_dropped",
    unit: "",
    help: "Lines of the access log dropped because the disk was full or too slow",
    kind: Kind::Counter,
};
const NODE_UP: Head<'static> = gauge("node_up", "", "1 while requests go to the node");
const NODE_IN_FLIGHT: Head<'static> =
    gauge("node_in_flight", "", "This edge's requests in flight at the node");
const NODE_UNANSWERED: Head<'static> = gauge(
    "node_unanswered",
    "requests",
    "Requests at the node whose answer has not begun, of this edge and those that it hears",
);
const PEER_AGE: Head<'static> = gauge("peer_age", "seconds", "Since the other edge was last heard");
const PEER_UNANSWERED: Head<'static> = gauge(
    "peer_unanswered",
    "requests",
    "The other edge's requests at all nodes whose answer has not begun, while it is heard",
);
const NODE_LEARNED_WORKERS: Head<'static> = gauge(
    "node_learned_workers",
    "",
    "Requests that the node's foreign server handles at a time, as learned; infinite if none waits for a worker",
);
const NODE_LOAD: Head<'static> =
    gauge("node_load", "", "The node's load index; 1 means that all of it is in use");
const NODE_SITE: Head<'static> =
    gauge("node_site", "", "1 for the site that the node serves, 0 for every other");
const NODE_STATE: Head<'static> =
    gauge("node_state", "", "1 for the state of the node: serving, draining, changing, held, pinned, free");
const RECORD_AGE: Head<'static> =
    gauge("record_age", "seconds", "Age of the figures in the node's last good record");
const WORDS_AGE: Head<'static> =
    gauge("words_age", "seconds", "Since the node's ownership word was last read");
const BOARD_AGE: Head<'static> =
    gauge("board_age", "seconds", "Since the site's lock and budget were last read");

impl Collector for ViewCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = clock::now();
        let State { view, peers, seen, members, .. } = &*self.state;
        let members = members.load();
        let (nodes, sites) = (&members.nodes, &members.sites);
        let alone = |value| [(Labels::new(), value)];
        let view_age = view.age(now).map_or(f64::INFINITY, |age| age.as_secs_f64());
        family(&mut encoder, &VIEW_AGE, alone(view_age))?;
        family(&mut encoder, &VIEW_STALE, alone(flag(view.is_stale(now))))?;
        if let Some(dropped) = self.live.as_ref().and_then(|live| live.dropped()) {
            family(&mut encoder, &LOG_DROPPED, alone(dropped as f64))?;
        }
        self.each_node(&mut encoder, &NODE_UP, |node| {
            // A node that was never heard is in no site, so no request goes to it.
            Some(flag(view.is_up(node, now) && view.is_known(node)))
        })?;
        self.each_node(&mut encoder, &NODE_IN_FLIGHT, |node| Some(view.in_flight(node).into()))?;
        let unanswered = |node| Some(view.traffic(node, now).in_flight.into());
        self.each_node(&mut encoder, &NODE_UNANSWERED, unanswered)?;
        let peers: Vec<_> = peers.iter().flat_map(|peers| peers.heard()).collect();
        let peers =
            || peers.iter().map(|(name, heard_at, unanswered)| (name.as_str(), *heard_at, *unanswered));
        let ages = peers().map(|(name, heard_at, _)| (vec![("edge", name)], age(now, heard_at)));
        family(&mut encoder, &PEER_AGE, ages)?;
        let is_heard = |at: Option<Time>| at.is_some_and(|at| now.since(at) <= view.stale());
        let heard = peers().filter(|(_, heard_at, _)| is_heard(*heard_at));
        let heard = heard.map(|(name, _, unanswered)| (vec![("edge", name)], unanswered as f64));
        family(&mut encoder, &PEER_UNANSWERED, heard)?;
        self.each_node(&mut encoder, &NODE_LOAD, |node| Some(view.index(node).ratio()))?;
        let all_sites = nodes.len() * sites.len() <= NODE_SITE_SERIES_MAX;
        let series = nodes.entries().flat_map(|(node, name)| {
            let serves = view.ownership(NodeId::new(node)).and_then(|ownership| ownership.serving_site());
            let told = sites.entries().filter_map(move |(slot, site)| {
                let serves = serves == Some(SiteId::new(slot));
                (serves || all_sites).then_some((site.as_str(), serves))
            });
            let name = name.as_str();
            told.map(move |(site, serves)| (vec![("node", name), ("site", site)], flag(serves)))
        });
        family(&mut encoder, &NODE_SITE, series)?;
        let states = nodes.entries().filter_map(|(node, name)| {
            let state = view.ownership(NodeId::new(node))?.state;
            Some((vec![("node", name.as_str()), ("state", state.word())], 1.0))
        });
        family(&mut encoder, &NODE_STATE, states)?;

        let look = seen.last();
        let last = |node: NodeId| -> &NodeSeen { &look.nodes[node.index()] };
        self.each_node(&mut encoder, &RECORD_AGE, |node| Some(age(now, last(node).record_at)))?;
        let workers = |node| match last(node).workers {
            Workers::Unknown => None,
            Workers::Learned(workers) => Some(workers.into()),
            Workers::NotBound => Some(f64::INFINITY),
        };
        self.each_node(&mut encoder, &NODE_LEARNED_WORKERS, workers)?;
        self.each_node(&mut encoder, &WORDS_AGE, |node| Some(age(now, last(node).words_at)))?;
        let boards = sites.entries();
        let boards = boards.map(|(slot, site)| (vec![("site", site.as_str())], age(now, look.boards[slot])));
        family(&mut encoder, &BOARD_AGE, boards)?;
        for figure in HOT {
            let name = format!("node_{}", figure.head.name);
            let of = |node| {
                let hot = seen.fresh(last(node), now).filter(|hot| hot.valid & figure.valid != 0)?;
                Some((figure.of)(hot))
            };
            self.each_node(&mut encoder, &Head { name: &name, ..figure.head }, of)?;
        }
        Ok(())
    }
}

impl ViewCollector {
    /// Writes one family, with a value for each node that has one.
    fn each_node(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        head: &Head<'_>,
        value: impl Fn(NodeId) -> Option<f64>,
    ) -> fmt::Result {
        let members = self.state.members.load();
        let values = members.nodes.entries().map(|(slot, name)| (name, value(NodeId::new(slot))));
        family(
            encoder,
            head,
            values.filter_map(|(name, value)| Some((vec![("node", name.as_str())], value?))),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidelong_layout::Ownership;
    use sidelong_policy::balance::Balance;
    use sidelong_policy::index::Reading;
    use sidelong_reconfig::Members;

    use super::*;
    use crate::seen::ScanDisplay;
    use crate::view::View;

    /// The series of `node_site`, in a cluster whose first node serves the first site.
    fn node_sites(nodes: usize, sites: usize) -> Vec<String> {
        let names = |letter: char, count| (0..count).map(|index| format!("{letter}{index}")).collect();
        let stale = Duration::from_secs(1);
        let view = View::new(nodes, sites, stale, Balance::Weighted, Default::default());
        view.observe(NodeId::new(0), Some(Ownership::serving(SiteId::new(0), 1)), Reading::default());
        let state = State {
            view: Arc::new(view),
            gate: None,
            peers: None,
            seen: Arc::new(ScanDisplay::new((nodes, sites), stale)),
            members: Arc::new(SharedMembers::from_pointee(Members {
                nodes: names('n', nodes),
                sites: names('s', sites),
                ..Members::default()
            })),
            documents: None,
        };
        let page = Metrics::new(Arc::new(state), None, 1, About::default(), Vec::new()).encode();
        page.lines().filter(|line| line.starts_with("sidelong_edge_node_site{")).map(str::to_owned).collect()
    }

    #[test]
    fn every_pair_of_a_node_and_a_site_has_a_series_while_they_are_few() {
        let series = |node, site, value| {
            format!("sidelong_edge_node_site{{node=\"{node}\",site=\"{site}\"}} {value:.1}")
        };
        let expected = [
            series("n0", "s0", 1.0),
            series("n0", "s1", 0.0),
            series("n1", "s0", 0.0),
            series("n1", "s1", 0.0),
        ];
        assert_eq!(node_sites(2, 2), expected);
        let nodes = NODE_SITE_SERIES_MAX / 1024;
        assert_eq!(node_sites(nodes, 1024).len(), NODE_SITE_SERIES_MAX);
        assert_eq!(node_sites(nodes, 1025), [series("n0", "s0", 1.0)]);
    }
}
