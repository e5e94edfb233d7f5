//! The agents of many nodes in one process: of all nodes whose control endpoints are at one host. It follows the roster: an agent begins when its
//! node joins, ends when that has left, and begins anew when the node's server is elsewhere. A service of Kubernetes may say which nodes there
//! are ([`source`](SourceSpec)).

mod members;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_config::{self as config, Cluster};
use sidelong_edge::{Admin, AgentsMetrics, AgentsStatus, ConfigState, Pages};
use sidelong_fabric::RunDirectory;

use crate::failure::{Failure, some};
use crate::listen::listen;
use crate::node::{self, NodeOptions};
use crate::part::{PartSpec, Running, Shutdown};
use crate::roster::{self, Fetching, Roster};
pub use source::SourceSpec;

/// Interval between two looks at the roster, and at agents that have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause after an agent could not begin.
const PAUSE: Duration = Duration::from_secs(1);
/// Agents that begin at once: each asks the other parts which roster is the newest.
const BEGIN_MAX: usize = 16;

/// What a process of many agents is started with.
pub struct AgentsSpec {
    /// The cluster, which etcd has, as its file describes it.
    pub cluster: Cluster,
    /// The host that is in `fabric_listen` of its nodes.
    pub at: IpAddr,
    /// What says which nodes there are, if not persons alone.
    pub source: Option<SourceSpec>,
    /// Where metrics and readiness are asked for.
    pub admin: Option<SocketAddr>,
}

/// Starts the agents.
///
/// # Errors
/// If etcd does not have the cluster's file, neither etcd nor another part nor this machine has its newest roster, or it cannot listen.
pub fn start(spec: AgentsSpec) -> Result<Running, Failure> {
    let AgentsSpec { cluster, at, source, admin } = spec;
    let cluster = roster::follow(&cluster)?;
    let shown = Shown::default();
    let admin = admin.map(|at| {
        let listener =
            listen(at).map_err(|error| Failure::new(format!("agents: cannot listen on {at}: {error}")))?;
        Ok::<_, Failure>(Admin::start(listener, shown.pages())?)
    });
    let admin = admin.transpose()?;
    let run = RunDirectory::at(&cluster.run_dir);
    let shutdown = Shutdown::new();
    let of_source = source.as_ref().map(|spec| spec.ports.clone());
    if let Some(spec) = source {
        source::start(spec, (&cluster, at), shown.clone(), shutdown.clone())?;
    }
    let told = shutdown.clone();
    Running::start("agents", shutdown, move || {
        let (_fetching, _admin) = (Fetching::start(&cluster), admin);
        let mut agents = Agents {
            cluster,
            at,
            run,
            shown,
            of_source,
            known: Known::default(),
            running: BTreeMap::new(),
            failed: BTreeMap::new(),
            returning: None,
            rest: None,
        };
        while !told.is_told() {
            agents.look();
            thread::sleep(LOOK_EVERY);
        }
        // A change of the source's that is under way then is finished by the next one.
        agents.end();
        Ok(())
    })
}

/// What the admin endpoint shows.
#[derive(Clone, Default)]
struct Shown {
    config: Arc<ConfigState>,
    status: Arc<Mutex<AgentsStatus>>,
}

