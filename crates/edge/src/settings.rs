//! An edge's settings: plain values, which the cluster file has checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ipnet::IpNet;
use sidelong_layout::Slots;
use sidelong_os::ServerAddress;
use sidelong_proxy::{Forwarding, Limits};

use crate::documents::DocumentSettings;

/// One edge.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Its name, for logs and metrics.
    pub name: String,
    /// The address that clients connect to.
    pub listen: SocketAddr,
    /// The certificates, if clients use TLS.
    pub tls: Vec<Tls>,
    /// The authorities whose certificates clients must show over TLS, PEM; otherwise they show none.
    pub client_ca: Option<PathBuf>,
    /// Networks of proxies before the edge; see [`sidelong_proxy::Settings::trusted_proxies`].
    pub trusted_proxies: Vec<IpNet>,
    /// Whether connections begin with a header of the PROXY protocol; see [`sidelong_proxy::Proxy::proxy_protocol`].
    pub proxy_protocol: bool,
    /// By which fields servers are told of a request's way.
    pub forwarding: Forwarding,
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
    /// The sites.
    pub sites: Slots<SiteHosts>,
    /// The nodes.
    pub nodes: Slots<NodeAddress>,
    /// The documents that nodes keep, if they do.
    pub documents: Option<DocumentSettings>,
}

/// A certificate chain and its key, PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
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

/// A node and the addresses of its server.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// Its name.
    pub name: String,
    /// Where its server answers: at one address for all sites, or at one for each slot of a site.
    pub addresses: Vec<ServerAddress>,
    /// Whether the server speaks HTTP/2 in clear text, by prior knowledge.
    pub http2: bool,
}
