//! The hold model: pop the next event, push it again some time later. Shows the cost of a queue by the number of
//! pending events.
//!
//! The standard library's binary heap, with the same order of equals, is measured beside it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use sidelong_sim::Time;
use sidelong_sim::engine::Queue;

const PENDING: [usize; 4] = [256, 4_096, 65_536, 1_048_576];

/// Exponential delays with a mean of 1 ms, drawn beforehand so that drawing does not count.
fn delays_ns() -> Vec<u64> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    (0..1 << 16)
        .map(|_| {
            let unit: f64 = Exp1.sample(&mut random);
            (unit * 1e6) as u64
        })
        .collect()
}

fn hold(criterion: &mut Criterion) {
    let delays_ns = delays_ns();
    let delay = |i: u64| delays_ns[i as usize & (delays_ns.len() - 1)];
    let mut group = criterion.benchmark_group("hold");
    group.throughput(Throughput::Elements(1));
    for pending in PENDING {
        let mut queue = Queue::new();
        (0..pending as u64).for_each(|i| queue.push(Time::from_ns(delay(i * 7)), i));
        let mut i = 0;
        let mut step = || {
            let (now, event) = queue.pop().unwrap();
            i += 1;
            queue.push(now.after_ns(delay(i)), event);
            event
        };
        (0..4 * pending).for_each(|_| _ = step());
        group.bench_function(BenchmarkId::new("queue", pending), |bencher| {
            bencher.iter(|| black_box(step()));
        });

        let mut heap = BinaryHeap::new();
        (0..pending as u64).for_each(|i| heap.push(Reverse((delay(i * 7), i, i))));
        let (mut i, mut order) = (0, pending as u64);
        let mut step = || {
            let Reverse((now, _, event)) = heap.pop().unwrap();
            i += 1;
            order += 1;
            heap.push(Reverse((now + delay(i), order, event)));
            event
        };
        (0..4 * pending).for_each(|_| _ = step());
        group.bench_function(BenchmarkId::new("binary_heap", pending), |bencher| {
            bencher.iter(|| black_box(step()));
        });
    }
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);
