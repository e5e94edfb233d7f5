//! How an edge shuts down: it accepts no new requests, and gives those in flight time to end.
//!
//! Pingora itself waits a fixed number of whole seconds, even if nothing is in flight, and then drops the rest. So SIGTERM
//! is held back from Pingora until no request is in flight, or the time is up. SIGINT ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Time between two checks whether everything has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whether the edge is shutting down, and the number of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: AtomicBool,
    under_way: AtomicUsize,
}

impl Closing {
    /// Whether the edge is shutting down.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight while the returned value lives.
    pub(crate) fn enter(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    async fn finish(&self, within: Duration) {
        self.begun.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + within;
        while self.under_way.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// See [`Closing::enter`].
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Closing>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells Pingora when to end.
pub(crate) struct Signals {
    pub(crate) closing: Arc<Closing>,
    /// Longest wait for requests in flight.
    pub(crate) drain_max: Duration,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        // Both exist on every Unix.
        let handler = |kind| signal(kind).expect("a handler of a signal that may be handled");
        let mut terminate: Signal = handler(SignalKind::terminate());
        let mut interrupt: Signal = handler(SignalKind::interrupt());
        tokio::select! {
            _ = interrupt.recv() => return ShutdownSignal::FastShutdown,
            _ = terminate.recv() => {}
        }
        tokio::select! {
            _ = interrupt.recv() => ShutdownSignal::FastShutdown,
            () = self.closing.finish(self.drain_max) => ShutdownSignal::GracefulTerminate,
        }
    }
}
