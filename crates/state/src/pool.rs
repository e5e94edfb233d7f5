//! The cluster as one roster has it, and what a word may say there.
//!
//! Memory that others write is judged here before anything is made of it. A word that no mover of this cluster writes is
//! put right by a repair: an ownership to where the file has the node, a budget to the file's floor.

use std::sync::Arc;

use sidelong_layout::{Budget, EdgeId, NODES_MAX, NodeId, NodeState, Ownership, SITES_MAX, SiteId};

/// Time for the edges to cut a site's requests at a node, from the end of the drain on, in ns. A request asks once a second
/// whether it is cut, and an edge states its count at each scan. The rest is for a busy machine.
pub const CUT_NS_MAX: u64 = 3_000_000_000;

/// Sites and nodes by slot: what a repair goes over, and what it puts words right by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pool {
    floors: Arc<[u16]>,
    homes: Arc<[Option<SiteId>]>,
    /// Empty if all nodes acknowledge.
    silent: Arc<[bool]>,
    /// Empty if no site's requests are cut.
    cuts: Arc<[bool]>,
    /// Empty if each slot has its node.
    vacant_nodes: Arc<[bool]>,
    /// Empty if each slot has its site.
    vacant_sites: Arc<[bool]>,
    /// Empty if no site is about to leave.
    closing: Arc<[bool]>,
    fronts: Arc<[EdgeId]>,
    change_ns_max: Option<u64>,
    epoch: u64,
}

impl Pool {
    /// With the number of nodes that each site is guaranteed, and the site that each node serves at first; a node without
    /// one is free.
    ///
    /// # Panics
    /// Where there are more sites or nodes than words can tell, or a node has a site that does not exist: the configuration
    /// is checked at start.
    pub fn new(
        floors: impl IntoIterator<Item = u16>,
        homes: impl IntoIterator<Item = Option<SiteId>>,
    ) -> Self {
        let (floors, homes) = (floors.into_iter().collect(), homes.into_iter().collect());
        let pool = Pool {
            floors,
            homes,
            silent: Arc::new([]),
            cuts: Arc::new([]),
            vacant_nodes: Arc::new([]),
            vacant_sites: Arc::new([]),
            closing: Arc::new([]),
            fronts: Arc::new([]),
            change_ns_max: None,
            epoch: 0,
        };
        assert!(pool.sites() <= SITES_MAX && pool.nodes() <= NODES_MAX, "as many as words can tell");
        assert!(
            pool.homes.iter().flatten().all(|home| home.index() < pool.sites()),
            "each node's site exists"
        );
        pool
    }

    /// With the fronts that send requests to the nodes. A node has left its old site only when each of them has.
    #[must_use]
    pub fn with_fronts(self, fronts: impl IntoIterator<Item = EdgeId>) -> Self {
        Pool { fronts: fronts.into_iter().collect(), ..self }
    }

    /// With slots that have no site or no node. No word names such a site, and no repair goes over such a node.
    ///
    /// # Panics
    /// If it does not say so of each slot.
    #[must_use]
    pub fn with_vacant(
        self,
        sites: impl IntoIterator<Item = bool>,
        nodes: impl IntoIterator<Item = bool>,
    ) -> Self {
        let (vacant_sites, vacant_nodes): (Arc<[bool]>, Arc<[bool]>) =
            (sites.into_iter().collect(), nodes.into_iter().collect());
        let slots = (vacant_sites.len(), vacant_nodes.len());
        assert_eq!(slots, (self.sites(), self.nodes()), "each slot is vacant or not");
        Pool { vacant_sites, vacant_nodes, ..self }
    }

    /// With nodes that never acknowledge, because their server is not Sidelong's: only the fronts know what it does.
    ///
    /// # Panics
    /// If it does not say so of each node.
    #[must_use]
    pub fn with_silent(self, silent: impl IntoIterator<Item = bool>) -> Self {
        let silent: Arc<[bool]> = silent.into_iter().collect();
        assert_eq!(silent.len(), self.nodes(), "each node acknowledges or does not");
        Pool { silent, ..self }
    }

