//! The tables that stand once in the file, with their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time;
use crate::words::{
    AdmissionRule, BalancePolicy, Completion, Configuration, LoadMode, MovedBy, Protocol, Scheme,
    WorkloadKind,
};

/// `[load]`: how load gets from the nodes to the edges.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Who keeps the record and who reads it. Default `auto`.
    pub scheme: Scheme,
    /// `period_ms`: how often a node publishes its record (T of the asynchronous schemes, M 3.1). Default 1 ms.
    #[serde(rename = "period_ms", with = "time::millis")]
    pub period: Duration,
    /// `proc_period_ms`: how often a node reads /proc, which costs it CPU (M's T, M 3.2). Default 50 ms.
    #[serde(rename = "proc_period_ms", with = "time::millis")]
    pub proc_period: Duration,
    /// `stale_ms`: an edge does not use a record that is older. Default 150 ms: with a look a dead node is known as
    /// such within 200 ms.
    #[serde(rename = "stale_ms", with = "time::millis")]
    pub stale: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Load {
            scheme: Scheme::default(),
            period: Duration::from_millis(1),
            proc_period: Duration::from_millis(50),
            stale: Duration::from_millis(150),
        }
    }
}

/// `[balance]`: which node of its site gets a request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Balance {
    /// Default `weighted`.
    pub policy: BalancePolicy,
    /// Of the load index.
    pub weights: Weights,
}

/// `balance.weights`: how much each load counts in a node's load index. Only their proportions matter. M 5.2.1 takes
/// CPU, memory, network and connection load and prints no weights; these are those of `sidelong-policy`, heaviest on
/// the connections because they alone tell of work that waits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// CPU in use. Default 2.
    pub cpu: f64,
    /// Memory in use. Default 0.5.
    pub memory: f64,
    /// Bytes in and out, of what the network carries. Default 1.
    pub network: f64,
    /// Requests in service and queued, for each worker. Default 4.
    pub connections: f64,
    /// Threads that want a CPU, for each CPU, which e-RDMA-Sync adds. Default 0, with that scheme 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue: Option<f64>,
    /// Pending interrupts, for each CPU, likewise. Default 0, with that scheme 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<f64>,
}

impl Weights {
    /// With their names in the file.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("cpu", self.cpu),
            ("memory", self.memory),
            ("network", self.network),
            ("connections", self.connections),
            ("run_queue", self.run_queue.unwrap_or(0.0)),
            ("interrupts", self.interrupts.unwrap_or(0.0)),
        ]
    }
}

impl Default for Weights {
    fn default() -> Self {
        Weights { cpu: 2.0, memory: 0.5, network: 1.0, connections: 4.0, run_queue: None, interrupts: None }
    }
}

/// `[admission]`: whom the edges let in, where not all can be served in time. What is promised stands with each site.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// By what a site is overloaded. Default `target`.
    pub rule: AdmissionRule,
    /// The load index above which a node is overloaded, for `rule = "paper"`: 1.0 is all in use. Default 1.0.
    pub threshold: f64,
    /// `rotation_s`: within this time each client of an overloaded site is let in for a while. Default 30 s.
    #[serde(rename = "rotation_s", with = "time::seconds")]
    pub rotation: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Admission { rule: AdmissionRule::default(), threshold: 1.0, rotation: Duration::from_secs(30) }
    }
}

