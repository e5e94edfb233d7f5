mod cost;
mod standings;

use std::time::Duration;

use sidelong_layout::{Hot, NodeId, NodeState, valid};

use super::*;
use crate::cluster::{NodeView, SiteView};
use crate::index::{Capacity, Weights};

const NODE: Capacity = Capacity { workers: 4, speed: 1.0, cpus: 0.0, net_bytes_per_s: 0 };

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn site(index: usize) -> SiteId {
    SiteId::new(index)
}

/// A node of 4 workers that serves a site and has that many requests.
fn node(of: usize, requests: u32) -> NodeView {
    let hot = Hot {
        valid: valid::ORIGIN,
        workers: 4,
        busy: requests.min(4),
        queued: requests.max(4) - 4,
        ..Hot::default()
    };
    let ownership = Some(Ownership::serving(site(of), 1));
    NodeView { ownership, load: Some(hot), up: true, dead: false, capacity: NODE, in_flight: 0 }
}

fn dead(node: NodeView) -> NodeView {
    NodeView { up: false, dead: true, ..node }
}

fn sites(count: usize) -> Vec<SiteView> {
    vec![SiteView { floor: 1, ceiling: 100, priority: 0, waiting: 0, busy: false }; count]
}

/// The first move under constant load, and its time.
fn first(settings: ReconfigureSettings, nodes: &[NodeView], sites: &[SiteView]) -> Option<(MovePlan, Time)> {
    let mut reconfigurer = Reconfigurer::new(settings, sites.len(), nodes.len()).unwrap();
    (0..50)
        .find_map(|at| Some((reconfigurer.step(&Snapshot { nodes, sites, standings: &[] }, ms(at))?, ms(at))))
}

fn first_default(nodes: &[NodeView], sites: &[SiteView]) -> Option<MovePlan> {
    Some(first(ReconfigureSettings::default(), nodes, sites)?.0)
}

/// When a step plans a move of constant `nodes`.
fn planned_at(
    reconfigurer: &mut Reconfigurer,
    nodes: &[NodeView],
    sites: &[SiteView],
    ms_range: std::ops::Range<u64>,
) -> Vec<u64> {
    ms_range
        .filter(|at| reconfigurer.step(&Snapshot { nodes, sites, standings: &[] }, ms(*at)).is_some())
        .collect()
}

#[test]
fn a_high_load_takes_an_idle_node_after_t() {
    let nodes = [node(0, 0), node(0, 0), node(1, 8)];
    let (plan, at) = first(ReconfigureSettings::default(), &nodes, &sites(2)).unwrap();
    assert_eq!(at, ms(2));
    assert_eq!((plan.node, plan.from(), plan.to), (NodeId::new(0), Some(site(0)), site(1)));
    assert_eq!(
        (plan.reason.need, plan.reason.source, plan.reason.receiver.load),
        (Need::High, Source::Idle, Some(2.0))
    );
    assert_eq!(Some(plan.expected), nodes[0].ownership);
    let (_, at) = first(
        ReconfigureSettings { history: Duration::from_millis(7), ..ReconfigureSettings::default() },
        &nodes,
        &sites(2),
    )
    .unwrap();
    assert_eq!(at, ms(7));
}

#[test]
fn a_load_that_is_only_full_moves_nothing() {
    assert_eq!(first_default(&[node(0, 0), node(0, 0), node(1, 4)], &sites(2)), None);
}

#[test]
fn a_load_that_falls_starts_its_history_anew() {
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 3).unwrap();
    let high = [node(0, 0), node(0, 0), node(1, 8)];
    let low = [node(0, 0), node(0, 0), node(1, 2)];
    let moves = (0..20).filter_map(|at| {
        let nodes = if at % 3 == 2 { &low } else { &high };
        reconfigurer.step(&Snapshot { nodes, sites: &sites(2), standings: &[] }, ms(at))
    });
    assert_eq!(moves.count(), 0);
}

