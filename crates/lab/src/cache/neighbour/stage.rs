//! The servers of K2: two caches of a cluster, memcached, and nutcracker in front of it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sidelong_config::{CachePeer, ClusterFile, EdgeEntry, Identity, NodeEntry, SiteEntry, default_run_dir};

use super::super::client::{Asked, Items, Request};
use super::super::servers::{self, by_home, eventually, talk};
use super::{Case, ITEMS, Way};
use crate::bench::Bench;
use crate::error::{Result, file};
use crate::process::daemon;
use crate::server::{RunFiles, Server};

/// The cache that is asked, and its neighbour.
const CACHES: [&str; 2] = ["c1", "c2"];
/// Time after a turn in which a home counts what was read of its items, which it does ten times a second.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// All servers. They are stopped, except those whose turn it is, and end in this order.
pub(super) struct Stage {
    caches: [Server; 2],
    /// In front of memcached. `None` if there is none here.
    nutcracker: Option<Server>,
    memcached: Server,
    /// Keys of the items whose home is the cache that is asked, and of those whose home is its neighbour.
    keys: [Vec<u32>; 2],
    _run: RunFiles,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = cluster_file(&bench.ground.name, at);
        let config = bench.path("configs/caches.toml");
        let about = format!("# {}: two caches. The other parts never run.\n\n", bench.experiment.id);
        file(&config, fs::write(&config, about + &cluster.to_toml()?))?;
        let run = RunFiles::clear(default_run_dir(&bench.ground.name));

        let cache = |peer: &CachePeer| {
            let mut command = Command::new(&bench.options.program);
            command.args(["cache", &peer.name, "-q", "--with-parent", "--config"]).arg(&config);
            servers::start(bench, &peer.name, command, peer.listen)
        };
        let [asked, neighbour] = &cluster.cache.peers[..] else { unreachable!("the file has two caches") };
        let caches = [cache(asked)?, cache(neighbour)?];
        let memcached = servers::memcached(bench, at(2))?;
        let nutcracker = daemon("nutcracker", "-V").map(|program| {
            let config = bench.path("configs/nutcracker.yml");
            file(&config, fs::write(&config, nutcracker_config(at(3), memcached.address)))?;
            servers::start(bench, "nutcracker", nutcracker_command(&program, &config, at(4)), at(3))
        });
        let nutcracker = nutcracker.transpose()?;

        let both = caches.each_ref();
        let (keys, _) = talk(&both, "the homes of items", |client| eventually(|| by_home(client, ITEMS)))?;
        let others = Items { keys: &keys[1], value_bytes: 1 };
        talk(&both, "a neighbour's item", |client| {
            client.fill(others)?;
            eventually(|| {
                // One get.
                match client.ask(others, Request::Gets, 1, Duration::ZERO)?.misses {
                    0 => Ok(()),
                    _ => Err(io::Error::other("it is not found")),
                }
            })
        })?;
        let stage = Stage { caches, nutcracker, memcached, keys, _run: run };
        stage.nutcracker.iter().chain([&stage.memcached]).for_each(|server| server.process.pause());
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
        let items = self.keys.each_ref().map(|keys| Items { keys, value_bytes });
        talk(&self.caches.each_ref(), what, |client| items.iter().try_for_each(|items| client.fill(*items)))?;
        talk(&[&self.memcached], what, |client| client.fill(items[1]))?;
        Ok(())
    }

    /// Asks for `time`, and lets the servers settle. Returns what came of it, and the CPU time of the server that was asked and of the
    /// one behind it, if one ran. `None` if there is nothing to ask.
    pub(super) fn turn(
        &self,
        case: Case,
        way: Way,
        time: Duration,
    ) -> Result<Option<(Asked, Vec<Duration>)>> {
        let ([cache, neighbour], memcached) = (&self.caches, &self.memcached);
        let [own, others] = &self.keys;
        let (servers, keys) = match (way, &self.nutcracker) {
            (Way::Own, _) => (vec![cache, neighbour], own),
            (Way::Neighbour, _) => (vec![cache, neighbour], others),
            // The home stays stopped.
            (Way::Stopped, _) => (vec![cache], others),
            (Way::Memcached, _) => (vec![memcached], others),
            (Way::Nutcracker, Some(nutcracker)) => (vec![nutcracker, memcached], others),
            (Way::Nutcracker, None) => return Ok(None),
        };
        let items = Items { keys, value_bytes: case.value_bytes };
        let turn = talk(&servers, way.name(), |client| {
            let asked = client.ask(items, case.request(), 1, time)?;
            std::thread::sleep(SETTLE);
            Ok(asked)
        })?;
        if way == Way::Stopped {
            // What was read meanwhile is not to be counted in another turn.
            talk(&self.caches.each_ref(), way.name(), |_| {
                std::thread::sleep(SETTLE);
                Ok(())
            })?;
        }
        Ok(Some(turn))
    }
}

/// Two caches, and the parts that a cluster file must have.
fn cluster_file(name: &str, at: impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let mut file = ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: vec![SiteEntry::new("a", "a.example", 1)],
        nodes: vec![NodeEntry::new("n1", 1, at(5))],
        edges: vec![EdgeEntry::new("edge1", at(6))],
        ..ClusterFile::default()
    };
    file.cache.peers = (0..).zip(CACHES).map(|(offset, name)| CachePeer::new(name, at(offset))).collect();
    file
}

/// One pool of one server. nutcracker connects to it at once, and all else is its default.
fn nutcracker_config(listen: SocketAddr, memcached: SocketAddr) -> String {
    format!("k2:\n  listen: {listen}\n  preconnect: true\n  servers:\n   - {memcached}:1\n")
}

/// It logs errors only, and offers its figures at `stats`.
fn nutcracker_command(program: &Path, config: &Path, stats: SocketAddr) -> Command {
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

    #[test]
    fn the_file_has_two_caches_of_one_machine() {
        let cluster = cluster_file("lab-k2", at).cluster().unwrap();
        let peers: Vec<_> =
            cluster.cache.peers.iter().map(|peer| (peer.name.as_str(), peer.listen)).collect();
        assert_eq!(peers, [("c1", at(0)), ("c2", at(1))]);
    }

    /// The nutcracker that is installed accepts its configuration.
    #[test]
    fn a_real_nutcracker_takes_what_it_is_told() {
        let Some(program) = daemon("nutcracker", "-V") else {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: k2: no nutcracker here; Debian's package nutcracker has it"
            );
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("nutcracker.yml");
        fs::write(&config, nutcracker_config(at(3), at(2))).unwrap();
        let done = nutcracker_command(&program, &config, at(4)).arg("-t").output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}
