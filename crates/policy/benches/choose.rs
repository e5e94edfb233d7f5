//! What a choice costs: once for each request, at most 1 us at the 99th percentile.
//!
//! The candidates stand as an edge keeps them: arrays of atomics, written by others at the same time.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sidelong_policy::Time;
use sidelong_policy::balance::{Balance, Candidates};
use sidelong_policy::health::{Health, State};
use sidelong_policy::index::{Capacity, LoadIndex, Reading, Weights};

struct Site {
    readings: Vec<AtomicU64>,
    in_flight: Vec<AtomicU32>,
    health: Vec<AtomicU64>,
    now: Time,
}

impl Site {
    fn new(nodes: u32, equal: bool) -> Self {
        let capacity = Capacity { workers: 16, ..Capacity::default() };
        let requests = |node: u32| if equal { 4 } else { node * 7 % 23 };
        let reading = |node| Weights::SYSTEM.read(None, &capacity, requests(node)).encode();
        Site {
            readings: (0..nodes).map(|node| AtomicU64::new(reading(node))).collect(),
            in_flight: (0..nodes).map(|node| AtomicU32::new(requests(node))).collect(),
            health: (0..nodes).map(|_| AtomicU64::new(Health::UP.encode())).collect(),
            now: Time::from_ns(1),
        }
    }
}

impl Candidates for Site {
    fn len(&self) -> usize {
        self.readings.len()
    }
    fn index(&self, candidate: usize) -> LoadIndex {
        Reading::decode(self.readings[candidate].load(Relaxed)).now(self.in_flight(candidate))
    }
    fn index_at_look(&self, candidate: usize) -> LoadIndex {
        Reading::decode(self.readings[candidate].load(Relaxed)).index()
    }
    fn in_flight(&self, candidate: usize) -> u32 {
        self.in_flight[candidate].load(Relaxed)
    }
    fn usable(&self, candidate: usize) -> bool {
        Health::decode(self.health[candidate].load(Relaxed)).state(self.now) == State::Up
    }
}

fn choose(criterion: &mut Criterion) {
    for (name, balance, equal) in [
        ("round_robin", Balance::RoundRobin, false),
        ("least_connections", Balance::LeastConnections, false),
        ("weighted", Balance::Weighted, false),
        ("weighted_all_equal", Balance::Weighted, true),
        ("power_of_two", Balance::PowerOfTwo, false),
    ] {
        let mut group = criterion.benchmark_group(name);
        for nodes in [8, 64, 1_000] {
            let site = Site::new(nodes, equal);
            let (mut ticket, mut random) = (0u64, 1u64);
            group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
                bencher.iter(|| {
                    ticket += 1;
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(ticket);
                    balance.choose(black_box(&site), ticket, random)
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, choose);
criterion_main!(benches);
