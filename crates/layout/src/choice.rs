//! What a front tells the workers of the proxy that it controls: whom each site may be served by, how loaded they are, and
//! whom it admits. Workers read it at each request through `fronts/lib/sidelong.h`, which repeats these definitions.

use crate::hash::fnv1a;
use crate::{HEADER_BYTES, LINE_BYTES, NodeId, SiteId};

/// A site's name in its entry, in bytes; shorter ones end with a zero.
pub const NAME_BYTES: usize = 64;

/// One site's entry: a line of words, a line with its name.
const SITE_BYTES: usize = LINE_BYTES + NAME_BYTES;
/// One server's entry.
const SERVER_BYTES: usize = 32;
/// Nodes in a word of a site's list.
const LISTED: usize = 4;

/// A front's choice: after the header its state, the sites, the nodes, a list of nodes for each site, and the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChoiceMap {
    /// Nodes in it.
    pub nodes: usize,
    /// Sites in it.
    pub sites: usize,
    /// Addresses of the nodes' servers in it: a node may have one for each site.
    pub servers: usize,
}

impl ChoiceMap {
    /// When the front last scanned, in ns of this machine's monotonic clock; 0 for never, and once it has ended. Stored after
    /// all else.
    pub const TIME: usize = HEADER_BYTES;
    /// The age from which the choice does not count, in ns.
    pub const STALE: usize = Self::TIME + 8;
    /// How many there are: `sites:32 nodes:32`.
    pub const COUNTS: usize = Self::TIME + 16;
    /// How nodes are chosen: the index of the rule in policy's `Balance`.
    pub const BALANCE: usize = Self::TIME + 24;
    /// The time in which each client of a site gets its turn, in ns.
    pub const ROTATION: usize = Self::TIME + 32;
    /// How many addresses of servers there are.
    pub const SERVERS: usize = Self::TIME + 40;
    const SITES: usize = HEADER_BYTES + LINE_BYTES;

    const fn site(self, site: SiteId) -> usize {
        assert!(site.index() < self.sites, "a site without an entry in the choice");
        Self::SITES + site.index() * SITE_BYTES
    }

    /// The verdict on the site's requests, as policy encodes it.
    pub const fn verdict(self, site: SiteId) -> usize {
        self.site(site)
    }

    /// How many nodes of the site's list count. Stored after the list.
    pub const fn members(self, site: SiteId) -> usize {
        self.site(site) + 8
    }

    /// The site's name, [`NAME_BYTES`] of it; a shorter one ends with a zero.
    pub const fn name(self, site: SiteId) -> usize {
        self.site(site) + LINE_BYTES
    }

    const fn node(self, node: NodeId) -> usize {
        assert!(node.index() < self.nodes, "a node without an entry in the choice");
        Self::SITES + self.sites * SITE_BYTES + node.index() * LINE_BYTES
    }

    /// The node's ownership word, as the front last read it; 0 before.
    pub const fn ownership(self, node: NodeId) -> usize {
        self.node(node)
    }

    /// Its load, as policy encodes a reading, to be brought up to date by [`WorkersMap::sent`](crate::WorkersMap::sent).
    pub const fn reading(self, node: NodeId) -> usize {
        self.node(node) + 8
    }

    /// Its health, as policy encodes it.
    pub const fn health(self, node: NodeId) -> usize {
        self.node(node) + 16
    }

    /// The requests of all fronts there at the scan.
    pub const fn requests(self, node: NodeId) -> usize {
        self.node(node) + 24
    }

    const fn list_bytes(self) -> usize {
        self.nodes.div_ceil(LISTED) * 8
    }

    /// A word of the site's list, which begins with its members: four indices of nodes, the first in the lowest 16 bits.
    pub const fn list(self, site: SiteId, word: usize) -> usize {
        assert!(
            site.index() < self.sites && word < self.nodes.div_ceil(LISTED),
            "a list is as long as the nodes"
        );
        let lists = Self::SITES + self.sites * SITE_BYTES + self.nodes * LINE_BYTES;
        lists + site.index() * self.list_bytes() + word * 8
    }

    /// Where a server answers, an [`EncodedAddress`], and whose it is.
    pub const fn server(self, server: usize) -> usize {
        assert!(server < self.servers, "a server without an entry in the choice");
        self.servers_at() + server * SERVER_BYTES
    }

    const fn servers_at(self) -> usize {
        Self::SITES + self.sites * (SITE_BYTES + self.list_bytes()) + self.nodes * LINE_BYTES
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        self.servers_at() + self.servers * SERVER_BYTES
    }

    /// Whether it has neither a site nor a node.
    pub const fn is_empty(self) -> bool {
        self.sites == 0 && self.nodes == 0
    }
}

/// Where a node's server answers, as workers compare it with the address that they were configured with: `family:16 port:16
/// node:32`, then 16 bytes. Family 4 and 6 are TCP, with the IP address in network order. Family 1 is a Unix socket, with
/// the FNV-1a hash of its path in the first 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodedAddress(pub [u64; 3]);

impl EncodedAddress {
    /// Of a server at a Unix socket.
    pub const fn unix(node: NodeId, path: &[u8]) -> Self {
        EncodedAddress([1 | (node.index() as u64) << 32, fnv1a(path), 0])
    }

    /// Of a server at a TCP port. To a worker that connects by IPv6 an IPv4 address is mapped; here it is IPv4.
    pub fn tcp(node: NodeId, address: std::net::SocketAddr) -> Self {
        let mut bytes = [0; 16];
        let family = match address.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&ip.octets());
                4
            }
            std::net::IpAddr::V6(ip) => {
                bytes = ip.octets();
                6
            }
        };
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
        let first = family | u64::from(address.port()) << 16 | (node.index() as u64) << 32;
        EncodedAddress([first, low, high])
    }
}

const _: () = {
    let map = ChoiceMap { nodes: 5, sites: 2, servers: 6 };
    assert!(map.verdict(SiteId::new(0)) == 128 && map.name(SiteId::new(1)) == 320);
    assert!(map.ownership(NodeId::new(0)) == 384 && map.requests(NodeId::new(1)) == 472);
    assert!(map.list(SiteId::new(0), 0) == 704 && map.list(SiteId::new(1), 1) == 728);
    assert!(map.server(0) == 736 && map.server(5) == 896 && map.len() == 928);
};
