//! The protocols on random walks: a larger world than a model checker can explore, with more faults, one history for
//! each seed.
//!
//! A failure prints its seed and the command that replays it. `SIDELONG_WALKS=10000` runs more walks.

use std::collections::BTreeSet;

use sidelong_layout::SiteId;
use sidelong_state::{Goal, Plan, STEPS};

use crate::model::memory::LATE;
use crate::model::world::{Action, Protocol, Setup, Weakness, World, plan};

const SITES: usize = 3;
const NODES: usize = 8;
const EDGES: usize = 3;
const FRONTS: usize = 2;
const REQUESTS: u8 = 200;
const PLANS: usize = 24;
const FAULTS: u8 = 40;
/// One action in this many is a fault, while faults are left.
const FAULT_EVERY: usize = 25;
const ACTIONS_MAX: usize = 100_000;

#[test]
fn walks() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let mut covered = BTreeSet::new();
    if let Some(seed) = number("SIDELONG_SEED") {
        return walk(seed, &mut covered);
    }
    (0..number("SIDELONG_WALKS").unwrap_or(400)).for_each(|seed| walk(seed, &mut covered));
    let missed: Vec<_> = STEPS.iter().filter(|step| !covered.contains(*step)).collect();
    assert!(missed.is_empty(), "no walk came through {missed:?}");
}

/// Tells how to replay a walk that did not complete.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(seed) = self;
            eprintln!(
                "replay: SIDELONG_SEED={seed} cargo test -p sidelong-state --test it walks -- --nocapture"
            );
        }
    }
}

fn walk(seed: u64, covered: &mut BTreeSet<&'static str>) {
    let _replay = Replay(seed);
    let mut lots = Lots(seed);
    let setup = setup(&mut lots);
    // In every other walk completions are lost in bursts, so that words count as out of reach.
    let bursts = lots.below(2) == 0;
    let mut world = World::new(&setup);
    let mut last = Action::Advance;
    for step in 0.. {
        assert!(step < ACTIONS_MAX, "no end");
        let actions = world.actions(&setup);
        if bursts && last.is_loss() && actions.contains(&last) && lots.below(4) > 0 {
            act(&mut world, &setup, last, bursts);
            continue;
        }
        let (faults, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(|action| action.is_fault());
        let fault = !faults.is_empty() && lots.below(FAULT_EVERY) == 0;
        let choice = if fault { faults } else { others };
        if choice.is_empty() {
            break;
        }
        last = choice[lots.below(choice.len())];
        act(&mut world, &setup, last, bursts);
        covered.extend(world.steps());
    }
    assert!(world.has_ended(&setup));
    assert!(world.locks_are_free(&setup) && world.nodes_are_settled(&setup), "{world:#?}");
    for site in (0..SITES).map(SiteId::new) {
        let mut next = Some(Action::Watch(0, site));
        while let Some(action) = next {
            act(&mut world, &setup, action, bursts);
            next = world.actions(&setup).into_iter().find(|action| !action.is_fault());
        }
    }
    assert!(world.budgets_are_exact(&setup), "after a repair of each site: {world:#?}");
}

/// Acts, and checks the invariants; some are not checked while words are out of reach.
fn act(world: &mut World, setup: &Setup, action: Action, bursts: bool) {
    if std::env::var_os("SIDELONG_SEED").is_some() {
        println!("{:?} {action:?}", world.clock);
    }
    world.act(setup, action);
    assert!(world.floors_hold(setup), "below a floor: {world:#?}");
    assert!(world.budgets_hold(setup), "a budget promises too much: {world:#?}");
    assert!(world.requests_end_before_their_site(), "a request outlives its site: {world:#?}");
    assert!(world.locks_exclude(setup), "two rely on one lock: {world:#?}");
    assert!(world.memory.broken.is_none_or(|rule| bursts && rule == LATE), "{world:#?}");
    assert!(bursts || world.free_means_settled(setup), "a node drains under a free lock: {world:#?}");
}

fn setup(lots: &mut Lots) -> Setup {
    let homes = (0..NODES).map(|node| if node < SITES { Some(node) } else { lots.site() });
    let homes: Vec<_> = homes.collect();
    let script = |lots: &mut Lots| -> Vec<Plan> {
        let plan = |_| {
            let plan = plan(lots.below(NODES), 0, lots.below(SITES));
            let goal = match lots.below(6) {
                0 => Goal::Hold,
                1 => Goal::Pin(plan.site()),
                _ => plan.goal,
            };
            Plan { goal, ..plan }
        };
        (0..PLANS).map(plan).collect()
    };
    Setup {
        floors: vec![1; SITES],
        homes,
        foreign: lots.below(2) == 0,
        commands: lots.below(2) == 0,
        changes: Vec::new(),
        fronts: FRONTS,
        requests: REQUESTS,
        scripts: (0..EDGES).map(|_| script(lots)).collect(),
        retries: 1,
        faults: FAULTS,
        protocol: Protocol::Leased,
        weakness: Weakness::None,
        corruptions: Vec::new(),
        losses: true,
        restarts: true,
        fresh_plans: true,
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the walk's only source of randomness.
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        sidelong_layout::mix64(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Any site, or none.
    fn site(&mut self) -> Option<usize> {
        Some(self.below(SITES + 1)).filter(|&site| site < SITES)
    }
}
