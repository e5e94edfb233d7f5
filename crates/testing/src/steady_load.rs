//! Requests that go on while something else is done to a cluster, of which none may fail.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::{Client, Cluster};

/// Failures that are kept of one client.
const KEPT_MAX: usize = 100;

/// What a client does again and again.
pub type Attempt = Box<dyn FnMut() -> io::Result<()> + Send>;

/// Clients that go on until they are told to stop.
#[derive(Debug)]
pub struct SteadyLoad {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl SteadyLoad {
    /// Requests of each site at each edge that a cluster has when this starts, one after the other on connections that are kept.
    pub fn start(cluster: &Cluster) -> Self {
        let hosts: Vec<_> = cluster.file.sites.iter().map(|site| site.hosts[0].clone()).collect();
        let pairs = cluster.file.edges.iter().flat_map(|edge| hosts.iter().map(|host| (edge.listen, host)));
        Self::of(pairs.map(|(edge, host)| asks(edge, host)))
    }

    /// Clients that do this.
    pub fn of(attempts: impl IntoIterator<Item = Attempt>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |attempt| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || go_on(attempt, &stop))
        };
        let clients = attempts.into_iter().map(client).collect();
        SteadyLoad { stop, clients }
    }

    /// What has failed.
    pub fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// Requests for `host` at `address`, on a connection that is kept. One that fails is replaced.
pub fn asks(address: SocketAddr, host: &str) -> Attempt {
    let (host, mut client) = (host.to_owned(), None);
    Box::new(move || {
        let mut asks = client.take().map_or_else(|| Client::try_connect(address), Ok)?;
        let reply = asks.ask("GET", &host, "/o/1/1")?;
        client = Some(asks).filter(|_| reply.header("connection") != Some("close"));
        if reply.status == 200 {
            Ok(())
        } else {
            Err(io::Error::other(format!("{host} at {address}: {reply:?}")))
        }
    })
}

fn go_on(mut attempt: Attempt, stop: &AtomicBool) -> Vec<String> {
    let mut failed = Vec::new();
    // Once in any case.
    loop {
        failed.extend(attempt().err().map(|why| why.to_string()));
        if stop.load(Ordering::Relaxed) || failed.len() >= KEPT_MAX {
            break;
        }
    }
    failed
}
