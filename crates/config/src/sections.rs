//! The tables that occur once in the file, with their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_policy::admission::AdmissionRule;
use sidelong_policy::balance::Balance;
use sidelong_policy::cache::store::Eviction;
use sidelong_policy::index::Weights;
use sidelong_state::{Protocol, Scheme};

use crate::address;
use crate::time;
use crate::words::{Completion, Configuration, LoadMode, MovedBy, WorkloadKind};

/// `[load]`: how load gets from the nodes to the edges.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// How the record is kept and read. Default `auto`.
    pub scheme: Scheme,
    /// `period_ms`: how often a node publishes its record (T of the asynchronous schemes, Vaidyanathan et al. 2006,
    /// 3.1). Default 1 ms.
    #[serde(rename = "period_ms", with = "time::millis")]
    pub period: Duration,
    /// `proc_period_ms`: how often a node reads /proc, which costs it CPU (T in Vaidyanathan et al. 2006, 3.2).
    /// Default 50 ms.
    #[serde(rename = "proc_period_ms", with = "time::millis")]
    pub proc_period: Duration,
    /// `stale_ms`: an edge does not use an older record. Default 150 ms, so that a dead node is recognised within 200 ms. A scan waits for
    /// new links for at most a third of this, or of `reconfig.lease_ms` if that is less. If that is less than 50 ms, it waits for up to 50 ms.
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
pub struct Balancing {
    /// Default `weighted`.
    pub policy: Balance,
    /// How much each load counts in a node's load index.
    pub weights: Weights,
}

/// `[admission]`: which requests the edges admit when not all can be served in time. Targets belong to the sites.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// When a site counts as overloaded. Default `target`.
    pub rule: AdmissionRule,
    /// `rotation_s`: within this time each client of an overloaded site is admitted for a while. Default 30 s.
    #[serde(rename = "rotation_s", with = "time::seconds")]
    pub rotation: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Admission { rule: AdmissionRule::default(), rotation: Duration::from_secs(30) }
    }
}

/// `[baseline]`: what the papers compare their designs with. `sidelong-lab` accepts it, and `sidelong` does not.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Baseline {
    /// Whether nodes move at all. Default `reconfigured`.
    pub configuration: Configuration,
    /// Who moves them. Default `edge`.
    pub by: MovedBy,
    /// How. Default `lease`.
    pub protocol: Protocol,
    /// How load is asked for over sockets, in place of `load.scheme`: `socket-async` or `socket-sync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// A balance by figures that are not brought up to date between scans, in place of `balance.policy`: `last-look`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// The published rule of admission, in place of `admission.rule`: all requests are rejected while the load index of all nodes is
    /// above this. 1.0 is all in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

impl Baseline {
    /// Whether nothing is a baseline.
    pub fn is_none(&self) -> bool {
        *self == Baseline::default()
    }
}

/// `[reconfig]`: when nodes move between sites, and how (Balaji et al. 2004, 3.1).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reconfig {
    /// `history_ms`: a site's load must stay high this long before a node moves to it (T; Balaji et al. 2004, 3.1.3). Where
    /// commands run at a move, at least as long as they were seen to take. Default 2 ms.
    #[serde(rename = "history_ms", with = "time::millis")]
    pub history: Duration,
    /// `sensitivity_ms`: the interval between two scans (S; Balaji et al. 2004, 3.1.4). Default 1 ms.
    #[serde(rename = "sensitivity_ms", with = "time::millis")]
    pub sensitivity: Duration,
    /// `settle_ms`: after a move the receiving site waits this long for its load to even out (Balaji et al. 2004, 3.1.2).
    /// Default `history_ms`, see [`Reconfig::settle`].
    #[serde(rename = "settle_ms", with = "time::millis_option", skip_serializing_if = "Option::is_none")]
    pub settle: Option<Duration>,
    /// A site without a target wants another node when its load is above this. Load is the mean number of requests in
    /// service or waiting for each worker of the site: at 1.0 all workers are busy. Default 1.0.
    pub high: f64,
    /// A site can give a node away when its load is below this. Default 0.5.
    pub low: f64,
    /// `lease_ms`: a lock that its holder does not renew is free again after at most three leases. Default 50 ms. It also bounds the wait for
    /// new links: see `load.stale_ms`.
    #[serde(rename = "lease_ms", with = "time::millis")]
    pub lease: Duration,
    /// `drain_ms_max`: a moving node has this long to finish its old site's requests. If it has not, it stays at its old
    /// site. Default 500 ms.
    #[serde(rename = "drain_ms_max", with = "time::millis")]
    pub drain_max: Duration,
    /// `command_ms_max`: the longest time of one command of a site, `on_enter` or `on_leave`. Then it is killed, and has
    /// failed. Default 30 s.
    #[serde(rename = "command_ms_max", with = "time::millis")]
    pub command_max: Duration,
}

impl Reconfig {
    /// `settle_ms`, or its default.
    pub fn settle(&self) -> Duration {
        self.settle.unwrap_or(self.history)
    }
}

