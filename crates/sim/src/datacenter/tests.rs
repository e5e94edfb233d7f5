//! Whole runs of the model.

use std::ops::RangeInclusive;
use std::path::Path;

use super::*;
use crate::config::Config;

/// A run of a file with these settings.
pub(super) fn setup(text: &str, sets: &[&str]) -> Setup {
    let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
    let text = format!("{text}\n[run]\nmodel = \"reconfig\"\n");
    let config = Config::parse(&text, "test.toml", Path::new(""), &sets).unwrap();
    Setup::of(&config.points()[0]).unwrap()
}

fn outcome(sets: &[&str]) -> Outcome {
    run(&setup("", sets)).unwrap()
}

/// The lab's R10.
const R10: [&str; 2] = ["nodes=8", "asked=6144"];

#[test]
fn the_rigid_one_serves_what_its_nodes_can() {
    // 3:3:2 nodes of 400 requests/s in turn: 18/7 of them.
    let rigid = outcome(&[&R10[..], &["configuration=rigid", "burst=1024"]].concat());
    assert!((rigid.requests_per_s / 1029.0 - 1.0).abs() < 0.05, "{rigid:?}");
    assert_eq!((rigid.moves, rigid.errors, rigid.requests, rigid.steps), (0, 0, 6_144, 6));
    assert!(rigid.steps_unbalanced >= 5);
}

/// Requests that arrived at a node of ordinary speed, and at one with four times the service time.
fn came_beside_a_slow_node(balance: &str) -> (f64, f64) {
    let balance = format!("balance={balance}");
    let sets =
        ["nodes=8", "sites=1", "configuration=rigid", "slow_part=0.125", "slow_factor=4", "demand=open"];
    let setup = setup("", &[&sets[..], &["offered=0.5", "open_ms=2000", &balance]].concat());
    let mut center = DataCenter::new(&setup).unwrap();
    center.load().unwrap();
    let came = |slow: bool| {
        let of = center.nodes.iter().zip(&setup.nodes).filter(|(_, (_, factor))| (*factor > 1.0) == slow);
        let came: Vec<_> = of.map(|(node, _)| node.came()).collect();
        came.iter().sum::<u64>() as f64 / came.len() as f64
    };
    (came(false), came(true))
}

#[test]
fn by_the_answers_seen_a_slow_node_gets_fewer_requests() {
    let (others, slow) = came_beside_a_slow_node("ewma");
    assert!(slow < 0.7 * others && slow > 0.0, "{slow} of {others}");
    let (others, slow) = came_beside_a_slow_node("round-robin");
    assert!(slow > 0.8 * others, "{slow} of {others}");
}

#[test]
fn reconfiguration_comes_close_to_over_provisioning() {
    let run = |configuration: &str| {
        let configuration = format!("configuration={configuration}");
        outcome(&[&R10[..], &["burst=2048", &configuration]].concat())
    };
    let (moved, over) = (run("reconfigured"), run("over-provisioned"));
    assert!((over.requests_per_s / 2400.0 - 1.0).abs() < 0.05, "{over:?}");
    assert!(moved.requests_per_s > 0.93 * over.requests_per_s, "{moved:?}");
    // Up to six nodes from three or two, and back, for three sites in turn.
    assert!((8..=14).contains(&moved.moves), "{moved:?}");
    let whole =
        (moved.floor_violations, moved.nodes_lost, moved.nodes_doubled, moved.locks_stuck, moved.thrash);
    assert_eq!(whole, (0, 0, 0, 0, 0), "{moved:?}");
    assert!(moved.step_to_first_request_ms > 1.0 && moved.step_to_first_request_ms < 50.0, "{moved:?}");
    assert!(moved.time_to_balance_ms < 100.0 && moved.steps_unbalanced == 0, "{moved:?}");
}

/// They do not coordinate: they see from each other's words what is already done.
#[test]
fn many_balancers_seldom_want_the_same() {
    for seed in 1..=2 {
        let sets =
            ["nodes=256", "sites=32", "floor=2", "busy_one_in=4", "demand=steps", "steps=2", "step_ms=300"];
        let found = outcome(&[&sets[..], &["balancers=8", &format!("seed={seed}")]].concat());
        assert!(found.moves > 100 && found.floor_violations == 0, "{found:?}");
        assert!(found.not_moved < found.moves / 3, "{found:?}");
    }
}