#[test]
fn looks_come_s_apart() {
    let nodes = [node(0, 0), node(0, 0), node(1, 8)];
    let sites = sites(2);
    let snapshot = Snapshot { nodes: &nodes, sites: &sites, standings: &[] };
    let settings = ReconfigureSettings {
        history: Duration::ZERO,
        sensitivity: Duration::from_millis(4),
        ..ReconfigureSettings::default()
    };
    let mut reconfigurer = Reconfigurer::new(settings, 2, 3).unwrap();
    let calm = Snapshot { nodes: &[node(0, 0), node(0, 0), node(1, 0)], sites: &sites, standings: &[] };
    assert_eq!(reconfigurer.step(&calm, ms(10)), None);
    assert_eq!(reconfigurer.step(&snapshot, ms(11)), None, "no look yet");
    assert_eq!(reconfigurer.step(&snapshot, ms(5)), None, "nor back in time");
    assert!(reconfigurer.step(&snapshot, ms(13)).is_some(), "the timer was late last time");
}

#[test]
fn each_receiver_takes_one_node_in_t() {
    let nodes = [node(0, 0), node(0, 0), node(0, 0), node(0, 0), node(1, 80)];
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 5).unwrap();
    let sites = sites(2);
    // The moves are never carried out, but planning them counts.
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..12), [2, 5, 8, 11]);
    let settings = ReconfigureSettings { settle: Duration::from_millis(6), ..ReconfigureSettings::default() };
    let mut reconfigurer = Reconfigurer::new(settings, 2, 5).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..15), [2, 8, 14]);
}

#[test]
fn a_move_by_another_edge_restarts_the_history() {
    let mut nodes = [node(0, 0), node(0, 0), node(0, 0), node(1, 80)];
    let sites = sites(2);
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..2), []);
    nodes[0].ownership = nodes[0].ownership.unwrap().draining_to(Some(site(1)));
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 2..6), [4]);
    // Its arrival, or a fence, is not another move.
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    let at: Vec<u64> = (0..4)
        .filter(|at| {
            nodes[0].ownership = Some(Ownership::serving(site(1), 10 + at));
            reconfigurer.step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(*at)).is_some()
        })
        .collect();
    assert_eq!(at, [2]);
}

#[test]
fn a_site_that_another_edge_is_at_comes_last() {
    let nodes = [node(0, 0), node(0, 0), node(0, 0), node(1, 80), node(2, 8)];
    let mut sites = sites(3);
    assert_eq!(first_default(&nodes, &sites).unwrap().to, site(1));
    (sites[1].busy, sites[1].priority) = (true, 1);
    assert_eq!(first_default(&nodes, &sites).unwrap().to, site(2));
    // It may have been left since.
    sites[2].ceiling = 1;
    assert_eq!(first_default(&nodes, &sites).unwrap().to, site(1));
}

#[test]
fn a_donor_rests_after_each_move_too() {
    // Two important sites want the nodes of a third that is as busy, one of them a scan later.
    let nodes = [node(0, 8), node(0, 8), node(0, 8), node(0, 8), node(1, 8), node(2, 8)];
    let mut sites = sites(3);
    sites[1].priority = 1;
    sites[2].priority = 1;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 3, 6).unwrap();
    assert_eq!(
        planned_at(&mut reconfigurer, &nodes, &sites, 0..8),
        [2, 4, 6],
        "not at 3, when the second could"
    );
    // The same if another edge made the move.
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 3, 6).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..2), []);
    let mut moved = nodes;
    moved[0].ownership = moved[0].ownership.unwrap().draining_to(Some(site(1)));
    assert_eq!(planned_at(&mut reconfigurer, &moved, &sites, 2..8), [4, 7]);
}

#[test]
fn a_site_below_its_floor_waits_for_what_it_planned() {
    let nodes = [node(0, 0), node(0, 0), node(0, 0), node(1, 0)];
    let mut sites = sites(2);
    sites[1].floor = 3;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..6), [0, 2, 4]);
}

