//! How often a mover tries what cannot succeed.

use sidelong_fabric::Region;
use sidelong_layout::{EdgeId, Instance, NodeId, Ownership, SiteId};
use sidelong_reconfig::{FrontMember, Links, Mover, Protocol, expose_front};
use sidelong_state::{Outcome, Pool, Time, Timing, Undrained};

use crate::support::idle::Idle;
use crate::support::plan::plan;

const NODES: usize = 3;
const SITES: usize = 2;
const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 50;
const DRAIN_MS_MAX: u64 = 500;
/// The longest wait between two tries.
const WAIT_MS_MAX: u64 = 64 * LEASE_MS;
const SECOND_MS: u64 = 1_000;
/// The longest pause between two tries to link to a region.
const LINK_MS_MAX: u64 = 1_000;

/// An edge that always wants to move a node from the first site to the second.
struct Edge {
    links: Links,
    mover: Mover,
    now: Time,
}

/// What an edge has done in a while.
#[derive(Default)]
struct Done {
    ended: Vec<(Outcome, Time)>,
    /// For how many milliseconds a node drained.
    draining_ms: u64,
}

impl Edge {
    fn new(links: Links, pool: Pool) -> Self {
        let timing = Timing::new(LEASE_MS * MS, LEASE_MS * MS / 10, DRAIN_MS_MAX * MS, MS).unwrap();
        let mover = Mover::new(EdgeId::new(0), 1, 1, pool, timing, Protocol::Lease);
        Edge { links: links.of_front(EdgeId::new(0), None, None), mover, now: Time(0) }
    }

    /// Scans each millisecond for as long as `goes_on` says so.
    fn run(&mut self, mut goes_on: impl FnMut(&Done, Time) -> bool) -> Done {
        let mut done = Done::default();
        while goes_on(&done, self.now) {
            self.now = self.now.after_ns(MS);
            self.links.scan(self.now);
            self.mover.look(self.links.last_scan(), self.now);
            let own = |node| Some((node, self.links.ownership(node)?));
            let seen: Vec<_> = (0..NODES).map(NodeId::new).filter_map(own).collect();
            seen.iter().for_each(|(node, own)| self.links.state(*node, *own, 0));
            done.draining_ms += u64::from(seen.iter().any(|(_, own)| own.serving_site().is_none()));
            let mut seen = seen.into_iter();
            let donor = |own: &Ownership| own.serves(SiteId::new(0));
            if let Some((node, own)) =
                seen.find(|(_, own)| donor(own)).filter(|_| self.mover.may_begin(self.now))
            {
                self.mover.begin(plan(node, own, SiteId::new(1)), self.now);
            }
            let now = self.now;
            while let Some(ended) = self.mover.drive(&mut self.links, || now, |_| ()) {
                done.ended.push((ended.outcome, now));
            }
        }
        done
    }

    fn run_for(&mut self, ms: u64) -> Done {
        let end = self.now.after_ns(ms * MS);
        self.run(|_, now| now < end)
    }

    /// Goes on until a node has moved, and says for how many milliseconds.
    fn run_until_moved(&mut self) -> u64 {
        let begun = self.now;
        let moved = |done: &Done| done.ended.last().is_some_and(|(outcome, _)| *outcome == Outcome::Moved);
        let end = begun.after_ns(60 * SECOND_MS * MS);
        let done = self.run(|done, now| !moved(done) && now < end);
        assert!(moved(&done), "{:?}", done.ended);
        self.now.since(begun).as_millis() as u64
    }
}

fn pool() -> Pool {
    Pool::new([0; SITES], [Some(SiteId::new(0)); NODES]).with_silent([true; NODES])
}

#[test]
fn a_front_that_says_nothing_keeps_few_nodes_draining() {
    let cluster = Idle::start(NODES, SITES);
    let _board = cluster.board();
    // It runs, and never states what it has seen.
    let front = expose_front(&cluster.host, "edge2", NODES, Instance::alone(1)).unwrap();
    let fronts = ["edge1", "edge2"].map(|name| FrontMember { name: name.to_owned(), is_led: false });
    let mut edge = Edge::new(cluster.links(fronts), pool().with_fronts([0, 1].map(EdgeId::new)));

    let first = edge.run_for(2 * DRAIN_MS_MAX + LEASE_MS);
    let unseen = Outcome::NotDrained(Undrained::Unseen(EdgeId::new(1)));
    assert!(first.ended.len() >= 2, "the second try follows at once: {:?}", first.ended);
    let minute = edge.run_for(60 * SECOND_MS);
    assert!(minute.ended.iter().all(|(outcome, _)| *outcome == unseen), "{:?}", minute.ended);
    let tries = minute.ended.len() as u64;
    assert!((60 * SECOND_MS / (WAIT_MS_MAX + 2 * DRAIN_MS_MAX)..=30).contains(&tries), "{tries} tries");
    assert!(minute.draining_ms < 15 * SECOND_MS, "{} ms of a minute", minute.draining_ms);

    drop(front);
    let waited = edge.run_until_moved();
    assert!(waited <= WAIT_MS_MAX + DRAIN_MS_MAX, "{waited} ms");
    assert!(edge.run_until_moved() <= LEASE_MS, "what was is forgotten");
}

#[test]
fn without_a_board_nothing_is_tried_and_nothing_waits_once_it_is_there() {
    let cluster = Idle::start(NODES, SITES);
    let mut edge = Edge::new(cluster.links([]), pool());
    let minute = edge.run_for(60 * SECOND_MS);
    assert_eq!((minute.ended.len(), minute.draining_ms), (0, 0), "{:?}", minute.ended);

    let _board = cluster.board();
    let waited = edge.run_until_moved();
    assert!(waited <= LINK_MS_MAX + LEASE_MS, "{waited} ms");
}

/// Its lock, and what is on its way under that, are of no use to the new one.
#[test]
fn a_board_that_begins_elsewhere_settles_what_was_under_way() {
    let cluster = Idle::start(NODES, SITES);
    let old = cluster.board();
    let front = expose_front(&cluster.host, "edge2", NODES, Instance::alone(1)).unwrap();
    let fronts = || ["edge1", "edge2"].map(|name| FrontMember { name: name.to_owned(), is_led: false });
    let pool = pool().with_fronts([0, 1].map(EdgeId::new));
    let mut edge = Edge::new(cluster.links(fronts()), pool.clone());
    edge.run_for(10);
    assert!(!edge.mover.is_idle(), "the other front keeps a node draining");
    let words = |board: &Region| (0..board.key().len).step_by(8).map(|at| board.load(at)).collect::<Vec<_>>();
    let left = words(&old);

    let _new = cluster.board_of(1);
    edge.links.adopt(&cluster.members(fronts(), 1));
    edge.mover.change_boards();
    assert!(edge.mover.is_idle());
    drop(front);
    edge.run_until_moved();
    edge.run_for(4 * LEASE_MS);
    let scan = edge.links.last_scan();
    let serving = scan.ownerships.iter().filter(|own| own.is_some_and(|own| own.serves(SiteId::new(0))));
    let serving = serving.count();
    let budget = scan.sites[0].map(|site| usize::from(site.budget.current));
    assert_eq!(budget, Some(serving), "it counts what serves");
    assert_eq!(words(&old), left, "nobody has changed the old one");
}
