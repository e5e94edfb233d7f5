//! Small integers that name sites, nodes and edges in words and records: their slots ([`crate::Slots`]). In a cluster that starts
//! they are places in its file.

/// Most sites of one cluster: a site has 12 bits in an ownership word, where 0 means "none".
pub const SITES_MAX: usize = (1 << 12) - 1;
/// Most nodes of one cluster: a budget counts them in 14 bits. No word names a node.
pub const NODES_MAX: usize = (1 << 14) - 1;
/// Most lock owners: an owner has 12 bits in a lock word, where 0 means "free".
pub const EDGES_MAX: usize = (1 << 12) - 1;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $max:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(u16);

        impl $name {
            /// The `index`-th, counting from 0.
            ///
            /// # Panics
            /// If `index` is not below the maximum, which the configuration's check excludes.
            pub const fn new(index: usize) -> Self {
                assert!(index < $max, "index beyond what a word can hold");
                $name(index as u16)
            }

            /// Its slot, counting from 0.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// One hosted service (a web-site in Balaji et al. 2004).
    SiteId,
    SITES_MAX
);
id!(
    /// A server of the pool.
    NodeId,
    NODES_MAX
);
id!(
    /// An owner of locks: an edge, or in server-based reconfiguration a node (numbered after the edges).
    EdgeId,
    EDGES_MAX
);
