//! The closed loop: send, wait, think, send again.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::config::WhenRejected;
use super::worker::{Cue, Flight, Worker};

/// Runs one connection to one edge until the run is over. While the edge is away, it keeps trying, and each attempt
/// counts as a failed request.
pub(super) async fn closed_loop(worker: Worker, edge: usize, client: usize, think: Duration) {
    let repeats = worker.shared.config.when_rejected == WhenRejected::Repeat;
    let mut link = None;
    let mut backoff = Backoff::default();
    while let Some(index) = worker.next_index() {
        if let Some(time) = worker.shared.source.not_before(index) {
            worker.pause(time.saturating_duration_since(Instant::now())).await;
        }
        let cue = Cue { index, stream: 0, nth: index, client };
        let shot = worker.shared.source.shot(cue);
        let edge = worker.edge_of(&shot, edge);
        match worker.fly(&mut link, Flight { cue, edge, due_at: None }, shot).await {
            Err(error) if repeats && error.is_overload() => {}
            // An immediate retry would fail, too.
            Err(error) if !error.is_answer() || error.is_overload() => worker.pause(backoff.failed()).await,
            Ok(()) | Err(_) => {
                backoff.succeeded();
                if !think.is_zero() {
                    worker.pause(think).await;
                }
            }
        }
    }
}
