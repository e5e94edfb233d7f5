use sidelong_policy::index::{Capacity, Weights};

use super::*;

const SITE: SiteId = SiteId::new(0);
const OTHER: SiteId = SiteId::new(1);

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

/// Four nodes, the first three of which serve `SITE`, scanned 1 ms ago.
fn view() -> View {
    let view =
        View::new(4, 2, Duration::from_millis(200), Balance::Weighted, health::HealthSettings::default());
    for node in view.nodes() {
        let site = if node.index() < 3 { SITE } else { OTHER };
        view.observe(node, Some(Ownership::serving(site, 1)), Reading::default());
    }
    view.relist();
    view.refreshed(ms(9));
    view
}

#[test]
fn a_node_that_fails_counts_as_busy_for_as_long_as_others_take_to_answer() {
    let view = view();
    let failing = NodeId::new(2);
    let idle = Weights::CONNECTIONS.read(None, &Capacity::default(), 0);
    for node in 0..3 {
        view.observe(NodeId::new(node), Some(Ownership::serving(SITE, 1)), idle);
    }
    view.answered(NodeId::new(0), ms(9), Duration::from_millis(20));
    (0..3).for_each(|_| view.erred(SITE, failing, ms(10)));
    let chosen = |at_ms| {
        let one = view.choose(SITE, None, ms(at_ms)).unwrap();
        view.release(one);
        one
    };
    assert!((0..9).all(|_| chosen(10) != failing));
    assert!((0..9).any(|_| chosen(150) == failing));
}

#[test]
fn the_route_follows_the_ownership_word() {
    let view = view();
    let moved = NodeId::new(3);
    for _ in 0..9 {
        let node = view.choose(SITE, None, ms(10)).unwrap();
        assert_ne!(node, moved);
        view.release(node);
    }
    assert!(view.observe(moved, Some(Ownership::serving(SITE, 3)), Reading::default()));
    view.relist();
    assert!((0..4).any(|_| view.choose(SITE, None, ms(10)) == Some(moved)));
    assert_eq!(view.take_first_request(moved), Some(ms(10)));
    assert_eq!(view.take_first_request(moved), None);
    assert_eq!(view.choose(OTHER, None, ms(10)), None);
}

#[test]
fn a_node_that_left_is_not_chosen_even_before_the_lists_are_made_anew() {
    let view = view();
    let leaving = Ownership::serving(SITE, 1).draining_to(Some(OTHER));
    view.observe(NodeId::new(0), leaving, Reading::default());
    assert!((0..9).all(|_| view.choose(SITE, None, ms(10)) != Some(NodeId::new(0))));
}

#[test]
fn requests_of_the_site_that_a_node_leaves_are_cut_in_the_end() {
    let view = view().cutting(Duration::from_millis(500), [true, false].into_iter());
    let (node, old) = (NodeId::new(0), Ownership::serving(SITE, 1));
    let show = |ownership: Ownership, at| {
        view.date_cut(node, Some(ownership), ms(at));
        view.observe(node, Some(ownership), Reading::default());
    };
    let cut_in = |site, at| view.cut_in(node, site, || ms(at));
    let ms_of = |ms| Some(Duration::from_millis(ms));
    assert_eq!((cut_in(SITE, 10), cut_in(OTHER, 10)), (Some(Duration::MAX), None));
    let leaving = old.draining_to(Some(OTHER)).unwrap();
    show(leaving, 20);
    show(leaving, 300);
    assert_eq!([cut_in(SITE, 30), cut_in(SITE, 520)], [ms_of(490), ms_of(0)]);
    // It is back, and leaves again.
    let back = leaving.now(NodeState::Serving, SITE);
    show(back, 600);
    assert_eq!(cut_in(SITE, 600), Some(Duration::MAX));
    show(back.draining_to(Some(OTHER)).unwrap(), 700);
    assert_eq!(cut_in(SITE, 700), ms_of(500));
    // By then a request is the new site's.
    show(leaving.now_serving(OTHER), 2_000);
    assert_eq!((cut_in(SITE, 2_000), cut_in(OTHER, 2_000)), (Some(Duration::MAX), None));
}

#[test]
fn requests_spread_by_what_is_in_flight() {
    let view = view();
    let mut chosen: Vec<_> = (0..3).map(|_| view.choose(SITE, None, ms(10)).unwrap().index()).collect();
    chosen.sort_unstable();
    assert_eq!(chosen, [0, 1, 2]);
}

