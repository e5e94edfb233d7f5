//! When to try again to reach a node that is not there.

use crate::Limits;

/// Waits that double, within the [`Limits`].
#[derive(Debug, Default)]
pub(crate) struct Retry {
    due_ns: u64,
    failures: u32,
}

impl Retry {
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// A try was made, and nobody knows yet that it helped.
    pub(crate) fn tried(&mut self, now_ns: u64, limits: &Limits) {
        let wait = limits.retry_min.saturating_mul(1 << self.failures.min(20)).min(limits.retry_max);
        self.due_ns = now_ns.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        self.failures = self.failures.saturating_add(1);
    }

    /// The node is there.
    pub(crate) fn succeeded(&mut self) {
        *self = Retry::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waits_double_up_to_their_bound() {
        let ms = Duration::from_millis;
        let limits = Limits { retry_min: ms(10), retry_max: ms(35), ..Limits::default() };
        let mut retry = Retry::default();
        let mut now_ns = 0;
        for wait in [ms(10), ms(20), ms(35), ms(35)].map(|wait| wait.as_nanos() as u64) {
            assert!(retry.is_due(now_ns));
            retry.tried(now_ns, &limits);
            assert!(!retry.is_due(now_ns + wait - 1));
            now_ns += wait;
        }
        retry.succeeded();
        assert!(retry.is_due(0));
    }
}
