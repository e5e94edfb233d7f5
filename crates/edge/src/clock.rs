//! This machine's monotonic clock, which load records are stamped with. The edge's I/O code reads it and passes the
//! time to everything that decides.

use sidelong_layout::Time;

/// The current time.
pub(crate) fn now() -> Time {
    Time::from_ns(sidelong_os::monotonic_ns())
}
