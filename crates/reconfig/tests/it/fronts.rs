//! What a front states, as a mover reads it: from memory that outlives the front, and over connections that do not.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use sidelong_fabric::control::{ControlDirectory, Endpoint, Secret};
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{Directory, Host, Initiator, Region, RunDirectory, SharedWords, shm::ShmHost};
use sidelong_layout::{EdgeId, FrontMap, FrontWord, Instance, NodeId, Ownership, SiteId, Time};
use sidelong_reconfig::{
    FrontMember, Links, Members, Predecessor, board_map, expose_front, front_region, load_region,
};
use sidelong_state::{Op, Reply, Word};

use crate::support::members;

const NODE: NodeId = NodeId::new(1);
const NODES: usize = 2;
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn names(prefix: &str) -> Vec<String> {
    (1..=2).map(|number| format!("{prefix}{number}")).collect()
}

fn links(
    directory: Arc<dyn Directory>,
    own: usize,
    region: Option<Region>,
    predecessor: Option<Arc<Predecessor>>,
) -> Links {
    let front = |name| FrontMember { name, is_led: false };
    let fronts = names("edge").into_iter().map(front).collect();
    let members = Members { fronts, ..members(&names("n"), 2) };
    let links = Links::new(directory, Initiator::new(), (NODES, board_map(2, 2)), &members);
    links.of_front(EdgeId::new(own), region, predecessor)
}

/// A mover in the process of the first edge.
fn mover(directory: Arc<dyn Directory>) -> Links {
    links(directory, 0, None, None)
}

fn read(links: &mut Links, edge: usize) -> Reply {
    links.execute(Op::Read(Word::Front(EdgeId::new(edge), NODE)))
}

fn seen(generation: u64, requests: u32) -> (Ownership, u32) {
    (Ownership::serving(SiteId::new(0), generation), requests)
}

const fn stated(generation: u64, requests: u32) -> Reply {
    Reply::Value(FrontWord { seen: Some(generation), requests }.encode())
}

const GONE: Reply = Reply::Value(FrontWord::GONE);

/// The second edge, which states in `region`.
fn other(region: Region, directory: Arc<dyn Directory>) -> Links {
    links(directory, 1, Some(region), None)
}

fn host(directory: &Path, over_tcp: bool) -> Host {
    if over_tcp { Host::Tcp(TcpHost::listen(LOOPBACK).unwrap()) } else { Host::Shm(ShmHost::new(directory)) }
}

#[test]
fn a_mover_reads_what_fronts_state_until_they_are_gone() {
    for over_tcp in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
        let mut mover = mover(run.clone());
        mover.scan(Time(0));
        assert_eq!(read(&mut mover, 0), Reply::Value(0), "it has seen nothing itself");
        assert_eq!(read(&mut mover, 1), GONE, "it has never been there");

        let exposed = |incarnation| {
            let host = host(directory.path(), over_tcp);
            let region = expose_front(&host, "edge2", NODES, Instance::alone(incarnation)).unwrap();
            run.publish(region.key()).unwrap();
            (host, region)
        };
        let (first_host, region) = exposed(1);
        assert_eq!(read(&mut mover, 1), Reply::Value(0), "it is there, and has seen nothing");
        let mut edge = other(region, run.clone());
        for (generation, requests) in [(7, 0), (7, 3), (8, 3), (8, 0)] {
            let (seen, requests) = seen(generation, requests);
            edge.state(NODE, seen, requests);
            mover.state(NODE, seen, requests + 1);
            assert_eq!(read(&mut mover, 1), stated(generation, requests));
            assert_eq!(read(&mut mover, 0), stated(generation, requests + 1));
        }
        drop((edge, first_host));
        // Over tcp the first read finds that the connection has ended.
        let gone = (0..100).any(|_| read(&mut mover, 1) == GONE);
        assert!(gone, "over tcp: {over_tcp}");

        let (_host, region) = exposed(2);
        assert_eq!(region.load(FrontMap { nodes: NODES }.node(NODE)), 0, "its next life has seen nothing");
        let again = (0..100).any(|_| read(&mut mover, 1) == Reply::Value(0));
        assert!(again, "over tcp: {over_tcp}");
    }
}

