//! An edge's settings: plain values, which the cluster file has checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One edge.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Its name, for logs and metrics.
    pub name: String,
    /// The address that clients connect to.
    pub listen: SocketAddr,
    /// The certificate, if clients use TLS.
    pub tls: Option<Tls>,
    /// The address of the admin endpoint, if it has one.
    pub admin: Option<SocketAddr>,
    /// The access log; `-` for standard output.
    pub access_log: Option<PathBuf>,
    /// Set when the access log may have been moved, and is to be opened anew at once. It is cleared when that is done. The edge
    /// also notices by itself, within a second.
    pub access_log_reopen: Arc<AtomicBool>,
    /// Threads that serve clients.
    pub threads: usize,
    /// Limits on requests.
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

/// A site and the hosts that it serves.
#[derive(Clone, Debug)]
pub struct SiteHosts {
    /// Its name.
    pub name: String,
    /// Values of the Host header, without port, in any case.
    pub hosts: Vec<String>,
}

/// A node and the address of its origin server.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// Its name.
    pub name: String,
    /// Its origin server.
    pub address: SocketAddr,
}

/// Limits on requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limits on clients, and on the time they wait.
    pub door: DoorLimits,
    /// Most bytes of a request's body.
    pub body_bytes_max: u64,
    /// Longest time to connect to a node. Two of them pass before a silent node is taken out.
    pub connect_timeout: Duration,
    /// Most further nodes that a failed request is sent to.
    pub retries: u32,
}

/// Limits on a client, and on the server that answers it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DoorLimits {
    /// Most bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// From the first byte of a request to the end of its headers.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// From the end of the request to the server's first bytes, and between any two writes to the client.
    pub response_timeout: Duration,
    /// From one request to the next one's first byte.
    pub idle_timeout: Duration,
    /// Most connections at a time.
    pub connections_max: usize,
}
