//! Scans by several readers at once, over links that break.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::control::{ControlDirectory, Endpoint, Secret};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{
    Access, Directory as _, Host, Initiator, LinkRef, OpError, Patience, Problem, ReadOutcome, Reader,
    Region, RegionSpec, RunDirectory, Scanner, Target,
};
use sidelong_layout::{Instance, RegionKind, Time};

use crate::support::relay::{Passing, Relay};

const LEN: usize = 1024;
const WORD: usize = 64;
const PATIENCE: Patience = Patience {
    answers: Duration::from_secs(10),
    links: Duration::from_secs(10),
    tries_max: usize::MAX,
    retry: (Duration::from_millis(10), Duration::from_millis(100)),
};

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn spec(name: &str) -> RegionSpec<'_> {
    let (kind, instance) = (RegionKind::Raw, Instance::alone(1));
    RegionSpec { name, kind, len: LEN, access: Access::ReadOnly, instance }
}

fn expose(host: &Host, run: &RunDirectory, name: &str, word: u64) -> Region {
    let region = host.expose(&spec(name), |_| {}).unwrap();
    region.store(WORD, word, Ordering::Release);
    run.publish(region.key()).unwrap();
    region
}

fn target(region: &str) -> Target<'_> {
    Target { region, shapes: &[(RegionKind::Raw, LEN)], guess: 0, access: Access::ReadOnly, items: 0..1 }
}

/// Reads one word of one region.
struct Word {
    link: LinkRef,
    read: Option<Result<u64, OpError>>,
    /// Number of copies that it still treats as torn.
    torn: u32,
}

impl Word {
    fn new(scanner: &mut Scanner, region: &str) -> Word {
        Word { link: scanner.link(&target(region)), read: None, torn: 0 }
    }
}

impl Reader for Word {
    fn link(&self, _item: usize) -> Option<LinkRef> {
        Some(self.link)
    }

    fn place(&mut self, _item: usize, _shape: usize) -> (usize, usize) {
        (WORD, 8)
    }

    fn take(&mut self, _item: usize, words: Result<&[u64], OpError>, _now: Time) -> ReadOutcome {
        self.read = Some(words.map(|words| words[0]));
        if self.torn > 0 {
            self.torn -= 1;
            return ReadOutcome::Torn;
        }
        ReadOutcome::Busy
    }
}

/// Over tcp, two readers read two regions of one target over one connection.
#[test]
fn readers_ride_together_and_their_links_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let relay = Relay::start();
    let host = TcpHost::listen(([127, 0, 0, 1], 0).into()).unwrap();
    relay.set_target(host.address());
    relay.overhear();
    let host = Host::Tcp(host.advertising(relay.address()));
    let _regions = [expose(&host, &run, "a", 1), expose(&host, &run, "b", 2)];

    let mut scanner = Scanner::new(run.clone(), Initiator::new(), (1, 0), PATIENCE);
    let (mut a, mut b) = (Word::new(&mut scanner, "a"), Word::new(&mut scanner, "b"));
    assert_eq!(Word::new(&mut scanner, "a").link, a.link, "a region has one link");
    scanner.scan(ms(1), &mut [&mut a, &mut b]);
    assert_eq!((a.read, b.read), (Some(Ok(1)), Some(Ok(2))));
    let [requests, _answers] = relay.overheard();
    let hellos = requests.windows(8).filter(|bytes| bytes == b"SIDELTCP").count();
    assert_eq!(hellos, 1, "one connection");
    assert_eq!(scanner.counts().reads, 1, "one node");

    // A copy that one reader treats as torn is read again in the same scan.
    (a.torn, b.torn) = (2, 1);
    scanner.scan(ms(2), &mut [&mut a, &mut b]);
    assert_eq!((a.torn, b.torn, scanner.counts().again), (0, 0, 3));

    // The connection is cut: both links go down, and come back when the network does.
    relay.pass(Passing::Cut);
    (a.read, b.read) = (None, None);
    let mut now = 10;
    while scanner.shape(a.link).is_some() || scanner.shape(b.link).is_some() {
        scanner.scan(ms(now), &mut [&mut a, &mut b]);
        now += 1;
        assert!(now < 100, "the links are not seen to be down");
    }
    assert_eq!((a.read, b.read), (Some(Err(OpError::PeerGone)), Some(Err(OpError::PeerGone))));
    assert!(scanner.problem(a.link).and_then(Problem::text).is_some());
    relay.pass(Passing::Everything);
    while (a.read, b.read) != (Some(Ok(1)), Some(Ok(2))) {
        scanner.scan(ms(now), &mut [&mut a, &mut b]);
        now += 1;
        assert!(now < 1_000, "the links do not come back");
    }
    assert!(scanner.problem(a.link).is_none());
}