#[test]
fn a_site_that_idles_for_a_moment_is_not_idle() {
    let (busy, idle) = ([node(0, 4), node(0, 4), node(1, 8)], [node(0, 0), node(0, 0), node(1, 8)]);
    let mut sites = sites(2);
    sites[0].priority = 1;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 3).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &busy, &sites, 0..5), []);
    assert_eq!(planned_at(&mut reconfigurer, &idle, &sites, 5..9), [7]);
}

#[test]
fn a_draining_node_takes_its_requests_with_it_but_not_the_work() {
    // 3 requests of site 0 on the node that leaves: they, or those that follow, go to its other nodes.
    let mut nodes = [node(0, 0), node(0, 0), node(0, 3), node(1, 40)];
    let mut sites = sites(2);
    sites[0].priority = 1;
    nodes[2].ownership = nodes[2].ownership.unwrap().draining_to(Some(site(1)));
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &sites, 0..8), []);
    assert_eq!((reconfigurer.load(site(0)), reconfigurer.load(site(1))), (3.0 / 8.0, 5.0));
}

#[test]
fn a_node_on_its_way_counts_as_an_empty_one() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(0, 0), node(1, 6)];
    nodes[0].ownership = nodes[0].ownership.unwrap().draining_to(Some(site(1)));
    assert_eq!(first_default(&nodes, &sites(2)), None, "6 requests on 8 workers");
    nodes[3] = node(1, 9);
    assert_eq!(first_default(&nodes, &sites(2)).unwrap().node, NodeId::new(1));
}

#[test]
fn a_free_node_is_taken_first() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(0, 3), node(1, 8)];
    nodes[2].ownership = Some(Ownership { state: NodeState::Free, site: None, next: None, generation: 4 });
    let plan = first_default(&nodes, &sites(2)).unwrap();
    assert_eq!((plan.node, plan.from(), plan.reason.source), (NodeId::new(2), None, Source::Free));
}

#[test]
fn the_least_loaded_node_is_taken_then_the_one_with_fewer_of_our_requests() {
    let mut nodes = vec![node(0, 1), node(0, 0), node(0, 0), node(2, 1), node(2, 2), node(1, 8)];
    nodes[1].load = Some(Hot { busy: 1, ..nodes[1].load.unwrap() });
    nodes[1].in_flight = 1;
    assert_eq!(first_default(&nodes, &sites(3)).unwrap().node, NodeId::new(2));
    nodes[2] = node(0, 1);
    assert_eq!(first_default(&nodes, &sites(3)).unwrap().node, NodeId::new(0), "of equals the first");
}

#[test]
fn nodes_that_are_down_drain_or_cannot_be_read_are_left_alone() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(0, 0), node(0, 1), node(0, 1), node(1, 8)];
    nodes[0].up = false;
    nodes[1].ownership = nodes[1].ownership.unwrap().draining_to(Some(site(2)));
    nodes[2].ownership = None;
    assert_eq!(first_default(&nodes, &sites(3)).unwrap().node, NodeId::new(3));
}

#[test]
fn nodes_that_a_person_keeps_are_left_alone() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(0, 1), node(0, 1), node(1, 8)];
    nodes[0].ownership = nodes[0].ownership.map(|own| own.now(NodeState::Held, site(0)));
    nodes[1].ownership = nodes[1].ownership.map(|own| own.now(NodeState::Pinned, site(0)));
    assert_eq!(first_default(&nodes, &sites(2)).unwrap().node, NodeId::new(2));
    nodes[2].ownership = nodes[1].ownership;
    nodes[3].ownership = nodes[0].ownership;
    assert_eq!(first_default(&nodes, &sites(2)), None);
}

