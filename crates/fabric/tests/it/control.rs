//! The control endpoint over real sockets: which peers are accepted, which are refused and counted, and what happens to
//! sessions whose other side leaves.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use sidelong_fabric::control::{Cause, ControlDirectory, Endpoint, Secret, Session};
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{
    Access, Directory as _, Error, Host, Initiator, Key, Region, RegionSpec, RunDirectory,
};
use sidelong_layout::{Instance, RegionKind};

use crate::support::relay::{Passing, Relay};

const PATIENCE: Duration = Duration::from_secs(30);
const WORDS: &[u8] = b"what everybody here knows";
const LEN: usize = 4096;
/// Frames as `control::wire` has them.
const HELLO: usize = 64;
const PROOF: usize = 16;
/// Its length, two bytes of body, kind and tag.
const MESSAGE: usize = 2 + 2 + 1 + 16;

#[test]
fn a_region_is_found_and_used() {
    let endpoint = endpoint();
    let (_host, region) = exposed("n1.words");
    endpoint.publish(region.key());
    let mut session = open(endpoint.address()).unwrap();
    let key = session.find("n1.words", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap();
    assert_eq!((&key.name, key.len), (&region.key().name, LEN));
    assert_ne!(&key, region.key(), "it is for this peer alone");
    Initiator::new().connect(&key, PATIENCE).unwrap();
    let error = session.find("n2.words", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap_err();
    assert!(matches!(&error, Error::NoKey { name, .. } if name == "n2.words"), "{error}");
    let error = session.find("../x", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Name { .. }), "{error}");
    assert!(!session.is_closed() && endpoint.refused().total() == 0);
}

#[test]
fn an_address_that_means_all_is_the_one_that_was_asked() {
    let endpoint = endpoint();
    let host = Host::Tcp(TcpHost::listen("0.0.0.0:0".parse().unwrap()).unwrap());
    let region = expose(&host, "r");
    endpoint.publish(region.key());
    let mut session = open(endpoint.address()).unwrap();
    let key = session.find("r", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap();
    assert!(format!("{key:?}").contains("127.0.0.1:"), "{key:?}");
    Initiator::new().connect(&key, PATIENCE).unwrap();
}

#[test]
fn what_is_asked_is_answered_for_as_long_as_the_session_lives() {
    struct Held(Arc<AtomicUsize>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let relay = Relay::start();
    let endpoint = endpoint();
    relay.set_target(endpoint.address());
    let held = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&held);
    endpoint.serve(5, move || {
        count.fetch_add(1, Ordering::Relaxed);
        let _held = Held(Arc::clone(&count));
        Box::new(move |body| {
            let _ = &_held;
            if body.is_empty() { Err("say\nsomething".to_owned()) } else { Ok(body.to_vec()) }
        })
    });
    let mut first = open(relay.address()).unwrap();
    let mut second = open(endpoint.address()).unwrap();
    let long = vec![7; sidelong_fabric::control::BODY_BYTES_MAX];
    for session in [&mut first, &mut second] {
        assert_eq!(session.exchange(5, &long, PATIENCE).unwrap(), long);
        let error = session.exchange(5, b"", PATIENCE).unwrap_err();
        assert!(matches!(&error, Error::Declined { reason, .. } if reason == "saysomething"), "{error}");
        assert!(matches!(session.exchange(6, b"", PATIENCE), Err(Error::Declined { .. })));
        assert_eq!(session.exchange(5, b"on", PATIENCE).unwrap(), b"on");
    }
    assert_eq!(held.load(Ordering::Relaxed), 2);
    drop(second);
    wait_for(|| held.load(Ordering::Relaxed) == 1);
    // A broken network is like a peer that leaves.
    relay.pass(Passing::UntilAnswered(10));
    let error = first.exchange(5, b"on", PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    wait_for(|| held.load(Ordering::Relaxed) == 0);
    assert!(first.is_closed());
    assert!(matches!(first.exchange(5, b"on", PATIENCE), Err(Error::Connect { .. })));
}

#[test]
fn a_session_knows_when_its_endpoint_has_gone() {
    let endpoint = endpoint();
    let mut session = open(endpoint.address()).unwrap();
    assert!(!session.is_closed());
    drop(endpoint);
    wait_for(|| session.is_closed());
    let error = session.exchange(1, b"", PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[test]
fn an_answer_that_does_not_come_ends_the_session() {
    let relay = Relay::start();
    let endpoint = endpoint();
    relay.set_target(endpoint.address());
    let mut session = open(relay.address()).unwrap();
    relay.pass(Passing::Requests);
    let error = session.exchange(1, b"", Duration::from_millis(20)).unwrap_err();
    let timed_out =
        matches!(&error, Error::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut);
    assert!(timed_out, "{error}");
    relay.pass(Passing::Everything);
    assert!(session.is_closed(), "a late answer is not taken for the next one");
}

#[test]
fn a_machine_says_which_of_its_processes_have_ended() {
    let files = tempfile::tempdir().unwrap();
    let run = RunDirectory::open(files.path()).unwrap();
    let witness = endpoint();
    witness.witness(run.clone());
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = place.local_addr().unwrap();
    let table = [("edge.front".to_owned(), at), ("n1.load".to_owned(), witness.address())];
    let directory = ControlDirectory::new(Secret::new(WORDS).unwrap(), table);
    let has_ended = |incarnation| directory.has_ended("edge.front", incarnation);
    let held = run.hold("edge.front", 7).unwrap().unwrap();
    assert!(run.hold("edge.front", 8).unwrap().is_none(), "one process has it");
    assert!(!has_ended(None) && run.ended("edge.front").is_none());
    drop(held);
    assert!((0..20).all(|_| !has_ended(None)), "somebody listens at its address");
    drop(place);
    wait_for(|| has_ended(None) && has_ended(Some(7)) && has_ended(Some(6)));
    assert!(!has_ended(Some(8)), "an earlier one, on a machine that has its address now");
    assert!(!directory.has_ended("n1.load", None), "it is not known to have been there");
    assert!(!directory.has_ended("n2.load", None), "it is not in the cluster");
    assert!(run.ended("../edge.front").is_none());
}

#[test]
fn another_secret_is_refused_on_both_sides_and_never_shown() {
    let endpoint = endpoint();
    let other = Secret::new(b"what somebody else knows").unwrap();
    let error = Session::open(endpoint.address(), &other, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Control { cause: Cause::Secret, .. }), "{error}");
    assert_eq!((endpoint.refused().of(Cause::Secret), endpoint.refused().total()), (1, 1));
    let session = open(endpoint.address()).unwrap();
    let shown = format!("{error} {error:?} {endpoint:?} {session:?} {other:?}");
    assert!(!shown.contains("knows"), "{shown}");
}

#[test]
fn while_the_secret_is_changed_either_one_opens_a_session() {
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, words: &[&[u8]]| {
        let path = files.path().join(name);
        std::fs::write(&path, words.join(&b'\n')).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Secret::read(&path).unwrap()
    };
    let (new, alone) = (b"what everybody will know", Secret::new(b"what everybody will know").unwrap());
    let endpoint = Endpoint::listen("127.0.0.1:0".parse().unwrap(), write("one", &[WORDS])).unwrap();
    let asks = |secret: &Secret| Session::open(endpoint.address(), secret, PATIENCE);
    let mut old = open(endpoint.address()).unwrap();
    assert!(asks(&alone).is_err());
    write("one", &[WORDS, new]);
    let both = write("both", &[WORDS, new]);
    wait_for(|| asks(&alone).is_ok());
    assert_eq!(old.secrets(PATIENCE).unwrap(), both.ids());
    assert!(!old.is_closed() && asks(&both).is_ok());
    write("one", &[new]);
    wait_for(|| open(endpoint.address()).is_err());
    wait_for(|| old.is_closed());
    // Whoever has both asks by the other one, too, and by that from then on.
    let refused = endpoint.refused().of(Cause::Secret);
    for _ in 0..2 {
        asks(&both).unwrap();
        assert_eq!(endpoint.refused().of(Cause::Secret), refused + 1);
    }
}

#[test]
fn another_version_is_refused_by_name_on_both_sides() {
    let endpoint = endpoint();
    let mut hello = recorded_session(&endpoint)[..HELLO].to_vec();
    for (found, bytes) in [(4, HELLO), (1, 48)] {
        hello[8] = found;
        let answer = told(endpoint.address(), &hello[..bytes]);
        assert_eq!((answer.len(), answer[8]), (HELLO, 3), "it says which version it speaks");
    }
    let refused = endpoint.refused();
    assert_eq!((refused.of(Cause::Version { found: 4, expected: 3 }), refused.total()), (2, 2));

    // As each would answer: version 1 with 48 bytes.
    for (version, bytes) in [(4, HELLO), (1, 48)] {
        (hello[8], hello[12]) = (version, 3);
        let impostor = answering(hello[..bytes].to_vec());
        let error = open(impostor).unwrap_err();
        let told = matches!(error, Error::Control { cause: Cause::Version { found, .. }, .. } if found == version.into());
        assert!(told, "{error}");
        let error = error.to_string();
        assert!(error.contains(&format!("version {version}")) && error.contains("version 3"), "{error}");
    }
}

#[test]
fn a_recorded_session_is_worth_nothing() {
    let endpoint = endpoint();
    let recorded = recorded_session(&endpoint);
    assert!(recorded.len() > HELLO + PROOF);
    let answer = told(endpoint.address(), &recorded);
    // A greeting that the recorded proof does not fit, and nothing more.
    assert_eq!(answer.len(), HELLO);
    assert_eq!((endpoint.refused().of(Cause::Secret), endpoint.refused().total()), (1, 1));
}

#[test]
fn a_repeated_or_altered_message_ends_its_session() {
    for repeated in [true, false] {
        let endpoint = endpoint();
        let to = endpoint.address();
        let between = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = between.local_addr().unwrap();
        let meddler = thread::spawn(move || {
            let mut near = between.accept().unwrap().0;
            let mut far = TcpStream::connect(to).unwrap();
            for (bytes, down) in [(HELLO, true), (HELLO, false), (PROOF, true)] {
                let (from, to) = if down { (&mut near, &mut far) } else { (&mut far, &mut near) };
                let mut frame = vec![0; bytes];
                from.read_exact(&mut frame).unwrap();
                to.write_all(&frame).unwrap();
            }
            let mut message = vec![0; MESSAGE];
            near.read_exact(&mut message).unwrap();
            if repeated {
                far.write_all(&message).unwrap();
                far.read_exact(&mut [0; MESSAGE]).unwrap();
            } else {
                message[9] ^= 1;
            }
            far.write_all(&message).unwrap();
            let mut rest = Vec::new();
            let _ = far.read_to_end(&mut rest);
            assert_eq!(rest, b"", "it is not answered");
        });
        endpoint.serve(5, || Box::new(|body| Ok(body.to_vec())));
        let error = open(address).unwrap().exchange(5, b"on", PATIENCE).unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        meddler.join().unwrap();
        wait_for(|| endpoint.refused().of(Cause::Replay) == 1);
        assert_eq!(endpoint.refused().total(), 1);
    }
}

#[test]
fn nothing_of_a_key_is_on_the_wire() {
    let endpoint = endpoint();
    let relay = Relay::start();
    relay.set_target(endpoint.address());
    relay.overhear();
    let (_host, region) = exposed("n1.words");
    endpoint.publish(region.key());
    endpoint.serve(5, || Box::new(|body| Ok(body.to_vec())));
    let mut session = open(relay.address()).unwrap();
    let key = session.find("n1.words", RegionKind::Raw, LEN, Access::Atomic, PATIENCE).unwrap();
    assert_eq!(key.name, region.key().name);
    assert_eq!(session.exchange(5, b"a queue pair's number", PATIENCE).unwrap(), b"a queue pair's number");

    // A key as a run directory has it, `tcp ADDRESS TOKEN`; and the token as the data path carries it.
    let directory = tempfile::tempdir().unwrap();
    RunDirectory::open(directory.path()).unwrap().publish(region.key()).unwrap();
    let text = std::fs::read_to_string(directory.path().join("n1.words.tcpkey")).unwrap();
    let (address, token) = text.trim().strip_prefix("tcp ").unwrap().split_once(' ').unwrap();
    let bytes = u128::from_str_radix(token, 16).unwrap().to_le_bytes();
    let secrets = [address.as_bytes(), token.as_bytes(), &bytes, b"n1.words", b"queue pair", WORDS];
    for said in relay.overheard() {
        assert!(said.len() > HELLO + MESSAGE, "what was said was overheard");
        for secret in secrets {
            let shown = said.windows(secret.len()).any(|window| window == secret);
            assert!(!shown, "{} is on the wire", String::from_utf8_lossy(secret));
        }
    }
}

#[test]
fn a_mirror_is_not_taken_for_an_endpoint() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&hello).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let error = open(mirror).unwrap_err();
    assert!(matches!(error, Error::Control { cause: Cause::Secret, .. }), "{error}");
}

#[test]
fn what_is_cut_off_is_counted_and_harms_nobody() {
    let endpoint = endpoint();
    let recorded = recorded_session(&endpoint);
    let mut malformed = 0;
    for cut in (1..HELLO).step_by(7).chain([HELLO + 1, HELLO + PROOF - 1]) {
        told(endpoint.address(), &recorded[..cut]);
        malformed += 1;
        wait_for(|| endpoint.refused().of(Cause::Malformed) == malformed);
    }
    told(endpoint.address(), b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    wait_for(|| endpoint.refused().of(Cause::Malformed) == malformed + 1);
    // A peer that leaves between two frames, or connects and leaves, is not refused.
    told(endpoint.address(), &recorded[..HELLO]);
    told(endpoint.address(), b"");
    open(endpoint.address()).unwrap();
    assert_eq!(endpoint.refused().total(), malformed + 1);
}

#[test]
fn no_bytes_upset_either_side() {
    let seed = 20_261_122;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let endpoint = endpoint();
    let recorded = recorded_session(&endpoint);
    for round in 0..200 {
        // Now a hello before them, now not.
        let mut bytes = recorded[..if round % 2 == 0 { HELLO } else { 0 }].to_vec();
        let begin = bytes.len();
        bytes.resize(begin + random.random_range(0..200), 0);
        random.fill_bytes(&mut bytes[begin..]);
        assert!(told(endpoint.address(), &bytes).len() <= HELLO, "seed {seed}, round {round}");
        let impostor = answering(bytes);
        let error = open(impostor).unwrap_err();
        let expected = matches!(error, Error::Connect { .. } | Error::Control { .. });
        assert!(expected, "seed {seed}, round {round}: {error}");
    }
    open(endpoint.address()).unwrap();
}

#[test]
fn who_says_nothing_is_shown_out() {
    let endpoint = endpoint();
    let mut resting = open(endpoint.address()).unwrap();
    let mut silent = TcpStream::connect(endpoint.address()).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    wait_for(|| endpoint.refused().of(Cause::Silent) == 1);
    endpoint.serve(5, || Box::new(|_| Ok(Vec::new())));
    resting.exchange(5, b"", PATIENCE).unwrap();
    assert_eq!(endpoint.refused().total(), 1, "a session may rest");
}

#[test]
fn who_begins_and_proves_nothing_is_shown_out() {
    let endpoint = endpoint();
    let hello = recorded_session(&endpoint)[..HELLO].to_vec();
    let mut halfway = TcpStream::connect(endpoint.address()).unwrap();
    halfway.set_read_timeout(Some(PATIENCE)).unwrap();
    halfway.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    halfway.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), HELLO);
    wait_for(|| endpoint.refused().of(Cause::Silent) == 1);
    assert_eq!(endpoint.refused().total(), 1);
}

#[test]
fn an_endpoint_that_says_nothing_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Instant::now();
    let error = Session::open(address, &secret(), Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(begun.elapsed() < PATIENCE);
    drop(listener);
    assert!(matches!(open(address), Err(Error::Connect { .. })));
}

#[test]
fn too_many_strangers_make_room_for_each_other_and_for_those_who_know_the_secret() {
    let endpoint = endpoint();
    endpoint.serve(5, || Box::new(|_| Ok(Vec::new())));
    let mut inside = open(endpoint.address()).unwrap();
    let unauthenticated: Vec<_> = (0..300).map(|_| TcpStream::connect(endpoint.address()).unwrap()).collect();
    wait_for(|| endpoint.refused().of(Cause::TooMany) == 300 - 256);
    let mut first = &unauthenticated[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    first.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), HELLO, "the oldest one is told why");
    let mut second = open(endpoint.address()).unwrap();
    inside.exchange(5, b"", PATIENCE).unwrap();
    second.exchange(5, b"", PATIENCE).unwrap();
}

