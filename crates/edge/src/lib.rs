//! The edge: a reverse proxy whose routes follow the ownership words in its view.
#![forbid(unsafe_code)]

mod access_log;
mod adapters;
mod admin;
mod clock;
mod documents;
mod event;
mod front;
#[cfg(fuzzing)]
pub mod fuzz;
mod ganglia;
mod gate;
mod live;
mod loads;
mod metrics;
mod peers;
mod probes;
mod routes;
mod seen;
mod server;
mod settings;
mod status;
mod view;
mod watch;

pub use adapters::connect::ConnectAdapter;
pub use adapters::haproxy::{
    HaproxyAdapter, HaproxyCluster, HaproxyNode, HaproxyServer, haproxy_admission, survey_haproxy,
};
pub use adapters::memory::{AdapterCluster, Exposure, MemoryAdapter, adapter_regions};
pub use adapters::{Adapter, AdapterMembers};
pub use admin::{Admin, Check, Pages};
pub use documents::{DocumentSettings, DocumentStatus, key as document_key};
pub use event::Event;
pub use front::Front;
pub use ganglia::{Ganglia, GangliaSettings};
pub use gate::{Gate, Gatekeeper, RejectedLast};
pub use live::{LiveSettings, Prepared, check_tls};
pub use loads::Loads;
pub use metrics::{
    About, AgentsMetrics, AgentsStatus, CacheMetrics, ConfigState, Counts, Fact, Metrics, NodeMetrics,
    ReadOwn, ReadStat,
};
pub use peers::{Exchange, Peers, expose_share, share_region};
pub use probes::Places;
pub use seen::ScanDisplay;
pub use server::{COMPLETE_MAX, Edge, Error};
pub use settings::{EdgeSettings, NodeAddress, SiteHosts, Tls};
pub use sidelong_proxy::{Forwarding, Limits, Stop};
pub use status::{NodeStatus, PeerStatus, SiteStatus, Status};
pub use view::{View, WorkersAt};
pub use watch::{Adopted, Leave, Pulse, ReadLoads, Watch};
