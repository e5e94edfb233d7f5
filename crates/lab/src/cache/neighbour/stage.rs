//! The servers of K2: two caches of a cluster, memcached, nutcracker in front of it, and a cache and memcached at Unix sockets.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::super::client::{Asked, Client, Items, Request};
use super::super::servers::{self, MEMORY_MIB, Pair, talk};
use super::ITEMS;
use crate::bench::Bench;
use crate::cpus;
use crate::error::{Result, file};
use crate::server::Server;
use sidelong_harness::programs::find;

/// Time after a turn in which a home counts what was read of its items, which it does ten times a second.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// All servers. They are stopped, except those whose turn it is, and end in this order.
pub(super) struct Stage {
    caches: Pair,
    /// In front of memcached. `None` if there is none here.
    nutcracker: Option<Server>,
    memcached: Server,
    /// A cache that belongs to no cluster, and memcached.
    at_sockets: [Server<PathBuf>; 2],
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = servers::cluster_file(&bench.ground.name, 2, at);
        let [cpu, _] = cpus::two()?;
        let caches = Pair::start(bench, "", "two caches", &cluster, [cpu; 2], ITEMS)?;
        let memcached = servers::memcached(bench, "memcached", MEMORY_MIB, at(2))?;
        let nutcracker = find(&["nutcracker", "/usr/sbin/nutcracker"]).map(|program| {
            let config = bench.path("configs/nutcracker.yml");
            file(&config, fs::write(&config, nutcracker_config(at(3), memcached.address)))?;
            servers::start(bench, "nutcracker", nutcracker_command(program, &config, at(4)), at(3))
        });
        let nutcracker = nutcracker.transpose()?;

        let at_sockets = [
            servers::sidelong(bench, "sidelong-unix", MEMORY_MIB, &[], caches.caches.socket("alone"))?,
            servers::memcached(bench, "memcached-unix", MEMORY_MIB, caches.caches.socket("memcached"))?,
        ];
        let stage = Stage { caches, nutcracker, memcached, at_sockets };
        stage.nutcracker.iter().chain([&stage.memcached]).for_each(|server| server.process.pause());
        stage.at_sockets.iter().for_each(|server| server.process.pause());
        Ok(stage)
    }

    /// What is not here, and what to do.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let how = "there is no nutcracker here; install Debian's package nutcracker";
        self.nutcracker.is_none().then_some(how)
    }

    /// Stores all items anew.
    pub(super) fn fill(&self, value_bytes: usize) -> Result<()> {
        let what = "storing the items";
        let Pair { caches, keys } = &self.caches;
        let items = keys.each_ref().map(|keys| Items { keys, value_bytes });
        talk(&caches.all(), what, |client| items.iter().try_for_each(|items| client.fill(*items)))?;
        talk(&[&self.memcached], what, |client| client.fill(items[1]))?;
        self.at_sockets
            .iter()
            .try_for_each(|server| talk(&[server], what, |client| client.fill(items[1])).map(drop))
    }

    /// Asks for `time`, and lets the servers settle. Returns what came of it, and the CPU time of the server that was asked and of the
    /// one behind it, if one ran. `None` if there is nothing to ask.
    pub(super) fn turn(
        &self,
        request: Request,
        value_bytes: usize,
        way: &str,
        time: Duration,
    ) -> Result<Option<(Asked, Vec<Duration>)>> {
        let Pair { caches, keys: [own, others] } = &self.caches;
        let items = |keys| Items { keys, value_bytes };
        let [alone, memcached_unix] = &self.at_sockets;
        let at_socket = match way {
            "unix" => Some(alone),
            "memcached-unix" => Some(memcached_unix),
            _ => None,
        };
        if let Some(server) = at_socket {
            let ask = |client: &mut Client| client.ask(items(others), request, 1, time);
            return talk(&[server], way, ask).map(Some);
        }
        let (both, memcached) = (caches.all(), &self.memcached);
        let (servers, keys) = match (way, &self.nutcracker) {
            ("own", _) => (both, own),
            ("neighbour", _) => (both, others),
            // The home stays stopped.
            ("stopped", _) => (vec![both[0]], others),
            ("memcached", _) => (vec![memcached], others),
            ("nutcracker", Some(nutcracker)) => (vec![nutcracker, memcached], others),
            _ => return Ok(None),
        };
        let items = items(keys);
        let turn = talk(&servers, way, |client| {
            let asked = client.ask(items, request, 1, time)?;
            std::thread::sleep(SETTLE);
            Ok(asked)
        })?;
        if way == "stopped" {
            // What was read meanwhile is not to be counted in another turn.
            talk(&caches.all(), way, |_| {
                std::thread::sleep(SETTLE);
                Ok(())
            })?;
        }
        Ok(Some(turn))
    }
}

/// One pool of one server. nutcracker connects to it at once, and all else is its default.
fn nutcracker_config(listen: SocketAddr, memcached: SocketAddr) -> String {
    format!("k2:\n  listen: {listen}\n  preconnect: true\n  servers:\n   - {memcached}:1\n")
}

/// It logs errors only, and offers its figures at `stats`.
fn nutcracker_command(program: &str, config: &Path, stats: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-v", "3", "-a", &stats.ip().to_string(), "-s", &stats.port().to_string(), "-c"])
        .arg(config);
    command
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn at(offset: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + offset))
    }

    /// The nutcracker that is installed accepts its configuration.
    #[test]
    fn a_real_nutcracker_takes_what_it_is_told() {
        let Some(program) = find(&["nutcracker", "/usr/sbin/nutcracker"]) else {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: k2: no nutcracker here; Debian's package nutcracker has it"
            );
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("nutcracker.yml");
        fs::write(&config, nutcracker_config(at(3), at(2))).unwrap();
        let done = nutcracker_command(program, &config, at(4)).arg("-t").output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}
