//! Experiments, run by driving the program itself: the published ones again (R5 to R24, A1, C1 to C4, M3 to M9), and our
//! own.
//!
//! An [`Experiment`] is a list of runs. For most the lab writes a cluster file and starts `sidelong up` with it as a
//! child process, so that any single run can be repeated by hand from the file that it leaves, and what `up` reports is
//! what counts. R5 to R9, A1, M3 to M6 and `perftest` start `sidelong perf`, C1 to C4, S1 and S2 `sidelong sim` (S1 beside `sidelong up`). `edge-overhead` starts single parts and puts the load on them
//! itself. Results land in `OUT/ID/`:
//!
//! | file | what |
//! |---|---|
//! | `configs/RUN.toml` | the cluster file of each run |
//! | `runs/RUN.json`, `.csv`, `.log` | what `up` (or the part) printed, its samples, its log |
//! | `rows.csv` | the numbers, a line as each run ends |
//! | `shorter.csv` | R10-R14: the search, below the paper's burst lengths, for the shortest that pays |
//! | `result.json` | machine, versions, settings, rows, checks |
//! | `figure.svg` | the paper's figure, redrawn from the rows |
//! | `report.md` | the paper beside ours, whether its shape holds, the targets |
//! | `lock` | held by the lab that writes there |
//!
//! Absolute speed drifts on a shared machine, so the runs that are compared alternate, and what is judged are ratios.
#![forbid(unsafe_code)]

mod admission;
mod bench;
mod beside;
mod busy;
mod check;
mod cpus;
mod csv;
mod error;
mod experiment;
mod latency;
mod machine;
mod monitoring;
mod overhead;
mod overload;
mod peers;
mod perf;
mod perftest;
mod ports;
mod process;
mod rams;
mod report;
mod scale;
mod server;
mod setup;
mod sim;
mod sizes;
mod speed;
mod throughput;
mod up;
mod utilisation;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_figure as figure;

pub use check::Check;
pub use error::{Error, Result};
pub use experiment::{Experiment, experiments};

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Results go to the directory of the experiment's id in this one. Both are made.
    pub out: PathBuf,
    /// Fewer burst lengths and shorter runs: the same comparisons, coarser.
    pub quick: bool,
    /// Where C1 finds logs of real servers; without it, the built-in sample is the only one.
    pub traces: Option<PathBuf>,
    /// `sidelong` itself: `std::env::current_exe()`, for a caller who is it.
    pub program: PathBuf,
    /// Raised (by a signal handler, say) to stop: the run under way is ended and [`Error::Interrupted`] returned.
    pub stop: Arc<AtomicBool>,
}

/// What an experiment is about to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    /// Runs that are behind it.
    pub done: usize,
    /// Runs in all, at most: a search may end early.
    pub total: usize,
    /// The run that starts now, as its files are named. Empty when all are done.
    pub run: &'a str,
    /// For the rest, by the ideal speed of each run.
    pub remaining: Duration,
}

/// What came of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Whose.
    pub experiment: &'static Experiment,
    /// Where its files are.
    pub directory: PathBuf,
    /// The targets, met or missed.
    pub checks: Vec<Check>,
}

/// Runs the experiment `id` (R10, in upper or lower case) and writes its files. `progress` is called before each run and
/// after the last.
///
/// # Errors
/// Where the id is unknown, the directory cannot be written, or a run fails: then with what it said and the command that
/// repeats it. Rows of runs before it are kept. A missed target is no error.
pub fn run(id: &str, options: &RunOptions, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Report> {
    let experiment = experiment::find(id)?;
    let mut bench = bench::Bench::open(experiment, options, progress)?;
    let checks = match experiment.plan {
        experiment::Plan::Sizes { what } => sizes::run(&mut bench, what)?,
        experiment::Plan::Busy { of } => busy::run(&mut bench, of)?,
        experiment::Plan::Throughput { demand } => throughput::run(&mut bench, demand)?,
        experiment::Plan::Utilisation { demand, layout } => utilisation::run(&mut bench, demand, layout)?,
        experiment::Plan::LoadLatency => monitoring::latency(&mut bench)?,
        experiment::Plan::LoadSlowdown => monitoring::slowdown(&mut bench)?,
        experiment::Plan::LoadAccuracy => monitoring::accuracy(&mut bench)?,
        experiment::Plan::LoadInterrupts => monitoring::interrupts(&mut bench)?,
        experiment::Plan::LoadGranularity => monitoring::granularity(&mut bench)?,
        experiment::Plan::LoadAlpha => monitoring::alpha(&mut bench)?,
        experiment::Plan::LoadGanglia => monitoring::ganglia(&mut bench)?,
        experiment::Plan::AdmissionClients => admission::by_clients(&mut bench)?,
        experiment::Plan::AdmissionResponses => admission::responses(&mut bench)?,
        experiment::Plan::AdmissionDrops => admission::drops(&mut bench)?,
        experiment::Plan::AdmissionQos => admission::qos(&mut bench)?,
        experiment::Plan::AdmissionWorkload => admission::by_workload(&mut bench)?,
        experiment::Plan::Overload => overload::alone(&mut bench)?,
        experiment::Plan::OverloadPeers => overload::beside(&mut bench)?,
        experiment::Plan::Rams { of } => rams::run(&mut bench, of)?,
        experiment::Plan::Beside => beside::run(&mut bench)?,
        experiment::Plan::Scale => scale::run(&mut bench)?,
        experiment::Plan::Perftest => perftest::run(&mut bench)?,
        experiment::Plan::SimSpeed => speed::run(&mut bench)?,
        experiment::Plan::EdgeOverhead => overhead::run(&mut bench)?,
        experiment::Plan::MoveLatency { demand } => latency::run(&mut bench, demand)?,
    };
    Ok(Report { experiment, directory: bench.into_directory(), checks })
}