#[test]
fn a_held_node_is_no_capacity_and_a_pinned_one_is() {
    let mut nodes = vec![node(0, 4), node(0, 0), node(1, 0), node(1, 0)];
    let kept = |state| Some(Ownership::serving(site(0), 1).now(state, site(0)));
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    nodes[1].ownership = kept(NodeState::Pinned);
    planned_at(&mut reconfigurer, &nodes, &sites(2), 0..1);
    assert_eq!(reconfigurer.load(site(0)), 0.5);
    nodes[1].ownership = kept(NodeState::Held);
    planned_at(&mut reconfigurer, &nodes, &sites(2), 1..2);
    assert_eq!(reconfigurer.load(site(0)), 1.0);
    // A site whose node is held below its floor gets another.
    nodes[0].ownership = kept(NodeState::Held);
    let plan = first_default(&nodes, &sites(2)).unwrap();
    assert_eq!((plan.from(), plan.to, plan.reason.need), (Some(site(1)), site(0), Need::Floor));
}

#[test]
fn a_node_that_others_use_past_the_edges_stays() {
    let mut nodes = vec![node(0, 0), node(0, 1), node(0, 1), node(1, 8)];
    let hot = nodes[0].load.unwrap();
    nodes[0].load = Some(Hot { valid: hot.valid | valid::SHARED, ..hot });
    assert_eq!(first_default(&nodes, &sites(2)).unwrap().node, NodeId::new(1));
}

/// The nodes that moves were begun of until `ends`, and when; the first node always stays, after 10 ms.
fn begun(nodes: &mut [NodeView], sites: &[SiteView], ends: u64) -> Vec<(u64, usize)> {
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, nodes.len()).unwrap();
    let (mut begun, mut stays_at) = (Vec::new(), None);
    for now in 0..ends {
        if stays_at == Some(now) {
            nodes[0].ownership = Some(Ownership::serving(site(0), now));
        }
        let plan = reconfigurer.step(&Snapshot { nodes, sites, standings: &[] }, ms(now));
        if let Some(plan) = plan {
            begun.push((now, plan.node.index()));
            if plan.node.index() == 0 {
                nodes[0].ownership = nodes[0].ownership.unwrap().draining_to(Some(plan.to));
                stays_at = Some(now + 11);
            }
        }
    }
    begun
}

#[test]
fn a_node_that_was_drained_in_vain_is_left_alone_for_a_while() {
    let mut nodes = [node(0, 0), node(0, 1), node(0, 2), node(1, 80)];
    let other = begun(&mut nodes, &sites(2), 40);
    assert_eq!(other[0], (2, 0));
    assert!(other.len() > 1 && other[1..].iter().all(|(_, node)| *node == 1), "{other:?}");

    // If there is no other, for eight times as long as it took, and then for twice that.
    let mut nodes = [node(0, 0), node(0, 1), node(1, 80)];
    nodes[1].ownership = Some(Ownership::serving(site(0), 1).now(NodeState::Pinned, site(0)));
    let alone = begun(&mut nodes, &sites(2), 400);
    assert_eq!(alone, [(2, 0), (93, 0), (264, 0)]);

    // A site below its floor takes it all the same.
    let (mut nodes, mut sites) = ([node(0, 0), node(0, 1), node(1, 0)], sites(2));
    nodes[1].ownership = Some(Ownership::serving(site(0), 1).now(NodeState::Pinned, site(0)));
    sites[1].floor = 2;
    assert!(begun(&mut nodes, &sites, 40).len() > 1);
}

#[test]
fn a_node_whose_word_cannot_be_read_counts_where_it_was() {
    let mut nodes = vec![node(0, 2), node(0, 2), node(1, 2), node(1, 2)];
    let mut sites = sites(2);
    sites[1].floor = 2;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    assert_eq!(reconfigurer.step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(0)), None);
    nodes[3].ownership = None;
    assert_eq!(reconfigurer.step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(1)), None);
    nodes[3] = dead(nodes[3]);
    assert_eq!(
        reconfigurer
            .step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(2))
            .unwrap()
            .reason
            .need,
        Need::Floor
    );
}

