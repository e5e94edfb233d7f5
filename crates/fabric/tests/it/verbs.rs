//! What verbs guarantees beyond the conformance suite, on real devices: `cargo xtask vm` provides one.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sidelong_fabric::control::{Cause, Endpoint, Secret, Session};
use sidelong_fabric::verbs::{Device, DeviceError, DeviceSpec, VerbsHost};
use sidelong_fabric::{
    Access, Batch, Error, Host, Inbox, InboxSpec, Initiator, Key, LinkId, OpError, Region, RegionSpec,
};
use sidelong_layout::{Instance, RegionKind};

use crate::support::rdma::{device, secret};

const ANY: &str = "127.0.0.1:0";
/// Long enough for a busy machine; only failures wait that long.
const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 4096;
/// The first word behind the header.
const WORD: usize = 64;

fn spec(name: &str, access: Access, len: usize, incarnation: u64) -> RegionSpec<'_> {
    RegionSpec { name, kind: RegionKind::Raw, len, access, instance: Instance::alone(incarnation) }
}

/// A host with an endpoint of its own.
fn host(device: &Device) -> (VerbsHost, SocketAddr) {
    let endpoint = Endpoint::listen(ANY.parse().unwrap(), secret()).unwrap();
    (VerbsHost::new(device, &endpoint).unwrap(), endpoint.address())
}

fn expose(host: &VerbsHost, name: &str, access: Access) -> Region {
    Host::Verbs(host.clone()).expose(&spec(name, access, LEN, 1), |_| {}).unwrap()
}

fn expose_with_inbox(host: &VerbsHost, slots: usize, message_bytes_max: usize) -> (Region, Inbox) {
    let inbox = InboxSpec { slots, message_bytes_max };
    let exposed =
        Host::Verbs(host.clone()).expose_with_inbox(&spec("a", Access::Atomic, LEN, 1), &inbox, |_| {});
    exposed.unwrap()
}

/// Waits until `count` initiators are connected.
fn await_connected(host: &VerbsHost, count: usize) {
    let begun = Instant::now();
    while host.connected().len() > count {
        assert!(begun.elapsed() < PATIENCE, "{:?}", host.connected());
        thread::sleep(Duration::from_millis(1));
    }
}

fn initiator(device: &Device) -> Initiator {
    Initiator::with_verbs(device, &secret()).unwrap()
}

fn add(initiator: &mut Initiator, link: LinkId) -> Result<u64, OpError> {
    let mut batch = Batch::new();
    let add = batch.fetch_and_add(link, WORD, 1);
    initiator.run(&mut batch, PATIENCE);
    batch.value(add)
}

#[test]
fn a_device_is_named_or_said_to_be_missing() {
    let Some(device) = device() else { return };
    let said = device.describe();
    assert!(said.contains("port 1") && said.contains("GID") && said.contains("atomics"), "{said}");
    println!("{said}");
    let refused = |spec: DeviceSpec| Device::open(&spec).unwrap_err();
    let none = refused(DeviceSpec { device: Some("abacus0".into()), ..DeviceSpec::default() });
    assert!(matches!(none, DeviceError::OtherDevice { .. }), "{none}");
    let none = refused(DeviceSpec { port: Some(99), ..DeviceSpec::default() });
    assert!(matches!(none, DeviceError::NoPort { port: 99, .. }), "{none}");
    let none = refused(DeviceSpec { gid_index: Some(250), ..DeviceSpec::default() });
    assert!(matches!(none, DeviceError::NoGid { index: 250, .. }), "{none}");
}

/// Keeps an initiator's session open when the target is gone, as if the machine had died silently.
fn silent_relay(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            // Neither end is told. The thread ends with the process.
            loop {
                thread::park();
            }
        });
    };
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(target).unwrap();
            copy(near.try_clone().unwrap(), far.try_clone().unwrap());
            copy(far, near);
        }
    });
    address
}

