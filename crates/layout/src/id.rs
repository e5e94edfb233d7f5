//! Small integers that name sites, nodes and edges in words and records. The cluster file gives them in its order.

/// Sites of one cluster at most: a site is 12 bits in an ownership word, of which 0 means "none".
pub const SITES_MAX: usize = (1 << 12) - 1;
/// Nodes of one cluster at most: what a budget counts in 14 bits. No word names a node.
pub const NODES_MAX: usize = (1 << 14) - 1;
/// Lock owners at most: an owner is 12 bits in a lock word, of which 0 means "free".
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
            /// Where `index` is not below the maximum: the configuration is checked against it at start.
            pub const fn new(index: usize) -> Self {
                assert!(index < $max, "index beyond what a word can hold");
                $name(index as u16)
            }

            /// Its place in the cluster file, counting from 0.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// One hosted service (R: web-site).
    SiteId,
    SITES_MAX
);
id!(
    /// A server of the pool.
    NodeId,
    NODES_MAX
);
id!(
    /// Whoever may hold a lock: an edge, or in server-based reconfiguration a node (numbered after the edges).
    EdgeId,
    EDGES_MAX
);
