//! The file as it is written.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sidelong_os::ServerAddress;

use sidelong_state::Drain;

use crate::address;
use crate::secret::SecretText;
use crate::sections::{
    Admission, Balancing, Baseline, Caching, Etcd, Ganglia, Limits, Load, Reconfig, Verbs, Workload,
};
use crate::time;
use crate::words::{ControlledBy, Fabric, Forwarded, Proxy, Service};

/// A cluster file. `example.toml` of this crate is one with comments. `default()` has no sites, nodes or edges, so it is not
/// usable as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// `[cluster]`.
    #[serde(default)]
    pub cluster: Identity,
    /// `[etcd]`, for a cluster on several machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
    /// `[verbs]`.
    #[serde(default)]
    pub verbs: Verbs,
    /// `[load]`.
    #[serde(default)]
    pub load: Load,
    /// `[balance]`.
    #[serde(default)]
    pub balance: Balancing,
    /// `[admission]`.
    #[serde(default)]
    pub admission: Admission,
    /// `[reconfig]`.
    #[serde(default)]
    pub reconfig: Reconfig,
    /// `[baseline]`.
    #[serde(default, skip_serializing_if = "Baseline::is_none")]
    pub baseline: Baseline,
    /// `[limits]`.
    #[serde(default)]
    pub limits: Limits,
    /// `[ganglia]`.
    #[serde(default)]
    pub ganglia: Ganglia,
    /// `[cache]`, with each `[[cache.peer]]`.
    #[serde(default)]
    pub cache: Caching,
    /// Each `[[site]]`, at least one.
    #[serde(default, rename = "site")]
    pub sites: Vec<SiteEntry>,
    /// Each `[[node]]`, at least one.
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeEntry>,
    /// Each `[[edge]]`; at least one or a front.
    #[serde(default, rename = "edge")]
    pub edges: Vec<EdgeEntry>,
    /// Each `[[front]]`.
    #[serde(default, rename = "front", skip_serializing_if = "Vec::is_empty")]
    pub fronts: Vec<FrontEntry>,
    /// `[workload]`, which only `up` and the lab use.
    #[serde(default)]
    pub workload: Option<Workload>,
}

/// `[cluster]`: its name, its files and its fabric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Default `demo`.
    pub name: String,
    /// Directory of regions, keys and process files. Default [`crate::default_run_dir`] of the name.
    pub run_dir: Option<PathBuf>,
    /// Default `auto`.
    pub fabric: Fabric,
    /// The secret by which processes on several machines authenticate each other. They then ask at each node's
    /// `fabric_listen` how to reach its memory. [`crate::SECRET_BYTES_MIN`] to [`crate::SECRET_BYTES_MAX`] bytes, in a file
    /// of mode 0600. Default none: all parts are on one machine and find each other in `run_dir`.
    pub secret: Option<SecretText>,
    /// A file of mode 0600 that holds the secret.
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
    /// The address that programs connect to, where a front with `proxy = "connect"` sends their connections to the site's nodes.
    /// Nothing listens there. Default none.
    #[serde(default, deserialize_with = "address::read_option", skip_serializing_if = "Option::is_none")]
    pub connect: Option<SocketAddr>,
    /// Nodes at the start, taken from the pool in order. Default 1.
    #[serde(default = "one")]
    pub nodes: usize,
    /// Nodes that the site always keeps. Default 1.
    #[serde(default = "one")]
    pub floor: usize,
    /// Nodes that the site has at most. Default the whole pool.
    #[serde(default)]
    pub ceiling: Option<usize>,
    /// Of two sites that want a node, the one with the higher priority gets it. Default 0.
    #[serde(default)]
    pub priority: u8,
    /// `response_ms_p99`: of the admitted requests that succeed, 99 in 100 are answered within this time, from the complete
    /// header to the first bytes of the answer. The edges reject the requests that would break it. Default none.
    #[serde(rename = "response_ms_p99", default, with = "time::millis_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_p99: Option<Duration>,
    /// `queue_ms_max`, instead of that: how long an admitted request may wait for a worker. Default none. Without either
    /// target all requests are admitted.
    #[serde(rename = "queue_ms_max", default, with = "time::millis_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<Duration>,
    /// Requests that are rejected last, as they are worth more: paths in which `*` stands for any one part, each with what is below
    /// it, after a method if only that is meant (`"/items/*/bid"`, `"POST /"`). Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_last: Vec<String>,
    /// `visit_s`: the requests of a client that was admitted within this time are rejected last, so that who has begun a visit can
    /// end it. Default none.
    #[serde(rename = "visit_s", default, with = "time::seconds_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visit: Option<Duration>,
    /// The part of the pool, 0 to 1, that no other site can take from it. Default 0.
    #[serde(default)]
    pub share: f64,
    /// A command that the node's process runs before the node serves the site: a program and its arguments, without a shell.
    /// Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_enter: Option<Vec<String>>,
    /// A command that it runs after the node has left the site. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_leave: Option<Vec<String>>,
    /// What becomes of its requests that have not ended when a node that leaves it has drained for `reconfig.drain_ms_max`.
    /// Default `wait`.
    #[serde(default)]
    pub drain: Drain,
    /// The Zipf exponent of the requests that `up` and the lab send to it, with `workload.kind = "zipf"`, or as the files of
    /// `--demo auction`. Default the workload's, or the demonstration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The rate of requests that `up` and the lab send to it over time, with `workload.mode = "open"` and without
    /// `workload.rate`. Sites then take no turns, and a site without rates gets no requests. With `--demo auction`, in place of the
    /// demonstration's load on it, and for the auction of persons. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateEntry>,
}

