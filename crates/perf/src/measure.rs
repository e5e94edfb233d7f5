//! The measurement: latency of batches, and bandwidth of windows.
//!
//! A batch that takes a microsecond or more is timed by itself. For a shorter one, clock readings would dominate. So
//! runs of batches are timed that are long enough to make them negligible, and percentiles are over runs: a single slow
//! operation within a run is averaged out.
//!
//! A batch is prepared once and run repeatedly, as in perftest, except compare-and-swaps, each of which expects what
//! the last one found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::results::{Bandwidth, Latency, Operation, PerfFabric, Speed};
use sidelong_fabric::{Batch, Initiator, LinkId, OpError, OpId};
use sidelong_layout::HEADER_BYTES;

use crate::args::MeasureArgs;
use crate::far::{Far, gone};
use crate::ping_pong::{self, Pong};
use crate::target::cpu_ns;
use sidelong_app::Failure;

/// Clock readings cost tens of nanoseconds: a measured run takes at least this long,
const RUN_MIN: Duration = Duration::from_micros(20);
/// unless a single batch takes this long.
const SINGLE_MIN: Duration = Duration::from_micros(1);
/// Batches of a run if their number is given, when their times do not matter.
const BATCHES_PER_RUN: u64 = 64;
/// Runs tried to find the number of batches in a run, for each length.
const TRIES: u32 = 5;
/// Measured runs.
const RUNS: usize = 20_000;
const RUNS_QUICK: usize = 2_000;
/// Number of single batches; also with busy threads, whose effect shows in rare ones.
const SINGLES: usize = 100_000;
const SINGLES_QUICK: usize = 5_000;
const SAMPLES_MAX: usize = 4_000_000;
/// Time limit of one batch; a target with many busy threads may use a good part of it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// An inbox that is full for this long is not being emptied.
const FULL_MAX: Duration = Duration::from_secs(20);
/// Pauses before a message is resent to a full inbox: the first, and the longest.
const PAUSE: Duration = Duration::from_micros(1);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Shorter pauses spin instead of sleeping.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// Interval at which the other side is checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The measurement of one size of one operation over existing links.
pub(super) struct Measurement<'a> {
    pub(super) args: &'a MeasureArgs,
    pub(super) far: &'a mut Far,
    pub(super) stop: &'a AtomicBool,
    pub(super) initiator: &'a mut Initiator,
    pub(super) links: &'a [LinkId],
    /// Where writes are answered, if they are.
    pub(super) pong: Option<&'a Pong>,
    /// Bytes of each operation, as requested.
    pub(super) bytes: usize,
}

impl Measurement<'_> {
    /// Measures the time of one batch.
    pub(super) fn latency(&mut self) -> Result<(Speed, Cost), Failure> {
        let mut work = Work::new(self, 1);
        let batches_per_run = match self.args.iterations {
            None => work.batches_per_run(self.initiator)?,
            // A fixed number, so that nothing depends on time.
            Some(batches) if work.is_short => batches.min(BATCHES_PER_RUN) as u32,
            Some(_) => 1,
        };
        let runs = self.runs(batches_per_run);
        let time_max = if self.args.iterations.is_some() { Duration::MAX } else { self.time_max() };
        let mut samples = Vec::with_capacity(runs.min(SAMPLES_MAX));
        let before = self.meter()?;
        work.forget();
        let mut left = self.args.iterations.unwrap_or(u64::MAX);
        let mut checkpoint = Checkpoint::new(self.stop);
        while samples.len() < runs && checkpoint.elapsed() < time_max {
            checkpoint.pass(self.far)?;
            // The last run of a given number may be shorter.
            let batches = u64::from(batches_per_run).min(left);
            left -= batches;
            let start = Instant::now();
            for _ in 0..batches {
                work.once(self.initiator)?;
            }
            samples.push(start.elapsed().as_nanos() as f64 / batches as f64 / work.writes_each());
        }
        let cost = cost(before, self.far, &work)?;
        Ok((Speed::Latency(Latency::of(samples, batches_per_run)), cost))
    }

    /// Measures the bytes moved by windows of operations.
    pub(super) fn bandwidth(&mut self) -> Result<(Speed, Cost), Failure> {
        let window = self.args.window;
        let mut work = Work::new(self, window);
        work.once(self.initiator)?;
        work.forget();
        let batches = self.args.iterations.unwrap_or(u64::MAX);
        let time_max = if self.args.iterations.is_some() { Duration::MAX } else { self.time_max() };
        let before = self.meter()?;
        let mut checkpoint = Checkpoint::new(self.stop);
        let mut done = 0;
        while done < batches && checkpoint.elapsed() < time_max {
            checkpoint.pass(self.far)?;
            work.once(self.initiator)?;
            done += 1;
        }
        let seconds = checkpoint.elapsed().as_secs_f64();
        let cost = cost(before, self.far, &work)?;
        let operations_per_s = cost.operations as f64 / seconds;
        let bytes_per_s = operations_per_s * self.bytes as f64;
        Ok((Speed::Bandwidth(Bandwidth { window, bytes_per_s, operations_per_s }), cost))
    }

    /// CPU time so far. `None` for a given number of batches: under valgrind this clock cannot be read.
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

    /// Time limit for one size. Busy threads have turns of milliseconds each, of which many are needed.
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

