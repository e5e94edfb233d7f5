//! How long a node takes to answer, as the edge itself has observed: a moving average that follows peaks at once.
//!
//! It is Finagle's peak EWMA (`P2CPeakEwma`), as linkerd2-proxy keeps it (`linkerd/ewma`). An answer slower than the
//! average replaces it; a faster one lowers it, the more the longer ago the last answer was. Without answers the
//! average decays, so that a node that was slow is tried again.

use std::time::Duration;

use super::Candidates;
use crate::Time;

/// Observations decay by a factor of e in this time: the default of Finagle and linkerd.
const DECAY: Duration = Duration::from_secs(10);

/// The cost of a node that has a request but no answer yet: above all known costs.
const UNKNOWN: u32 = u32::MAX / 2;

/// Bits of an encoded [`AnswerTime`]: `at_us:40 took_us:24`, so that an edge stores one for each node in an `AtomicU64`.
const TOOK_BITS: u32 = 24;
/// Longest time that is represented: 16.8 s.
const TOOK_US_MAX: u64 = (1 << TOOK_BITS) - 1;
/// Times wrap after 12.7 days: a node without an answer for that long counts as one that answered recently.
const AT_US_MAX: u64 = (1 << (64 - TOOK_BITS)) - 1;

/// How long a node took to answer, as of its last answer. The default has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnswerTime {
    /// At least 1 if there was an answer.
    took_us: u64,
    at_us: u64,
}

impl AnswerTime {
    /// The value after an answer at `now` that took `took`.
    pub fn seen(self, now: Time, took: Duration) -> AnswerTime {
        let took_us = (took.as_micros() as u64).clamp(1, TOOK_US_MAX);
        let faded_us = self.faded_us(now);
        let mean_us = faded_us + took_us as f64 * (1.0 - self.left(now));
        let took_us =
            if took_us as f64 >= faded_us { took_us } else { (mean_us as u64).clamp(1, TOOK_US_MAX) };
        AnswerTime { took_us, at_us: (now.as_ns() / 1_000) & AT_US_MAX }
    }

    /// Its value at `now`, in us; `None` if there was no answer.
    pub fn now_us(self, now: Time) -> Option<f64> {
        (self.took_us > 0).then(|| self.faded_us(now))
    }

    fn faded_us(self, now: Time) -> f64 {
        self.took_us as f64 * self.left(now)
    }

    /// The part of past observations that remains: 1 at once, 1/e after [`DECAY`].
    fn left(self, now: Time) -> f64 {
        let since_us = (now.as_ns() / 1_000).wrapping_sub(self.at_us) & AT_US_MAX;
        // Another thread may have stored a later time than this one's `now`.
        let since_us = if since_us > AT_US_MAX / 2 { 0 } else { since_us };
        (-(since_us as f64) / DECAY.as_micros() as f64).exp()
    }

    /// Encodes it as one word.
    pub const fn encode(self) -> u64 {
        self.at_us << TOOK_BITS | self.took_us
    }

    /// Decodes a word.
    pub const fn decode(word: u64) -> AnswerTime {
        AnswerTime { took_us: word & TOOK_US_MAX, at_us: word >> TOOK_BITS }
    }
}

