//! Experiments, run by driving the program itself: the published ones again, and Sidelong's own.
//!
//! An experiment declares what varies, what is measured, its targets, its figure and its report: a `design::Design`, with a template in
//! Markdown beside it. Most experiments write a cluster file and start
//! `sidelong up` with it as a child process, so that a person can repeat any single run from that file. Others start `sidelong-lab perf` or
//! `sidelong-lab sim`, or single parts, and put the load on them. Results land in `OUT/ID/`:
//!
//! | file | content |
//! |---|---|
//! | `configs/RUN.toml` | the cluster file of each run |
//! | `runs/RUN.json`, `.csv`, `.log` | what `up` (or the part) printed, its samples, its log |
//! | `rows.csv` | the numbers; lines are added as each run ends |
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
mod chaos;
mod chart;
mod check;
mod cpus;
mod day;
mod design;
mod drawing;
mod error;
mod experiment;
mod experiments;
mod fronts;
mod groups;
mod latency;
mod machine;
mod markdown;
mod measure;
mod monitoring;
mod nginx;
mod overhead;
mod overload;
pub mod page;
mod peers;
mod perf;
mod perftest;
mod process;
mod publish;
mod rams;
mod record;
mod reload;
mod report;
mod samples;
mod scale;
mod series;
mod server;
mod servers;
mod sessions;
mod setup;
mod sim;
mod sizes;
mod speed;
mod table;
mod template;
mod throughput;
mod turn;
mod up;
mod utilisation;

use std::path::PathBuf;

pub use bench::{Progress, RunOptions};
pub use check::{Check, Verdict};
pub use error::{Error, Result};
pub use experiment::Experiment;
pub use experiments::experiments;
pub use sidelong_harness::usage::Usage;

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
    let experiment = experiments::find(id)?;
    let mut bench = bench::Bench::open(experiment, options, progress)?;
    let check::Conclusion { checks, verdict, invalid } = experiment.carry_out(&mut bench)?;
    Ok(Report { experiment, directory: bench.into_directory(), checks, verdict, invalid })
}
