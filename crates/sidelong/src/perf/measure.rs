//! The measuring itself: latency of batches, and bandwidth of windows.
//!
//! A batch that takes a microsecond or more is timed by itself. A shorter one would be drowned by the clock readings, so
//! runs of them are timed, long enough for these not to count, and percentiles are over runs: a single slow operation
//! within one is levelled out.
//!
//! A batch is prepared once and run again and again, as perftest does; but compare-and-swaps, each of which expects what
//! the last one found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_fabric::{Batch, Initiator, LinkId, OpError, OpId};
use sidelong_layout::HEADER_BYTES;

use crate::failure::Failure;
use crate::perf::args::{MeasureArgs, Operation, PerfFabric};
use crate::perf::far::{Far, gone};
use crate::perf::figures::{Bandwidth, Cost, Latency};
use crate::perf::ping_pong::{self, Pong};
use crate::perf::target::cpu_ns;

/// Clock readings cost tens of nanoseconds: a measured run takes at least this long,
const RUN_MIN: Duration = Duration::from_micros(20);
/// unless a single batch takes this long.
const SINGLE_MIN: Duration = Duration::from_micros(1);
/// Batches of a run where their number is given: their times are not what is asked for.
const BATCHES_PER_RUN: u64 = 64;
/// Runs by which it is found out how many batches a run has, of each length.
const TRIES: u32 = 5;
/// Measured runs.
const RUNS: usize = 20_000;
const RUNS_QUICK: usize = 2_000;
/// Of single batches, and with busy threads, whose effect is in rare ones.
const SINGLES: usize = 100_000;
const SINGLES_QUICK: usize = 5_000;
const SAMPLES_MAX: usize = 4_000_000;
/// One batch has this long; a target that is busy with many threads may take a good part of it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// An inbox that is full for this long is not emptied at all.
const FULL_MAX: Duration = Duration::from_secs(20);
/// Before what found it full is sent again, the first time and at most.
const PAUSE: Duration = Duration::from_micros(1);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// A shorter pause is not worth a sleep.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// How often it is looked whether the other side is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One size of one operation, over links that are there.
pub(super) struct Measurement<'a> {
    pub(super) args: &'a MeasureArgs,
    pub(super) far: &'a mut Far,
    pub(super) stop: &'a AtomicBool,
    pub(super) initiator: &'a mut Initiator,
    pub(super) links: &'a [LinkId],
    /// Where writes are answered, if they are.
    pub(super) pong: Option<&'a Pong>,
    /// Of each operation, as asked for.
    pub(super) bytes: usize,
}

impl Measurement<'_> {
    /// How long one batch takes.
    pub(super) fn latency(&mut self) -> Result<(Latency, Cost), Failure> {
        let mut work = Work::new(self, 1);
        let batches_per_run = match self.args.iterations {
            None => work.batches_per_run(self.initiator)?,
            // Fixed, so that nothing is done that depends on the time.
            Some(batches) if work.is_short => batches.min(BATCHES_PER_RUN) as u32,
            Some(_) => 1,
        };
        let runs = self.runs(batches_per_run);
        let time_max = if self.args.iterations.is_some() { Duration::MAX } else { self.time_max() };
        let mut samples = Vec::with_capacity(runs.min(SAMPLES_MAX));
        let before = self.meter()?;
        work.forget();
        let mut left = self.args.iterations.unwrap_or(u64::MAX);
        let mut look = Look::new(self.stop);
        while samples.len() < runs && look.elapsed() < time_max {
            look.at(self.far)?;
            // The last run of a given number may be a shorter one.
            let batches = u64::from(batches_per_run).min(left);
            left -= batches;
            let start = Instant::now();
            for _ in 0..batches {
                work.once(self.initiator)?;
            }
            samples.push(start.elapsed().as_nanos() as f64 / batches as f64 / work.writes_each());
        }
        let cost = cost(before, self.far, &work)?;
        Ok((latency(samples, batches_per_run), cost))
    }

    /// How much is moved by windows of operations.
    pub(super) fn bandwidth(&mut self) -> Result<(Bandwidth, Cost), Failure> {
        let window = self.args.window;
        let mut work = Work::new(self, window);
        work.once(self.initiator)?;
        work.forget();
        let batches = self.args.iterations.unwrap_or(u64::MAX);
        let time_max = if self.args.iterations.is_some() { Duration::MAX } else { self.time_max() };
        let before = self.meter()?;
        let mut look = Look::new(self.stop);
        let mut done = 0;
        while done < batches && look.elapsed() < time_max {
            look.at(self.far)?;
            work.once(self.initiator)?;
            done += 1;
        }
        let seconds = look.elapsed().as_secs_f64();
        let cost = cost(before, self.far, &work)?;
        let operations_per_s = cost.operations as f64 / seconds;
        Ok((Bandwidth { window, bytes_per_s: operations_per_s * self.bytes as f64, operations_per_s }, cost))
    }

    /// CPU time so far. Not for a given number of batches: that is for valgrind, under which this clock cannot be read.
    fn meter(&mut self) -> Result<Option<Meter>, Failure> {
        self.args.iterations.is_none().then(|| Meter::read(self.far)).transpose()
    }

    fn runs(&self, batches_per_run: u32) -> usize {
        match self.args.iterations {
            Some(batches) => batches.div_ceil(batches_per_run.into()) as usize,
            None if self.args.background > 0 => SAMPLES_MAX,
            None if batches_per_run > 1 => {
                if self.args.quick {
                    RUNS_QUICK
                } else {
                    RUNS
                }
            }
            None => {
                if self.args.quick {
                    SINGLES_QUICK
                } else {
                    SINGLES
                }
            }
        }
    }

    /// How long one size may take. Busy threads have turns of milliseconds each, of which there must be many.
    fn time_max(&self) -> Duration {
        let ms = match (self.args.sizes.is_some(), self.args.background > 0, self.args.quick) {
            (false, false, false) => 5000,
            (false, true, false) => 4000,
            (true, _, false) => 500,
            (false, true, true) => 800,
            (false, false, true) => 400,
            (true, _, true) => 50,
        };
        Duration::from_millis(ms)
    }
}

