//! Whole clusters of caches over a simulated network: while one reads another's memory, the others change it, reads are lost or
//! late, caches die and come back, and keys change homes. Each key's history must be linearizable, also where devices read a memory's lines
//! at several moments.
//!
//! `SIDELONG_SEED=N cargo test -p sidelong-testing --test it cache_simulated::` replays a run in every step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use sidelong_cache::neighbours::{Neighbours, Peer, To};
use sidelong_cache::{Cache, Counters, Host, Session, Settings, Wants, World};
use sidelong_fabric::sim::{Faults, Keys, Network, SimHost};
use sidelong_fabric::{Access, Directory, Initiator, RegionSpec};
use sidelong_layout::{CacheMap, Instance, RegionKind, Slots, Time};
use sidelong_policy::cache::homes::Placement;
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
    /// How keys change homes, if they do.
    change: Option<Change>,
}

/// How keys change homes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// All caches go by the old homes, then by both, then by the new ones.
    Sound,
    /// By the old ones, then by the new ones: a control.
    AtOnce,
    /// As it should be, but nobody waits until all go by both: another.
    Hasty,
}

/// As devices of other machines read.
const BY_DEVICES: Plan = Plan { believes: false, is_remote: true, torn_permille: 500, change: None };
/// The caches that have a share of the keys, one after the other.
const SHARES: [&[usize]; 5] = [&[0, 1, 2], &[0, 1], &[1, 2], &[0, 2], &[1]];

/// One of the caches. It does one thing at a time, as its thread does.
struct Member {
    cache: Cache,
    neighbours: Neighbours,
    counters: Counters,
    /// The change of homes by which it goes.
    turn: u64,
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
    change: Option<Change>,
    /// The newest change of homes.
    turn: AtomicU64,
}

impl Cluster {
    fn start(seed: u64, plan: Plan) -> Arc<Self> {
        let Plan { believes, is_remote, torn_permille, change } = plan;
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
            change,
            turn: AtomicU64::new(0),
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

    fn peers(&self) -> Slots<Peer> {
        let map = self.map;
        let peer = |number: usize| {
            let (name, region) = (format!("c{number}"), format!("c{number}.items"));
            Peer { name, region, map, way: None }
        };
        (0..CACHES).map(peer).collect()
    }

    /// The homes of keys by a change of homes. Each second one is between two.
    fn placement(&self, turn: u64) -> Placement {
        let names: Slots<String> = (0..CACHES).map(|slot| format!("c{slot}")).collect();
        let has = |step: u64| {
            let share = SHARES[step as usize % SHARES.len()];
            move |name: &str| share.iter().any(|slot| name == format!("c{slot}"))
        };
        let (before, after) = (turn / 2, turn.div_ceil(2));
        let is_at_once = self.change == Some(Change::AtOnce);
        Placement::among(&names, has(if is_at_once { after } else { before }), has(after))
    }

    /// Has homes change once more, if all caches that live go by the last change.
    fn turn(&self) {
        let newest = self.turn.load(Ordering::Relaxed);
        let is_behind = |member: &Mutex<Option<Member>>| match member.try_lock() {
            Ok(member) => member.as_ref().is_some_and(|member| member.turn < newest),
            // It reads.
            Err(_) => true,
        };
        if self.change == Some(Change::Hasty) || !self.members.iter().any(is_behind) {
            self.turn.store(newest + 1, Ordering::Relaxed);
        }
    }

    /// Has a cache go by the newest change.
    fn adopt(&self, member: &mut Member) {
        let newest = self.turn.load(Ordering::Relaxed);
        if member.turn < newest {
            member.neighbours.adopt(&self.peers(), self.placement(newest));
            member.cache.keep_only(member.neighbours.share(), CACHES);
            while !member.cache.is_swept() {
                member.cache.sweep(1);
            }
            member.turn = newest;
        }
    }

    fn member(&self, me: usize) -> Member {
        let (map, peers) = (self.map, self.peers());
        let turn = self.turn.load(Ordering::Relaxed);
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
        let homes = self.placement(turn);
        let neighbours = Neighbours::new(me, &peers, homes, Some(directory), Initiator::new());
        let mut cache = Cache::exposed(settings, region, map, 1);
        if self.change.is_some() {
            cache.keep_only(neighbours.share(), CACHES);
        }
        Member { cache, neighbours, counters: Counters::default(), turn }
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
                    let member = member.as_mut().unwrap();
                    member.tick(self.network.now());
                    self.adopt(member);
                }
            }
            20 if self.change.is_some() => self.turn(),
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

