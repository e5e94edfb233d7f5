//! What no scan may cause, whatever it shows.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sidelong_layout::{Hot, NodeId, NodeState, Ownership, SiteId, valid};
use sidelong_policy::Time;
use sidelong_policy::cluster::{NodeView, SiteView, Snapshot, Standing};
use sidelong_policy::index::Capacity;
use sidelong_policy::reconfigure::{MovePlan, Need, ReconfigureSettings, Reconfigurer, Source};

const SITES: usize = 4;
const NODES: usize = 10;

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn capacity(workers: u32) -> Capacity {
    Capacity { workers, ..Capacity::default() }
}

/// `requests` at a node with that many workers.
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
    // Some of them belong to sites that do not exist.
    (0u8..12, 0..SITES + 1, 0..SITES, 0u64..5).prop_map(|(state, site, next, generation)| {
        let (site, next) = (Some(SiteId::new(site)), Some(SiteId::new(next)));
        let serving = Ownership { state: NodeState::Serving, site, next: None, generation };
        match state {
            0 => None,
            1 => Some(Ownership { state: NodeState::Free, site: None, ..serving }),
            2 => Some(Ownership { state: NodeState::Draining, next, ..serving }),
            3 => Some(Ownership { state: NodeState::Draining, ..serving }),
            4 => Some(Ownership { state: NodeState::Held, ..serving }),
            5 => Some(Ownership { state: NodeState::Pinned, ..serving }),
            _ => Some(serving),
        }
    })
}

fn any_node() -> impl Strategy<Value = NodeView> {
    let load = option::weighted(0.9, (0u16..=valid::ALL, 0u32..40));
    let life = prop_oneof![17 => Just((true, false)), 1 => Just((false, false)), 2 => Just((false, true))];
    (any_ownership(), load, life, 1u32..9, 0.1f32..8.0, 0u32..10).prop_map(
        |(ownership, load, (up, dead), workers, speed, in_flight)| NodeView {
            ownership,
            load: load
                .map(|(valid, requests)| Hot { valid: valid | valid::ORIGIN, ..hot(workers, requests) }),
            up,
            dead,
            capacity: Capacity { speed, ..capacity(workers) },
            in_flight,
        },
    )
}

fn any_standing() -> impl Strategy<Value = Standing> {
    (option::of(0.0..2.0), 0.001..1.0f64, 0.0..0.4).prop_map(|(strain, admitted, share)| Standing {
        strain,
        // Half of them admit all requests.
        admitted: (admitted * 2.0).min(1.0),
        share: f64::max(0.0, share - 0.2),
    })
}

type Look = (Vec<NodeView>, Vec<SiteView>, Vec<Standing>);

fn any_look() -> impl Strategy<Value = Look> {
    let standings = prop_oneof![Just(Vec::new()), vec(any_standing(), SITES)];
    (vec(any_node(), NODES), vec(any_site(), SITES), standings)
}

fn up(nodes: &[NodeView], site: SiteId) -> usize {
    nodes.iter().filter(|node| node.up && node.ownership.is_some_and(|word| word.serves(site))).count()
}

/// Nodes that serve `site` or are on their way to it, as far as this one scan shows.
fn coming(nodes: &[NodeView], site: SiteId) -> usize {
    let comes = |word: Ownership| word.serves(site) || word.next == Some(site);
    nodes.iter().filter(|node| !node.dead && node.ownership.is_some_and(comes)).count()
}

/// The capacity of the nodes that are not dead, of those for which `counts` holds.
fn rate(nodes: &[NodeView], counts: impl Fn(Ownership) -> bool) -> f64 {
    let up = nodes.iter().filter(|node| !node.dead && node.ownership.is_some_and(&counts));
    up.map(|node| f64::from(node.capacity.workers) * f64::from(node.capacity.speed)).sum()
}

fn check(plan: &MovePlan, (nodes, sites, standings): &Look) -> Result<(), TestCaseError> {
    let node = &nodes[plan.node.index()];
    prop_assert!(node.up);
    prop_assert_eq!(Some(plan.expected), node.ownership);
    prop_assert!(matches!(plan.expected.state, NodeState::Serving | NodeState::Free));
    prop_assert_eq!(plan.from(), plan.expected.site);
    prop_assert_ne!(plan.from(), Some(plan.to));
    prop_assert_eq!(plan.from().is_none(), plan.reason.source == Source::Free);
    let receiver = &sites[plan.to.index()];
    prop_assert!(coming(nodes, plan.to) < usize::from(receiver.ceiling));
    if let Some(from) = plan.from() {
        let donor = &sites[from.index()];
        prop_assert!(up(nodes, from) > usize::from(donor.floor));
        prop_assert!(
            donor.priority <= receiver.priority
                || matches!(plan.reason.source, Source::Idle | Source::Surplus)
                || plan.reason.need == Need::Floor
        );
        let share = standings.get(from.index()).map_or(0.0, |standing| standing.share);
        if share > 0.0 && !matches!(plan.reason.source, Source::Surplus | Source::Guarantee) {
            let (alone, pool) = (std::slice::from_ref(node), rate(nodes, |own| own.state != NodeState::Held));
            let is_of = |own: Ownership| own.serves(from) || own.next == Some(from);
            let kept = rate(nodes, is_of) - rate(alone, |_| true);
            prop_assert!(kept >= share * pool * 0.999, "{} of {}", kept, pool);
        }
    }
    Ok(())
}

