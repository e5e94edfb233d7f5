//! Chance from a seed, and from nothing else.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) struct Lots(Cell<u64>);

impl Lots {
    /// The lots of one actor: different salts, different lots.
    pub(crate) fn new(seed: u64, salt: u64) -> Self {
        let lots = Lots(Cell::new(seed));
        lots.0.set(lots.next() ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03));
        lots
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        sidelong_layout::mix64(self.0.get())
    }

    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Once in so many times.
    pub(crate) fn once_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn time(&self, range: Range<Duration>) -> Duration {
        let nanos = (range.end - range.start).as_nanos() as u64;
        range.start + Duration::from_nanos(self.next() % nanos)
    }

    /// One of them, if there are any.
    pub(crate) fn pick<T: Copy>(&self, choice: &[T]) -> Option<T> {
        (!choice.is_empty()).then(|| choice[self.below(choice.len())])
    }
}
