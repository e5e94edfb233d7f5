//! Counters of what an origin is doing, readable from any thread.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::HeaderValue;

/// Counters of one origin, written and read with relaxed atomics, so two of them may be from slightly different
/// moments. `/healthz` is not counted.
#[derive(Debug, Default)]
pub struct OriginGauges {
    /// Virtual workers, as configured; set when the origin starts.
    pub workers: AtomicU32,
    /// Connections open.
    pub connections: AtomicU32,
    /// Connections accepted.
    pub accepted_total: AtomicU64,
    /// Requests that hold a worker or wait for one. A request that its client has given up counts until it is done,
    /// because its worker does not know. Always 0 if requests take no time. See [`OriginGauges::in_service`] and
    /// [`OriginGauges::queued`].
    pub outstanding: AtomicU32,
    /// Requests answered with a status below 400.
    pub served_total: AtomicU64,
    /// Requests answered with a status of 400 or above, including refused ones.
    pub errors_total: AtomicU64,
    /// Requests answered with 503, because too many were waiting.
    pub refused_total: AtomicU64,
    /// Bytes of response bodies, counted as the head of the response is sent.
    pub sent_bytes_total: AtomicU64,
    /// Bytes of request bodies.
    pub received_bytes_total: AtomicU64,
    /// Service time of all requests that a worker took, in ns.
    pub service_ns_total: AtomicU64,
    /// Requests that a worker took: the divisor of `service_ns_total`.
    pub service_total: AtomicU64,
    /// Requests for a host that the [judge](OriginGauges::judge) did not expect here. 0 without a judge.
    pub misdirected_total: AtomicU64,
    watcher: Watcher,
    judge: Judge,
}

/// The function that is called after each change.
#[derive(Default)]
struct Watcher(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Watcher(..)" } else { "Watcher" })
    }
}

/// The function that says whether a request for a host is expected.
#[derive(Default)]
struct Judge(OnceLock<Box<Expects>>);

type Expects = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Judge(..)" } else { "Judge" })
    }
}

impl OriginGauges {
    /// Asks `judge`, as each request's head arrives, whether a request with that Host header is expected here. Those that are
    /// not are counted, and answered all the same. It must not block. Only the first judge is used.
    pub fn judge(&self, judge: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        let _ = self.judge.0.set(Box::new(judge));
    }

    /// A request with this Host header has arrived.
    pub(super) fn arrived(&self, host: Option<&HeaderValue>) {
        if let (Some(judge), Some(host)) = (self.judge.0.get(), host)
            && !judge(host.as_bytes())
        {
            self.misdirected_total.fetch_add(1, Relaxed);
        }
    }

    /// Calls `watcher` after each change: a request or a connection begins or ends. It runs on the origin's own
    /// threads, between the change and the next step, and must not block. Only the first watcher is used.
    pub fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        let _ = self.watcher.0.set(Box::new(watcher));
    }

    /// Reports a change.
    pub(super) fn changed(&self) {
        if let Some(watcher) = self.watcher.0.get() {
            watcher();
        }
    }

    /// Requests that hold a worker.
    ///
    /// No worker is idle while a request waits, so this and [`queued`](Self::queued) follow from one counter, and agree
    /// if they are computed from the same reading.
    pub fn in_service(&self) -> u32 {
        self.outstanding.load(Relaxed).min(self.workers.load(Relaxed))
    }

    /// Requests that wait for a worker.
    pub fn queued(&self) -> u32 {
        self.outstanding.load(Relaxed).saturating_sub(self.workers.load(Relaxed))
    }

    /// Mean service time since the start, waiting not included; zero before the first request.
    pub fn service_mean(&self) -> Duration {
        let mean_ns = self.service_ns_total.load(Relaxed).checked_div(self.service_total.load(Relaxed));
        Duration::from_nanos(mean_ns.unwrap_or(0))
    }
}
