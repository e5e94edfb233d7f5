//! A proxy of another make that this process controls as its front: it is told where requests go, and says how many it has
//! where. The requests themselves never pass through this process.

pub(crate) mod connect;
pub(crate) mod haproxy;
pub(crate) mod memory;
mod process;

use std::net::SocketAddr;
use std::sync::Arc;

use sidelong_layout::{NodeId, Ownership, SiteId, Time};
use sidelong_load::Reading;

use self::haproxy::HaproxyCluster;
use self::memory::AdapterCluster;
use crate::gate::Gate;
use crate::view::View;

/// A proxy that is controlled. The watch thread calls it, in this order, at each scan.
pub trait Adapter: Send {
    /// Brings the view's counts up to date: the proxy's requests at each node, and what it has seen of the nodes. `readings` are the
    /// nodes' records, by node.
    fn count(&mut self, view: &View, readings: &[Reading], now: Time);

    /// Tells the proxy what the view knows: the requests that it begins from now on go by this. Then counts its requests again.
    fn show(&mut self, view: &View, gate: Option<&Gate>, now: Time);

    /// What the front states about `node`: the ownership by which the proxy sends requests, and the proxy's requests there, counted
    /// after that ownership was in force. `None` as long as it is not known which requests there are.
    fn front(&self, view: &View, node: NodeId) -> Option<(Ownership, u32)>;

    /// Goes by other sites and nodes from now on. The view has none any more that has left, and none yet that has come.
    fn adopt(&mut self, members: &AdapterMembers);
}

/// The sites and nodes, as adapters know them.
#[derive(Clone, Debug)]
pub struct AdapterMembers {
    /// For those that control by memory.
    pub memory: AdapterCluster,
    /// For that of HAProxy.
    pub haproxy: Option<Arc<HaproxyCluster>>,
    /// The address that programs connect to, of sites that have one.
    pub connect: Vec<(SiteId, SocketAddr)>,
}
