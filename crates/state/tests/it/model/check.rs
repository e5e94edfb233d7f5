//! Every interleaving of small worlds, with faults at every step; and worlds whose faults must be found.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sidelong_layout::{NodeId, NodeState, Ownership, SiteId};
use sidelong_state::{Goal, Plan, STEPS};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::model::roster::Change;
use crate::model::world::{Action, Protocol, Setup, Weakness, World, plan};

const FLOORS: &str = "no site falls below its floor";
const BUDGETS: &str = "a budget promises no node that it has not";
const EXCLUSION: &str = "one edge at most relies on a lock";
const LAWFUL: &str = "each change is lawful and none is late";
const ENDED: &str = "a request ends before its node serves another site";
const SETTLED: &str = "under a free lock nothing drains";
const ONCE: &str = "one overload is answered by one move";
const FREE_IN_THE_END: &str = "in the end locks are free and nodes settled";
const EXACT_IN_THE_END: &str = "in the end budgets are exact";
const MOVES: &str = "a node moves";

struct Checked {
    setup: Setup,
    /// Steps that some edge has reached.
    covered: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Model for Checked {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.extend(world.actions(&self.setup));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(&self.setup, action);
        self.covered.lock().expect("no panic").extend(next.steps());
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn always(name: &'static str, holds: fn(&Checked, &World) -> bool) -> Property<Checked> {
            Property::always(name, holds)
        }
        let all = vec![
            always(FLOORS, |model, world| world.floors_hold(&model.setup)),
            always(BUDGETS, |model, world| world.budgets_hold(&model.setup)),
            always(EXCLUSION, |model, world| world.locks_exclude(&model.setup)),
            always(LAWFUL, |_, world| world.memory.broken.is_none()),
            always(ENDED, |_, world| world.requests_end_before_their_site()),
            always(SETTLED, |model, world| world.free_means_settled(&model.setup)),
            always(ONCE, |model, world| world.overload_answered_once(&model.setup)),
            always(FREE_IN_THE_END, |Checked { setup, .. }, world| {
                !world.has_ended(setup) || (world.locks_are_free(setup) && world.nodes_are_settled(setup))
            }),
            always(EXACT_IN_THE_END, |Checked { setup, .. }, world| {
                !world.has_ended(setup) || world.budgets_are_exact(setup)
            }),
            Property::sometimes(MOVES, |_: &Checked, world: &World| world.moves() > 0),
        ];
        // A board that begins anew does not know who has locks, and what is on its way under them.
        let board_goes = self.setup.changes.contains(&Change::BoardGoes);
        let holds =
            |property: &Property<Self>| !board_goes || ![EXCLUSION, SETTLED, ONCE].contains(&property.name);
        all.into_iter().filter(holds).collect()
    }
}

/// Three sites; nodes at `homes`, site 0 with floor `floor`; two edges, each with a plan.
pub(crate) fn setup(homes: [Option<usize>; 3], floor: u16, plans: [Plan; 2], faults: u8) -> Setup {
    Setup {
        floors: vec![floor, 0, 0],
        homes: homes.into(),
        foreign: false,
        commands: false,
        changes: Vec::new(),
        fronts: 0,
        requests: 0,
        scripts: plans.map(|plan| vec![plan]).into(),
        retries: 2,
        faults,
        protocol: Protocol::Leased,
        weakness: Weakness::None,
        corruptions: Vec::new(),
        losses: true,
        restarts: false,
        fresh_plans: false,
    }
}

/// All nodes at the donor, site 0.
const AT_DONOR: [Option<usize>; 3] = [Some(0); 3];

/// Worlds that differ in what the two edges contend for.
fn worlds(faults: u8) -> Vec<(&'static str, Setup)> {
    let unowned = Ownership { state: NodeState::Free, site: None, next: None, generation: 0 };
    let free = |to| Plan::new(NodeId::new(2), unowned, SiteId::new(to));
    let with = |homes, floor, a, b| setup(homes, floor, [a, b], faults);
    let reborn = Setup { restarts: true, ..with(AT_DONOR, 1, plan(0, 0, 1), plan(0, 0, 1)) };
    vec![
        ("the donor's last spare node", with(AT_DONOR, 2, plan(0, 0, 1), plan(1, 0, 2))),
        ("one donor with room", with(AT_DONOR, 1, plan(0, 0, 1), plan(1, 0, 2))),
        ("one node for two receivers", with(AT_DONOR, 1, plan(0, 0, 1), plan(0, 0, 2))),
        ("one receiver, one node", with(AT_DONOR, 1, plan(0, 0, 1), plan(0, 0, 1))),
        ("one receiver, two nodes", with(AT_DONOR, 1, plan(0, 0, 1), plan(1, 0, 1))),
        ("a receiver that gives", with([Some(0), Some(0), Some(1)], 1, plan(0, 0, 1), plan(2, 1, 2))),
        ("two that swap nodes", with([Some(0), Some(0), Some(1)], 1, plan(0, 0, 1), plan(2, 1, 0))),
        ("edges that come back", reborn),
        ("a free node", with([Some(0), Some(0), None], 1, free(1), free(2))),
    ]
}