/// A rate of requests from a time on.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateEntry {
    /// `at_s`: seconds since the load began.
    #[serde(rename = "at_s", with = "time::seconds")]
    pub at: Duration,
    /// Requests/s over all edges, 0 for none.
    pub per_s: f64,
}

impl SiteEntry {
    /// A site of `nodes` nodes and one host, with defaults otherwise.
    pub fn new(name: impl Into<String>, host: impl Into<String>, nodes: usize) -> Self {
        SiteEntry {
            name: name.into(),
            hosts: vec![host.into()],
            connect: None,
            nodes,
            floor: 1,
            ceiling: None,
            priority: 0,
            response_p99: None,
            queue_max: None,
            rejected_last: Vec::new(),
            visit: None,
            share: 0.0,
            on_enter: None,
            on_leave: None,
            drain: Drain::Wait,
            alpha: None,
            rates: Vec::new(),
        }
    }
}

/// `[[node]]`: a server of the pool, or `count` servers that differ only in name and port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its name; with `count` above 1 the part before the number (`n` makes `n1`, `n2`...).
    pub name: String,
    /// How many. Default 1.
    #[serde(default = "one")]
    pub count: usize,
    /// Where its built-in origin answers HTTP; the next nodes of the entry get the next ports. Every node has either this
    /// or `server`.
    #[serde(default, deserialize_with = "address::read_option")]
    pub listen: Option<SocketAddr>,
    /// Where a foreign server answers HTTP: one that is not Sidelong's. The node then has no origin. The servers of the next
    /// nodes have the next ports; at a Unix socket there is one. With ports in `serves` it is their host, which has port 0 here.
    /// Default `builtin`, the built-in origin.
    #[serde(default, deserialize_with = "address::read_server", serialize_with = "address::write_server")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerAddress>,
    /// Where a foreign server answers for each site, by the sites' names, if not at one address for all. The node is then one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub serves: BTreeMap<String, Serves>,
    /// Where it serves its regions over tcp or verbs; the next nodes get the next ports. In a cluster with a secret it is
    /// the control endpoint, which needs a port. Default any free port of `listen`'s address.
    #[serde(default, deserialize_with = "address::read_option")]
    pub fabric_listen: Option<SocketAddr>,
    /// The admin endpoint; the next nodes get the next ports. Default none.
    #[serde(default, deserialize_with = "address::read_option")]
    pub admin: Option<SocketAddr>,
    /// Requests that its server serves at once. Default 2 for the built-in origin. Of a foreign server it is learned, from
    /// this figure on.
    #[serde(default)]
    pub workers: Option<u16>,
    /// Default `fixed`; `none` for a node with `root` and without `service_ms`, see [`NodeEntry::service`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// `service_ms`: how long a worker holds a request. Default 5 ms, which makes 400 requests/s with 2 workers.
    #[serde(rename = "service_ms", default, with = "time::millis_option")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_time: Option<Duration>,
    /// How many times as long as `service_ms` its requests take in truth, of which nothing else in the cluster is told: a server
    /// that is slower than its file says. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// Requests that wait for a worker; 503 beyond it. Default 1024.
    #[serde(default)]
    pub queue_depth_max: Option<u32>,
    /// The directory of the files that its origin serves. Default none: the origin generates bodies.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// CPUs that the node may use, such as 0.25. `up` makes a control group for it, which needs the permission to. Default
    /// no limit.
    #[serde(default)]
    pub cpu_share: Option<f64>,
    /// CPUs that it has, by which its run queue and pending interrupts are compared with those of other nodes. Default
    /// `cpu_share`, otherwise as many as the edge's machine has.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Mbit/s that its network carries, both ways together, by which its traffic is compared with that of other nodes.
    /// Default unknown: `weights.network` then has no effect there.
    #[serde(default)]
    pub net_mbit: Option<f64>,
    /// The cgroup directory that holds the node. Its load is then the cgroup's. Default none: the machine's load; that of a
    /// foreign server is the cgroup's of the process that listens on its port.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// The systemd unit of a foreign server, instead of `cgroup`.
    #[serde(default)]
    pub unit: Option<String>,
    /// A file with the process ID of a foreign server, whose cgroup is meant, instead of `cgroup`.
    #[serde(default)]
    pub pid_file: Option<PathBuf>,
    /// Whether nobody but the edges connects to a foreign server, or whoever does may be ignored. Otherwise the node does not
    /// move while others have connections there. Default whether the server listens on a loopback address or at a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// Whether a foreign server speaks HTTP/2 in clear text, by prior knowledge, as gRPC servers do. Default HTTP/1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
    /// What the node's process asks a foreign server after a move's commands, until the answer is as expected; only then does
    /// the node serve its new site. Default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
}

