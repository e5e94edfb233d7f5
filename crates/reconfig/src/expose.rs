//! The regions that hold a cluster's words, by name, and their first contents.

use std::sync::atomic::Ordering;

use sidelong_fabric::{Access, Error, Host, Region, RegionSpec};
use sidelong_layout::{
    BoardMap, Budget, FrontMap, Instance, NodeId, NodeState, Ownership, RegionKind, SEQUENCE_MAX, SiteId,
    WORDS_BYTES, WORDS_OWNERSHIP,
};

/// The name of the board's region, which was handed to another node in the epoch `term`, if that is not 0. Parts with other cluster files have another board: they
/// number sites and movers otherwise.
pub fn board_region(cluster: u64, term: u64) -> String {
    match term {
        0 => format!("board-{cluster:016x}"),
        _ => format!("board-{cluster:016x}-{term}"),
    }
}

/// The name of the region with a node's load record and acknowledgement.
pub fn load_region(node: &str) -> String {
    format!("{node}.load")
}

/// The name of the region with a node's ownership word.
pub fn words_region(node: &str) -> String {
    format!("{node}.words")
}

/// The name of the region in which a front states what it has seen and sent.
pub fn front_region(front: &str) -> String {
    format!("{front}.front")
}

/// The board of a cluster with that many sites and lock owners.
pub const fn board_map(sites: usize, owners: usize) -> BoardMap {
    BoardMap { sites, edges: owners }
}

/// What a site starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoardInit {
    /// Guaranteed nodes.
    pub floor: u16,
    /// Nodes that serve it, if it is known that none has moved; otherwise 0.
    pub nodes: u16,
}

/// Exposes the board of that term, with the first contents of its first `sites`, and the epoch of the newest roster, or finds it if another process
/// of the machine has exposed it already. Over shared memory it has no owner and outlives every process. On other fabrics it belongs to the
/// calling process, and is lost with it.
///
/// If it is unknown whether the nodes are still at their configured sites, budgets start at no node at all, which the
/// first mover repairs after two leases. They start at a generation above any that an earlier board can have reached
/// (the incarnation, as in [`expose_words`]). A budget that is too low only delays a move; one that is too high would take a
/// site below its floor.
///
/// # Errors
/// If memory cannot be allocated, or a board of another layout is in use.
pub fn expose_board(
    host: &Host,
    map: BoardMap,
    sites: &[BoardInit],
    (term, epoch): (u64, u64),
    instance: Instance,
) -> Result<Region, Error> {
    let spec = RegionSpec {
        name: &board_region(instance.cluster, term),
        kind: RegionKind::Board,
        len: map.len(),
        access: Access::Atomic,
        instance,
    };
    let init = |words: &mut [u64]| {
        words[BoardMap::EPOCH / 8] = epoch;
        for (slot, site) in sites.iter().enumerate() {
            let budget = Budget { floor: site.floor, current: site.nodes, generation: instance.incarnation };
            words[map.budget(SiteId::new(slot)) / 8] = budget.encode();
        }
    };
    match host {
        Host::Shm(host) => host.expose_common(&spec, init),
        host => host.expose(&spec, init),
    }
}

/// Exposes what the front of that name states about each of `nodes` nodes: at first, that it has seen none.
///
/// # Errors
/// If memory cannot be allocated, or a live process has the front's name.
pub fn expose_front(host: &Host, front: &str, nodes: usize, instance: Instance) -> Result<Region, Error> {
    let map = FrontMap { nodes };
    let (name, kind, access) = (&front_region(front), RegionKind::Front, Access::ReadOnly);
    let spec = RegionSpec { name, kind, len: map.len(), access, instance };
    let region = host.expose(&spec, |_| ())?;
    // Memory that outlived an earlier life has its words.
    for node in 0..nodes {
        region.store(map.node(NodeId::new(node)), 0, Ordering::Release);
    }
    Ok(region)
}

/// Exposes a node's ownership word: as an earlier life of the node left it, if the memory outlived that, otherwise
/// serving `site`.
///
/// Generations start from the incarnation: the start of this life in ms since 1970, whose low 36 bits last two years. This
/// exceeds any generation that an earlier life with lost memory can have reached, because a node does not move a
/// thousand times a second for long. So late operations on that life fail here.
///
/// # Errors
/// If memory cannot be allocated, or a live process has the node's name.
pub fn expose_words(
    host: &Host,
    node: &str,
    site: Option<SiteId>,
    instance: Instance,
) -> Result<Region, Error> {
    let state = if site.is_some() { NodeState::Serving } else { NodeState::Free };
    expose_words_as(host, node, (state, site), instance)
}

/// As [`expose_words`], in that state and of that site.
///
/// # Errors
/// As [`expose_words`].
pub fn expose_words_as(
    host: &Host,
    node: &str,
    (state, site): (NodeState, Option<SiteId>),
    instance: Instance,
) -> Result<Region, Error> {
    expose_first(host, node, instance, |generation| Ownership { state, site, next: None, generation })
}

/// Exposes the ownership word of a node that serves `site` only once it has run the commands for that. It is then on its way under
/// a lock that is free, and a repair lands it.
///
/// # Errors
/// As [`expose_words`].
pub fn expose_changing_words(
    host: &Host,
    node: &str,
    site: SiteId,
    instance: Instance,
) -> Result<Region, Error> {
    expose_first(host, node, instance, |generation| Ownership {
        state: NodeState::Changing,
        site: None,
        next: Some(site),
        generation,
    })
}

fn expose_first(
    host: &Host,
    node: &str,
    instance: Instance,
    first: impl FnOnce(u64) -> Ownership,
) -> Result<Region, Error> {
    let name = words_region(node);
    let spec = RegionSpec {
        name: &name,
        kind: RegionKind::Words,
        len: WORDS_BYTES,
        access: Access::Atomic,
        instance,
    };
    host.expose(&spec, |words| {
        words[WORDS_OWNERSHIP / 8] = first(instance.incarnation & SEQUENCE_MAX).encode()
    })
}
