//! The processes of edge-overhead, and a turn of one proxy.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_config::{ClusterFile, EdgeEntry, Identity, NodeEntry, Service, SiteEntry, default_run_dir};

use super::Proxy;
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Result, file};
use crate::server::{RunFiles, Server};
use crate::turn::{Turn, turn};

/// A body of 1 KB that the server generates.
pub(super) const OBJECT: &str = "/o/0/1024";
const HOST: &str = "a.example";
/// The name of the node, which only the edge uses.
const NODE: &str = "n1";
const EDGE: &str = "edge1";

/// All processes, up and serving. A proxy is stopped except in its turns. They end in this order.
pub(super) struct Stage {
    edge: Server,
    bare: Server,
    _node: Server,
    _run: RunFiles,
    /// The CPUs of the proxies, and of the load and the node.
    pub(super) cpus: [usize; 2],
    stop: Arc<AtomicBool>,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let cpus = cpus::two()?;
        let [proxy_cpu, load_cpu] = cpus;
        let config = bench.path("configs/edge.toml");
        let cluster = cluster_file(&bench.ground.name, bench.ground.port);
        let run = RunFiles::clear(default_run_dir(&cluster.cluster.name));
        let (node, edge) = (cluster.cluster()?.nodes[0].address, cluster.edges[0].listen);
        let bare = SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + 2));
        let text = format!("# {}: one edge before one node, which takes no time.\n\n", bench.experiment.id);
        file(&config, fs::write(&config, text + &cluster.to_toml()?))?;

        let part = |kind, name| {
            let mut command = Command::new(&bench.options.program);
            command.args([kind, name, "--with-parent", "--config"]).arg(&config);
            command
        };
        let mut bare_proxy = Command::new(&bench.options.program);
        bare_proxy.args(["lab", "bare-proxy"]).args([bare, node].map(|address| address.to_string()));
        let stop = Arc::clone(&bench.options.stop);
        let start = |name, command, address, cpu| {
            let _pinned = Pinned::to(cpu)?;
            Server::start(bench, name, command, address, [HOST, OBJECT])
        };
        let node = start("node", part("node", NODE), node, load_cpu)?;
        let bare = start("bare", bare_proxy, bare, proxy_cpu)?;
        bare.process.pause();
        let edge = start("edge", part("edge", EDGE), edge, proxy_cpu)?;
        edge.process.pause();
        Ok(Stage { edge, bare, _node: node, _run: run, cpus, stop })
    }

    /// Puts the load on `proxy` for `time`.
    pub(super) fn turn(&mut self, proxy: Proxy, time: Duration) -> Result<Turn> {
        let server = match proxy {
            Proxy::Bare => &self.bare,
            Proxy::Edge => &self.edge,
        };
        server.process.resume();
        let turn = turn(server, [HOST, OBJECT], time, self.cpus[1], &self.stop);
        server.process.pause();
        turn
    }
}

fn cluster_file(name: &str, port: u16) -> ClusterFile {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
    ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: vec![SiteEntry::new("a", HOST, 1)],
        nodes: vec![NodeEntry { service: Some(Service::None), ..NodeEntry::new(NODE, 1, at(0)) }],
        edges: vec![EdgeEntry::new(EDGE, at(1))],
        ..ClusterFile::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_one_node_that_takes_no_time() {
        let cluster = cluster_file("lab", 20_000).cluster().unwrap();
        assert_eq!((cluster.nodes.len(), cluster.sites.len(), cluster.edges.len()), (1, 1, 1));
        assert_eq!(cluster.nodes[0].service, Service::None);
        assert_eq!(cluster.sites[0].hosts, [HOST]);
        assert_eq!((cluster.nodes[0].name.as_str(), cluster.edges[0].name.as_str()), (NODE, EDGE));
        assert_eq!(cluster.edges[0].threads, 1);
    }
}
