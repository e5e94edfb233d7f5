//! Keepers and one-sided readers over real shared memory, with processes that die.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sidelong_fabric::{
    Access, Directory as _, Host, Initiator, RegionSpec, RunDirectory, shm::ShmHost, tcp::TcpHost,
};
use sidelong_layout::{Ack, ByServer, Hot, Instance, LOAD_BYTES, LOAD_HOT, RegionKind, valid};
use sidelong_load::{
    Error, Keeper, KeeperSpec, Limits, OneSided, Reading, Source as _, Status, monotonic_ns,
};
use sidelong_state::Publisher;

use crate::support::{all_are, limits, recorder, records, refresh_until, region};

fn reader(directory: &std::path::Path, nodes: &[&str], limits: Limits) -> OneSided {
    let directory = Arc::new(RunDirectory::open(directory).unwrap());
    let nodes = records(nodes.iter().map(|name| (*name).to_owned()));
    OneSided::new(directory, Initiator::new(), &nodes, false, limits)
}

fn keep(directory: &std::path::Path, name: &str, incarnation: u64) -> Keeper {
    let region = region(directory, name, incarnation);
    Keeper::start(region, Some(recorder()), || None, KeeperSpec::default()).unwrap()
}

#[test]
fn a_kept_record_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let generation = Arc::new(AtomicU64::new(0));
    let acknowledge = {
        let generation = Arc::clone(&generation);
        move || match generation.load(Ordering::Relaxed) {
            0 => None,
            generation => Some(Ack { generation }.encode()),
        }
    };
    let incarnation = 0xabcd_0000_0007;
    let region = region(directory.path(), "n0.load", incarnation);
    let keeper = Keeper::start(region, Some(recorder()), acknowledge, KeeperSpec::default()).unwrap();
    let mut reader = reader(directory.path(), &["n0.load"], limits());

    let [first] = refresh_until(&mut reader, all_are(Status::Fresh));
    let hot = *first.fresh().unwrap();
    assert_eq!((hot.generation, hot.workers, hot.served), (7, 4, 1_000_000));
    assert_ne!(hot.valid & valid::ORIGIN, 0);
    assert_eq!(first.ack, None);

    let [later] = refresh_until(&mut reader, |[now]| now.hot.is_some_and(|now| now.valid & valid::CPU != 0));
    assert!(later.hot.unwrap().time_ns > hot.time_ns && later.seen_at_ns > first.seen_at_ns);
    let detail = reader.detail(0).unwrap();
    assert_eq!((detail.pid, detail.generation), (std::process::id(), 7));
    assert!(detail.memory_used_bytes > 0);

    generation.store(41, Ordering::Relaxed);
    refresh_until(&mut reader, |[now]| now.ack == Some(Ack { generation: 41 }));

    // A keeper that ends publishes that, and another one of the same life is accepted.
    drop(keeper);
    refresh_until(&mut reader, all_are::<1>(Status::Gone));
    let _keeper = keep(directory.path(), "n0.load", incarnation);
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));
}

#[test]
fn nodes_that_appear_are_found_and_others_do_not_wait_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = reader(directory.path(), &["n0", "n1"], limits());
    let _n1 = keep(directory.path(), "n1", 1);
    let [n0, _] = refresh_until(&mut reader, |[_, n1]: &[Reading; 2]| n1.status == Status::Fresh);
    assert_eq!(n0.status, Status::Gone);
    assert!(reader.problem(0).unwrap().contains("n0") && reader.problem(1).is_none());

    // The region is there, but nothing is published yet.
    let region = region(directory.path(), "n0", 5);
    refresh_until(&mut reader, |[n0, _]: &[Reading; 2]| n0.status == Status::NeverWritten);
    let n0 = Keeper::start(region, Some(recorder()), || None, KeeperSpec::default()).unwrap();
    refresh_until(&mut reader, all_are::<2>(Status::Fresh));

    // Its file is replaced by another, as a sweep of the run directory does.
    drop(n0);
    std::fs::remove_file(directory.path().join("n0.region")).unwrap();
    let _n0 = keep(directory.path(), "n0", 6);
    let [n0, _] = refresh_until(&mut reader, all_are(Status::Fresh));
    assert_eq!(n0.hot.unwrap().generation, 6);
}

