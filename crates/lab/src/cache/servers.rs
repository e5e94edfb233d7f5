//! The servers, and a client's talk with one of them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use sidelong_config::{CachePeer, ClusterFile, Identity, default_run_dir};

use super::client::{Client, Items, Request};
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result, file};
use crate::server::{Address, RunFiles, Server};

/// Memory of a server in which all items stay, in MiB.
pub(super) const MEMORY_MIB: u32 = 1024;
/// Keys of which the home is sought, for each item. Half of them have the right one.
const KEYS_MAX: usize = 10;
/// The longest wait for caches to find each other, and the time between two attempts.
const LINK_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Starts a server on the servers' CPU.
pub(super) fn start<A: Address>(
    bench: &Bench<'_>,
    name: &str,
    command: Command,
    address: A,
) -> Result<Server<A>> {
    let [cpu, _] = cpus::two()?;
    start_on(bench, cpu, name, command, address)
}

fn start_on<A: Address>(
    bench: &Bench<'_>,
    cpu: usize,
    name: &str,
    command: Command,
    address: A,
) -> Result<Server<A>> {
    let _pinned = Pinned::to(cpu)?;
    Server::start_listening(bench, name, command, address)
}

/// A cluster of caches alone, c1 and so on, on this machine.
pub(super) fn cluster_file(name: &str, caches: u16, at: impl Fn(u16) -> SocketAddr) -> ClusterFile {
    let mut file = ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        ..ClusterFile::default()
    };
    file.cache.peers = (0..caches).map(|k| CachePeer::new(format!("c{}", k + 1), at(k))).collect();
    file
}

/// The running caches of a cluster.
pub(super) struct Caches {
    all: Vec<Server>,
    peers: Vec<CachePeer>,
    config: PathBuf,
    run: RunFiles,
}

impl Caches {
    /// Starts those of `cluster`, each on one of `cpus`, in turn. What they are named by and write ends in `suffix`.
    pub(super) fn start(
        bench: &Bench<'_>,
        suffix: &str,
        about: &str,
        cluster: &ClusterFile,
        cpus: &[usize],
    ) -> Result<Caches> {
        let config = bench.path(&format!("configs/caches{suffix}.toml"));
        let about = format!("# {}: {about}.\n\n", bench.experiment.id);
        file(&config, fs::write(&config, about + &cluster.to_toml()?))?;
        let run = RunFiles::clear(default_run_dir(&cluster.cluster.name));
        let mut caches = Caches { all: Vec::new(), peers: cluster.cache.peers.clone(), config, run };
        for (peer, cpu) in cluster.cache.peers.iter().zip(cpus.iter().cycle()) {
            let name = format!("{}{suffix}", peer.name);
            caches.all.push(caches.start_one(bench, *cpu, &name, peer)?);
        }
        Ok(caches)
    }

    /// Starts one of them; what it writes has `name`.
    fn start_one(&self, bench: &Bench<'_>, cpu: usize, name: &str, peer: &CachePeer) -> Result<Server> {
        let mut command = Command::new(&bench.options.program);
        command.args(["cache", &peer.name, "-q", "--with-parent", "--config"]).arg(&self.config);
        start_on(bench, cpu, name, command, peer.listen)
    }

    /// Kills one of them.
    pub(super) fn kill(&mut self, index: usize) {
        self.all[index].process.kill();
    }

    /// Starts one that was killed, on the servers' CPU, and waits until it accepts connections.
    pub(super) fn start_again(&mut self, bench: &Bench<'_>, index: usize) -> Result<()> {
        let [cpu, _] = cpus::two()?;
        self.all[index] = self.start_one(bench, cpu, &self.all[index].name, &self.peers[index])?;
        Ok(())
    }

    /// A Unix socket of that name in their run directory, whose path is short enough for one.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.run.path().join(name)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<&Server> {
        self.all.iter().collect()
    }
}

/// Two caches of a cluster, the first of which is asked.
pub(super) struct Pair {
    pub(super) caches: Caches,
    /// Keys of items whose home is the first, and of those whose home is the second.
    pub(super) keys: [Vec<u32>; 2],
}

impl Pair {
    /// Starts them as [`Caches::start`], and waits until they have found each other. Finds the homes of `items` keys for each.
    pub(super) fn start(
        bench: &Bench<'_>,
        suffix: &str,
        about: &str,
        cluster: &ClusterFile,
        cpus: [usize; 2],
        items: usize,
    ) -> Result<Pair> {
        let caches = Caches::start(bench, suffix, about, cluster, &cpus)?;
        let both = caches.all();
        let (keys, _) = talk(&both, "the homes of items", |client| eventually(|| by_home(client, items)))?;
        let others = Items { keys: &keys[1], value_bytes: 1 };
        talk(&both, "the other's item", |client| {
            eventually(|| {
                client.fill(others)?;
                // One get.
                match client.ask(others, Request::Gets, 1, Duration::ZERO)?.misses {
                    0 => Ok(()),
                    _ => Err(io::Error::other("it is not found")),
                }
            })
        })?;
        Ok(Pair { caches, keys })
    }
}

