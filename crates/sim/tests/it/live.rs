//! The same requests simulated and live: what decides is the same code, and each of its counters ends the same.
//!
//! Live means: objects lie as bytes in regions of `fabric`'s simulated network, are read there one-sidedly, and messages are sent
//! as bytes. One request is under way at a time, so that both make the same steps in the same order.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use sidelong_fabric::Host;
use sidelong_fabric::sim::{Faults, Keys, Network};
use sidelong_policy::cache::store::Eviction;
use sidelong_rams::peer::Counters;
use sidelong_rams::protocol::Protocol;
use sidelong_rams::{Event, Map, Node};
use sidelong_sim::cluster::{Cluster, Setup, home_of};
use sidelong_sim::config::Config;
use sidelong_sim::workload::{Arrivals, Requests};

const NODES: u32 = 4;

/// A cluster of which a tenth of the objects fits in memory.
fn setup(protocol: Protocol, eviction: Eviction) -> Setup {
    let sets = [
        format!("nodes={NODES}"),
        format!("protocol={protocol}"),
        format!("eviction={eviction}"),
        "kind=zipf".into(),
        "objects=2000".into(),
        "requests=8000".into(),
        "size_bytes_median=2000".into(),
        "size_bytes_max=60000".into(),
        "memory_mb=0.15".into(),
        "references_max=400".into(),
        "sample_reads=50".into(),
    ];
    let config = Config::parse("", "test.toml", Path::new(""), &sets).unwrap();
    let point = config.points().remove(0);
    let requests = Arc::new(point.requests().unwrap());
    // Whatever a request has set off has ended before the next.
    let arrivals = Arrivals::Closed { clients: 1, think_ns: 1_000_000_000 };
    Setup { arrivals, ..point.setup(requests).unwrap() }
}

/// Bytes that no other object has.
fn bytes_of(key: u64, requests: &Requests) -> Arc<[u8]> {
    let mut number = key + 1;
    let mut byte = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 56) as u8
    };
    (0..requests.bytes(key as u32)).map(|_| byte()).collect()
}

/// Plays all requests live. Returns what each node has counted, and how many requests its memory has answered at once.
fn live(setup: &Setup) -> (Vec<Counters>, u64) {
    let network = Network::new(1, Faults::default());
    let directory = Keys::default();
    let requests = &setup.requests;
    let outgoing = setup.cache.outgoing.bytes_max as usize;
    let map = Map::new(requests.objects(), outgoing);
    let node = |me: u32| {
        let host = Host::Sim(network.host(&format!("n{me}")));
        Node::new(&host, &directory, me, setup.nodes, setup.cache, map, 1).unwrap()
    };
    let mut nodes: Vec<_> = (0..setup.nodes).map(node).collect();
    for node in &mut nodes {
        assert!(node.link(&directory).unwrap());
    }
    let mut keys = requests.keys();
    let mut here = 0;
    for number in 0..requests.len() {
        let key = u64::from(keys.get(number).unwrap());
        let (at, tag) = (number % nodes.len(), number as u32);
        let home = home_of(key as u32, setup.seed, setup.nodes);
        let mut events = Vec::new();
        here += u64::from(nodes[at].request(tag, key, home, &mut events));
        let mut under_way: VecDeque<_> = events.drain(..).map(|event| (at, event)).collect();
        let mut is_answered = false;
        loop {
            // A disk is slower than any message.
            let mut is_quiet = true;
            for (at, node) in nodes.iter_mut().enumerate() {
                is_quiet &= !node.receive(&mut events);
                is_quiet &= !node.send_waiting();
                under_way.extend(events.drain(..).map(|event| (at, event)));
            }
            if !is_quiet {
                continue;
            }
            match under_way.pop_front() {
                Some((at, Event::Load { key })) => {
                    nodes[at].loaded(key, bytes_of(key, requests), &mut events);
                    under_way.extend(events.drain(..).map(|event| (at, event)));
                }
                Some((who, Event::Answer { tag: answered, bytes })) => {
                    assert_eq!((who, answered, is_answered), (at, tag, false));
                    assert!(
                        bytes == bytes_of(key, requests),
                        "request {number}: other bytes than the object's"
                    );
                    is_answered = true;
                }
                Some((_, Event::Refused { .. })) => panic!("request {number} is refused"),
                None => break,
            }
        }
        assert!(is_answered, "request {number}");
    }
    (nodes.iter().map(|node| *node.counters()).collect(), here)
}

#[test]
fn every_counter_is_equal_under_each_protocol() {
    for protocol in Protocol::ALL {
        let setup = setup(*protocol, Eviction::Lru);
        let simulated = Cluster::counters(setup.clone());
        let (counted, here) = live(&setup);
        assert_eq!(counted, simulated, "{protocol}");
        let all: Counters = counted.iter().sum();
        assert!(here > 100 && all.loads > 100 && all.asks > 100, "{protocol}: {all:?}, {here} here");
        if *protocol != Protocol::Rpc {
            // Who is told of each change at once has no reference that is out of date.
            let fails = *protocol != Protocol::Aggressive;
            assert!(all.reads > 100 && (all.read_failures > 10) == fails, "{protocol}: {all:?}");
        }
        let has_updates = !matches!(protocol, Protocol::Rpc | Protocol::Lazy | Protocol::Ledger);
        assert_eq!(all.update_messages > 10, has_updates, "{protocol}: {all:?}");
    }
}

#[test]
fn every_counter_is_equal_under_each_rule_of_eviction() {
    for eviction in Eviction::ALL {
        let setup = setup(Protocol::Ledger, *eviction);
        assert_eq!(live(&setup).0, Cluster::counters(setup), "{eviction}");
    }
}
