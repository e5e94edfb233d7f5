//! Offsets in the nodes' regions and on the board, in bytes from the region's start.
//!
//! A node exposes two regions because their rights differ. What its own CPU stores (record, acknowledgement) is
//! read-only to others. What others change by atomics (ownership) is never stored by its CPU. The sites' words are on
//! one board for the cluster.

use core::mem::offset_of;
use std::sync::atomic::AtomicU64;

use crate::describe::described;
use crate::region::TAIL_BYTES;
use crate::word::{ACK, BUDGET, LOCK, OWNERSHIP};
use crate::{Detail, EdgeId, Hot, KERNEL_BYTES, LINE_BYTES, RegionHeader, RegionKind, SiteId};

described! {
    /// A node's load record and its acknowledgement.
    pub(crate) struct LoadRegion {
        header: RegionHeader,
        hot: Hot,
        #[word(ACK)]
        ack: AtomicU64,
        zero: [u64; 7],
        detail: Detail,
    }

    /// A node's ownership.
    pub(crate) struct WordsRegion {
        header: RegionHeader,
        #[word(OWNERSHIP)]
        ownership: AtomicU64,
        zero: [u64; 7],
    }

    /// The sites' words.
    pub(crate) struct BoardRegion {
        header: RegionHeader,
        epoch: AtomicU64,
        zero: [u64; 7],
        site: [BoardSite; 0],
    }

    /// One site's words. Its counters follow, and then the next site.
    struct BoardSite {
        #[word(LOCK)]
        lock: AtomicU64,
        lock_zero: [u64; 7],
        #[word(BUDGET)]
        budget: AtomicU64,
        budget_zero: [u64; 7],
        edge: [BoardCounter; 0],
    }

    /// The shared update counter of an edge.
    struct BoardCounter {
        counter: AtomicU64,
        zero: [u64; 7],
    }
}

/// The hot line in a load region.
pub const LOAD_HOT: usize = offset_of!(LoadRegion, hot);
/// The acknowledgement word in a load region.
pub const LOAD_ACK: usize = offset_of!(LoadRegion, ack);
/// The detail part in a load region.
pub const LOAD_DETAIL: usize = offset_of!(LoadRegion, detail);
/// Length of a load region.
pub const LOAD_BYTES: usize = size_of::<LoadRegion>() + TAIL_BYTES;
/// Kind and length of a region with a load record, kept by a thread or by the kernel.
pub const LOAD_SHAPES: [(RegionKind, usize); 2] =
    [(RegionKind::Load, LOAD_BYTES), (RegionKind::Kernel, KERNEL_BYTES)];

/// The ownership word in a node's words.
pub const WORDS_OWNERSHIP: usize = offset_of!(WordsRegion, ownership);
/// Length of a node's words.
pub const WORDS_BYTES: usize = size_of::<WordsRegion>() + TAIL_BYTES;

/// The board: a line with the epoch of the cluster's newest roster, then for each site a line with its lock, one with its
/// budget, and one with each edge's shared update counter (Balaji et al. 2004, 3.1.2; the paper keeps these with the
/// load-balancers, here one region holds them all).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardMap {
    /// Sites on it.
    pub sites: usize,
    /// Edges (and other lock owners) that have a counter on it.
    pub edges: usize,
}

impl BoardMap {
    /// The epoch.
    pub const EPOCH: usize = offset_of!(BoardRegion, epoch);

    const fn site_bytes(self) -> usize {
        size_of::<BoardSite>() + self.edges * size_of::<BoardCounter>()
    }

    const fn site(self, site: SiteId) -> usize {
        assert!(site.index() < self.sites, "a site that the board does not hold");
        size_of::<BoardRegion>() + site.index() * self.site_bytes()
    }

    /// The site's lock word.
    pub const fn lock(self, site: SiteId) -> usize {
        self.site(site)
    }

    /// The site's budget word.
    pub const fn budget(self, site: SiteId) -> usize {
        self.site(site) + offset_of!(BoardSite, budget)
    }

    /// The shared update counter of `edge` for `site`.
    pub const fn counter(self, site: SiteId, edge: EdgeId) -> usize {
        assert!(edge.index() < self.edges, "an edge that the board does not hold");
        self.site(site) + size_of::<BoardSite>() + edge.index() * size_of::<BoardCounter>()
    }

    /// Length of the board's region.
    pub const fn len(self) -> usize {
        size_of::<BoardRegion>() + self.sites * self.site_bytes() + TAIL_BYTES
    }

    /// Whether no site is on it.
    pub const fn is_empty(self) -> bool {
        self.sites == 0
    }
}

const _: () = {
    assert!(size_of::<LoadRegion>() == 384 && size_of::<WordsRegion>() == 128);
    assert!(LOAD_HOT.is_multiple_of(LINE_BYTES) && LOAD_DETAIL.is_multiple_of(LINE_BYTES));
    let board = BoardMap { sites: 3, edges: 2 };
    assert!(
        BoardMap::EPOCH == 64
            && board.lock(SiteId::new(1)) == 128 + 4 * 64
            && board.len() == 128 + 12 * 64 + TAIL_BYTES
    );
};
