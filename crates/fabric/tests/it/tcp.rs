//! What only the tcp backend meets: full sockets, malformed frames, stalled targets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{
    Access, Batch, Directory as _, Error, Host, Initiator, OpError, Region, RegionSpec, RunDirectory,
};
use sidelong_layout::{Instance, RegionKind};

use crate::support::relay::{Passing, Relay};

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 1 << 20;

#[test]
fn both_directions_may_fill_at_once() {
    let (host, region) = exposed("r", Access::Atomic);
    let mut initiator = Initiator::new();
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    let words = vec![0x5a5a; LEN / 8 - 8];
    let mut batch = Batch::new();
    // Far more than the sockets hold, each way: a side that only wrote would wait for ever.
    let mut reads = Vec::new();
    for _ in 0..40 {
        batch.write(link, 64, &words);
        reads.push(batch.read(link, 64, words.len() * 8));
    }
    initiator.run(&mut batch, PATIENCE);
    assert!(reads.into_iter().all(|read| batch.words(read).unwrap() == words));
    assert_eq!(refused(&host), 0);
}

#[test]
fn an_answer_cut_by_a_deadline_is_not_taken_for_the_next() {
    let relay = Relay::start();
    let (_host, region) = exposed_behind(&relay, "r", Access::Atomic);
    let mut initiator = Initiator::new();
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    for round in 1..=20 {
        let mut batch = Batch::new();
        let long = batch.read(link, 0, LEN);
        // Some of it passes, then nothing.
        let pausing = relay.clone();
        let pause = thread::spawn(move || {
            thread::sleep(Duration::from_micros(100 * round));
            pausing.pass(Passing::Nothing);
        });
        initiator.run(&mut batch, Duration::from_millis(5));
        let cut = batch.words(long) == Err(OpError::Timeout);
        pause.join().unwrap();
        relay.pass(Passing::Everything);
        batch.clear();
        let write = batch.write(link, 64, &[round]);
        let read = batch.read(link, 64, 8);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!((batch.words(write).is_ok(), batch.value(read)), (true, Ok(round)), "cut: {cut}");
    }
}

#[test]
fn a_request_cut_by_a_deadline_is_finished_with_the_next() {
    let relay = Relay::start();
    let (_host, region) = exposed_behind(&relay, "r", Access::Atomic);
    let mut initiator = Initiator::new();
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    relay.pass(Passing::Nothing);
    let words = vec![1; LEN / 8 - 8];
    let mut batch = Batch::new();
    let stuck: Vec<_> = (0..40).map(|_| batch.write(link, 64, &words)).collect();
    let withdrawn = batch.fetch_and_add(link, 64, 1000);
    let before = Instant::now();
    initiator.run(&mut batch, Duration::from_millis(100));
    assert!(before.elapsed() < PATIENCE);
    assert!(stuck.iter().any(|write| batch.words(*write) == Err(OpError::Timeout)));
    assert_eq!(batch.value(withdrawn), Err(OpError::Timeout));
    // While it is stalled, further batches cost only time.
    for _ in 0..3 {
        batch.clear();
        let read = batch.read(link, 64, 8);
        initiator.run(&mut batch, Duration::from_millis(10));
        assert_eq!(batch.value(read), Err(OpError::Timeout));
    }
    relay.pass(Passing::Everything);
    batch.clear();
    let read = batch.read(link, 64, 8);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(read), Ok(1), "what was never sent never takes effect");
}

#[test]
fn a_dead_peer_is_seen_long_before_the_deadline() {
    let relay = Relay::start();
    let (_host, region) = exposed_behind(&relay, "r", Access::Atomic);
    let mut initiator = Initiator::new();
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    relay.pass(Passing::UntilAnswered(20));
    let mut batch = Batch::new();
    let ops: Vec<_> = (0..1000).map(|_| batch.fetch_and_add(link, 64, 1)).collect();
    let before = Instant::now();
    initiator.run(&mut batch, PATIENCE);
    assert!(before.elapsed() < PATIENCE / 2);
    assert!(ops.iter().all(|op| batch.value(*op) == Err(OpError::PeerGone)));
    initiator.run(&mut batch, PATIENCE);
    assert!(ops.iter().all(|op| batch.value(*op) == Err(OpError::PeerGone)), "it stays down");
}

#[test]
fn nonsense_is_counted_and_closed() {
    let (host, region) = exposed("r", Access::Atomic);
    let address = address(&host);
    let greeted = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is also an accepted end.
        let _ = stream.read_to_end(&mut answer);
        answer.len()
    };
    let browser = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ".to_owned() + &"as a hello ".repeat(20);
    assert_eq!(greeted(&[0xff; 176]), 0);
    assert_eq!(greeted(browser.as_bytes()), 0);
    wait_for(|| refused(&host) == 2);
    // A connection that sends nothing, or too little, is given some seconds.
    let before = Instant::now();
    assert_eq!(greeted(b"SIDELTCP"), 0);
    assert!((Duration::from_secs(4)..PATIENCE).contains(&before.elapsed()));
    wait_for(|| refused(&host) == 3);
    Initiator::new().connect(region.key(), PATIENCE).unwrap();
}