/// How long a request would wait for its answer at a candidate, judged by earlier answers.
///
/// A node without an answer yet gets one request to learn from, and another only when no other node has fewer
/// (Finagle's penalty).
pub(super) fn cost(candidates: &impl Candidates, candidate: usize) -> u32 {
    let in_flight = candidates.in_flight(candidate);
    match candidates.answer_us(candidate) {
        Some(us) => ((us * (f64::from(in_flight) + 1.0)) as u32).min(UNKNOWN),
        None if in_flight == 0 => 0,
        None => UNKNOWN.saturating_add(in_flight),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Balance, mix};
    use super::*;
    use crate::index::LoadIndex;

    /// Each node's answer time, and its number of requests.
    struct Site(Vec<(Option<f64>, u32)>);

    impl Candidates for Site {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn index(&self, _: usize) -> LoadIndex {
            unreachable!("the rule reads no record")
        }
        fn index_at_look(&self, _: usize) -> LoadIndex {
            unreachable!("the rule reads no record")
        }
        fn answer_us(&self, candidate: usize) -> Option<f64> {
            self.0[candidate].0
        }
        fn in_flight(&self, candidate: usize) -> u32 {
            self.0[candidate].1
        }
        fn usable(&self, _: usize) -> bool {
            true
        }
    }

    /// Which of two nodes gets the next request.
    fn chosen(nodes: [(Option<f64>, u32); 2]) -> usize {
        let site = Site(nodes.to_vec());
        let all: Vec<_> = (0..8).filter_map(|k| Balance::Ewma.choose(&site, k, mix(k))).collect();
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        all[0]
    }

    #[test]
    fn the_node_that_would_answer_sooner_gets_the_request() {
        assert_eq!(chosen([(Some(5_000.0), 0), (Some(1_000.0), 0)]), 1);
        assert_eq!(chosen([(Some(5_000.0), 0), (Some(1_000.0), 9)]), 0);
        // The faster node gets more requests in proportion.
        assert_eq!(chosen([(Some(4_000.0), 1), (Some(1_000.0), 6)]), 1);
    }

    #[test]
    fn a_node_without_an_answer_is_tried_by_one_request_at_a_time() {
        assert_eq!(chosen([(None, 0), (Some(1_000.0), 0)]), 0);
        assert_eq!(chosen([(None, 1), (Some(1e9), 1_000)]), 1);
        assert_eq!(chosen([(None, 3), (None, 2)]), 1);
    }

    #[test]
    fn of_many_nodes_a_slow_one_gets_few() {
        let mut site = Site(vec![(Some(1_000.0), 0); 16]);
        site.0[3].0 = Some(20_000.0);
        let to_slow = (0..4_000).filter(|k| Balance::Ewma.choose(&site, *k, mix(*k)) == Some(3)).count();
        assert_eq!(to_slow, 0, "each pair has another that is faster");
    }

    fn ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn seen(answers: &[(u64, u64)]) -> AnswerTime {
        let see =
            |time: AnswerTime, (at, took): &(u64, u64)| time.seen(ms(*at), Duration::from_millis(*took));
        answers.iter().fold(AnswerTime::default(), see)
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        assert_eq!(AnswerTime::default().now_us(ms(5)), None);
        let time = seen(&[(1_000, 2), (1_001, 40)]);
        assert_eq!(time.now_us(ms(1_001)), Some(40_000.0));
        let faded = time.now_us(ms(11_001)).unwrap();
        assert!((faded / 40_000.0 - (-1.0f64).exp()).abs() < 1e-6, "{faded}");
    }

    #[test]
    fn shorter_answers_draw_it_down_by_the_time_since_the_last() {
        // After DECAY an answer counts for 1 - 1/e.
        let time = seen(&[(1_000, 40), (11_000, 2)]).now_us(ms(11_000)).unwrap();
        let expected = 40_000.0 * (-1.0f64).exp() + 2_000.0 * (1.0 - (-1.0f64).exp());
        assert!((time - expected).abs() < 2.0, "{time}, expected {expected}");
        // Several answers at one time count as one.
        assert_eq!(seen(&[(1_000, 40), (1_000, 2), (1_000, 2)]), seen(&[(1_000, 40)]));
    }

    #[test]
    fn it_is_one_word_and_takes_any_time() {
        let time = seen(&[(123_456, 7)]);
        assert_eq!(AnswerTime::decode(time.encode()), time);
        assert_eq!(AnswerTime::decode(0), AnswerTime::default());
        assert_eq!(seen(&[(5, 60_000)]).now_us(ms(5)), Some(TOOK_US_MAX as f64));
        assert_eq!(seen(&[(5, 0)]).now_us(ms(5)), Some(1.0));
        assert_eq!(time.now_us(ms(123_000)), Some(7_000.0), "a clock of another thread that is behind");
    }
}
