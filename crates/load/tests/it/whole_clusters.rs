//! Clusters of more nodes than are read at once, and silent nodes, over real memory and real sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_fabric::{
    Access, Directory as _, Host, Initiator, Pace, Region, RegionSpec, RunDirectory, shm::ShmHost,
    tcp::TcpHost,
};
use sidelong_layout::{Hot, Instance, LOAD_BYTES, LOAD_HOT, RegionKind, valid};
use sidelong_load::{Limits, OneSided, Reading, Source as _, Status, monotonic_ns};
use sidelong_state::Publisher;

use crate::support::{all_are, limits, records, refresh_until};

/// Regions of these nodes at `host`, found through the directory.
fn expose(host: &Host, directory: &Path, names: &[String]) -> Vec<Node> {
    let run = RunDirectory::open(directory).unwrap();
    let node = |name: &String| {
        let spec = RegionSpec {
            name,
            kind: RegionKind::Load,
            len: LOAD_BYTES,
            access: Access::ReadOnly,
            instance: Instance::alone(1),
        };
        let region = host.expose(&spec, |_| {}).unwrap();
        run.publish(region.key()).unwrap();
        Node { region, publisher: Publisher::new(1) }
    };
    names.iter().map(node).collect()
}

/// A node whose records the test writes.
struct Node {
    region: Region,
    publisher: Publisher,
}

impl Node {
    fn publish(&mut self, busy: u32) {
        let hot = Hot { valid: valid::ALL, time_ns: monotonic_ns(), busy, workers: 2, ..Hot::default() };
        for (index, value) in self.publisher.publish(hot) {
            self.region.store(LOAD_HOT + index * 8, value, Ordering::Release);
        }
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|node| format!("n{node}")).collect()
}

fn reader(directory: &Path, names: &[String], limits: Limits, pace: Pace) -> OneSided {
    let run = Arc::new(RunDirectory::open(directory).unwrap());
    OneSided::new(run, Initiator::new(), &records(names.to_vec()), false, limits).with_pace(pace)
}

/// Limits under which a record written once stays fresh for the whole test.
fn patient() -> Limits {
    Limits { stale: Duration::from_secs(3600), wait: Duration::from_secs(10), ..limits() }
}

#[test]
fn those_with_work_are_read_at_each_look_and_all_stay_fresh() {
    const NODES: usize = 1000;
    const HOT: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let names = names(NODES);
    let mut nodes = expose(&Host::Shm(ShmHost::new(directory.path())), directory.path(), &names);
    nodes.iter_mut().enumerate().for_each(|(index, node)| node.publish(u32::from(index < HOT)));
    let pace = Pace { credits: 64, idle_every: 8, unread_max: Duration::from_secs(3600) };
    let mut reader = reader(directory.path(), &names, patient(), pace);
    refresh_until(&mut reader, all_are::<NODES>(Status::Fresh));
    let mut readings = vec![Reading::default(); NODES];
    for _ in 0..20 {
        reader.refresh(monotonic_ns(), &mut readings);
    }
    let before = reader.counts().unwrap();
    for _ in 0..80 {
        reader.refresh(monotonic_ns(), &mut readings);
    }
    let swept = reader.counts().unwrap();
    let reads = (HOT * 80 + (NODES - HOT) * 10) as u64;
    assert_eq!((swept.reads - before.reads, swept.late, swept.left), (reads, 0, 0));
    assert_eq!(swept.skipped - before.skipped, (NODES * 80) as u64 - reads);
    assert!(readings.iter().all(|reading| reading.status == Status::Fresh));

    // A change of an idle node is seen within eight scans, and from then on at each.
    let woken = NODES - 1;
    nodes[woken].publish(1);
    let looks = (1..).find(|_| {
        reader.refresh(monotonic_ns(), &mut readings);
        readings[woken].hot.unwrap().busy == 1
    });
    assert!(looks.unwrap() <= 8, "{looks:?}");
    nodes[woken].publish(2);
    reader.refresh(monotonic_ns(), &mut readings);
    assert_eq!(readings[woken].hot.unwrap().busy, 2);
}

#[test]
fn more_nodes_than_credits_answer_over_tcp() {
    const NODES: usize = 150;
    let directory = tempfile::tempdir().unwrap();
    let host = Host::Tcp(TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    let names = names(NODES);
    let mut nodes = expose(&host, directory.path(), &names);
    nodes.iter_mut().for_each(|node| node.publish(1));
    let mut reader = reader(directory.path(), &names, patient(), Pace { credits: 16, ..Pace::WHOLE });
    refresh_until(&mut reader, all_are::<NODES>(Status::Fresh));
    let before = reader.counts().unwrap();
    let mut readings = vec![Reading::default(); NODES];
    nodes.iter_mut().for_each(|node| node.publish(2));
    reader.refresh(monotonic_ns(), &mut readings);
    assert!(readings.iter().all(|reading| reading.fresh().unwrap().busy == 2));
    assert_eq!(
        (reader.counts().unwrap().reads - before.reads, reader.counts().unwrap().late),
        (NODES as u64, 0)
    );
}

/// Passes bytes on in both directions, unless it is told to drop them.
fn relay(to: SocketAddr, stalled: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stalled = Arc::clone(stalled);
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(to) else { return };
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                let stalled = Arc::clone(&stalled);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        while stalled.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    address
}

#[test]
fn a_silent_node_costs_its_own_read_only() {
    const NODES: usize = 8;
    const SILENT: usize = 5;
    let directory = tempfile::tempdir().unwrap();
    let host = TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let stalled = Arc::new(AtomicBool::new(false));
    let relayed = TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = relay(relayed.address(), &stalled);
    let names = names(NODES);
    let mut nodes = expose(&Host::Tcp(host), directory.path(), &names[..SILENT]);
    nodes.extend(expose(&Host::Tcp(relayed.advertising(address)), directory.path(), &names[SILENT..=SILENT]));
    let last = TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    nodes.extend(expose(&Host::Tcp(last), directory.path(), &names[SILENT + 1..]));
    nodes.iter_mut().for_each(|node| node.publish(1));

    // A wait that even a busy machine does not need for an answer on loopback.
    let limits = Limits { wait: Duration::from_millis(250), ..patient() };
    let mut reader = reader(directory.path(), &names, limits, Pace::default());
    refresh_until(&mut reader, all_are::<NODES>(Status::Fresh));
    let before = reader.counts().unwrap();
    stalled.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let mut readings = [Reading::default(); NODES];
    for look in 0..400u32 {
        nodes.iter_mut().for_each(|node| node.publish(look));
        reader.refresh(monotonic_ns(), &mut readings);
        for (index, reading) in readings.iter().enumerate().filter(|(index, _)| *index != SILENT) {
            assert_eq!(reading.hot.unwrap().busy, look, "n{index} is read at each look");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let swept = reader.counts().unwrap();
    assert_eq!(swept.reads - before.reads, 7 * 400);
    // The first scan, some soon after, and from then on one wait in seventeen.
    let most = 5 + began.elapsed().as_millis() / (16 * 250);
    let late = u128::from(swept.late - before.late);
    assert!((1..=most).contains(&late), "{late} waits in {:?}", began.elapsed());

    stalled.store(false, Ordering::Relaxed);
    nodes[SILENT].publish(4711);
    refresh_until(&mut reader, |readings: &[Reading; NODES]| readings[SILENT].hot.unwrap().busy == 4711);
}
