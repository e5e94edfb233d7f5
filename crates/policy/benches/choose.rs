//! The cost of a choice, which each request makes once: at most 1 us at the 99th percentile.
//!
//! The candidates are stored as an edge stores them: arrays of atomics that other threads write at the same time.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sidelong_policy::Time;
use sidelong_policy::balance::{AnswerTime, Balance, Candidates};
use sidelong_policy::health::{Health, State};
use sidelong_policy::index::{Capacity, LoadIndex, Reading, Weights};

struct Site {
    readings: Vec<AtomicU64>,
    answers: Vec<AtomicU64>,
    in_flight: Vec<AtomicU32>,
    health: Vec<AtomicU64>,
    now: Time,
}

impl Site {
    fn new(nodes: u32, equal: bool) -> Self {
        let capacity = Capacity { workers: 16, ..Capacity::default() };
        let requests = |node: u32| if equal { 4 } else { node * 7 % 23 };
        let answer = |node: u32| {
            AnswerTime::default()
                .seen(Time::from_ns(1), Duration::from_micros(u64::from(requests(node)) * 250))
        };
        let reading = |node| Weights::SYSTEM.read(None, &capacity, requests(node)).encode();
        Site {
            readings: (0..nodes).map(|node| AtomicU64::new(reading(node))).collect(),
            answers: (0..nodes).map(|node| AtomicU64::new(answer(node).encode())).collect(),
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
    fn answer_us(&self, candidate: usize) -> Option<f64> {
        AnswerTime::decode(self.answers[candidate].load(Relaxed)).now_us(self.now)
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
        ("ewma", Balance::Ewma, false),
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
