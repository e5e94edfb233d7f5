//! The measurements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sidelong_layout::valid;

use crate::failure::Failure;
use crate::perf::cpus;
use crate::perf::load::Stage;
use crate::perf::load::figures::{Accuracy, Deviation, Interrupts, Slowdown, Steps, Times};
use crate::perf::load::reader::Reader;
use crate::perf::load::threads::{Fluctuating, Sleepers, application};
use crate::perf::load::truth::Truth;

/// A step that is not seen for so long is counted as not seen.
const SEEN_MAX: Duration = Duration::from_secs(3);
/// Before a step the record must show that the one before is over, within this.
const CALM_MAX: Duration = Duration::from_secs(3);
/// Between steps, so that they do not come in step with what is refreshed every so often.
const APART: Duration = Duration::from_millis(3);
/// The truth of CPU load is that over this long.
const CPU_WINDOW: Duration = Duration::from_millis(20);
/// How long the application takes.
const WORK: Duration = Duration::from_millis(500);
const WORK_QUICK: Duration = Duration::from_millis(150);
/// Rounds of a slow-down, at least.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 1000;
/// Pieces of work by which it is found out how many it has.
const PIECES_TRIED: u32 = 200;
const SAMPLES_MAX: usize = 2_000_000;

/// Raised by Ctrl-C.
pub(super) fn unless_stopped(stop: &AtomicBool) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) { Err(Failure::new("interrupted")) } else { Ok(()) }
}