/// Where a cache that belongs to no cluster listens, by memcached's switches.
pub(super) trait Listen: Address {
    fn switches(&self) -> Vec<String>;
}

/// TCP only.
impl Listen for SocketAddr {
    fn switches(&self) -> Vec<String> {
        let (address, port) = (self.ip().to_string(), self.port().to_string());
        ["-U", "0", "-l", &address, "-p", &port].map(str::to_owned).into()
    }
}

impl Listen for PathBuf {
    fn switches(&self) -> Vec<String> {
        vec!["-s".to_owned(), self.display().to_string()]
    }
}

/// Starts a cache with one thread that belongs to no cluster, with `more` switches.
pub(super) fn sidelong<A: Listen>(
    bench: &Bench<'_>,
    name: &str,
    memory_mib: u32,
    more: &[&str],
    address: A,
) -> Result<Server<A>> {
    let mut command = Command::new(&bench.options.program);
    command.args(["cache", "-q", "-t", "1", "-m", &memory_mib.to_string()]).args(more);
    command.args(address.switches());
    start(bench, name, command, address)
}

/// Starts memcached with one thread.
pub(super) fn memcached<A: Listen>(
    bench: &Bench<'_>,
    name: &str,
    memory_mib: u32,
    address: A,
) -> Result<Server<A>> {
    let mut command = Command::new("memcached");
    // Without a user to become it refuses to run as root. It stays who it is, who may make a Unix socket where the lab's files are.
    command.args(["-u", "root", "-t", "1", "-m", &memory_mib.to_string()]).args(address.switches());
    start(bench, name, command, address).map_err(|error| match error {
        Error::Harness(sidelong_harness::Error::Start { program, .. }) => Error::Absent {
            what: program.display().to_string(),
            instead: "install memcached (Debian: memcached)",
        },
        error => error,
    })
}

/// Lets a client talk to the first of `servers` while all of them run. Returns what came of it, and the CPU time of each server.
///
/// # Errors
/// If the talk fails; `what` names it.
pub(super) fn talk<A: Address, T>(
    servers: &[&Server<A>],
    what: &str,
    talk: impl FnOnce(&mut Client) -> io::Result<T>,
) -> Result<(T, Vec<Duration>)> {
    let [_, cpu] = cpus::two()?;
    let _pinned = Pinned::to(cpu)?;
    let used = || servers.iter().map(|server| Ok(server.process.cpu_used()?)).collect::<Result<Vec<_>>>();
    servers.iter().for_each(|server| server.process.resume());
    let talked = Client::connect(&servers[0].address).and_then(|mut client| {
        let before = used();
        let talked = talk(&mut client)?;
        Ok((talked, before, used()))
    });
    servers.iter().for_each(|server| server.process.pause());
    let (talked, before, after) = talked.map_err(|error| servers[0].failed(format!("{what}: {error}")))?;
    let cpu = after?.iter().zip(&before?).map(|(after, before)| after.since(before)).collect();
    Ok((talked, cpu))
}

/// Keys of items by home: those of the cache that is asked, and those of the other.
fn by_home(client: &mut Client, items: usize) -> io::Result<[Vec<u32>; 2]> {
    let mut keys = [Vec::new(), Vec::new()];
    let mut before = client.stat("forwarded")?;
    for number in 0..(KEYS_MAX * items) as u32 {
        // What would change an item is sent to its home.
        client.delete_absent(number)?;
        let forwarded = client.stat("forwarded")?;
        keys[usize::from(forwarded > before)].push(number);
        before = forwarded;
        if keys.iter().all(|keys| keys.len() >= items) {
            keys.iter_mut().for_each(|keys| keys.truncate(items));
            return Ok(keys);
        }
    }
    Err(io::Error::other(format!("of {} keys, {} are its own", KEYS_MAX * items, keys[0].len())))
}

/// Attempts something until it succeeds, for [`LINK_MAX`] at most.
///
/// # Errors
/// Of the last attempt.
pub(super) fn eventually<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + LINK_MAX;
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(POLL),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_file_has_caches_of_one_machine_alone() {
        let at = |offset| SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + offset));
        let cluster = cluster_file("lab-k2", 2, at).cluster().unwrap();
        let peers: Vec<_> =
            cluster.cache.peers.iter().map(|peer| (peer.name.as_str(), peer.listen)).collect();
        assert_eq!(peers, [("c1", at(0)), ("c2", at(1))]);
    }
}