/// What peers that do not know the secret do, from an address of their own, for as long as this lives.
struct Flood {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Flood {
    /// Connections to `endpoint`, one after the other, each of which begins with `words`. The last ones are held.
    fn start(endpoint: &Endpoint, from: &[Ipv4Addr], words: &[u8]) -> Self {
        let held_max = 300 / from.len();
        let stop = Arc::new(AtomicBool::new(false));
        let flood = |from: &Ipv4Addr| {
            let (stop, from, words) = (Arc::clone(&stop), *from, words.to_vec());
            let to = endpoint.address();
            thread::spawn(move || {
                let (mut held, mut count) = (VecDeque::new(), 0);
                while !stop.load(Ordering::Relaxed) {
                    // It may be out of ports for a moment.
                    let Ok(mut stream) = connect_from(from, to) else { continue };
                    let _ = stream.write_all(&words);
                    held.push_back(stream);
                    if held.len() > held_max {
                        held.pop_front();
                    }
                    count += 1;
                }
                count
            })
        };
        let threads = from.iter().map(flood).collect();
        Flood { stop, threads }
    }

    /// Ends it; how many connections it has made.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).map(|thread| thread.join().unwrap()).sum()
    }
}

/// Also where a test fails: the endpoint's port may be another test's next.
impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A connection from `source`, an address of this machine.
fn connect_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(source, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// Opens sessions while `from` floods the endpoint with connections that begin with `words`.
fn is_open_under_a_flood(from: &[Ipv4Addr], words: impl FnOnce(&Endpoint) -> Vec<u8>) {
    let endpoint = endpoint();
    endpoint.serve(5, || Box::new(|body| Ok(body.to_vec())));
    let words = words(&endpoint);
    let flood = Flood::start(&endpoint, from, &words);
    // It is under way. How fast is a matter of what else the machine does.
    wait_for(|| endpoint.refused().total() >= 30);
    let mut sessions = Vec::new();
    for number in 0..20 {
        let session = open(endpoint.address());
        sessions.push(session.unwrap_or_else(|error| panic!("session {number}: {error}")));
    }
    for session in &mut sessions {
        assert_eq!(session.exchange(5, b"on", PATIENCE).unwrap(), b"on");
    }
    let begun = flood.end();
    assert!(begun >= 30, "{begun}");
}

const LOCAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4)];

