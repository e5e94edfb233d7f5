//! Parts that reports on runs of `up` share.

use std::time::Duration;

use serde_json::{Value, json};

use crate::design;
use crate::setup::{CLIENTS_PER_EDGE, Demand, EDGES, Ground, Layout, POOL, Run, SERVICE, WORKERS, node_rate};

/// Requests/s of one node of Balaji et al. 2004: 26,000 on three of them (4.3.1).
pub(crate) const BALAJI_NODE_RATE: f64 = 26_000.0 / 3.0;

/// Settings that all runs of `up` in an experiment share.
#[derive(Clone, PartialEq, Debug)]
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
        let layout = Layout::Three;
        let run = Run { layout, demand, configuration, burst: 1, pause: Duration::ZERO, requests: 1 };
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
            scheme: file.scheme().as_str(),
            balance: file.balance.policy.as_str(),
            protocol: file.baseline.protocol.as_str(),
        }
    }

    pub(crate) fn describe(&self) -> String {
        let Settings { workload, nodes, workers_per_node, service_ms, requests_per_s_per_node, .. } = self;
        let Settings {
            edges, clients_per_edge, history_ms, sensitivity_ms, scheme, balance, protocol, ..
        } = self;
        format!(
            "{nodes} nodes with {workers_per_node} workers each, every request held for {service_ms} ms by waiting (so \
             {requests_per_s_per_node} requests/s a node); {edges} edges, {clients_per_edge} closed-loop clients at each; \
             T = {history_ms} ms, S = {sensitivity_ms} ms; load by {scheme}, balancing {balance}, protocol {protocol}; workload: \
             {workload}.",
        )
    }
}

/// The settings of an experiment beside Balaji et al. 2004, with those of `balaji.md`, which ends its report: the scale and the set-up.
pub(crate) fn beside_balaji(demand: Demand, own: Value) -> Value {
    let seconds = |rate: f64| format!("{:.2} s to {:.1} s", 512.0 / rate, 16384.0 / rate);
    let shared = json!({
        "node_rate": node_rate(),
        "paper_node_rate": BALAJI_NODE_RATE.round(),
        "times_as_long": (BALAJI_NODE_RATE / node_rate()).round(),
        "seconds_there": seconds(BALAJI_NODE_RATE),
        "seconds_here": seconds(node_rate()),
        "set_up": Settings::of(demand).describe(),
    });
    design::settings(shared, own)
}