/// Worlds in which a person takes nodes out of service, keeps them where they are, and gives them back.
fn worlds_by_hand(faults: u8) -> Vec<(&'static str, Setup)> {
    let with = |floor, scripts: [&[Plan]; 2]| Setup {
        scripts: scripts.map(<[Plan]>::to_vec).into(),
        ..setup(AT_DONOR, floor, [plan(0, 0, 1); 2], faults)
    };
    let [first, second] = [plan(0, 0, 1), plan(1, 0, 1)];
    let hold = |plan: Plan| Plan { goal: Goal::Hold, ..plan };
    let pin = |site| Plan { goal: Goal::Pin(SiteId::new(site)), ..first };
    let resume = Plan { goal: Goal::Serve(SiteId::new(0)), ..first };
    let forced = Plan { force: true, ..hold(first) };
    vec![
        ("a drain or a move of the last spare node", with(2, [&[hold(first)], &[second]])),
        ("a drain, taken back beside a move", with(1, [&[hold(first), resume], &[second]])),
        ("a node that is to be held and moved", with(1, [&[hold(first)], &[first]])),
        ("two drains", with(2, [&[hold(first)], &[hold(second)]])),
        ("a pin, taken back beside a move", with(1, [&[pin(0), resume], &[first]])),
        ("a pin elsewhere", with(2, [&[pin(1)], &[second]])),
        ("a drain by force", with(3, [&[forced, resume], &[second]])),
    ]
}

/// Worlds whose sites have commands.
fn worlds_with_commands(faults: u8) -> Vec<(&'static str, Setup)> {
    let unowned = Ownership { state: NodeState::Free, site: None, next: None, generation: 0 };
    let free = Plan::new(NodeId::new(2), unowned, SiteId::new(1));
    let [moved, other] = [plan(0, 0, 1), plan(1, 0, 1)];
    let held = Plan { goal: Goal::Hold, ..moved };
    let resumed = Plan { goal: Goal::Serve(SiteId::new(0)), ..moved };
    let with = |homes, floor, scripts: [&[Plan]; 2]| Setup {
        commands: true,
        scripts: scripts.map(<[Plan]>::to_vec).into(),
        ..setup(homes, floor, [moved; 2], faults)
    };
    vec![
        ("two moves with commands", with(AT_DONOR, 2, [&[moved], &[other]])),
        ("a free node with commands", with([Some(0), Some(0), None], 1, [&[free], &[moved]])),
        ("a held node with commands, resumed", with(AT_DONOR, 1, [&[held, resumed], &[]])),
        ("a held node with commands, moved", with(AT_DONOR, 1, [&[held, moved], &[]])),
    ]
}

/// A node that one edge moves while another watches, and fronts that send requests to it.
fn with_fronts(foreign: bool, fronts: usize, requests: u8, faults: u8) -> Setup {
    let moved = plan(0, 0, 1);
    Setup {
        floors: vec![0; 2],
        homes: vec![Some(0)],
        scripts: vec![vec![moved], vec![]],
        foreign,
        fronts,
        requests,
        ..setup([None; 3], 0, [moved; 2], faults)
    }
}

/// A node that is held, and then moved, while another edge watches.
fn held(setup: Setup) -> Setup {
    let moved = setup.scripts[0][0];
    Setup { scripts: vec![vec![Plan { goal: Goal::Hold, ..moved }, moved], vec![]], ..setup }
}

