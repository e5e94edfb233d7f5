//! The closed loop: send, await, think, send again.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::worker::{Flight, Flown, Worker};

/// One connection to one edge, until the run is over. While the edge is away, it keeps trying and each try is a
/// request that failed.
pub(super) async fn closed_loop(worker: Worker, edge: usize, think: Duration) {
    let mut link = None;
    let mut backoff = Backoff::default();
    while let Some(index) = worker.next_index() {
        if let Some(time) = worker.shared.source.not_before(index) {
            worker.pause(time.saturating_duration_since(Instant::now())).await;
        }
        let shot = worker.shared.source.shot(index);
        match worker.fly(&mut link, Flight { index, edge, due_at: None }, shot).await {
            Ok(Flown::Answered) => {
                backoff.succeeded();
                if !think.is_zero() {
                    worker.pause(think).await;
                }
            }
            // An edge that is asked again at once is asked in vain.
            Ok(Flown::Refused) | Err(_) => worker.pause(backoff.failed()).await,
        }
    }
}
