//! Moves that take long, because nodes run commands.

use super::*;

/// Two sites, and a mover that makes one move at a time.
struct World {
    reconfigurer: Reconfigurer,
    sites: Vec<SiteView>,
    nodes: Vec<NodeView>,
    /// How long a node drains and changes, in ms.
    drains: u64,
    changes: u64,
    now: u64,
    /// The node that moves, and since when.
    moving: Option<(NodeId, u64)>,
    /// When moves began, and where to.
    begun: Vec<(u64, usize)>,
}

impl World {
    /// Three nodes of site 0 and one of site 1.
    fn new(drains: u64, changes: u64) -> Self {
        let nodes = [0, 0, 0, 1].map(|of| node(of, 0)).to_vec();
        let reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
        let (now, moving, begun) = (0, None, Vec::new());
        World { reconfigurer, sites: sites(2), nodes, drains, changes, now, moving, begun }
    }

    /// One that has seen a move of the second site, and has come to rest.
    fn experienced(drains: u64, changes: u64) -> Self {
        let mut world = World::new(drains, changes);
        assert_eq!(world.run(3, [0, 6]), [(2, 1)]);
        assert_eq!(world.run(drains + 2 * changes + 100, [0, 0]), []);
        world
    }

    /// So many ms with so many requests at each node of the two sites; the moves that began, in ms from now.
    fn run(&mut self, ms_long: u64, requests: [u32; 2]) -> Vec<(u64, usize)> {
        let (began, known) = (self.now, self.begun.len());
        for _ in 0..ms_long {
            self.step(requests);
        }
        self.begun[known..].iter().map(|(at, to)| (at - began, *to)).collect()
    }

    fn step(&mut self, requests: [u32; 2]) {
        self.go_on();
        for view in &mut self.nodes {
            let of = view.ownership.and_then(Ownership::serving_site);
            view.load = node(0, of.map_or(0, |of| requests[of.index()])).load;
        }
        let snapshot = Snapshot { nodes: &self.nodes, sites: &self.sites, standings: &[] };
        let plan = self.reconfigurer.step(&snapshot, ms(self.now)).filter(|_| self.moving.is_none());
        if let Some(plan) = plan {
            self.begin(plan.node, plan.to);
        }
        self.now += 1;
    }

    fn begin(&mut self, node: NodeId, to: SiteId) {
        let ownership = &mut self.nodes[node.index()].ownership;
        *ownership = ownership.unwrap().draining_to(Some(to));
        self.moving = Some((node, self.now));
        self.begun.push((self.now, to.index()));
    }

    fn go_on(&mut self) {
        let Some((node, since)) = self.moving else { return };
        let ownership = self.nodes[node.index()].ownership.as_mut().unwrap();
        let to = ownership.next.unwrap();
        let lasted = self.now - since;
        if lasted >= self.drains + self.changes {
            *ownership = ownership.now_serving(to);
            self.moving = None;
        } else if lasted >= self.drains && ownership.state == NodeState::Draining {
            *ownership = ownership.changing_to(to);
        }
    }
}

#[test]
fn a_short_load_is_not_worth_a_long_change() {
    let mut slow = World::experienced(1, 3_000);
    assert_eq!(slow.run(1_000, [0, 6]), [], "it would be over before the node comes");
    assert_eq!(slow.run(1_000, [0, 0]), []);
    assert_eq!(slow.run(5_000, [0, 6]), [(2_999, 1)], "a load that lasts");
    // Nor does the other site, whose changes these were as well.
    let mut slow = World::experienced(1, 3_000);
    assert_eq!(slow.run(1_000, [6, 0]), []);
}

#[test]
fn a_site_that_idles_for_a_short_time_keeps_its_nodes() {
    let mut slow = World::experienced(1, 3_000);
    slow.sites[0].priority = 1;
    assert_eq!(slow.run(4_000, [4, 6]), []);
    assert_eq!(slow.run(1_000, [0, 6]), []);
    assert_eq!(slow.run(4_000, [4, 6]), []);
    assert_eq!(slow.run(4_000, [0, 6]), [(2_999, 1)]);
}

