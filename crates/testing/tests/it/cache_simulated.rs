//! Whole clusters of caches over a simulated network: while one reads another's memory, the others change it, reads are lost or
//! late, and caches die and come back. Each key's history must be linearizable, also where devices read a memory's lines at
//! several moments.
//!
//! `SIDELONG_SEED=N cargo test -p sidelong-testing --test it cache_simulated::` replays a run in every step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use sidelong_cache::neighbours::{Neighbours, Peer};
use sidelong_cache::{Cache, Counters, Host, Session, Settings, Wants, World};
use sidelong_fabric::sim::{Faults, Keys, Network, SimHost};
use sidelong_fabric::{Access, Directory, Initiator, RegionSpec};
use sidelong_layout::{CacheMap, Instance, RegionKind, Time};
use sidelong_policy::cache::store::Eviction;

use sidelong_testing::histories::{Event, Op, Verdict, judge, seed};

const CACHES: usize = 3;
const MEMORY_BYTES: usize = 8 << 20;
const KEYS: u64 = 6;
/// Commands that are begun while nothing else is; others are begun while their reads are under way.
const COMMANDS: usize = 400;

/// What a run is like.
#[derive(Clone, Copy, Default)]
struct Plan {
    /// Clients believe what they have read without asking: a control.
    believes: bool,
    /// Items have checks.
    is_remote: bool,
    /// Of the reads of more than a line, those whose lines are read at several moments.
    torn_permille: u32,
}

/// As devices of other machines read.
const BY_DEVICES: Plan = Plan { believes: false, is_remote: true, torn_permille: 500 };

/// One of the caches. It does one thing at a time, as its thread does.
struct Member {
    cache: Cache,
    neighbours: Neighbours,
    counters: Counters,
}

impl Member {
    /// The answer to a command: from other caches' memory, too, if its client asks it, and from its own alone if another cache does.
    fn ask(&mut self, command: &str, by_client: bool) -> String {
        let world = World { now: 1, ..World::default() };
        let mut host = Host {
            cache: &mut self.cache,
            counters: &mut self.counters,
            world: &world,
            neighbours: by_client.then_some(&mut self.neighbours),
        };
        let mut out = Vec::new();
        let fed = Session::new().feed(command.as_bytes(), &mut host, &mut out);
        if fed.wants == Wants::Answer {
            // The home is to be asked, because there is no link. Nobody does, which is a miss.
            return "END\r\n".to_owned();
        }
        assert_eq!(fed.consumed, command.len());
        String::from_utf8(out).unwrap()
    }

    fn tick(&mut self, now: Duration) {
        self.neighbours.tick(&mut self.cache, Time::default().after(now));
    }
}

struct Cluster {
    network: Network,
    hosts: Vec<SimHost>,
    keys: Arc<Keys>,
    /// `None` while one is dead.
    members: Vec<Mutex<Option<Member>>>,
    random: Mutex<Pcg64Mcg>,
    /// Counts begins and ends, and values.
    clock: AtomicU64,
    recorded: Mutex<BTreeMap<u64, Vec<Event>>>,
    /// What clients have read, if they believe it without asking: the control.
    believed: Option<Mutex<BTreeMap<u64, String>>>,
    map: CacheMap,
}

impl Cluster {
    fn start(seed: u64, plan: Plan) -> Arc<Self> {
        let Plan { believes, is_remote, torn_permille } = plan;
        let faults = Faults { loss_permille: 20, late_permille: 20, torn_permille, ..Faults::default() };
        let map = CacheMap::new(MEMORY_BYTES, CACHES);
        let network = Network::new(seed, faults);
        let cluster = Cluster {
            hosts: (0..CACHES).map(|me| network.host(&format!("m{me}"))).collect(),
            network,
            keys: Arc::default(),
            members: (0..CACHES).map(|_| Mutex::default()).collect(),
            random: Mutex::new(Pcg64Mcg::seed_from_u64(seed)),
            clock: AtomicU64::new(1),
            recorded: Mutex::default(),
            believed: believes.then(Mutex::default),
            map: if is_remote { map.remote() } else { map },
        };
        for me in 0..CACHES {
            *cluster.members[me].lock().unwrap() = Some(cluster.member(me));
        }
        let cluster = Arc::new(cluster);
        let others: Weak<Cluster> = Arc::downgrade(&cluster);
        cluster.network.meanwhile(move || {
            if let Some(cluster) = others.upgrade()
                && cluster.below(3) == 0
            {
                cluster.step();
            }
        });
        cluster
    }