/// Worlds in which fronts, a node or a site join, or a front's machine burns and a person says so. There is one node that
/// serves site 0, and the free one that joins.
fn worlds_that_change(faults: u8) -> Vec<(&'static str, Setup)> {
    let fronts = |fronts, changes: &[Change]| Setup {
        changes: changes.into(),
        losses: false,
        ..with_fronts(true, fronts, 1, faults)
    };
    let unowned = Ownership { state: NodeState::Free, site: None, next: None, generation: 0 };
    let joined = Plan::new(NodeId::new(1), unowned, SiteId::new(1));
    let node = Setup {
        homes: vec![Some(0), None],
        scripts: vec![vec![joined], vec![plan(0, 0, 1)]],
        ..fronts(0, &[Change::NodeJoins(1)])
    };
    let site = Setup {
        floors: vec![0; 3],
        scripts: vec![vec![plan(0, 0, 1)], vec![plan(0, 0, 2)]],
        restarts: true,
        ..fronts(0, &[Change::SiteJoins(2)])
    };
    vec![
        ("a front that joins", fronts(1, &[Change::FrontJoins(0)])),
        ("a front that joins and is lost", fronts(1, &[Change::FrontJoins(0), Change::FrontIsLost(0)])),
        ("a front that is lost", fronts(1, &[Change::FrontIsLost(0)])),
        ("a node that joins", node),
        ("a site that joins", site),
    ]
}

/// A node that serves site 0 and one that is free, both of which are to come to site 1, which leaves.
fn a_site_that_leaves(faults: u8) -> Setup {
    let unowned = Ownership { state: NodeState::Free, site: None, next: None, generation: 0 };
    let freed = Plan::new(NodeId::new(1), unowned, SiteId::new(1));
    Setup {
        homes: vec![Some(0), None],
        scripts: vec![vec![plan(0, 0, 1)], vec![freed]],
        changes: vec![Change::SiteCloses(1), Change::SiteLeaves(1)],
        losses: false,
        restarts: true,
        ..with_fronts(true, 0, 1, faults)
    }
}

/// Two edges that want a node each of a site that can spare one, and a front that joins, while the board goes to another node or after that.
fn worlds_whose_board_goes(faults: u8) -> [(&'static str, Setup); 2] {
    let floor = Setup {
        floors: vec![1, 0],
        homes: vec![Some(0); 2],
        scripts: vec![vec![plan(0, 0, 1)], vec![plan(1, 0, 1)]],
        changes: vec![Change::BoardGoes],
        restarts: true,
        losses: false,
        ..with_fronts(true, 0, 0, faults)
    };
    let front = Setup {
        changes: vec![Change::BoardGoes, Change::FrontJoins(0)],
        losses: false,
        restarts: true,
        ..with_fronts(true, 1, 1, faults)
    };
    [("a floor while the board goes", floor), ("a front that joins after the board went", front)]
}

/// Explores all states, and returns the steps that were reached.
fn check(name: &str, setup: Setup) -> BTreeSet<&'static str> {
    let covered = Arc::new(Mutex::new(BTreeSet::new()));
    let faults = setup.faults;
    let started = now();
    let checker = Checked { setup, covered: covered.clone() }.checker();
    let checker = checker.threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}, {faults} faults: {states} states, {depth} deep, {:.1?}", started.elapsed());
    let discoveries = checker.discoveries();
    if let Some((property, path)) = discoveries.iter().find(|(property, _)| **property != MOVES) {
        let world = path.last_state();
        panic!("{name}: not so: {property}\n{:?}\n{world:#?}", path.clone().into_actions());
    }
    assert!(discoveries.contains_key(MOVES), "{name}: nothing moves, so nothing was checked");
    drop(checker);
    Arc::into_inner(covered).expect("the checker is gone").into_inner().expect("no panic")
}

#[expect(clippy::disallowed_methods, reason = "reports how long a check took")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn every_history_of_small_worlds() {
    let mut covered = BTreeSet::new();
    for (name, setup) in worlds(1).into_iter().chain(worlds_by_hand(1)).chain(worlds_with_commands(1)) {
        covered.append(&mut check(name, setup));
    }
    for (name, setup) in worlds_that_change(0) {
        covered.append(&mut check(name, setup));
    }
    let fronts = Setup { losses: false, ..with_fronts(true, 1, 1, 1) };
    covered.append(&mut check("fronts of foreign nodes", fronts));
    let fronts = held(with_fronts(true, 1, 1, 0));
    covered.append(&mut check("fronts of foreign nodes, held", fronts));
    let missed: Vec<_> = STEPS.iter().filter(|step| !covered.contains(*step)).collect();
    assert!(missed.is_empty(), "no history came through {missed:?}");
}

/// Whether what is on demand is wanted, too.
pub(crate) fn all() -> bool {
    std::env::var("SIDELONG_MODEL").is_ok_and(|which| which == "all")
}

