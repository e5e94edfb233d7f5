//! The node that the properties are tested on.

use std::time::Duration;

use sidelong_fabric::{Access, Host, Inbox, InboxSpec, Initiator, LinkId, Region, RegionSpec};
use sidelong_layout::{Instance, RegionKind};

use crate::support::backends::Backend;

/// Long enough for a busy machine; only failures wait that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A region's length.
pub(crate) const LEN: usize = 4096;
/// The first word behind the header.
pub(crate) const WORD: usize = 64;

/// A node and the one region that it exposes.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) region: Region,
    /// Makes initiators that can reach the node.
    pub(crate) initiator: fn() -> Initiator,
}

impl Node {
    pub(crate) fn start<B: Backend>(backend: &B, name: &str, access: Access) -> Node {
        Node::start_with(backend, name, access, LEN, 1)
    }

    pub(crate) fn start_with<B: Backend>(
        backend: &B,
        name: &str,
        access: Access,
        len: usize,
        life: u64,
    ) -> Node {
        let host = backend.start(name);
        let region = host.expose(&spec(name, access, len, life), |_| {}).unwrap();
        Node { name: name.to_owned(), host, region, initiator: B::initiator }
    }

    /// A node whose region has an inbox.
    pub(crate) fn receiving<B: Backend>(backend: &B, name: &str, inbox: &InboxSpec) -> (Node, Inbox) {
        let host = backend.start(name);
        let exposed = host.expose_with_inbox(&spec(name, Access::Atomic, LEN, 1), inbox, |_| {});
        let (region, inbox) = exposed.unwrap();
        (Node { name: name.to_owned(), host, region, initiator: B::initiator }, inbox)
    }

    pub(crate) fn link(&self, initiator: &mut Initiator) -> LinkId {
        initiator.connect(self.region.key(), PATIENCE).unwrap()
    }

    pub(crate) fn linked(&self) -> (Initiator, LinkId) {
        let mut initiator = (self.initiator)();
        let link = self.link(&mut initiator);
        (initiator, link)
    }

    pub(crate) fn kill<B: Backend>(self, backend: &B) {
        backend.kill(&self.name, self.host, self.region);
    }
}

pub(crate) fn spec(name: &str, access: Access, len: usize, incarnation: u64) -> RegionSpec<'_> {
    RegionSpec { name, kind: RegionKind::Raw, len, access, instance: Instance::alone(incarnation) }
}
