//! How an edge is told to end: SIGTERM lets requests in flight end, SIGINT does not.

use sidelong_proxy::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end an edge.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Waits for the next signal. They are taken over the first time, which needs a runtime.
    pub(crate) async fn next(this: &mut Option<Self>) -> Stop {
        // Both exist on every Unix.
        let handler = |kind| signal(kind).expect("a handler of a signal that may be handled");
        let signals = this.get_or_insert_with(|| Signals {
            terminate: handler(SignalKind::terminate()),
            interrupt: handler(SignalKind::interrupt()),
        });
        tokio::select! {
            _ = signals.interrupt.recv() => Stop::Now,
            _ = signals.terminate.recv() => Stop::Graceful,
        }
    }
}