/// Not three faults: the same completion lost three times puts a word out of reach, and then fewer properties hold. The
/// walks cover that. `SIDELONG_MODEL=all` adds worlds in which persons move nodes, and nodes run commands.
#[test]
#[ignore = "minutes, in a release build"]
fn large() {
    let more = if all() { [worlds_by_hand(2), worlds_with_commands(2)].concat() } else { Vec::new() };
    for (name, setup) in worlds(2).into_iter().chain(more) {
        check(name, setup);
    }
}

/// Two fronts with a request each, and one that may die and come back.
#[test]
#[ignore = "minutes, in a release build"]
fn fronts() {
    for foreign in [true, false] {
        let name = if foreign { "fronts of foreign nodes" } else { "fronts" };
        check(name, with_fronts(foreign, 2, 2, 0));
        check(name, Setup { restarts: true, losses: false, ..with_fronts(foreign, 1, 1, 1) });
        check(&format!("{name}, held"), Setup { losses: false, ..held(with_fronts(foreign, 1, 1, 1)) });
    }
    let changes = vec![Change::FrontIsLost(0), Change::FrontJoins(1)];
    check("a front that joins beside one that is lost", Setup { changes, ..with_fronts(true, 2, 1, 0) });
    for (name, setup) in worlds_that_change(1) {
        check(name, setup);
    }
    check("a site that leaves", a_site_that_leaves(1));
    let [(name, setup), _] = worlds_whose_board_goes(1);
    check(name, setup);
}

/// As it was: a node acknowledges once it has no request, and another edge sends it one by an older look.
#[test]
fn a_node_that_is_idle_acknowledges_too_early() {
    let setup = with_fronts(false, 1, 1, 0);
    must_fail("idle node", ENDED, Setup { weakness: Weakness::FrontsUnasked, ..setup });
}

/// A node whose server is not its own knows of no request.
#[test]
fn a_node_that_does_not_know_acknowledges_falsely() {
    let setup = with_fronts(false, 1, 1, 0);
    must_fail("false acknowledgement", ENDED, Setup { weakness: Weakness::FalseAcknowledgement, ..setup });
}

#[test]
fn a_node_whose_commands_nobody_awaits_serves_too_early() {
    let setup = Setup { commands: true, ..with_fronts(true, 1, 1, 0) };
    must_fail("commands unasked", LAWFUL, Setup { weakness: Weakness::CommandsUnasked, ..setup });
}

#[test]
fn a_request_that_is_not_checked_again_arrives_too_late() {
    let setup = with_fronts(true, 1, 1, 0);
    must_fail("no second look", ENDED, Setup { weakness: Weakness::NoSecondLook, ..setup });
}

#[test]
fn a_front_that_states_first_still_sends() {
    let setup = with_fronts(true, 1, 1, 0);
    must_fail("states first", ENDED, Setup { weakness: Weakness::StatesFirst, ..setup });
}

#[test]
fn a_front_that_joins_unannounced_is_not_asked() {
    let setup = Setup { changes: vec![Change::FrontJoins(0)], ..with_fronts(true, 1, 1, 0) };
    must_fail("join unannounced", ENDED, Setup { weakness: Weakness::JoinsUnannounced, ..setup });
}

#[test]
fn a_mover_that_reads_the_epoch_first_misses_a_front() {
    let setup = Setup { changes: vec![Change::FrontJoins(0)], ..with_fronts(true, 1, 1, 0) };
    must_fail("epoch read first", ENDED, Setup { weakness: Weakness::EpochReadFirst, ..setup });
}

#[test]
fn a_repair_by_an_old_roster_takes_a_node_from_a_site_that_joined() {
    let worlds = worlds_that_change(1).into_iter();
    let (_, setup) = worlds.last().expect("the site that joins");
    must_fail("epoch unread", LAWFUL, Setup { weakness: Weakness::EpochUnread, ..setup });
}

#[test]
fn no_node_serves_a_site_that_has_left() {
    check("a site that leaves", a_site_that_leaves(0));
}

#[test]
fn a_mover_that_has_read_the_epoch_gives_a_free_node_to_a_site_that_left() {
    must_fail("rest unfenced", LAWFUL, Setup { weakness: Weakness::RestUnfenced, ..a_site_that_leaves(0) });
}

#[test]
fn a_repair_that_lands_a_node_at_a_site_that_closes_does_so_too_late() {
    must_fail("closing lands", LAWFUL, Setup { weakness: Weakness::ClosingLands, ..a_site_that_leaves(1) });
}

