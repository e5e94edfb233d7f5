//! What processes tell of themselves, in OpenMetrics: here the edge, in `node` a node. docs/metrics.md lists it all.
//!
//! Counters are bumped where things happen; what the view and the last look know is read at the scrape.

mod emit;
mod figures;
mod format;
mod gate;
mod node;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sidelong_layout::{NodeId, SiteId, Time};

use crate::access_log::AccessLog;
use crate::clock;
use crate::door::REFUSALS;
use crate::gate::Gate;
use crate::peers::Peers;
use crate::seen::{NodeSeen, Seen};
use crate::settings::Settings;
use crate::view::View;
use emit::{Labels, age, family};
use figures::Head;

pub use emit::{About, Counts};
pub(crate) use figures::{HOT, HotFigure as Figure, Kind};
pub(crate) use format::Format;
use gate::GateCollector;
pub use node::{NodeMetrics, ReadOwn};

/// The bounds of the latency buckets, in seconds.
const LATENCY_S: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Likewise for moves.
const MOVE_S: [f64; 10] = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SiteCode {
    site: String,
    code: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SiteLabel {
    site: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct FromTo {
    from: String,
    to: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct EndLabel {
    end: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

/// What an edge's other parts know, read at the scrape.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: Arc<View>,
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) peers: Option<Arc<Peers>>,
    pub(crate) seen: Arc<Seen>,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// For each site and class of status, 1xx to 5xx and none; looked up once.
    answers: Vec<[Counter; 6]>,
    latency: Vec<Histogram>,
    retries: Counter,
    misdirected: Counter,
    refused: Family<CodeLabel, Counter>,
    moves: Family<FromTo, Counter>,
    abandoned: Family<EndLabel, Counter>,
    move_seconds: Histogram,
    rejected_reads: Counter,
    /// Site names, to label by.
    sites: Vec<String>,
}

impl Metrics {
    pub(crate) fn new(
        settings: &Settings,
        state: State,
        log: Option<AccessLog>,
        about: Vec<About>,
        counts: Vec<Counts>,
    ) -> Self {
        let mut registry = Registry::with_prefix("sidelong_edge");
        about.into_iter().for_each(|about| about.register(&mut registry));
        let requests = Family::<SiteCode, Counter>::default();
        registry.register("requests", "Requests answered, by site and class of status", requests.clone());
        let seconds = Family::<SiteLabel, Histogram>::new_with_constructor(|| Histogram::new(LATENCY_S));
        registry.register_with_unit(
            "request_duration",
            "From the header read to the answer sent, of requests sent to a node, by site",
            Unit::Seconds,
            seconds.clone(),
        );
        let sites: Vec<String> = settings.sites.iter().map(|site| site.name.clone()).collect();
        let code = |site: &String, class| {
            let code = if class == 0 { "none".to_owned() } else { format!("{class}xx") };
            requests.get_or_create_owned(&SiteCode { site: site.clone(), code })
        };
        let metrics = Metrics {
            answers: sites.iter().map(|site| std::array::from_fn(|class| code(site, class))).collect(),
            latency: sites
                .iter()
                .map(|site| seconds.get_or_create_owned(&SiteLabel { site: site.clone() }))
                .collect(),
            retries: Counter::default(),
            misdirected: Counter::default(),
            refused: Family::default(),
            moves: Family::default(),
            abandoned: Family::default(),
            move_seconds: Histogram::new(MOVE_S),
            rejected_reads: Counter::default(),
            registry: Registry::default(),
            sites,
        };
        registry.register(
            "retries",
            "Requests sent to another node after a failure",
            metrics.retries.clone(),
        );
        registry.register("misdirected", "Requests for a Host of no site", metrics.misdirected.clone());
        // Those that have not happened yet are 0.
        for code in REFUSALS {
            let _ = metrics.refused.get_or_create(&CodeLabel { code });
        }
        registry.register(
            "refused",
            "Clients shown out before they had a whole request: too slow, too large, too many",
            metrics.refused.clone(),
        );
        registry.register("moves", "Nodes moved by this edge, by site", metrics.moves.clone());
        registry.register(
            "moves_abandoned",
            "Moves begun and not carried out, by how they ended",
            metrics.abandoned.clone(),
        );
        registry.register_with_unit(
            "move_duration",
            "From the decision to the node serving its new site",
            Unit::Seconds,
            metrics.move_seconds.clone(),
        );
        registry.register(
            "rejected_reads",
            "Load records that were read and not used: torn, stale or of another process",
            metrics.rejected_reads.clone(),
        );
        let nodes = settings.nodes.iter().map(|node| node.name.clone()).collect();
        let State { view, gate, peers, seen } = state;
        if let Some(gate) = gate {
            let (view, sites) = (Arc::clone(&view), metrics.sites.clone());
            registry.register_collector(Box::new(GateCollector { gate, view, sites }));
        }
        registry.register_collector(Box::new(ViewCollector {
            view,
            peers,
            seen,
            nodes,
            sites: metrics.sites.clone(),
            log,
        }));
        for counts in counts {
            registry.register_collector(Box::new(counts));
        }
        Metrics { registry, ..metrics }
    }

    /// A request was answered with `status` (0: not at all) after `elapsed`, having been sent to `tries` nodes.
    pub(crate) fn answered(&self, site: Option<SiteId>, status: u16, elapsed: Duration, tries: u32) {
        match site {
            Some(site) => {
                let class = usize::from(status / 100).min(5);
                self.answers[site.index()][class].inc();
                // What was answered at the door was quick, and says nothing of how long requests take.
                if tries > 0 {
                    self.latency[site.index()].observe(elapsed.as_secs_f64());
                }
            }
            None => {
                self.misdirected.inc();
            }
        }
        if tries > 1 {
            self.retries.inc_by(u64::from(tries) - 1);
        }
    }

    /// A node was moved, in `elapsed`.
    pub fn moved(&self, from: Option<SiteId>, to: SiteId, elapsed: Duration) {
        let name = |site: SiteId| self.sites[site.index()].clone();
        let from = from.map_or_else(|| "none".to_owned(), name);
        self.moves.get_or_create(&FromTo { from, to: name(to) }).inc();
        self.move_seconds.observe(elapsed.as_secs_f64());
    }

    /// A move or repair ended otherwise: `end` is one of a fixed few words.
    pub fn abandoned(&self, end: &'static str) {
        self.abandoned.get_or_create(&EndLabel { end }).inc();
    }

    /// A client was shown out at the door, with a status for an answer.
    pub(crate) fn refused(&self, code: u16) {
        self.refused.get_or_create(&CodeLabel { code }).inc();
    }

    /// `count` load records were read and could not be used.
    pub fn rejected_reads(&self, count: u64) {
        self.rejected_reads.inc_by(count);
    }

    /// All of it as OpenMetrics text.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// What the view and the last look know, read at the scrape.
#[derive(Debug)]
struct ViewCollector {
    view: Arc<View>,
    peers: Option<Arc<Peers>>,
    seen: Arc<Seen>,
    nodes: Vec<String>,
    sites: Vec<String>,
    log: Option<AccessLog>,
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit, help, kind: Kind::Gauge }
}

const VIEW_AGE: Head<'static> = gauge("view_age", "seconds", "Since the view was last refreshed");
const VIEW_STALE: Head<'static> = gauge("view_stale", "", "1 while the edge routes by what it knows itself");
const LOG_DROPPED: Head<'static> = Head {
    name: "access_log_dropped",
    unit: "",
    help: "Lines of the access log that were not written in time",
    kind: Kind::Counter,
};
const NODE_UP: Head<'static> = gauge("node_up", "", "1 while requests go to the node");
const NODE_IN_FLIGHT: Head<'static> = gauge("node_in_flight", "", "This edge's requests at the node");
const NODE_UNANSWERED: Head<'static> = gauge(
    "node_unanswered",
    "requests",
    "Requests at the node that are not answered, of this edge and those that it hears",
);
const PEER_AGE: Head<'static> = gauge("peer_age", "seconds", "Since that edge was last heard");
const PEER_UNANSWERED: Head<'static> = gauge(
    "peer_unanswered",
    "requests",
    "That edge's requests that are not answered, at all nodes, while it is heard",
);
const NODE_LOAD: Head<'static> = gauge("node_load", "", "The node's load index, 1 for all in use");
const NODE_SITE: Head<'static> = gauge("node_site", "", "1 for the site that the node serves");
const RECORD_AGE: Head<'static> =
    gauge("record_age", "seconds", "Since the figures of the node's last good record were true");
