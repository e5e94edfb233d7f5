//! A mover is killed with SIGKILL before each of its operations, in a process of its own over real shared memory; and so
//! is the one that repairs after it. The survivor must find the lock free within three leases, every site above its
//! floor at every moment, and no node lost or doubled.
//!
//! `cargo test -p sidelong-reconfig -- --ignored` goes on for a hundred rounds; SIDELONG_SEED=N replays one of them.

use std::time::{Duration, Instant};

use sidelong_layout::SiteId;
use sidelong_state::STEPS;

use crate::support::{Child, Cluster, LEASE, Task, child_main};

/// The steps of a mover if nothing goes wrong.
const MOVE_STEPS: &[&str] = &[
    "read-lock",
    "take-lock",
    "read-node",
    "read-donor-budget",
    "reserve",
    "drain",
    "read-epoch",
    "await-ack",
    "read-receiver-budget",
    "land",
    "raise-budget",
    "free-lock",
];

/// The steps of the repair after a mover that died while its node drained.
const REPAIR_STEPS: &[&str] = &[
    "steal-lock",
    "recover-read-budget",
    "recover-read-node",
    "recover-read-epoch",
    "recover-await-ack",
    "recover-node",
    "recover-budget",
    "free-lock",
];

/// The other process: does what its environment says, until it is killed.
#[test]
fn child() {
    child_main();
}

#[test]
fn the_steps_that_are_killed_at_exist() {
    for step in MOVE_STEPS.iter().chain(REPAIR_STEPS) {
        assert!(STEPS.contains(step), "{step}");
    }
}

#[test]
fn a_mover_killed_at_any_step_leaves_a_cluster_that_mends() {
    let mut cluster = Cluster::start();
    for step in MOVE_STEPS {
        kill_and_mend(&mut cluster, step, None);
    }
}

#[test]
fn a_repairer_killed_at_any_step_leaves_a_cluster_that_mends() {
    let mut cluster = Cluster::start();
    for step in REPAIR_STEPS {
        kill_and_mend(&mut cluster, "await-ack", Some(step));
    }
}

#[test]
#[ignore = "a hundred rounds take minutes; `cargo xtask ci kill` runs them"]
fn a_hundred_rounds() {
    let seed = std::env::var("SIDELONG_SEED").ok().and_then(|seed| seed.parse().ok());
    let rounds = match seed {
        Some(seed) => seed..seed + 1u64,
        None => 0..100u64,
    };
    let mut cluster = Cluster::start();
    for round in rounds {
        println!("round {round}; replay it with SIDELONG_SEED={round}");
        let random =
            |salt: u64| -> u64 { (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (salt << 32)) >> 33 };
        let step = MOVE_STEPS[random(1) as usize % MOVE_STEPS.len()];
        let repair = (random(2) % 2 == 0).then(|| REPAIR_STEPS[random(3) as usize % REPAIR_STEPS.len()]);
        // A repair worth killing needs a node that was left draining.
        let step = if repair.is_some() { "await-ack" } else { step };
        kill_and_mend(&mut cluster, step, repair);
    }
}

/// Longest turn of the survivor without a stall.
const TURN: Duration = Duration::from_millis(20);

/// A mover dies before `step`, then perhaps the repairing one before `repair_step`; then the survivor repairs.
fn kill_and_mend(cluster: &mut Cluster, step: &str, repair_step: Option<&str>) {
    let plan = cluster.some_plan();
    let reached = Child::start(cluster, Task::Move(plan), step).kill_at_step(cluster);
    assert!(reached, "a mover did not come to {step}");
    if let Some(step) = repair_step {
        // Not every repair passes every step: the lock may be free, or the node may have continued.
        Child::start(cluster, Task::Repair, step).kill_at_step(cluster);
    }

    let killed = Instant::now();
    let mut freed = None;
    // Time in which this thread was not run: the survivor, which it drives, saw nothing then.
    let (mut stalled, mut turn) = (Duration::ZERO, Instant::now());
    let deadline = killed + 40 * LEASE;
    while !cluster.is_whole() {
        cluster.mend();
        if freed.is_none() && cluster.lock_is_free(plan.to) {
            freed = Some(killed.elapsed().saturating_sub(stalled));
        }
        assert!(Instant::now() < deadline, "after {step} and {repair_step:?}: {}", cluster.describe());
        std::thread::sleep(Duration::from_millis(1));
        stalled += turn.elapsed().saturating_sub(TURN);
        turn = Instant::now();
    }
    let freed = freed.unwrap_or_default();
    assert!(freed <= 3 * LEASE, "after {step} and {repair_step:?} the lock was free after {freed:?}");
    for site in (0..crate::support::SITES).map(SiteId::new) {
        assert!(cluster.lock_is_free(site), "after {step} and {repair_step:?}: the lock of {site:?} is held");
    }
}
