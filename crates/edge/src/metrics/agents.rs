//! The metrics of a process with the agents of many nodes, read at the scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::emit::{ConfigCollector, ConfigState, Labels, family, flag};
use super::figures::{Head, gauge};
use super::process::encode;

/// How the agents are.
#[derive(Clone, Debug, Default)]
pub struct AgentsStatus {
    /// The nodes whose agents the process has, and whether each runs.
    pub nodes: Vec<(String, bool)>,
    /// What is wrong with the source of nodes; `None` without a source.
    pub source: Option<Result<(), String>>,
}

/// The metrics of such a process.
#[derive(Debug)]
pub struct AgentsMetrics {
    registry: Registry,
}

impl AgentsMetrics {
    /// Of a process that goes by `config`, and of what `read` returns at each scrape.
    pub fn new(config: Arc<ConfigState>, read: Box<dyn Fn() -> AgentsStatus + Send + Sync>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ConfigCollector(config)));
        registry.register_collector(Box::new(Figures(read)));
        AgentsMetrics { registry }
    }

    /// The metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        encode(&self.registry, None)
    }
}

struct Figures(Box<dyn Fn() -> AgentsStatus + Send + Sync>);

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

const RUNNING: Head<'static> =
    gauge("sidelong_agents_node_running", "", "Whether the agent of the node runs");
const SUCCESSFUL: Head<'static> = gauge(
    "sidelong_agents_source_successful",
    "",
    "0 while the source of nodes does not answer, or what it says cannot be done",
);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let AgentsStatus { nodes, source } = (self.0)();
        let running = nodes.iter().map(|(node, runs)| (vec![("node", node.as_str())], flag(*runs)));
        family(&mut encoder, &RUNNING, running)?;
        family(&mut encoder, &SUCCESSFUL, source.map(|source| (Labels::new(), flag(source.is_ok()))))
    }
}
