//! Offsets in the nodes' regions and on the board, in bytes from the region's start.
//!
//! A node exposes two regions because their rights differ. What its own CPU stores (record, acknowledgement) is
//! read-only to others. What others change by atomics (ownership) is never stored by its CPU. The sites' words are on
//! one board for the cluster.

use crate::{DETAIL_BYTES, EdgeId, HEADER_BYTES, HOT_BYTES, KERNEL_BYTES, LINE_BYTES, RegionKind, SiteId};

/// The hot line in a load region.
pub const LOAD_HOT: usize = HEADER_BYTES;
/// The acknowledgement word in a load region.
pub const LOAD_ACK: usize = LOAD_HOT + HOT_BYTES;
/// The detail part in a load region.
pub const LOAD_DETAIL: usize = LOAD_ACK + LINE_BYTES;
/// Length of a load region.
pub const LOAD_BYTES: usize = LOAD_DETAIL + DETAIL_BYTES;
/// Kind and length of a region with a load record, kept by a thread or by the kernel.
pub const LOAD_SHAPES: [(RegionKind, usize); 2] =
    [(RegionKind::Load, LOAD_BYTES), (RegionKind::Kernel, KERNEL_BYTES)];

/// The ownership word in a node's words.
pub const WORDS_OWNERSHIP: usize = HEADER_BYTES;
/// Length of a node's words.
pub const WORDS_BYTES: usize = WORDS_OWNERSHIP + LINE_BYTES;

/// The board: for each site a line with its lock, one with its budget, and one with each edge's shared update counter
/// (Balaji et al. 2004, 3.1.2; the paper keeps these with the load-balancers, here one region holds them all).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardMap {
    /// Sites on it.
    pub sites: usize,
    /// Edges (and other lock owners) that have a counter on it.
    pub edges: usize,
}

impl BoardMap {
    const fn site(self, site: SiteId) -> usize {
        assert!(site.index() < self.sites, "a site that the board does not hold");
        HEADER_BYTES + site.index() * (2 + self.edges) * LINE_BYTES
    }

    /// The site's lock word.
    pub const fn lock(self, site: SiteId) -> usize {
        self.site(site)
    }

    /// The site's budget word.
    pub const fn budget(self, site: SiteId) -> usize {
        self.site(site) + LINE_BYTES
    }

    /// The shared update counter of `edge` for `site`.
    pub const fn counter(self, site: SiteId, edge: EdgeId) -> usize {
        assert!(edge.index() < self.edges, "an edge that the board does not hold");
        self.site(site) + (2 + edge.index()) * LINE_BYTES
    }

    /// Length of the board's region.
    pub const fn len(self) -> usize {
        HEADER_BYTES + self.sites * (2 + self.edges) * LINE_BYTES
    }

    /// Whether no site is on it.
    pub const fn is_empty(self) -> bool {
        self.sites == 0
    }
}

const _: () = {
    assert!(LOAD_BYTES == 384 && WORDS_BYTES == 128);
    assert!(LOAD_HOT.is_multiple_of(LINE_BYTES) && LOAD_DETAIL.is_multiple_of(LINE_BYTES));
    let board = BoardMap { sites: 3, edges: 2 };
    assert!(board.lock(SiteId::new(1)) == 64 + 4 * 64 && board.len() == 64 + 12 * 64);
};
