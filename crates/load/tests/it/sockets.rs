//! Responders and the front ends that ask them, over loopback, with peers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use sidelong_layout::{Ack, RegionKind, valid};
use sidelong_load::{
    Keeper, KeeperSpec, Limits, Reading, Responder, ResponderKind, Sockets, Source as _, Status,
    find_address, monotonic_ns, publish_address,
};

use crate::support::{all_are, limits, recorder, refresh_until, region};

const LAYOUT: u64 = RegionKind::Load.layout_hash();

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn asker(directory: &Path, nodes: &[&str], limits: Limits) -> Sockets {
    let directory = directory.to_owned();
    let find = move |name: &str| find_address(&directory, name);
    Sockets::new(Box::new(find), nodes.iter().map(|name| (*name).to_owned()), limits).unwrap()
}

/// A node under socket-async.
fn respond(directory: &Path, name: &str) -> (Keeper, Responder) {
    let region = region(directory, name, 1);
    let keeper = Keeper::start(region.clone(), Some(recorder()), || None, KeeperSpec::default()).unwrap();
    let responder = Responder::listen(ANY, ResponderKind::Async(region)).unwrap();
    publish_address(directory, name, responder.address()).unwrap();
    (keeper, responder)
}

fn request(magic: &[u8; 8], layout: u64) -> Vec<u8> {
    [*magic, layout.to_le_bytes(), 1u64.to_le_bytes()].concat()
}

/// All bytes until the other side closes, which it must.
fn hear_out(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => heard,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => heard,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn both_kinds_answer() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledge = || Some(Ack { generation: 12 }.encode());
    let spec = KeeperSpec::default();

    let kept = region(directory.path(), "async", 0x1_0000_0005);
    let _keeper = Keeper::start(kept.clone(), Some(recorder()), acknowledge, spec).unwrap();
    let _async = Responder::listen(ANY, ResponderKind::Async(kept)).unwrap();
    publish_address(directory.path(), "async", _async.address()).unwrap();

    let made = region(directory.path(), "sync", 0x1_0000_0006);
    let _acknowledger = Keeper::start(made.clone(), None, acknowledge, spec).unwrap();
    let _sync = Responder::listen(ANY, ResponderKind::Sync(made, Box::new(recorder()))).unwrap();
    publish_address(directory.path(), "sync", _sync.address()).unwrap();

    let mut asker = asker(directory.path(), &["async", "sync"], limits());
    let readings = refresh_until(&mut asker, |readings: &[Reading; 2]| {
        let whole = valid::CPU | valid::MEMORY | valid::ORIGIN;
        readings.iter().all(|now| {
            now.fresh().is_some_and(|hot| hot.valid & whole == whole)
                && now.ack == Some(Ack { generation: 12 })
        })
    });
    assert_eq!(readings.map(|now| now.hot.unwrap().generation), [5, 6]);
    assert_eq!(readings.map(|now| now.hot.unwrap().workers), [4, 4]);

    // A record made at the request is younger than the request.
    let before_ns = monotonic_ns();
    let mut readings = [Reading::default(); 2];
    while readings[1].seen_at_ns < before_ns {
        asker.refresh(monotonic_ns(), &mut readings);
    }
    assert!(readings[1].hot.unwrap().time_ns >= before_ns);
}

#[test]
fn without_a_common_clock_a_record_must_be_seen_to_change() {
    let directory = tempfile::tempdir().unwrap();
    let node = respond(directory.path(), "n0");
    let limits = Limits { same_clock: false, ..limits() };
    let mut asker = asker(directory.path(), &["n0"], limits);
    let [first] = refresh_until(&mut asker, |[now]| now.hot.is_some());
    assert_eq!((first.status, first.age_ns), (Status::Stale, u64::MAX));
    let [second] = refresh_until(&mut asker, all_are(Status::Fresh));
    assert_ne!(first.hot, second.hot);

    // The responder continues, the keeper does not.
    let (keeper, _responder) = node;
    drop(keeper);
    refresh_until(&mut asker, all_are::<1>(Status::Gone));
}

#[test]
fn a_node_that_comes_back_elsewhere_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut asker = asker(directory.path(), &["n0"], limits());
    refresh_until(&mut asker, all_are::<1>(Status::Gone));
    assert!(asker.problem(0).unwrap().contains("no load responder of n0"));
    for _ in 0..2 {
        let node = respond(directory.path(), "n0");
        refresh_until(&mut asker, all_are::<1>(Status::Fresh));
        assert_eq!(asker.problem(0), None);
        drop(node);
        // Its address is still published, but refuses connections.
        refresh_until(&mut asker, all_are::<1>(Status::Gone));
    }
}

