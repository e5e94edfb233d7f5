//! The cost of one scan of all nodes to the front end, by scheme, and of one sample of /proc to the node.

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Initiator, Pace, Region, RegionSpec, RunDirectory};
use sidelong_layout::{Hot, Instance, LOAD_ACK, LOAD_BYTES, LOAD_HOT, RegionKind, Slots, valid};
use sidelong_load::{
    Keeper, KeeperSpec, Limits, OneSided, Reading, RecordOf, Recorder, Responder, ResponderKind, Sampler,
    Scope, Sockets, Source, Status, find_address, monotonic_ns, publish_address,
};
use sidelong_state::Publisher;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn region(directory: &Path, name: &str) -> Region {
    let spec = RegionSpec {
        name,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance: Instance::alone(1),
    };
    Host::Shm(ShmHost::new(directory)).expose(&spec, |_| {}).expect("a region")
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
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(seen(&readings), "{name}: {:?}", source.problem(0));
    c.bench_function(name, |b| b.iter(|| source.refresh(monotonic_ns(), black_box(&mut readings))));
}

fn one_sided(c: &mut Criterion) {
    for nodes in [1, 8] {
        one_sided_of(c, nodes, |region| {
            Keeper::start(region, Some(recorder()), || None, KeeperSpec::default()).expect("a thread")
        });
    }
    // 1,000 keepers would occupy two cores, so these records are written once; their memory outlives its owner.
    one_sided_of(c, 1000, |region| publish(&region, &mut Publisher::new(1)));
}

/// A whole cluster of simulated nodes with a region each. First a full scan, next to its lower bound; then with all
/// records written meanwhile; then at the pace for idle nodes.
///
/// Each region is a mapping on both sides, of which the kernel allows 65,530 (vm.max_map_count), and an open file on
/// the node's side.
fn whole_clusters(c: &mut Criterion) {
    const NODES: usize = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    raised.expect("as many open files as this process may have");
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let names = names(NODES);
    let regions: Vec<_> = names.iter().map(|name| region(directory.path(), name)).collect();
    let mut publishers = vec![Publisher::new(1); NODES];
    regions.iter().zip(&mut publishers).for_each(|(region, publisher)| publish(region, publisher));

    let run_directory = Arc::new(RunDirectory::open(directory.path()).expect("a run directory"));
    let limits = Limits { stale: Duration::from_secs(3600), ..Limits::default() };
    let source = |pace| {
        OneSided::new(run_directory.clone(), Initiator::new(), &records(NODES), false, limits).with_pace(pace)
    };

    c.bench_function("10,000 nodes, shm: the same words loaded, and no more", |b| {
        b.iter(|| {
            let words =
                |region: &Region| (READ / 8..=LOAD_ACK / 8).fold(0, |all, word| all ^ region.load(word * 8));
            regions.iter().fold(0, |all, region| all ^ words(region))
        });
    });
    let mut whole = source(Pace::WHOLE);
    refresh(c, "10,000 nodes, shm: a full sweep", NODES, &mut whole);
    refresh(c, "10,000 nodes, shm: all of them idle", NODES, &mut source(Pace::default()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (region, publisher) in regions.iter().zip(&mut publishers) {
                    publish(region, publisher);
                }
            }
        });
        refresh(c, "10,000 nodes, shm: a full sweep while all are written", NODES, &mut whole);
        stop.store(true, Ordering::Relaxed);
    });
}

fn records(count: usize) -> Slots<RecordOf> {
    names(count).into_iter().map(RecordOf::from).collect()
}

/// Offset in a load region at which a reader begins: that of the incarnation.
const READ: usize = 24;

fn publish(region: &Region, publisher: &mut Publisher) {
    let hot = Hot { valid: valid::ALL, time_ns: monotonic_ns(), ..Hot::default() };
    for (index, value) in publisher.publish(hot) {
        region.store(LOAD_HOT + index * 8, value, Ordering::Release);
    }
}

fn one_sided_of<T>(c: &mut Criterion, nodes: usize, keep: impl Fn(Region) -> T) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let regions = names(nodes).into_iter().map(|name| region(directory.path(), &name));
    let kept: Vec<T> = regions.map(keep).collect();
    let run_directory = Arc::new(RunDirectory::open(directory.path()).expect("a run directory"));
    let limits = Limits { stale: Duration::from_secs(3600), ..Limits::default() };
    let mut source = OneSided::new(run_directory, Initiator::new(), &records(nodes), false, limits);
    refresh(c, &format!("one-sided, {nodes} nodes, shm"), nodes, &mut source);
    drop(kept);
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
                    ResponderKind::Sync(region, Box::new(recorder()))
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
    let process = Scope::Process(std::process::id());
    for (name, scope) in [("sample of the machine", Scope::Machine), ("sample of a process", process)] {
        let mut sampler = Sampler::new(&scope).expect("/proc");
        c.bench_function(name, |b| b.iter(|| sampler.sample(monotonic_ns())));
    }
}

criterion_group!(benches, one_sided, whole_clusters, sockets, sampler);
criterion_main!(benches);
