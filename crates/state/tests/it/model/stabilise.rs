//! Words that nobody wrote: from any contents of a small cluster's words, and from a word that holds anything at any moment
//! of a move, the edges bring the cluster to a legal state, and in time.
//!
//! Legal is what every other check starts from: all locks free, each node at a site or free, each budget exact and with
//! the floor of the cluster file. On the way there a site may be below its floor: nobody can keep what the words do not
//! tell. That it is filled up again is for policy, which sees the legal words.

use sidelong_layout::{Ack, Budget, EdgeId, Lock, NODES_MAX, NodeId, NodeState, Ownership, SiteId};
use sidelong_state::Word;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::model::check::{all, now, setup};
use crate::model::world::{Action, Protocol, Setup, Weakness, World, plan};

const LEGAL_IN_THE_END: &str = "in the end all words are legal";
const IN_TIME: &str = "the words are legal in time";
const ENDS: &str = "it ends";

const SITES: usize = 2;
/// The sites that the three nodes have in the cluster file.
const HOMES: [Option<usize>; 3] = [Some(0), Some(0), Some(1)];
const FLOORS: [u16; SITES] = [1, 1];
/// A generation that no word begins with.
const GENERATION: u64 = 77;

struct Stabilises {
    setup: Setup,
    /// What the words hold at first, each on its own.
    contents: Vec<Vec<(Word, u64)>>,
}

impl Model for Stabilises {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let with = |contents: &Vec<(Word, u64)>| {
            let mut world = World::new(&self.setup);
            contents.iter().for_each(|&(word, value)| world.corrupt(word, value));
            world
        };
        self.contents.iter().map(with).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.extend(world.actions(&self.setup));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(&self.setup, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LEGAL_IN_THE_END, |Stabilises { setup, .. }, world: &World| {
                !world.has_ended(setup)
                    || (world.locks_are_free(setup)
                        && world.nodes_are_settled(setup)
                        && world.budgets_are_exact(setup))
            }),
            Property::always(IN_TIME, |Stabilises { setup, .. }, world: &World| world.is_in_time(setup)),
            Property::sometimes(ENDS, |Stabilises { setup, .. }, world: &World| world.has_ended(setup)),
        ]
    }
}

/// Edges with these scripts; faults are corruptions and nothing else, so that time passes for no other reason.
fn cluster(scripts: Vec<Vec<sidelong_state::Plan>>, weakness: Weakness) -> Setup {
    let idle = [plan(0, 0, 1); 2];
    Setup {
        floors: FLOORS.into(),
        scripts,
        weakness,
        losses: false,
        protocol: Protocol::Leased,
        ..setup(HOMES, FLOORS[0], idle, 0)
    }
}

/// Checks each group of contents on its own, so that the states of only one are held in memory.
fn check(name: &str, setup: &Setup, groups: Vec<Vec<Vec<(Word, u64)>>>) {
    for contents in groups {
        check_group(name, Stabilises { setup: setup.clone(), contents });
    }
}

fn check_group(name: &str, model: Stabilises) {
    let (starts, started) = (model.contents.len(), now());
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {starts} contents, {states} states, {depth} deep, {:.1?}", started.elapsed());
    let discoveries = checker.discoveries();
    if let Some((property, path)) = discoveries.iter().find(|(property, _)| **property != ENDS) {
        let world = path.last_state();
        panic!("{name}: not so: {property}\n{:?}\n{world:#?}", path.clone().into_actions());
    }
    assert!(discoveries.contains_key(ENDS), "{name}: no history has an end, so nothing was checked");
}

/// Everything that an ownership word may say, each kind of nonsense once.
fn ownerships(generation: u64) -> [u64; 13] {
    let [first, second, beyond] = [0, 1, SITES].map(SiteId::new);
    let serving = |site| Ownership::serving(site, generation).encode();
    let of = |state, site, next| Ownership { state, site: Some(site), next, generation }.encode();
    let draining = |from, to| of(NodeState::Draining, from, Some(to));
    let unknown_state = 0xf << 60 | generation;
    [
        Ownership { state: NodeState::Free, site: None, next: None, generation }.encode(),
        serving(first),
        serving(second),
        draining(first, second),
        draining(second, first),
        serving(beyond),
        draining(first, beyond),
        draining(first, first),
        unknown_state,
        of(NodeState::Draining, first, None),
        of(NodeState::Held, first, None),
        of(NodeState::Pinned, second, None),
        of(NodeState::Changing, first, Some(second)),
    ]
}

/// A budget that is right, and such as are not: too low, too high, with another floor, with all bits set.
fn budgets(site: usize) -> [u64; 5] {
    let floor = FLOORS[site];
    let right = HOMES.iter().filter(|home| **home == Some(site)).count() as u16;
    let budget = |floor, current| Budget { floor, current, generation: GENERATION }.encode();
    [
        budget(floor, right),
        budget(floor, 0),
        budget(floor, HOMES.len() as u16),
        budget(0, right),
        budget(NODES_MAX as u16, NODES_MAX as u16),
    ]
}

/// Free, held by an edge that does not know of it in its present life or by a former one, held by nobody that exists.
fn locks() -> [u64; 4] {
    let free = Lock { owner: None, incarnation: 0, sequence: GENERATION };
    let held = |owner, incarnation| free.held_by(EdgeId::new(owner), incarnation).encode();
    [free.encode(), held(0, 1), held(0, 7), held(4000, 0xfff)]
}