/// Steps in quick succession, with balancers that die at each of them.
const CRASHES: [&str; 9] = [
    "nodes=32",
    "sites=8",
    "floor=2",
    "demand=steps",
    "steps=6",
    "step_ms=300",
    "balancers=4",
    "crash_ms=100",
    "thrash_ms=50",
];

#[test]
fn no_floor_breaks_and_no_node_is_lost_while_balancers_die() {
    for seed in 1..=6 {
        let found = outcome(&[&CRASHES[..], &[&format!("seed={seed}")]].concat());
        assert!(found.crashes > 10 && found.moves > 30 && found.repairs > 0, "{found:?}");
        let whole = (found.floor_violations, found.nodes_lost, found.nodes_doubled, found.locks_stuck);
        assert_eq!(whole, (0, 0, 0, 0), "seed {seed}: {found:?}");
        assert!(found.errors > 0 && found.errors < found.requests / 5, "{found:?}");
    }
}

const FAULTY: [&str; 2] = ["loss_permille=5", "late_permille=5"];

#[test]
fn lost_and_late_operations_break_no_floor_either() {
    for seed in 1..=4 {
        let found = outcome(&[&CRASHES[..], &FAULTY, &[&format!("seed={seed}")]].concat());
        assert!(found.moves > 10, "{found:?}");
        let whole = (found.floor_violations, found.nodes_lost, found.nodes_doubled);
        assert_eq!(whole, (0, 0, 0), "seed {seed}: {found:?}");
    }
}

/// Each node leaves after 300 ms in the mean, and joins again soon.
const TURNS: [&str; 2] = ["leave_ms=300", "join_ms=30"];

fn leave_and_join(seeds: RangeInclusive<u32>) {
    for seed in seeds {
        // Every other one has operations that are lost or late, too.
        let (faulty, moves_min) = if seed % 2 == 0 { (&FAULTY[..], 10) } else { (&[][..], 30) };
        let found = outcome(&[&CRASHES[..], &TURNS, faulty, &[&format!("seed={seed}")]].concat());
        assert!(found.leaves > 10 && found.joins == found.leaves, "seed {seed}: {found:?}");
        assert!(found.crashes > 10 && found.moves > moves_min && found.strays == 0, "seed {seed}: {found:?}");
        let whole = (found.floor_violations, found.nodes_lost, found.nodes_doubled, found.locks_stuck);
        assert_eq!(whole, (0, 0, 0, 0), "seed {seed}: {found:?}");
    }
}

#[test]
fn nodes_leave_and_join_while_balancers_and_persons_die() {
    leave_and_join(1..=20);
}

#[test]
#[ignore = "200 seeds: cargo xtask ci chaos-long"]
fn nodes_leave_and_join_in_many_more_runs() {
    leave_and_join(21..=200);
}

/// The control: the faults that the measures detect.
#[test]
fn the_papers_protocol_keeps_a_dead_holders_lock() {
    let run =
        |seed: u64| outcome(&[&CRASHES[..], &["reconfig_protocol=paper", &format!("seed={seed}")]].concat());
    let found: Vec<_> = (1..=6).map(run).collect();
    assert!(found.iter().all(|of| of.moves > 0 && of.crashes > 0), "{found:?}");
    assert!(found.iter().any(|of| of.locks_stuck > 0 && of.steps_unbalanced > 0), "{found:?}");
    assert!(found.iter().all(|of| of.nodes_lost == 0));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = outcome(&CRASHES);
    assert_eq!(once, outcome(&CRASHES));
    assert_ne!(once, outcome(&[&CRASHES[..], &["seed=2"]].concat()));
}

#[test]
fn priorities_go_before() {
    // Site 0 of three is busy at the first step; sites 1 (higher priority) and 2 are not.
    let sets = ["nodes=9", "sites=3", "priority_levels=2", "demand=steps", "steps=3", "busy_one_in=3"];
    let found = outcome(&sets);
    assert!(found.moves >= 6 && found.floor_violations == 0, "{found:?}");
}