/// How long a look takes.
pub(super) fn latency(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Times, Failure> {
    let (mut samples, mut unusable) = (Vec::new(), 0);
    paced(stage, || {
        let look = reader.look();
        samples.push(look.took.as_nanos() as f64 / 1e3);
        unusable += u64::from(look.hot.is_none());
    })?;
    Ok(Times::new(samples, unusable))
}

/// From the waking of threads to the first look that shows all of them.
pub(super) fn steps(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Steps, Failure> {
    let threads = stage.args.threads;
    let sleepers = Sleepers::start(threads, stage.target_cpu)?;
    let high = stage.args.background + threads;
    let (mut samples, mut unseen, mut unclear) = (Vec::new(), 0, 0);
    let until = Instant::now() + stage.args.time();
    while Instant::now() < until && samples.len() < SAMPLES_MAX {
        stage.look()?;
        // Whoever else has come meanwhile must not be taken for the step.
        if !await_threads(reader, CALM_MAX, |seen| seen < high) {
            unclear += 1;
            continue;
        }
        let begun = Instant::now();
        sleepers.wake();
        match await_threads(reader, SEEN_MAX, |seen| seen >= high) {
            true => samples.push(begun.elapsed().as_nanos() as f64 / 1e3),
            false => unseen += 1,
        }
        sleepers.rest()?;
        sleep(APART);
    }
    Ok(Steps { threads, unseen, unclear, times: Times::new(samples, 0) })
}

/// Looks, again and again, until the record's threads are as wanted; false where that takes longer than `wait`.
fn await_threads(reader: &mut Reader, wait: Duration, wanted: impl Fn(u32) -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < wait {
        let hot = reader.look().hot;
        if hot.and_then(|hot| reader.threads(&hot)).is_some_and(&wanted) {
            return true;
        }
    }
    false
}

/// The record against the truth, while threads come and go.
pub(super) fn accuracy(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Accuracy, Failure> {
    let truth = Truth::open()?;
    let load = Fluctuating::start(stage.args.background, stage.target_cpu)?;
    let (every, until) = (stage.args.granularity(), Instant::now() + stage.args.time());
    let (mut threads, mut cpu) = (Vec::new(), Vec::new());
    let (_, used_ns) = truth.now(load.ids())?;
    // The latest of them is as old as the window is long, at least.
    let mut earlier = vec![(Instant::now(), used_ns)];
    let mut unusable = 0;
    while Instant::now() < until && threads.len() < SAMPLES_MAX {
        sleep(every);
        stage.look()?;
        let look = reader.look();
        let (running, used_ns) = truth.now(load.ids())?;
        let now = Instant::now();
        while earlier.len() > 1 && now - earlier[1].0 >= CPU_WINDOW {
            earlier.remove(0);
        }
        let (at, before_ns) = earlier[0];
        earlier.push((now, used_ns));
        let Some(hot) = look.hot else {
            unusable += 1;
            continue;
        };
        if let Some(seen) = reader.threads(&hot) {
            threads.push(f64::from(seen.abs_diff(running)));
        }
        if hot.valid & valid::CPU != 0 && now - at >= CPU_WINDOW {
            let offered_ns = (now - at).as_nanos() as f64 * f64::from(truth.cpus());
            let permille = (used_ns.saturating_sub(before_ns) as f64 / offered_ns * 1000.0).min(1000.0);
            cpu.push((f64::from(hot.cpu_permille) - permille).abs() / 10.0);
        }
    }
    drop(load);
    Ok(Accuracy {
        looks: threads.len(),
        unusable,
        cpu_truth: truth.source(),
        threads: Deviation::of(&threads),
        cpu_percent: Deviation::of(&cpu),
    })
}

/// What the record shows of interrupts that wait.
pub(super) fn interrupts(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Interrupts, Failure> {
    let cpus = Truth::open()?.cpus() as usize;
    let mut found = Interrupts { looks: 0, told: false, seen: vec![0; cpus], most: vec![0; cpus] };
    paced(stage, || {
        found.looks += 1;
        reader.look();
        for (cpu, pending) in reader.pending().take(cpus).enumerate() {
            found.told = true;
            found.seen[cpu] += u64::from(pending);
            found.most[cpu] = found.most[cpu].max(pending);
        }
    })?;
    Ok(found)
}

/// Looks as often as the granularity says, for as long as the measurement takes. This side spins between two looks: what
/// it takes to wake it is none of the scheme's.
fn paced(stage: &mut Stage<'_>, mut look: impl FnMut()) -> Result<(), Failure> {
    let (every, until) = (stage.args.granularity(), Instant::now() + stage.args.time());
    let mut due = Instant::now();
    for _ in 0..SAMPLES_MAX {
        stage.look()?;
        look();
        due = (due + every).max(Instant::now());
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if Instant::now() > until {
            break;
        }
    }
    Ok(())
}

/// An application's time without a node, beside a node at which nobody looks, and beside one that is looked at.
pub(super) fn slowdown(stage: &mut Stage<'_>) -> Result<Slowdown, Failure> {
    let work = if stage.args.quick { WORK_QUICK } else { WORK }.max(stage.args.granularity());
    let tried = run(PIECES_TRIED, stage.target_cpu)?;
    let pieces = (work.as_secs_f64() / tried.as_secs_f64() * f64::from(PIECES_TRIED)).clamp(1.0, 1e9) as u32;
    let rounds = stage.args.time().as_secs_f64() / (3.0 * work.as_secs_f64());
    let rounds = (rounds as usize).clamp(ROUNDS_MIN, ROUNDS_MAX);
    let (mut alone, mut kept, mut looked_at) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Who goes first rotates.
        for turn in 0..3 {
            unless_stopped(stage.stop)?;
            let (times, took) = match (round + turn) % 3 {
                0 => (&mut alone, run(pieces, stage.target_cpu)?),
                1 => {
                    let _node = stage.start()?;
                    (&mut kept, run(pieces, stage.target_cpu)?)
                }
                _ => (&mut looked_at, stage.looked_at(pieces)?),
            };
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    Ok(Slowdown::new(alone, kept, looked_at))
}

fn run(pieces: u32, cpu: Option<usize>) -> Result<Duration, Failure> {
    application(pieces, cpu)?.join().map_err(|_| Failure::new("the application panicked"))
}

impl Stage<'_> {
    /// The application's time while the node is looked at every so often.
    fn looked_at(&self, pieces: u32) -> Result<Duration, Failure> {
        let (_node, mut reader) = self.start_and_link()?;
        cpus::put(self.this_cpu)?;
        let application = application(pieces, self.target_cpu)?;
        let every = self.args.granularity();
        let mut due = Instant::now();
        while !application.is_finished() {
            reader.look();
            due = (due + every).max(Instant::now());
            while Instant::now() < due && !application.is_finished() {
                sleep((due - Instant::now()).min(Duration::from_millis(20)));
            }
        }
        application.join().map_err(|_| Failure::new("the application panicked"))
    }
}