/// `[reconfig]`: when nodes move between sites, and how (R 3.1).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reconfig {
    /// Whether nodes move at all. Default `reconfigured`.
    pub configuration: Configuration,
    /// Who moves them. Default `edge`.
    pub by: MovedBy,
    /// How. Default `lease`.
    pub protocol: Protocol,
    /// `history_ms`: a site's load must stay high for this long before a node moves to it (T, R 3.1.3). Default 2 ms.
    #[serde(rename = "history_ms", with = "time::millis")]
    pub history: Duration,
    /// `sensitivity_ms`: between two looks at the load (S, R 3.1.4). Default 1 ms.
    #[serde(rename = "sensitivity_ms", with = "time::millis")]
    pub sensitivity: Duration,
    /// `settle_ms`: after a move the receiving site waits this long for the load to get balanced (R 3.1.2). Default
    /// as `history_ms`, see [`Reconfig::settle`].
    #[serde(rename = "settle_ms", with = "time::millis_option", skip_serializing_if = "Option::is_none")]
    pub settle: Option<Duration>,
    /// A site without a target whose load is above this wants another node. Load here is requests in service or waiting,
    /// for each worker, averaged over the site's nodes: at 1.0 all workers are busy. Default 1.0.
    pub high: f64,
    /// A site whose load is below this can give a node away. Default 0.5.
    pub low: f64,
    /// `lease_ms`: a lock whose holder does not renew it is free again after at most three of these. Default 50 ms.
    #[serde(rename = "lease_ms", with = "time::millis")]
    pub lease: Duration,
    /// `drain_ms_max`: a moving node has this long for its old site's requests before it serves the new site all the
    /// same. Default 500 ms.
    #[serde(rename = "drain_ms_max", with = "time::millis")]
    pub drain_max: Duration,
}

impl Reconfig {
    /// `settle_ms`, or what it stands for where the file does not give it.
    pub fn settle(&self) -> Duration {
        self.settle.unwrap_or(self.history)
    }
}

impl Default for Reconfig {
    fn default() -> Self {
        Reconfig {
            configuration: Configuration::default(),
            by: MovedBy::default(),
            protocol: Protocol::default(),
            history: Duration::from_millis(2),
            sensitivity: Duration::from_millis(1),
            settle: None,
            high: 1.0,
            low: 0.5,
            lease: Duration::from_millis(50),
            drain_max: Duration::from_millis(500),
        }
    }
}

/// `[limits]`: what an edge puts up with from clients and nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Of a request's head, in bytes; 431 beyond it. Default 16 KiB.
    pub header_bytes_max: u64,
    /// Of a request's body, in bytes; 413 beyond it. Default 1 MiB.
    pub body_bytes_max: u64,
    /// `client_header_timeout_ms`: for a request's whole head. Default 5 s.
    #[serde(rename = "client_header_timeout_ms", with = "time::millis")]
    pub client_header_timeout: Duration,
    /// `client_body_timeout_ms`: for a request's whole body. Default 30 s.
    #[serde(rename = "client_body_timeout_ms", with = "time::millis")]
    pub client_body_timeout: Duration,
    /// `connect_timeout_ms`: to connect to a node. Default 50 ms.
    #[serde(rename = "connect_timeout_ms", with = "time::millis")]
    pub connect_timeout: Duration,
    /// `response_timeout_ms`: for a node's next bytes. Default 10 s.
    #[serde(rename = "response_timeout_ms", with = "time::millis")]
    pub response_timeout: Duration,
    /// `idle_timeout_ms`: a client's connection with no request on it is closed after this. Default 60 s.
    #[serde(rename = "idle_timeout_ms", with = "time::millis")]
    pub idle_timeout: Duration,
    /// Client connections of one edge. Default 4096.
    pub connections_max: u32,
    /// Further nodes on which an idempotent request is tried when one fails. Default 1.
    pub retries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes_max: 16 << 10,
            body_bytes_max: 1 << 20,
            client_header_timeout: Duration::from_secs(5),
            client_body_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_millis(50),
            response_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            connections_max: 4096,
            retries: 1,
        }
    }
}

/// `[verbs]`: which RDMA device a process uses, and how. The same on every machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verbs {
    /// Its name, such as `mlx5_0`. Default the first with an active port.
    pub device: Option<String>,
    /// Its port, from 1. Default the first that is active.
    pub port: Option<u8>,
    /// Which of the port's addresses. Default the first of RoCE version 2, on InfiniBand 0.
    pub gid_index: Option<u8>,
    /// How completions are waited for. Default `polling`.
    pub completion: Completion,
    /// How often a request is sent again that is not acknowledged within 34 ms, at most 6. With 2 a machine that dies is
    /// given up within 200 ms; one that may stall for longer, as emulated ones do, wants more. Default 2.
    pub retries: u8,
}