#[test]
fn a_wrong_token_is_refused_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let run = RunDirectory::open(directory.path()).unwrap();
    let (host, region) = exposed("r", Access::Atomic);
    run.publish(region.key()).unwrap();
    let find = || run.find("r", RegionKind::Raw, LEN, Access::Atomic);
    assert_eq!(&find().unwrap(), region.key());
    Initiator::new().connect(&find().unwrap(), PATIENCE).unwrap();

    let file = directory.path().join("r.tcpkey");
    let text = std::fs::read_to_string(&file).unwrap();
    let token = text.split_whitespace().last().unwrap();
    assert_eq!(token.len(), 32);
    let shown = format!("{:?} {region:?} {host:?}", region.key());
    assert!(!shown.contains(token) && shown.contains("Token(..)"), "{shown}");

    let other = if token.ends_with('0') { '1' } else { '0' };
    std::fs::write(&file, format!("{}{other}\n", &text.trim_end()[..text.trim_end().len() - 1])).unwrap();
    let error = Initiator::new().connect(&find().unwrap(), PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Refused { reason: OpError::KeyRejected, .. }), "{error}");
    wait_for(|| refused(&host) == 1);

    for text in
        ["", "tcp", "tcp 127.0.0.1:1", "tcp nowhere 00", "udp 127.0.0.1:1 00", "tcp 127.0.0.1:1 0g", "\u{0}"]
    {
        std::fs::write(&file, text).unwrap();
        assert!(matches!(find(), Err(Error::BadKey { .. })), "{text:?}");
    }
}

#[test]
fn whoever_else_listens_there_is_no_target() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impostor = listener.local_addr().unwrap();
    let (host, region) = advertised("r", Access::Atomic, impostor);
    let connect = |timeout| Initiator::new().connect(region.key(), timeout).unwrap_err();

    // A target that sends nothing is given up within the time allowed.
    let before = Instant::now();
    let error = connect(Duration::from_millis(50));
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(before.elapsed() < PATIENCE);
    drop(listener.accept().unwrap());

    // Targets that send something else, or only part of it, or leave.
    let answers: [(&[u8], bool); 3] = [(&[0x20; 64], true), (b"SIDELTCP", false), (b"", false)];
    for (answer, spoken) in answers {
        let accepting = listener.try_clone().unwrap();
        let impostor = thread::spawn(move || {
            let (mut stream, _) = accepting.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer).unwrap();
        });
        let error = connect(PATIENCE);
        let expected = if spoken {
            matches!(error, Error::Protocol { .. })
        } else {
            matches!(error, Error::Connect { .. })
        };
        assert!(expected, "{error}");
        impostor.join().unwrap();
    }
    drop(listener);
    assert!(matches!(connect(PATIENCE), Error::Connect { .. }));
    assert_eq!(refused(&host), 0);
}

#[test]
fn the_thread_ends_with_the_last_of_host_and_regions() {
    let (host, region) = exposed("r", Access::ReadOnly);
    let address = address(&host);
    let clone = region.clone();
    drop(host);
    drop(region);
    let mut initiator = Initiator::new();
    let link = initiator.connect(clone.key(), PATIENCE).unwrap();
    drop(clone); // joins the thread
    assert!(TcpListener::bind(address).is_ok(), "nobody listens there any more");
    let mut batch = Batch::new();
    let read = batch.read(link, 0, 64);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.words(read), Err(OpError::PeerGone));
}

#[test]
fn a_hundred_links_share_one_wait() {
    let (host, region) = exposed("r", Access::Atomic);
    let mut initiator = Initiator::new();
    let links: Vec<_> = (0..100).map(|_| initiator.connect(region.key(), PATIENCE).unwrap()).collect();
    let mut batch = Batch::new();
    for _ in 0..10 {
        for link in &links {
            batch.fetch_and_add(*link, 64, 1);
        }
    }
    for round in 1..=5 {
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(region.load(64), round * 1000);
    }
    links.into_iter().for_each(|link| initiator.close(link));
    assert_eq!(refused(&host), 0);
}

#[test]
fn an_address_in_use_is_an_error_that_says_so() {
    let (host, _region) = exposed("r", Access::Atomic);
    let error = TcpHost::listen(address(&host)).unwrap_err();
    assert!(
        matches!(error, Error::Listen { .. }) && error.to_string().contains("cannot listen on 127.0.0.1:")
    );
}

fn exposed(name: &str, access: Access) -> (Host, Region) {
    expose(TcpHost::listen(anywhere()).unwrap(), name, access)
}

fn exposed_behind(relay: &Relay, name: &str, access: Access) -> (Host, Region) {
    let (host, region) = advertised(name, access, relay.address());
    relay.set_target(address(&host));
    (host, region)
}

fn advertised(name: &str, access: Access, address: SocketAddr) -> (Host, Region) {
    expose(TcpHost::listen(anywhere()).unwrap().advertising(address), name, access)
}

fn expose(host: TcpHost, name: &str, access: Access) -> (Host, Region) {
    let host = Host::Tcp(host);
    let spec = RegionSpec { name, kind: RegionKind::Raw, len: LEN, access, instance: Instance::alone(1) };
    let region = host.expose(&spec, |_| {}).unwrap();
    (host, region)
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn address(host: &Host) -> SocketAddr {
    tcp(host).address()
}

fn refused(host: &Host) -> u64 {
    tcp(host).refused()
}

fn tcp(host: &Host) -> &TcpHost {
    match host {
        Host::Tcp(host) => host,
        _ => unreachable!("these are tcp hosts"),
    }
}

fn wait_for(done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen");
        thread::sleep(Duration::from_millis(1));
    }
}
