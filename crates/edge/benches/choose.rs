//! The cost of an edge's choice of node, including the view and the count of the request, which every request pays. It
//! must stay below a microsecond at the 99th percentile. Also the cost of the gate, which must stay below 100 ns.
//!
//! `cargo bench -p sidelong-edge --bench choose`

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use sidelong_edge::{Gate, View};
use sidelong_figure::statistics::quantile;
use sidelong_layout::{Hot, NodeId, Ownership, SiteId, valid};
use sidelong_policy::Time;
use sidelong_policy::admission::{Client, Promise, Request, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::health;
use sidelong_policy::index::{Capacity, Weights};

const SITE: SiteId = SiteId::new(0);

fn view(nodes: usize, balance: Balance) -> View {
    let view = View::new(nodes, 3, Duration::from_millis(200), balance, health::HealthSettings::default());
    for node in view.nodes() {
        let hot = Hot { valid: valid::ORIGIN, workers: 2, busy: node.index() as u32 % 3, ..Hot::default() };
        let reading = Weights::default().read(Some(&hot), &Capacity::default(), 0);
        // Half of the nodes serve the site, as in a cluster whose nodes move.
        let site = if node.index() % 2 == 0 { SITE } else { SiteId::new(1) };
        view.observe(node, Some(Ownership::serving(site, 1)), reading);
    }
    view.relist();
    view.refreshed(Time::from_ns(1));
    view
}

fn choose_and_release(view: &View, now: u64) -> Option<NodeId> {
    let node = view.choose(SITE, None, Time::from_ns(now));
    if let Some(node) = node {
        view.waits(node);
        view.waited(node);
        view.answered(node, Time::from_ns(now), Duration::from_millis(1));
        view.release(node);
    }
    node
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (balance, name) in [(Balance::Weighted, "weighted"), (Balance::PowerOfTwo, "power-of-two")] {
        let mut group = criterion.benchmark_group(format!("choose/{name}"));
        for nodes in [8, 64, 1000] {
            let view = view(nodes, balance);
            group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
                bencher.iter(|| choose_and_release(black_box(&view), black_box(2)));
            });
        }
        group.finish();
    }
    criterion.final_summary();

    println!("\none call each, clock readings included, ns:");
    println!("{:>6} {:>14} {:>8} {:>8} {:>8}", "nodes", "", "p50", "p99", "p99.9");
    for (balance, name) in [(Balance::Weighted, "weighted"), (Balance::PowerOfTwo, "power-of-two")] {
        for nodes in [8, 64, 1000] {
            let view = view(nodes, balance);
            let [p50, p99, p999] = each(|now| choose_and_release(&view, now + 2));
            println!("{nodes:>6} {name:>14} {p50:>8} {p99:>8} {p999:>8}");
        }
    }
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(10))), share: 0.0 };
    let gate = Gate::new(&[promise], Duration::from_secs(30), Duration::from_millis(200), 1);
    let client = Client::new(([10, 0, 0, 1], 5000).into());
    let request = Request { method: "GET", target: "/" };
    for (view_is_old, name) in [(false, "gate"), (true, "gate, old view")] {
        let [p50, p99, p999] =
            each(|now| gate.decide(0, SITE, client, request, Time::from_ns(now), view_is_old));
        println!("{:>6} {name:>14} {p50:>8} {p99:>8} {p999:>8}", "");
    }
}

/// The median, 99th and 99.9th percentile of many calls, in ns.
fn each<T>(mut call: impl FnMut(u64) -> T) -> [f64; 3] {
    let mut took: Vec<_> = (0..200_000)
        .map(|now| {
            let begun = Instant::now();
            black_box(call(now));
            begun.elapsed().as_nanos() as f64
        })
        .collect();
    took.sort_by(f64::total_cmp);
    [0.5, 0.99, 0.999].map(|q| quantile(&took, q).expect("there are calls"))
}
