use sidelong_layout::{ByServer, Hot, SiteId, valid};

use super::*;
use crate::admission::{Promise, Target};
use crate::index::Capacity;
use crate::reconfigure::{Need, ReconfigureSettings};

const SITES: [SiteView; 2] = [SiteView { floor: 1, ceiling: 9, priority: 0, waiting: 0, busy: false }; 2];

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn reconfigurer(only: Option<SiteId>) -> Reconfigurer {
    Reconfigurer::new(ReconfigureSettings { only, ..ReconfigureSettings::default() }, 2, 4).unwrap()
}

fn edge() -> Brain {
    Brain::new(None, Decider::Edge(Box::new(reconfigurer(None))), SITES.into())
}

/// Four nodes of two workers: three serve site 0 and are idle, one serves site 1 and has requests waiting.
fn nodes() -> [NodeView; 4] {
    [0, 0, 0, 1].map(|site| NodeView {
        ownership: Some(Ownership::serving(SiteId::new(site), 1)),
        load: Some(Hot {
            valid: valid::ORIGIN,
            workers: 2,
            busy: 2 * site as u16 as u32,
            queued: 3 * site as u32,
            by_server: ByServer::service_us(5_000),
            ..Hot::default()
        }),
        up: true,
        dead: false,
        capacity: Capacity { workers: 2, ..Capacity::default() },
        in_flight: 0,
    })
}

fn scan(brain: &mut Brain, nodes: [NodeView; 4], mover_has_room: bool, at_ms: u64) -> Option<MovePlan> {
    let nodes = nodes.into_iter().map(|node| (node, Traffic::default()));
    brain.scan(nodes, [SiteSeen::default(); 2].into_iter(), mover_has_room, ms(at_ms), 0).plan
}

/// When the first move is planned.
fn first(brain: &mut Brain, nodes: [NodeView; 4]) -> Option<(u64, MovePlan)> {
    (0..5_000).find_map(|at_ms| Some((at_ms, scan(brain, nodes, true, at_ms)?)))
}

#[test]
fn it_waits_for_nodes_that_may_be_starting() {
    assert!(first(&mut edge(), nodes()).unwrap().0 < 10);
    let mut partly = nodes();
    partly[0].ownership = None;
    let (at_ms, _) = first(&mut edge(), partly).unwrap();
    assert!(u128::from(at_ms) >= SETTLE_MAX.as_millis(), "{at_ms}");
    let mut brain = edge();
    assert_eq!(scan(&mut brain, nodes(), true, 0), None);
    assert!(first(&mut brain, partly).is_some_and(|(at_ms, _)| at_ms < 10), "it has seen all before");
}

#[test]
fn a_plan_made_while_the_mover_is_busy_is_dropped_and_made_again() {
    let mut brain = edge();
    assert!((0..100).all(|at_ms| scan(&mut brain, nodes(), false, at_ms).is_none()));
    let again = (100..200).find_map(|at_ms| scan(&mut brain, nodes(), true, at_ms)).unwrap();
    assert_eq!((again.to, again.reason.need), (SiteId::new(1), Need::High));
}

/// When `seen` makes it move a node to site 1, whose only node works at first.
fn floor_at(brain: &mut Brain, seen: impl Fn(u64) -> [NodeView; 4]) -> Option<u64> {
    scan(brain, calm(), true, 0);
    (1..5_000).find(|at_ms| {
        let plan = scan(brain, seen(*at_ms), true, *at_ms);
        plan.is_some_and(|plan| (plan.to, plan.reason.need) == (SiteId::new(1), Need::Floor))
    })
}

/// The nodes, without load.
fn calm() -> [NodeView; 4] {
    nodes().map(|node| NodeView { load: node.load.map(|hot| Hot { busy: 0, queued: 0, ..hot }), ..node })
}

fn last(change: impl FnOnce(&mut NodeView)) -> [NodeView; 4] {
    let mut nodes = calm();
    change(&mut nodes[3]);
    nodes
}

const SUSPECT_MS: u64 = SUSPECT_FOR.as_millis() as u64;

#[test]
fn a_node_whose_record_ceased_is_dead_in_the_end_and_one_never_heard_is_not() {
    let silent = || last(|node| node.load = None);
    let never = (0..5_000).find_map(|at_ms| scan(&mut edge(), silent(), true, at_ms));
    assert_eq!(never, None, "it may be about to start, and its site has its floor");
    assert_eq!(floor_at(&mut edge(), |_| silent()), Some(1 + SUSPECT_MS));
}

#[test]
fn a_record_that_is_late_moves_nothing() {
    // Again and again, with one scan on time in between.
    let late = |at_ms| if at_ms % SUSPECT_MS == 0 { calm() } else { last(|node| node.load = None) };
    assert_eq!(floor_at(&mut edge(), late), None);
}

#[test]
fn a_request_that_failed_moves_nothing_until_the_node_has_failed_again() {
    let failed = |node: &mut NodeView| node.up = false;
    assert_eq!(floor_at(&mut edge(), |_| last(failed)), None, "no request has tried it since");
    let again = |node: &mut NodeView| (node.up, node.dead) = (false, true);
    let at_ms = floor_at(&mut edge(), |at_ms| if at_ms < 50 { last(failed) } else { last(again) });
    assert_eq!(at_ms, Some(50 + SUSPECT_MS));
    let recovers = |at_ms| if at_ms % SUSPECT_MS < 9 { calm() } else { last(again) };
    assert_eq!(floor_at(&mut edge(), recovers), None);
}

#[test]
fn an_agent_that_is_silent_does_not_make_its_server_dead() {
    let foreign = || edge().with_nodes(&[false, false, false, true].into_iter().collect());
    let silent = |node: &mut NodeView| (node.up, node.load) = (true, None);
    assert_eq!(floor_at(&mut foreign(), |_| last(silent)), None);
    let refusing = |node: &mut NodeView| (node.up, node.dead, node.load) = (false, true, None);
    assert_eq!(floor_at(&mut foreign(), |_| last(refusing)), Some(1 + SUSPECT_MS));
}

#[test]
fn a_node_decides_for_the_site_that_it_serves() {
    let all = |node| {
        let sites = [0, 1].map(|site| reconfigurer(Some(SiteId::new(site))));
        Brain::new(None, Decider::Node(NodeId::new(node), sites.into()), SITES.into())
    };
    assert_eq!(first(&mut all(0), nodes()), None, "its site needs nothing");
    assert_eq!(first(&mut all(3), nodes()).map(|(_, plan)| plan.to), Some(SiteId::new(1)));
}

#[test]
fn admission_is_decided_beside_moves_and_without_any() {
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(1))), share: 0.0 };
    let controller =
        || Controller::new(admission::AdmissionSettings::default(), vec![promise; 2], 4).unwrap();
    let mut brain = Brain::new(Some(controller()), Decider::Nobody, SITES.into());
    let seen = nodes().into_iter().map(|node| (node, Traffic::default()));
    let decisions = brain.scan(seen, [SiteSeen::default(); 2].into_iter(), true, ms(1), 0);
    let admitted: Vec<_> = decisions.outlooks.iter().map(|outlook| outlook.verdict.admitted()).collect();
    assert_eq!((decisions.plan, admitted[0]), (None, 1.0));
    assert!(admitted[1] < 1.0, "{admitted:?}");
    assert!(brain.decides() && !brain.plans_moves());
    assert!(!Brain::new(None, Decider::Nobody, SITES.into()).decides());
}
