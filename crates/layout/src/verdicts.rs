//! The verdicts of admission control, as a helper publishes them for other servers. They read them through
//! `fronts/lib/sidelong.h`, which repeats these definitions. Edges exchange verdicts in their shares.

use crate::{HEADER_BYTES, SiteId};

/// A site's name in its entry, in bytes; shorter ones end with a zero.
pub const NAME_BYTES: usize = 64;
/// One site's entry.
const ENTRY_BYTES: usize = 128;

/// A region of verdicts: an entry for each site behind the header; its length gives their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerdictsMap {
    /// Sites in it.
    pub sites: usize,
}

impl VerdictsMap {
    const fn site(self, site: SiteId) -> usize {
        assert!(site.index() < self.sites, "a site without a verdict in the region");
        HEADER_BYTES + site.index() * ENTRY_BYTES
    }

    /// The verdict on the site's requests, as policy encodes it. Stored before its time.
    pub const fn verdict(self, site: SiteId) -> usize {
        self.site(site)
    }

    /// When it was made, in ns of this machine's monotonic clock; 0 for never.
    pub const fn time(self, site: SiteId) -> usize {
        self.site(site) + 8
    }

    /// The age from which it does not count, in ns.
    pub const fn stale(self, site: SiteId) -> usize {
        self.site(site) + 16
    }

    /// The time in which each client gets its turn, in ns.
    pub const fn rotation(self, site: SiteId) -> usize {
        self.site(site) + 24
    }

    /// The site's name, [`NAME_BYTES`] of it.
    pub const fn name(self, site: SiteId) -> usize {
        self.site(site) + 64
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        HEADER_BYTES + self.sites * ENTRY_BYTES
    }

    /// Whether it has no site.
    pub const fn is_empty(self) -> bool {
        self.sites == 0
    }
}

const _: () = {
    let map = VerdictsMap { sites: 3 };
    assert!(map.verdict(SiteId::new(1)) == 192 && map.name(SiteId::new(2)) == 384 && map.len() == 448);
    assert!(map.name(SiteId::new(0)) + NAME_BYTES == map.verdict(SiteId::new(1)));
};
