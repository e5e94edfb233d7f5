//! The clock of records: CLOCK_MONOTONIC, which all processes of a machine share and no two machines do.

use rustix::time::{ClockId, clock_gettime};

/// Now, in ns. The rest of the crate is told the time; only threads and callers ask.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Counted from the machine's start, so neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