/// Whether to go on: asked before each run, answered by the clock that the run needs anyway.
struct Look<'a> {
    stop: &'a AtomicBool,
    began: Instant,
    next: Duration,
}

impl<'a> Look<'a> {
    fn new(stop: &'a AtomicBool) -> Self {
        Look { stop, began: Instant::now(), next: LOOK_EVERY }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn at(&mut self, far: &Far) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::new("interrupted"));
        }
        if self.elapsed() > self.next {
            self.next = self.elapsed() + LOOK_EVERY;
            far.is_there()?;
        }
        Ok(())
    }
}

/// A batch that is run again and again.
struct Work<'a> {
    operation: Operation,
    batch: Batch,
    operations: Vec<OpId>,
    links: Vec<LinkId>,
    /// What each word holds, as far as is known: for compare-and-swap.
    expected: Vec<u64>,
    /// Of the others, what is sent or written.
    words: Vec<u64>,
    bytes: usize,
    is_short: bool,
    /// Where the target answers writes, if it does, and how many it has.
    pong: Option<&'a Pong>,
    answered: u64,
    stop: &'a AtomicBool,
    done: u64,
    inbox_full: u64,
}

impl<'a> Work<'a> {
    /// `times` operations on each link.
    fn new(measurement: &Measurement<'a>, times: u32) -> Self {
        let Measurement { args, bytes, pong, stop, .. } = *measurement;
        let links: Vec<_> =
            std::iter::repeat_n(measurement.links, times as usize).flatten().copied().collect();
        let mut work = Work {
            operation: args.operation,
            batch: Batch::new(),
            operations: Vec::with_capacity(links.len()),
            expected: vec![0; links.len()],
            links,
            words: (0..bytes.div_ceil(8) as u64).collect(),
            bytes,
            is_short: args.fabric == PerfFabric::Shm,
            pong,
            answered: 0,
            stop,
            done: 0,
            inbox_full: 0,
        };
        work.fill();
        work
    }

    fn fill(&mut self) {
        let Work { operation, batch, operations, links, expected, words, bytes, .. } = self;
        batch.clear();
        operations.clear();
        let at = HEADER_BYTES;
        for (link, word) in links.iter().zip(expected) {
            operations.push(match operation {
                Operation::Read => batch.read(*link, at, *bytes),
                Operation::Write => batch.write(*link, at, words),
                Operation::WriteImm => batch.write_with_immediate(*link, at, words, *bytes as u32),
                Operation::Send => {
                    let message: Vec<u8> = (0..*bytes).map(|byte| byte as u8).collect();
                    batch.send(*link, &message)
                }
                Operation::Cas => batch.compare_and_swap(*link, at, *word, *word + 1),
                Operation::Faa => batch.fetch_and_add(*link, at, 1),
            });
        }
    }

    /// By which the time of one run of it is divided.
    fn writes_each(&self) -> f64 {
        if self.pong.is_some() { 2.0 } else { 1.0 }
    }

    /// Runs it until all that it has is done.
    fn once(&mut self, initiator: &mut Initiator) -> Result<(), Failure> {
        if let Some(pong) = self.pong {
            return self.once_answered(pong, initiator);
        }
        if self.operation == Operation::Cas {
            self.fill();
        }
        initiator.run(&mut self.batch, TIMEOUT);
        if self.operation.is_two_sided() {
            return self.until_received(initiator);
        }
        for (operation, expected) in self.operations.iter().zip(&mut self.expected) {
            let words = self.batch.words(*operation).map_err(failed)?;
            if self.operation == Operation::Cas {
                *expected = if words[0] == *expected { words[0] + 1 } else { words[0] };
            }
        }
        self.done += self.operations.len() as u64;
        Ok(())
    }

