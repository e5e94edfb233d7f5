//! The pace of an open loop: when requests are due, and a timer precise enough to send them then.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::arrivals::{Arrivals, Gaps, Step, Stream};
use super::worker::Cue;

/// Shortest sleep. At high rates requests are sent in batches of this duration, instead of with a system call for each.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// One thread's share of the arrivals: every `stride`-th, from the `offset`-th on. A request's time and client do not
/// depend on the number of threads.
#[derive(Debug)]
pub(crate) struct Schedule {
    arrivals: All,
    /// Index of the next arrival over all threads.
    index: u64,
    offset: u64,
    stride: u64,
}

impl Schedule {
    /// The schedule of this number of clients, at least one.
    pub(crate) fn new(arrivals: Arrivals, clients: usize, offset: usize, stride: usize) -> Self {
        let one = |per_s, gaps| {
            vec![Stream { steps: vec![Step { at: Duration::ZERO, per_s }], gaps, clients: None }]
        };
        let streams = |streams: Vec<Stream>, seed: u64| {
            let numbered = streams.into_iter().zip(0..);
            let lane = |(stream, number)| Lane::new(stream, clients, seed.wrapping_add(number));
            All::Streams(numbered.map(lane).collect())
        };
        let arrivals = match arrivals {
            Arrivals::Constant { per_s } => streams(one(per_s, Gaps::Equal), 0),
            Arrivals::Poisson { per_s, seed } => streams(one(per_s, Gaps::Poisson), seed),
            Arrivals::Streams { streams: given, seed } => streams(given, seed),
            Arrivals::Given(times) => All::Given { times, clients },
        };
        Schedule { arrivals, index: 0, offset: offset as u64, stride: stride as u64 }
    }
}

impl Iterator for Schedule {
    /// A request, and when it is due after the start.
    type Item = (Cue, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let index = self.index;
            let (cue, due) = self.arrivals.next(index)?;
            self.index += 1;
            if index % self.stride == self.offset {
                return Some((cue, due));
            }
        }
    }
}

/// The arrivals of all threads.
#[derive(Debug)]
enum All {
    Streams(Vec<Lane>),
    Given { times: Arc<[Duration]>, clients: usize },
}

impl All {
    fn next(&mut self, index: u64) -> Option<(Cue, Duration)> {
        match self {
            All::Streams(lanes) => {
                let first = |lane: &(usize, &mut Lane)| lane.1.next_s;
                let (stream, lane) =
                    lanes.iter_mut().enumerate().min_by(|a, b| first(a).total_cmp(&first(b)))?;
                let due = Duration::try_from_secs_f64(lane.next_s).ok()?;
                let (nth, client) = (lane.nth, lane.client);
                lane.advance();
                Some((Cue { index, stream, nth, client }, due))
            }
            All::Given { times, clients } => {
                let due = *times.get(usize::try_from(index).ok()?)?;
                let client = (index % *clients as u64) as usize;
                Some((Cue { index, stream: 0, nth: index, client }, due))
            }
        }
    }
}

/// One stream's arrivals: each is due when the accumulated rate reaches the number drawn for it.
#[derive(Debug)]
struct Lane {
    steps: Vec<Step>,
    gaps: Gaps,
    clients: Range<usize>,
    random: Pcg64,
    /// The current step, and the accumulated rate at its start.
    step: usize,
    due_before: f64,
    /// The next arrival: the number drawn for it, its time in s (infinite after the last), and its client.
    drawn: f64,
    next_s: f64,
    nth: u64,
    client: usize,
}

impl Lane {
    fn new(stream: Stream, clients: usize, seed: u64) -> Self {
        let mut lane = Lane {
            steps: stream.steps,
            gaps: stream.gaps,
            clients: stream.clients.unwrap_or(0..clients),
            random: Pcg64::seed_from_u64(seed),
            step: 0,
            due_before: 0.0,
            drawn: 0.0,
            next_s: 0.0,
            nth: 0,
            client: 0,
        };
        lane.draw();
        lane
    }

    fn advance(&mut self) {
        self.nth += 1;
        self.draw();
    }

    fn draw(&mut self) {
        let clients = self.clients.len();
        let client = match self.gaps {
            Gaps::Equal => {
                self.drawn = self.nth as f64;
                (self.nth % clients as u64) as usize
            }
            Gaps::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.random);
                self.drawn += gap;
                if clients > 1 { self.random.random_range(0..clients) } else { 0 }
            }
        };
        self.client = self.clients.start + client;
        self.next_s = self.when();
    }

    /// When the accumulated rate reaches the number drawn.
    fn when(&mut self) -> f64 {
        while let Some(step) = self.steps.get(self.step) {
            let at_s = step.at.as_secs_f64();
            let end_s = self.steps.get(self.step + 1).map_or(f64::INFINITY, |next| next.at.as_secs_f64());
            if step.per_s > 0.0 {
                let due_s = at_s + (self.drawn - self.due_before) / step.per_s;
                if due_s < end_s {
                    return due_s;
                }
                self.due_before += (end_s - at_s) * step.per_s;
            }
            self.step += 1;
        }
        f64::INFINITY
    }
}

