//! The clock of records: CLOCK_MONOTONIC, which the processes of a machine share, and different machines do not.

use rustix::time::{ClockId, clock_gettime};

/// The current time, in ns. Only threads and callers ask for it; the rest of the crate takes the time as an argument.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts from boot, so neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
