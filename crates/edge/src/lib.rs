//! The edge: a reverse proxy on Pingora whose routes follow the ownership words in its view.
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod bare;
mod clock;
mod closing;
mod door;
mod ganglia;
mod gate;
mod metrics;
mod peers;
mod proxy;
mod seen;
mod server;
mod settings;
mod view;
mod watch;

pub use admin::{Admin, Pages};
pub use bare::run_bare_proxy;
pub use door::DoorLimits;
pub use ganglia::{Ganglia, GangliaSettings, GangliaThread};
pub use gate::{Admission, Gate};
pub use metrics::{About, Counts, Metrics, NodeMetrics, ReadOwn};
pub use peers::{Exchange, Peers, offer_share, share_region};
pub use seen::Seen;
pub use server::{Edge, Error};
pub use settings::{Limits, NodeAddress, Settings, SiteHosts, Tls};
pub use view::View;
pub use watch::{Decider, Event, ReadLoads, Watch};