#[test]
fn a_flood_of_silent_connections_keeps_nobody_out_who_knows_the_secret() {
    is_open_under_a_flood(&OTHERS, |_| Vec::new());
    is_open_under_a_flood(&[LOCAL; 3], |_| Vec::new());
}

#[test]
fn a_flood_of_garbage_keeps_nobody_out_who_knows_the_secret() {
    is_open_under_a_flood(&OTHERS, |_| vec![0xff; HELLO]);
    is_open_under_a_flood(&[LOCAL; 3], |_| vec![0xff; HELLO]);
}

#[test]
fn a_flood_of_recorded_hellos_keeps_nobody_out_who_knows_the_secret() {
    let recorded = |endpoint: &Endpoint| recorded_session(endpoint)[..HELLO].to_vec();
    // Each takes the endpoint a key exchange, which takes long in a program that is not optimised.
    is_open_under_a_flood(&OTHERS[..1], recorded);
    is_open_under_a_flood(&[LOCAL], recorded);
}

#[test]
fn a_directory_follows_whoever_exposes() {
    let own = endpoint();
    let (_host, region) = exposed("n1.words");
    let address = own.address();
    let publishing = ControlDirectory::new(secret(), []).publishing(own);
    publishing.publish(region.key()).unwrap();
    let directory = ControlDirectory::new(secret(), table(address));
    let find = |name| found(&directory, name);
    let leads_there = |key: &Key| Initiator::new().connect(key, PATIENCE).is_ok();
    assert!(leads_there(&find("n1.words").unwrap()));
    assert!(matches!(find("n1.load"), Err(Error::NoKey { .. })), "nobody exposes it");
    assert!(matches!(find("n9.words"), Err(Error::NoKey { .. })), "nobody has heard of it");

    drop(publishing);
    let error = find("n1.words").unwrap_err();
    assert!(matches!(latest(&error), Error::Connect { .. }), "{error}");
    // The peer is left alone for a while, and callers get the same error again.
    assert_eq!(find("n1.words").unwrap_err().to_string(), error.to_string());

    let again = Endpoint::listen(address, secret()).unwrap();
    let (_host, region) = exposed("n1.words");
    again.publish(region.key());
    wait_for(|| find("n1.words").is_ok());
    assert!(leads_there(&find("n1.words").unwrap()), "the new one's");
    assert_eq!(directory.refused().total(), 0);
    // A restart between two requests goes unnoticed.
    drop(again);
    let again = Endpoint::listen(address, secret()).unwrap();
    again.publish(region.key());
    find("n1.words").unwrap();
}