#[test]
fn broken_frames_cost_their_sender_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (_keeper, responder) = respond(directory.path(), "n0");
    let mut asker = asker(directory.path(), &["n0"], limits());
    refresh_until(&mut asker, all_are::<1>(Status::Fresh));

    let mut noise = TcpStream::connect(responder.address()).unwrap();
    noise.write_all(&request(b"GET / HT", LAYOUT)).unwrap();
    assert_eq!(hear_out(&mut noise), []);

    // A peer of another build is told this layout.
    let mut other = TcpStream::connect(responder.address()).unwrap();
    other.write_all(&request(b"SL-LOAD?", LAYOUT ^ 1)).unwrap();
    let answer = hear_out(&mut other);
    assert_eq!((&answer[..8], &answer[8..16]), (&b"SL-LOAD!"[..], &LAYOUT.to_le_bytes()[..]));

    // Half a request is waited for, and does no harm.
    let mut half = TcpStream::connect(responder.address()).unwrap();
    half.write_all(&request(b"SL-LOAD?", LAYOUT)[..20]).unwrap();
    assert_eq!(responder.refused(), 2);
    refresh_until(&mut asker, all_are::<1>(Status::Fresh));
    half.write_all(&request(b"SL-LOAD?", LAYOUT)[20..]).unwrap();
    let mut answer = [0; 16];
    half.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..8], b"SL-LOAD!");
}

#[test]
fn one_that_does_not_read_its_answers_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let (_keeper, responder) = respond(directory.path(), "n0");
    let mut greedy = TcpStream::connect(responder.address()).unwrap();
    let requests = request(b"SL-LOAD?", LAYOUT).repeat(1000);
    // 104 bytes of answer for each 24 bytes of request fill the buffers long before this ends.
    while greedy.write_all(&requests).is_ok() {}
    let mut asker = asker(directory.path(), &["n0"], limits());
    refresh_until(&mut asker, all_are::<1>(Status::Fresh));
    assert_eq!(responder.refused(), 1);
}

#[test]
fn connections_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (_keeper, responder) = respond(directory.path(), "n0");
    let mut asker = asker(directory.path(), &["n0"], limits());
    refresh_until(&mut asker, all_are::<1>(Status::Fresh));
    let mut crowd: Vec<_> = (0..64).map(|_| TcpStream::connect(responder.address()).unwrap()).collect();
    assert_eq!(hear_out(&mut crowd[63]), [], "one too many");
    refresh_until(&mut asker, all_are::<1>(Status::Fresh));
    assert_eq!(responder.refused(), 1);
    // Their places are free once the responder has noticed that they left.
    drop(crowd);
    let began = Instant::now();
    let answered = || {
        let mut next = TcpStream::connect(responder.address())?;
        next.write_all(&request(b"SL-LOAD?", LAYOUT))?;
        next.read_exact(&mut [0; 104])
    };
    while let Err(error) = answered() {
        assert!(began.elapsed() < Duration::from_secs(60), "{error}");
    }
}

/// A peer that accepts and stays silent: the system accepts for any listener.
#[test]
fn one_that_hangs_is_waited_for_once_and_not_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let hangs = TcpListener::bind(ANY).unwrap();
    publish_address(directory.path(), "hangs", hangs.local_addr().unwrap()).unwrap();
    let _node = respond(directory.path(), "n0");
    let limits = Limits { wait: Duration::from_secs(2), stale: Duration::from_secs(30), ..limits() };
    let mut asker = asker(directory.path(), &["hangs", "n0"], limits);

    let mut readings = refresh_until(&mut asker, |[_, n0]: &[Reading; 2]| n0.status == Status::Fresh);
    let looks = 20;
    let began = Instant::now();
    for _ in 0..looks {
        asker.refresh(monotonic_ns(), &mut readings);
        assert_eq!(readings.map(|now| now.status), [Status::Gone, Status::Fresh]);
    }
    assert!(began.elapsed() < looks * limits.wait / 2, "{:?}", began.elapsed());
    // In the end it is disconnected, to be tried again.
    refresh_until(&mut asker, |[_, _]: &[Reading; 2]| hangs_twice(&hangs));
}

/// Whether a second connection has arrived.
fn hangs_twice(listener: &TcpListener) -> bool {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CAME: AtomicUsize = AtomicUsize::new(0);
    listener.set_nonblocking(true).unwrap();
    while let Ok((stream, _)) = listener.accept() {
        CAME.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(stream);
    }
    CAME.load(Ordering::Relaxed) > 1
}

#[test]
fn answers_that_are_none_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let answers = [
        ("noise", [0x55; 104].to_vec(), "does not speak"),
        ("other-build", [request(b"SL-LOAD!", 5), vec![0; 80]].concat(), "layout 0x0000000000000005"),
        ("other-number", [&b"SL-LOAD!"[..], &LAYOUT.to_le_bytes(), &[9; 88]].concat(), "not asked for"),
    ];
    for (name, answer, _) in &answers {
        let listener = TcpListener::bind(ANY).unwrap();
        publish_address(directory.path(), name, listener.local_addr().unwrap()).unwrap();
        let answer = answer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read_exact(&mut [0; 24]).and_then(|()| stream.write_all(&answer));
            }
        });
    }
    let names = answers.each_ref().map(|(name, ..)| *name);
    let mut asker = asker(directory.path(), &names, limits());
    let mut seen = [false; 3];
    let began = Instant::now();
    while seen != [true; 3] {
        assert!(began.elapsed() < Duration::from_secs(60), "{seen:?}");
        let mut readings = [Reading::default(); 3];
        asker.refresh(monotonic_ns(), &mut readings);
        for (node, (.., problem)) in answers.iter().enumerate() {
            assert_eq!((readings[node].status, readings[node].hot), (Status::Gone, None));
            seen[node] |= asker.problem(node).is_some_and(|said| said.contains(problem));
        }
    }
}
