//! The load figures that only the server itself knows.

use sidelong_layout::{ByServer, Hot, valid};

/// The gauges of a server at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OriginLoad {
    /// Open connections.
    pub connections: u32,
    /// Requests that wait for a worker.
    pub queued: u32,
    /// Workers that are serving a request.
    pub busy: u32,
    /// Requests that it works on at a time.
    pub workers: u16,
    /// Mean service time of a request, in us.
    pub service_us: u32,
    /// Requests served since it started.
    pub served: u64,
    /// Requests that failed since it started.
    pub errors: u64,
    /// Bytes sent since it started.
    pub sent_bytes: u64,
}

impl OriginLoad {
    /// Copies the gauges into a hot line.
    pub fn fill(&self, hot: &mut Hot) {
        hot.valid |= valid::ORIGIN;
        hot.connections = self.connections;
        hot.queued = self.queued;
        hot.busy = self.busy;
        hot.workers = self.workers;
        hot.by_server = ByServer::service_us(self.service_us);
        hot.served = self.served;
    }
}

/// Returns the server's current load. The thread that makes a record calls it once a record, by default at most a
/// thousand times a second. It must not block.
pub type OriginGauge = Box<dyn Fn() -> OriginLoad + Send>;