#[test]
fn a_machine_that_is_gone_costs_its_own_keys_alone() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint();
    let (_host, region) = exposed("n1.words");
    endpoint.publish(region.key());
    let of_gone = ("n2.words".to_owned(), gone.local_addr().unwrap());
    let directory = ControlDirectory::new(secret(), table(endpoint.address()).into_iter().chain([of_gone]));
    found(&directory, "n1.words").unwrap();
    // This process accepts connections and stays silent. An attempt takes a second, which must not delay other callers.
    let begun = Instant::now();
    for _ in 0..200 {
        let error = directory.find("n2.words", RegionKind::Raw, LEN, Access::Atomic).unwrap_err();
        assert!(matches!(latest(&error), Error::Connect { .. }), "{error}");
        found(&directory, "n1.words").unwrap();
    }
    gone.set_nonblocking(true).unwrap();
    let tries = gone.incoming().map_while(Result::ok).count() as u64;
    assert!((1..=1 + begun.elapsed().as_secs()).contains(&tries), "{tries} tries");
    assert_eq!(directory.refused().total(), 0);
}

#[test]
fn a_directory_counts_who_refuses_it() {
    let endpoint = endpoint();
    let other = Secret::new(b"what somebody else knows").unwrap();
    let directory = ControlDirectory::new(other, table(endpoint.address()));
    for _ in 0..3 {
        let error = found(&directory, "n1.words").unwrap_err();
        assert!(matches!(latest(&error), Error::Control { cause: Cause::Secret, .. }), "{error}");
    }
    assert!((1..=3).contains(&directory.refused().of(Cause::Secret)));
    assert_eq!(directory.refused(), endpoint.refused(), "it asks no more often than it is refused");
}

