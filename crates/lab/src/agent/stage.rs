//! The processes of the experiment agent, and their turns.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_config::{ClusterFile, EdgeEntry, Identity, NodeEntry, Service, SiteEntry, default_run_dir};

use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Result, file};
use crate::nginx;
use crate::server::{RunFiles, Server};
use crate::turn::{Asked, Turn, turn};

/// A body of 1 KB, from either server.
pub(super) const OBJECT: &str = "/o/0/1024";
const OBJECT_BYTES: usize = 1024;
/// Clients, each with one request under way.
pub(super) const CONNECTIONS: u32 = 48;
const HOST: &str = "a.example";
const NODE: &str = "n1";
const EDGE: &str = "edge1";
/// Asked of an agent to know that it is up.
const HEALTH: &str = "/healthz";

/// All processes, up and serving. All are stopped, except those of the system whose turn it is. They end in this order.
pub(super) struct Stage {
    /// Of all three clusters.
    agents: [Server; 2],
    /// Before the built-in origin, and before nginx.
    edges: [Server; 2],
    origin: Server,
    /// Which is measured itself, and the one behind an edge.
    servers: [Server; 2],
    _run: [RunFiles; 3],
    load_cpu: usize,
    stop: Arc<AtomicBool>,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let [system_cpu, load_cpu] = cpus::two()?;
        let nginx = ["measured", "behind"].map(|name| bench.path(&format!("configs/nginx-{name}")));
        let port = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = |name: &str, first: u16, is_foreign: bool| -> Result<_> {
            let path = bench.path(&format!("configs/{name}.toml"));
            let file_of = cluster_file(&format!("{}-{name}", bench.ground.name), first, is_foreign, &port);
            file(&path, fs::write(&path, file_of.to_toml()?))?;
            let run = RunFiles::clear(default_run_dir(&file_of.cluster.name));
            Ok((path, file_of.cluster()?, run))
        };
        let (measured, beside, run_beside) = cluster("measured", 0, true)?;
        let (behind, foreign, run_behind) = cluster("behind", 3, true)?;
        let (builtin, own, run_builtin) = cluster("builtin", 6, false)?;

        let start = |name: &str, command, address, path, cpu| {
            let _pinned = Pinned::to(cpu)?;
            Server::start(bench, name, command, address, [HOST, path])
        };
        let agent = |name: &str, config: &Path, cluster: &sidelong_config::Cluster, cpu| {
            let admin = cluster.nodes[0].admin.expect("each node of the experiment has one");
            start(name, bench.part("node", NODE, config), admin, HEALTH, cpu)
        };
        let edge = |name: &str, config: &Path, cluster: &sidelong_config::Cluster| {
            start(name, bench.part("edge", EDGE, config), cluster.edges[0].listen, OBJECT, system_cpu)
        };
        let port = |cluster: &sidelong_config::Cluster| {
            cluster.nodes[0].port().expect("each server of the experiment has a port")
        };
        let server = |name: &str, directory: &Path, cluster: &sidelong_config::Cluster, cpu| {
            let address = port(cluster);
            start(name, nginx::command(directory, &nginx_http(address))?, address, OBJECT, cpu)
        };
        let servers = [
            server("nginx-measured", &nginx[0], &beside, system_cpu)?,
            server("nginx-behind", &nginx[1], &foreign, load_cpu)?,
        ];
        let agents = [
            agent("agent-measured", &measured, &beside, system_cpu)?,
            agent("agent-behind", &behind, &foreign, load_cpu)?,
        ];
        let origin = start("origin", bench.part("node", NODE, &builtin), port(&own), OBJECT, load_cpu)?;
        let edges = [edge("edge-builtin", &builtin, &own)?, edge("edge-behind", &behind, &foreign)?];
        let (run, stop) = ([run_beside, run_behind, run_builtin], Arc::clone(&bench.options.stop));
        let stage = Stage { agents, edges, origin, servers, _run: run, load_cpu, stop };
        stage.all().for_each(|server| server.process.pause());
        Ok(stage)
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        let Stage { agents, edges, origin, servers, .. } = self;
        agents.iter().chain(edges).chain(servers).chain([origin])
    }

    /// Puts the load on `system` for `time`.
    pub(super) fn turn(&self, system: &str, time: Duration) -> Result<Turn> {
        let Stage { agents: [beside, agent], edges: [before_origin, before_nginx], origin, servers, .. } =
            self;
        let [measured, behind] = servers;
        // The first one answers the load.
        let parts: &[&Server] = match system {
            "alone" => &[measured],
            "watched" => &[measured, beside],
            "origin" => &[before_origin, origin],
            _ => &[before_nginx, behind, agent],
        };
        parts.iter().for_each(|part| part.process.resume());
        let turn =
            turn(parts[0], &Asked::closed(HOST, OBJECT, CONNECTIONS), time, &[self.load_cpu], &self.stop);
        parts.iter().for_each(|part| part.process.pause());
        turn
    }
}

/// One site with one node behind one edge, at the ports from `first` on.
fn cluster_file(name: &str, first: u16, is_foreign: bool, port: &impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let node = match is_foreign {
        true => NodeEntry { admin: Some(port(first + 2)), ..NodeEntry::foreign(NODE, 1, port(first)) },
        false => NodeEntry { service: Some(Service::None), ..NodeEntry::new(NODE, 1, port(first)) },
    };
    ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: vec![SiteEntry::new("a", HOST, 1)],
        nodes: vec![node],
        edges: vec![EdgeEntry::new(EDGE, port(first + 1))],
        ..ClusterFile::default()
    }
}

/// The http block of an nginx that answers everything with a body of [`OBJECT_BYTES`].
fn nginx_http(address: SocketAddr) -> String {
    let body = "x".repeat(OBJECT_BYTES);
    format!(
        "  access_log off;\n  server {{\n    listen {address};\n    location / {{ return 200 {body}; }}\n  }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_one_node_and_the_three_share_no_port() {
        let port = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + offset));
        let mut ports = Vec::new();
        for (name, first, is_foreign) in [("a", 0, true), ("b", 3, true), ("c", 6, false)] {
            let cluster = cluster_file(name, first, is_foreign, &port).cluster().unwrap();
            assert_eq!((cluster.nodes.len(), cluster.nodes[0].is_foreign), (1, is_foreign));
            ports.extend(cluster.nodes[0].port());
            ports.push(cluster.edges[0].listen);
            ports.extend(cluster.nodes[0].admin);
        }
        let all = ports.len();
        ports.sort();
        ports.dedup();
        assert_eq!((all, ports.len()), (8, 8));
    }

    #[test]
    fn nginx_answers_as_much_as_the_origin() {
        let config = nginx_http("127.0.0.1:80".parse().unwrap());
        assert!(config.contains(&format!("return 200 {};", "x".repeat(1024))), "{config}");
    }
}
