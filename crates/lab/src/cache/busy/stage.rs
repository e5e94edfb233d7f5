//! The servers of K4: two caches of a cluster, memcached, and busy threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::super::client::{Asked, Items, Request};
use super::super::servers::{self, Pair, talk};
use super::{Cpu, ITEMS, Place, THREADS, VALUE_BYTES, Way};
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result};
use crate::server::Server;

/// Time for busy threads to begin, and for what is continued to do what waits.
pub(super) const SETTLE: Duration = Duration::from_millis(200);

/// All servers. They are stopped, except those whose turn it is.
pub(super) struct Stage {
    caches: Pair,
    memcached: Server,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = servers::cluster_file(&bench.ground.name, 2, at);
        let [cpu, clients] = cpus::two()?;
        // The one that is asked is where the client is.
        let caches = Pair::start(bench, "", "two caches", &cluster, [clients, cpu], ITEMS)?;
        let memcached = servers::memcached(bench, "memcached", servers::MEMORY_MIB, at(2))?;
        let items = Items { keys: &caches.keys[1], value_bytes: VALUE_BYTES };
        talk(&caches.caches.all(), "storing the items", |client| client.fill(items))?;
        talk(&[&memcached], "storing the items", |client| client.fill(items))?;
        Ok(Stage { caches, memcached })
    }

    /// Asks for `time`.
    pub(super) fn turn(&self, bench: &Bench<'_>, way: Way, time: Duration) -> Result<Asked> {
        let Pair { caches, keys } = &self.caches;
        let servers = match (way.place, way.cpu) {
            (Place::Memcached, _) => vec![&self.memcached],
            // The home stays stopped.
            (Place::Neighbour, Cpu::Stopped) => vec![caches.all()[0]],
            (Place::Neighbour, _) => caches.all(),
        };
        let _threads = (way.cpu == Cpu::Busy).then(|| Threads::start(bench)).transpose()?;
        let items = Items { keys: &keys[1], value_bytes: VALUE_BYTES };
        let (asked, _) = talk(&servers, &way.name(), |client| {
            std::thread::sleep(SETTLE);
            client.ask(items, Request::Gets, 1, time)
        })?;
        Ok(asked)
    }
}

/// Busy threads on the servers' CPU, which end with this.
struct Threads(Child);

impl Threads {
    fn start(bench: &Bench<'_>) -> Result<Threads> {
        let [cpu, _] = cpus::two()?;
        let _pinned = Pinned::to(cpu)?;
        let program = &bench.options.program;
        let mut command = Command::new(program);
        command.args(["perf", "background", &THREADS.to_string()]);
        // They end when its input does, in whatever way this process ends.
        let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        started.map(Threads).map_err(|source| Error::Start { program: program.clone(), source })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