#[test]
fn a_node_that_came_at_a_cost_stays_for_as_long() {
    // Back to a site that is busy while the other idles, and to a more important one.
    for (priority, requests) in [(0, [6, 0]), (1, [6, 3])] {
        let mut world = World::new(1, 3_000);
        world.sites[0].priority = priority;
        assert_eq!(world.run(3_000, [0, 6]), [(2, 1)]);
        let back = world.run(10_000, requests);
        // It arrives 3 ms later.
        assert_eq!(back[0], (3_002, 0), "{requests:?}");
    }
}

#[test]
fn a_third_site_does_not_get_at_once_what_came_at_a_cost() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(1, 8), node(2, 0)];
    let mut sites = sites(3);
    sites[2].priority = 1;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 3, 4).unwrap();
    let serving = nodes[0].ownership.unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..3), [2]);
    nodes[0].ownership = Some(serving.draining_to(Some(site(1))).unwrap().changing_to(site(1)));
    // The third site's own moves have cost nothing yet. No other site has a node to spare, until the one arrives.
    nodes[3] = node(2, 8);
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 3..3_003), []);
    nodes[0] = NodeView { ownership: Some(serving.now_serving(site(1))), ..node(1, 4) };
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 3_003..6_100)[0], 3_003 + 2_999);
}

#[test]
fn each_change_is_answered_by_as_much_service() {
    // A load that changes sides as soon as a node has come.
    let mut world = World::new(1, 100);
    let mut requests = [0, 6];
    for _ in 0..12_000 {
        let was_moving = world.moving.is_some();
        world.step(requests);
        if was_moving && world.moving.is_none() {
            requests.reverse();
        }
    }
    assert!((55..=60).contains(&world.begun.len()), "{:?}", world.begun);
}

#[test]
fn moves_without_commands_are_as_fast_as_the_settings_say() {
    for (drains, changes) in [(1, 0), (500, 0), (3, 1), (3, 2)] {
        let mut world = World::experienced(drains, changes);
        assert_eq!(world.run(20, [0, 6])[0], (2, 1), "{drains} ms and {changes} ms");
    }
    let mut world = World::new(2, 0);
    assert_eq!(world.run(20, [0, 80]), [(2, 1), (5, 1)], "an arrival is no other move");
}

#[test]
fn changes_by_another_edge_count() {
    let mut world = World::new(1, 3_000);
    world.run(1, [0, 0]);
    world.begin(NodeId::new(0), site(1));
    assert_eq!(world.run(10_000, [0, 0]), []);
    assert_eq!(world.run(1_000, [0, 6]), []);
}

/// Its commands fail on each node. Each waits for a person then, so that the next one is not taken at once.
#[test]
fn a_site_that_cannot_be_entered_is_left_alone_for_a_while() {
    for state in [NodeState::Pinned, NodeState::Held] {
        let mut world = World::new(1, 3_000);
        let mut begun = Vec::new();
        for _ in 0..2 {
            let before = world.now;
            while world.moving.is_none() {
                world.step([0, 6]);
            }
            begun.push(world.now - before);
            world.run(100, [0, 6]);
            let (node, _) = world.moving.take().unwrap();
            let ownership = &mut world.nodes[node.index()].ownership;
            *ownership = ownership.map(|own| own.now(state, site(0)));
        }
        assert!(begun[0] < 10 && (60_000..60_100).contains(&begun[1]), "{begun:?}");
        // Twice as long, until one arrives.
        assert_eq!(world.run(119_900, [0, 6]), []);
    }
}

#[test]
fn a_change_that_did_not_end_well_is_no_measure() {
    // A repair found no node there, and the words were made anew.
    let mut world = World::new(1, 3_000);
    world.run(1, [0, 0]);
    world.begin(NodeId::new(0), site(1));
    world.run(2_000, [0, 0]);
    world.nodes[0].ownership = world.nodes[0].ownership.map(|own| own.now_serving(site(0)));
    world.moving = None;
    assert_eq!(world.run(100, [0, 0]), []);
    assert_eq!(world.run(20, [0, 6])[0], (2, 1));
}