    fn member(&self, me: usize) -> Member {
        let map = self.map;
        let peer =
            |number: usize| Peer { name: format!("c{number}"), region: format!("c{number}.items"), map };
        let peers: Vec<Peer> = (0..CACHES).map(peer).collect();
        let spec = RegionSpec {
            name: &peers[me].region,
            kind: RegionKind::Cache,
            len: map.len(),
            access: Access::ReadOnly,
            instance: Instance::alone(1),
        };
        let settings = Settings {
            memory_bytes: MEMORY_BYTES,
            item_bytes_max: 1 << 20,
            eviction: Eviction::Sieve,
            evicts: true,
            seed: [self.now(), 7],
        };
        let region = sidelong_fabric::Host::Sim(self.hosts[me].clone()).expose_owned(&spec).unwrap();
        self.keys.publish(region.key().unwrap()).unwrap();
        let directory: Arc<dyn Directory> = Arc::clone(&self.keys) as _;
        Member {
            cache: Cache::exposed(settings, region, map, 1),
            neighbours: Neighbours::new(me, &peers, Some(directory), Initiator::new()),
            counters: Counters::default(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap().random_range(0..bound)
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A cache that lives and is not reading.
    fn idle(&self, number: usize) -> Option<MutexGuard<'_, Option<Member>>> {
        self.members[number].try_lock().ok().filter(|member| member.is_some())
    }

    fn record(&self, key: u64, op: Op, begun: u64) {
        let event = Event { op, begun, ended: self.now() };
        self.recorded.lock().unwrap().entry(key).or_default().push(event);
    }

    /// One random thing: mostly a command, through any cache.
    fn step(&self) {
        let (asked, what) = (self.below(CACHES as u64) as usize, self.below(100));
        match what {
            0 => self.kill(asked),
            1..4 => self.revive(asked),
            4..20 => {
                if let Some(mut member) = self.idle(asked) {
                    member.as_mut().unwrap().tick(self.network.now());
                }
            }
            20..24 => self.flush(),
            24..70 => self.read(asked),
            _ => self.change(asked, what),
        }
    }

    fn kill(&self, number: usize) {
        if let Some(mut member) = self.idle(number) {
            self.network.crash(&self.hosts[number]);
            *member = None;
        }
    }

    fn revive(&self, number: usize) {
        let Ok(mut member) = self.members[number].try_lock() else { return };
        if member.is_none() {
            self.network.restart(&self.hosts[number]);
            *member = Some(self.member(number));
        }
    }

    /// The home of a key, and its name.
    fn key(&self, asked: usize, member: &Member) -> (u64, String, usize) {
        let number = self.below(KEYS);
        let name = format!("key{number}");
        let home = member.neighbours.home(name.as_bytes()).map_or(asked, |home| home.peer);
        (number, name, home)
    }

    fn read(&self, asked: usize) {
        let Some(mut member) = self.idle(asked) else { return };
        let member = member.as_mut().unwrap();
        let ((key, name, _), begun) = (self.key(asked, member), self.now());
        if let Some(believed) = self.believed.as_ref().and_then(|all| all.lock().unwrap().get(&key).cloned())
        {
            return self.record(key, Op::Read(believed), begun);
        }
        let answer = member.ask(&format!("get {name}\r\n"), true);
        // A read may miss.
        let Some(found) = answer.strip_suffix("\r\nEND\r\n") else { return };
        let (_, value) = found.split_once("\r\n").unwrap();
        if let Some(all) = &self.believed {
            all.lock().unwrap().insert(key, value.to_owned());
        }
        self.record(key, Op::Read(value.to_owned()), begun);
    }

    /// A command on one item, which the cache that is asked has its home carry out.
    fn change(&self, asked: usize, what: u64) {
        let Some(member) = self.idle(asked) else { return };
        let (key, name, home) = self.key(asked, member.as_ref().unwrap());
        drop(member);
        let begun = self.now();
        // One that reads meanwhile does not answer, and one that is dead is not reached.
        let Some(mut home) = self.idle(home) else { return };
        // Many of one size, so that they take each other's places, and some of others, so that places are given to other items, and
        // large ones lie in pieces.
        let word = format!("{begun:08};");
        let words = match self.below(6) {
            0 => self.below(3),
            1 => self.below(200),
            2 => self.below(20_000),
            _ => 100,
        };
        let value = word.repeat(1 + words as usize);
        let mut ask = |command: String| home.as_mut().unwrap().ask(&command, false);
        let stored = |verb: &str| format!("{verb} {name} 0 0 {}\r\n{value}\r\n", value.len());
        let op = match what {
            70..84 => (ask(stored("set")) == "STORED\r\n").then(|| Op::Set(value.clone())),
            84..90 => match &*ask(stored("add")) {
                "STORED\r\n" => Some(Op::Added(value.clone())),
                _ => Some(Op::NotAdded),
            },
            90..94 => match &*ask(stored("append")) {
                "STORED\r\n" => Some(Op::Appended(value.clone())),
                // It would be too large, or there is none.
                _ => None,
            },
            _ => match &*ask(format!("delete {name}\r\n")) {
                "DELETED\r\n" => Some(Op::Deleted),
                _ => Some(Op::Absent),
            },
        };
        if let Some(op) = op {
            self.record(key, op, begun);
        }
    }

    /// Of all, if all answer.
    fn flush(&self) {
        let all: Vec<_> = (0..CACHES).filter_map(|number| self.idle(number)).collect();
        if all.len() < CACHES {
            return;
        }
        let begun = self.now();
        for mut member in all {
            assert_eq!(member.as_mut().unwrap().ask("flush_all\r\n", false), "OK\r\n");
        }
        (0..KEYS).for_each(|key| self.record(key, Op::Flushed, begun));
    }

    /// Why the first history that is wrong is so; and what was read in others' memory, by those that live.
    fn judged(&self) -> (Option<String>, u64, u64) {
        let reads = |member: &Mutex<Option<Member>>| {
            let member = member.lock().unwrap();
            member.as_ref().map(|member| member.neighbours.reads()).unwrap_or_default()
        };
        let all: Vec<_> = self.members.iter().map(reads).collect();
        let sum = |of: fn(&sidelong_cache::neighbours::Reads) -> u64| all.iter().map(of).sum();
        let histories = self.recorded.lock().unwrap().clone();
        let wrong = histories.into_iter().find_map(|(key, events)| match judge(events) {
            Verdict::Wrong(problem) => Some(format!("key {key}: {problem}")),
            Verdict::Linearizable | Verdict::Undecided => None,
        });
        (wrong, sum(|reads| reads.hits), sum(|reads| reads.failures))
    }
}

fn run(seed: u64, plan: Plan) -> Arc<Cluster> {
    let cluster = Cluster::start(seed, plan);
    (0..COMMANDS).for_each(|_| cluster.step());
    cluster
}

fn are_linearizable(plan: Plan) {
    let (mut hits, mut failures) = (0, 0);
    for seed in (0..40).map(|round| seed() + round) {
        let (wrong, found, failed) = run(seed, plan).judged();
        assert_eq!(wrong, None, "seed {seed}");
        (hits, failures) = (hits + found, failures + failed);
    }
    println!("{hits} items found in others' memory, {failures} reads failed");
    assert!(hits > 100 && failures > 10, "{hits} hits and {failures} failures tell nothing");
}

#[test]
fn histories_over_a_simulated_network_are_linearizable() {
    are_linearizable(Plan::default());
}

#[test]
fn histories_are_linearizable_where_devices_read_lines_in_any_order() {
    are_linearizable(BY_DEVICES);
}

fn are_found_out(plan: Plan) {
    let wrong = (0..400).find_map(|round| run(seed() + round, plan).judged().0);
    assert!(wrong.is_some(), "wrong reads passed for right");
}

#[test]
fn clients_that_believe_what_they_read_once_are_found_out() {
    are_found_out(Plan { believes: true, ..Plan::default() });
}

#[test]
fn so_are_devices_without_the_check() {
    are_found_out(Plan { is_remote: false, ..BY_DEVICES });
}

#[test]
fn the_same_seed_gives_the_same_histories() {
    let histories = |seed| format!("{:?}", run(seed, BY_DEVICES).recorded.lock().unwrap());
    let seed = seed();
    assert!(histories(seed) == histories(seed), "seed {seed}");
    assert!(histories(seed) != histories(seed + 1), "seed {seed}");
}
