//! Nodes, edges, caches and sites that join and leave at random while commands and parts are killed: whatever dies at whichever step, floors
//! hold, no slot is lost, keys have their homes, and the next command succeeds.
//!
//! `cargo xtask ci membership` goes on for a hundred rounds each, from a new seed, which it prints.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use sidelong_config::{CachePeer, SiteEntry};
use sidelong_layout::Ownership;

use crate::support::words::Word;
use crate::support::{
    Cluster, Running, SteadyLoad, eventually, memcached, number, try_get, until_it_succeeds,
};

/// The number of rounds and the seed, if the variables SIDELONG_ROUNDS and SIDELONG_SEED do not say otherwise.
const ROUNDS: u64 = 6;
const SEED: u64 = 7;
/// Nodes, edges and caches that are always there, and nodes that come and go.
const STAY: [(&str, &str); 8] = [
    ("node", "n1"),
    ("node", "n2"),
    ("node", "n3"),
    ("node", "n4"),
    ("edge", "edge1"),
    ("edge", "edge2"),
    ("cache", "c1"),
    ("cache", "c2"),
];
const NODES: [&str; 2] = ["n5", "n6"];
/// Keys whose homes are looked at.
const KEYS: usize = 32;
/// With time for a machine that others use, too.
const RELOAD: [&str; 3] = ["reload", "--timeout", "60s"];
/// Most slots for nodes that may be in use: one that has left may still be meant by a part that was killed, so that one more is taken.
const SLOTS_MAX: usize = 12;

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Command,
    Part,
}

/// A part that runs.
struct Started {
    kind: &'static str,
    name: String,
    process: Running,
}

struct Members {
    cluster: Cluster,
    parts: Vec<Started>,
    /// The last reload that was not killed took so long.
    took: Duration,
    random: Pcg64Mcg,
    /// What all keys were last set to.
    version: u64,
}

