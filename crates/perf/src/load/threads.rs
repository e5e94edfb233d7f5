//! Threads on the node's CPU that the measuring side wakes, counts and times. They belong to this process, so that it
//! knows when each started, and are pinned to the other CPU.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64;
use rustix::thread::{Pid, gettid};

use crate::cpus;
use sidelong_app::Failure;

/// Interval at which a busy thread checks whether to go on.
const PIECE: Duration = Duration::from_micros(50);
/// Threads that were told to rest must do so within this time.
const REST_MAX: Duration = Duration::from_secs(60);
/// Mean times for which a fluctuating thread is busy, and asleep.
const BUSY_MEAN: Duration = Duration::from_millis(20);
const ASLEEP_MEAN: Duration = Duration::from_millis(20);
/// Each time is at most this multiple of its mean.
const MEANS_MAX: f64 = 8.0;
/// Multiplications and additions of a piece of work.
const FLOPS: u32 = 20_000;

/// Threads that sleep until they are woken together, then are busy until they are told to rest.
pub(super) struct Sleepers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    busy: AtomicBool,
    end: AtomicBool,
    /// Threads that are awake.
    awake: AtomicU32,
}

impl Sleepers {
    /// Starts `count` of them on `cpu`.
    pub(super) fn start(count: u32, cpu: Option<usize>) -> Result<Self, Failure> {
        let mut sleepers = Sleepers { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..count {
            let shared = Arc::clone(&sleepers.shared);
            sleepers.threads.push(spawn("perf-step", cpu, move || shared.sleep_and_wake())?);
        }
        Ok(sleepers)
    }

    /// Wakes all of them.
    pub(super) fn wake(&self) {
        self.shared.busy.store(true, Ordering::Release);
        self.threads.iter().map(JoinHandle::thread).for_each(Thread::unpark);
    }

    /// Tells all of them to rest, and waits until they do.
    pub(super) fn rest(&self) -> Result<(), Failure> {
        self.shared.busy.store(false, Ordering::Release);
        let begun = Instant::now();
        while self.shared.awake.load(Ordering::Acquire) > 0 {
            if begun.elapsed() > REST_MAX {
                return Err(Failure(format!(
                    "threads on the node's CPU had no turn in {} s",
                    REST_MAX.as_secs()
                )));
            }
            thread::sleep(PIECE);
        }
        Ok(())
    }
}

impl Shared {
    fn sleep_and_wake(&self) {
        while !self.end.load(Ordering::Acquire) {
            if !self.busy.load(Ordering::Acquire) {
                thread::park();
                continue;
            }
            self.awake.fetch_add(1, Ordering::AcqRel);
            while self.busy.load(Ordering::Acquire) {
                compute_for(PIECE);
            }
            self.awake.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        self.shared.busy.store(false, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Threads that come and go as requests do: each is busy and asleep for random times, from a seed of its own.
pub(super) struct Fluctuating {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<Pid>,
}

impl Fluctuating {
    /// Starts `count` of them on `cpu`.
    pub(super) fn start(count: u32, cpu: Option<usize>) -> Result<Self, Failure> {
        let mut threads = Fluctuating { end: Arc::default(), threads: Vec::new(), ids: Vec::new() };
        let (tell, told) = mpsc::sync_channel(count as usize);
        for seed in 0..count {
            let (end, tell) = (Arc::clone(&threads.end), tell.clone());
            let work = move || {
                // The receiver waits for it.
                let _ = tell.send(gettid());
                let mut random = Pcg64::seed_from_u64(u64::from(seed));
                while !end.load(Ordering::Relaxed) {
                    compute_for(drawn(&mut random, BUSY_MEAN));
                    thread::sleep(drawn(&mut random, ASLEEP_MEAN));
                }
            };
            threads.threads.push(spawn("perf-load", cpu, work)?);
        }
        drop(tell);
        threads.ids = told.iter().take(count as usize).collect();
        Ok(threads)
    }

    /// The threads.
    pub(super) fn ids(&self) -> &[Pid] {
        &self.ids
    }
}

impl Drop for Fluctuating {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Exponentially distributed, and bounded.
fn drawn(random: &mut Pcg64, mean: Duration) -> Duration {
    let of_mean: f64 = Exp1.sample(random);
    mean.mul_f64(of_mean.min(MEANS_MAX))
}

/// Starts `pieces` of floating-point work on `cpu` (the application of Vaidyanathan et al. 2006, 5.1.2); returns the
/// time that they took.
pub(super) fn application(pieces: u32, cpu: Option<usize>) -> Result<JoinHandle<Duration>, Failure> {
    spawn("perf-app", cpu, move || {
        let begun = Instant::now();
        (0..pieces).for_each(|_| piece());
        begun.elapsed()
    })
}

/// One piece of it: each step depends on the previous one.
fn piece() {
    let mut value = black_box(1.000_000_1_f64);
    for _ in 0..FLOPS {
        value = value * 0.999_999_9 + 1e-7;
    }
    black_box(value);
}

fn compute_for(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    cpu: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let held = move || {
        // The thread that started it was pinned there before, so this can be, too.
        let _ = cpus::put(cpu);
        work()
    };
    Ok(thread::Builder::new().name(name.to_owned()).spawn(held)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_and_rest() {
        let sleepers = Sleepers::start(2, None).unwrap();
        for _ in 0..3 {
            sleepers.wake();
            while sleepers.shared.awake.load(Ordering::Acquire) < 2 {
                thread::yield_now();
            }
            sleepers.rest().unwrap();
            assert_eq!(sleepers.shared.awake.load(Ordering::Acquire), 0);
        }
    }

    #[test]
    fn drawn_times_have_their_mean() {
        let mut random = Pcg64::seed_from_u64(7);
        let sum: Duration = (0..20_000).map(|_| drawn(&mut random, BUSY_MEAN)).sum();
        let of_mean = sum.as_secs_f64() / 20_000.0 / BUSY_MEAN.as_secs_f64();
        assert!((0.95..1.05).contains(&of_mean), "{of_mean}");
    }
}
