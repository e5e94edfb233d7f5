//! Server errors of a node, which come sooner than answers and so would draw the requests of other nodes.
//!
//! Each counts as a request in flight at the node for as long as a good answer of its site takes (linkerd and Finagle's failure
//! accrual take the node out instead, which a site that fails everywhere does not survive). A node that only fails then gets
//! about as many requests as one that answers.

use crate::Time;

/// The errors that count now, as of the last one. The default has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    /// In parts of [`ONE`].
    count: u64,
    at_us: u64,
}

/// Bits of an encoded value: `at_us:42 count:22`, so that an edge stores one for each node in an `AtomicU64`.
const COUNT_BITS: u32 = 22;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Times wrap after 50 days.
const AT_US_MAX: u64 = (1 << (64 - COUNT_BITS)) - 1;
/// One error. At most 16,383 count.
const ONE: u64 = 256;
/// After so many times the time of an answer none counts.
const FORGOTTEN: f64 = 16.0;

impl Errors {
    /// The value after another one at `now`, where a good answer takes `answer_us`.
    pub fn seen(self, now: Time, answer_us: f64) -> Errors {
        let count = (self.left(now, answer_us) as u64).saturating_add(ONE).min(COUNT_MAX);
        Errors { count, at_us: now_us(now) }
    }

    /// How many count at `now`.
    pub fn now(self, now: Time, answer_us: f64) -> u32 {
        if self.count == 0 { 0 } else { (self.left(now, answer_us) / ONE as f64).round() as u32 }
    }

    /// At a steady rate of errors it is as many as come in the time of an answer (Little's law).
    fn left(self, now: Time, answer_us: f64) -> f64 {
        let since_us = now_us(now).wrapping_sub(self.at_us) & AT_US_MAX;
        // Another thread may have stored a later time than this one's `now`.
        let since_us = if since_us > AT_US_MAX / 2 { 0 } else { since_us };
        let passed = since_us as f64 / answer_us.max(1.0);
        if passed > FORGOTTEN { 0.0 } else { self.count as f64 * (-passed).exp() }
    }

    /// Encodes it as one word.
    pub const fn encode(self) -> u64 {
        self.at_us << COUNT_BITS | self.count
    }

    /// Decodes a word.
    pub const fn decode(word: u64) -> Errors {
        Errors { count: word & COUNT_MAX, at_us: word >> COUNT_BITS }
    }
}

fn now_us(now: Time) -> u64 {
    (now.as_ns() / 1_000) & AT_US_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER_US: f64 = 20_000.0;

    fn us(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[test]
    fn each_counts_for_as_long_as_an_answer_takes() {
        let mut errors = Errors::default();
        assert_eq!(errors.now(us(5), ANSWER_US), 0);
        errors = errors.seen(us(5), ANSWER_US);
        assert_eq!(errors.now(us(5), ANSWER_US), 1);
        assert_eq!(errors.now(us(5 + 20_000), ANSWER_US), 0);
        // One each 2 ms: ten in the time of an answer.
        for k in 0..100 {
            errors = errors.seen(us(2_000 * k), ANSWER_US);
        }
        assert!((9..=11).contains(&errors.now(us(200_000), ANSWER_US)), "{errors:?}");
        assert_eq!(errors.now(us(10_000_000), ANSWER_US), 0);
    }

    #[test]
    fn any_number_at_any_time_is_representable() {
        let mut errors = Errors::default();
        for _ in 0..100_000 {
            errors = errors.seen(us(7), ANSWER_US);
        }
        assert_eq!(errors.now(us(7), ANSWER_US), 16_384);
        assert_eq!(errors.now(us(6), ANSWER_US), 16_384, "a time before the last");
        assert_eq!(Errors::decode(errors.encode()), errors);
        assert_eq!(Errors::decode(0), Errors::default());
    }
}