    /// A key, and its name.
    fn key(&self) -> (u64, String) {
        let number = self.below(KEYS);
        (number, format!("key{number}"))
    }

    fn read(&self, asked: usize) {
        let Some(mut member) = self.idle(asked) else { return };
        let member = member.as_mut().unwrap();
        let ((key, name), begun) = (self.key(), self.now());
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

    /// The caches that carry out a command on an item, as the one that is asked has it.
    fn changed_at(&self, asked: usize, name: &str) -> Option<Vec<usize>> {
        let mut member = self.idle(asked)?;
        let Member { cache, neighbours, .. } = member.as_mut()?;
        if neighbours.is_changing() && neighbours.changed_at(name.as_bytes()).is_some() {
            cache.remove(name.as_bytes(), 1);
        }
        Some(match neighbours.changed_at(name.as_bytes()) {
            None => vec![asked],
            Some(To::Home(home)) => vec![home.peer],
            Some(To::Both(old, home)) => vec![old, home.peer],
            Some(To::All) => unreachable!("it is for one key"),
        })
    }

    /// A command on one item, which the cache that is asked has its homes carry out.
    fn change(&self, asked: usize, what: u64) {
        let ((key, name), begun) = (self.key(), self.now());
        let Some(homes) = self.changed_at(asked, &name) else { return };
        // One that reads meanwhile does not answer, and one that is dead is not reached.
        if homes.iter().any(|home| self.idle(*home).is_none()) {
            return;
        }
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
        // The second is asked if the first keeps no such item.
        let ask = |command: String| {
            let mut answer = None;
            for (number, home) in homes.iter().enumerate() {
                if number > 0 {
                    // Any time may pass before that.
                    (0..self.below(12)).for_each(|_| self.step());
                }
                let mut home = self.idle(*home)?;
                let member = home.as_mut()?;
                member.cache.take_astray();
                answer = Some(member.ask(&command, false));
                if !member.cache.take_astray() {
                    break;
                }
            }
            answer
        };
        let stored = |verb: &str| format!("{verb} {name} 0 0 {}\r\n{value}\r\n", value.len());
        let command = match what {
            70..84 => stored("set"),
            84..90 => stored("add"),
            90..94 => stored("append"),
            _ => format!("delete {name}\r\n"),
        };
        let op = match (ask(command).as_deref(), what) {
            // The second is not reached any more, and the first has carried nothing out.
            (None, _) => return,
            (Some("STORED\r\n"), 70..84) => Some(Op::Set(value)),
            (Some("STORED\r\n"), 84..90) => Some(Op::Added(value)),
            (Some(_), 84..90) => Some(Op::NotAdded),
            (Some("STORED\r\n"), 90..94) => Some(Op::Appended(value)),
            // It would be too large, or there is none.
            (Some(_), 90..94) => None,
            (Some("DELETED\r\n"), _) => Some(Op::Deleted),
            (Some(_), _) => Some(Op::Absent),
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
    let (mut hits, mut failures, mut turns) = (0, 0, 0);
    for seed in (0..40).map(|round| seed() + round) {
        let cluster = run(seed, plan);
        let (wrong, found, failed) = cluster.judged();
        assert_eq!(wrong, None, "seed {seed}");
        (hits, failures) = (hits + found, failures + failed);
        turns += cluster.turn.load(Ordering::Relaxed);
    }
    println!("{hits} items found in others' memory, {failures} reads failed, {turns} changes of homes");
    assert!(turns > 50 || plan.change.is_none(), "{turns} changes of homes tell nothing");
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

#[test]
fn histories_are_linearizable_while_keys_change_homes() {
    are_linearizable(Plan { change: Some(Change::Sound), ..Plan::default() });
}

#[test]
fn so_are_caches_that_change_homes_too_fast() {
    for change in [Change::AtOnce, Change::Hasty] {
        are_found_out(Plan { change: Some(change), ..Plan::default() });
    }
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