#[test]
fn no_donor_falls_below_its_floor_and_no_receiver_rises_above_its_ceiling() {
    let nodes = [node(0, 0), node(0, 0), node(1, 8)];
    let mut at_floor = sites(2);
    at_floor[0].floor = 2;
    assert_eq!(first_default(&nodes, &at_floor), None);
    let mut at_ceiling = sites(2);
    at_ceiling[1].ceiling = 1;
    assert_eq!(first_default(&nodes, &at_ceiling), None);
    // Nodes that are dead or in doubt do not keep a floor.
    let mut down = [node(0, 0), node(0, 0), node(1, 8)];
    down[1].up = false;
    assert_eq!(first_default(&down, &sites(2)), None);
    down[1] = dead(down[1]);
    assert_eq!(first_default(&down, &sites(2)), None);
}

#[test]
fn a_site_below_its_floor_takes_at_once_and_without_load() {
    let mut nodes = vec![node(0, 4), node(0, 4), node(1, 0), node(1, 0)];
    nodes[3] = dead(nodes[3]);
    let mut sites = sites(2);
    sites[0].priority = 9;
    sites[1].floor = 2;
    let (plan, at) = first(ReconfigureSettings::default(), &nodes, &sites).unwrap();
    assert_eq!(
        (plan.reason.need, plan.reason.source, plan.to, at),
        (Need::Floor, Source::Guarantee, site(1), ms(0))
    );
    sites[0].floor = 2;
    assert_eq!(first_default(&nodes, &sites), None, "but not from another that would then be");
}

#[test]
fn a_site_waits_for_a_node_in_doubt() {
    let nodes = [node(0, 0), node(0, 0), node(1, 0)];
    let mut sites = sites(2);
    // Requests wait until the node is tried again.
    sites[1].waiting = 9;
    let doubt = |doubtful| [nodes[0], nodes[1], doubtful];
    for load in [nodes[2].load, None] {
        let doubtful = doubt(NodeView { up: false, load, ..nodes[2] });
        assert_eq!(first_default(&doubtful, &sites), None);
    }
    let plan = first_default(&doubt(dead(nodes[2])), &sites).unwrap();
    assert_eq!((plan.to, plan.reason.need), (site(1), Need::Floor));
}

#[test]
fn a_site_whose_nodes_died_is_overloaded_at_once() {
    let mut nodes = vec![node(0, 2), node(0, 2), node(1, 0)];
    nodes[2] = dead(nodes[2]);
    let mut sites = sites(2);
    sites[1].floor = 0;
    assert_eq!(first_default(&nodes, &sites), None, "nobody asks for it");
    sites[1].waiting = 1;
    let (plan, at) = first(ReconfigureSettings::default(), &nodes, &sites).unwrap();
    assert_eq!((plan.reason.need, plan.reason.source, at), (Need::Stranded, Source::Pays, ms(0)));
    assert_eq!(plan.reason.receiver.load, None);
}

#[test]
fn requests_that_the_edge_holds_back_are_load() {
    let nodes = [node(0, 0), node(0, 0), node(1, 4)];
    let mut sites = sites(2);
    sites[1].waiting = 1;
    assert_eq!(first_default(&nodes, &sites).unwrap().reason.receiver.load, Some(1.25));
}

#[test]
fn priority_decides_between_loaded_sites() {
    let nodes = [node(0, 16), node(0, 16), node(1, 6), node(1, 6)];
    let mut sites = sites(2);
    sites[1].priority = 1;
    let plan = first_default(&nodes, &sites).unwrap();
    assert_eq!((plan.reason.source, plan.from(), plan.to), (Source::LowerPriority, Some(site(0)), site(1)));
    // The less important site, though more loaded, gets no busy node of the more important one.
    let nodes = [node(0, 16), node(0, 16), node(1, 3), node(1, 3)];
    assert_eq!(first_default(&nodes, &sites), None);
    // It gets the idle ones.
    let nodes = [node(0, 16), node(0, 16), node(1, 0), node(1, 1)];
    assert_eq!(first_default(&nodes, &sites).unwrap().reason.source, Source::Idle);
}

