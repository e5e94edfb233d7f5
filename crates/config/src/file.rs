//! The file as it is written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secret::SecretText;
use crate::sections::{Admission, Balance, Ganglia, Limits, Load, Reconfig, Verbs, Workload};
use crate::time;
use crate::words::{Fabric, Service};

/// A cluster file. `demo.toml` of this crate is one with comments. The default has all defaults and, which no usable file
/// may, neither sites nor nodes nor edges.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// `[cluster]`.
    #[serde(default)]
    pub cluster: Identity,
    /// `[verbs]`.
    #[serde(default)]
    pub verbs: Verbs,
    /// `[load]`.
    #[serde(default)]
    pub load: Load,
    /// `[balance]`.
    #[serde(default)]
    pub balance: Balance,
    /// `[admission]`.
    #[serde(default)]
    pub admission: Admission,
    /// `[reconfig]`.
    #[serde(default)]
    pub reconfig: Reconfig,
    /// `[limits]`.
    #[serde(default)]
    pub limits: Limits,
    /// `[ganglia]`.
    #[serde(default)]
    pub ganglia: Ganglia,
    /// Each `[[site]]`, at least one.
    #[serde(default, rename = "site")]
    pub sites: Vec<SiteEntry>,
    /// Each `[[node]]`, at least one.
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeEntry>,
    /// Each `[[edge]]`, at least one.
    #[serde(default, rename = "edge")]
    pub edges: Vec<EdgeEntry>,
    /// `[workload]`, which only `up` and the lab use.
    #[serde(default)]
    pub workload: Option<Workload>,
}

/// `[cluster]`: its name and the ground it stands on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Default `demo`.
    pub name: String,
    /// Where regions, keys and process files lie. Default [`crate::default_run_dir`] of the name.
    pub run_dir: Option<PathBuf>,
    /// Default `auto`.
    pub fabric: Fabric,
    /// What the processes prove to each other to know, where they are on several machines: they then tell each other at
    /// every node's `fabric_listen` how to reach its memory. [`crate::SECRET_BYTES_MIN`] to [`crate::SECRET_BYTES_MAX`]
    /// bytes, in a file of mode 0600. Default none: all are on one machine, and find each other in `run_dir`.
    pub secret: Option<SecretText>,
    /// The same in a file of its own, of mode 0600.
    pub secret_file: Option<PathBuf>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            name: "demo".into(),
            run_dir: None,
            fabric: Fabric::default(),
            secret: None,
            secret_file: None,
        }
    }
}

/// `[[site]]`: one hosted service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteEntry {
    /// Its name in logs and results.
    pub name: String,
    /// The Host headers that mean it, at least one. The load generator uses the first.
    pub hosts: Vec<String>,
    /// Nodes at the start, taken from the pool in its order. Default 1.
    #[serde(default = "one")]
    pub nodes: usize,
    /// Nodes that it never falls below. Default 1.
    #[serde(default = "one")]
    pub floor: usize,
    /// Nodes that it never rises above. Default the whole pool.
    #[serde(default)]
    pub ceiling: Option<usize>,
    /// Where two sites want a node, the higher gets it. Default 0.
    #[serde(default)]
    pub priority: u8,
    /// `response_ms_p99`: of 100 requests that are let in and succeed, 99 are to be answered within this, from the whole
    /// header read to the answer's first bytes. Requests that would keep others from it are turned away. Default none.
    #[serde(rename = "response_ms_p99", default, with = "time::millis_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_p99: Option<Duration>,
    /// `queue_ms_max`, in place of that: how long a request that is let in may wait for a worker. Default none; without
    /// either nobody is turned away.
    #[serde(rename = "queue_ms_max", default, with = "time::millis_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<Duration>,
    /// Of the pool, 0 to 1: up to which it gives way to no other site. Default 0.
    #[serde(default)]
    pub share: f64,
    /// Of the requests that `up` and the lab make for it, with `workload.kind = "zipf"`, in place of the workload's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Of the requests that `up` and the lab make for it, with `workload.mode = "open"` and without its `rate`: how many
    /// come from which time on. Then the sites take no turns, and one without is not asked. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateEntry>,
}

/// From a time on, so many requests.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateEntry {
    /// `at_s`: since the load began.
    #[serde(rename = "at_s", with = "time::seconds")]
    pub at: Duration,
    /// Requests/s over all edges, 0 for none.
    pub per_s: f64,
}

