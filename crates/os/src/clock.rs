//! The clocks of the kernel (clock_gettime(2)).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC. All processes of a machine share this clock; different machines do not.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic).as_nanos() as u64
}

/// Nanoseconds of the time of day, since 1970.
pub fn wall_ns() -> u64 {
    read(ClockId::Realtime).as_nanos() as u64
}

/// CPU time that this process has used.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // None of these clocks shows a time before its beginning, except a time of day that was set to before 1970.
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}
