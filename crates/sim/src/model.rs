//! Which models there are, and what each has to say.

use crate::datacenter;
use crate::fields::Field;
use crate::sweep::FIGURES;

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Model {
    /// C's cluster around the cooperative cache.
    #[default]
    Cache,
    /// R's shared data-center, whose nodes move between sites.
    Reconfig,
}

impl Model {
    /// In the order in which they are named.
    pub const ALL: [Model; 2] = [Model::Cache, Model::Reconfig];

    /// As `run.model` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Model::Cache => "cache",
            Model::Reconfig => "reconfig",
        }
    }

    /// The one of that name; names are checked where fields are read.
    pub(crate) fn named(name: &str) -> Model {
        Model::ALL.into_iter().find(|model| model.as_str() == name).unwrap_or_default()
    }

    /// Whether a field is of this model.
    pub fn has(self, field: &Field) -> bool {
        match field.section {
            "sites" | "admission" | "reconfig" => self == Model::Reconfig,
            "run" => self == Model::Cache || field.key != "warmup",
            // How many nodes there are is for both to ask.
            _ => self == Model::Cache || field.key == "nodes",
        }
    }

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
                "turned_away",
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

    /// The figures of `figure.svg`: each with its title, and its unit.
    pub(crate) const fn shown(self) -> [(&'static str, &'static str, &'static str); 3] {
        match self {
            Model::Cache => [
                ("response_ms_mean", "(a) response, mean", "ms"),
                ("requests_per_s", "(b) throughput", "requests/s"),
                ("read_failure_rate", "(c) reads that fail", "of all one-sided reads"),
            ],
            Model::Reconfig => [
                ("requests_per_s", "(a) throughput", "requests/s"),
                ("response_ms_p99", "(b) response, 99th percentile", "ms"),
                ("time_to_balance_ms", "(c) load step to balance", "ms"),
            ],
        }
    }
}