/// Decides before each run whether to go on, by the clock reading that the run needs anyway.
struct Checkpoint<'a> {
    stop: &'a AtomicBool,
    began: Instant,
    next: Duration,
}

impl<'a> Checkpoint<'a> {
    fn new(stop: &'a AtomicBool) -> Self {
        Checkpoint { stop, began: Instant::now(), next: CHECK_EVERY }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn pass(&mut self, far: &Far) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::new("interrupted"));
        }
        if self.elapsed() > self.next {
            self.next = self.elapsed() + CHECK_EVERY;
            far.is_there()?;
        }
        Ok(())
    }
}

/// A batch that is run repeatedly.
struct Work<'a> {
    operation: Operation,
    batch: Batch,
    operations: Vec<OpId>,
    links: Vec<LinkId>,
    /// The last known value of each word, for compare-and-swap.
    expected: Vec<u64>,
    /// The data to send or write, for the other operations.
    words: Vec<u64>,
    bytes: usize,
    is_short: bool,
    /// Where the target answers writes, if it does, and their number so far.
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

    /// Writes per run, by which its time is divided.
    fn writes_each(&self) -> f64 {
        if self.pong.is_some() { 2.0 } else { 1.0 }
    }

    /// Runs it until all its operations are done.
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

    /// Resends as many messages as a full inbox refused; all are equal.
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

    /// Restarts the counts.
    fn forget(&mut self) {
        (self.done, self.inbox_full) = (0, 0);
    }

    /// Finds the number of batches of a run.
    fn batches_per_run(&mut self, initiator: &mut Initiator) -> Result<u32, Failure> {
        let mut batches = 1u32;
        loop {
            // The minimum of several, because one interruption does not make a batch slow.
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

/// The pause before a message is resent: twice as long each time, because the receiver may share a CPU with the thread
/// that reports a full inbox.
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
        // In this order, so that querying the other side counts on neither.
        let there_ns = far.used()?.cpu_ns;
        Ok(Meter { here_ns: cpu_ns(), there_ns })
    }
}

/// The cost of a measurement's operations, as in [`Figures`](crate::results::Figures).
pub(super) struct Cost {
    pub(super) operations: u64,
    pub(super) initiator_cpu_ns: Option<f64>,
    pub(super) target_cpu_ns: Option<f64>,
    pub(super) inbox_full: u64,
}

/// The cost of `work` since `before`.
fn cost(before: Option<Meter>, far: &mut Far, work: &Work<'_>) -> Result<Cost, Failure> {
    let (mut initiator_cpu_ns, mut target_cpu_ns) = (None, None);
    if let Some(before) = before {
        let each = |ns: u64| Some(ns as f64 / work.done.max(1) as f64);
        initiator_cpu_ns = each(cpu_ns() - before.here_ns);
        target_cpu_ns = each(far.used()?.cpu_ns.saturating_sub(before.there_ns));
    }
    Ok(Cost { operations: work.done, initiator_cpu_ns, target_cpu_ns, inbox_full: work.inbox_full })
}
