//! How an edge ends: it takes in nobody new, and what was begun has its time.
//!
//! Pingora waits so many whole seconds, whether anything is under way or not, and then drops what is. Here SIGTERM is
//! held back from it until nothing is, or too long has passed; SIGINT ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

/// How often it is looked whether everything has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whether the edge is ending, and the requests that it has yet to answer.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: AtomicBool,
    under_way: AtomicUsize,
}

impl Closing {
    /// Whether nobody new is taken in.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// A request is under way while the returned value lives.
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

/// What Pingora is ended by.
pub(crate) struct Signals {
    pub(crate) closing: Arc<Closing>,
    /// What was begun has this long.
    pub(crate) drain_max: Duration,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        // Both are there wherever there are signals.
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
