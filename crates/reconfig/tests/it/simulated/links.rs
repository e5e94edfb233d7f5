//! Links that break and are made anew; what a mover makes of words that it cannot read, or that are new.

use std::time::Duration;

use sidelong_fabric::sim::{Faults, Network};
use sidelong_fabric::{Access, Batch, Directory as _, Host, Initiator, RegionSpec};
use sidelong_layout::{
    Ack, EdgeId, Instance, NodeId, NodeState, Ownership, RegionKind, SiteId, Time, WORDS_BYTES,
    WORDS_OWNERSHIP,
};
use sidelong_reconfig::{Links, Mover, Protocol, board_region, words_region};

use crate::simulated::cluster::{
    Cluster, EDGES, LEASE, MAP, Machine, NODES, SITES, Truth, node_names, nodes, pool, sites, timing,
};
use crate::simulated::lots::Lots;
use crate::support::members;

const MILLI: Duration = Duration::from_millis(1);
const N0: NodeId = NodeId::new(0);

fn start(seed: u64) -> (Cluster, Links) {
    let cluster = Cluster::start(&Network::new(seed, Faults::default()), &Lots::new(seed, 0));
    let links =
        Links::new(cluster.keys.clone(), Initiator::new(), (NODES, MAP), &members(&node_names(), SITES));
    (cluster, links)
}

fn now(cluster: &Cluster) -> Time {
    Time(cluster.network.now().as_nanos() as u64)
}

/// One look, and some time until the next; says how long the look took.
fn look(cluster: &mut Cluster, links: &mut Links) -> Duration {
    let began = cluster.network.now();
    links.scan(now(cluster));
    let took = cluster.network.now() - began;
    cluster.network.advance(10 * MILLI);
    cluster.look_after_nodes(&Lots::new(0, 0));
    took
}

fn crash_now(cluster: &mut Cluster, node: NodeId) {
    cluster.crash(Machine::Node(node), cluster.network.now());
    cluster.network.advance(MILLI);
}

fn can_be_read(links: &Links) -> usize {
    nodes().filter(|node| links.ownership(*node).is_some()).count()
}

/// With seeds in which the network tells of the crash, and those in which it is silent.
#[test]
fn a_node_that_comes_back_is_reached_again() {
    for seed in 0..8 {
        let (mut cluster, mut links) = start(seed);
        look(&mut cluster, &mut links);
        let first = links.ownership(N0).expect("connected at the first look");
        assert!(links.ack(N0).is_some(), "seed {seed}");

        crash_now(&mut cluster, N0);
        let tried = cluster.keys.finds("n0.words");
        for _ in 0..500 {
            look(&mut cluster, &mut links);
            assert_eq!((links.ownership(N0), can_be_read(&links)), (None, NODES - 1), "seed {seed}");
        }
        let tried = cluster.keys.finds("n0.words") - tried;
        assert!(tried <= 16, "seed {seed}: 10 tries in the first second, one in each that follows: {tried}");

        cluster.restart(Machine::Node(N0));
        for _ in 0..150 {
            look(&mut cluster, &mut links);
        }
        let second = links.ownership(N0).expect("connected again");
        assert_eq!(second.site, first.site);
        assert!(second.generation > first.generation);
        // Its acknowledgements too: without them no site ever gives it away. The first try finds the old link dead.
        links.ack(N0);
        look(&mut cluster, &mut links);
        assert_eq!(links.ack(N0), Some(Ack { generation: second.generation }), "seed {seed}");
    }
}

#[test]
fn a_region_of_another_layout_is_refused() {
    let (mut cluster, mut links) = start(1);
    crash_now(&mut cluster, N0);
    let machine = cluster.network.host("another n0");
    let host = Host::Sim(machine.clone());
    let name = words_region("n0");
    let spec = RegionSpec {
        name: &name,
        kind: RegionKind::Words,
        len: WORDS_BYTES,
        access: Access::Atomic,
        instance: Instance::alone(1),
    };
    let contents = Ownership::serving(SiteId::new(0), 1).encode();
    let other_hash = |words: &mut [u64]| {
        words[2] ^= 1; // RegionHeader::layout_hash
        words[WORDS_OWNERSHIP / 8] = contents;
    };
    let region = host.expose(&spec, other_hash).unwrap();
    cluster.keys.publish(region.key()).unwrap();
    look(&mut cluster, &mut links);
    for _ in 0..100 {
        look(&mut cluster, &mut links);
        assert_eq!((links.ownership(N0), can_be_read(&links)), (None, NODES - 1));
    }
    assert!(cluster.keys.finds(&name) <= 12, "with pauses: {}", cluster.keys.finds(&name));

    // Its process is replaced by one of this build.
    drop(region);
    let region = host.expose(&spec, |words| words[WORDS_OWNERSHIP / 8] = contents).unwrap();
    cluster.keys.publish(region.key()).unwrap();
    for _ in 0..150 {
        look(&mut cluster, &mut links);
    }
    assert_eq!(links.ownership(N0).map(|own| own.state), Some(NodeState::Serving));
}