/// Not a test: the node process of the test below.
#[test]
fn node_process() {
    let Some(directory) = std::env::var_os("SIDELONG_LOAD_TEST_NODE") else { return };
    let _keeper = keep(directory.as_ref(), "n0", 3);
    println!("\nkeeping");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_node_goes_stale_and_its_successor_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_sided::node_process", "--nocapture"])
        .env("SIDELONG_LOAD_TEST_NODE", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "keeping"));
    let mut reader = reader(directory.path(), &["n0"], limits());
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));

    node.kill().unwrap(); // SIGKILL
    node.wait().unwrap();
    let [stale] = refresh_until(&mut reader, |[node]| node.status != Status::Fresh);
    assert_eq!((stale.status, stale.fresh()), (Status::Stale, None));
    assert!(stale.age_ns > limits().stale.as_nanos() as u64);
    assert_eq!(stale.hot.unwrap().generation, 3);

    // The successor takes over the memory, which still holds the dead process's record.
    let region = region(directory.path(), "n0", 4);
    let [foreign] = refresh_until(&mut reader, |[node]| node.status != Status::Stale);
    assert_eq!((foreign.status, foreign.hot), (Status::NeverWritten, None));
    let _keeper = Keeper::start(region, Some(recorder()), || None, KeeperSpec::default()).unwrap();
    let [fresh] = refresh_until(&mut reader, all_are(Status::Fresh));
    assert_eq!(fresh.hot.unwrap().generation, 4);
}

#[test]
fn torn_records_are_never_read() {
    const LOOKS: u32 = 2_000_000;
    let directory = tempfile::tempdir().unwrap();
    let region = region(directory.path(), "n0", 1);
    let stop = Arc::new(AtomicBool::new(false));
    // Every field of a record holds the same number.
    let writer = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut publisher = Publisher::new(1);
            let mut number = 0u32;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let hot = Hot {
                    valid: valid::ALL,
                    time_ns: monotonic_ns(),
                    net_bytes_per_s: number.into(),
                    connections: number,
                    queued: number,
                    served: number.into(),
                    busy: number,
                    by_server: ByServer::service_us(number),
                    ..Hot::default()
                };
                for (index, value) in publisher.publish(hot) {
                    region.store(LOAD_HOT + index * 8, value, Ordering::Release);
                }
            }
            number
        }
    });
    let mut reader = reader(directory.path(), &["n0"], limits());
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));
    let mut readings = [Reading::default()];
    let (mut last, mut changes) = (0, 0u32);
    for _ in 0..LOOKS {
        reader.refresh(monotonic_ns(), &mut readings);
        let hot = readings[0].hot.unwrap();
        let number = hot.connections;
        assert!(
            [Some(hot.queued), Some(hot.busy), hot.service_us()].iter().all(|field| *field == Some(number))
                && hot.served == number.into()
                && hot.net_bytes_per_s == number.into()
                && hot.sequence == number.wrapping_mul(2),
            "torn: {hot:?}"
        );
        assert!(number >= last, "{number} after {last}");
        changes += u32::from(number > last);
        last = number;
    }
    stop.store(true, Ordering::Relaxed);
    let written = writer.join().unwrap();
    println!("{LOOKS} looks at {written} records, {changes} of them different");
    assert!(changes > 100);
}

#[test]
fn what_is_no_load_region_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let raw = RegionSpec {
        name: "raw",
        kind: RegionKind::Raw,
        len: 4096,
        access: Access::ReadOnly,
        instance: Instance::alone(1),
    };
    let raw = Host::Shm(ShmHost::new(directory.path())).expose(&raw, |_| {}).unwrap();
    let refused = Keeper::start(raw, None, || None, KeeperSpec::default()).unwrap_err();
    assert!(matches!(refused, Error::Region { .. }) && refused.to_string().contains("raw"), "{refused}");

    let _keeper = keep(directory.path(), "n0", 1);
    let file = std::fs::File::options().write(true).open(directory.path().join("n0.region")).unwrap();
    file.write_all_at(&99u32.to_le_bytes(), 8).unwrap(); // the version, after the magic number
    let mut reader = reader(directory.path(), &["n0"], limits());
    let mut readings = [Reading::default()];
    reader.refresh(monotonic_ns(), &mut readings);
    assert_eq!(readings[0].status, Status::Gone);
    assert!(reader.problem(0).unwrap().contains("layout version 99"), "{:?}", reader.problem(0));
}

/// A node's record over the two-sided backend, except the wait. A node that comes back has another address and key.
#[test]
fn over_tcp_a_node_that_comes_back_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let run_directory = RunDirectory::open(directory.path()).unwrap();
    let mut reader = reader(directory.path(), &["n0"], limits());
    for incarnation in [1, 2] {
        let host = Host::Tcp(TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap());
        let spec = RegionSpec {
            name: "n0",
            kind: RegionKind::Load,
            len: LOAD_BYTES,
            access: Access::ReadOnly,
            instance: Instance::alone(incarnation),
        };
        let region = host.expose(&spec, |_| {}).unwrap();
        run_directory.publish(region.key()).unwrap();
        let keeper = Keeper::start(region, Some(recorder()), || None, KeeperSpec::default()).unwrap();
        let [fresh] = refresh_until(&mut reader, all_are(Status::Fresh));
        assert_eq!(u64::from(fresh.hot.unwrap().generation), incarnation);
        drop(keeper);
        drop(host);
        refresh_until(&mut reader, all_are::<1>(Status::Gone));
    }
}
