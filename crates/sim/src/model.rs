//! The models, and the fields and figures of each.

use sidelong_layout::vocabulary;

use crate::datacenter;
use crate::measures::FIGURES;

vocabulary! {
    /// The model: `run.model`.
    Model {
        /// The cluster of Gu and Wang 2004 around the cooperative cache.
        #[default]
        Cache = "cache",
        /// The shared data-center of Balaji et al. 2004, whose nodes move between sites.
        Reconfig = "reconfig",
    }
}

impl Model {
    /// Fields that are columns whether or not they are swept.
    pub(crate) const fn always(self) -> [&'static str; 3] {
        match self {
            Model::Cache => ["seed", "nodes", "protocol"],
            Model::Reconfig => ["seed", "nodes", "reconfig_protocol"],
        }
    }

    /// All figures, in the order of their columns.
    pub(crate) fn figures(self) -> Vec<&'static str> {
        match self {
            Model::Cache => FIGURES.iter().map(|(name, _)| *name).collect(),
            Model::Reconfig => datacenter::FIGURES.iter().map(|(name, _)| *name).collect(),
        }
    }

    /// The figures of `report.md` and of comparisons.
    pub(crate) const fn told(self) -> &'static [&'static str] {
        match self {
            Model::Cache => &[
                "response_ms_mean",
                "response_ms_p99",
                "requests_per_s",
                "disk_rate",
                "read_failure_rate",
                "update_messages_per_request",
                "update_bytes_per_request",
            ],
            Model::Reconfig => &[
                "requests_per_s",
                "response_ms_p50",
                "response_ms_p99",
                "rejected",
                "goodput",
                "moves",
                "thrash",
                "floor_violations",
                "nodes_lost",
                "locks_stuck",
                "time_to_balance_ms",
            ],
        }
    }

    /// The panels of `figure.svg`: each figure with its title and unit.
    pub(crate) const fn shown(self) -> [(&'static str, &'static str, &'static str); 3] {
        match self {
            Model::Cache => [
                ("response_ms_mean", "(a) mean response", "response time (ms)"),
                ("requests_per_s", "(b) throughput", "requests/s"),
                ("read_failure_rate", "(c) failed reads", "share of one-sided reads"),
            ],
            Model::Reconfig => [
                ("requests_per_s", "(a) throughput", "requests/s"),
                ("response_ms_p99", "(b) 99th percentile of responses", "response time (ms)"),
                ("time_to_balance_ms", "(c) from load step to balance", "time (ms)"),
            ],
        }
    }
}
