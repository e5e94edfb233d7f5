//! What no look may bring about, whatever it shows.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sidelong_layout::{Hot, NodeId, NodeState, Ownership, SiteId, valid};
use sidelong_policy::Time;
use sidelong_policy::index::Capacity;
use sidelong_policy::reconfigure::{
    MovePlan, Need, NodeView, Reconfigurer, Settings, SiteView, Snapshot, Source,
};

const SITES: usize = 4;
const NODES: usize = 10;

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn capacity(workers: u32) -> Capacity {
    Capacity { workers, ..Capacity::default() }
}

/// `requests` at a node of that many workers.
fn hot(workers: u32, requests: u32) -> Hot {
    let busy = requests.min(workers);
    Hot { valid: valid::ORIGIN, workers: workers as u16, busy, queued: requests - busy, ..Hot::default() }
}

fn any_site() -> impl Strategy<Value = SiteView> {
    let busy = proptest::bool::weighted(0.2);
    (0u16..4, 0u16..8, 0u8..3, 0u32..10, busy).prop_map(|(floor, more, priority, waiting, busy)| SiteView {
        floor,
        ceiling: floor + more,
        priority,
        waiting,
        busy,
    })
}

fn any_ownership() -> impl Strategy<Value = Option<Ownership>> {
    // Some of them of sites that are not there.
    (0u8..8, 0..SITES + 1, 0..SITES, 0u64..5).prop_map(|(state, site, next, generation)| {
        let (site, next) = (Some(SiteId::new(site)), Some(SiteId::new(next)));
        let serving = Ownership { state: NodeState::Serving, site, next: None, generation };
        match state {
            0 => None,
            1 => Some(Ownership { state: NodeState::Free, site: None, ..serving }),
            2 => Some(Ownership { state: NodeState::Draining, next, ..serving }),
            _ => Some(serving),
        }
    })
}

fn any_node() -> impl Strategy<Value = NodeView> {
    let load = option::weighted(0.9, (0u16..=valid::ALL, 0u32..40));
    (any_ownership(), load, proptest::bool::weighted(0.85), 1u32..9, 0.1f32..8.0, 0u32..10).prop_map(
        |(ownership, load, up, workers, speed, in_flight)| NodeView {
            ownership,
            load: load
                .map(|(valid, requests)| Hot { valid: valid | valid::ORIGIN, ..hot(workers, requests) }),
            up,
            capacity: Capacity { speed, ..capacity(workers) },
            in_flight,
        },
    )
}

fn any_look() -> impl Strategy<Value = (Vec<NodeView>, Vec<SiteView>)> {
    (vec(any_node(), NODES), vec(any_site(), SITES))
}

fn up(nodes: &[NodeView], site: SiteId) -> usize {
    nodes.iter().filter(|node| node.up && node.ownership.is_some_and(|word| word.serves(site))).count()
}

/// Nodes that come to `site`, as far as this one look shows.
fn incoming(nodes: &[NodeView], site: SiteId) -> usize {
    nodes.iter().filter(|node| node.up && node.ownership.is_some_and(|word| word.next == Some(site))).count()
}

fn check(plan: &MovePlan, nodes: &[NodeView], sites: &[SiteView]) -> Result<(), TestCaseError> {
    let node = &nodes[plan.node.index()];
    prop_assert!(node.up);
    prop_assert_eq!(Some(plan.expected), node.ownership);
    prop_assert_ne!(plan.expected.state, NodeState::Draining);
    prop_assert_eq!(plan.from, plan.expected.site);
    prop_assert_ne!(plan.from, Some(plan.to));
    prop_assert_eq!(plan.from.is_none(), plan.source == Source::Free);
    let receiver = &sites[plan.to.index()];
    prop_assert!(up(nodes, plan.to) + incoming(nodes, plan.to) < usize::from(receiver.ceiling));
    if let Some(from) = plan.from {
        let donor = &sites[from.index()];
        prop_assert!(up(nodes, from) > usize::from(donor.floor));
        prop_assert!(
            donor.priority <= receiver.priority
                || matches!(plan.source, Source::Idle | Source::Surplus)
                || plan.need == Need::Floor
        );
    }
    Ok(())
}

