//! The caches of K3: two clusters over TCP, of which one has copies, and one over shared memory.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use sidelong_config::ClusterFile;

use super::super::client::{Asked, Items, Request};
use super::super::servers::{self, Pair, eventually, talk};
use super::{FRESH, PIPELINED, VALUE_BYTES};
use crate::bench::Bench;
use crate::cpus;
use crate::error::{Result, file};

/// Time after a turn that is counted, too.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// Keeps the caches of different clusters apart, all of which this machine has.
const SECRET: &str = "of a cluster that the lab has started";
/// Ports of a cluster: each of the two caches listens for clients and for the other.
const PORTS: u16 = 4;

/// By way, the caches that have the item so. The first's own item is that of the caches with copies.
pub(super) struct Stage {
    memory: Pair,
    asked: Pair,
    copies: Pair,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let pair = |number, way| start(bench, number, way);
        Ok(Stage { memory: pair(0, "memory")?, asked: pair(1, "asked")?, copies: pair(2, "copies")? })
    }

    /// Asks for the key for `time`. Returns what came of it, and the CPU time of the cache that was asked and of the other.
    pub(super) fn turn(&self, way: &str, time: Duration) -> Result<(Asked, [Duration; 2])> {
        let pair = match way {
            "memory" => &self.memory,
            "asked" => &self.asked,
            _ => &self.copies,
        };
        let keys = &pair.keys[usize::from(way != "own")];
        let items = Items { keys, value_bytes: VALUE_BYTES };
        let (asked, cpu) = talk(&pair.caches.all(), way, |client| {
            // It was stopped: what others owe it has to come first.
            eventually(|| client.fill(items))?;
            let asked = client.ask(items, Request::Gets, PIPELINED, time)?;
            std::thread::sleep(SETTLE);
            Ok(asked)
        })?;
        Ok((asked, [cpu[0], cpu[1]]))
    }
}

fn start(bench: &Bench<'_>, number: u16, way: &str) -> Result<Pair> {
    let name = format!("{}-{number}", bench.ground.name);
    let first = bench.ground.port + number * PORTS;
    let cluster = cluster_file(&name, way, |at| SocketAddr::from((Ipv4Addr::LOCALHOST, first + at)));
    let secret = bench.path("configs/secret");
    file(&secret, fs::write(&secret, SECRET))?;
    file(&secret, fs::set_permissions(&secret, Permissions::from_mode(0o600)))?;
    let [cpu, _] = cpus::two()?;
    // One key of each.
    Pair::start(bench, &format!("-{number}"), way, &cluster, [cpu; 2], 1)
}

fn cluster_file(name: &str, way: &str, at: impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let mut file = servers::cluster_file(name, 2, &at);
    if way != "memory" {
        file.cluster.secret_file = Some("secret".into());
        (2..).zip(&mut file.cache.peers).for_each(|(offset, peer)| peer.fabric_listen = Some(at(offset)));
    }
    if way == "copies" {
        file.cache.fresh = FRESH;
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_caches_with_copies_have_answers_that_are_old() {
        for (way, fresh, has_secret) in [("memory", 0, false), ("asked", 0, true), ("copies", 100, true)] {
            let at = |at| SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + at));
            let file = cluster_file("lab-k3", way, at);
            assert_eq!(file.cache.fresh, Duration::from_millis(fresh));
            assert_eq!(file.cluster.secret_file.is_some(), has_secret);
            assert_eq!(
                file.cache.peers.iter().filter(|peer| peer.fabric_listen.is_some()).count(),
                2 * usize::from(has_secret)
            );
        }
    }
}
