//! One timer for all deadlines of a connection.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes a task at a deadline. A deadline that moves away, as most do, costs nothing: the timer is set again when it rings.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl Alarm {
    /// Ready at `due`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if !self.is_set || timer.deadline() > due {
            timer.as_mut().reset(due);
            self.is_set = true;
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= due {
                self.is_set = false;
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

/// A deadline that may be too far to be a time.
pub(crate) fn after(start: Instant, limit: Duration) -> Instant {
    start.checked_add(limit).unwrap_or_else(|| start + Duration::from_secs(365 * 86_400))
}
