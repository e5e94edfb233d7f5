//! The proxies that the cases run against, each started here and in front of a recording server of its own: an edge, and
//! Debian's nginx and HAProxy with small configurations that do the same.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sidelong_harness::programs::{self, Nginx};

use crate::conformance::server::{Recorder, Scripts};
use sidelong_testing::servers::{haproxy_program, is_there};
use sidelong_testing::{Cluster, Here, PATIENCE, Running, eventually, metrics, try_get};

/// The sites. Each has one node, and serves one case at a time: a node that is taken out because its server gave a
/// hostile answer then disturbs no other case.
pub(crate) const SITES: [&str; 8] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"];
/// How long a client may be silent before a proxy closes. A case that fails may take this long.
const CLIENT: Duration = Duration::from_secs(10);
/// How long a server may be silent before a proxy closes.
const SERVER: Duration = Duration::from_secs(10);
/// How long a server may be silent at the edge with a short patience.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// How long either side of a peer may be silent. If it is too short on a busy machine, a row of the table is wrong, and nothing
/// fails.
const PEER: Duration = Duration::from_secs(1);
/// Longest body of a request, in bytes.
const BODY_MAX: u64 = 4 << 20;

/// How clients speak to the peers. An edge takes both on one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Http1,
    /// HTTP/2 in cleartext, which the client knows beforehand (RFC 9113, 3.3).
    Http2,
}

pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) recorder: Recorder,
    address: SocketAddr,
    /// An edge with a short patience, if it is ours.
    short: Option<SocketAddr>,
    /// Its metrics, if it is ours.
    admin: Option<SocketAddr>,
    /// What runs for it: parts of ours, or a process.
    parts: Vec<Here>,
    process: Option<Running>,
}

impl Proxy {
    pub(crate) fn is_ours(&self) -> bool {
        self.short.is_some()
    }

    /// Where a case goes, unless it cannot run here.
    pub(crate) fn address(&self, needs_short: bool) -> Option<SocketAddr> {
        if needs_short { self.short } else { Some(self.address) }
    }

    /// Whether the site's node gets requests, if that is known.
    pub(crate) fn is_node_up(&self, site: usize) -> bool {
        let name = format!("sidelong_edge_node_up{{node=\"n{}\"}}", site + 1);
        self.admin.is_none_or(|admin| metrics(admin).get(&name) == Some(&1.0))
    }

    /// Ends its processes. Then its recorder has seen all.
    pub(crate) fn end(&mut self) {
        self.parts.drain(..).rev().for_each(Here::end);
        self.process.take().map(Running::end);
    }
}

pub(crate) fn host(site: usize) -> String {
    format!("{}.test", SITES[site])
}

/// A proxy may send what a broken one would, so the answer is not parsed.
pub(crate) fn await_serving(address: SocketAddr, host: &str) {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /healthy HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"/healthy"))
    };
    eventually("the proxy serves", || ask().unwrap_or(false));
}

/// The cluster of which the edge is a part, and whose directory and addresses the peers use, too.
pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&SITES.map(|site| (site, 1))).foreign();
    let limits = &mut cluster.file.limits;
    limits.body_bytes_max = BODY_MAX;
    (limits.client_header_timeout, limits.client_body_timeout, limits.idle_timeout) =
        (CLIENT, CLIENT, CLIENT);
    limits.response_timeout = SERVER;
    cluster
}

/// An edge, and one whose patience with servers is [`SHORT`].
pub(crate) fn edge(cluster: &mut Cluster, scripts: &Arc<Scripts>) -> Proxy {
    let addresses: Vec<_> = (0..SITES.len()).map(|node| cluster.node(node)).collect();
    let recorder = Recorder::start(&addresses, scripts);
    let mut parts: Vec<_> = cluster.file.nodes.iter().map(|node| cluster.here("node", &node.name)).collect();
    for node in 0..addresses.len() {
        eventually("the agent is up", || try_get(cluster.node_admin(node), "any", "/healthz").is_ok());
    }
    for (index, response_timeout) in [SERVER, SHORT].into_iter().enumerate() {
        cluster.file.limits.response_timeout = response_timeout;
        parts.push(cluster.here("edge", &cluster.file.edges[index].name));
        // Once it serves it has read its file, and the next one may get another.
        (0..SITES.len()).for_each(|site| await_serving(cluster.edge(index), &host(site)));
    }
    let (address, short, admin) = (cluster.edge(0), Some(cluster.edge(1)), Some(cluster.admin(0)));
    Proxy { name: "ours", recorder, address, short, admin, parts, process: None }
}

/// nginx, with what its documentation recommends for kept connections and upgrades.
pub(crate) fn nginx(cluster: &Cluster, scripts: &Arc<Scripts>, version: Version) -> Option<Proxy> {
    if !is_there("nginx", "-v") {
        return None;
    }
    let (listen, server) = (cluster.at(6001), cluster.at(6101));
    let http2 = if version == Version::Http2 { " http2" } else { "" };
    let directory = cluster.path("nginx");
    let patience = PEER.as_secs();
    let config = format!(
        r"    access_log off; default_type text/plain;
    client_header_timeout {patience}s; client_body_timeout {patience}s; keepalive_timeout {patience}s; send_timeout {patience}s;
    client_max_body_size {BODY_MAX};
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream servers {{ server {server} max_fails=0; keepalive 8; }}
    server {{ listen {listen}{http2} default_server; return 421; }}
    server {{
        listen {listen}{http2}; server_name *.test;
        location / {{
            proxy_pass http://servers; proxy_http_version 1.1; proxy_read_timeout {patience}s;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }}
    }}
"
    );
    let mut command = Command::new("nginx");
    command.args(Nginx::new(&directory, &config).configure().unwrap());
    Some(peer("nginx", command, listen, server, scripts))
}

pub(crate) fn haproxy(cluster: &Cluster, scripts: &Arc<Scripts>, version: Version) -> Option<Proxy> {
    let program = haproxy_program()?;
    let (listen, server) = (cluster.at(6002), cluster.at(6102));
    let patience = PEER.as_secs();
    let http2 = if version == Version::Http2 { " proto h2" } else { "" };
    let config = format!(
        "global\n    nbthread 1\n    maxconn 1000\n\n\
         defaults\n    mode http\n    option forwardfor\n    http-reuse safe\n    timeout connect {patience}s\n    \
         timeout client {patience}s\n    timeout http-request {patience}s\n    timeout http-keep-alive {patience}s\n    \
         timeout server {patience}s\n    timeout tunnel {patience}s\n\n\
         frontend front\n    bind {listen}{http2}\n    \
         http-request return status 421 unless {{ req.hdr(host),field(1,:) -m end -i .test }}\n    \
         default_backend servers\n\n\
         backend servers\n    server s1 {server}\n"
    );
    let mut command = Command::new(program);
    command.args(programs::haproxy(&cluster.path("haproxy"), &config).unwrap());
    Some(peer("HAProxy", command, listen, server, scripts))
}

fn peer(
    name: &'static str,
    command: Command,
    listen: SocketAddr,
    server: SocketAddr,
    scripts: &Arc<Scripts>,
) -> Proxy {
    let recorder = Recorder::start(&[server], scripts);
    let mut process = Running::start_command(command);
    eventually("the peer listens", || {
        assert!(process.is_running(), "{name}: {}", process.err());
        TcpStream::connect(listen).is_ok()
    });
    Proxy {
        name,
        recorder,
        address: listen,
        short: None,
        admin: None,
        parts: Vec::new(),
        process: Some(process),
    }
}