    /// With sites whose requests the fronts cut when a node that leaves the site has drained for too long.
    ///
    /// # Panics
    /// If it does not say so of each site.
    #[must_use]
    pub fn with_cuts(self, cuts: impl IntoIterator<Item = bool>) -> Self {
        let cuts: Arc<[bool]> = cuts.into_iter().collect();
        assert_eq!(cuts.len(), self.sites(), "each site's requests are cut or not");
        Pool { cuts, ..self }
    }

    /// With sites that are about to leave: a repair lets no node land there.
    ///
    /// # Panics
    /// If it does not say so of each site.
    #[must_use]
    pub fn with_closing(self, closing: impl IntoIterator<Item = bool>) -> Self {
        let closing: Arc<[bool]> = closing.into_iter().collect();
        assert_eq!(closing.len(), self.sites(), "each site is about to leave or not");
        Pool { closing, ..self }
    }

    /// Whether `site` is about to leave.
    pub fn closes(&self, site: SiteId) -> bool {
        is_set(&self.closing, site.index())
    }

    /// How long a mover waits for requests of `site` beyond the time of a drain, in ns.
    pub fn cut_ns_max(&self, site: SiteId) -> u64 {
        if is_set(&self.cuts, site.index()) { CUT_NS_MAX } else { 0 }
    }

    /// With nodes that run commands when they change sites, which takes at most so long. Each then goes through
    /// [`NodeState::Changing`](sidelong_layout::NodeState::Changing), and says how that ended
    /// ([`Change`](sidelong_layout::Change)). One that says nothing in time is held.
    #[must_use]
    pub fn with_changes(self, change_ns_max: Option<u64>) -> Self {
        Pool { change_ns_max, ..self }
    }

    /// How long a node may take to change sites, in ns; `None` if it need not.
    pub fn change_ns_max(&self) -> Option<u64> {
        self.change_ns_max
    }

    /// As the roster of that epoch has it. A mover writes nothing by it that a newer roster could contradict.
    #[must_use]
    pub fn of_epoch(self, epoch: u64) -> Self {
        Pool { epoch, ..self }
    }

    /// Epoch of the roster that it is of.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The fronts that send requests to the nodes.
    pub fn fronts(&self) -> &Arc<[EdgeId]> {
        &self.fronts
    }

    /// Whether `node` acknowledges that its server has finished the old site's requests.
    pub fn acknowledges(&self, node: NodeId) -> bool {
        !is_set(&self.silent, node.index())
    }

    /// Whether there is such a site.
    pub fn has_site(&self, site: SiteId) -> bool {
        site.index() < self.sites() && !is_set(&self.vacant_sites, site.index())
    }

    /// Whether there is such a node.
    pub fn has_node(&self, node: NodeId) -> bool {
        node.index() < self.nodes() && !is_set(&self.vacant_nodes, node.index())
    }

    /// How many slots there are for sites.
    pub fn sites(&self) -> usize {
        self.floors.len()
    }

    /// How many slots there are for nodes.
    pub fn nodes(&self) -> usize {
        self.homes.len()
    }

    /// The number of nodes that `site` is guaranteed.
    pub fn floor(&self, site: SiteId) -> u16 {
        self.floors[site.index()]
    }

    /// The site that `node` serves at first, and again after its word was of no use.
    pub fn home(&self, node: NodeId) -> Option<SiteId> {
        self.homes[node.index()]
    }

    /// What an ownership word says; `None` where it says nothing in this cluster.
    pub fn ownership(&self, word: u64) -> Option<Ownership> {
        let changes = self.change_ns_max.is_some();
        let own = Ownership::decode(word, self.sites())?;
        let names = own.site.iter().chain(&own.next).all(|site| self.has_site(*site));
        (names && (changes || own.state != NodeState::Changing)).then_some(own)
    }

    /// Whether a mover of this cluster may have written that budget of `site`: it has the file's floor, and counts no more
    /// nodes than there are.
    pub fn allows(&self, site: SiteId, budget: Budget) -> bool {
        budget.floor == self.floor(site) && usize::from(budget.current) <= self.nodes()
    }
}

fn is_set(of: &[bool], index: usize) -> bool {
    of.get(index).is_some_and(|set| *set)
}