#[test]
fn the_cost_of_changes_is_forgotten_when_they_are_fast() {
    let mut world = World::experienced(1, 3_000);
    world.changes = 1;
    let mut waits = Vec::new();
    for turn in 0..14 {
        let requests = if turn % 2 == 0 { [0, 6] } else { [6, 0] };
        waits.push(world.run(4_000, requests)[0].0);
        world.run(100, [0, 0]);
    }
    assert!(waits[0] >= 2_990 && waits[1] < 1_600 && waits[13] == 2, "{waits:?}");
    assert!(waits.iter().sum::<u64>() < 6_100, "{waits:?}");
}

/// Of bursts of 300 ms none is worth a change of 3 s; but nobody knows that changes still take as long.
#[test]
fn a_cost_that_no_move_confirms_fades() {
    let mut world = World::experienced(1, 3_000);
    world.changes = 1;
    let mut moved = Vec::new();
    for burst in 0..400 {
        moved.extend(world.run(300, [0, 6]).iter().map(|_| burst));
        world.run(100, [0, 0]);
    }
    // After four halvings of 30 s, and then as fast as ever.
    assert!((290..305).contains(&moved[0]), "{moved:?}");
}

#[test]
fn no_silence_makes_a_site_wait_for_more_than_a_minute() {
    let mut world = World::new(1, 7_200_000);
    world.run(1, [0, 0]);
    world.begin(NodeId::new(0), site(1));
    let at = |world: &mut World, now| {
        world.now = now;
        world.step([0, 0]);
    };
    at(&mut world, 2);
    at(&mut world, 3);
    // A reconfigurer that was not asked for an hour does not take that for a change.
    let mut unasked =
        World { reconfigurer: world.reconfigurer.clone(), nodes: world.nodes.clone(), ..World::new(1, 0) };
    (unasked.moving, unasked.now) = (world.moving, 3_600_000);
    assert_eq!(unasked.run(100, [0, 0]), []);
    assert_eq!(unasked.run(20, [0, 6])[0], (2, 1));
    // A node that looked so for two hours.
    at(&mut world, 7_200_000);
    at(&mut world, 7_200_002);
    world.step([0, 0]);
    world.now += 60_000;
    world.step([0, 6]);
    world.now += 59_990;
    assert_eq!(world.run(20, [0, 6])[0], (9, 1));
}

#[test]
fn a_site_below_its_floor_does_not_wait_for_what_changes_cost() {
    let mut world = World::new(1, 3_000);
    assert_eq!(world.run(3_004, [0, 6]), [(2, 1)]);
    // The node has just come to it, and its own dies. It has settled 2 ms after the node came.
    world.nodes[3] = dead(world.nodes[3]);
    world.sites[1].floor = 2;
    assert_eq!(world.run(10, [0, 0])[0], (1, 1));
    // A site without any node does not, either.
    let mut world = World::new(1, 3_000);
    assert_eq!(world.run(3_004, [0, 6]), [(2, 1)]);
    assert!(world.nodes[0].ownership.unwrap().serves(site(1)));
    (world.nodes[0], world.nodes[3]) = (dead(world.nodes[0]), dead(world.nodes[3]));
    (world.sites[1].waiting, world.sites[1].floor) = (3, 0);
    assert_eq!(world.run(10, [2, 0])[0], (1, 1));
}

#[test]
fn the_second_of_two_moves_waits_for_a_long_first_one() {
    let mut nodes = unlike();
    let sites = sites(3);
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 3, 4).unwrap();
    let mut step = |nodes: &[NodeView], at| {
        reconfigurer.step(&Snapshot { nodes, sites: &sites, standings: &[] }, ms(at))
    };
    let first = (0..3).find_map(|at| step(&nodes, at)).unwrap();
    assert_eq!((first.node, first.to, first.reason.need), (NodeId::new(0), site(1), Need::Stage));
    let draining = nodes[0].ownership.unwrap().draining_to(Some(site(1))).unwrap();
    nodes[0].ownership = Some(draining);
    assert_eq!((3..5).find_map(|at| step(&nodes, at)), None);
    nodes[0].ownership = Some(draining.changing_to(site(1)));
    assert_eq!((5..5_000).find_map(|at| step(&nodes, at)), None);
    nodes[0].ownership = Some(draining.now_serving(site(1)));
    let (second, at) = (5_000..5_100).find_map(|at| Some((step(&nodes, at)?, at))).unwrap();
    assert_eq!((second.node, second.to, at), (NodeId::new(2), site(2), 5_002));
}