/// An edge that waited for each of them in one look would lose every lease that it holds.
#[test]
fn silent_nodes_do_not_hold_up_a_look() {
    let (mut cluster, mut links) = start(2);
    for node in nodes().skip(3) {
        crash_now(&mut cluster, node);
    }
    for _ in 0..100 {
        let took = look(&mut cluster, &mut links);
        assert!(took < 75 * MILLI, "one try to connect, and one scan at most: {took:?}");
    }
    assert_eq!(can_be_read(&links), 3);
}

/// Whether the network tells of its end or not: it is asked again ever more seldom.
#[test]
fn a_node_that_falls_silent_holds_up_few_looks() {
    for seed in 0..8 {
        let (mut cluster, mut links) = start(seed);
        look(&mut cluster, &mut links);
        crash_now(&mut cluster, N0);
        let held_up = (0..100).filter(|_| look(&mut cluster, &mut links) > 10 * MILLI).count();
        assert!((1..=15).contains(&held_up), "seed {seed}: {held_up} looks of 100");
        assert_eq!(can_be_read(&links), NODES - 1);
    }
}

/// A board that was lost comes back with what the sites were configured with, while nodes have moved since.
#[test]
fn a_new_board_promises_nothing_until_it_is_repaired() {
    let (mut cluster, mut links) = start(3);
    let mut mover = mover();
    while cluster.truth().unfinished().is_some() {
        look_and_mend(&mut cluster, &mut links, &mut mover);
    }
    let before = cluster.truth();
    cluster.crash(Machine::Board, cluster.network.now());
    cluster.network.advance(MILLI);
    cluster.restart(Machine::Board);
    for (lost, new) in before.budgets.iter().zip(cluster.truth().budgets) {
        assert_eq!((new.floor, new.current), (lost.floor, 0));
        assert!(new.generation > lost.generation, "what was meant for the lost one fails");
    }
    let deadline = cluster.network.now() + 15 * LEASE;
    while cluster.truth().unfinished().is_some() {
        assert!(cluster.network.now() < deadline, "{}", cluster.truth());
        look_and_mend(&mut cluster, &mut links, &mut mover);
    }
}

/// A reservation that leaked is given back, though at most looks some word cannot be read, and one node never.
#[test]
fn losses_do_not_hide_what_needs_repair() {
    for seed in 0..4 {
        let (mut cluster, mut links) = start(seed);
        let mut mover = mover();
        while cluster.truth().unfinished().is_some() {
            look_and_mend(&mut cluster, &mut links, &mut mover);
        }
        let site = sites().max_by_key(|site| cluster.truth().serving(*site)).unwrap();
        take_from_budget(&cluster, site);
        let dead = nodes().find(|node| cluster.truth().nodes[node.index()].site != Some(site)).unwrap();
        crash_now(&mut cluster, dead);
        let faults = Faults { loss_permille: 50, late_permille: 50, ..Faults::default() };
        cluster.network.set_faults(faults);
        let deadline = cluster.network.now() + 20 * LEASE;
        let is_exact = |truth: Truth| truth.budgets[site.index()].current == truth.serving(site);
        while !is_exact(cluster.truth()) {
            assert!(cluster.network.now() < deadline, "seed {seed}: {}", cluster.truth());
            look_and_mend(&mut cluster, &mut links, &mut mover);
        }
    }
}

/// As a mover leaves it that dies at the wrong moment.
fn take_from_budget(cluster: &Cluster, site: SiteId) {
    let key = cluster.keys.find(&board_region(0, 0), RegionKind::Board, MAP.len(), Access::Atomic).unwrap();
    let mut initiator = Initiator::new();
    let link = initiator.connect(&key, MILLI).unwrap();
    let budget = cluster.truth().budgets[site.index()];
    let taken = budget.with_current(budget.current - 1);
    let mut batch = Batch::new();
    batch.compare_and_swap(link, MAP.budget(site), budget.encode(), taken.encode());
    initiator.run(&mut batch, MILLI);
    assert_eq!(cluster.truth().budgets[site.index()], taken);
}

fn mover() -> Mover {
    Mover::new(EdgeId::new(0), 1, EDGES as u16, pool(), timing(), Protocol::Lease)
}

fn look_and_mend(cluster: &mut Cluster, links: &mut Links, mover: &mut Mover) {
    look(cluster, links);
    mover.look(links.last_scan(), now(cluster));
    mover.drive(links, || now(cluster), |_| ());
}
