//! Whole clusters over fabric's simulated network: eight nodes, a board, and three edges that move nodes while edges and
//! machines crash, fall asleep and come back, and operations are lost or come late. One history a seed, every word
//! checked after every operation (`check`).
//!
//! An edge is a thread with its own links and mover, the very code of an edge's watch, and goes one operation at a time
//! when the scheduler lets it (`edge`, `run`). The operations of edges are atomic towards each other: a blocking run over
//! the simulated network lets virtual time pass until its own end. So what is interleaved is operations, and what an
//! edge has decided or heard before it slept; that one takes effect while another is under way comes from those that
//! are late: some microseconds after their end was reported, or longer than any lock can stand.
//!
//! Machines lose their memory when they crash. A node that is dead counts for the site that it served, as no protocol
//! keeps a floor against deaths, and comes back there. (Coming back elsewhere is a move without a lock: the budget of the
//! site that it served promises it until the next repair, two leases later.) A board comes back as configured.
//!
//! `SIDELONG_SEED=N cargo test -p sidelong-reconfig --test it simulated -- --nocapture` replays one history and tells all
//! of it.

mod check;
mod cluster;
mod edge;
mod links;
mod lots;
mod report;
mod run;

use sidelong_reconfig::Protocol;
use sidelong_state::STEPS;

use crate::simulated::check::Rule;
use crate::simulated::report::Summary;
use crate::simulated::run::run;

/// Names the only seed to run.
const REPLAY: &str = "SIDELONG_SEED";
/// The steps that only a person's moves take, or those to sites with commands. These clusters have neither; those of the model
/// have both.
const OF_MODEL: [&str; 4] = ["settle", "change", "await-change", "recover-await-change"];
/// How many histories are enough for every change.
const SEEDS: u64 = 48;

/// Runs one seed, or fails with how to run it again.
fn must_hold(seed: u64, told: bool) -> Summary {
    let _replay = Replay(seed);
    run(seed, Protocol::Lease, told).unwrap_or_else(|violation| panic!("{violation}"))
}

/// Tells how to replay a run that did not come to its end.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(seed) = self;
            eprintln!(
                "replay: {REPLAY}={seed} cargo test -p sidelong-reconfig --test it simulated -- --nocapture"
            );
        }
    }
}

fn runs(seeds: std::ops::Range<u64>) {
    let mut all = Summary::default();
    seeds.clone().for_each(|seed| all.add(must_hold(seed, false)));
    println!("seeds {seeds:?}: {all:?}");
    let missed: Vec<_> =
        STEPS.iter().filter(|step| !OF_MODEL.contains(step) && !all.steps.contains(*step)).collect();
    assert!(missed.is_empty(), "no run came through {missed:?}");
}

#[test]
fn clusters_hold_whatever_happens() {
    match std::env::var(REPLAY) {
        Ok(seed) => println!("{:#?}", must_hold(seed.parse().expect("a number"), true)),
        Err(_) => runs(0..SEEDS),
    }
}

#[test]
#[ignore = "a minute, in a release build; `cargo xtask ci kill` runs it"]
fn many_clusters_hold_whatever_happens() {
    runs(0..1_500);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let histories = [7, 7, 8].map(|seed| must_hold(seed, false).history);
    assert_eq!(histories[0], histories[1]);
    assert_ne!(histories[0], histories[2]);
}

/// The control: the same runs by the papers' protocol break what must hold.
#[test]
fn the_papers_protocol_is_caught() {
    let broken = (0..SEEDS).filter_map(|seed| run(seed, Protocol::Paper, false).err());
    let broken: Vec<_> = broken.map(|violation| violation.rule).collect();
    let count = |rule| broken.iter().filter(|broken| **broken == rule).count();
    let (stripped, stuck) = (count(Rule::Floor), count(Rule::Whole));
    println!("of {SEEDS} runs, {stripped} stripped a donor below its floor and {stuck} left a lock stuck");
    assert!(stripped > 0 && stuck > 0);
}
