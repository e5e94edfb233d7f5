use std::path::Path;

use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{Key, RunDirectory, shm::ShmHost};
use sidelong_layout::{Instance, Ownership};
use sidelong_policy::admission::{Client, Promise, Request, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::cluster::Traffic;
use sidelong_policy::health;
use sidelong_policy::index::Reading;

use super::*;

const SITE: SiteId = SiteId::new(0);
const FIRST: NodeId = NodeId::new(0);
const STALE: Duration = Duration::from_millis(150);
const MAP: ShareMap = ShareMap { slots: 2 };

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

/// An edge's thread, driven by hand. Its view has the time that the test sets.
struct Edge {
    thread: Thread,
    view: Arc<View>,
    gate: Arc<Gate>,
    finds: Arc<Finds>,
}

/// The directory, which counts searches.
struct Finds {
    run: RunDirectory,
    count: AtomicU64,
}

impl Directory for Finds {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        self.run.publish(key)
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.run.find(name, kind, len, access)
    }
}

impl Edge {
    fn new(run: &Path, host: Option<&Host>, name: &str, others: &[&str], life: u64) -> Self {
        let view = View::new(2, 1, STALE, Balance::LeastConnections, health::HealthSettings::default());
        view.observe(FIRST, Some(Ownership::serving(SITE, 1)), Reading::default());
        view.relist();
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(9))), share: 0.0 };
        let gate = Arc::new(Gate::new(&[promise], Duration::from_secs(30), STALE, 1));
        let run = RunDirectory::open(run).unwrap();
        let (view, finds) = (Arc::new(view), Arc::new(Finds { run, count: AtomicU64::new(0) }));
        let share = host.map(|host| expose_share(host, name, MAP, Instance::alone(life)).unwrap());
        share.iter().for_each(|share| finds.publish(share.key()).unwrap());
        let thread = Thread::new(Exchange {
            view: Arc::clone(&view),
            gate: Some(Arc::clone(&gate)),
            peers: Arc::new(Peers::new(others.iter().map(|name| (*name).to_owned()))),
            room: others.len(),
            share,
            directory: finds.clone(),
            initiator: Initiator::new(),
            period: Duration::from_millis(1),
        });
        Edge { thread, view, gate, finds }
    }

    fn sends(&self, count: u32, now: Time) {
        for _ in 0..count {
            assert_eq!(self.view.choose(SITE, None, now), Some(FIRST));
            self.view.waits(FIRST);
        }
    }

    fn traffic(&self, now: Time) -> Traffic {
        self.view.traffic(FIRST, now)
    }

    /// How many of a hundred clients are admitted, with a view that is stale or not.
    fn lets_in(&self, now: Time, view_is_old: bool) -> usize {
        let client = |k: u8| Client::new(([10, 0, 0, k], 5000).into());
        (0..100)
            .filter(|k| self.gate.decide(0, SITE, client(*k), Request::default(), now, view_is_old).is_ok())
            .count()
    }
}

fn tcp() -> Host {
    Host::Tcp(TcpHost::listen(([127, 0, 0, 1], 0).into()).unwrap())
}

fn looks<'a>(edges: impl IntoIterator<Item = &'a mut Edge>, now: Time) {
    edges.into_iter().for_each(|edge| edge.thread.scan(now));
}

/// Over shared memory and over tcp: each edge has the sum, for as long as it is shared.
#[test]
fn edges_hear_what_the_others_have_under_way_until_they_are_silent() {
    for over_tcp in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let host = || if over_tcp { tcp() } else { Host::Shm(ShmHost::new(directory.path())) };
        let hosts = [host(), host(), host()];
        let names = ["a", "b", "c"];
        let mut edges: Vec<_> = (0..3)
            .map(|k| {
                let others: Vec<_> = names.into_iter().filter(|name| *name != names[k]).collect();
                Edge::new(directory.path(), Some(&hosts[k]), names[k], &others, 1)
            })
            .collect();
        let mut now = 1_000;
        edges[0].sends(3, ms(now));
        edges[1].sends(4, ms(now));
        // The links, one scan for each of two; then the first copies, and their first changes.
        for _ in 0..30 {
            now += 1;
            looks(&mut edges, ms(now));
        }
        for edge in &edges {
            assert_eq!(edge.traffic(ms(now)), Traffic { in_flight: 7, answers: 0, up: true });
        }
        (0..2).for_each(|_| edges[1].view.waited(FIRST));
        edges[1].view.answered(FIRST, ms(1), Duration::from_millis(1));
        (0..2).for_each(|_| looks(&mut edges, ms(now + 1)));
        for edge in &edges {
            assert_eq!(edge.traffic(ms(now)), Traffic { in_flight: 5, answers: 1, up: true });
        }

        // The second dies. Its region stays, or its host answers no more.
        let dead = edges.remove(1);
        let dead = if over_tcp { None } else { Some(dead) };
        let mut remembered = 0;
        for later in 1..400 {
            looks(&mut edges, ms(now + later));
            let sum = edges[1].traffic(ms(now + later)).in_flight;
            assert!([3, 5].contains(&sum), "{sum}");
            remembered += u64::from(sum == 5);
        }
        assert!((100..=152).contains(&remembered), "known until they are old: {remembered}");
        assert_eq!(edges[1].traffic(ms(now + 400)), Traffic { in_flight: 3, answers: 1, up: true });

        // It comes back, and counts from 0.
        drop(dead);
        let host = host();
        edges.push(Edge::new(directory.path(), Some(&host), "b", &["a", "c"], 2));
        now += 400;
        edges[2].sends(1, ms(now));
        let mut waits = 0;
        while edges.iter().any(|edge| edge.traffic(ms(now)).in_flight != 4) {
            now += 1;
            looks(&mut edges, ms(now));
            waits += 1;
            assert!(waits < 2_000, "never heard again");
        }
        assert_eq!(edges[1].traffic(ms(now)).answers, 1, "none that was there before");
    }
}

