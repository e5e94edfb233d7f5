//! A trace played to the caches of K6.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_trace::Object;
use sidelong_workload::memcached::Client;

use super::super::demand::Demand;
use super::super::servers::{self, Caches, eventually};
use super::{CACHES, MEMORY_MIB, WARMUP_PART};
use crate::bench::Bench;
use crate::cpus;
use crate::error::Result;
use crate::server::Server;

/// Keys that are asked for at once, each of them once.
pub(super) const AT_ONCE: usize = 32;
/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Items of which each cache of eight is the home of some.
const PROBES: usize = 100;
/// Batches between two looks whether to go on.
const LOOK_EVERY: usize = 1000;

/// What came of it, after warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) misses: u64,
    /// Items that were not stored.
    pub(super) failed: u64,
}

/// Plays a trace to a system, which is started for it.
pub(super) fn play(bench: &Bench<'_>, name: &str, system: &str, demand: &Demand) -> Result<Counts> {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
    let eviction = if matches!(system, "sieve" | "s3-fifo") { system } else { "lru" };
    let single = |number: u16, memory_mib: u32| -> Result<Server> {
        let more = ["--eviction", eviction];
        servers::sidelong(bench, &format!("{name}-{number}"), memory_mib, &more, at(number))
    };
    match system {
        "unified" => {
            let server = single(0, u32::from(CACHES) * MEMORY_MIB)?;
            to(bench, &[&server], demand)
        }
        "separate" => {
            let all: Vec<_> = (0..CACHES).map(|number| single(number, MEMORY_MIB)).collect::<Result<_>>()?;
            to(bench, &all.iter().collect::<Vec<_>>(), demand)
        }
        _ => {
            let mut cluster = servers::cluster_file(&bench.ground.name, CACHES, at);
            cluster.cache.eviction = eviction.parse().expect("it is one of its words");
            cluster.cache.peers.iter_mut().for_each(|peer| peer.memory_mb = MEMORY_MIB);
            let caches = Caches::start(bench, &format!("-{name}"), system, &cluster, &cpus::two()?)?;
            to(bench, &caches.all(), demand)
        }
    }
}

fn to(bench: &Bench<'_>, servers: &[&Server], demand: &Demand) -> Result<Counts> {
    let clients = || servers.iter().map(|server| Client::connect(server.address, ANSWER_MAX)).collect();
    let failed = |error: io::Error| servers[0].failed(format!("a trace: {error}"));
    let mut clients: Vec<Client> = eventually(clients).map_err(failed)?;
    await_links(&mut clients).map_err(failed)?;
    let (warmup, counted) = demand.requests.split_at(demand.requests.len() / WARMUP_PART);
    let mut counts = Counts::default();
    let mut number = 0;
    for (requests, is_counted) in [(warmup, false), (counted, true)] {
        for batch in Batches(requests) {
            if number % LOOK_EVERY == 0 {
                bench.go_on()?;
            }
            let turn = number % clients.len();
            let done = ask(&mut clients[turn], batch).map_err(failed)?;
            number += 1;
            if is_counted {
                counts.requests += done.requests;
                counts.misses += done.misses;
            }
            counts.failed += done.failed;
        }
    }
    Ok(counts)
}

/// Waits until each cache reaches the homes of all keys.
fn await_links(clients: &mut [Client]) -> io::Result<()> {
    let items: Vec<_> = (0..PROBES).map(|number| (format!("probe-{number}"), vec![b'x'])).collect();
    let keys: Vec<_> = items.iter().map(|(key, _)| key.clone()).collect();
    eventually(|| {
        for client in &mut *clients {
            let (stored, mut found) = (client.set(&items)?, 0);
            client.get(&keys, |_, _| found += 1)?;
            if (stored, found) != (PROBES, PROBES) {
                return Err(io::Error::other(format!(
                    "{stored} of {PROBES} items are stored, {found} found"
                )));
            }
        }
        Ok(())
    })
}

/// Asks for objects, and stores those that are not there.
fn ask(client: &mut Client, batch: &[Object]) -> io::Result<Counts> {
    let keys: Vec<_> = batch.iter().map(|object| format!("object-{}", object.id)).collect();
    let mut found = vec![false; batch.len()];
    client.get(&keys, |key, _| {
        if let Some(index) = keys.iter().position(|own| own == key) {
            found[index] = true;
        }
    })?;
    let all = keys.iter().zip(batch).zip(&found);
    let missed = all.filter(|(_, found)| !**found).map(|((key, object), _)| (key, object.bytes));
    let items: Vec<_> = missed.map(|(key, bytes)| (key.clone(), vec![b'x'; bytes as usize])).collect();
    let stored = if items.is_empty() { 0 } else { client.set(&items)? };
    Ok(Counts {
        requests: batch.len() as u64,
        misses: items.len() as u64,
        failed: (items.len() - stored) as u64,
    })
}

/// Parts of requests, none of which has an object twice: the second time it would be there.
struct Batches<'a>(&'a [Object]);

impl<'a> Iterator for Batches<'a> {
    type Item = &'a [Object];

    fn next(&mut self) -> Option<&'a [Object]> {
        let is_new = |index: &usize| self.0[..*index].iter().all(|object| object.id != self.0[*index].id);
        let len = (0..self.0.len().min(AT_ONCE)).take_while(is_new).count();
        let (batch, rest) = self.0.split_at(len);
        self.0 = rest;
        (len > 0).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_has_an_object_twice() {
        let objects: Vec<_> = (0..100).map(|number| Object { id: number % 45, bytes: 1 }).collect();
        let batches: Vec<_> = Batches(&objects).collect();
        assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [32, 32, 32, 4]);
        let repeated = [1, 2, 1, 1].map(|id| Object { id, bytes: 1 });
        let lens: Vec<_> = Batches(&repeated).map(<[Object]>::len).collect();
        assert_eq!(lens, [2, 1, 1]);
    }
}
