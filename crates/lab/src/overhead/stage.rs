//! The processes of edge-overhead, and a turn of one proxy.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_config::{
    AdmissionRule, ClusterFile, EdgeEntry, Identity, NodeEntry, Service, SiteEntry, default_run_dir,
};

use super::case::{Case, Stand};
use super::certificate::Certificate;
use super::idle;
use super::proxies::{self, Place};
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Result, file};
use crate::server::{RunFiles, Server};
use crate::turn::{Asked, turn};

/// The site that is asked for.
pub(super) const HOST: &str = "a.example";
/// Another one, for whose sake connections are accepted.
const OTHER_HOST: &str = "b.example";
/// What a proxy is asked for to know that it is up, and what a node is.
const PROBE: &str = "/o/0/1";
const HEALTH: &str = "/healthz";
const NODE: &str = "n1";
/// A node that never starts: of its site nothing is known, so that its requests are admitted.
const ABSENT: &str = "n2";
const EDGE: &str = "edge1";
/// The target of the site: it is what makes the edge's admission work, and nothing comes near it.
const TARGET: Duration = Duration::from_secs(5);
/// Requests at a node that is to count as overloaded, more than it works on, and how long it would take for each.
const HELD: usize = 6;
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Idle connections of which the memory is measured, in full and quick.
pub(super) const IDLE: [u32; 2] = [4000, 1000];

/// Time until a node that goes on has measured its load: some of the periods at which it reads /proc (`load.proc_period_ms`).
const KNOWN_AFTER: Duration = Duration::from_millis(250);

/// All processes, up and serving. Each is stopped except in its turns. They end in this order.
pub(super) struct Stage {
    stands: Vec<Parts>,
    certificate: Certificate,
    /// The CPUs of the load and the nodes.
    load_cpus: Vec<usize>,
    idle: u32,
    stop: Arc<AtomicBool>,
}

/// The processes of a stand.
struct Parts {
    stand: Stand,
    /// In the order of [`Stand::proxies`].
    proxies: Vec<Server>,
    /// Requests that keep the node busy, where it is to count as overloaded. They end before it.
    _held: Vec<TcpStream>,
    node: Server,
    /// Their access logs. They are emptied after each turn.
    logs: Vec<PathBuf>,
    _run: RunFiles,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let (proxy_cpu, load_cpus) = cpus::one_and_others()?;
        let haproxy = proxies::find_haproxy(bench)?;
        let certificate = Certificate::make(bench, HOST)?;
        let stands = (0..).zip(Stand::ALL).map(|(at, stand)| {
            let port =
                |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + at * STEP + offset));
            let cpus = (proxy_cpu, &*load_cpus);
            let parts = Parts::start(bench, stand, &port, &haproxy, &certificate, cpus)?;
            parts.pause();
            Ok(parts)
        });
        let stands = stands.collect::<Result<_>>()?;
        let (idle, stop) = (IDLE[usize::from(bench.options.quick)], Arc::clone(&bench.options.stop));
        Ok(Stage { stands, certificate, load_cpus, idle, stop })
    }

    /// Measures `proxy` in a case: its memory, or a turn of `time`. `half` is the rate of the open loop in requests/s.
    pub(super) fn measure(
        &self,
        case: &Case,
        proxy: &str,
        half: f64,
        time: Duration,
    ) -> Result<Vec<(&'static str, f64)>> {
        let parts = self.stands.iter().find(|parts| parts.stand == case.stand);
        let parts = parts.expect("the stage has every stand");
        let mut servers = case.proxies().iter().zip(&parts.proxies);
        let (_, server) = servers.find(|(name, _)| **name == proxy).expect("a case is asked for its proxies");
        let is_secure = case.stand == Stand::Secure;
        let secure = is_secure.then(|| self.certificate.client(HOST, case.word == "http2")).transpose()?;
        let asked = Asked { secure, ..(case.asked)(half) };
        parts.node.process.resume();
        server.process.resume();
        if case.waits() {
            std::thread::sleep(KNOWN_AFTER);
        }
        let found = if case.is_idle() {
            let _pinned = Pinned::to_any(&self.load_cpus)?;
            idle::bytes_per_connection(server, &asked, self.idle, &self.stop)
                .map(|bytes| vec![("idle_kb", bytes / 1e3)])
        } else {
            turn(server, &asked, time, &self.load_cpus, &self.stop).map(|turn| turn.figures().to_vec())
        };
        server.process.pause();
        parts.node.process.pause();
        parts.logs.iter().try_for_each(|log| {
            file(log, OpenOptions::new().create(true).write(true).truncate(true).open(log)).map(drop)
        })?;
        found
    }
}