#[test]
fn unlike_nodes_are_told_apart() {
    let even = outcome(&[&R10[..], &["configuration=rigid"]].concat());
    let slow = outcome(&[&R10[..], &["configuration=rigid", "slow_part=0.5", "slow_factor=3"]].concat());
    assert!(slow.requests_per_s < 0.8 * even.requests_per_s, "{slow:?}");
    // Weighted by capacity, the fast nodes get more.
    let blind = outcome(
        &[&R10[..], &["configuration=rigid", "slow_part=0.5", "slow_factor=3", "balance=round-robin"]]
            .concat(),
    );
    assert!(slow.requests_per_s > 1.1 * blind.requests_per_s, "{slow:?} {blind:?}");
}

/// Three sites, the second of which has a higher priority and a load below its capacity.
const OVERLOAD: [&str; 6] = [
    "nodes=12",
    "configuration=rigid",
    "demand=open",
    "priority_levels=2",
    "offered_high=0.6",
    "queue_ms_max=25",
];

#[test]
fn who_is_let_in_is_served_in_time_at_any_load() {
    let run = |offered: &str, rule: &str| {
        outcome(&[&OVERLOAD[..], &[&format!("offered={offered}"), &format!("admission={rule}")]].concat())
    };
    // The other sites' load is two thirds of the pool, all of which must be served.
    let most = (2.0 + 0.6) / 3.0;
    for offered in ["1.5", "4", "10"] {
        let ours = run(offered, "target");
        assert!(ours.goodput > 0.95 * most, "{offered}: {ours:?}");
        assert!(ours.queue_ms_p99 <= 25.0 && ours.rejected_high == 0, "{offered}: {ours:?}");
        assert!(ours.fairness > 0.95, "{offered}: {ours:?}");
        let none = run(offered, "none");
        assert!(none.goodput < 0.5 * ours.goodput && none.queue_ms_p99 > 500.0, "{offered}: {none:?}");
        assert_eq!(none.rejected, 0);
        let paper = run(offered, "paper");
        assert!(paper.rejected > 0 && paper.queue_ms_p99 < none.queue_ms_p99, "{offered}: {paper:?}");
    }
    let calm = run("0.7", "target");
    assert!(calm.rejected * 100 < calm.requests && calm.goodput > 0.6, "{calm:?}");
}

#[test]
fn nodes_come_to_whom_they_are_wanted_by_while_others_are_rejected() {
    let sets = ["nodes=12", "demand=open", "priority_levels=2", "offered=0.5", "offered_high=1.6", "low=0.9"];
    let moves = |rule: &str| outcome(&[&sets[..], &[&format!("admission={rule}")]].concat());
    let (ours, none) = (moves("target"), moves("none"));
    assert!(ours.moves > 0 && ours.floor_violations == 0, "{ours:?}");
    assert!(ours.rejected < ours.requests / 10, "{ours:?}");
    assert!(ours.goodput > 0.95 * none.goodput, "{ours:?} {none:?}");
}

/// After a second, more requests arrive for the last site than its nodes can serve.
const SURGE: [&str; 4] = ["demand=open", "admission=target", "queue_ms_max=25", "open_ms=3000"];

/// What moves depend on, or that there are none.
const WAYS: [&str; 3] = ["moves_by=target", "moves_by=load", "configuration=rigid"];

/// One outcome for each of [`WAYS`].
fn surge(seed: u64, sets: &[&str]) -> [Outcome; 3] {
    WAYS.map(|way| outcome(&[&SURGE[..], sets, &[way, &format!("seed={seed}")]].concat()))
}