#[test]
fn by_the_last_look_all_go_to_whoever_looked_best_then() {
    let view = View { balance: Balance::LastLook, ..view() };
    let busy = Weights::CONNECTIONS.read(None, &Capacity::default(), 1);
    for node in [0, 2].map(NodeId::new) {
        view.observe(node, Some(Ownership::serving(SITE, 1)), busy);
    }
    assert!((0..9).all(|_| view.choose(SITE, None, ms(10)) == Some(NodeId::new(1))));
}

#[test]
fn an_old_view_still_routes_by_what_the_edge_knows_itself() {
    let view = view();
    let late = ms(10_000);
    assert!(view.is_stale(late));
    let first = view.choose(SITE, None, late).unwrap();
    assert_ne!(view.choose(SITE, None, late), Some(first));
}

#[test]
fn a_failed_node_is_out_until_one_request_has_tried_it() {
    let view = view();
    let failed = NodeId::new(1);
    view.on_failure(failed, ms(10), Failure::Refused);
    assert!((0..9).all(|_| view.choose(SITE, None, ms(11)) != Some(failed)));
    let later = ms(100);
    let tries = (0..30).filter(|_| view.choose(SITE, None, later) == Some(failed)).count();
    assert_eq!(tries, 1);
    view.on_success(failed);
    assert!((0..30).any(|_| view.choose(SITE, None, later) == Some(failed)));
}

#[test]
fn the_retry_of_a_request_is_no_trial() {
    let view = view();
    let [failed, tried] = [0, 1].map(NodeId::new);
    view.on_failure(failed, ms(10), Failure::Refused);
    let later = ms(100);
    assert!((0..30).all(|_| view.choose(SITE, Some(tried), later) == Some(NodeId::new(2))));
    assert!((0..30).any(|_| view.choose(SITE, None, later) == Some(failed)));
}

/// As one bad request after another takes them out.
#[test]
fn a_site_whose_nodes_are_all_out_for_failures_of_requests_uses_them_all_the_same() {
    let view = view();
    let members = [0, 1, 2].map(NodeId::new);
    for node in members {
        (0..3).for_each(|_| view.on_failure(node, ms(10), Failure::Request(None)));
    }
    assert!(members.iter().all(|node| !view.is_up(*node, ms(11)) && view.is_proven(*node, ms(11))));
    assert!((0..9).all(|_| view.choose(SITE, None, ms(11)).is_some()));
    assert_ne!(view.choose(SITE, Some(members[0]), ms(11)), Some(members[0]));
    view.on_failure(members[0], ms(11), Failure::Refused);
    assert!((0..9).all(|_| view.choose(SITE, None, ms(12)) != Some(members[0])), "it refuses connections");
    view.on_success(members[1]);
    assert!((0..9).all(|_| view.choose(SITE, None, ms(12)) == Some(members[1])), "it has answered");
}

#[test]
fn what_other_edges_have_counts_until_they_are_not_heard() {
    let view = View { balance: Balance::LeastConnections, ..view() };
    let [first, second, third] = [0, 1, 2].map(NodeId::new);
    view.hear(first, 5, 7);
    view.hear(second, 3, 0);
    view.heard(ms(1_000));
    view.refreshed(ms(1_000));
    for _ in 0..3 {
        assert_eq!(view.choose(SITE, None, ms(1_001)), Some(third));
        view.waits(third);
    }
    assert_eq!(view.traffic(first, ms(1_001)), Traffic { in_flight: 5, answers: 7, up: true });
    view.waited(third);
    view.answered(third, ms(1_001), Duration::from_millis(1));
    assert_eq!(view.share(third), NodeShare { in_flight: 2, answers: 1 });
    assert_eq!((view.in_flight(third), view.traffic(third, ms(1_001)).in_flight), (3, 2));
    // Left out in the end, because they may no longer exist.
    assert_eq!(view.traffic(first, ms(1_300)), Traffic { in_flight: 0, answers: 7, up: true });
    assert_ne!(view.choose(SITE, None, ms(1_300)), Some(third));
}

#[test]
fn by_the_answers_seen_a_slow_node_is_left_alone_while_another_is_faster() {
    let view = View { balance: Balance::Ewma, ..view() };
    for (node, took) in [(0, 1), (1, 40), (2, 1)] {
        view.answered(NodeId::new(node), ms(9), Duration::from_millis(took));
    }
    for _ in 0..30 {
        let node = view.choose(SITE, None, ms(10)).unwrap();
        assert_ne!(node, NodeId::new(1));
        view.release(node);
    }
}

#[test]
fn a_retry_goes_elsewhere() {
    let view = view();
    let first = view.choose(SITE, None, ms(10)).unwrap();
    assert!((0..9).all(|_| view.choose(SITE, Some(first), ms(10)) != Some(first)));
}