/// Where a foreign server answers for a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Serves {
    /// At this port of the host that `server` names, never 0.
    Port(u16),
    /// At this Unix socket.
    Unix(PathBuf),
}

/// `node.ready`: the answer by which a foreign server is known to be ready.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The path of a GET request, with its query, if any.
    pub path: String,
    /// The status code of the answer. Default 200.
    #[serde(default = "Ready::status")]
    pub status: u16,
    /// `timeout_ms`: the server has this long to answer so. Then the move has failed. Default 10 s.
    #[serde(rename = "timeout_ms", default = "Ready::timeout", with = "time::millis")]
    pub timeout: Duration,
}

impl Ready {
    /// That path, with defaults otherwise.
    pub fn new(path: impl Into<String>) -> Self {
        Ready { path: path.into(), status: Self::status(), timeout: Self::timeout() }
    }

    fn status() -> u16 {
        200
    }

    fn timeout() -> Duration {
        Duration::from_secs(10)
    }
}

impl NodeEntry {
    /// `count` nodes from `listen` on, with defaults otherwise.
    pub fn new(name: impl Into<String>, count: usize, listen: SocketAddr) -> Self {
        NodeEntry {
            name: name.into(),
            count,
            listen: Some(listen),
            server: None,
            serves: BTreeMap::new(),
            fabric_listen: None,
            admin: None,
            workers: None,
            service: None,
            service_time: None,
            slowdown: None,
            queue_depth_max: None,
            root: None,
            cpu_share: None,
            cpus: None,
            net_mbit: None,
            cgroup: None,
            unit: None,
            pid_file: None,
            exclusive: None,
            http2: false,
            ready: None,
        }
    }

    /// `count` nodes whose servers are foreign and answer from `server` on, with defaults otherwise.
    pub fn foreign(name: impl Into<String>, count: usize, server: SocketAddr) -> Self {
        NodeEntry { listen: None, server: Some(server.into()), ..NodeEntry::new(name, count, server) }
    }

    /// Whether its server is foreign.
    pub fn is_foreign(&self) -> bool {
        self.server.is_some() || !self.serves.is_empty()
    }

    /// Requests that its server serves at once, if known.
    pub fn workers(&self) -> Option<u16> {
        self.workers.or((!self.is_foreign()).then_some(2))
    }

    /// How long a worker holds a request. A node of real files has no emulated time, unless the entry gives one,
    /// and a foreign server has none.
    pub fn service(&self) -> Service {
        let is_real = self.is_foreign() || self.root.is_some() && self.service_time.is_none();
        self.service.unwrap_or(if is_real { Service::None } else { Service::Fixed })
    }

    /// How long for each request, unless [`NodeEntry::service`] is none.
    pub fn service_time(&self) -> Duration {
        self.service_time.unwrap_or(Duration::from_millis(5))
    }

    /// Requests that wait for a worker of its origin.
    pub fn queue_depth_max(&self) -> u32 {
        self.queue_depth_max.unwrap_or(1024)
    }
}