#[test]
fn a_board_that_goes_takes_no_floor_along() {
    for (name, setup) in worlds_whose_board_goes(0) {
        check(name, setup);
    }
}

#[test]
fn two_boards_take_a_site_below_its_floor_and_hide_a_front() {
    let [(name, floor), (other, front)] = worlds_whose_board_goes(0);
    let weakness = Weakness::OldBoardStays;
    // The second plan is made from the word as a repair by the new board has left it, and another's when budgets count nodes again.
    let floors = vec![1, 0, 0];
    let scripts = vec![vec![plan(0, 0, 1); 2], vec![plan(1, 0, 2)]];
    let changes = vec![Change::BoardGoes, Change::SiteJoins(2)];
    must_fail(name, FLOORS, Setup { weakness, floors, scripts, changes, ..floor });
    must_fail(other, ENDED, Setup { weakness, ..front });
}

#[test]
fn a_lock_of_a_new_board_was_not_held_as_long_as_one_of_the_old() {
    let [(name, setup), _] = worlds_whose_board_goes(0);
    must_fail(name, LAWFUL, Setup { weakness: Weakness::MemosKept, ..setup });
}

/// A world in which the property must fail, and the shortest history that shows it.
fn must_fail(name: &str, property: &'static str, setup: Setup) {
    let covered = Arc::default();
    let started = now();
    let finish = HasDiscoveries::AnyOf([property].into());
    let checker = Checked { setup, covered }.checker().finish_when(finish).spawn_bfs().join();
    let path = checker.discovery(property);
    let states = checker.unique_state_count();
    let path = path.unwrap_or_else(|| panic!("{name}: {property} after all {states} states"));
    let why = path.last_state().memory.broken.unwrap_or_default();
    let actions = path.into_actions();
    println!(
        "{name}: NOT {property} ({why}) after {} actions, {states} states, {:.1?}\n  {actions:?}",
        actions.len(),
        started.elapsed()
    );
}

#[test]
fn the_papers_lock_is_stuck_by_a_crash() {
    let setup = setup(AT_DONOR, 1, [plan(0, 0, 1), plan(1, 0, 2)], 1);
    must_fail("paper", FREE_IN_THE_END, Setup { protocol: Protocol::Paper, losses: false, ..setup });
}

#[test]
fn the_papers_receivers_strip_a_donor() {
    let setup = setup(AT_DONOR, 2, [plan(0, 0, 1), plan(1, 0, 2)], 0);
    must_fail("paper", FLOORS, Setup { protocol: Protocol::Paper, ..setup });
}

#[test]
fn the_papers_late_operations_take_effect() {
    let setup = setup(AT_DONOR, 1, [plan(0, 0, 1), plan(1, 0, 1)], 1);
    must_fail("paper", LAWFUL, Setup { protocol: Protocol::Paper, ..setup });
}

/// As if taking, stealing and freeing a lock did not raise its sequence.
#[test]
fn a_lock_without_a_sequence_lets_zombies_in() {
    let setup = setup(AT_DONOR, 1, [plan(0, 0, 1), plan(1, 0, 1)], 1);
    must_fail("lock sequence", LAWFUL, Setup { weakness: Weakness::LockSequence, ..setup });
}

/// As if stealing a lock did not raise the generations that it protects: the operation of a holder that slept or died
/// takes effect after the thief has repaired and freed.
#[test]
fn stealing_without_raising_lets_zombies_in() {
    let setup = setup(AT_DONOR, 1, [plan(0, 0, 1), plan(1, 0, 1)], 1);
    must_fail("steal", LAWFUL, Setup { weakness: Weakness::NodeGeneration, losses: false, ..setup });
}

/// As if the node's word were read after the reservation: a reservation outlives the repair that forgot it.
#[test]
fn reading_the_node_late_strips_a_donor() {
    let setup = setup(AT_DONOR, 2, [plan(0, 0, 1), plan(1, 0, 2)], 1);
    must_fail("late read", FLOORS, Setup { weakness: Weakness::NodeGeneration, ..setup });
}

#[test]
fn a_budget_without_a_generation_is_overdrawn() {
    let setup = setup(AT_DONOR, 1, [plan(0, 0, 1), plan(1, 0, 2)], 1);
    must_fail("budget generation", BUDGETS, Setup { weakness: Weakness::BudgetGeneration, ..setup });
}
