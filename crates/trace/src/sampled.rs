//! Values for any number of objects, in bounded memory: for all of them while they are few, then for those whose hash
//! is below a threshold. The threshold is halved whenever the table is full.
//!
//! Whether an object is kept depends only on its number, so every kept object has been counted from its first request
//! on. So figures of the sample are exact, and figures of all objects are the sample's divided by the sampling rate. C.
//! Waldspurger, N. Park, A. Garthwaite and I. Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::zipf::mix;

/// Most objects that are kept, and most clients. Once full, at least half of that many are kept, so their number is
/// known to 0.1 %, one standard error.
pub const SAMPLED_MAX: usize = 1 << 21;

/// A table of a bounded number of values.
#[derive(Debug)]
pub(crate) struct Sampled<V> {
    /// By hash. It is a bijection of the number, so the number need not be stored.
    values: HashMap<u64, V, FxBuildHasher>,
    /// Hashes up to this are kept.
    threshold: u64,
    max: usize,
}

impl<V: Default> Sampled<V> {
    pub(crate) fn new(max: usize) -> Self {
        Sampled { values: HashMap::default(), threshold: u64::MAX, max }
    }

    /// The value of `number`, a new one if it is new; `None` if it is not in the sample.
    #[inline]
    pub(crate) fn entry(&mut self, number: u64) -> Option<&mut V> {
        // Of 0, which is often the number of the object that is asked for most, `mix` makes 0: it would always be kept.
        let hash = mix(!number);
        if hash > self.threshold {
            return None;
        }
        if self.values.len() >= self.max && !self.values.contains_key(&hash) {
            while self.values.len() >= self.max {
                self.threshold /= 2;
                self.values.retain(|&hash, _| hash <= self.threshold);
            }
            if hash > self.threshold {
                return None;
            }
        }
        Some(self.values.entry(hash).or_default())
    }

    /// The part of all numbers that is kept; 1 if all are.
    pub(crate) fn rate(&self) -> f64 {
        if self.threshold == u64::MAX { 1.0 } else { (self.threshold as f64 + 1.0) / 2f64.powi(64) }
    }

    /// Scales a `sum` over the sample to all numbers.
    pub(crate) fn scaled(&self, sum: u64) -> u64 {
        if self.threshold == u64::MAX { sum } else { (sum as f64 / self.rate()).round() as u64 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.values.len() as u64
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_all_kept_and_many_are_estimated() {
        let mut sampled: Sampled<u64> = Sampled::new(1000);
        let count = |sampled: &mut Sampled<u64>, numbers: std::ops::Range<u64>| {
            numbers.for_each(|number| {
                sampled.entry(number).into_iter().for_each(|count| *count += 1);
            });
        };
        count(&mut sampled, 0..1000);
        count(&mut sampled, 0..1000);
        assert_eq!((sampled.rate(), sampled.scaled(sampled.len())), (1.0, 1000));
        count(&mut sampled, 0..100_000);
        count(&mut sampled, 0..100_000);
        assert!(sampled.len() <= 1000 && sampled.len() > 300, "{}", sampled.len());
        let all = sampled.scaled(sampled.len());
        assert!((80_000..120_000).contains(&all), "{all}");
        // What is kept was counted from the first on.
        assert!(sampled.values().all(|&count| count == 2 || count == 4));
    }

    #[test]
    fn low_numbers_are_kept_no_more_often_than_others() {
        let mut sampled: Sampled<()> = Sampled::new(1000);
        (0..1_000_000).for_each(|number| {
            sampled.entry(number);
        });
        let kept = (0..10).filter(|&number| sampled.entry(number).is_some()).count();
        assert_eq!(kept, 0, "at a rate of {}", sampled.rate());
    }
}