proptest! {
    /// Every plan keeps every rule, and the same looks give the same plans.
    #[test]
    fn every_plan_keeps_the_rules(looks in vec((any_look(), 0u64..4), 1..8), repeat in 1u64..5) {
        let mut reconfigurer = Reconfigurer::new(Settings::default(), SITES, NODES).unwrap();
        let mut now = 0;
        for ((nodes, sites), pause) in &looks {
            for _ in 0..repeat {
                now += pause;
                let snapshot = Snapshot { nodes, sites, standings: &[] };
                let mut twin = reconfigurer.clone();
                let plan = reconfigurer.step(&snapshot, ms(now));
                prop_assert_eq!(plan, twin.step(&snapshot, ms(now)));
                prop_assert_eq!(&reconfigurer, &twin);
                // A word that could not be read counts as it was last read: only whole looks can be checked from here.
                if let Some(plan) = plan && nodes.iter().all(|node| node.ownership.is_some()) {
                    check(&plan, nodes, sites)?;
                }
            }
        }
    }

    /// Load that was high for less than T moves nothing, but for the sites that are below their floor or have no node.
    #[test]
    fn history_is_respected(look in any_look(), history in 2u64..20) {
        let settings = Settings { history: Duration::from_millis(history), ..Settings::default() };
        let mut reconfigurer = Reconfigurer::new(settings, SITES, NODES).unwrap();
        let (nodes, sites) = &look;
        for at in 0..history {
            let plan = reconfigurer.step(&Snapshot { nodes, sites, standings: &[] }, ms(at));
            prop_assert!(plan.is_none_or(|plan| plan.need != Need::High), "{:?} at {} ms", plan, at);
        }
    }

    /// Constant work, spread evenly over the nodes that a site has: the moves come to an end.
    #[test]
    fn constant_load_reaches_a_fixed_point(
        work in vec(0u32..200, SITES),
        owners in vec(0..SITES, NODES),
        workers in vec(1u32..9, NODES),
        sites in vec(any_site(), SITES),
    ) {
        let mut owners: Vec<SiteId> = owners.into_iter().map(SiteId::new).collect();
        let sites: Vec<_> = sites.into_iter().map(|site| SiteView { waiting: 0, ..site }).collect();
        let mut reconfigurer = Reconfigurer::new(Settings::default(), SITES, NODES).unwrap();
        let mut moves = vec![];
        for at in 0..1_000 {
            let nodes = spread(&work, &owners, &workers, at);
            let mut looked = sites.clone();
            for (site, view) in looked.iter_mut().enumerate() {
                // Where nothing serves the site, its work waits at the edge.
                view.waiting = if up(&nodes, SiteId::new(site)) == 0 { work[site] } else { 0 };
            }
            if let Some(plan) = reconfigurer.step(&Snapshot { nodes: &nodes, sites: &looked, standings: &[] }, ms(at)) {
                check(&plan, &nodes, &looked)?;
                owners[plan.node.index()] = plan.to;
                moves.push((at, plan));
            }
        }
        prop_assert!(moves.len() <= NODES * SITES, "{} moves", moves.len());
        prop_assert!(moves.last().is_none_or(|(at, _)| *at < 500), "{:#?}", moves.last());
    }
}

/// A look at nodes that share the work of their sites in proportion to their workers.
fn spread(work: &[u32], owners: &[SiteId], workers: &[u32], generation: u64) -> Vec<NodeView> {
    let mut left = work.to_vec();
    let mut slots = vec![0; work.len()];
    owners.iter().zip(workers).for_each(|(site, workers)| slots[site.index()] += workers);
    owners
        .iter()
        .zip(workers)
        .map(|(site, workers)| {
            let (left, slots) = (&mut left[site.index()], &mut slots[site.index()]);
            let requests = *left * workers / *slots;
            (*left, *slots) = (*left - requests, *slots - workers);
            NodeView {
                ownership: Some(Ownership::serving(*site, generation)),
                load: Some(hot(*workers, requests)),
                up: true,
                capacity: capacity(*workers),
                in_flight: 0,
            }
        })
        .collect()
}

#[test]
fn node_ids_are_their_places() {
    let owners = [SiteId::new(0), SiteId::new(0), SiteId::new(1)];
    let nodes = spread(&[0, 20], &owners, &[4, 4, 4], 1);
    let sites = [SiteView { floor: 1, ceiling: 3, priority: 0, waiting: 0, busy: false }; 2];
    let mut reconfigurer = Reconfigurer::new(Settings::default(), 2, 3).unwrap();
    let plan = (0..5)
        .find_map(|at| reconfigurer.step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(at)));
    assert_eq!(plan.unwrap().node, NodeId::new(0));
}