#[test]
fn a_site_is_idle_only_if_it_stays_so_without_the_node() {
    // 3 of 8 workers busy is below `low`, 3 of 4 is not; between sites of unequal priority nothing else counts.
    let nodes = [node(0, 2), node(0, 1), node(1, 8)];
    let mut sites = sites(2);
    sites[0].priority = 1;
    assert_eq!(first_default(&nodes, &sites), None);
    assert!(first_default(&[node(0, 1), node(0, 0), node(1, 8)], &sites).is_some());
}

#[test]
fn between_equals_a_move_must_pay() {
    // 12 on 4 workers and 4 on 8: after the move 12 on 8 and 4 on 4.
    let plan = first_default(&[node(0, 2), node(0, 2), node(1, 12)], &sites(2)).unwrap();
    assert_eq!(plan.reason.source, Source::Pays);
    // 10 on 8 workers and 7 on 8: after the move the donor would have 7 on 4.
    assert_eq!(first_default(&[node(0, 4), node(0, 3), node(1, 5), node(1, 5)], &sites(2)), None);
    // It would pay, but by less than the margin: 52 on 40 and 42 on 40 workers.
    let many = |donor: u32| -> Vec<_> {
        (0..20).map(|i| if i < 10 { node(0, donor) } else { node(1, 5) }).collect()
    };
    assert!(first_default(&many(3), &sites(2)).is_some());
    assert_eq!(first_default(&many(4), &sites(2)).map(|plan| plan.reason.source), Some(Source::Pays));
    let settings = ReconfigureSettings { margin: 0.5, ..ReconfigureSettings::default() };
    assert_eq!(first(settings, &many(4), &sites(2)), None);
}

#[test]
fn what_a_node_can_do_enters_into_what_pays() {
    let mut nodes = vec![node(0, 3), node(0, 3), node(1, 12)];
    assert!(first_default(&nodes, &sites(2)).is_some());
    // The donor's nodes differ: all of its speed is in the less loaded one.
    nodes[0] = NodeView { capacity: Capacity { speed: 8.0, ..NODE }, ..node(0, 3) };
    nodes[1] = NodeView { capacity: Capacity { speed: 0.5, ..NODE }, ..node(0, 4) };
    assert_eq!(first_default(&nodes, &sites(2)).unwrap().node, NodeId::new(1));
}

#[test]
fn the_neediest_site_is_served_first() {
    let nodes = [node(0, 0), node(0, 0), node(0, 0), node(1, 8), node(2, 12), node(3, 1)];
    let mut sites = sites(4);
    let to = |sites: &[SiteView]| first_default(&nodes, sites).unwrap().to;
    assert_eq!(to(&sites), site(2), "the more loaded");
    sites[1].priority = 1;
    assert_eq!(to(&sites), site(1), "the more important");
    sites[3].floor = 2;
    assert_eq!(to(&sites), site(3), "what was guaranteed");
}

#[test]
fn a_receiver_that_can_get_none_does_not_stop_the_others() {
    let nodes = [node(0, 3), node(0, 3), node(1, 16), node(2, 12)];
    let mut sites = sites(3);
    sites[0].priority = 1;
    sites[2].priority = 2;
    sites[1].floor = 1;
    assert_eq!(first_default(&nodes, &sites).unwrap().to, site(2));
    sites[2].ceiling = 1;
    assert_eq!(first_default(&nodes, &sites), None);
}

#[test]
fn a_site_of_unknown_load_gives_nothing_unless_guaranteed() {
    let mut nodes = vec![node(0, 0), node(0, 0), node(1, 8)];
    nodes[0].load = None;
    assert_eq!(first_default(&nodes, &sites(2)), None);
    // It is not known to have been idle before its load was known.
    let known = [node(0, 0), node(0, 0), node(1, 8)];
    let mut important = sites(2);
    important[0].priority = 1;
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 3).unwrap();
    assert_eq!(planned_at(&mut reconfigurer, &nodes, &important, 0..5), []);
    assert_eq!(planned_at(&mut reconfigurer, &known, &important, 5..9), [7]);
    let mut promised = sites(2);
    promised[1].floor = 2;
    let plan = first_default(&nodes, &promised).unwrap();
    assert_eq!((plan.reason.source, plan.node), (Source::Guarantee, NodeId::new(1)), "the one that is known");
    // The edge's own requests suffice to show that a site is loaded.
    let mut blind = vec![node(0, 0), node(0, 0), node(1, 0)];
    blind[2] = NodeView { load: None, in_flight: 9, ..blind[2] };
    assert!(first_default(&blind, &sites(2)).is_some());
}

