//! The caches of K3: two clusters over TCP, of which one has copies, and one over shared memory.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use sidelong_config::{CachePeer, ClusterFile, Identity, default_run_dir};

use super::super::client::{Asked, Items, Request};
use super::super::servers::{self, by_home, eventually, talk};
use super::{FRESH, PIPELINED, VALUE_BYTES, Way};
use crate::bench::Bench;
use crate::error::{Result, file};
use crate::server::{RunFiles, Server};

/// Time after a turn that is counted, too.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// Keeps the caches of different clusters apart, all of which this machine has.
const SECRET: &str = "of a cluster that the lab has started";
/// Ports of a cluster: each of the two caches listens for clients and for the other.
const PORTS: u16 = 4;

/// Two caches, the first of which is asked.
struct Pair {
    caches: [Server; 2],
    /// A key whose home is the first, and one whose home is the second.
    keys: [u32; 2],
    _run: RunFiles,
}

/// By way, the caches that have the item so. The first's own item is that of the caches with copies.
pub(super) struct Stage {
    memory: Pair,
    asked: Pair,
    copies: Pair,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let pair = |number, way| Pair::start(bench, number, way);
        Ok(Stage {
            memory: pair(0, Way::Memory)?,
            asked: pair(1, Way::Asked)?,
            copies: pair(2, Way::Copies)?,
        })
    }

    /// Asks for the key for `time`. Returns what came of it, and the CPU time of the cache that was asked and of the other.
    pub(super) fn turn(&self, way: Way, time: Duration) -> Result<(Asked, [Duration; 2])> {
        let pair = match way {
            Way::Memory => &self.memory,
            Way::Asked => &self.asked,
            Way::Own | Way::Copies => &self.copies,
        };
        let key = pair.keys[usize::from(way != Way::Own)];
        let items = Items { keys: &[key], value_bytes: VALUE_BYTES };
        let (asked, cpu) = talk(&pair.caches.each_ref(), way.name(), |client| {
            // It was stopped: what others owe it has to come first.
            eventually(|| client.fill(items))?;
            let asked = client.ask(items, Request::Gets, PIPELINED, time)?;
            std::thread::sleep(SETTLE);
            Ok(asked)
        })?;
        Ok((asked, [cpu[0], cpu[1]]))
    }
}

impl Pair {
    fn start(bench: &Bench<'_>, number: u16, way: Way) -> Result<Pair> {
        let name = format!("{}-{number}", bench.ground.name);
        let first = bench.ground.port + number * PORTS;
        let cluster = cluster_file(&name, way, |at| SocketAddr::from((Ipv4Addr::LOCALHOST, first + at)));
        let config = bench.path(&format!("configs/caches-{number}.toml"));
        let about = format!("# {}: {}.\n\n", bench.experiment.id, way.name());
        file(&config, fs::write(&config, about + &cluster.to_toml()?))?;
        let secret = bench.path("configs/secret");
        file(&secret, fs::write(&secret, SECRET))?;
        file(&secret, fs::set_permissions(&secret, Permissions::from_mode(0o600)))?;
        let run = RunFiles::clear(default_run_dir(&name));
        let cache = |peer: &CachePeer| {
            let mut command = Command::new(&bench.options.program);
            command.args(["cache", &peer.name, "-q", "--with-parent", "--config"]).arg(&config);
            servers::start(bench, &format!("{}-{number}", peer.name), command, peer.listen)
        };
        let [asked, home] = &cluster.cache.peers[..] else { unreachable!("the file has two caches") };
        let caches = [cache(asked)?, cache(home)?];
        let both = caches.each_ref();
        let (keys, _) = talk(&both, "the homes of keys", |client| eventually(|| by_home(client, 1)))?;
        let keys = keys.map(|keys| keys[0]);
        talk(&both, "the other's item", |client| {
            let items = Items { keys: &keys[1..], value_bytes: 1 };
            eventually(|| {
                client.fill(items)?;
                match client.ask(items, Request::Gets, 1, Duration::ZERO)?.misses {
                    0 => Ok(()),
                    _ => Err(io::Error::other("it is not found")),
                }
            })
        })?;
        Ok(Pair { caches, keys, _run: run })
    }
}

fn cluster_file(name: &str, way: Way, at: impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let peer = |number: u16| {
        let fabric_listen = (way != Way::Memory).then(|| at(2 + number));
        CachePeer { fabric_listen, ..CachePeer::new(format!("c{}", number + 1), at(number)) }
    };
    let secret_file = (way != Way::Memory).then(|| "secret".into());
    let mut file = ClusterFile {
        cluster: Identity { name: name.to_owned(), secret_file, ..Identity::default() },
        ..ClusterFile::default()
    };
    file.cache.peers = vec![peer(0), peer(1)];
    if way == Way::Copies {
        file.cache.fresh = FRESH;
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_caches_with_copies_have_answers_that_are_old() {
        for (way, fresh, has_secret) in
            [(Way::Memory, 0, false), (Way::Asked, 0, true), (Way::Copies, 100, true)]
        {
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
