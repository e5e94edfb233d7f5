//! A node whose record the kernel keeps: nothing runs there to acknowledge, so a mover infers it from the server's line.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, memfd_create};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Initiator, Region, RegionSpec, RunDirectory};
use sidelong_layout::{
    Ack, Hot, Instance, KERNEL_BYTES, LOAD_HOT, NodeId, Ownership, RegionKind, SiteId, Time, valid,
};
use sidelong_reconfig::{BoardInit, Links, board_map, expose_board, expose_words, load_region};
use sidelong_state::{Op, Publisher, Reply, Word};

use crate::support::members;

const N0: NodeId = NodeId::new(0);

#[test]
fn a_node_is_done_when_its_server_counts_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::Shm(ShmHost::new(directory.path()));
    let map = board_map(2, 1);
    let site = BoardInit { floor: 1, nodes: 1 };
    let _board = expose_board(&host, map, &[site, site], (0, 0), Instance::alone(1)).unwrap();
    let _words = expose_words(&host, "n0", Some(SiteId::new(0)), Instance::alone(1)).unwrap();
    // In the place of the kernel's map.
    let memory = File::from(memfd_create("map", MemfdFlags::CLOEXEC).unwrap());
    memory.set_len(KERNEL_BYTES as u64).unwrap();
    let name = load_region("n0");
    let (kind, len) = (RegionKind::Kernel, KERNEL_BYTES);
    let spec = RegionSpec { name: &name, kind, len, access: Access::ReadOnly, instance: Instance::alone(1) };
    let region = host.expose_mapped(&spec, &memory).unwrap();
    let mut publisher = Publisher::new(1);

    let found = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let mut links = Links::new(found, Initiator::new(), (1, map), &members(&["n0".to_owned()], 2));
    links.scan(Time(1));
    let serving = links.ownership(N0).unwrap();
    let ack = |links: &mut Links| match links.execute(Op::Read(Word::Ack(N0))) {
        Reply::Value(word) => Ack::decode(word).map(|ack| ack.generation),
        Reply::Lost => panic!("it is there"),
    };
    publish(&region, &mut publisher, 0);
    assert_eq!(ack(&mut links), None, "of a word that was not yet seen");
    assert_eq!(links.execute(Op::Read(Word::Ownership(N0))), Reply::Value(serving.encode()));
    assert_eq!(ack(&mut links), Some(serving.generation), "a node that serves has nothing to wait for");

    // A swap that fails leaves what it found.
    let draining = serving.draining_to(Some(SiteId::new(1))).unwrap();
    let swap = |links: &mut Links, from: Ownership, to: Ownership| {
        let word = Word::Ownership(N0);
        links.execute(Op::CompareAndSwap { word, expected: from.encode(), new: to.encode() })
    };
    assert_eq!(swap(&mut links, draining, serving), Reply::Value(serving.encode()));
    assert_eq!(ack(&mut links), Some(serving.generation));

    publish(&region, &mut publisher, 3);
    assert_eq!(swap(&mut links, serving, draining), Reply::Value(serving.encode()));
    assert_eq!(ack(&mut links), None, "three requests are under way");
    publish(&region, &mut publisher, 1);
    assert_eq!(ack(&mut links), None);
    // The line is being written: it may be about to count one more.
    let sealed = region.load(LOAD_HOT);
    region.store(LOAD_HOT, sealed + 1, Ordering::Release);
    assert_eq!(ack(&mut links), None);
    region.store(LOAD_HOT, sealed, Ordering::Release);
    publish(&region, &mut publisher, 0);
    assert_eq!(ack(&mut links), Some(draining.generation));
    assert_eq!(links.ack(N0), Some(Ack { generation: draining.generation }));
}

/// The server's line, with so many requests: some in service, some that wait.
fn publish(region: &Region, publisher: &mut Publisher, requests: u32) {
    let busy = requests.min(2);
    let line = Hot { valid: valid::ORIGIN, workers: 2, busy, queued: requests - busy, ..Hot::default() };
    for (index, value) in publisher.publish(line) {
        region.store(LOAD_HOT + index * 8, value, Ordering::Release);
    }
}