impl Members {
    fn start(seed: u64) -> Self {
        let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]);
        // So that a third site may come.
        cluster.file.sites[0].nodes = 1;
        cluster.file.cache.peers = (1..=2).map(|number| cache(&cluster, number)).collect();
        let mut members = Members {
            cluster,
            parts: Vec::new(),
            took: Duration::from_millis(100),
            random: Pcg64Mcg::seed_from_u64(seed),
            version: 0,
        };
        STAY.iter().for_each(|(kind, name)| members.begin(kind, name));
        let Members { cluster, parts, .. } = &mut members;
        let edge = parts.iter_mut().rfind(|part| part.kind == "edge").expect("an edge");
        cluster.await_serving(&mut edge.process);
        members.follow();
        members
    }

    fn begin(&mut self, kind: &'static str, name: &str) {
        let process = self.cluster.part(kind, name);
        self.parts.retain(|part| part.name != name);
        self.parts.push(Started { kind, name: name.to_owned(), process });
    }

    /// Has one or two members come or go, or a name change, in the file.
    fn change(&mut self) {
        for _ in 0..self.random.random_range(1..=2) {
            let what = self.random.random_range(0..6);
            let file = &mut self.cluster.file;
            match what {
                0 | 1 => {
                    let name = NODES[what];
                    match file.nodes.iter().position(|node| node.name == name) {
                        Some(index) => drop(file.nodes.remove(index)),
                        None => self.cluster.add_node(name),
                    }
                }
                2 if file.sites.len() > 2 => drop(file.sites.pop()),
                2 => file.sites.push(SiteEntry::new("gamma", "gamma.test", 1)),
                3 if file.edges.len() > 2 => drop(file.edges.pop()),
                3 => self.cluster.push_edge(),
                4 if file.cache.peers.len() > 2 => drop(file.cache.peers.pop()),
                4 => {
                    let joins = cache(&self.cluster, 3);
                    self.cluster.file.cache.peers.push(joins);
                }
                _ => file.limits.retries = 1 - file.limits.retries.min(1),
            }
        }
    }

    fn round(&mut self, victim: Victim) {
        self.change();
        let command = self.cluster.start(&RELOAD);
        let pause = self.random.random_range(Duration::ZERO..self.took);
        std::thread::sleep(pause);
        match victim {
            Victim::Command => drop(command.kill()),
            Victim::Part => {
                let (kind, name) = *STAY.choose(&mut self.random).expect("there are some");
                let index = self.parts.iter().position(|part| part.name == name).expect("it runs");
                self.parts.remove(index).process.kill();
                self.begin(kind, name);
                drop(command.finish());
            }
        }
        let began = Instant::now();
        match victim {
            // Nothing that it had may stand in the way.
            Victim::Command => drop(self.cluster.run(&RELOAD).succeeded()),
            // A part that starts again is not there for a moment.
            Victim::Part => drop(until_it_succeeds(|| self.cluster.run(&RELOAD))),
        }
        self.took = began.elapsed();
        self.follow();
        self.check();
    }

    /// Starts the parts that have joined. Those that have left end. Each site has a node that stays, so that all others may leave.
    fn follow(&mut self) {
        let file = &self.cluster.file;
        let nodes = file.nodes.iter().map(|node| ("node", node.name.clone()));
        let edges = file.edges.iter().map(|edge| ("edge", edge.name.clone()));
        let caches = file.cache.peers.iter().map(|cache| ("cache", cache.name.clone()));
        let now: Vec<_> = nodes.chain(edges).chain(caches).collect();
        let left = self.parts.extract_if(.., |part| !now.iter().any(|(_, there)| *there == part.name));
        for Started { name, process, .. } in left {
            let ended = process.finish();
            assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
            check_end(&ended.err);
        }
        for (kind, name) in now {
            // An edge ends if the cluster changes while it starts.
            let known = self.parts.iter_mut().find(|part| part.name == name);
            if known.is_some_and(|part| part.process.is_running()) {
                continue;
            }
            self.begin(kind, &name);
            let index = || self.cluster.file.edges.iter().position(|edge| edge.name == name);
            eventually("it is there", || match index() {
                None if kind == "cache" => self.caches().all(|at| TcpStream::connect(at).is_ok()),
                None => self.cluster.regions().contains(&format!("{name}.words.region")),
                Some(edge) => {
                    let reply = try_get(self.cluster.edge(edge), "alpha.test", "/o/1/1");
                    reply.is_ok_and(|reply| reply.status == 200)
                }
            });
        }
        for (site, (_, node)) in self.cluster.file.sites.iter().zip(STAY) {
            until_it_succeeds(|| self.cluster.run(&["move", node, &site.name]));
        }
    }

    fn caches(&self) -> impl Iterator<Item = SocketAddr> {
        self.cluster.file.cache.peers.iter().map(|cache| cache.listen)
    }

    /// Each key can be stored through one cache, and is read through all others, never as it was before.
    fn check_keys(&mut self) {
        self.version += 1;
        let version = self.version;
        let mut clients: Vec<_> = self.caches().map(memcached::Client::connect).collect();
        for key in 0..KEYS {
            let text = format!("set key{key} 0 0 8\r\n{version:08}\r\n");
            eventually("its home takes it", || {
                clients[key % 2].try_ask(&text).is_some_and(|answer| answer == "STORED\r\n")
            });
            for client in &mut clients {
                let found = client.try_get(&format!("key{key}")).expect("it stays connected");
                // It may be changing homes.
                assert!(found.as_ref().is_none_or(|found| *found == format!("{version:08}")), "{found:?}");
            }
        }
        let all: Vec<_> = (0..KEYS).map(|key| format!("key{key}")).collect();
        let get = format!("get {}", all.join(" "));
        eventually("keys have their homes", || {
            for key in &all {
                let text = format!("set {key} 0 0 8\r\n{version:08}\r\n");
                clients[0].try_ask(&text).expect("it stays connected");
            }
            clients.iter_mut().all(|client| client.list(&get).matches("VALUE ").count() == KEYS)
        });
    }

    fn check(&mut self) {
        self.check_keys();
        let current = self.cluster.current().expect("it can be used");
        assert!(current.nodes.len() <= SLOTS_MAX, "a slot is lost: {:?}", current.nodes);
        let words = STAY.iter().filter(|(kind, _)| *kind == "node").map(|(_, name)| {
            let number = name[1..].parse().expect("a number");
            let word = Word::ownership(&self.cluster, number).read();
            Ownership::decode(word, current.capacity.sites).and_then(|own| own.site)
        });
        let words: Vec<_> = words.collect();
        for slot in 0..2 {
            let there = words.iter().filter(|site| site.is_some_and(|site| site.index() == slot)).count();
            let name = &current.sites[slot].name;
            assert!(there >= current.sites[slot].floor, "{name} is below its floor: {words:?}");
        }
    }

    fn end(mut self) {
        // The edges end first.
        self.parts.sort_by_key(|part| part.kind);
        for part in self.parts {
            let ended = part.process.end();
            check_end(&ended.err);
            ended.succeeded();
        }
    }
}

/// A small cache of that number.
fn cache(cluster: &Cluster, number: u16) -> CachePeer {
    CachePeer { memory_mb: 8, ..CachePeer::new(format!("c{number}"), cluster.at(11210 + number)) }
}

/// A node says at its end whether it had requests for a site that it did not serve.
fn check_end(said: &str) {
    assert!(!said.contains("that the node did not serve"), "{said}");
}

/// All rounds, and the requests that failed meanwhile.
fn rounds(victim: Victim) -> Vec<String> {
    let (seed, rounds) = (number("SIDELONG_SEED", SEED), number("SIDELONG_ROUNDS", ROUNDS));
    println!("SIDELONG_SEED={seed}");
    let mut members = Members::start(seed);
    let load = SteadyLoad::start(&members.cluster);
    for _ in 0..rounds {
        members.round(victim);
    }
    let failed = load.end();
    members.end();
    failed
}

#[test]
fn a_command_may_be_killed_at_any_step() {
    assert_eq!(rounds(Victim::Command), Vec::<String>::new());
}

#[test]
fn a_part_may_be_killed_at_any_step() {
    // Requests at the part that is killed fail.
    rounds(Victim::Part);
}
