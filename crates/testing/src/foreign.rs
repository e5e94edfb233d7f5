//! Clusters of servers that are not Sidelong's, with what tests of several kinds of servers ask of them.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use sidelong_config::ServerAddress;

use crate::servers::{Load, gunicorn, last_request, signal_all, sites_at_once};
use crate::{Cluster, Here, Running, eventually, metrics, try_get};

/// The moves that a test makes: a few, or as many as SIDELONG_MOVES says.
fn moves_wanted() -> u32 {
    std::env::var("SIDELONG_MOVES").map_or(4, |moves| moves.parse().unwrap())
}

/// Moves n2 by hand between the sites alpha and beta, whose requests are logged by its server `two`: on each time that it has answered
/// a request of its new site.
pub fn move_to_and_fro(cluster: &Cluster) {
    for site in ["alpha", "beta"].into_iter().cycle().take(moves_wanted() as usize) {
        // A machine that stalls may not see the end of its drain in time.
        eventually("it is moved", || cluster.move_to("n2", site).is_ok());
        eventually("it has answered requests of its new site", || {
            last_request(cluster, "two").is_some_and(|host| host == format!("{site}.test"))
        });
    }
}

/// The part of the cluster that has no load to send, with servers at its nodes' addresses.
pub fn foreign(sites: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new(sites).foreign();
    cluster.file.edges.truncate(1);
    cluster
}

/// The Unix socket of the server of the node of that index, as of [`at_sockets`].
pub fn socket(cluster: &Cluster, node: usize) -> PathBuf {
    cluster.path(&format!("n{}.sock", node + 1))
}

/// Where the server of the node of that index answers.
pub fn server(cluster: &Cluster, node: usize) -> ServerAddress {
    cluster.file.nodes[node].server.clone().unwrap()
}

/// The cluster with a Unix socket for each node's server.
pub fn at_sockets(mut cluster: Cluster) -> Cluster {
    for node in 0..cluster.file.nodes.len() {
        cluster.file.nodes[node].server = Some(ServerAddress::Unix(socket(&cluster, node)));
    }
    cluster
}

/// Waits until the edge's answer for a site is this body.
pub fn answers(cluster: &Cluster, site: &str, body: &str) {
    let is_it =
        || try_get(cluster.edge(0), &format!("{site}.test"), "/").is_ok_and(|reply| reply.body == body);
    eventually(&format!("{body} answers for {site}"), is_it);
}

/// A figure of n1, as its agent tells it.
pub fn by_agent(cluster: &Cluster, figure: &str) -> Option<f64> {
    metrics(cluster.node_admin(0)).get(&format!("sidelong_node_{figure}")).copied()
}

/// A figure of n1, as the edge tells it.
pub fn by_edge(cluster: &Cluster, figure: &str) -> Option<f64> {
    metrics(cluster.admin(0)).get(&format!("sidelong_edge_node_{figure}{{node=\"n1\"}}")).copied()
}

/// Waits until the edge has learned how many requests the server of n1 handles at a time, under that load: infinite if none
/// waits for a worker.
pub fn learned(cluster: &Cluster, clients: usize, time: Duration, is_it: impl Fn(f64) -> bool) {
    let load = Load::start(cluster.edge(0), "alpha.test", time, clients);
    let name = "sidelong_edge_node_learned_workers{node=\"n1\"}";
    eventually("the workers are learned", || metrics(cluster.admin(0)).get(name).is_some_and(|&n| is_it(n)));
    drop(load);
}

/// A site with one server and a site with two, the requests of which take 100 ms, so that a busy machine, too, keeps the servers'
/// workers busy; and the cluster's parts.
pub struct Draining {
    /// The cluster.
    pub cluster: Cluster,
    servers: Vec<Running>,
    parts: Vec<Here>,
    load: Vec<Load>,
}

impl Draining {
    const NAMES: [&str; 3] = ["one", "two", "three"];

    /// Its cluster.
    pub fn cluster() -> Cluster {
        let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
        cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(4));
        // No edge gives up a request that a stopped server holds.
        cluster.file.limits.response_timeout = Duration::from_secs(60);
        cluster
    }

    /// With servers that `start` starts under a name for the node of that index.
    pub fn start(
        cluster: Cluster,
        start: impl Fn(&Cluster, &str, usize) -> Option<Vec<Running>>,
    ) -> Option<Self> {
        let servers = Self::NAMES.iter().zip(0..).map(|(name, node)| start(&cluster, name, node));
        let servers = servers.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
        let parts = cluster.serving_here();
        let mut draining = Draining { cluster, servers, parts, load: Vec::new() };
        draining.ask("beta.test", 2);
        Some(draining)
    }

    /// With a gunicorn of four workers for each node.
    pub fn start_gunicorn(cluster: Cluster) -> Option<Self> {
        let server = |node: usize, cluster: &Cluster| cluster.file.nodes[node].server.clone().unwrap();
        Draining::start(cluster, |cluster, name, node| {
            Some(vec![gunicorn(cluster, name, server(node, cluster), 4)?])
        })
    }

    /// Until nodes have moved a few times, or as often as SIDELONG_MOVES says.
    pub fn go_to_and_fro(mut self) {
        let moves = f64::from(moves_wanted());
        // A node that leaves a site has requests of it.
        self.ask("alpha.test", 2);
        for site in ["alpha.test", "beta.test"].into_iter().cycle() {
            let before = self.moves();
            if before >= moves {
                break;
            }
            self.ask(site, 10);
            eventually("nodes move to the site under load", || self.moves() > before);
            self.load.truncate(4);
        }
        self.end();
    }

    /// A node is moved as often by hand, under load of both sites.
    pub fn go_by_hand(mut self) {
        self.ask("alpha.test", 8);
        self.ask("beta.test", 8);
        move_to_and_fro(&self.cluster);
        self.end();
    }

    /// Has clients send requests to a site, so many to each edge.
    pub fn ask(&mut self, site: &'static str, clients: usize) {
        let time = Duration::from_millis(100);
        self.load.extend([0, 1].map(|edge| Load::start(self.cluster.edge(edge), site, time, clients)));
    }

    /// What the edges count under names that begin like this.
    pub fn counted(&self, name: &str) -> f64 {
        let counts = (0..2).flat_map(|edge| metrics(self.cluster.admin(edge)));
        counts.filter(|(counted, _)| counted.starts_with(name)).map(|(_, count)| count).sum()
    }

    /// The moves that were completed.
    pub fn moves(&self) -> f64 {
        self.counted("sidelong_edge_moves_total{")
    }

    /// The moves that were given up because a node had not drained.
    pub fn rolled_back(&self) -> f64 {
        self.counted(r#"sidelong_edge_moves_abandoned_total{end="not-drained"}"#)
    }

    /// Sends a signal to the servers of beta.
    pub fn signal(&self, signal: Signal) {
        self.servers[1..].iter().for_each(|server| signal_all(server, signal));
    }

    /// Ends it. No server has had requests of two sites at once, and at least one has had requests of both.
    pub fn end(self) {
        drop(self.load);
        self.parts.into_iter().for_each(Here::end);
        let seen = Self::NAMES.map(|name| sites_at_once(&self.cluster, name));
        assert!(seen.iter().all(|(most, _)| *most <= 1), "requests of two sites at once: {seen:?}");
        assert!(seen.iter().any(|(_, changes)| *changes > 0), "{seen:?}");
    }
}
