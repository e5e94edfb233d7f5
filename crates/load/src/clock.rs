//! The clock of records: CLOCK_MONOTONIC, which the processes of a machine share, and different machines do not. And the CPU time
//! of a thread, which bounds what it costs.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The current time, in ns. Only threads and callers ask for it; the rest of the crate takes the time as an argument.
pub fn monotonic_ns() -> u64 {
    // The clock counts from boot, so neither part is negative.
    ns(clock_gettime(ClockId::Monotonic))
}

/// The CPU time that the calling thread has used, in ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime))
}

fn ns(now: Timespec) -> u64 {
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
