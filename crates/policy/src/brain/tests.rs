use sidelong_layout::{Hot, SiteId, valid};

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
            service_us: 5_000,
            ..Hot::default()
        }),
        up: true,
        capacity: Capacity { workers: 2, ..Capacity::default() },
        in_flight: 0,
    })
}

fn scan(brain: &mut Brain, nodes: [NodeView; 4], mover_is_idle: bool, at_ms: u64) -> Option<MovePlan> {
    let nodes = nodes.into_iter().map(|node| (node, Traffic::default()));
    brain.scan(nodes, [SiteSeen::default(); 2].into_iter(), mover_is_idle, ms(at_ms), 0).plan
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

#[test]
fn a_node_whose_record_ceased_is_down_and_one_never_heard_is_not() {
    let mut brain = edge();
    let mut silent = nodes();
    silent[3].load = None;
    assert_eq!(first(&mut brain, silent), None, "it may be about to start, and its site has its floor");
    let mut brain = edge();
    scan(&mut brain, nodes(), true, 0);
    let (_, plan) = (1..100).find_map(|at_ms| Some((at_ms, scan(&mut brain, silent, true, at_ms)?))).unwrap();
    assert_eq!((plan.to, plan.reason.need), (SiteId::new(1), Need::Floor));
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
