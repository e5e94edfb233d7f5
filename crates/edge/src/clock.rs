//! This machine's monotonic clock, the one that load records are stamped with: the edge's I/O side asks it and hands the
//! time to everything that decides.

use rustix::time::{ClockId, clock_gettime};
use sidelong_layout::Time;

/// Now.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_ns(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