const WORDS_AGE: Head<'static> =
    gauge("words_age", "seconds", "Since the node's ownership word was last read");
const BOARD_AGE: Head<'static> =
    gauge("board_age", "seconds", "Since the site's lock and budget were last read");

impl Collector for ViewCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = clock::now();
        let view = &self.view;
        let alone = |value| [(Labels::new(), value)];
        let view_age = view.age(now).map_or(f64::INFINITY, |age| age.as_secs_f64());
        family(&mut encoder, &VIEW_AGE, alone(view_age))?;
        family(&mut encoder, &VIEW_STALE, alone(flag(view.is_stale(now))))?;
        if let Some(log) = &self.log {
            family(&mut encoder, &LOG_DROPPED, alone(log.dropped() as f64))?;
        }
        self.each_node(&mut encoder, &NODE_UP, |node| Some(flag(view.is_up(node, now))))?;
        self.each_node(&mut encoder, &NODE_IN_FLIGHT, |node| Some(view.in_flight(node).into()))?;
        let unanswered = |node| Some(view.traffic(node, now).in_flight.into());
        self.each_node(&mut encoder, &NODE_UNANSWERED, unanswered)?;
        let peers = || self.peers.iter().flat_map(|peers| peers.iter());
        let ages = peers().map(|(name, heard_at, _)| (vec![("edge", name)], age(now, heard_at)));
        family(&mut encoder, &PEER_AGE, ages)?;
        let is_heard = |at: Option<Time>| at.is_some_and(|at| now.since(at) <= view.stale());
        let heard = peers().filter(|(_, heard_at, _)| is_heard(*heard_at));
        let heard = heard.map(|(name, _, unanswered)| (vec![("edge", name)], unanswered as f64));
        family(&mut encoder, &PEER_UNANSWERED, heard)?;
        self.each_node(&mut encoder, &NODE_LOAD, |node| Some(view.index(node).ratio()))?;
        let site = |node| Some(self.sites[view.ownership(node)?.serving_site()?.index()].as_str());
        let served = view.nodes().filter_map(|node| {
            Some((vec![("node", self.nodes[node.index()].as_str()), ("site", site(node)?)], 1.0))
        });
        family(&mut encoder, &NODE_SITE, served)?;

        let look = self.seen.look();
        let seen = |node: NodeId| -> &NodeSeen { &look.nodes[node.index()] };
        self.each_node(&mut encoder, &RECORD_AGE, |node| Some(age(now, seen(node).record_at)))?;
        self.each_node(&mut encoder, &WORDS_AGE, |node| Some(age(now, seen(node).words_at)))?;
        let boards = self.sites.iter().zip(&look.boards);
        let boards = boards.map(|(site, read_at)| (vec![("site", site.as_str())], age(now, *read_at)));
        family(&mut encoder, &BOARD_AGE, boards)?;
        for figure in HOT {
            let name = format!("node_{}", figure.head.name);
            let of = |node| {
                let hot = self.seen.fresh(seen(node), now).filter(|hot| hot.valid & figure.valid != 0)?;
                Some((figure.of)(hot))
            };
            self.each_node(&mut encoder, &Head { name: &name, ..figure.head }, of)?;
        }
        Ok(())
    }
}

impl ViewCollector {
    /// One family with a value for each node of which there is something to say.
    fn each_node(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        head: &Head<'_>,
        value: impl Fn(NodeId) -> Option<f64>,
    ) -> fmt::Result {
        let metric = |node: NodeId| Some((vec![("node", self.nodes[node.index()].as_str())], value(node)?));
        family(encoder, head, self.view.nodes().filter_map(metric))
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}
