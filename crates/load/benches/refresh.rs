//! What a look at all nodes costs the front end, by scheme; and what a look at /proc costs the node.
//!
//! `cargo bench -p sidelong-load --bench refresh`

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec, RunDirectory};
use sidelong_layout::{LOAD_BYTES, RegionKind};
use sidelong_load::{
    Keeper, KeeperSpec, Limits, OneSided, Reading, Recorder, Responder, ResponderKind, Sampler, Scope,
    Sockets, Source, Status, find_address, monotonic_ns, publish_address,
};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn region(directory: &Path, name: &str) -> Region {
    let spec = RegionSpec {
        name,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        incarnation: 1,
    };
    Host::Shm(ShmHost::new(directory)).offer(&spec, |_| {}).expect("a region")
}

fn recorder() -> Recorder {
    Recorder::new(&Scope::Machine, None).expect("/proc")
}

fn names(nodes: usize) -> Vec<String> {
    (0..nodes).map(|node| format!("n{node}")).collect()
}

/// Measures refreshes once all nodes have been seen.
fn refresh(c: &mut Criterion, name: &str, nodes: usize, source: &mut impl Source) {
    let mut readings = vec![Reading::default(); nodes];
    let seen = |readings: &[Reading]| readings.iter().all(|reading| reading.status == Status::Fresh);
    for _ in 0..10_000 {
        source.refresh(monotonic_ns(), &mut readings);
        if seen(&readings) {
            break;
        }
    }
    assert!(seen(&readings), "{name}: {:?}", source.problem(0));
    c.bench_function(name, |b| b.iter(|| source.refresh(monotonic_ns(), black_box(&mut readings))));
}

fn one_sided(c: &mut Criterion) {
    // Under 1,000 keepers two cores would do nothing else; the records of most are written once.
    for (nodes, period_ms) in [(1, 1), (8, 1), (1000, 3_600_000)] {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        let period = std::time::Duration::from_millis(period_ms);
        let spec = KeeperSpec { period, ..KeeperSpec::default() };
        let keepers: Vec<Keeper> = (names(nodes).iter())
            .map(|name| region(directory.path(), name))
            .map(|region| Keeper::start(region, Some(recorder()), || None, spec).expect("a thread"))
            .collect();
        let run_directory = Arc::new(RunDirectory::open(directory.path()).expect("a run directory"));
        let limits = Limits { stale: std::time::Duration::from_secs(3600), ..Limits::default() };
        let mut source = OneSided::new(run_directory, names(nodes), limits);
        refresh(c, &format!("one-sided, {nodes} nodes, shm"), nodes, &mut source);
        drop(keepers);
    }
}

fn sockets(c: &mut Criterion) {
    const NODES: usize = 8;
    for (name, is_async) in
        [("socket-async, 8 nodes, loopback", true), ("socket-sync, 8 nodes, loopback", false)]
    {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        let nodes: Vec<_> = (names(NODES).iter())
            .map(|name| {
                let region = region(directory.path(), name);
                let spec = KeeperSpec::default();
                let kept = is_async.then(recorder);
                let keeper = Keeper::start(region.clone(), kept, || None, spec).expect("a thread");
                let kind = if is_async {
                    ResponderKind::Async(region)
                } else {
                    ResponderKind::Sync(region, recorder())
                };
                let responder = Responder::listen(ANY, kind).expect("a port");
                publish_address(directory.path(), name, responder.address()).expect("a file");
                (keeper, responder)
            })
            .collect();
        let path = directory.path().to_owned();
        let find = Box::new(move |name: &str| find_address(&path, name));
        let mut source = Sockets::new(find, names(NODES), Limits::default()).expect("an event queue");
        refresh(c, name, NODES, &mut source);
        drop(nodes);
    }
}

fn sampler(c: &mut Criterion) {
    for scope in [Scope::Machine, Scope::Process(std::process::id())] {
        let mut sampler = Sampler::new(&scope).expect("/proc");
        c.bench_function(
            &format!("sample of {}", if scope == Scope::Machine { "the machine" } else { "a process" }),
            |b| b.iter(|| sampler.sample(monotonic_ns())),
        );
    }
}

criterion_group!(benches, one_sided, sockets, sampler);
criterion_main!(benches);