/// All ways to take one of each.
fn product(choices: &[Vec<Vec<(Word, u64)>>]) -> Vec<Vec<(Word, u64)>> {
    choices.iter().fold(vec![Vec::new()], |all, choice| {
        let with =
            |one: &Vec<(Word, u64)>| choice.iter().map(|more| [&one[..], more].concat()).collect::<Vec<_>>();
        all.iter().flat_map(with).collect()
    })
}

/// One of every `one_in` values of each word, of a lock one of every three at least, in all combinations; a group for each value of
/// the locks. Nodes with the same home are interchangeable, so only one order of their values is taken.
fn contents(one_in: usize) -> Vec<Vec<Vec<(Word, u64)>>> {
    let node = |index: usize| -> Vec<_> {
        let node = NodeId::new(index);
        let words = ownerships(GENERATION).into_iter().flat_map(move |word| {
            let drains = Ownership::decode(word, SITES).is_some_and(|own| own.state == NodeState::Draining);
            let acks = [0, Ack { generation: GENERATION }.encode()];
            let acks = acks.into_iter().take(if drains { 2 } else { 1 });
            acks.map(move |ack| vec![(Word::Ownership(node), word), (Word::Ack(node), ack)])
        });
        words.step_by(one_in).collect()
    };
    let of = |values: &[u64], one_in: usize, word: Word| -> Vec<_> {
        values.iter().step_by(one_in).map(|value| vec![(word, *value)]).collect()
    };
    let each_site = || (0..SITES).map(SiteId::new);
    let locks: Vec<_> = each_site().map(|site| of(&locks(), one_in.min(3), Word::Lock(site))).collect();
    let budgets = each_site().map(|site| of(&budgets(site.index()), one_in, Word::Budget(site)));
    let others: Vec<_> = (0..HOMES.len()).map(node).chain(budgets).collect();
    let mut others = product(&others);
    assert_eq!(HOMES[0], HOMES[1]);
    others.retain(|words| (words[0].1, words[1].1) <= (words[2].1, words[3].1));
    let group = |locks: Vec<_>| others.iter().map(|words| [&locks[..], words].concat()).collect();
    product(&locks).into_iter().map(group).collect()
}

/// What one corruption may make of one word at any moment. With both generations: that which operations under way expect,
/// and another.
fn corruptions() -> Vec<(Word, u64)> {
    let node = |index| {
        let values = [0, GENERATION].into_iter().flat_map(ownerships);
        values.map(move |word| (Word::Ownership(NodeId::new(index)), word))
    };
    let site = |index| {
        let site = SiteId::new(index);
        let locks = locks().into_iter().map(move |lock| (Word::Lock(site), lock));
        locks.chain(budgets(index).into_iter().map(move |budget| (Word::Budget(site), budget)))
    };
    (0..HOMES.len()).flat_map(node).chain((0..SITES).flat_map(site)).collect()
}

#[test]
fn some_contents_become_legal() {
    let setup = cluster(vec![vec![]], Weakness::None);
    check("one edge", &setup, contents(3));
}

#[test]
#[ignore = "minutes, in a release build"]
fn all_contents_become_legal() {
    let setup = cluster(vec![vec![]], Weakness::None);
    check("one edge", &setup, contents(1));
}

/// `SIDELONG_MODEL=all` takes more values.
#[test]
#[ignore = "minutes, in a release build"]
fn some_contents_become_legal_by_two_edges() {
    let setup = cluster(vec![vec![], vec![]], Weakness::None);
    check("two edges", &setup, contents(if all() { 3 } else { 4 }));
}

#[test]
fn a_word_that_is_corrupted_in_a_move_becomes_legal() {
    let setup =
        Setup { corruptions: corruptions(), faults: 1, ..cluster(vec![vec![plan(0, 0, 1)]], Weakness::None) };
    check("one move", &setup, vec![vec![vec![]]]);
}

/// Nodes whose words say that they change say how that ended, or say nothing.
#[test]
fn a_word_that_is_corrupted_in_a_change_becomes_legal() {
    let cluster = cluster(vec![vec![plan(0, 0, 1)]], Weakness::None);
    let setup = Setup { commands: true, corruptions: corruptions(), faults: 1, ..cluster };
    check("one move with commands", &setup, vec![vec![vec![]]]);
}

#[test]
#[ignore = "minutes, in a release build"]
fn a_word_that_is_corrupted_between_moves_becomes_legal() {
    for (name, second) in [("two for one site", plan(1, 0, 1)), ("two that swap", plan(2, 1, 0))] {
        let setup = Setup {
            corruptions: corruptions(),
            faults: 1,
            ..cluster(vec![vec![plan(0, 0, 1)], vec![second]], Weakness::None)
        };
        check(name, &setup, vec![vec![vec![]]]);
    }
}

/// As if a repair knew neither the nodes' homes nor the sites' floors.
#[test]
fn without_the_repair_words_stay_as_they_are() {
    let site = SiteId::new(0);
    let node = (Word::Ownership(NodeId::new(0)), ownerships(GENERATION)[5]);
    let floor = (Word::Budget(site), budgets(0)[3]);
    for (name, content) in [("an ownership", node), ("a floor", floor)] {
        let setup = cluster(vec![vec![]], Weakness::Unrepaired);
        let model = Stabilises { setup, contents: vec![vec![content]] };
        let finish = HasDiscoveries::AnyOf([LEGAL_IN_THE_END].into());
        let checker = model.checker().finish_when(finish).spawn_bfs().join();
        assert!(checker.discovery(LEGAL_IN_THE_END).is_some(), "{name} is put right by nobody");
    }
}
