//! What an edge is told: plain values, checked by the cluster file before they come here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::door::DoorLimits;

/// One edge.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, for logs and metrics.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// With TLS, if so.
    pub tls: Option<Tls>,
    /// Where `/metrics` and `/healthz` are, if anywhere.
    pub admin: Option<SocketAddr>,
    /// The access log; `-` for standard output.
    pub access_log: Option<PathBuf>,
    /// Threads that serve clients.
    pub threads: usize,
    /// Bounds on requests.
    pub limits: Limits,
    /// The sites, in the cluster's order.
    pub sites: Vec<SiteHosts>,
    /// The nodes, in the cluster's order.
    pub nodes: Vec<NodeAddress>,
}

/// A certificate chain and its key, PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Which requests are a site's.
#[derive(Clone, Debug)]
pub struct SiteHosts {
    /// Its name.
    pub name: String,
    /// Values of the Host header, without port, in any case.
    pub hosts: Vec<String>,
}

/// Where a node serves HTTP.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// Its name.
    pub name: String,
    /// Its origin server.
    pub address: SocketAddr,
}

/// Bounds on requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// On clients and how long they wait.
    pub door: DoorLimits,
    /// Bytes of a request's body.
    pub body_bytes_max: u64,
    /// To connect to a node. Two of them pass before a silent node is taken out.
    pub connect_timeout: Duration,
    /// Other nodes that a failed request is sent to.
    pub retries: u32,
}
