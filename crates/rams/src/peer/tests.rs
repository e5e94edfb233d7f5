use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use sidelong_policy::cache::store::Room;

const PROTOCOLS: &[Protocol] = Protocol::ALL;

/// A cluster in which messages arrive one after another in the order of sending, and a disk read takes as long as one
/// message.
struct Cluster {
    peers: Vec<Peer>,
    under_way: VecDeque<(NodeId, Act)>,
    /// By tag: the object, and how many reads failed.
    requests: Vec<(u64, u8)>,
    done: Vec<u32>,
    updates: u64,
}

fn bytes_of(key: u64) -> u32 {
    (key % 3 + 1) as u32
}

impl Cluster {
    fn new(protocol: Protocol, nodes: u32, settings: impl Fn(&mut CacheSettings)) -> Self {
        let mut own = CacheSettings::new(protocol, Room::bytes(12), Room::bytes(6), 16);
        own.sample_reads = 10;
        settings(&mut own);
        Cluster {
            peers: (0..nodes).map(|me| Peer::new(me, nodes, own)).collect(),
            under_way: VecDeque::new(),
            requests: Vec::new(),
            done: Vec::new(),
            updates: 0,
        }
    }

    fn home(&self, key: u64) -> NodeId {
        (key % self.peers.len() as u64) as NodeId
    }

    /// A client asks `node` for `key`.
    fn request(&mut self, node: NodeId, key: u64) {
        let tag = self.requests.len() as u32;
        self.requests.push((key, 0));
        let home = self.home(key);
        let mut acts = Vec::new();
        let peer = &mut self.peers[node as usize];
        match peer.look(key, home) {
            Look::Here => acts.push(Act::Done { tag }),
            Look::There { place, bytes } => acts.push(Act::Read { tag, from: home, place, bytes }),
            Look::Ask => peer.ask(key, home, tag, 0, &mut acts),
            Look::Load => peer.load(key, tag, &mut acts),
        }
        self.under_way.extend(acts.into_iter().map(|act| (node, act)));
    }

    /// Performs the next act.
    fn step(&mut self) -> bool {
        let Some((node, act)) = self.under_way.pop_front() else { return false };
        let mut acts = Vec::new();
        let mut at = node;
        match act {
            Act::Done { tag } => self.done.push(tag),
            Act::Publish { .. } | Act::Withdraw { .. } | Act::Keep { .. } | Act::Drop { .. } => (),
            Act::Load { key } => self.peers[node as usize].loaded(key, bytes_of(key), &mut acts),
            Act::Send { to, message } => {
                self.updates += u64::from(message.update_bytes().1);
                self.peers[to as usize].receive(node, message, &mut acts);
                at = to;
            }
            Act::Read { tag, from, place, bytes } => {
                let key = self.requests[tag as usize].0;
                assert_eq!((bytes, from), (bytes_of(key), self.home(key)));
                let is_sound = self.peers[from as usize].verify(place, key);
                let mut notes = Vec::new();
                self.peers[from as usize].notes_of(node, &mut notes);
                let peer = &mut self.peers[node as usize];
                peer.note(&notes);
                peer.read_done(key, from, place, bytes, is_sound, &mut acts);
                if is_sound {
                    acts.push(Act::Done { tag });
                } else {
                    let failures = self.requests[tag as usize].1 + 1;
                    assert!(failures <= FAILURES_MAX, "then the bytes are sent");
                    self.requests[tag as usize].1 = failures;
                    peer.ask(key, from, tag, failures, &mut acts);
                }
            }
        }
        self.under_way.extend(acts.into_iter().map(|act| (at, act)));
        true
    }

    fn rest(&mut self) {
        while self.step() {}
    }

    fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for peer in &self.peers {
            all.reads += peer.counters.reads;
            all.read_failures += peer.counters.read_failures;
            all.asks += peer.counters.asks;
            all.loads += peer.counters.loads;
            all.update_messages += peer.counters.update_messages;
            all.update_bytes += peer.counters.update_bytes;
        }
        all
    }

    /// A few nodes' requests for objects, some of which are popular.
    fn drive(&mut self, requests: u32) {
        let mut random = 1u64;
        for i in 0..requests {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
            self.request(i % self.peers.len() as u32, (60.0 * unit * unit) as u64);
            self.rest();
        }
    }
}