#[test]
fn two_processes_of_a_front_have_left_a_node_once_both_have() {
    let directory = tempfile::tempdir().unwrap();
    let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let mut mover = mover(run.clone());
    let state = |links: &mut Links, generation, requests| {
        let (seen, requests) = seen(generation, requests);
        links.state(NODE, seen, requests);
    };
    let host = ShmHost::new(directory.path());
    let region = expose_front(&Host::Shm(host.clone()), "edge2", NODES, Instance::alone(1)).unwrap();
    let lock = region.lock().unwrap().unwrap();
    let mut first = other(region.clone(), run.clone());
    state(&mut first, 7, 2);
    mover.scan(Time(0));
    assert_eq!(read(&mut mover, 1), stated(7, 2));
    let taken = expose_front(&Host::Shm(host.clone()), "edge2", NODES, Instance::alone(2));
    assert!(taken.is_err(), "nobody takes over unasked");

    let count = Predecessor::words(NODES);
    let words = Arc::new(SharedWords::new(count).unwrap());
    let handed = words.as_fd().try_clone_to_owned().unwrap().into();
    let before = Arc::new(Predecessor::new(SharedWords::of(handed, count).unwrap(), NODES));
    first.leave_to(words);
    let host = host.with_locks([(front_region("edge2"), lock)].into());
    let anew = expose_front(&Host::Shm(host), "edge2", NODES, Instance::alone(2)).unwrap();
    assert!(!region.is_lost(), "the first sees no harm in that");
    assert_eq!(read(&mut mover, 1), Reply::Value(0), "nothing that could be wrong");
    let mut second = links(run.clone(), 1, Some(anew), Some(Arc::clone(&before)));
    for (of_first, of_second, both) in [
        ((7, 2), (7, 1), stated(7, 3)),
        ((7, 2), (8, 1), Reply::Value(FrontWord { seen: None, requests: 3 }.encode())),
        ((8, 1), (8, 0), stated(8, 1)),
        ((8, 0), (8, 0), stated(8, 0)),
    ] {
        state(&mut first, of_first.0, of_first.1);
        state(&mut second, of_second.0, of_second.1);
        assert_eq!(read(&mut mover, 1), both);
    }
    assert!(!before.goes_by(5));
    first.state_epoch(5);
    assert!(before.goes_by(5) && !before.goes_by(6));

    state(&mut first, 8, 4);
    drop((first, region));
    state(&mut second, 9, 1);
    assert_ne!(read(&mut mover, 1), stated(9, 1), "it may go on");
    before.set_gone();
    state(&mut second, 9, 1);
    assert_eq!(read(&mut mover, 1), stated(9, 1));
    drop(second);
    assert_eq!(read(&mut mover, 1), GONE);
}

/// A machine that says nothing may be cut off, and a firewall may be who refuses: the front may still send.
#[test]
fn only_its_machine_can_say_that_a_front_has_ended() {
    let secret = Secret::new(b"known to all machines here").unwrap();
    let endpoint = |address: &str| Endpoint::listen(address.parse().unwrap(), secret.clone()).unwrap();
    // At an address of its own, so that no other test listens at its port later.
    let silent = std::net::TcpListener::bind("127.77.0.1:0").unwrap();
    let place = silent.local_addr().unwrap();
    let (beside, elsewhere) = (endpoint("127.77.0.1:0"), endpoint("127.77.0.2:0"));
    let table = [(front_region("edge2"), place)].into_iter();
    let others = [("n1", &beside), ("n2", &elsewhere)];
    let others = others.map(|(name, endpoint)| (load_region(name), endpoint.address()));
    let directory = Arc::new(ControlDirectory::new(secret.clone(), table.chain(others)));
    let files = tempfile::tempdir().unwrap();
    let run = RunDirectory::open(files.path()).unwrap();
    let held = run.hold(&front_region("edge2"), 1).unwrap().unwrap();

    let mut mover = mover(directory);
    mover.scan(Time(0));
    let nobody_knows = |mover: &mut Links| (0..50).all(|_| read(mover, 1) == Reply::Lost);
    assert!(nobody_knows(&mut mover), "silence");
    drop(silent);
    assert!(nobody_knows(&mut mover), "a refusal");
    // Some other test may have taken the port meanwhile, and gives it back.
    let mut patience = 0..6_000;
    let other = loop {
        match Endpoint::listen(place, secret.clone()) {
            Ok(endpoint) => break endpoint,
            Err(why) => assert!(patience.next().is_some(), "{why}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(nobody_knows(&mut mover), "another process has its address");
    drop(other);
    beside.witness(run.clone());
    assert!(nobody_knows(&mut mover), "it lives");
    drop(held);
    let begun = std::time::Instant::now();
    while read(&mut mover, 1) != GONE {
        assert!(begun.elapsed().as_secs() < 60, "never");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let _again = run.hold(&front_region("edge2"), 2).unwrap().unwrap();
    assert!(nobody_knows(&mut mover), "it has begun again");
    drop(beside);
    elsewhere.witness(run);
    drop(_again);
    assert!(nobody_knows(&mut mover), "another machine says so");
}
