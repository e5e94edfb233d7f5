//! Requests that go on while something else is done to a cluster, of which none may fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::{Client, Cluster};

/// Failures that are kept of one client.
const KEPT_MAX: usize = 100;

/// Requests of each site at each edge that a cluster has when this starts, one after the other on connections that are kept.
pub struct SteadyLoad {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl SteadyLoad {
    /// Starts to ask.
    pub fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hosts: Vec<_> = cluster.file.sites.iter().map(|site| site.hosts[0].clone()).collect();
        let pairs = cluster.file.edges.iter().flat_map(|edge| hosts.iter().map(|host| (edge.listen, host)));
        let client = |(edge, host): (SocketAddr, &String)| {
            let (stop, host) = (Arc::clone(&stop), host.clone());
            thread::spawn(move || ask(edge, &host, &stop))
        };
        let clients = pairs.map(client).collect();
        SteadyLoad { stop, clients }
    }

    /// What has failed.
    pub fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// Asks until it is told to stop. A connection that fails is replaced.
fn ask(edge: SocketAddr, host: &str, stop: &AtomicBool) -> Vec<String> {
    let mut failed = Vec::new();
    let mut client = None;
    while !stop.load(Ordering::Relaxed) && failed.len() < KEPT_MAX {
        let asked = client.take().map_or_else(|| Client::try_connect(edge), Ok).and_then(|mut asks| {
            let reply = asks.ask("GET", host, "/o/1/1")?;
            client = Some(asks);
            Ok(reply)
        });
        match asked {
            Ok(reply) if reply.status == 200 => {}
            other => failed.push(format!("{host} at {edge}: {other:?}")),
        }
    }
    failed
}