#[test]
fn where_the_origin_is_not_known_the_index_decides() {
    let with_cpu = |of: usize, permille: u16, run_queue: u16| {
        let hot =
            Hot { valid: valid::CPU | valid::RUN_QUEUE, cpu_permille: permille, run_queue, ..Hot::default() };
        NodeView { load: Some(hot), capacity: Capacity { cpus: 2.0, ..NODE }, ..node(of, 0) }
    };
    let weights = Weights { cpu: 1.0, connections: 0.0, run_queue: Some(1.0), ..Weights::SYSTEM };
    let nodes = [with_cpu(0, 100, 0), with_cpu(0, 100, 0), with_cpu(1, 1000, 12)];
    let (plan, _) =
        first(ReconfigureSettings { weights, ..ReconfigureSettings::default() }, &nodes, &sites(2)).unwrap();
    assert_eq!((plan.reason.source, plan.reason.receiver.load), (Source::Idle, Some(3.5)));
    // How busy a node is does not depend on its speed.
    let blind =
        NodeView { load: None, in_flight: 6, capacity: Capacity { speed: 2.0, ..NODE }, ..node(1, 0) };
    assert_eq!(
        first_default(&[node(0, 0), node(0, 0), blind], &sites(2)).unwrap().reason.receiver.load,
        Some(1.5)
    );
}

#[test]
fn nodes_above_the_ceiling_are_given_first() {
    let mut sites = sites(3);
    sites[0] = SiteView { ceiling: 1, priority: 5, ..sites[0] };
    let nodes = [node(0, 4), node(0, 4), node(2, 0), node(2, 0), node(1, 8)];
    assert_eq!(first_default(&nodes, &sites).unwrap().reason.source, Source::Surplus);
}

#[test]
fn server_based_reconfiguration_looks_after_its_own_site() {
    let nodes = [node(0, 0), node(0, 0), node(0, 0), node(1, 8), node(2, 6)];
    let of = |only| {
        first(
            ReconfigureSettings { only: Some(site(only)), ..ReconfigureSettings::default() },
            &nodes,
            &sites(3),
        )
    };
    assert_eq!(of(2).unwrap().0.to, site(2));
    assert_eq!(of(1).unwrap().0.to, site(1));
    assert_eq!(of(0), None);
}

#[test]
fn nodes_of_a_foreign_site_are_of_none() {
    assert_eq!(first_default(&[node(7, 0), node(7, 0), node(1, 8)], &sites(2)), None);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let settings = ReconfigureSettings::default();
    assert_eq!(settings.check(), Ok(()));
    assert!(matches!(ReconfigureSettings { low: 2.0, ..settings }.check(), Err(SettingsError::Order { .. })));
    assert!(matches!(
        ReconfigureSettings { high: f64::NAN, ..settings }.check(),
        Err(SettingsError::Figure { .. })
    ));
    assert!(matches!(
        ReconfigureSettings { sensitivity: Duration::ZERO, ..settings }.check(),
        Err(SettingsError::Zero { .. })
    ));
    let too_many = Reconfigurer::new(settings, 2, sidelong_layout::NODES_MAX + 1).unwrap_err();
    assert_eq!(too_many.to_string(), "16384 nodes: at most 16383 are possible");
}

