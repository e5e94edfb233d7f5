//! Pauses between failures: doubling, bounded, and gone with the first success.

use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The pauses of one connection, or of all connections to one edge.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// After a failure: how long to wait.
    pub(crate) fn failed(&mut self) -> Duration {
        let pause = self.last.map_or(PAUSE_MIN, |last| (last * 2).min(PAUSE_MAX));
        self.last = Some(pause);
        pause
    }

    /// After a success.
    pub(crate) fn succeeded(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_start_over_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 250, 250]);
        backoff.succeeded();
        assert_eq!(backoff.failed(), PAUSE_MIN);
    }
}
