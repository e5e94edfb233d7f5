//! Parts that reports on runs of `up` share.

use std::time::Duration;

use serde::Serialize;

use crate::setup::{
    CLIENTS_PER_EDGE, Demand, EDGES, Ground, Layout, POOL, Run, SERVICE, Until, WORKERS, node_rate,
};
use crate::story::Story;

/// Requests/s of one node of Balaji et al. 2004: 26,000 on three of them (4.3.1).
pub(crate) const BALAJI_NODE_RATE: f64 = 26_000.0 / 3.0;

/// Settings that all runs of `up` in an experiment share.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) workload: String,
    pub(crate) nodes: usize,
    pub(crate) workers_per_node: u16,
    pub(crate) service_ms: f64,
    pub(crate) requests_per_s_per_node: f64,
    pub(crate) edges: u16,
    pub(crate) clients_per_edge: u32,
    pub(crate) history_ms: f64,
    pub(crate) sensitivity_ms: f64,
    pub(crate) record_period_ms: f64,
    pub(crate) scheme: &'static str,
    pub(crate) balance: &'static str,
    pub(crate) protocol: &'static str,
}

impl Settings {
    pub(crate) fn of(demand: Demand) -> Settings {
        // The file of any run has the values of all runs.
        let configuration = sidelong_config::Configuration::Reconfigured;
        let (layout, until) = (Layout::Three, Until::Requests(1));
        let run = Run { layout, demand, configuration, burst: 1, pause: Duration::ZERO, until };
        let file = run.cluster_file(&Ground { name: "any".into(), port: 1, root: None });
        Settings {
            workload: demand.describe(),
            nodes: POOL,
            workers_per_node: WORKERS,
            service_ms: SERVICE.as_secs_f64() * 1e3,
            requests_per_s_per_node: node_rate(),
            edges: EDGES,
            clients_per_edge: CLIENTS_PER_EDGE,
            history_ms: file.reconfig.history.as_secs_f64() * 1e3,
            sensitivity_ms: file.reconfig.sensitivity.as_secs_f64() * 1e3,
            record_period_ms: file.load.period.as_secs_f64() * 1e3,
            scheme: file.load.scheme.as_str(),
            balance: file.balance.policy.as_str(),
            protocol: file.reconfig.protocol.as_str(),
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} nodes with {} workers each, every request held for {} ms by waiting (so {} requests/s a node); {} edges, \
             {} closed-loop clients at each; T = {} ms, S = {} ms; load by {}, balancing {}, protocol {}; workload: {}.",
            self.nodes,
            self.workers_per_node,
            self.service_ms,
            self.requests_per_s_per_node,
            self.edges,
            self.clients_per_edge,
            self.history_ms,
            self.sensitivity_ms,
            self.scheme,
            self.balance,
            self.protocol,
            self.workload,
        )
    }
}

/// The length of a burst in seconds of one node: how long a node alone would take for it. Unlike the number of requests it
/// can be compared between machines.
pub(crate) fn node_seconds(burst: u64) -> f64 {
    burst as f64 / node_rate()
}

/// Ends a report beside Balaji et al. 2004: the scale, the differences, and how it was measured.
pub(crate) fn close_beside_balaji(story: &mut Story, demand: Demand, errors: u64) {
    story.heading("Scale");
    story.paragraph(&format!(
        "Their nodes serve about {BALAJI_NODE_RATE:.0} requests/s each (26,000 on three), these {:.0}: throughput measures the \
         decisions, not the machine. A burst of as many requests therefore lasts {:.0} times as long here. Bursts compare in \
         seconds of one node: 512 to 16384 requests are {:.2} s to {:.2} s of one of their nodes, and {:.2} s to {:.1} s of one \
         of these.",
        node_rate(),
        BALAJI_NODE_RATE / node_rate(),
        512.0 / BALAJI_NODE_RATE,
        16384.0 / BALAJI_NODE_RATE,
        node_seconds(512),
        node_seconds(16384),
    ));
    story.heading("What differs from the paper");
    story.list([
        "Hardware: 16 nodes on InfiniBand. Here all processes share one machine, and one-sided reads and atomics go through \
         its shared memory. A node waits for its service time instead of burning CPU, so that the machine does not become \
         the limit."
            .to_owned(),
        "The number of load-balancers, and T and S: the paper does not print them. Those used here are below.".to_owned(),
        "The points of the figures: the paper's text gives a few of them, and those are compared here.".to_owned(),
    ]);
    story.how(&Settings::of(demand).describe());
    story.how(&format!("{errors} requests failed in all runs."));
}