/// `[[edge]]`: a front-tier proxy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeEntry {
    /// Its name in logs and results.
    pub name: String,
    /// Where clients connect.
    #[serde(deserialize_with = "address::read")]
    pub listen: SocketAddr,
    /// Where others read, over tcp or verbs, what it shares: its requests at each node. In a cluster with a secret it is the
    /// control endpoint, and is needed if nodes move and there are other movers than this edge. Default any free port of
    /// `listen`'s address; with a secret none.
    #[serde(default, deserialize_with = "address::read_option")]
    pub fabric_listen: Option<SocketAddr>,
    /// The admin endpoint. Default none.
    #[serde(default, deserialize_with = "address::read_option")]
    pub admin: Option<SocketAddr>,
    /// One certificate, or an array of them: a client is shown the first for the name that it asks for (SNI), or else the
    /// first. Default plain HTTP.
    #[serde(default, deserialize_with = "one_or_several", skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<Tls>,
    /// Clients must show a certificate that one of this PEM file has signed, and no revocation list (CRL) in it names. Default
    /// they show none.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Networks of proxies before the edge, such as `10.0.0.0/8`. From one of them X-Forwarded-For is believed: the client is
    /// the last address there that is not such a proxy's. From all others the field is dropped. Default: it is passed on from
    /// all, and the client is who connects.
    #[serde(default)]
    pub trusted_proxies: Vec<IpNet>,
    /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2, which tells whose it is. With
    /// `trusted_proxies` all other connections are closed. Default false.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// By which fields servers are told of a request's client and scheme. Default `x-forwarded`.
    #[serde(default)]
    pub forwarded: Forwarded,
    /// The edge's name in the field Via of requests to servers. A request that has passed it before is then answered 508.
    /// Default none: it adds no Via.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The access log: a file, or `-` for standard output. Default none.
    #[serde(default)]
    pub access_log: Option<PathBuf>,
    /// Threads that serve requests. Default 1.
    #[serde(default = "one")]
    pub threads: usize,
}

impl EdgeEntry {
    /// An edge of one thread, with defaults otherwise.
    pub fn new(name: impl Into<String>, listen: SocketAddr) -> Self {
        EdgeEntry {
            name: name.into(),
            listen,
            fabric_listen: None,
            admin: None,
            tls: Vec::new(),
            client_ca: None,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            forwarded: Forwarded::default(),
            via: None,
            access_log: None,
            threads: 1,
        }
    }
}

/// `[[front]]`: a process that controls a proxy of another make, which runs on the same machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontEntry {
    /// Its name in logs and results, and of the files that the proxy reads.
    pub name: String,
    /// The proxy.
    pub proxy: Proxy,
    /// The directory of the files that the proxy's workers read and write. Default the cluster's `run_dir`, which only the
    /// front's own user and root may enter. With `connect`, the directory of a BPF file system in which programs are pinned.
    /// Default `sidelong/CLUSTER/FRONT` in the first that is mounted.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// The group of the proxy's workers, which may write their counts. Default none: then they run as the front's user, or the
    /// proxy is started by root, which opens the files before it gives up its rights.
    #[serde(default)]
    pub group: Option<String>,
    /// How the proxy is controlled. Default [`FrontEntry::controlled_by`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ControlledBy>,
    /// HAProxy's Runtime API: a Unix socket of level admin.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// HAProxy's backend of each site, by the site's name. Default the name itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, String>,
    /// With HAProxy (2.5 or newer), keywords of the servers that the front adds to its backends for nodes that have none there, such as
    /// `check`. It deletes them once their nodes have left. With Envoy, `eds`: the front writes the files from which Envoy has its
    /// endpoints. Default: it adds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_servers: Option<String>,
    /// The control group of version 2 whose connections are sent to nodes, with `connect`. Default the root: the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// As an edge's.
    #[serde(default, deserialize_with = "address::read_option")]
    pub fabric_listen: Option<SocketAddr>,
    /// The admin endpoint. Default none.
    #[serde(default, deserialize_with = "address::read_option")]
    pub admin: Option<SocketAddr>,
}

impl FrontEntry {
    /// A front with defaults.
    pub fn new(name: impl Into<String>, proxy: Proxy) -> Self {
        FrontEntry {
            name: name.into(),
            proxy,
            dir: None,
            group: None,
            by: None,
            socket: None,
            backends: BTreeMap::new(),
            add_servers: None,
            cgroup: None,
            fabric_listen: None,
            admin: None,
        }
    }

    /// How the proxy is controlled: as the file says, otherwise HAProxy by weights, which need no module, and all others by choice.
    pub fn controlled_by(&self) -> ControlledBy {
        self.by.unwrap_or(if self.proxy == Proxy::Haproxy {
            ControlledBy::Weights
        } else {
            ControlledBy::Choose
        })
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

/// `#[serde(deserialize_with)]` for a table, or an array of tables that is not empty.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Tls>, D::Error> {
    struct OneOrSeveral;
    impl<'de> Visitor<'de> for OneOrSeveral {
        type Value = Vec<Tls>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("{ certificate = \"...\", key = \"...\" } or an array of these")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<Tls>, A::Error> {
            Tls::deserialize(MapAccessDeserializer::new(map)).map(|tls| vec![tls])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Vec<Tls>, A::Error> {
            let several = Vec::deserialize(SeqAccessDeserializer::new(items))?;
            // It would be plain HTTP.
            if several.is_empty() { Err(A::Error::invalid_length(0, &self)) } else { Ok(several) }
        }
    }
    from.deserialize_any(OneOrSeveral)
}

fn one() -> usize {
    1
}