/// A timer with the kernel's resolution. Tokio's ticks of a millisecond would show in every latency.
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
                // Readiness from before the timer was set again.
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

    fn alone(arrivals: &Arrivals, clients: usize) -> Schedule {
        Schedule::new(arrivals.clone(), clients, 0, 1)
    }

    fn interleaved(arrivals: &Arrivals, threads: usize, each: usize) -> Vec<(Cue, Duration)> {
        let shares = (0..threads).map(|thread| Schedule::new(arrivals.clone(), 5, thread, threads));
        let mut all: Vec<_> = shares.flat_map(|share| share.take(each)).collect();
        all.sort();
        all
    }

    fn steps(steps: &[(u64, f64)]) -> Vec<Step> {
        steps.iter().map(|(ms, per_s)| Step { at: Duration::from_millis(*ms), per_s: *per_s }).collect()
    }

    #[test]
    fn threads_share_one_schedule() {
        let given = Arrivals::Given((0..12).map(Duration::from_secs).collect());
        let poisson = Arrivals::Poisson { per_s: 100.0, seed: 7 };
        let [a, b] = [&[(0, 50.0)][..], &[(20, 0.0), (30, 200.0)]].map(|each| Stream::poisson(steps(each)));
        let streams = Arrivals::Streams { streams: vec![a, b.of(1..3)], seed: 7 };
        for arrivals in [Arrivals::Constant { per_s: 100.0 }, poisson, given, streams] {
            let alone: Vec<_> = alone(&arrivals, 5).take(12).collect();
            assert_eq!(interleaved(&arrivals, 3, 4), alone, "{arrivals:?}");
            assert!(alone.is_sorted_by_key(|(_, due)| *due));
            assert!(alone.iter().zip(0..).all(|((cue, _), index)| cue.index == index));
        }
    }

    #[test]
    fn poisson_arrivals_keep_their_rate() {
        let arrivals = Arrivals::Poisson { per_s: 1000.0, seed: 1 };
        let (_, last) = alone(&arrivals, 1).nth(19_999).expect("endless");
        assert!((last.as_secs_f64() / 20.0 - 1.0).abs() < 0.03, "{last:?}");
    }

    #[test]
    fn given_arrivals_end() {
        let arrivals = Arrivals::Given(Arc::from([Duration::ZERO, Duration::from_secs(1)]));
        assert_eq!(alone(&arrivals, 1).count(), 2);
    }

    #[test]
    fn each_stream_has_the_rate_of_the_step_that_it_is_in() {
        // Nothing for 1 s, 100/s for 1 s, nothing for 1 s, 400/s for 1 s, and no more.
        let burst = steps(&[(1000, 100.0), (2000, 0.0), (3000, 400.0), (4000, 0.0)]);
        for gaps in [Gaps::Equal, Gaps::Poisson] {
            let stream = Stream { steps: burst.clone(), gaps, clients: None };
            let beside = Stream { steps: steps(&[(0, 50.0), (6000, 0.0)]), gaps, clients: None };
            let arrivals = Arrivals::Streams { streams: vec![stream, beside], seed: 3 };
            let all: Vec<_> = alone(&arrivals, 1).collect();
            let within = |stream, second: u64| {
                let of = all.iter().filter(|(cue, due)| cue.stream == stream && due.as_secs() == second);
                of.count() as i64
            };
            // Of a Poisson process some four standard deviations.
            let about = |count: i64, mean: i64| match gaps {
                Gaps::Equal => (count - mean).abs() <= 1,
                Gaps::Poisson => (count - mean).pow(2) <= 16 * mean,
            };
            for (second, mean) in (0..).zip([0, 100, 0, 400, 0, 0]) {
                assert!(about(within(0, second), mean), "{gaps:?}: {} in s {second}", within(0, second));
                assert!(about(within(1, second), 50), "{gaps:?}: {} in s {second}", within(1, second));
            }
            let counted =
                |stream| all.iter().filter(move |(cue, _)| cue.stream == stream).map(|(cue, _)| cue.nth);
            assert!(counted(0).eq(0..counted(0).count() as u64), "each stream counts its own");
        }
    }

    #[test]
    fn clients_of_a_stream_have_equal_parts_of_it() {
        for gaps in [Gaps::Equal, Gaps::Poisson] {
            let stream = Stream { steps: steps(&[(0, 1000.0), (10_000, 0.0)]), gaps, clients: Some(3..7) };
            let mut counts = [0i64; 9];
            for (cue, _) in alone(&Arrivals::Streams { streams: vec![stream], seed: 1 }, 9) {
                counts[cue.client] += 1;
            }
            let (own, others) = (&counts[3..7], counts[..3].iter().chain(&counts[7..]));
            assert!(own.iter().all(|count| (count - 2500).pow(2) <= 16 * 2500), "{counts:?}");
            assert_eq!(others.sum::<i64>(), 0);
        }
    }
}
