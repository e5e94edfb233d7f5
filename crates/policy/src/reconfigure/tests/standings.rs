//! Moves that depend on targets.

use super::*;
use crate::cluster::Standing;

/// A site with that part of its budget waiting, and all clients admitted.
fn strained(strain: f64) -> Standing {
    Standing { strain: Some(strain), ..Standing::default() }
}

/// A site with a short queue, and only a part of its clients admitted.
fn rejecting(admitted: f64) -> Standing {
    Standing { strain: Some(0.1), admitted, share: 0.0 }
}

/// The first plan while nothing changes.
fn plan(nodes: &[NodeView], sites: &[SiteView], standings: &[Standing]) -> Option<MovePlan> {
    let mut reconfigurer =
        Reconfigurer::new(ReconfigureSettings::default(), sites.len(), nodes.len()).unwrap();
    (0..50).find_map(|at| reconfigurer.step(&Snapshot { nodes, sites, standings }, ms(at)))
}

/// Of two sites, the second more important.
fn ranked() -> Vec<SiteView> {
    let mut sites = sites(2);
    sites[1].priority = 1;
    sites
}

#[test]
fn a_site_asks_while_its_edge_still_lets_in_all() {
    let nodes = [node(0, 4), node(0, 4), node(1, 3)];
    let ask = |strain: f64| plan(&nodes, &ranked(), &[strained(0.0), strained(strain)]);
    assert_eq!(ask(0.19), None);
    let asked = ask(0.2).unwrap();
    assert_eq!(
        (asked.to, asked.reason.need, asked.reason.source),
        (site(1), Need::High, Source::LowerPriority)
    );
    // By load alone there would be no move: enough workers are free.
    assert_eq!(first_default(&nodes, &ranked()), None);
}

#[test]
fn what_is_rejected_keeps_the_need_visible() {
    // There is no queue, because half of the clients are rejected.
    let nodes = [node(0, 0), node(0, 0), node(1, 4)];
    assert_eq!(first_default(&nodes, &sites(2)), None);
    let plan = plan(&nodes, &sites(2), &[strained(0.0), rejecting(0.5)]).unwrap();
    assert_eq!((plan.to, plan.reason.source), (site(1), Source::Idle));
}

#[test]
fn a_node_that_came_stays_through_quiet_moments() {
    let sites = sites(2);
    let standings = [strained(0.0), strained(0.0)];
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    // Site 1 has two nodes and keeps 5 of 8 workers busy on average, but now and then none for 6 ms.
    let busy = [node(0, 3), node(0, 3), node(1, 3), node(1, 2)];
    let quiet = [node(0, 5), node(0, 5), node(1, 0), node(1, 0)];
    let wanted = [strained(0.5), strained(0.0)];
    for at in 0..1_000 {
        let (nodes, standings) = if at % 50 >= 44 { (&quiet, &wanted) } else { (&busy, &standings) };
        let planned = reconfigurer.step(&Snapshot { nodes, sites: &sites, standings }, ms(at));
        assert_eq!(planned, None, "at {at} ms");
    }
    // By load alone its node moves at the first such pause.
    let mut by_load = Reconfigurer::new(ReconfigureSettings::default(), 2, 4).unwrap();
    let given = (0..50).find_map(|at| {
        let nodes = if at % 50 >= 44 { &quiet } else { &busy };
        by_load.step(&Snapshot { nodes, sites: &sites, standings: &[] }, ms(at))
    });
    assert_eq!(given.map(|plan| plan.to), Some(site(0)));
    // Once it stays idle, the node moves.
    let snapshot = Snapshot { nodes: &quiet, sites: &sites, standings: &wanted };
    let given = (1_000..1_500).find_map(|at| reconfigurer.step(&snapshot, ms(at)));
    assert_eq!(given.map(|plan| plan.to), Some(site(0)));
}