proptest! {
    /// Every plan keeps every rule, and the same scans give the same plans.
    #[test]
    fn every_plan_keeps_the_rules(looks in vec((any_look(), 0u64..4), 1..8), repeat in 1u64..5) {
        let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), SITES, NODES).unwrap();
        let mut now = 0;
        for (look, pause) in &looks {
            let (nodes, sites, standings) = look;
            for _ in 0..repeat {
                now += pause;
                let snapshot = Snapshot { nodes, sites, standings };
                let mut twin = reconfigurer.clone();
                let plan = reconfigurer.step(&snapshot, ms(now));
                prop_assert_eq!(plan, twin.step(&snapshot, ms(now)));
                prop_assert_eq!(&reconfigurer, &twin);
                // A word that could not be read counts as last read, so only complete scans can be checked from here.
                if let Some(plan) = plan && nodes.iter().all(|node| node.ownership.is_some()) {
                    check(&plan, look)?;
                }
            }
        }
    }

    /// A load that was high for less than T moves nothing, except for sites that are below their floor or have no node.
    #[test]
    fn history_is_respected(look in any_look(), history in 2u64..20) {
        let settings = ReconfigureSettings { history: Duration::from_millis(history), ..ReconfigureSettings::default() };
        let mut reconfigurer = Reconfigurer::new(settings, SITES, NODES).unwrap();
        let (nodes, sites, standings) = &look;
        for at in 0..history {
            let plan = reconfigurer.step(&Snapshot { nodes, sites, standings }, ms(at));
            prop_assert!(plan.is_none_or(|plan| plan.reason.need != Need::High), "{:?} at {} ms", plan, at);
        }
    }

    /// Under constant work, spread evenly over each site's nodes, the moves come to an end.
    #[test]
    fn constant_load_reaches_a_fixed_point(
        work in vec(0u32..200, SITES),
        owners in vec(0..SITES, NODES),
        workers in vec(1u32..9, NODES),
        sites in vec(any_site(), SITES),
        promised in vec(any::<bool>(), SITES),
    ) {
        let moves = at_constant_load(&work, owners, &workers, &sites, &promised)?;
        prop_assert!(moves.len() <= NODES * SITES, "{} moves", moves.len());
        prop_assert!(moves.last().is_none_or(|(at, _)| *at < 500), "{:#?}", moves.last());
    }

    /// Equals with targets, none of them below its floor, never trade a node back and forth either.
    #[test]
    fn at_constant_load_equals_do_not_trade(
        work in vec(0u32..60, SITES),
        owners in vec(0..SITES, NODES - SITES),
        workers in vec(1u32..9, NODES),
    ) {
        let owners = (0..SITES).chain(owners).collect();
        let equal = SiteView { floor: 1, ceiling: 99, priority: 0, waiting: 0, busy: false };
        let moves = at_constant_load(&work, owners, &workers, &[equal; SITES], &[true; SITES])?;
        // The first of two staged moves goes to a site that need not want the node.
        let wanted: Vec<_> = moves.iter().filter(|(_, plan)| plan.reason.need != Need::Stage).collect();
        for (at, plan) in &wanted {
            let is_back = |other: &MovePlan| (other.from(), Some(other.to)) == (Some(plan.to), plan.from());
            prop_assert!(!wanted.iter().any(|(_, other)| is_back(other)), "{:?} at {}: {:#?}", plan, at, moves);
        }
    }
}

/// The moves within a second of load `work` for each site, and their times. Edges reject what the nodes of a site with
/// a target cannot do.
fn at_constant_load(
    work: &[u32],
    owners: Vec<usize>,
    workers: &[u32],
    sites: &[SiteView],
    promised: &[bool],
) -> Result<Vec<(u64, MovePlan)>, TestCaseError> {
    let mut owners: Vec<SiteId> = owners.into_iter().map(SiteId::new).collect();
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), SITES, NODES).unwrap();
    let mut moves = vec![];
    for at in 0..1_000 {
        let slots = |site: usize| -> u32 {
            let of_site = owners.iter().zip(workers).filter(|(owner, _)| owner.index() == site);
            of_site.map(|(_, workers)| workers).sum()
        };
        let (mut done, mut sites, mut standings) = (vec![], sites.to_vec(), vec![]);
        for (site, view) in sites.iter_mut().enumerate() {
            let (work, slots) = (work[site], slots(site));
            // If no node serves the site, its work waits at the edge.
            view.waiting = if slots == 0 { work } else { 0 };
            let is_guarded = promised[site] && slots > 0;
            done.push(if is_guarded { work.min(slots) } else { work });
            let offered = f64::from(work) / f64::from(slots.max(1));
            standings.push(Standing {
                // As short a queue as random arrivals have.
                strain: is_guarded.then(|| (offered.min(1.0) / 2.0).powi(2)),
                admitted: if is_guarded { offered.max(1.0).recip() } else { 1.0 },
                share: 0.0,
            });
        }
        let look = (spread(&done, &owners, workers, at), sites, standings);
        let snapshot = Snapshot { nodes: &look.0, sites: &look.1, standings: &look.2 };
        if let Some(plan) = reconfigurer.step(&snapshot, ms(at)) {
            check(&plan, &look)?;
            owners[plan.node.index()] = plan.to;
            moves.push((at, plan));
        }
    }
    Ok(moves)
}

/// A scan of nodes that share their sites' work in proportion to their workers.
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
                dead: false,
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
    let mut reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), 2, 3).unwrap();
    let plan = (0..5)
        .find_map(|at| reconfigurer.step(&Snapshot { nodes: &nodes, sites: &sites, standings: &[] }, ms(at)));
    assert_eq!(plan.unwrap().node, NodeId::new(0));
}