impl Default for Reconfig {
    fn default() -> Self {
        Reconfig {
            history: Duration::from_millis(2),
            sensitivity: Duration::from_millis(1),
            settle: None,
            high: 1.0,
            low: 0.5,
            lease: Duration::from_millis(50),
            drain_max: Duration::from_millis(500),
            command_max: Duration::from_secs(30),
        }
    }
}

/// `[limits]`: an edge's limits on clients and nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request's header; a larger one is answered 431. Default 16 KiB.
    pub header_bytes_max: u64,
    /// Bytes of a request's body; a larger one is answered 413. Default 1 MiB.
    pub body_bytes_max: u64,
    /// `client_header_timeout_ms`: from a request's first byte to its complete header. Default 5 s.
    #[serde(rename = "client_header_timeout_ms", with = "time::millis")]
    pub client_header_timeout: Duration,
    /// `client_body_timeout_ms`: from the header to the complete body, without the time in which the server does not take it;
    /// once the server answers meanwhile, from the last bytes of either. Default 30 s.
    #[serde(rename = "client_body_timeout_ms", with = "time::millis")]
    pub client_body_timeout: Duration,
    /// `connect_timeout_ms`: to connect to a node. Default 50 ms.
    #[serde(rename = "connect_timeout_ms", with = "time::millis")]
    pub connect_timeout: Duration,
    /// `response_timeout_ms`: until a node's next bytes. Default 10 s.
    #[serde(rename = "response_timeout_ms", with = "time::millis")]
    pub response_timeout: Duration,
    /// `idle_timeout_ms`: a client's connection without a request is closed after this. Default 60 s.
    #[serde(rename = "idle_timeout_ms", with = "time::millis")]
    pub idle_timeout: Duration,
    /// Client connections of one edge. Default 4096.
    pub connections_max: u32,
    /// Connections of one client to an edge: of an IPv4 address, or of the first 64 bits of an IPv6 address, but not of
    /// `trusted_proxies`. Default no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_client_max: Option<u32>,
    /// Other nodes that an idempotent request is sent to when one fails. Default 1.
    pub retries: u32,
    /// The history of moves that each edge keeps in `run_dir`, in bytes; 0 for none. Default 1 MiB.
    pub history_bytes_max: u64,
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
            connections_per_client_max: None,
            retries: 1,
            history_bytes_max: 1 << 20,
        }
    }
}

/// `[verbs]`: the RDMA device and how to use it, the same on every machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verbs {
    /// The device's name, such as `mlx5_0`. Default the first with an active port.
    pub device: Option<String>,
    /// Its port, from 1. Default the first active one.
    pub port: Option<u8>,
    /// The index of the port's address. Default the first of RoCE version 2; on InfiniBand 0.
    pub gid_index: Option<u8>,
    /// How to wait for completions. Default `polling`.
    pub completion: Completion,
    /// How often a request is sent again when it is not acknowledged within 34 ms, at most 6. With 2 a dead machine is given
    /// up within 200 ms. Machines that stall for longer, such as emulated ones, need more. Default 2.
    pub retries: u8,
}

impl Default for Verbs {
    fn default() -> Self {
        Verbs { device: None, port: None, gid_index: None, completion: Completion::default(), retries: 2 }
    }
}

/// `[ganglia]`: the edges send the figures of all nodes to a Ganglia monitor, as gmetric would (Vaidyanathan et al. 2006,
/// 5.2.2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ganglia {
    /// The address of a gmond (its `udp_recv_channel`). Default none: nothing is sent.
    #[serde(deserialize_with = "address::read_option")]
    pub gmond: Option<SocketAddr>,
    /// The edge that sends. Default all of them, so that any one may fail.
    pub edge: Option<String>,
    /// `period_ms`: the time between two values of a figure. Default 15 s.
    #[serde(rename = "period_ms", with = "time::millis")]
    pub period: Duration,
    /// `metadata_ms`: the time between two descriptions of a figure. A gmond that was restarted ignores values until it has
    /// one. Default 60 s.
    #[serde(rename = "metadata_ms", with = "time::millis")]
    pub metadata: Duration,
    /// The group of the figures on Ganglia's page. Default `sidelong`.
    pub group: String,
    /// The prefix of their names. Default `sidelong_`.
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

/// `[etcd]`: where a cluster on several machines keeps its file, so that it can change while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Etcd {
    /// The addresses of one etcd's servers, such as `https://e1.example:2379`. At least one.
    pub endpoints: Vec<String>,
    /// PEM file with the authority of their certificates. Default none: those that the machine trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate that etcd asks its clients for, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name of a user of etcd, who reads and writes what is under `/sidelong/NAME/`. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File of mode 0600 with the user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Directory in which each machine keeps the newest file, and which of its parts have begun before, for after a restart of the machine:
    /// its parts then start without etcd, and without the node that has the board. Default none: that is kept in `run_dir` alone, which
    /// such a restart empties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
}

/// Most `[[cache.peer]]` of a cluster.
pub const CACHE_PEERS_MAX: usize = 64;

