//! Workers that burn: threads that take CPU time for each request, as a server of dynamic content does.
//!
//! What a request costs is its path's, not a draw's: the same one costs the same each time and at every node, and paths
//! differ as an exponential distribution does. So a load that asks for few objects over and over is a more even one than
//! one that asks for many (Vaidyanathan et al. 2006, 5.2.1).

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use tokio::sync::oneshot;

use super::book::Full;
use super::gauges::OriginGauges;
use super::workers::Hold;

/// Largest cost of a path, as a multiple of the mean.
const MEANS_MAX: f64 = 10.0;
/// Iterations between two readings of the clock.
const TURNS: u32 = 2_000;

/// The threads of one origin, which end when this is dropped.
pub(super) struct Burners {
    mean: Duration,
    depth_max: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    come: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    idle: usize,
    end: bool,
}

/// One request's work. Dropping the sender tells the waiting request, if it still waits, that the work is done.
struct Job {
    cost: Duration,
    hold: Hold,
    done: oneshot::Sender<()>,
}

impl Burners {
    /// Starts `workers` threads. A request takes `mean` of CPU time on average, and at most `depth_max` of them wait.
    pub(super) fn start(workers: u32, mean: Duration, depth_max: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut burners =
            Burners { mean, depth_max: depth_max as usize, shared: Arc::clone(&shared), threads: Vec::new() };
        for _ in 0..workers {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("origin-burn".to_owned());
            burners.threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(burners)
    }

    /// Passes the request for `path` to a thread; the returned future resolves when it is done, either way.
    pub(super) fn take(&self, gauges: &Arc<OriginGauges>, path: &str) -> Result<oneshot::Receiver<()>, Full> {
        let cost = cost(path, self.mean);
        let (done, ended) = oneshot::channel();
        let mut state = self.shared.lock();
        if state.waiting.len() >= self.depth_max.saturating_add(state.idle) {
            let each = state.waiting.len() as u64 / self.threads.len().max(1) as u64;
            let wait = u64::try_from(self.mean.as_nanos()).unwrap_or(u64::MAX).saturating_mul(each);
            return Err(Full { wait });
        }
        gauges.service_ns_total.fetch_add(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        gauges.service_total.fetch_add(1, Relaxed);
        state.waiting.push_back(Job { cost, hold: Hold::new(gauges), done });
        drop(state);
        self.shared.come.notify_one();
        Ok(ended)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.end = true;
        state.waiting.clear();
        drop(state);
        self.shared.come.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            burn(job.cost);
            drop(job.hold);
            let _ = job.done.send(());
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.end {
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            state = self.come.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// The CPU time that a request for `path` takes.
fn cost(path: &str, mean: Duration) -> Duration {
    let of_mean: f64 = Exp1.sample(&mut Pcg64::seed_from_u64(sidelong_layout::fnv1a(path.as_bytes())));
    mean.mul_f64(of_mean.min(MEANS_MAX))
}

/// Uses that much CPU time of this thread, however long it takes.
fn burn(cost: Duration) {
    let begun = sidelong_os::thread_cpu();
    let mut value = 1.000_000_1_f64;
    while sidelong_os::thread_cpu().saturating_sub(begun) < cost {
        for _ in 0..TURNS {
            value = std::hint::black_box(value * 0.999_999_9 + 1e-7);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_always_costs_the_same_and_paths_differ() {
        let mean = Duration::from_millis(1);
        assert_eq!(cost("/o/7/1024", mean), cost("/o/7/1024", mean));
        let costs: Vec<_> = (0..10_000).map(|id| cost(&format!("/o/{id}/1024"), mean)).collect();
        let of_mean = costs.iter().sum::<Duration>().as_secs_f64() / 10_000.0 / mean.as_secs_f64();
        assert!((0.95..1.05).contains(&of_mean), "{of_mean}");
        let under = costs.iter().filter(|cost| **cost < mean).count() as f64 / 10_000.0;
        assert!(
            (0.61..0.66).contains(&under),
            "an exponential distribution has 0.632 below its mean: {under}"
        );
    }

    #[test]
    fn burning_takes_cpu_time() {
        let begun = sidelong_os::thread_cpu();
        burn(Duration::from_millis(3));
        assert!(sidelong_os::thread_cpu() - begun >= Duration::from_millis(3));
    }

    #[test]
    fn what_is_done_is_heard_and_what_does_not_fit_is_refused() {
        let gauges = Arc::new(OriginGauges::default());
        let burners = Burners::start(1, Duration::from_millis(1), 2).unwrap();
        burners.take(&gauges, "/a").unwrap().blocking_recv().unwrap();
        assert_eq!(gauges.outstanding.load(Relaxed), 0);
        assert_eq!(gauges.service_total.load(Relaxed), 1);
        // One in service, two that wait, and no more.
        let slow = Burners::start(1, Duration::from_secs(1), 2).unwrap();
        let taken: Vec<_> = (0..8).map(|_| slow.take(&gauges, "/a")).collect();
        let refused = taken.iter().filter(|turn| turn.is_err()).count();
        assert!((5..=6).contains(&refused), "{refused}");
    }
}