impl Shown {
    fn change(&self, change: impl FnOnce(&mut AgentsStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> AgentsStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pages(&self) -> Pages {
        let (read, ready) = (self.clone(), self.clone());
        let metrics = AgentsMetrics::new(Arc::clone(&self.config), Box::new(move || read.read()));
        let ready = move || {
            let AgentsStatus { nodes, source } = ready.read();
            let does_all = nodes.iter().all(|(_, runs)| *runs) && source.is_none_or(|source| source.is_ok());
            if does_all { Ok("ok\n") } else { Err("agents or their source fail: the log says why\n") }
        };
        Pages {
            metrics: Box::new(move || metrics.encode()),
            health: Box::new(|| Ok("ok\n")),
            ready: Box::new(ready),
            status: None,
        }
    }
}

struct Agents {
    cluster: Cluster,
    at: IpAddr,
    run: RunDirectory,
    shown: Shown,
    /// Ports of the nodes that something else than persons holds.
    of_source: Option<RangeInclusive<u16>>,
    known: Known,
    /// By the names of their nodes.
    running: BTreeMap<String, Agent>,
    /// Why agents did not begin.
    failed: BTreeMap<String, String>,
    /// Nodes that had been given up for lost when this process started, and whose agents have not begun since. `None` before the first roster.
    returning: Option<BTreeSet<String>>,
    /// Nothing that fails is tried again before.
    rest: Option<Instant>,
}

/// Which nodes have their agents here.
#[derive(Default)]
struct Known {
    /// By the roster of that epoch; 0 before the first.
    epoch: u64,
    nodes: BTreeMap<String, config::Node>,
}

struct Agent {
    /// As it began.
    node: config::Node,
    running: Running,
}

impl Agents {
    fn look(&mut self) {
        // One that has left ends after the roster says so: hence first.
        let has_ended =
            |(name, agent): (&String, &Agent)| (!agent.running.is_running()).then(|| name.clone());
        let ended: Vec<_> = self.running.iter().filter_map(has_ended).collect();
        for name in ended {
            let done = self.running.remove(&name).map_or(Ok(()), |agent| agent.running.wait());
            if let Err(Failure(why)) = done {
                tracing::error!("the agent of {name} has ended, and begins anew: {why}");
            }
        }
        let is_rested = self.rest.is_none_or(|rest| rest <= Instant::now());
        if is_rested && roster::epoch(&self.run).is_some_and(|epoch| epoch > self.known.epoch) {
            self.hear();
        }
        // What leaves ends by itself, and says so.
        let nodes = &self.known.nodes;
        self.running.retain(|name, agent| nodes.get(name).is_none_or(|node| is_same(node, &agent.node)));
        self.failed.retain(|name, _| nodes.contains_key(name));
        if is_rested {
            self.begin();
        }
        self.show();
    }

    fn show(&self) {
        let runs = |name: &String| (name.clone(), self.running.contains_key(name));
        self.shown.change(|status| status.nodes = self.known.nodes.keys().map(runs).collect());
        self.shown.config.set_lacks_etcd(roster::trouble(&self.run).is_some());
    }

    /// Takes the newest roster over.
    fn hear(&mut self) {
        let Some((roster, cluster)) =
            Roster::read(&self.run).and_then(|roster| Some((roster.epoch, roster.cluster().ok()?)))
        else {
            // What has been read of it says why.
            self.rest = Some(Instant::now() + PAUSE);
            return;
        };
        let (at, lost) = (self.at, &cluster.standing.lost);
        // One that is lost belongs to the cluster again only once it is started again.
        let returning = self.returning.get_or_insert_with(|| lost.clone());
        let is_ours = |node: &&config::Node| {
            let is_lost = lost.contains(&node.name) && !returning.contains(&node.name);
            node.is_foreign && node.fabric_listen.ip() == at && !is_lost
        };
        let nodes = cluster.nodes.values().filter(is_ours).map(|node| (node.name.clone(), node.clone()));
        self.known = Known { epoch: roster, nodes: nodes.collect() };
        self.shown.config.adopted(roster);
        tracing::info!(epoch = roster, "has the agents of {}", some(self.known.nodes.len(), "node"));
    }

    /// Starts the agents that do not run.
    fn begin(&mut self) {
        let missing = self.known.nodes.values().filter(|node| !self.running.contains_key(&node.name));
        // Those first that have not failed.
        let mut missing: Vec<_> = missing.cloned().collect();
        missing.sort_by_key(|node| self.failed.contains_key(&node.name));
        missing.truncate(BEGIN_MAX);
        let (cluster, of_source) = (&self.cluster, &self.of_source);
        let begun = roster::of_all(&missing, |node| {
            let spec =
                PartSpec { cluster: cluster.clone(), name: node.name.clone(), events: Arc::new(|_| ()) };
            let port = node.fabric_listen.port();
            let forgets_hold = of_source.as_ref().is_some_and(|ports| ports.contains(&port));
            let options = NodeOptions { is_one_of_many: true, forgets_hold, ..NodeOptions::default() };
            node::start(spec, options)
        });
        for (node, begun) in missing.into_iter().zip(begun) {
            match begun {
                Ok(running) => {
                    self.failed.remove(&node.name);
                    if let Some(returning) = &mut self.returning {
                        returning.remove(&node.name);
                    }
                    self.running.insert(node.name.clone(), Agent { node, running });
                }
                Err(Failure(why)) => {
                    self.rest = Some(Instant::now() + PAUSE);
                    if self.failed.get(&node.name) != Some(&why) {
                        tracing::error!("the agent of {} cannot begin, and tries again: {why}", node.name);
                        self.failed.insert(node.name, why);
                    }
                }
            }
        }
    }

    fn end(self) {
        self.running.values().for_each(|agent| agent.running.shutdown().finish());
    }
}

/// Whether an agent that began for one node is that of the other.
fn is_same(one: &config::Node, other: &config::Node) -> bool {
    one.addresses == other.addresses && one.fabric_listen == other.fabric_listen && one.admin == other.admin
}