/// `[cache]`: caches that memcached's clients use, and documents that edges read in nodes' memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caching {
    /// Which item is evicted. Default `sieve`.
    pub eviction: Eviction,
    /// Most bytes of an item: its header, key and value. Default 1 MiB.
    pub item_bytes_max: u64,
    /// `fresh_ms`: how old the answer to a read may be in a cluster on several machines. Default 0.
    #[serde(rename = "fresh_ms", with = "time::millis")]
    pub fresh: Duration,
    /// Whether nodes with `root` keep what they serve where edges read it. Default false.
    pub documents: bool,
    /// Memory of each such node for documents, in MiB, tables included. Default 64.
    pub document_memory_mb: u32,
    /// For how many seconds a document is answered with before its file is looked at again. Default 1.
    pub document_max_age_s: u32,
    /// Each `[[cache.peer]]`, at most [`CACHE_PEERS_MAX`].
    #[serde(rename = "peer", skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<CachePeer>,
}

impl Default for Caching {
    fn default() -> Self {
        Caching {
            eviction: Eviction::Sieve,
            item_bytes_max: 1 << 20,
            fresh: Duration::ZERO,
            documents: false,
            document_memory_mb: 64,
            document_max_age_s: 1,
            peers: Vec::new(),
        }
    }
}

/// `[[cache.peer]]`: one cache, a process of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePeer {
    /// Its name in logs and results.
    pub name: String,
    /// Where memcached's clients connect.
    #[serde(deserialize_with = "address::read")]
    pub listen: SocketAddr,
    /// Where caches of other machines connect. Needed with a secret.
    #[serde(default, deserialize_with = "address::read_option", skip_serializing_if = "Option::is_none")]
    pub fabric_listen: Option<SocketAddr>,
    /// Where caches of other machines ask how to read its memory over verbs. Default none: they ask it for items instead.
    #[serde(default, deserialize_with = "address::read_option", skip_serializing_if = "Option::is_none")]
    pub verbs_listen: Option<SocketAddr>,
    /// The admin endpoint. Default none.
    #[serde(default, deserialize_with = "address::read_option", skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// Memory in MiB, tables included. Default 64.
    #[serde(default = "CachePeer::default_memory_mb")]
    pub memory_mb: u32,
    /// Most clients at a time. Others wait to be accepted. Default 1024.
    #[serde(default = "CachePeer::default_clients_max")]
    pub clients_max: u32,
}

impl Caching {
    /// Bytes of a peer's memory that hold copies of others' items: a sixteenth, if reads may be as old as copies.
    pub fn near_bytes(&self, peer: &CachePeer) -> u64 {
        if self.fresh.is_zero() { 0 } else { (u64::from(peer.memory_mb) << 20) / 16 }
    }
}

impl CachePeer {
    /// A peer with defaults.
    pub fn new(name: impl Into<String>, listen: SocketAddr) -> Self {
        CachePeer {
            name: name.into(),
            listen,
            fabric_listen: None,
            verbs_listen: None,
            admin: None,
            memory_mb: Self::default_memory_mb(),
            clients_max: Self::default_clients_max(),
        }
    }

    fn default_memory_mb() -> u32 {
        64
    }

    fn default_clients_max() -> u32 {
        1024
    }
}

/// `[workload]`: the load that `up` and the lab put on the edges. Bursts go to the sites in turn (Balaji et al. 2004,
/// 4.3.1).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// The objects that are requested. Default `trace`.
    pub kind: WorkloadKind,
    /// The log of `kind = "trace"`: WorldCup98 or Common Log Format, compressed or not. Default the WorldCup98 sample in the
    /// program.
    pub trace: Option<PathBuf>,
    /// Bytes of an object of the other kinds. Default 1024.
    pub file_bytes: u64,
    /// The exponent of `kind = "zipf"`. Default 0.9.
    pub alpha: f64,
    /// Distinct objects of `kind = "zipf"`. Default 1000.
    pub objects: u64,
    /// The seed of the random numbers. Default 1.
    pub seed: u64,
    /// When a client sends its next request. Default `closed`.
    pub mode: LoadMode,
    /// Clients of each edge, with one request in flight each. Default 16, as in Balaji et al. 2004, 4.
    pub clients_per_edge: u32,
    /// Requests/s over all edges. Only for `mode = "open"`, unless the sites have `rates`.
    pub rate: Option<f64>,
    /// Addresses of 127.0.0.0/8 that clients use, in turn or at random, for edges on this machine. Default 0: the system
    /// chooses one for all.
    pub addresses: u32,
    /// Requests for one site before the next site's turn. Default 4096.
    pub burst: u64,
    /// `pause_ms`: the pause between two bursts, so that each finds the cluster at rest. Closed loop only. Default none.
    #[serde(rename = "pause_ms", with = "time::millis")]
    pub pause: Duration,
    /// Stop after this many requests. Default never.
    pub requests: Option<u64>,
    /// `duration_s`: stop after this time. Default never.
    #[serde(rename = "duration_s", with = "time::seconds_option", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// `timeout_ms`: a request without a complete answer by then is an error. Default 5 s.
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