/// A region in which there is room for items that nobody has yet.
#[test]
fn a_link_covers_more_items_or_fewer_as_they_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let host = Host::Shm(ShmHost::new(directory.path()));
    let _region = expose(&host, &run, "a", 1);
    let mut scanner = Scanner::new(run, Initiator::new(), (8, 0), PATIENCE);
    let mut a = Word::new(&mut scanner, "a");
    let mut now = 0;
    let mut read_of = |scanner: &mut Scanner, a: &mut Word| {
        let before = scanner.counts().reads;
        now += 1;
        scanner.scan(ms(now), &mut [a]);
        scanner.counts().reads - before
    };
    assert_eq!(read_of(&mut scanner, &mut a), 1);
    for items in [0..5, 2..8, 3..3, 0..1] {
        scanner.cover(a.link, items.clone());
        assert_eq!(read_of(&mut scanner, &mut a), items.len() as u64, "{items:?}");
    }
}

/// A working link leads to memory that its owner has abandoned. It is made again because its reader doubts it, or because
/// the scanner sees another file in its place.
#[test]
fn a_doubted_link_finds_the_new_region() {
    let directory = tempfile::tempdir().unwrap();
    let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let host = Host::Shm(ShmHost::new(directory.path()));
    let old = expose(&host, &run, "a", 1);
    let mut scanner = Scanner::new(run.clone(), Initiator::new(), (1, 0), PATIENCE);
    let mut word = Word::new(&mut scanner, "a");
    scanner.scan(ms(1), &mut [&mut word]);
    drop(old);
    std::fs::remove_file(directory.path().join("a.region")).unwrap();
    let _new = expose(&host, &run, "a", 2);
    // Too soon for the scanner to look by itself.
    scanner.scan(ms(20), &mut [&mut word]);
    assert_eq!(word.read, Some(Ok(1)));
    scanner.doubt(word.link);
    scanner.scan(ms(20), &mut [&mut word]);
    assert_eq!(word.read, Some(Ok(2)));
    scanner.trust(word.link, ms(20));

    std::fs::remove_file(directory.path().join("a.region")).unwrap();
    let _newest = expose(&host, &run, "a", 3);
    scanner.scan(ms(30), &mut [&mut word]);
    assert_eq!(word.read, Some(Ok(3)), "nobody doubted it");
}