/// A node with that many workers.
fn sized(of: usize, workers: u32, requests: u32) -> NodeView {
    let hot = Hot {
        valid: valid::ORIGIN,
        workers: workers as u16,
        busy: requests.min(workers),
        queued: requests.max(workers) - workers,
        ..Hot::default()
    };
    NodeView { load: Some(hot), capacity: Capacity { workers, ..NODE }, ..node(of, 0) }
}

/// Site 0 is idle on small nodes, site 1 has one large node and cannot spare it, site 2 is overloaded.
fn unlike() -> Vec<NodeView> {
    vec![sized(0, 2, 0), sized(0, 2, 0), sized(1, 16, 1), sized(2, 4, 20)]
}

/// The plans of a run in which each is carried out at once.
fn carried_out(nodes: &mut [NodeView], sites: &[SiteView], until_ms: u64) -> Vec<MovePlan> {
    let mut reconfigurer =
        Reconfigurer::new(ReconfigureSettings::default(), sites.len(), nodes.len()).unwrap();
    let mut plans = Vec::new();
    for at in 0..until_ms {
        if let Some(plan) = reconfigurer.step(&Snapshot { nodes, sites, standings: &[] }, ms(at)) {
            nodes[plan.node.index()].ownership = Some(Ownership::serving(plan.to, at + 2));
            plans.push(plan);
        }
    }
    plans
}

fn ways(plans: &[MovePlan]) -> Vec<(usize, Option<usize>, usize)> {
    plans.iter().map(|plan| (plan.node.index(), plan.from().map(SiteId::index), plan.to.index())).collect()
}

#[test]
fn a_better_node_comes_by_way_of_its_site() {
    let mut nodes = unlike();
    let plans = carried_out(&mut nodes, &sites(3), 6);
    assert_eq!(ways(&plans), [(0, Some(0), 1), (2, Some(1), 2)], "{plans:?}");
    assert_eq!((plans[0].reason.need, plans[0].reason.source), (Need::Stage, Source::Idle));
    assert_eq!((plans[1].reason.need, plans[1].reason.source), (Need::High, Source::Pays));
    // If the nodes are alike, the spared one goes where it is needed.
    let alike = [node(0, 0), node(0, 0), node(1, 1), node(2, 20)];
    assert_eq!(first_default(&alike, &sites(3)).unwrap().to, site(2));
}

#[test]
fn no_better_node_comes_from_where_it_is_needed_or_guaranteed() {
    let direct = |nodes: &[NodeView], sites: &[SiteView]| {
        assert_eq!(first_default(nodes, sites).unwrap().to, site(2));
    };
    let mut higher = sites(3);
    higher[1].priority = 1;
    direct(&unlike(), &higher);
    let mut full = sites(3);
    full[1].ceiling = 1;
    direct(&unlike(), &full);
    let mut busy = unlike();
    busy[2] = sized(1, 16, 8);
    direct(&busy, &sites(3));
    let mut unheard = unlike();
    unheard[2].load = None;
    direct(&unheard, &sites(3));
}

#[test]
fn a_second_move_that_is_void_is_forgotten() {
    let sites = sites(3);
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 3, 4).unwrap();
    let mut nodes = unlike();
    let step = |reconfigurer: &mut Reconfigurer, nodes: &[NodeView], at| {
        reconfigurer.step(&Snapshot { nodes, sites: &sites, standings: &[] }, ms(at))
    };
    let first = (0..3).find_map(|at| step(&mut reconfigurer, &nodes, at)).unwrap();
    assert_eq!(first.reason.need, Need::Stage);
    // It was not carried out: for a while nothing is planned for the site, and then it is as if there had been no plan.
    let again = (3..60).find_map(|at| Some((step(&mut reconfigurer, &nodes, at)?, at))).unwrap();
    assert!(again.1 >= 22 && again.0.reason.need == Need::Stage, "{again:?}");
    // It was carried out, but the load is gone by then.
    nodes[0].ownership = Some(Ownership::serving(site(1), 9));
    nodes[3] = sized(2, 4, 1);
    assert_eq!((60..120).find_map(|at| step(&mut reconfigurer, &nodes, at)), None);
}
