//! Experiments, run by driving the program itself: the published ones again, and Sidelong's own.
//!
//! Each experiment is a `study::Study`: it names its runs, its rows, what is possible, its targets, its figure and its
//! report. The frame in `study` does the rest. Most studies write a cluster file and start `sidelong up` with it as a child
//! process, so that a person can repeat any single run from that file. Others start `sidelong perf` or `sidelong sim`, or
//! single parts, and put the load on them. Results land in `OUT/ID/`:
//!
//! | file | content |
//! |---|---|
//! | `configs/RUN.toml` | the cluster file of each run |
//! | `runs/RUN.json`, `.csv`, `.log` | what `up` (or the part) printed, its samples, its log |
//! | `rows.csv` | the numbers; lines are added as each run ends |
//! | `shorter.csv` | R10-R14: the search for the shortest burst that pays, below the paper's burst lengths |
//! | `result.json` | command, date, machine, versions, settings, rows, checks, verdict, tables of the report |
//! | `figure.svg` | the figure |
//! | `report.md` | the paper beside what was measured, whether its shape holds, the targets |
//! | `lock` | held by the lab that writes there |
//!
//! Absolute speed drifts on a shared machine, so runs that are compared alternate, and targets are ratios.
#![forbid(unsafe_code)]

mod admission;
mod agent;
mod bench;
mod beside;
mod busy;
mod cache;
mod check;
mod cpus;
mod day;
mod drawing;
mod error;
mod experiment;
mod fronts;
mod groups;
mod latency;
mod machine;
mod monitoring;
mod nginx;
mod overhead;
mod overload;
pub mod page;
mod peers;
mod perf;
mod perftest;
mod ports;
mod process;
mod rams;
mod report;
pub mod results;
mod scale;
mod server;
mod servers;
mod sessions;
mod setup;
mod sim;
mod sizes;
mod speed;
mod story;
mod study;
mod table;
mod throughput;
mod turn;
mod up;
mod usage;
mod utilisation;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_figure::{self as figure, statistics};

pub use check::{Check, Verdict};
pub use error::{Error, Result};
pub use experiment::{Experiment, experiments};
pub use usage::Usage;

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Results go to a directory in this one that has the experiment's ID. Both are made.
    pub out: PathBuf,
    /// Whether to make fewer and shorter runs: the same comparisons, coarser.
    pub quick: bool,
    /// How often to make all runs. None leaves it to the experiment: once, or some rounds.
    pub repeat: Option<u32>,
    /// Directory with real traces for C1, L1, K6 and K7. Without it, C1 and L1 use the built-in sample alone, and the others a generated trace.
    pub traces: Option<PathBuf>,
    /// The `sidelong` program: `std::env::current_exe()` if the caller is it.
    pub program: PathBuf,
    /// Reads what uses the machine: [`Usage::read`], except in tests.
    pub usage: fn() -> Usage,
    /// Raised (by a signal handler, for example) to stop the lab: it ends the current run and returns
    /// [`Error::Interrupted`].
    pub stop: Arc<AtomicBool>,
}

/// How far an experiment is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all at most. A search may end early.
    pub total: usize,
    /// The run that starts now, by the name of its files. Empty when all are done.
    pub run: &'a str,
    /// Estimated time for the other runs, at their ideal speed.
    pub remaining: Duration,
}

/// The outcome of an experiment.
#[derive(Clone, Debug)]
pub struct Report {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// The directory of its files.
    pub directory: PathBuf,
    /// The targets, and whether each is met.
    pub checks: Vec<Check>,
    /// The outcome of all checks together.
    pub verdict: Verdict,
    /// The runs and figures that cannot be trusted, each with the reason.
    pub invalid: Vec<String>,
}

/// Runs the experiment `id` (R10, in upper or lower case) and writes its files. `progress` is called before each run and
/// after the last.
///
/// # Errors
/// If the ID is unknown, the directory cannot be written, or a run fails. The error of a failed run has what the run said
/// and the command that repeats it; rows of earlier runs are kept. A missed target is no error.
pub fn run(id: &str, options: &RunOptions, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Report> {
    let experiment = experiment::find(id)?;
    let mut bench = bench::Bench::open(experiment, options, progress)?;
    let study::Conclusion { checks, verdict, invalid } = (experiment.run)(&mut bench)?;
    Ok(Report { experiment, directory: bench.into_directory(), checks, verdict, invalid })
}
