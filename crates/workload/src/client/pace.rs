//! When the requests of an open loop are due, and a timer that is precise enough to send them then.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::config::Arrivals;

/// Shortest sleep: at high rates requests are sent in bunches of this length, rather than with a system call for each.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// One thread's share of the arrivals: every `stride`-th, from the `offset`-th on. Which request is due when does not
/// depend on the number of threads.
#[derive(Debug)]
pub(super) struct Schedule {
    arrivals: Arrivals,
    next_index: u64,
    stride: u64,
    random: Pcg64,
    /// Of a Poisson process: arrivals drawn so far, and when the last of them is due, in s.
    drawn: u64,
    drawn_s: f64,
}

impl Schedule {
    pub(super) fn new(arrivals: Arrivals, offset: usize, stride: usize) -> Self {
        let seed = if let Arrivals::Poisson { seed, .. } = arrivals { seed } else { 0 };
        Schedule {
            arrivals,
            next_index: offset as u64,
            stride: stride as u64,
            random: Pcg64::seed_from_u64(seed),
            drawn: 0,
            drawn_s: 0.0,
        }
    }
}

impl Iterator for Schedule {
    /// The index of a request, and when it is due after the start.
    type Item = (u64, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next_index;
        let due_s = match &self.arrivals {
            Arrivals::Constant { per_s } => index as f64 / per_s,
            Arrivals::Poisson { per_s, .. } => {
                while self.drawn <= index {
                    let gap: f64 = Exp1.sample(&mut self.random);
                    self.drawn_s += gap / per_s;
                    self.drawn += 1;
                }
                self.drawn_s
            }
            Arrivals::Given(times) => {
                let due = *times.get(usize::try_from(index).ok()?)?;
                self.next_index += self.stride;
                return Some((index, due));
            }
        };
        self.next_index += self.stride;
        Some((index, Duration::try_from_secs_f64(due_s).ok()?))
    }
}

/// A timer of the kernel's resolution. Tokio's ticks in milliseconds, which would be in every latency.
pub(super) struct Timer {
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Must be called on the runtime that will wait for it.
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[allow(
            deprecated,
            reason = "what replaces it is unsafe, for types whose descriptor may change; an OwnedFd's does not"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Timer { fd })
    }

    /// Waits until `due`, or a little longer.
    pub(super) async fn wait_until(&self, due: Instant) -> io::Result<()> {
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        let once =
            Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(wait.max(SLEEP_MIN)) };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.fd.readable().await?;
            let expired = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut [0; 8])?));
            match expired {
                Ok(read) => return read.map(|_| ()),
                // Readiness left over from before the timer was set again.
                Err(_would_block) => {}
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn interleaved(arrivals: &Arrivals, threads: usize, each: usize) -> Vec<(u64, Duration)> {
        let shares = (0..threads).map(|thread| Schedule::new(arrivals.clone(), thread, threads));
        let mut all: Vec<_> = shares.flat_map(|share| share.take(each)).collect();
        all.sort();
        all
    }

    #[test]
    fn threads_share_one_schedule() {
        let given = Arrivals::Given((0..12).map(Duration::from_secs).collect());
        let poisson = Arrivals::Poisson { per_s: 100.0, seed: 7 };
        for arrivals in [Arrivals::Constant { per_s: 100.0 }, poisson, given] {
            let alone: Vec<_> = Schedule::new(arrivals.clone(), 0, 1).take(12).collect();
            assert_eq!(interleaved(&arrivals, 3, 4), alone, "{arrivals:?}");
            assert!(alone.is_sorted_by_key(|(_, due)| *due));
        }
    }

    #[test]
    fn poisson_arrivals_keep_their_rate() {
        let arrivals = Arrivals::Poisson { per_s: 1000.0, seed: 1 };
        let (_, last) = Schedule::new(arrivals, 0, 1).nth(19_999).expect("endless");
        assert!((last.as_secs_f64() / 20.0 - 1.0).abs() < 0.03, "{last:?}");
    }

    #[test]
    fn given_arrivals_end() {
        let arrivals = Arrivals::Given(Arc::from([Duration::ZERO, Duration::from_secs(1)]));
        assert_eq!(Schedule::new(arrivals, 0, 1).count(), 2);
    }
}
