//! The cost of an admission decision, which each request makes once: at most 100 ns at the 99th percentile. Also the
//! cost of a step, which runs a thousand times a second.
//!
//! `cargo bench -p sidelong-policy --bench decide`
#![expect(clippy::disallowed_methods, reason = "a bench asks the clock")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use sidelong_figure::statistics::quantile;
use sidelong_layout::{ByServer, Hot, Ownership, SiteId, valid};
use sidelong_policy::Time;
use sidelong_policy::admission::{
    AdmissionSettings, AdmissionSnapshot, Answers, Client, Controller, Promise, Target, Treatment, Verdict,
    decide,
};
use sidelong_policy::cluster::{NodeView, SiteView, Traffic};
use sidelong_policy::index::Capacity;

/// A cluster in which each site has eight nodes with a queue.
struct Cluster {
    controller: Controller,
    nodes: Vec<NodeView>,
    sites: Vec<SiteView>,
    traffic: Vec<Traffic>,
    answers: Vec<Answers>,
}

impl Cluster {
    fn new(nodes: usize) -> Self {
        let sites = nodes.div_ceil(8);
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(10))), share: 0.0 };
        let hot = Hot {
            valid: valid::ORIGIN,
            workers: 2,
            busy: 2,
            queued: 6,
            by_server: ByServer::service_us(5_000),
            ..Hot::default()
        };
        let node = |node: usize| NodeView {
            ownership: Some(Ownership::serving(SiteId::new(node / 8), 1)),
            load: Some(hot),
            up: true,
            dead: false,
            capacity: Capacity::default(),
            in_flight: 0,
        };
        Cluster {
            controller: Controller::new(AdmissionSettings::default(), vec![promise; sites], nodes).unwrap(),
            nodes: (0..nodes).map(node).collect(),
            sites: vec![SiteView { floor: 1, ceiling: 99, priority: 0, waiting: 0, busy: false }; sites],
            traffic: vec![Traffic { in_flight: 8, answers: 0, up: true }; nodes],
            answers: vec![Answers::default(); sites],
        }
    }

    fn look(&mut self, ms: u64) -> Verdict {
        let (nodes, sites) = (&self.nodes, &self.sites);
        let (traffic, answers) = (&self.traffic, &self.answers);
        let others = &vec![None; sites.len()][..];
        let snapshot = AdmissionSnapshot { nodes, sites, traffic, answers, others, wall_ns: 0 };
        self.controller.step(&snapshot, Time::from_ns(ms * 1_000_000))[0].verdict
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let rotation = AdmissionSettings::default().rotation;
    let over = Cluster::new(8).look(1);
    assert!(!over.is_open(), "the queue is over its target");
    for (name, verdict, treatment) in [
        ("open", Verdict::default(), Treatment::Whole),
        ("whole", over, Treatment::Whole),
        ("by_connection", over, Treatment::ByConnection),
        ("trimmed", over, Treatment::Trimmed { kept: 9_999 }),
    ] {
        let words = (AtomicU64::new(verdict.encode()), AtomicU32::new(treatment.encode()));
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let mut salt = 0;
        let mut one = || {
            salt += 1;
            // Including the hash of the client's address, which an edge computes once a connection.
            let client = Client::new(black_box(SocketAddr::from(([10, 0, 0, 1], 5000))));
            let (verdict, treatment) = black_box(&words);
            let verdict = Verdict::decode(verdict.load(Relaxed));
            let treatment = Treatment::decode(treatment.load(Relaxed));
            let is_in = decide(verdict, treatment, client, salt, rotation).is_ok();
            // An edge counts clients and decisions.
            counts.iter().for_each(|count| _ = count.fetch_add(1, Relaxed));
            is_in
        };
        group.bench_function(name, |bencher| bencher.iter(&mut one));
        let mut took: Vec<_> = (0..200_000)
            .map(|_| {
                let begun = Instant::now();
                black_box(one());
                begun.elapsed().as_nanos() as f64
            })
            .collect();
        took.sort_by(f64::total_cmp);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| quantile(&took, q).expect("there are calls"));
        println!(
            "{name}: one call each, clock readings included: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns"
        );
    }
    group.finish();
}

fn looks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look");
    for nodes in [8, 64, 1_000] {
        let mut cluster = Cluster::new(nodes);
        let mut ms = 0;
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| {
                ms += 1;
                black_box(&mut cluster).look(ms)
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decisions(&mut criterion);
    looks(&mut criterion);
    criterion.final_summary();
}
