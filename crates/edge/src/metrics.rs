//! What the edge tells of itself, in OpenMetrics.
//!
//! Counters are bumped where things happen; what the view knows is read at the scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sidelong_layout::SiteId;

use crate::access_log::AccessLog;
use crate::clock;
use crate::door::REFUSALS;
use crate::settings::Settings;
use crate::view::View;

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
        view: Arc<View>,
        log: Option<AccessLog>,
        counts: Vec<Counts>,
    ) -> Self {
        let mut registry = Registry::with_prefix("sidelong_edge");
        let requests = Family::<SiteCode, Counter>::default();
        registry.register("requests", "Requests answered, by site and class of status", requests.clone());
        let seconds = Family::<SiteLabel, Histogram>::new_with_constructor(|| Histogram::new(LATENCY_S));
        registry.register_with_unit(
            "request_duration",
            "From the header read to the answer sent, by site",
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
        registry.register_collector(Box::new(ViewCollector {
            view,
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
                self.latency[site.index()].observe(elapsed.as_secs_f64());
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

/// What others count since the start, told among the edge's own metrics: a family of counters, read at the scrape.
pub struct Counts {
    /// Of the family, without what all names begin with.
    pub name: &'static str,
    /// What is counted.
    pub help: &'static str,
    /// What tells one counter from the next.
    pub label: &'static str,
    /// The label's values, always the same ones, each with its count.
    pub read: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counts({})", self.name)
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (value, count) in (self.read)() {
            ConstCounter::new(count).encode(family.encode_family(&[(self.label, value)])?)?;
        }
        Ok(())
    }
}

/// What the view knows, read at the scrape.
#[derive(Debug)]
struct ViewCollector {
    view: Arc<View>,
    nodes: Vec<String>,
    sites: Vec<String>,
    log: Option<AccessLog>,
}

impl Collector for ViewCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = clock::now();
        let age = self.view.age(now).map_or(f64::INFINITY, |age| age.as_secs_f64());
        one(&mut encoder, "view_age", "Since the view was last refreshed", Some(&Unit::Seconds), age)?;
        let stale = f64::from(u8::from(self.view.is_stale(now)));
        one(&mut encoder, "view_stale", "1 while the edge routes by what it knows itself", None, stale)?;
        if let Some(log) = &self.log {
            let dropped = ConstCounter::new(log.dropped());
            let descriptor = encoder.encode_descriptor(
                "access_log_dropped",
                "Lines of the access log that were not written in time",
                None,
                dropped.metric_type(),
            )?;
            dropped.encode(descriptor)?;
        }
        type Figure = fn(&ViewCollector, sidelong_layout::NodeId) -> f64;
        let figures: [(&str, &str, Figure); 3] = [
            ("node_up", "1 while requests go to the node", |this, node| {
                f64::from(u8::from(this.view.is_up(node, clock::now())))
            }),
            ("node_in_flight", "This edge's requests at the node", |this, node| {
                f64::from(this.view.in_flight(node))
            }),
            ("node_load", "The node's load index, 1 for all in use", |this, node| {
                this.view.index(node).ratio()
            }),
        ];
        for (name, help, figure) in figures {
            self.each_node(&mut encoder, name, help, |node| Some((None, figure(self, node))))?;
        }
        self.each_node(&mut encoder, "node_site", "1 for the site that the node serves", |node| {
            let site = self.view.ownership(node)?.serving_site()?;
            Some((Some(self.sites[site.index()].as_str()), 1.0))
        })
    }
}

impl ViewCollector {
    /// One gauge with a value for each node of which there is something to say, and the site as a label where given.
    fn each_node<'a>(
        &'a self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(sidelong_layout::NodeId) -> Option<(Option<&'a str>, f64)>,
    ) -> Result<(), std::fmt::Error> {
        let kind = ConstGauge::new(0.0f64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for node in self.view.nodes() {
            let Some((site, value)) = value(node) else { continue };
            let gauge = ConstGauge::new(value);
            let label = ("node", self.nodes[node.index()].as_str());
            match site {
                Some(site) => gauge.encode(family.encode_family(&[label, ("site", site)])?)?,
                None => gauge.encode(family.encode_family(&[label])?)?,
            }
        }
        Ok(())
    }
}

fn one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
}
