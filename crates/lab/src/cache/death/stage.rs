//! The caches of K5, one of which is killed and comes back.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::servers::{self, Caches, eventually};
use super::client::{Client, Request};
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result};

/// Caches, of which the second is killed, and the others are asked.
const CACHES: u16 = 3;
const KILLED: usize = 1;

/// The caches and their client.
pub(super) struct Stage {
    caches: Caches,
    client: Client,
}

/// What the client's requests came to, and when the cache was killed and had begun again.
pub(super) struct Played {
    pub(super) requests: Vec<Request>,
    pub(super) killed: Duration,
    pub(super) back: Duration,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = servers::cluster_file(&bench.ground.name, CACHES, at);
        let [cpu, _] = cpus::two()?;
        let caches = Caches::start(bench, "", "three caches", &cluster, &[cpu])?;
        let asked = cluster.cache.peers.iter().enumerate().filter(|(index, _)| *index != KILLED);
        let client = Client::new(asked.map(|(_, peer)| peer.listen));
        Ok(Stage { caches, client })
    }

    /// Stores all items. Then the client asks, the cache is killed after `time`, and started again after as long, and the client
    /// goes on for as long.
    pub(super) fn play(&mut self, bench: &Bench<'_>, time: Duration) -> Result<Played> {
        let Stage { caches, client } = self;
        let failed =
            |what: &str| Error::Serve { what: what.to_owned(), said: "its thread has died".to_owned() };
        let filled = eventually(|| client.fill());
        filled.map_err(|error| caches.all()[0].failed(format!("storing the items: {error}")))?;
        let [_, cpu] = cpus::two()?;
        let stop = AtomicBool::new(false);
        let began = Instant::now();
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let _pinned = Pinned::to(cpu);
                (began.elapsed(), client.run(&stop))
            });
            let mut kill = || -> Result<[Duration; 2]> {
                thread::sleep(time);
                bench.go_on()?;
                let killed = began.elapsed();
                caches.kill(KILLED);
                thread::sleep(time);
                caches.start_again(bench, KILLED)?;
                let back = began.elapsed();
                thread::sleep(time);
                Ok([killed, back])
            };
            let times = kill();
            stop.store(true, Ordering::Relaxed);
            let (late, requests) = asking.join().map_err(|_| failed("the client"))?;
            // By the client's clock, which began a moment later.
            let [killed, back] = times?.map(|at| at.saturating_sub(late));
            Ok(Played { requests, killed, back })
        })
    }
}