fn is_late(error: &Error) -> bool {
    matches!(latest(error), Error::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

/// The error of the latest attempt, whether that was made now or earlier.
fn latest(error: &Error) -> &Error {
    match error {
        Error::Earlier(error) => error,
        error => error,
    }
}

fn secret() -> Secret {
    Secret::new(WORDS).unwrap()
}

fn endpoint() -> Endpoint {
    Endpoint::listen("127.0.0.1:0".parse().unwrap(), secret()).unwrap()
}

fn open(address: SocketAddr) -> Result<Session, Error> {
    Session::open(address, &secret(), PATIENCE)
}

fn table(address: SocketAddr) -> [(String, SocketAddr); 2] {
    ["n1.words", "n1.load"].map(|name| (name.to_owned(), address))
}

/// The result, once the search for it has ended.
fn found(directory: &ControlDirectory, name: &str) -> Result<Key, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match directory.find(name, RegionKind::Raw, LEN, Access::Atomic) {
            Err(error) if is_late(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            found => return found,
        }
    }
}

fn exposed(name: &str) -> (Host, Region) {
    let host = Host::Tcp(TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    let region = expose(&host, name);
    (host, region)
}

fn expose(host: &Host, name: &str) -> Region {
    let spec = RegionSpec {
        name,
        kind: RegionKind::Raw,
        len: LEN,
        access: Access::Atomic,
        instance: Instance::alone(1),
    };
    host.expose(&spec, |_| {}).unwrap()
}

/// Everything that the asking side of a session sends: hello, proof and a request.
fn recorded_session(endpoint: &Endpoint) -> Vec<u8> {
    let relay = Relay::start();
    relay.set_target(endpoint.address());
    relay.overhear();
    let mut session = open(relay.address()).unwrap();
    let _ = session.find("x", RegionKind::Raw, LEN, Access::Atomic, PATIENCE);
    let [said, _] = relay.overheard();
    said
}

/// Sends these bytes and nothing else; returns the answer until the other side closes.
fn told(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may close before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The address of a process that answers every request with these bytes.
fn answering(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

fn wait_for(done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen");
        thread::sleep(Duration::from_millis(1));
    }
}
