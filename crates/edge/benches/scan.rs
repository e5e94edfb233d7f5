//! The cost of one scan to an edge: the ownership words, the sites' words and the load records of all nodes.
//!
//! `cargo bench -p sidelong-edge --bench scan`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidelong_edge::Loads;
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{Access, Directory as _, Host, Initiator, Region, RegionSpec, RunDirectory};
use sidelong_layout::{
    BoardMap, Hot, Instance, LOAD_BYTES, LOAD_HOT, NodeId, RegionKind, SiteId, Time, valid,
};
use sidelong_load::{Limits, Reading, RecordOf, Records, Status, monotonic_ns};
use sidelong_reconfig::{BoardInit, Links, Members, board_map, expose_board, expose_words, load_region};
use sidelong_state::Publisher;

const SITES: usize = 4;

/// A whole cluster's regions. Their records are written once, because a keeper for each would occupy two cores.
struct Cluster {
    names: Vec<String>,
    /// For how many nodes there is room, and the board.
    room: (usize, BoardMap),
    _directory: tempfile::TempDir,
    run: Arc<RunDirectory>,
    _regions: Vec<Region>,
}

impl Cluster {
    fn new(nodes: usize, busy: u32, room: (usize, usize), host: impl Fn(&Path) -> Host) -> Cluster {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        let run = Arc::new(RunDirectory::open(directory.path()).expect("a run directory"));
        let names: Vec<_> = (0..nodes).map(|node| format!("n{node}")).collect();
        let map = board_map(room.1, 1);
        let sites = [BoardInit { floor: 1, nodes: (nodes / SITES) as u16 }; SITES];
        let mut regions = Vec::new();
        let mut keep = |region: Region| {
            run.publish(region.key()).expect("a key");
            // Over shm the memory stays, and keeping each file open would exceed the limit of a process.
            if !run.path().join(format!("{}.region", region.key().name)).exists() {
                regions.push(region);
            }
        };
        keep(
            expose_board(&host(directory.path()), map, &sites, (0, 0), Instance::alone(1)).expect("a board"),
        );
        for (index, name) in names.iter().enumerate() {
            // Each node is a process of its own: over tcp it has a thread that answers.
            let host = host(directory.path());
            let site = SiteId::new(index % SITES);
            keep(expose_words(&host, name, Some(site), Instance::alone(1)).expect("words"));
            let spec = RegionSpec {
                name: &load_region(name),
                kind: RegionKind::Load,
                len: LOAD_BYTES,
                access: Access::ReadOnly,
                instance: Instance::alone(1),
            };
            let region = host.expose(&spec, |_| {}).expect("a load region");
            publish(&region, busy);
            keep(region);
        }
        Cluster { names, room: (room.0, map), _directory: directory, run, _regions: regions }
    }
}

fn publish(region: &Region, busy: u32) {
    let hot = Hot { valid: valid::ALL, time_ns: monotonic_ns(), workers: 4, busy, ..Hot::default() };
    for (index, value) in Publisher::new(1).publish(hot) {
        region.store(LOAD_HOT + index * 8, value, Ordering::Release);
    }
}

/// Measures scans after all nodes have been seen.
fn scan(c: &mut Criterion, name: &str, cluster: &Cluster) {
    let nodes = cluster.names.len();
    let limits = Limits { stale: Duration::from_secs(36_000), ..Limits::default() };
    let records = cluster.names.iter().map(|name| RecordOf::from(load_region(name))).collect();
    let members = Members {
        sites: (0..SITES).map(|site| format!("s{site}")).collect(),
        nodes: cluster.names.iter().cloned().collect(),
        ..Members::default()
    };
    let mut links = Links::new(cluster.run.clone(), Initiator::new(), cluster.room, &members);
    let mut loads = Loads::Memory(Records::new(links.scanner_mut(), &records, false, limits));
    let mut readings = vec![Reading::default(); nodes];
    let mut scan = |readings: &mut Vec<Reading>| {
        let now = Time::from_ns(monotonic_ns());
        loads.scan(now, &mut links, readings);
        (0..nodes).all(|node| links.ownership(NodeId::new(node)).is_some())
            && (0..SITES).all(|site| links.site(SiteId::new(site)).is_some())
    };
    let mut seen = false;
    for _ in 0..10_000 {
        seen = scan(&mut readings) && readings.iter().all(|reading| reading.status == Status::Fresh);
        if seen {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(seen, "{name}: something is not seen");
    for _ in 0..64 {
        scan(&mut readings); // until idle nodes count as idle
    }
    c.bench_function(name, |b| b.iter(|| scan(black_box(&mut readings))));
}

fn shm(c: &mut Criterion) {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    raised.expect("as many open files as this process may have");
    let host = |path: &Path| Host::Shm(ShmHost::new(path));
    for (nodes, busy, what) in
        [(8, 1, "busy"), (1_000, 1, "busy"), (1_000, 0, "idle"), (10_000, 1, "busy"), (10_000, 0, "idle")]
    {
        let cluster = Cluster::new(nodes, busy, (nodes, SITES), host);
        scan(c, &format!("scan, {nodes} nodes, {what}, shm"), &cluster);
    }
    let cluster = Cluster::new(8, 1, (512, 128), host);
    scan(c, "scan, 8 nodes in room for 512, busy, shm", &cluster);
}

fn tcp(c: &mut Criterion) {
    let host = |_: &Path| Host::Tcp(TcpHost::listen(([127, 0, 0, 1], 0).into()).expect("a port"));
    scan(c, "scan, 8 nodes, busy, tcp", &Cluster::new(8, 1, (8, SITES), host));
}

criterion_group!(benches, shm, tcp);
criterion_main!(benches);