#[test]
fn who_is_blind_goes_by_the_verdict_of_another_and_never_by_its_own_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = || Host::Shm(ShmHost::new(directory.path()));
    let hosts = [host(), host()];
    let mut seeing = Edge::new(directory.path(), Some(&hosts[0]), "a", &["b"], 1);
    let mut blind = Edge::new(directory.path(), Some(&hosts[1]), "b", &["a"], 1);
    let nobody = Verdict::decode(Why::OverTarget as u64);
    assert_eq!((nobody.why(), nobody.admitted()), (Why::OverTarget, 0.0));
    let outlook = sidelong_policy::admission::Outlook { verdict: nobody, ..Default::default() };
    seeing.gate.show(&[outlook]);
    let mut now = 1_000;
    for _ in 0..9 {
        now += 1;
        seeing.view.refreshed(ms(now));
        looks([&mut seeing, &mut blind], ms(now));
    }
    assert_eq!(blind.lets_in(ms(now), true), 0);
    assert!(blind.gate.is_lent(SITE, ms(now), true) && !blind.gate.is_lent(SITE, ms(now), false));
    assert_eq!(blind.lets_in(ms(now), false), 100, "what it knows itself comes first");
    let others = |edge: &Edge| -> Vec<Option<f64>> {
        edge.view.sites().map(|site| edge.gate.seen(site, ms(now)).others).collect()
    };
    assert!(others(&blind).iter().all(|pressure| pressure.is_some_and(|pressure| pressure > 6.0)));
    assert!(others(&seeing).iter().all(|pressure| pressure.is_none()), "it told nothing of itself");

    // The edge that could see loses its view too, and shares that. Then no edge knows, and a lent verdict does not
    // circulate.
    for _ in 0..STALE.as_millis() + 9 {
        now += 1;
        looks([&mut seeing, &mut blind], ms(now));
    }
    for edge in [&seeing, &blind] {
        assert_eq!(edge.lets_in(ms(now), true), 100);
        assert!(edge.gate.admitted(SITE).any(|counted| counted == ("old-view", 100)));
    }
    // An edge whose thread hangs uses nothing that it heard.
    for _ in 0..9 {
        now += 1;
        seeing.view.refreshed(ms(now));
        looks([&mut seeing, &mut blind], ms(now));
    }
    assert_eq!((blind.lets_in(ms(now), true), blind.lets_in(ms(now + 200), true)), (0, 100));
}

#[test]
fn an_edge_that_cannot_be_heard_is_asked_ever_more_seldom_and_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let mut edge = Edge::new(directory.path(), None, "a", &["b", "c"], 1);
    let mut tries = 0;
    for now in 1..10_000 {
        let before = edge.finds.count.load(Ordering::Relaxed);
        edge.thread.scan(ms(now));
        let tried = edge.finds.count.load(Ordering::Relaxed) - before;
        assert!(tried <= 1, "one at each scan");
        tries += tried;
    }
    assert!((20..=40).contains(&tries), "10, 20, 40... ms, then each second: {tries}");
    assert_eq!(edge.traffic(ms(9_999)), Traffic { in_flight: 0, answers: 0, up: true });
    assert!(edge.thread.peers.heard().iter().all(|(_, heard_at, _)| heard_at.is_none()));
}

#[test]
fn a_share_counts_once_its_beat_has_risen_and_answers_only_while_it_is_heard() {
    let mut heard = PeerState::new(MAP);
    let mut more = vec![0; 2];
    let mut see = |heard: &mut PeerState, life: u64, beat: u64, answers: u64, now: u64| {
        let mut words = vec![0; (MAP.len() - ShareMap::INCARNATION) / 8];
        words[0] = life;
        words[(ShareMap::BEAT - ShareMap::INCARNATION) / 8] = beat;
        words[(MAP.node(FIRST) - ShareMap::INCARNATION) / 8] = NodeShare { in_flight: 2, answers }.encode();
        more.fill(0);
        heard.see(&words, MAP, (STALE, ms(now)), &mut more);
        (heard.is_fresh(ms(now), STALE), more[0])
    };
    assert_eq!(see(&mut heard, 1, 7, 100, 1), (false, 0), "it may be of one that is dead");
    assert_eq!(see(&mut heard, 1, 7, 100, 2), (false, 0));
    assert_eq!(see(&mut heard, 1, 8, 105, 3), (true, 0), "since when nobody knows");
    assert_eq!(see(&mut heard, 1, 9, 109, 4), (true, 4));
    assert_eq!(see(&mut heard, 1, 9, 109, 155), (false, 0), "it stands still");
    assert_eq!(see(&mut heard, 1, 10, 500, 156), (true, 0), "not all in this moment");
    assert_eq!(see(&mut heard, 2, 11, 0, 157), (false, 0), "another life");
    assert_eq!(see(&mut heard, 2, 12, 3, 158), (true, 0));
    assert_eq!(see(&mut heard, 2, 13, 4, 159), (true, 1));
}
