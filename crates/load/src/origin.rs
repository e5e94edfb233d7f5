//! What a server knows of its own load, which the kernel does not.

use sidelong_layout::{Hot, valid};

/// The gauges of a server, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OriginLoad {
    /// Open connections.
    pub connections: u32,
    /// Requests that wait for a worker.
    pub queued: u32,
    /// Workers that are serving a request.
    pub busy: u32,
    /// Requests that it works on at once.
    pub workers: u16,
    /// Mean time of service of a request, in us.
    pub service_us: u32,
    /// Requests served since it started.
    pub served: u64,
    /// Requests that failed since it started.
    pub errors: u64,
    /// Bytes sent since it started.
    pub sent_bytes: u64,
}

impl OriginLoad {
    /// Puts it into a hot line.
    pub fn fill(&self, hot: &mut Hot) {
        hot.valid |= valid::ORIGIN;
        hot.connections = self.connections;
        hot.queued = self.queued;
        hot.busy = self.busy;
        hot.workers = self.workers;
        hot.service_us = self.service_us;
        hot.served = self.served;
    }
}

/// Asks a server for its load. It is called once a record, at most a thousand times a second by default, from the thread
/// that makes the record; it must not block.
pub type OriginGauge = Box<dyn Fn() -> OriginLoad + Send>;
