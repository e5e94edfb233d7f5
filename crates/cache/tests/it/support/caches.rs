//! The caches of a cluster in one process, for tests and benchmarks: their memory is read, and nothing is sent.

use std::sync::Arc;

use sidelong_cache::neighbours::{Errands, Neighbours, Peer};
use sidelong_cache::{Cache, Counters, Host, Session, Settings, Wants, World};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Directory, Initiator, RegionSpec, RunDirectory};
use sidelong_layout::{CacheMap, Instance, RegionKind, Slots, Time};
use sidelong_os::monotonic_ns;
use sidelong_policy::cache::homes::{Homes, Placement};
use sidelong_policy::cache::store::Eviction;

/// What each hashes keys with.
pub(crate) const SEED: [u64; 2] = [7, 9];
const NAMES: [&str; 3] = ["home", "one", "two"];

pub(crate) struct Caches {
    directory: tempfile::TempDir,
    pub(crate) peers: Slots<Peer>,
    memory_bytes: usize,
    began_ns: u64,
}

/// One of them, as its thread has it.
pub(crate) struct Member {
    pub(crate) cache: Cache,
    pub(crate) neighbours: Neighbours,
    counters: Counters,
    began_ns: u64,
}

impl Caches {
    /// The caches of a cluster, of so much memory each.
    pub(crate) fn new(memory_bytes: usize) -> Self {
        Caches::with_map(memory_bytes, CacheMap::new(memory_bytes, NAMES.len()))
    }

    /// The caches of several machines: their items have checks, and each is read as by a device.
    pub(crate) fn remote(memory_bytes: usize) -> Self {
        Caches::with_map(memory_bytes, CacheMap::new(memory_bytes, NAMES.len()).remote())
    }

    fn with_map(memory_bytes: usize, map: CacheMap) -> Self {
        let peer = |name: &&str| {
            let (name, region) = ((*name).to_owned(), format!("{name}.items"));
            Peer { name, region, map, way: None }
        };
        Caches {
            directory: tempfile::tempdir().unwrap(),
            peers: NAMES.iter().map(peer).collect(),
            memory_bytes,
            began_ns: monotonic_ns().saturating_sub(1_000_000_000),
        }
    }

    pub(crate) fn run(&self) -> RunDirectory {
        RunDirectory::open(self.directory.path().join("run")).unwrap()
    }

    fn neighbours(&self, me: usize) -> Neighbours {
        let homes = Placement::settled(Homes::new(NAMES));
        let directory: Arc<dyn Directory> = Arc::new(self.run());
        Neighbours::new(me, &self.peers, homes, Some(directory), Initiator::new())
    }

    pub(crate) fn member(&self, me: usize) -> Member {
        let Peer { region, map, .. } = &self.peers[me];
        let spec = RegionSpec {
            name: region,
            kind: RegionKind::Cache,
            len: map.len(),
            access: Access::ReadOnly,
            instance: Instance::alone(1),
        };
        let host = sidelong_fabric::Host::Shm(ShmHost::new(self.run().path()));
        let settings = Settings {
            memory_bytes: self.memory_bytes,
            item_bytes_max: 1 << 20,
            eviction: Eviction::Sieve,
            evicts: true,
            seed: SEED,
        };
        Member {
            cache: Cache::exposed(settings, host.expose_owned(&spec).unwrap(), *map, self.began_ns),
            neighbours: self.neighbours(me),
            counters: Counters::default(),
            began_ns: self.began_ns,
        }
    }
}

impl Member {
    pub(crate) fn tick(&mut self) {
        self.neighbours.tick(&mut self.cache, Time(monotonic_ns()));
    }

    /// Adds the answer to a command that needs no other cache but to read it.
    pub(crate) fn ask(&mut self, command: &[u8], answer: &mut Vec<u8>) {
        let now = ((monotonic_ns() - self.began_ns) / 1_000_000_000) as u32;
        let world = World { now, ..World::default() };
        let mut host = Host {
            cache: &mut self.cache,
            counters: &mut self.counters,
            world: &world,
            neighbours: Some(&mut self.neighbours),
        };
        let fed = Session::new().feed(command, &mut host, answer);
        if fed.wants == Wants::Answer {
            // The home is to be asked, because its memory is not read. Nobody does, which is a miss.
            self.neighbours.take_errands(&mut Errands::default());
            return answer.extend_from_slice(b"END\r\n");
        }
        assert_eq!((fed.consumed, fed.wants), (command.len(), Wants::Input(1)));
    }

    /// Keys whose home is the first cache.
    pub(crate) fn keys(&self, count: usize) -> Vec<String> {
        let all = (0..).map(|key| format!("key{key}"));
        all.filter(|key| self.neighbours.home(key.as_bytes()).is_some_and(|home| home.peer == 0))
            .take(count)
            .collect()
    }
}