#[test]
fn a_dead_machine_costs_its_own_reads_alone() {
    if device().is_none() {
        return;
    }
    let device = Device::open(&DeviceSpec::default()).unwrap();
    let (dying, address) = host(&device);
    let dying = dying.advertising(silent_relay(address));
    let region = expose(&dying, "dying", Access::Atomic);
    let living: Vec<_> = (0..7)
        .map(|number| {
            let (host, _) = host(&device);
            let region = expose(&host, &format!("living-{number}"), Access::Atomic);
            (host, region)
        })
        .collect();
    let mut initiator = initiator(&device);
    let keys = living.iter().map(|(_, region)| region.key()).chain([region.key()]);
    let links: Vec<_> = keys.map(|key| initiator.connect(key, PATIENCE).unwrap()).collect();
    drop((region, dying));

    let begun = Instant::now();
    let mut rounds = 0;
    let (dead, took) = loop {
        let mut batch = Batch::new();
        let reads: Vec<_> = links.iter().map(|link| batch.read(*link, 0, 64)).collect();
        initiator.run(&mut batch, Duration::from_millis(60));
        rounds += 1;
        for read in &reads[..7] {
            assert!(batch.words(*read).is_ok(), "{:?} in round {rounds}", batch.words(*read));
        }
        match batch.words(reads[7]) {
            Err(OpError::Timeout) => assert!(begun.elapsed() < PATIENCE),
            outcome => break (outcome.map(|_| ()), begun.elapsed()),
        }
    };
    println!("reported after {took:?}, in round {rounds}");
    assert_eq!(dead, Err(OpError::PeerGone));
    assert!(rounds > 1, "the others did not wait for it");
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert!(device.counters().completions_in_error > 0);
}

/// A target in a process of its own: this test binary again.
struct Target {
    child: Child,
    address: SocketAddr,
}

const TARGET: &str = "SIDELONG_TEST_TARGET";