impl Parts {
    fn start(
        bench: &Bench<'_>,
        stand: Stand,
        port: &impl Fn(u16) -> SocketAddr,
        haproxy: &Path,
        certificate: &Certificate,
        (proxy_cpu, load_cpus): (usize, &[usize]),
    ) -> Result<Parts> {
        let name = |part: &str| format!("{part}-{}", stand.name());
        let is_logged = stand == Stand::Logged;
        let log = |proxy: &str| bench.path(&format!("runs/{}.access.log", name(proxy)));
        let config = bench.path(&format!("configs/{}.toml", stand.name()));
        let mut cluster = cluster_file(&format!("{}-{}", bench.ground.name, stand.name()), stand, port);
        cluster.edges[0].access_log = is_logged.then(|| log("edge"));
        let certificate = (stand == Stand::Secure).then_some(certificate);
        cluster.edges[0].tls = certificate.map(Certificate::tls).into_iter().collect();
        let run = RunFiles::clear(default_run_dir(&cluster.cluster.name));
        let text = format!(
            "# {}, {}: an edge before a node that takes no time.\n\n",
            bench.experiment.id,
            stand.name()
        );
        file(&config, fs::write(&config, text + &cluster.to_toml()?))?;

        let pinned = Pinned::to_any(load_cpus)?;
        let [node_at, edge_at, nginx_at, haproxy_at] =
            [NODE_PORT, EDGE_PORT, NGINX_PORT, HAPROXY_PORT].map(port);
        let node =
            Server::start(bench, &name("node"), bench.part("node", NODE, &config), node_at, [HOST, HEALTH])?;
        drop(pinned);
        let held = if stand.rejects() { HELD } else { 0 };
        let held = (0..held).map(|_| hold(node_at).map_err(|error| node.failed(error.to_string())));
        let held = held.collect::<Result<_>>()?;
        let _pinned = Pinned::to(proxy_cpu)?;
        let start = |what: &str, command, listen| match stand.rejects() || certificate.is_some() {
            true => Server::start_listening(bench, &name(what), command, listen),
            false => Server::start(bench, &name(what), command, listen, [HOST, PROBE]),
        };
        let mut proxies = vec![start("edge", bench.part("edge", EDGE, &config), edge_at)?];
        let mut logs = Vec::new();
        if !stand.rejects() {
            let nginx_log = log("nginx");
            let place = |proxy: &str, listen| Place {
                listen,
                node: node_at,
                directory: bench.path(&format!("configs/{}", name(proxy))),
                access_log: is_logged.then_some(&*nginx_log),
                certificate,
            };
            proxies.push(start("nginx", proxies::nginx(&place("nginx", nginx_at))?, nginx_at)?);
            let command = proxies::haproxy(haproxy, &place("haproxy", haproxy_at))?;
            proxies.push(start("haproxy", command, haproxy_at)?);
            if is_logged {
                logs = vec![log("edge"), nginx_log, bench.path(&format!("runs/{}.out", name("haproxy")))];
            }
        }
        Ok(Parts { stand, proxies, _held: held, node, logs, _run: run })
    }

    fn pause(&self) {
        self.proxies.iter().chain([&self.node]).for_each(|part| part.process.pause());
    }
}

/// Ports of a stand, from its first one on, and the step to the next stand's. A stand has the other proxies or the absent node.
const NODE_PORT: u16 = 0;
const EDGE_PORT: u16 = 1;
const ADMIN_PORT: u16 = 2;
const ABSENT_PORT: u16 = 3;
const NGINX_PORT: u16 = 3;
const HAPROXY_PORT: u16 = 4;
const STEP: u16 = 5;

/// A request that the node answers only when all is over.
fn hold(node: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(node)?;
    write!(stream, "GET {PROBE} HTTP/1.1\r\nhost: {HOST}\r\n\r\n")?;
    Ok(stream)
}

/// One node behind one edge. It takes no time, or for ever where requests are to be rejected.
fn cluster_file(name: &str, stand: Stand, port: &impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let (service, response_p99) =
        if stand.rejects() { (Service::Fixed, None) } else { (Service::None, Some(TARGET)) };
    let node = |name, at| NodeEntry {
        service: Some(service),
        service_time: (service == Service::Fixed).then_some(FOR_EVER),
        ..NodeEntry::new(name, 1, port(at))
    };
    let mut file = ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: vec![SiteEntry { response_p99, ..SiteEntry::new("a", HOST, 1) }],
        nodes: vec![node(NODE, NODE_PORT)],
        edges: vec![EdgeEntry { admin: Some(port(ADMIN_PORT)), ..EdgeEntry::new(EDGE, port(EDGE_PORT)) }],
        ..ClusterFile::default()
    };
    if stand.rejects() {
        // A node that has any work counts as overloaded.
        file.set_admission(AdmissionRule::Paper, 0.0);
    }
    if stand == Stand::Gate {
        file.sites.push(SiteEntry::new("b", OTHER_HOST, 1));
        file.nodes.push(node(ABSENT, ABSENT_PORT));
    }
    file.limits.connections_max = 8192;
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stand_has_one_node_that_serves_and_ports_of_its_own() {
        let mut ports = Vec::new();
        for (at, stand) in (0..).zip(Stand::ALL) {
            let port = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + at * STEP + offset));
            let cluster = cluster_file("lab", stand, &port).cluster().unwrap();
            assert_eq!(cluster.nodes.len(), 1 + usize::from(stand == Stand::Gate));
            assert_eq!(cluster.nodes[0].service == Service::None, !stand.rejects());
            assert_eq!(cluster.sites[0].hosts, [HOST]);
            assert_eq!((cluster.nodes[0].name.as_str(), cluster.edges[0].name.as_str()), (NODE, EDGE));
            assert_eq!(cluster.edges[0].threads, 1);
            ports.extend(cluster.nodes.values().filter_map(sidelong_config::Node::port));
            ports.push(cluster.edges[0].listen);
            ports.extend(cluster.edges[0].admin);
            if !stand.rejects() {
                ports.extend([NGINX_PORT, HAPROXY_PORT].map(port));
            }
        }
        let all = ports.len();
        ports.sort();
        ports.dedup();
        assert_eq!(all, ports.len());
        assert!(ports.iter().all(|at| at.port() < 20_000 + crate::setup::PORTS), "{ports:?}");
    }
}