#[test]
fn a_surge_is_rejected_only_until_a_node_comes() {
    // Four nodes get the load of 5.6. The other site is an idle equal, an equal with some to spare, or a lower one with
    // none.
    let idle = ["nodes=8", "sites=2", "surge=1.4", "offered=0.1"];
    let spare = ["nodes=12", "sites=2", "surge=1.2", "offered=0.4", "low=0.3"];
    let lower = ["nodes=8", "sites=2", "surge=1.4", "offered=0.9", "offered_high=0.5", "priority_levels=2"];
    for (seed, sets) in (1..=2).flat_map(|seed| [(seed, &idle[..]), (seed, &spare[..]), (seed, &lower[..])]) {
        let [ours, by_load, rigid] = surge(seed, sets);
        let found = format!("{sets:?}, seed {seed}: {ours:#?}");
        let of_last = |of: &Outcome| if sets == lower { of.rejected_high } else { of.rejected };
        assert!(of_last(&ours) * 20 < of_last(&rigid), "{found}");
        // No request is rejected 50 scans after the last needed node joined, and 200 after the surge.
        assert!(ours.surge_to_node_ms > 0.0, "{found}");
        assert!(ours.rejected_until_ms < 200.0_f64.min(ours.surge_to_node_ms + 50.0), "{found}");
        assert!((1..=6).contains(&ours.moves) && ours.thrash == 0 && ours.floor_violations == 0, "{found}");
        // By load alone, nodes come as soon, but are traded continually if both sites have work.
        assert!(sets == idle || by_load.moves > 2 * ours.moves, "{found} {by_load:#?}");
    }
}

#[test]
fn equals_with_targets_leave_each_other_what_they_need() {
    let equals = ["nodes=12", "sites=3", "service=exponential"];
    for offered in ["offered=0.4", "offered=0.7", "offered=0.85", "offered=1.5"] {
        let [ours, by_load, rigid] = surge(1, &[&equals[..], &[offered]].concat());
        assert!(ours.moves <= 2, "{offered}: {ours:?}");
        assert!(ours.rejected <= rigid.rejected + 5, "{offered}: {ours:?} {rigid:?}");
        assert!(offered == "offered=1.5" || by_load.moves > 10, "{offered}: {by_load:?}");
    }
    // The other site needs 3.4 of its four nodes, and keeps them.
    let busy = ["nodes=8", "sites=2", "offered=0.85", "surge=1.5"];
    let [ours, by_load, _] = surge(1, &busy);
    assert!(ours.moves == 0 && by_load.moves > 4, "{ours:?} {by_load:?}");
}

/// Site 0 is idle on three slow nodes, site 1 has two fast ones, which it is guaranteed, and site 2 has the load of 2.8
/// fast nodes. With a slow node, a quarter of a fast one, it would reject a fifth.
#[test]
fn a_quick_node_comes_in_two_stages_where_only_slow_ones_are_to_be_had() {
    let unlike = ["nodes=7", "sites=3", "floor=2", "slow_sites=1", "slow_factor=4"];
    for seed in 1..=2 {
        let [ours, by_load, rigid] = surge(seed, &[&unlike[..], &["offered=0.1", "surge=1.4"]].concat());
        for moved in [ours, by_load] {
            assert!(moved.staged == 1 && moved.moves == 2 && moved.floor_violations == 0, "{moved:#?}");
            assert!(moved.rejected * 10 < rigid.rejected, "{moved:#?} {rigid:#?}");
        }
        // If the fast nodes have work that a slow one cannot take over, the slow one comes.
        let [ours, ..] = surge(seed, &[&unlike[..], &["offered=0.6", "surge=1.4"]].concat());
        assert!(ours.staged == 0, "{ours:#?}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
        let config = Config::parse("[run]\nmodel = \"reconfig\"", "a.toml", Path::new(""), &sets).unwrap();
        Setup::of(&config.points()[0]).unwrap_err().to_string()
    };
    assert!(refused(&["nodes=8", "sites=3", "floor=3"]).contains("guaranteed more than the 8 nodes"));
    assert!(refused(&["share=0.5", "admission=target"]).contains("3 sites are promised more than the pool"));
    assert!(refused(&["low=2"]).starts_with("low = 2: "));
    assert!(refused(&["op_us_min=5"]).contains("above op_us_max"));
    assert!(
        refused(&["nodes=10000", "configuration=over-provisioned"]).contains("at most 16383 are possible")
    );
}
