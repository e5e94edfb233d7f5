//! The measurements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::load::results::{Accuracy, Deviation, Interrupts, Slowdown, Steps, Times};
use sidelong_layout::valid;

use crate::cpus;
use crate::load::Stage;
use crate::load::reader::Reader;
use crate::load::threads::{Fluctuating, Sleepers, application};
use crate::load::truth::Truth;
use sidelong_app::Failure;

/// A step that is not seen within this time counts as not seen.
const SEEN_MAX: Duration = Duration::from_secs(3);
/// Before a step, the record must show within this time that the previous one is over.
const CALM_MAX: Duration = Duration::from_secs(3);
/// Pause between steps, so that they do not synchronise with periodic refreshes.
const APART: Duration = Duration::from_millis(3);
/// Window of the true CPU load.
const CPU_WINDOW: Duration = Duration::from_millis(20);
/// Duration of the application.
const WORK: Duration = Duration::from_millis(500);
const WORK_QUICK: Duration = Duration::from_millis(150);
/// Fewest rounds of a slowdown measurement.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 1000;
/// Pieces of work that are tried to find the application's number of pieces.
const PIECES_TRIED: u32 = 200;
const SAMPLES_MAX: usize = 2_000_000;

/// Fails once Ctrl-C was pressed.
pub(super) fn unless_stopped(stop: &AtomicBool) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) { Err(Failure::new("interrupted")) } else { Ok(()) }
}

/// The time of one sample.
pub(super) fn latency(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Times, Failure> {
    let (mut samples, mut unusable) = (Vec::new(), 0);
    paced(stage, || {
        let sample = reader.sample();
        samples.push(sample.took.as_nanos() as f64 / 1e3);
        unusable += u64::from(sample.hot.is_none());
    })?;
    Ok(Times::of(samples, unusable))
}

/// The time from waking the threads to the first sample that shows all of them.
pub(super) fn steps(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Steps, Failure> {
    let threads = stage.args.threads;
    let sleepers = Sleepers::start(threads, stage.target_cpu)?;
    let high = stage.args.background + threads;
    let (mut samples, mut unseen, mut unclear) = (Vec::new(), 0, 0);
    let until = Instant::now() + stage.args.time();
    while Instant::now() < until && samples.len() < SAMPLES_MAX {
        stage.check()?;
        // Other threads that appear meanwhile must not be taken for the step.
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
    Ok(Steps { threads, unseen, unclear, times: Times::of(samples, 0) })
}

/// Samples repeatedly until the record's threads are as wanted; false if that takes longer than `wait`.
fn await_threads(reader: &mut Reader, wait: Duration, wanted: impl Fn(u32) -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < wait {
        let hot = reader.sample().hot;
        if hot.and_then(|hot| reader.threads(&hot)).is_some_and(&wanted) {
            return true;
        }
    }
    false
}

/// Compares the record with the truth while threads come and go.
pub(super) fn accuracy(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Accuracy, Failure> {
    let truth = Truth::open()?;
    let load = Fluctuating::start(stage.args.background, stage.target_cpu)?;
    let (every, until) = (stage.args.granularity(), Instant::now() + stage.args.time());
    let (mut threads, mut cpu) = (Vec::new(), Vec::new());
    let (_, used_ns) = truth.now(load.ids())?;
    // The latest of them is at least one window old.
    let mut earlier = vec![(Instant::now(), used_ns)];
    let mut unusable = 0;
    while Instant::now() < until && threads.len() < SAMPLES_MAX {
        sleep(every);
        stage.check()?;
        let sample = reader.sample();
        let (running, used_ns) = truth.now(load.ids())?;
        let now = Instant::now();
        while earlier.len() > 1 && now - earlier[1].0 >= CPU_WINDOW {
            earlier.remove(0);
        }
        let (at, before_ns) = earlier[0];
        earlier.push((now, used_ns));
        let Some(hot) = sample.hot else {
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
        samples: threads.len() as u64,
        unusable,
        cpu_truth: truth.source().to_owned(),
        threads: Deviation::of(&threads),
        cpu_percent: Deviation::of(&cpu),
    })
}

/// The pending interrupts that the record shows.
pub(super) fn interrupts(stage: &mut Stage<'_>, reader: &mut Reader) -> Result<Interrupts, Failure> {
    let cpus = Truth::open()?.cpus() as usize;
    let mut found = Interrupts { samples: 0, told: false, seen: vec![0; cpus], most: vec![0; cpus] };
    paced(stage, || {
        found.samples += 1;
        reader.sample();
        for (cpu, pending) in reader.pending().take(cpus).enumerate() {
            found.told = true;
            found.seen[cpu] += u64::from(pending);
            found.most[cpu] = found.most[cpu].max(pending.into());
        }
    })?;
    Ok(found)
}

/// Samples at the given granularity for the whole measurement. This side spins between two samples, because its wake-up
/// time is not part of the scheme.
fn paced(stage: &mut Stage<'_>, mut sample: impl FnMut()) -> Result<(), Failure> {
    let (every, until) = (stage.args.granularity(), Instant::now() + stage.args.time());
    let mut due = Instant::now();
    for _ in 0..SAMPLES_MAX {
        stage.check()?;
        sample();
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

/// An application's time without a node, beside a node that is not sampled, and beside one that is.
pub(super) fn slowdown(stage: &mut Stage<'_>) -> Result<Slowdown, Failure> {
    let work = if stage.args.quick { WORK_QUICK } else { WORK }.max(stage.args.granularity());
    let tried = run(PIECES_TRIED, stage.target_cpu)?;
    let pieces = (work.as_secs_f64() / tried.as_secs_f64() * f64::from(PIECES_TRIED)).clamp(1.0, 1e9) as u32;
    let rounds = stage.args.time().as_secs_f64() / (3.0 * work.as_secs_f64());
    let rounds = (rounds as usize).clamp(ROUNDS_MIN, ROUNDS_MAX);
    let (mut alone, mut kept, mut sampled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // The order rotates.
        for turn in 0..3 {
            unless_stopped(stage.stop)?;
            let (times, took) = match (round + turn) % 3 {
                0 => (&mut alone, run(pieces, stage.target_cpu)?),
                1 => {
                    let _node = stage.start()?;
                    (&mut kept, run(pieces, stage.target_cpu)?)
                }
                _ => (&mut sampled, stage.sampled(pieces)?),
            };
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    Ok(Slowdown::of(alone, kept, sampled).expect("rounds are at least ROUNDS_MIN"))
}

fn run(pieces: u32, cpu: Option<usize>) -> Result<Duration, Failure> {
    application(pieces, cpu)?.join().map_err(|_| Failure::new("the application panicked"))
}

impl Stage<'_> {
    /// The application's time while the node is sampled at intervals.
    fn sampled(&self, pieces: u32) -> Result<Duration, Failure> {
        let (_node, mut reader) = self.start_and_link()?;
        cpus::put(self.this_cpu)?;
        let application = application(pieces, self.target_cpu)?;
        let every = self.args.granularity();
        let mut due = Instant::now();
        while !application.is_finished() {
            reader.sample();
            due = (due + every).max(Instant::now());
            while Instant::now() < due && !application.is_finished() {
                sleep((due - Instant::now()).min(Duration::from_millis(20)));
            }
        }
        application.join().map_err(|_| Failure::new("the application panicked"))
    }
}
