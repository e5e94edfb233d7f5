//! What a front tells the workers of the proxy that it controls: whom each site may be served by, how loaded they are, and
//! whom it admits. Workers read it at each request through `fronts/lib/sidelong.h`.

use core::mem::offset_of;
use std::sync::atomic::{AtomicU16, AtomicU64};

use crate::describe::described;
use crate::hash::fnv1a;
use crate::policy::{HEALTH, READING, VERDICT};
use crate::word::OWNERSHIP;
use crate::{NodeId, RegionHeader, SiteId};

/// A site's name in its entry, in bytes; shorter ones end with a zero.
pub const NAME_BYTES: usize = 64;

/// Nodes in a word of a site's list.
const LISTED: usize = 4;

described! {
    /// A front's choice.
    pub(crate) struct ChoiceRegion {
        header: RegionHeader,
        time_ns: AtomicU64,
        stale_ns: u64,
        nodes: u32,
        sites: u32,
        balance: u64,
        rotation_ns: u64,
        servers: u64,
        version: AtomicU64,
        zero: u64,
        site: [ChoiceSite; 0],
        node: [ChoiceNode; 0],
        /// For each site as many of four as hold all nodes.
        list: [[AtomicU16; LISTED]; 0],
        server: [ChoiceServer; 0],
    }

    /// A site: a line of words, a line with its name.
    struct ChoiceSite {
        #[word(VERDICT)]
        verdict: AtomicU64,
        members: AtomicU64,
        zero: [u64; 6],
        name: [u8; NAME_BYTES],
    }

    /// A node.
    struct ChoiceNode {
        #[word(OWNERSHIP)]
        ownership: AtomicU64,
        #[word(READING)]
        reading: AtomicU64,
        #[word(HEALTH)]
        health: AtomicU64,
        requests: AtomicU64,
        zero: [u64; 4],
    }

    /// Where a node's server answers: an [`EncodedAddress`].
    struct ChoiceServer {
        family: u16,
        port: u16,
        node: u32,
        address: [u8; 16],
        zero: u64,
    }
}

/// A front's choice: after the header its state, the sites, the nodes, a list of nodes for each site, and the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChoiceMap {
    /// Nodes in it.
    pub nodes: usize,
    /// Sites in it.
    pub sites: usize,
    /// Addresses of the nodes' servers in it: as many for each node, one or one for each site.
    pub servers: usize,
}

impl ChoiceMap {
    /// When the front last scanned, in ns of this machine's monotonic clock; 0 for never, and once it has ended. Stored after
    /// all else.
    pub const TIME: usize = offset_of!(ChoiceRegion, time_ns);
    /// The age from which the choice does not count, in ns.
    pub const STALE: usize = offset_of!(ChoiceRegion, stale_ns);
    /// How many there are: `sites:32 nodes:32`.
    pub const COUNTS: usize = offset_of!(ChoiceRegion, nodes);
    /// How nodes are chosen: the index of the rule in policy's `Balance`.
    pub const BALANCE: usize = offset_of!(ChoiceRegion, balance);
    /// The time in which each client of a site gets its turn, in ns.
    pub const ROTATION: usize = offset_of!(ChoiceRegion, rotation_ns);
    /// How often the names of sites or the addresses of servers have changed in this life of the front. Raised after they have, and
    /// before a site lists a node whose server is new.
    pub const VERSION: usize = offset_of!(ChoiceRegion, version);
    /// How many addresses of servers there are.
    pub const SERVERS: usize = offset_of!(ChoiceRegion, servers);
    const SITES: usize = offset_of!(ChoiceRegion, site);

    const fn site(self, site: SiteId) -> usize {
        assert!(site.index() < self.sites, "a site without an entry in the choice");
        Self::SITES + site.index() * size_of::<ChoiceSite>()
    }

    /// The verdict on the site's requests, as policy encodes it.
    pub const fn verdict(self, site: SiteId) -> usize {
        self.site(site) + offset_of!(ChoiceSite, verdict)
    }

    /// How many nodes of the site's list count. Stored after the list.
    pub const fn members(self, site: SiteId) -> usize {
        self.site(site) + offset_of!(ChoiceSite, members)
    }

    /// The site's name, [`NAME_BYTES`] of it; a shorter one ends with a zero.
    pub const fn name(self, site: SiteId) -> usize {
        self.site(site) + offset_of!(ChoiceSite, name)
    }

    const fn nodes_at(self) -> usize {
        Self::SITES + self.sites * size_of::<ChoiceSite>()
    }

    const fn node(self, node: NodeId) -> usize {
        assert!(node.index() < self.nodes, "a node without an entry in the choice");
        self.nodes_at() + node.index() * size_of::<ChoiceNode>()
    }

    /// The node's ownership word, as the front last read it; 0 before.
    pub const fn ownership(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(ChoiceNode, ownership)
    }

    /// Its load, as policy encodes a reading, to be brought up to date by [`WorkersMap::sent`](crate::WorkersMap::sent).
    pub const fn reading(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(ChoiceNode, reading)
    }

    /// Its health, as policy encodes it.
    pub const fn health(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(ChoiceNode, health)
    }

    /// The requests of all fronts there at the scan.
    pub const fn requests(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(ChoiceNode, requests)
    }

    const fn lists_at(self) -> usize {
        self.nodes_at() + self.nodes * size_of::<ChoiceNode>()
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
        self.lists_at() + site.index() * self.list_bytes() + word * 8
    }

    /// Where a server answers, an [`EncodedAddress`], and whose it is. A node's servers have places that no other node gets while it is
    /// there: all nodes have as many.
    pub const fn server(self, server: usize) -> usize {
        assert!(server < self.servers, "a server without an entry in the choice");
        self.servers_at() + server * size_of::<ChoiceServer>()
    }

    const fn servers_at(self) -> usize {
        self.lists_at() + self.sites * self.list_bytes()
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        self.servers_at() + self.servers * size_of::<ChoiceServer>()
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
