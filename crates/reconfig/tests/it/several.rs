//! Several moves of one mover at a time.

use sidelong_layout::{EdgeId, NodeId, SiteId};
use sidelong_reconfig::{Mover, Protocol};
use sidelong_state::{Outcome, Pool, Time, Timing, Undrained};

use crate::support::idle::Idle;
use crate::support::plan::plan;

const NODES: usize = 4;
const SITES: usize = 3;
const DRAIN_NS_MAX: u64 = 40_000_000;

fn site(index: usize) -> SiteId {
    SiteId::new(index)
}

/// All nodes serve site 0. The first one has requests there that do not end; the others have none.
#[test]
fn a_move_that_waits_keeps_no_other_site_waiting() {
    let cluster = Idle::start(NODES, SITES);
    let _board = cluster.board();
    let mut links = cluster.links([]);
    links.scan(Time(0));
    let seen: Vec<_> = (0..NODES).map(|node| links.ownership(NodeId::new(node)).unwrap()).collect();

    let pool = Pool::new([0; SITES], [Some(site(0)); NODES]).with_silent((0..NODES).map(|node| node > 0));
    let timing = Timing::new(200_000_000, 20_000_000, DRAIN_NS_MAX, 1_000_000).unwrap();
    let mover = || Mover::new(EdgeId::new(0), 1, 1, pool.clone(), timing, Protocol::Lease);
    let to = |node, index| plan(NodeId::new(node), seen[node], site(index));

    let mut one = mover();
    assert!(one.takes(&to(0, 1)));
    one.begin(to(0, 1), Time(0));
    assert!(!one.takes(&to(1, 2)), "one at a time");

    let mut several = mover().several();
    several.begin(to(0, 1), Time(0));
    assert_eq!(several.drive(&mut links, || Time(1), |_| ()), None);
    let taken = [to(1, 1), to(0, 2), to(1, 2)].map(|plan| several.takes(&plan));
    assert_eq!(taken, [false, false, true], "its site and its node are at a move, and others are not");
    several.begin(to(1, 2), Time(1));
    let ended = several.drive(&mut links, || Time(2), |_| ()).unwrap();
    assert_eq!((ended.task.site(), ended.outcome), (site(2), Outcome::Moved));
    assert!(several.is_at(site(1)) && several.takes(&to(2, 2)), "the first still waits");

    // Meanwhile its lock is renewed, and nothing is taken for abandoned.
    let mut now = Time(2);
    let ended = loop {
        now = now.after_ns(1_000_000);
        links.scan(now);
        several.look(links.last_scan(), now);
        if let Some(ended) = several.drive(&mut links, || now, |_| ()) {
            break ended;
        }
        assert!(now.0 < 10 * DRAIN_NS_MAX, "it waits for no longer than it may");
    };
    assert_eq!((ended.task.site(), ended.outcome), (site(1), Outcome::NotDrained(Undrained::Node)));
    assert!(several.is_idle());
}