impl Target {
    fn start(address: &str, life: u64) -> Target {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "verbs::the_target_of_another_test", "--nocapture", "--include-ignored"])
            .env(TARGET, format!("{address} {life}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("at ")?.parse().unwrap()));
        Target { child, address: address.unwrap() }
    }

    fn key(&self) -> Key {
        let mut session = Session::open(self.address, &secret(), PATIENCE).unwrap();
        session.find("elsewhere", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it is the process that another test kills"]
fn the_target_of_another_test() {
    let Ok(asked) = std::env::var(TARGET) else { return };
    let (address, life) = asked.split_once(' ').unwrap();
    let endpoint = Endpoint::listen(address.parse().unwrap(), secret()).unwrap();
    let host = VerbsHost::new(device().unwrap(), &endpoint).unwrap();
    let spec = spec("elsewhere", Access::Atomic, LEN, life.parse().unwrap());
    let region = Host::Verbs(host).expose(&spec, |_| {}).unwrap();
    endpoint.publish(region.key());
    // The harness may not have ended its own line.
    println!("\nat {}", endpoint.address());
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn a_killed_process_is_reported_at_once_and_comes_back() {
    let Some(device) = device() else { return };
    let (other, _) = host(device);
    let other = expose(&other, "other", Access::Atomic);
    let mut initiator = initiator(device);
    let alive = initiator.connect(other.key(), PATIENCE).unwrap();
    let mut target = Target::start(ANY, 1);
    let old_key = target.key();
    let link = initiator.connect(&old_key, PATIENCE).unwrap();
    assert_eq!(add(&mut initiator, link), Ok(0));

    let mut batch = Batch::new();
    let ops: Vec<_> = (0..20_000).map(|_| batch.fetch_and_add(link, WORD, 1)).collect();
    let others: Vec<_> = (0..100).map(|_| batch.fetch_and_add(alive, WORD, 1)).collect();
    let killed_at = thread::scope(|scope| {
        let killer = scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            target.child.kill().unwrap();
            Instant::now()
        });
        initiator.run(&mut batch, PATIENCE);
        killer.join().unwrap()
    });
    let took = killed_at.elapsed();
    println!("reported after {took:?}");
    assert!(took < PATIENCE / 2);
    let done = ops.iter().take_while(|op| batch.value(**op).is_ok()).count();
    assert!(done < ops.len(), "it was killed too late");
    // The kernel destroys a dead process's windows before its queue pairs, and either may be met first.
    let reason = batch.value(ops[done]).unwrap_err();
    assert!(matches!(reason, OpError::PeerGone | OpError::KeyRejected), "{reason}");
    assert!(ops[done..].iter().all(|op| batch.value(*op) == Err(reason)));
    assert!(others.iter().all(|op| batch.value(*op).is_ok()));
    assert_eq!(add(&mut initiator, link), Err(reason), "it stays down");

    let address = target.address.to_string();
    drop(target);
    let target = Target::start(&address, 2);
    let refused = initiator.connect(&old_key, PATIENCE).unwrap_err();
    assert!(matches!(refused, Error::Refused { reason: OpError::KeyRejected, .. }), "{refused}");
    initiator.close(link);
    let before = device.counters().reconnects;
    let link = initiator.connect(&target.key(), PATIENCE).unwrap();
    assert!(device.counters().reconnects > before);
    assert_eq!(add(&mut initiator, link), Ok(0));
    assert!(add(&mut initiator, alive).is_ok());
}

/// The check before posting is for convenience: the device enforces the rights.
#[test]
fn the_device_refuses_what_the_region_does_not_grant() {
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let region = expose(&host, "a", Access::ReadOnly);
    region.store(WORD, 42, Ordering::Release);
    let endpoint = Endpoint::listen(ANY.parse().unwrap(), secret()).unwrap();
    endpoint.publish(region.key());
    let mut session = Session::open(endpoint.address(), &secret(), PATIENCE).unwrap();
    // The asking side names the access.
    let forged = session.find("a", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap();
    let mut initiator = initiator(device);
    for round in 0..3 {
        let link = initiator.connect(&forged, PATIENCE).unwrap();
        let mut batch = Batch::new();
        let ops = match round {
            0 => [batch.write(link, WORD, &[1]), batch.read(link, WORD, 8)],
            1 => [batch.fetch_and_add(link, WORD, 1), batch.read(link, WORD, 8)],
            _ => [batch.compare_and_swap(link, WORD, 42, 1), batch.read(link, WORD, 8)],
        };
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(ops.map(|op| batch.value(op)), [Err(OpError::KeyRejected); 2]);
        initiator.close(link);
    }
    assert_eq!(region.load(WORD), 42);
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    let mut batch = Batch::new();
    let read = batch.read(link, WORD, 8);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(read), Ok(42));

    let stranger = Secret::new(b"known to nobody of them").unwrap();
    let refused =
        Initiator::with_verbs(device, &stranger).unwrap().connect(region.key(), PATIENCE).unwrap_err();
    assert!(matches!(refused, Error::Control { cause: Cause::Secret, .. }), "{refused}");
    let refused = Initiator::new().connect(region.key(), PATIENCE).unwrap_err();
    assert!(matches!(refused, Error::NoVerbs { .. }), "{refused}");
}

#[test]
fn who_is_evicted_is_out_at_once_and_alone() {
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let region = expose(&host, "a", Access::Atomic);
    let (mut staying, mut leaving) = (initiator(device), initiator(device));
    let stays = staying.connect(region.key(), PATIENCE).unwrap();
    let leaves = leaving.connect(region.key(), PATIENCE).unwrap();
    assert_eq!((add(&mut staying, stays), add(&mut leaving, leaves)), (Ok(0), Ok(1)));
    let connected = host.connected();
    assert_eq!(connected.len(), 2);
    assert!(host.evict(connected[1].id) && !host.evict(connected[1].id + 1));
    let refused = add(&mut leaving, leaves).unwrap_err();
    assert!(matches!(refused, OpError::KeyRejected | OpError::PeerGone), "{refused}");
    assert_eq!(add(&mut staying, stays), Ok(2));
    leaving.close(leaves);
    let again = leaving.connect(region.key(), PATIENCE).unwrap();
    assert_eq!((add(&mut leaving, again), add(&mut staying, stays)), (Ok(3), Ok(4)));
    drop(leaving);
    await_connected(&host, 1);
    assert_eq!(add(&mut staying, stays), Ok(5));
}

/// Batches are given up at any moment, and late completions never show in a later batch.
#[test]
fn a_batch_that_was_given_up_is_left_alone() {
    const ROUNDS: u64 = 100;
    const EACH: u64 = 3000;
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let region = expose(&host, "a", Access::Atomic);
    let mut initiator = initiator(device);
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    let mut batch = Batch::new();
    let (mut added, mut given_up) = (0, 0);
    for round in 0..ROUNDS {
        batch.clear();
        let mark = [round; 8];
        let write = batch.write(link, 1024, &mark);
        let adds: Vec<_> = (0..EACH).map(|_| batch.fetch_and_add(link, WORD, 1)).collect();
        let long = batch.read(link, 0, LEN);
        let read = batch.read(link, 1024, 64);
        initiator.run(&mut batch, Duration::from_millis(round % 10 * 8));
        added += adds.iter().filter(|add| batch.value(**add).is_ok()).count() as u64;
        given_up += u64::from(batch.words(read) == Err(OpError::Timeout));
        if batch.words(read).is_ok() {
            assert_eq!(batch.words(read), Ok(&mark[..]));
            assert!(batch.words(write).is_ok() && batch.words(long).is_ok());
        }
        let after: Vec<_> = adds.iter().map(|add| batch.value(*add)).collect();
        thread::yield_now();
        assert!(adds.iter().map(|add| batch.value(*add)).eq(after));
    }
    println!("{given_up} of {ROUNDS} batches were given up");
    assert!(given_up > 0);
    let total = add(&mut initiator, link).unwrap();
    assert!((added..=ROUNDS * EACH).contains(&total), "{added} <= {total}");
}

#[test]
fn links_come_and_go_with_work_in_flight() {
    const ROUNDS: usize = 50;
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let region = expose(&host, "a", Access::Atomic);
    let (mut kept, mut batch) = (initiator(device), Batch::new());
    let stays = kept.connect(region.key(), PATIENCE).unwrap();
    for round in 0..ROUNDS {
        let mut short = initiator(device);
        for initiator in [&mut short, &mut kept] {
            let link = initiator.connect(region.key(), PATIENCE).unwrap();
            batch.clear();
            for _ in 0..100 {
                batch.read(link, 0, LEN);
                batch.write(link, 1024, &[round as u64; 100]);
            }
            initiator.run(&mut batch, Duration::ZERO);
            if round % 2 == 0 {
                initiator.close(link);
            }
        }
        assert_eq!(add(&mut kept, stays), Ok(round as u64));
    }
}

#[test]
fn messages_outlive_their_link() {
    const LONG: usize = 100_001;
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let (region, mut inbox) = expose_with_inbox(&host, 2, LONG);
    for round in 0..5_u8 {
        let mut leaving = initiator(device);
        let link = leaving.connect(region.key(), PATIENCE).unwrap();
        let mut batch = Batch::new();
        let ops = [batch.send(link, &[round; LONG]), batch.send(link, &[round])];
        leaving.run(&mut batch, PATIENCE);
        assert_eq!(ops.map(|op| batch.words(op).map(|_| ())), [Ok(()); 2]);
        drop(leaving);
        await_connected(&host, 0);
    }
    for round in 0..5_u8 {
        assert_eq!(inbox.try_receive().unwrap().bytes, [round; LONG]);
        assert_eq!(inbox.try_receive().unwrap().bytes, [round]);
    }
    assert!(inbox.try_receive().is_none());
}

#[test]
fn an_inbox_takes_nothing_from_who_is_evicted() {
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let (region, mut inbox) = expose_with_inbox(&host, 2, 8);
    let (mut staying, mut leaving) = (initiator(device), initiator(device));
    let stays = staying.connect(region.key(), PATIENCE).unwrap();
    let leaves = leaving.connect(region.key(), PATIENCE).unwrap();
    let send = |initiator: &mut Initiator, link, message: &[u8]| {
        let mut batch = Batch::new();
        let sent = batch.send(link, message);
        initiator.run(&mut batch, PATIENCE);
        batch.words(sent).map(|_| ())
    };
    // No link uses another's room.
    assert_eq!([send(&mut leaving, leaves, b"1"), send(&mut leaving, leaves, b"2")], [Ok(()); 2]);
    assert_eq!(send(&mut leaving, leaves, b"3"), Err(OpError::InboxFull));
    assert_eq!(send(&mut staying, stays, b"4"), Ok(()));
    let mut received = || inbox.receive(PATIENCE).unwrap().bytes.to_vec();
    assert_eq!([received(), received(), received()], [b"1", b"2", b"4"]);
    assert!(host.evict(host.connected()[1].id));
    let refused = send(&mut leaving, leaves, b"5").unwrap_err();
    assert!(matches!(refused, OpError::NoInbox | OpError::PeerGone), "{refused}");
    assert_eq!(send(&mut staying, stays, b"6"), Ok(()));
    assert_eq!(inbox.receive(PATIENCE).unwrap().bytes, b"6");
    assert!(inbox.receive(Duration::from_millis(20)).is_none());
}

#[test]
fn there_may_be_more_links_than_there_was_room_for_at_first() {
    const LINKS: usize = 70;
    let Some(device) = device() else { return };
    let (host, _) = host(device);
    let region = expose(&host, "a", Access::Atomic);
    let mut initiator = initiator(device);
    let links: Vec<_> = (0..LINKS).map(|_| initiator.connect(region.key(), PATIENCE).unwrap()).collect();
    let mut batch = Batch::new();
    let ops: Vec<_> = (0..20)
        .flat_map(|_| links.iter().map(|link| batch.fetch_and_add(*link, WORD, 1)).collect::<Vec<_>>())
        .collect();
    initiator.run(&mut batch, PATIENCE);
    assert!(ops.iter().all(|op| batch.value(*op).is_ok()));
    assert_eq!(region.load(WORD), LINKS as u64 * 20);
    // All their requests fail at once, each with its own completion.
    batch.clear();
    let ops: Vec<_> = (0..64)
        .flat_map(|_| links.iter().map(|link| batch.fetch_and_add(*link, WORD, 1)).collect::<Vec<_>>())
        .collect();
    drop(region);
    initiator.run(&mut batch, PATIENCE);
    assert!(ops.iter().all(|op| batch.value(*op) == Err(OpError::KeyRejected)));
    println!("{:?}", device.counters());
}