impl SiteEntry {
    /// A site of `nodes` nodes and one host, all else by default.
    pub fn new(name: impl Into<String>, host: impl Into<String>, nodes: usize) -> Self {
        SiteEntry {
            name: name.into(),
            hosts: vec![host.into()],
            nodes,
            floor: 1,
            ceiling: None,
            priority: 0,
            response_p99: None,
            queue_max: None,
            share: 0.0,
            alpha: None,
            rates: Vec::new(),
        }
    }
}

/// `[[node]]`: a server of the pool, or `count` of them that differ in name and port only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Of the node; with `count` above 1 what comes before the number (`n` makes `n1`, `n2`...).
    pub name: String,
    /// How many. Default 1.
    #[serde(default = "one")]
    pub count: usize,
    /// Where its origin answers HTTP; the following ports are those of the following nodes.
    pub listen: SocketAddr,
    /// Where it serves its regions over tcp or verbs, on following ports likewise; in a cluster with a secret, where it
    /// tells how to reach them, and a port is needed. Default any free port of `listen`'s address.
    #[serde(default)]
    pub fabric_listen: Option<SocketAddr>,
    /// Where `/metrics` is served, on following ports likewise. Default nowhere.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Requests that its origin serves at a time. Default 2.
    #[serde(default = "NodeEntry::default_workers")]
    pub workers: u16,
    /// Default `fixed`.
    #[serde(default)]
    pub service: Service,
    /// `service_ms`: for which a worker holds a request. Default 5 ms, which makes 400 requests/s with 2 workers.
    #[serde(rename = "service_ms", with = "time::millis", default = "NodeEntry::default_service_time")]
    pub service_time: Duration,
    /// Requests that wait for a worker; 503 beyond it. Default 1024.
    #[serde(default = "NodeEntry::default_queue_depth_max")]
    pub queue_depth_max: u32,
    /// Real files that its origin serves. Default none: bodies are made up.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// CPUs that the node may take at most, such as 0.25: `up` holds it to that by a control group of its own, which wants
    /// the right to make one. Default none: what the machine gives.
    #[serde(default)]
    pub cpu_share: Option<f64>,
    /// CPUs that it has, by which its run queue and pending interrupts are compared with other nodes'. Default `cpu_share`,
    /// else as many as the machine that compares.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Mbit/s that its network carries each way together, by which its bytes are compared with other nodes'. Default
    /// unknown, and then `weights.network` counts for nothing there.
    #[serde(default)]
    pub net_mbit: Option<f64>,
    /// The cgroup (v2) directory that holds the node, whose load is then the cgroup's. Default none: the machine's.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
}

impl NodeEntry {
    /// `count` nodes from `listen` on, all else by default.
    pub fn new(name: impl Into<String>, count: usize, listen: SocketAddr) -> Self {
        NodeEntry {
            name: name.into(),
            count,
            listen,
            fabric_listen: None,
            admin: None,
            workers: Self::default_workers(),
            service: Service::default(),
            service_time: Self::default_service_time(),
            queue_depth_max: Self::default_queue_depth_max(),
            root: None,
            cpu_share: None,
            cpus: None,
            net_mbit: None,
            cgroup: None,
        }
    }

    fn default_workers() -> u16 {
        2
    }

    fn default_service_time() -> Duration {
        Duration::from_millis(5)
    }

    fn default_queue_depth_max() -> u32 {
        1024
    }
}

/// `[[edge]]`: a front-tier proxy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeEntry {
    /// Its name in logs and results.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the other edges reach what it shares with them over tcp or verbs; in a cluster with a secret, where it tells
    /// how to. Default any free port of `listen`'s address; with a secret nowhere, and the other edges do not hear it.
    #[serde(default)]
    pub fabric_listen: Option<SocketAddr>,
    /// Where `/metrics` is served. Default nowhere.
    #[serde(default)]
    pub admin: Option<SocketAddr>,
    /// Default plain HTTP.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// A line for each request, to this file or (`-`) standard output. Default none.
    #[serde(default)]
    pub access_log: Option<PathBuf>,
    /// Threads that serve requests. Default 1.
    #[serde(default = "one")]
    pub threads: usize,
}

impl EdgeEntry {
    /// An edge of one thread, all else by default.
    pub fn new(name: impl Into<String>, listen: SocketAddr) -> Self {
        EdgeEntry {
            name: name.into(),
            listen,
            fabric_listen: None,
            admin: None,
            tls: None,
            access_log: None,
            threads: 1,
        }
    }
}

/// `edge.tls`: PEM files.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate chain, the leaf first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

fn one() -> usize {
    1
}