#[test]
fn an_equal_gives_what_leaves_its_own_target_in_no_danger() {
    // 8 of 12 workers minus one node is 8 of 8; 5 of 12 would be 5 of 8.
    let nodes = |donor: [u32; 3]| [node(0, donor[0]), node(0, donor[1]), node(0, donor[2]), node(1, 4)];
    let standings = [strained(0.05), rejecting(0.5)];
    assert_eq!(plan(&nodes([3, 3, 2]), &sites(2), &standings), None);
    let given = plan(&nodes([2, 2, 1]), &sites(2), &standings).unwrap();
    assert_eq!((given.reason.source, given.to), (Source::Pays, site(1)));
    // By load alone the busy site loses a node too, as soon as the other has a queue.
    let queued = [node(0, 3), node(0, 3), node(0, 2), node(1, 16)];
    assert!(first_default(&queued, &sites(2)).is_some());
    assert_eq!(plan(&queued, &sites(2), &standings), None);
    // It gives none either if its queue, on fewer nodes, would approach its budget.
    assert_eq!(plan(&nodes([2, 2, 1]), &sites(2), &[strained(0.15), rejecting(0.5)]), None);
    // A site without a target can also spare nodes, or not.
    let unpromised = [Standing::default(), rejecting(0.5)];
    assert_eq!(plan(&nodes([3, 3, 2]), &sites(2), &unpromised), None);
    assert!(plan(&nodes([2, 2, 1]), &sites(2), &unpromised).is_some());
}

#[test]
fn an_equal_gives_to_who_is_full_not_to_who_has_a_queue_for_a_moment() {
    let nodes = [node(0, 2), node(0, 2), node(0, 1), node(1, 2)];
    assert_eq!(plan(&nodes, &sites(2), &[strained(0.0), strained(0.3)]), None);
    assert!(plan(&nodes, &sites(2), &[strained(0.0), rejecting(0.5)]).is_some());
}

#[test]
fn an_important_site_takes_down_to_floor_and_share() {
    let nodes = [node(0, 8), node(0, 8), node(0, 8), node(1, 8)];
    let with_share = |share: f64| [Standing { share, ..rejecting(0.4) }, rejecting(0.4)];
    assert!(plan(&nodes, &ranked(), &with_share(0.5)).is_some());
    assert_eq!(plan(&nodes, &ranked(), &with_share(0.75)), None, "three of four are its own");
    let mut at_floor = ranked();
    at_floor[0].floor = 3;
    assert_eq!(plan(&nodes, &at_floor, &with_share(0.0)), None);
    // Idle nodes are not lent either, except to a site below its floor.
    let idle = [node(0, 0), node(0, 0), node(0, 0), node(1, 8)];
    assert_eq!(plan(&idle, &ranked(), &with_share(0.75)), None);
    let mut below = ranked();
    below[1].floor = 2;
    assert_eq!(plan(&idle, &below, &with_share(0.75)).unwrap().reason.need, Need::Floor);
}

#[test]
fn the_less_important_site_gets_only_what_the_other_has_no_use_for() {
    let mut sites = sites(2);
    sites[0].priority = 1;
    let wanted = [strained(0.0), rejecting(0.1)];
    // 6 of 12 workers would be 6 of 8; 3 would be 3 of 8.
    assert_eq!(plan(&[node(0, 2), node(0, 2), node(0, 2), node(1, 4)], &sites, &wanted), None);
    let spared = plan(&[node(0, 1), node(0, 1), node(0, 1), node(1, 4)], &sites, &wanted).unwrap();
    assert_eq!(spared.reason.source, Source::Idle);
}

#[test]
fn of_two_that_turn_work_away_the_one_that_turns_away_more_is_first() {
    let nodes = [node(0, 0), node(0, 0), node(1, 6), node(2, 5)];
    let standings = [strained(0.0), rejecting(0.8), rejecting(0.2)];
    assert_eq!(plan(&nodes, &sites(3), &standings).unwrap().to, site(2));
}

#[test]
fn a_better_node_comes_by_way_of_a_site_whose_target_holds() {
    let mut nodes = unlike();
    let standings = [strained(0.0), strained(0.0), rejecting(0.3)];
    let staged = plan(&nodes, &sites(3), &standings).unwrap();
    assert_eq!((staged.reason.need, staged.to), (Need::Stage, site(1)));
    // One to which others send requests stays.
    let mut shared = unlike();
    for node in &mut shared[2..] {
        let hot = node.load.unwrap();
        node.load = Some(Hot { valid: hot.valid | valid::SHARED, ..hot });
    }
    assert_eq!(plan(&shared, &sites(3), &standings).unwrap().reason.need, Need::High);
    // What it would get for the better node, a quarter of its workers, is too little for 3 of them.
    nodes[2] = sized(1, 16, 3);
    let unlike = [sized(0, 2, 0), sized(0, 2, 0), nodes[2], nodes[3]];
    assert_eq!(plan(&unlike, &sites(3), &standings).unwrap().reason.need, Need::High);
    assert_eq!(first_default(&unlike, &sites(3)).map(|plan| plan.reason.need), Some(Need::High));
}
