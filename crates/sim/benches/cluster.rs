//! Requests per second that one core simulates in the cluster of Gu and Wang 2004.
//!
//! Two sites, on nodes with 64 MB: one with 20,000 objects by Zipf's law (540 MB), which most caches hold, and one with
//! ten times as many. Requests arrive at random at 500/s a node, below the cluster's capacity.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sidelong_sim::cluster::{Cluster, Setup};
use sidelong_sim::config::Config;

const REQUESTS: u64 = 1_000_000;

fn setup(nodes: u32, protocol: &str, objects: u32) -> Setup {
    let sets = [
        format!("nodes={nodes}"),
        format!("protocol={protocol}"),
        format!("objects={objects}"),
        format!("requests={REQUESTS}"),
        "arrivals=poisson".to_owned(),
        "rate_per_node=500".to_owned(),
    ];
    let config = Config::parse("", "bench", Path::new(""), &sets).expect("fields of the table");
    let point = config.points().remove(0);
    let requests = Arc::new(point.requests().expect("no file is read"));
    point.setup(requests).expect("requests need no times")
}

fn cluster(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cluster");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).throughput(Throughput::Elements(REQUESTS));
    for (nodes, protocol, objects) in [
        (16, "lazy", 20_000),
        (16, "ledger", 20_000),
        (64, "lazy", 20_000),
        (64, "sender", 20_000),
        (64, "lazy", 200_000),
        (256, "lazy", 20_000),
        (4_096, "lazy", 20_000),
    ] {
        let setup = setup(nodes, protocol, objects);
        let id = BenchmarkId::new(format!("{protocol}/{objects}"), nodes);
        group.bench_function(id, |bencher| bencher.iter(|| black_box(Cluster::run(setup.clone()))));
    }
    group.finish();
}

criterion_group!(benches, cluster);
criterion_main!(benches);