    /// Writes, and waits for the answer.
    fn once_answered(&mut self, pong: &Pong, initiator: &mut Initiator) -> Result<(), Failure> {
        let number = self.answered + 1;
        let write = ping_pong::write(&mut self.batch, self.links[0], &mut self.words, number);
        initiator.run(&mut self.batch, TIMEOUT);
        self.batch.words(write).map_err(failed)?;
        pong.wait(self.words.len(), number, self.stop)?;
        self.answered = number;
        self.done += 1;
        Ok(())
    }

    /// Sends again what found the inbox full: as many as were refused, each as good as the other.
    fn until_received(&mut self, initiator: &mut Initiator) -> Result<(), Failure> {
        let (mut began, mut tries) = (None, 0);
        let mut missing = self.operations.len();
        loop {
            for operation in &self.operations {
                match self.batch.words(*operation) {
                    Ok(_) => {
                        missing = missing.saturating_sub(1);
                        self.done += 1;
                    }
                    Err(OpError::InboxFull) => self.inbox_full += 1,
                    Err(error) => return Err(failed(error)),
                }
            }
            if missing == 0 {
                return Ok(());
            }
            if began.get_or_insert_with(Instant::now).elapsed() > FULL_MAX {
                return Err(Failure::new("the target does not empty its inbox"));
            }
            pause(tries);
            tries += 1;
            initiator.run(&mut self.batch, TIMEOUT);
        }
    }

    /// Begins to count anew.
    fn forget(&mut self) {
        (self.done, self.inbox_full) = (0, 0);
    }

    /// How many batches a run has.
    fn batches_per_run(&mut self, initiator: &mut Initiator) -> Result<u32, Failure> {
        let mut batches = 1u32;
        loop {
            // The least of some: whoever is interrupted once is not slow.
            let mut took = Duration::MAX;
            for _ in 0..TRIES {
                let start = Instant::now();
                for _ in 0..batches {
                    self.once(initiator)?;
                }
                took = took.min(start.elapsed());
            }
            if took >= RUN_MIN || batches >= 1 << 20 {
                return Ok(if took / batches >= SINGLE_MIN { 1 } else { batches });
            }
            batches *= 2;
        }
    }
}

/// Before a message is sent again: twice as long each time, so that the receiver has the CPU that it may share with whoever
/// tells that its inbox is full.
fn pause(tries: u32) {
    let time = PAUSE.saturating_mul(1 << tries.min(16)).min(PAUSE_MAX);
    if time > SLEEP_MIN {
        return std::thread::sleep(time);
    }
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn failed(error: OpError) -> Failure {
    match error {
        OpError::PeerGone | OpError::KeyRejected => gone(),
        other => Failure(format!("an operation failed: {other}")),
    }
}

/// CPU time of both sides.
struct Meter {
    here_ns: u64,
    there_ns: u64,
}

impl Meter {
    fn read(far: &mut Far) -> Result<Self, Failure> {
        // In this order, so that asking the other side counts on neither.
        let there_ns = far.used()?.cpu_ns;
        Ok(Meter { here_ns: cpu_ns(), there_ns })
    }
}

/// What `work` has cost since `before`.
fn cost(before: Option<Meter>, far: &mut Far, work: &Work<'_>) -> Result<Cost, Failure> {
    let (mut initiator_cpu_ns, mut target_cpu_ns) = (None, None);
    if let Some(before) = before {
        let each = |ns: u64| Some(ns as f64 / work.done.max(1) as f64);
        initiator_cpu_ns = each(cpu_ns() - before.here_ns);
        target_cpu_ns = each(far.used()?.cpu_ns.saturating_sub(before.there_ns));
    }
    Ok(Cost { operations: work.done, initiator_cpu_ns, target_cpu_ns, inbox_full: work.inbox_full })
}

fn latency(mut samples: Vec<f64>, batches_per_run: u32) -> Latency {
    samples.sort_by(f64::total_cmp);
    let at = |quantile: f64| {
        let last = samples.len().saturating_sub(1);
        samples.get((last as f64 * quantile).round() as usize).copied().unwrap_or(0.0)
    };
    Latency {
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
        mean_ns: samples.iter().sum::<f64>() / samples.len().max(1) as f64,
        batches_per_run,
        runs: samples.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_seen() {
        let samples: Vec<f64> = (0..=1000).rev().map(f64::from).collect();
        let seen = latency(samples, 1);
        assert_eq!((seen.p50_ns, seen.p99_ns, seen.p999_ns), (500.0, 990.0, 999.0));
        assert_eq!((seen.max_ns, seen.mean_ns, seen.runs), (1000.0, 500.0, 1001));
        assert_eq!(latency(vec![7.0], 3).p999_ns, 7.0);
    }
}
