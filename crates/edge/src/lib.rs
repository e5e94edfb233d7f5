//! The edge: a reverse proxy on Pingora whose routes follow the ownership words in its view.
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod bare;
mod clock;
mod closing;
mod door;
mod event;
mod ganglia;
mod gate;
mod last_word;
mod loads;
mod metrics;
mod peers;
mod proxy;
mod seen;
mod server;
mod settings;
mod status;
mod view;
mod watch;

pub use admin::{Admin, Check, Pages};
pub use bare::run_bare_proxy;
pub use event::Event;
pub use ganglia::{Ganglia, GangliaSettings, GangliaThread};
pub use gate::{Gate, Gatekeeper};
pub use loads::Loads;
pub use metrics::{About, Counts, Metrics, NodeMetrics, ReadOwn};
pub use peers::{Exchange, Peers, offer_share, share_region};
pub use seen::Seen;
pub use server::{Edge, Error};
pub use settings::{DoorLimits, EdgeSettings, Limits, NodeAddress, SiteHosts, Tls};
pub use status::{NodeStatus, PeerStatus, SiteStatus, Status};
pub use view::View;
pub use watch::{ReadLoads, Watch};