proptest! {
    /// Whatever crosses on the way, each request ends once, after at most two failed reads, and within the bounds.
    #[test]
    fn every_request_is_answered(
        requests in proptest::collection::vec((0u32..4, 0u64..50, 0usize..4), 1..300),
        protocol in proptest::sample::select(PROTOCOLS),
    ) {
        let mut cluster = Cluster::new(protocol, 4, |_| ());
        for (node, key, steps) in requests {
            cluster.request(node, key);
            (0..steps).for_each(|_| _ = cluster.step());
            for peer in &cluster.peers {
                prop_assert!(peer.outgoing.bytes() <= 12 && peer.incoming.bytes() <= 6);
                prop_assert!(peer.references.len() <= 16);
            }
        }
        cluster.rest();
        cluster.done.sort_unstable();
        prop_assert_eq!(cluster.done.len(), cluster.requests.len());
        prop_assert!(cluster.done.iter().zip(0..).all(|(tag, i)| *tag == i));
        prop_assert!(cluster.peers.iter().all(|peer| peer.loads.is_empty()));
        prop_assert_eq!(cluster.updates, cluster.counters().update_messages);
    }

    /// Small bounds on what is remembered hold, too.
    #[test]
    fn what_is_remembered_is_bounded(protocol in proptest::sample::select(PROTOCOLS)) {
        let mut cluster = Cluster::new(protocol, 3, |settings| {
            (settings.changes_max, settings.carried_max, settings.notes_max) = (5, 2, 1);
        });
        cluster.drive(3_000);
        for peer in &cluster.peers {
            prop_assert!(peer.gone.len() <= 5);
            prop_assert!(peer.marks.iter().all(|list| peer.mark_arena.iter(*list).count() <= 2));
            prop_assert!(peer.notes.iter().all(|list| peer.note_arena.iter(*list).count() <= NOTES_MAX));
        }
    }
}

#[test]
fn a_first_read_takes_three_messages_and_the_next_one_none() {
    let mut cluster = Cluster::new(Protocol::Lazy, 2, |settings| settings.incoming = Room::bytes(1));
    cluster.request(1, 2);
    cluster.rest();
    let Counters { reads, asks, loads, .. } = cluster.counters();
    assert_eq!((reads, asks, loads), (1, 1, 1));
    // With 3 bytes it does not fit in the incoming cache, so only the reference is kept.
    cluster.request(1, 2);
    cluster.rest();
    let Counters { reads, asks, loads, read_failures, .. } = cluster.counters();
    assert_eq!((reads, asks, loads, read_failures), (2, 1, 1, 0));
}

#[test]
fn a_read_of_what_was_evicted_fails_and_is_asked_for_again() {
    let mut cluster = Cluster::new(Protocol::Lazy, 2, |settings| settings.incoming = Room::bytes(1));
    for key in [2, 4, 6, 8, 10, 12, 14] {
        cluster.request(1, key);
        cluster.rest();
    }
    // The home has 12 bytes, so 2 was evicted. After it moved, the old reference fails once more.
    cluster.request(0, 2);
    cluster.rest();
    assert_eq!(cluster.counters().read_failures, 0);
    cluster.request(1, 2);
    cluster.rest();
    let Counters { read_failures, asks, .. } = cluster.counters();
    assert_eq!((read_failures, asks), (1, 8));
    cluster.request(1, 2);
    cluster.rest();
    assert_eq!(cluster.counters().read_failures, 1);
}

#[test]
fn told_of_each_change_nobody_reads_in_vain() {
    let mut cluster = Cluster::new(Protocol::Aggressive, 4, |_| ());
    cluster.drive(5_000);
    let Counters { reads, read_failures, update_messages, .. } = cluster.counters();
    assert!(reads > 500 && update_messages > 500, "{reads} {update_messages}");
    assert_eq!(read_failures, 0);
}

#[test]
fn thresholds_lower_failures_and_cost_less_than_telling_all() {
    let of = |protocol| {
        let mut cluster = Cluster::new(protocol, 4, |_| ());
        cluster.drive(20_000);
        cluster.counters()
    };
    let rate = |counters: &Counters| counters.read_failures as f64 / counters.reads as f64;
    let lazy = of(Protocol::Lazy);
    assert_eq!((lazy.update_messages, lazy.update_bytes), (0, 0));
    for protocol in [Protocol::Sender, Protocol::Receiver, Protocol::Accumulated] {
        let found = of(protocol);
        assert!(rate(&found) < 0.9 * rate(&lazy), "{protocol:?}: {} of {}", rate(&found), rate(&lazy));
        assert!(found.update_messages > 0);
    }
    let ledger = of(Protocol::Ledger);
    assert_eq!(ledger.update_messages, 0);
    assert!(rate(&ledger) < 0.5 * rate(&lazy), "{} of {}", rate(&ledger), rate(&lazy));
    let rpc = of(Protocol::Rpc);
    assert_eq!((rpc.reads, rpc.update_bytes), (0, 0));
}

#[test]
fn a_home_keeps_what_is_read_there_by_ledger_alone() {
    // Node 1 reads 0 all the time, one-sidedly, and also requests new objects.
    let loads_of_0 = |protocol| {
        let mut cluster = Cluster::new(protocol, 2, |settings| settings.incoming = Room::bytes(1));
        let mut failures = 0;
        for key in 1..200 {
            let before = cluster.counters().read_failures;
            cluster.request(1, 0);
            cluster.rest();
            failures += cluster.counters().read_failures - before;
            cluster.request(1, 2 * key);
            cluster.rest();
        }
        failures
    };
    assert!(loads_of_0(Protocol::Lazy) > 10);
    assert_eq!(loads_of_0(Protocol::Ledger), 0);
}