impl Default for Verbs {
    fn default() -> Self {
        Verbs { device: None, port: None, gid_index: None, completion: Completion::default(), retries: 2 }
    }
}

/// `[ganglia]`: the figures of all nodes, told to a Ganglia monitor as gmetric tells it. An edge does it, which has them
/// anyway (M 5.2.2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ganglia {
    /// Where a gmond takes packets (its `udp_recv_channel`). Default none: nobody is told.
    pub gmond: Option<SocketAddr>,
    /// The edge that tells. Default each of them, so that the loss of one is no loss.
    pub edge: Option<String>,
    /// `period_ms`: between two values of a figure. Default 15 s.
    #[serde(rename = "period_ms", with = "time::millis")]
    pub period: Duration,
    /// `metadata_ms`: between two descriptions of a figure, without which a gmond that was started anew takes no
    /// values of it. Default 60 s.
    #[serde(rename = "metadata_ms", with = "time::millis")]
    pub metadata: Duration,
    /// What Ganglia's page shows them under. Default `sidelong`.
    pub group: String,
    /// What the name of each begins with. Default `sidelong_`.
    pub prefix: String,
}

impl Default for Ganglia {
    fn default() -> Self {
        Ganglia {
            gmond: None,
            edge: None,
            period: Duration::from_secs(15),
            metadata: Duration::from_secs(60),
            group: "sidelong".into(),
            prefix: "sidelong_".into(),
        }
    }
}

/// `[workload]`: the load that `up` and the lab put on the edges. Bursts go to the sites in turn (R 4.3.1).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// What is asked for. Default `trace`.
    pub kind: WorkloadKind,
    /// The log of `kind = "trace"`: WorldCup98 or Common Log Format, compressed or not. Default the WorldCup98
    /// sample that is part of the program.
    pub trace: Option<PathBuf>,
    /// Of each object of the other kinds, in bytes. Default 1024.
    pub file_bytes: u64,
    /// The exponent of `kind = "zipf"`. Default 0.9.
    pub alpha: f64,
    /// Distinct objects of `kind = "zipf"`. Default 1000.
    pub objects: u64,
    /// Of all that is drawn. Default 1.
    pub seed: u64,
    /// Default `closed`.
    pub mode: LoadMode,
    /// Clients that each keep one request under way at an edge. Default 16 (R 4: sixteen threads a load-balancer).
    pub clients_per_edge: u32,
    /// Requests/s over all edges, for `mode = "open"` and only there, where the sites have no `rates` of their own.
    pub rate: Option<f64>,
    /// So many addresses of 127.0.0.0/8 that clients are given, in turn or at random, for edges on this machine. Default 0:
    /// all have the one that the system chooses.
    pub addresses: u32,
    /// Requests in a run for one site before the next has its turn. Default 4096.
    pub burst: u64,
    /// `pause_ms`: between two bursts, so that each finds the cluster at rest. Closed loop only. Default none.
    #[serde(rename = "pause_ms", with = "time::millis")]
    pub pause: Duration,
    /// Stop after so many. Default never.
    pub requests: Option<u64>,
    /// `duration_s`: stop after so long. Default never.
    #[serde(rename = "duration_s", with = "time::seconds_option", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// `timeout_ms`: a request without its whole answer by then is an error. Default 5 s.
    #[serde(rename = "timeout_ms", with = "time::millis")]
    pub timeout: Duration,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            kind: WorkloadKind::default(),
            trace: None,
            file_bytes: 1024,
            alpha: 0.9,
            objects: 1000,
            seed: 1,
            mode: LoadMode::default(),
            clients_per_edge: 16,
            rate: None,
            addresses: 0,
            burst: 4096,
            pause: Duration::ZERO,
            requests: None,
            duration: None,
            timeout: Duration::from_secs(5),
        }
    }
}