/// A node has gone over to another machine, and what it left on the first one goes on.
#[test]
fn a_link_follows_its_region_to_where_it_is_asked_for_now() {
    let secret = Secret::new(b"known to all machines here").unwrap();
    let machine = |word: u64| {
        let endpoint = Endpoint::listen(([127, 0, 0, 1], 0).into(), secret.clone()).unwrap();
        let host = Host::Tcp(TcpHost::listen(([127, 0, 0, 1], 0).into()).unwrap());
        let region = host.expose(&spec("a"), |_| {}).unwrap();
        region.store(WORD, word, Ordering::Release);
        endpoint.publish(region.key());
        (endpoint, host, region)
    };
    let [first, second] = [machine(1), machine(2)];
    let at = |endpoint: &Endpoint| [("a".to_owned(), endpoint.address())];
    let directory = Arc::new(ControlDirectory::new(secret.clone(), at(&first.0)));
    let mut scanner = Scanner::new(directory.clone(), Initiator::new(), (1, 0), PATIENCE);
    let mut word = Word::new(&mut scanner, "a");
    let mut now = 0;
    let mut read = |scanner: &mut Scanner| {
        (word.read, now) = (None, now + 1);
        scanner.scan(ms(now), &mut [&mut word]);
        word.read
    };
    // A session opens in a thread of its own.
    while read(&mut scanner) != Some(Ok(1)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    directory.adopt(at(&first.0));
    assert_eq!(read(&mut scanner), Some(Ok(1)), "the same place");
    directory.adopt(at(&second.0));
    loop {
        match read(&mut scanner) {
            Some(Ok(2)) => break,
            Some(Ok(_)) => panic!("it reads what was left at the old place"),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A missing region is tried at growing intervals, without delaying the others.
#[test]
fn a_region_that_is_missing_is_found_when_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let run = Arc::new(RunDirectory::open(directory.path()).unwrap());
    let host = Host::Shm(ShmHost::new(directory.path()));
    let _there = expose(&host, &run, "there", 1);
    let mut scanner = Scanner::new(run.clone(), Initiator::new(), (1, 0), PATIENCE);
    let (mut missing, mut there) = (Word::new(&mut scanner, "missing"), Word::new(&mut scanner, "there"));
    scanner.scan(ms(1), &mut [&mut missing, &mut there]);
    assert_eq!((missing.read, there.read), (None, Some(Ok(1))));
    let problem = scanner.problem(missing.link).unwrap();
    assert!(problem.text().unwrap().contains("missing") && !problem.is_foreign());
    let read = scanner.execute(missing.link, |batch, id| batch.read(id, WORD, 8)).map(<[u64]>::to_vec);
    assert_eq!(read, Err(OpError::PeerGone));

    let _missing = expose(&host, &run, "missing", 2);
    scanner.scan(ms(5), &mut [&mut missing, &mut there]);
    assert_eq!(missing.read, None, "it is not its turn");
    scanner.scan(ms(11), &mut [&mut missing, &mut there]);
    assert_eq!(missing.read, Some(Ok(2)));
    let read = scanner.execute(missing.link, |batch, id| batch.read(id, WORD, 8)).map(<[u64]>::to_vec);
    assert_eq!(read, Ok(vec![2]));
}

/// Two processes of a machine say nothing. While one of them is waited for, scans do not wait for the other.
#[test]
fn a_machine_that_says_nothing_is_tried_by_one_link_at_a_time() {
    let secret = Secret::new(b"known to all machines here").unwrap();
    let endpoint = Endpoint::listen(([127, 0, 0, 1], 0).into(), secret.clone()).unwrap();
    let host = Host::Tcp(TcpHost::listen(([127, 0, 0, 1], 0).into()).unwrap());
    let region = host.expose(&spec("there"), |_| {}).unwrap();
    region.store(WORD, 7, Ordering::Release);
    endpoint.publish(region.key());
    // They take connections, and never greet.
    let silent = [0; 2].map(|_| TcpListener::bind("127.0.0.2:0").unwrap());
    let [first, second] = silent.each_ref().map(|listener| listener.local_addr().unwrap());
    let places = [("first", first), ("second", second), ("there", endpoint.address())];
    let places = places.map(|(name, address)| (name.to_owned(), address));
    let directory = Arc::new(ControlDirectory::new(secret, places));
    let (links, retry) = (Duration::from_millis(10), (Duration::from_nanos(1), Duration::from_nanos(1)));
    let patience = Patience { links, retry, ..PATIENCE };
    let mut scanner = Scanner::new(directory, Initiator::new(), (1, 0), patience);
    let mut words = ["first", "second", "there"].map(|region| Word::new(&mut scanner, region));
    let scan = |scanner: &mut Scanner, words: &mut [Word; 3], now_ns| {
        let [first, second, there] = words;
        scanner.scan(Time::from_ns(now_ns), &mut [first, second, there]);
    };
    let is_tried = |scanner: &Scanner, word: &Word| scanner.problem(word.link).is_some();
    scan(&mut scanner, &mut words, 1);
    assert!(is_tried(&scanner, &words[0]) && words[2].read.is_none(), "the first took the whole wait");
    scan(&mut scanner, &mut words, 2);
    assert!(is_tried(&scanner, &words[2]) || words[2].read.is_some(), "that of another machine is next");
    (3..100).for_each(|now_ns| scan(&mut scanner, &mut words, now_ns));
    assert!(!is_tried(&scanner, &words[1]));
    // A session opens in a thread of its own, and takes its time, which the clock of scans does not show.
    for now_s in 1.. {
        scan(&mut scanner, &mut words, now_s * 1_000_000_000);
        if is_tried(&scanner, &words[1]) && words[2].read == Some(Ok(7)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
