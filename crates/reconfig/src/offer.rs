//! The regions that hold a cluster's words, by name, and their first contents.

use sidelong_fabric::{Access, Error, Host, Region, RegionSpec};
use sidelong_layout::{
    BoardMap, Budget, NodeState, Ownership, RegionKind, SEQUENCE_MAX, SiteId, WORDS_BYTES, WORDS_OWNERSHIP,
};

/// The name of the board's region.
pub const BOARD: &str = "board";

/// The name of the region with a node's load record and acknowledgement.
pub fn load_region(node: &str) -> String {
    format!("{node}.load")
}

/// The name of the region with a node's ownership word.
pub fn words_region(node: &str) -> String {
    format!("{node}.words")
}

/// The board of a cluster with that many sites and lock owners.
pub const fn board_map(sites: usize, owners: usize) -> BoardMap {
    BoardMap { sites, edges: owners }
}

/// What a site starts with.
#[derive(Clone, Copy, Debug)]
pub struct BoardInit {
    /// Guaranteed nodes.
    pub floor: u16,
    /// Nodes that serve it at the start, where that is known: over shared memory.
    pub nodes: u16,
}

/// Offers the board, or finds it where another process of the machine has offered it already. Over shared memory it
/// belongs to nobody and outlives every process; elsewhere to the process that calls this, and is lost with it.
///
/// So elsewhere nobody can tell whether the nodes are still where the sites were configured to have them. Budgets then
/// begin at no node at all, which the first to look repairs after two leases, and at a generation above all that an
/// earlier board can have reached (`incarnation`, as in [`offer_words`]): too low only delays a move, too high strips a
/// site below its floor.
///
/// # Errors
/// Where memory cannot be had, or a board of another layout is in use.
pub fn offer_board(
    host: &Host,
    map: BoardMap,
    sites: &[BoardInit],
    incarnation: u64,
) -> Result<Region, Error> {
    assert_eq!(map.sites, sites.len(), "each site of the board has its first contents");
    let spec = RegionSpec {
        name: BOARD,
        kind: RegionKind::Board,
        len: map.len(),
        access: Access::Atomic,
        incarnation,
    };
    let outlives_us = matches!(host, Host::Shm(_));
    let init = |words: &mut [u64]| {
        for (index, site) in sites.iter().enumerate() {
            let (current, generation) = if outlives_us { (site.nodes, 1) } else { (0, incarnation) };
            let budget = Budget { floor: site.floor, current, generation };
            words[map.budget(SiteId::new(index)) / 8] = budget.encode();
        }
    };
    match host {
        Host::Shm(host) => host.offer_common(&spec, init),
        host => host.offer(&spec, init),
    }
}

/// Offers a node's ownership word: as an earlier life of the node left it where the memory outlived that, else serving
/// `site`.
///
/// Generations start from `began_ms`, the start of this life in ms since 1970, whose last 36 bits last two years: above
/// all that a life which began earlier and lost its memory can have reached (a node does not move a thousand times a
/// second for long), so that late operations on that one fail here.
///
/// # Errors
/// Where memory cannot be had, or a live process has the node's name.
pub fn offer_words(host: &Host, node: &str, site: Option<SiteId>, began_ms: u64) -> Result<Region, Error> {
    let name = words_region(node);
    let spec = RegionSpec {
        name: &name,
        kind: RegionKind::Words,
        len: WORDS_BYTES,
        access: Access::Atomic,
        incarnation: began_ms,
    };
    let generation = began_ms & SEQUENCE_MAX;
    let first = match site {
        Some(site) => Ownership::serving(site, generation),
        None => Ownership { state: NodeState::Free, site: None, next: None, generation },
    };
    host.offer(&spec, |words| words[WORDS_OWNERSHIP / 8] = first.encode())
}
