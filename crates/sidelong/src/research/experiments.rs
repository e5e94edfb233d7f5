//! The published experiments.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Subcommand;
use indicatif::ProgressBar;
use sidelong_lab::{Check, Experiment, Progress, RunOptions, Usage, Verdict, experiments, page};

use crate::failure::{Failure, say};
use crate::progress;

/// Exit code if targets were missed.
const MISSED: u8 = 3;
/// Exit code if figures cannot be trusted.
const INVALID: u8 = 4;

#[derive(Subcommand)]
pub(crate) enum ExperimentCommand {
    /// List the experiments and what each reproduces.
    List,
    /// Run an experiment, and write result.json, rows.csv, a figure and report.md to DIR/ID.
    ///
    /// Exits with 0 if all targets are met, with 3 if one is missed, and with 4 if the run is invalid: a figure lies beyond
    /// what is possible, or other work took more than a tenth of the machine.
    Run {
        /// The experiment's ID, from `sidelong-lab list`.
        id: String,
        /// Directory for the results.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Make a short run: fewer points, fewer requests.
        #[arg(long)]
        quick: bool,
        /// Make all runs N times and report medians, from 6 times on with intervals of 95 % confidence.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeat: Option<u32>,
        /// For C1, L1, K6 and K7, a directory with real traces in any format of `sidelong-lab trace info`; the first by name is used, and the
        /// second in C1 and L1.
        #[arg(long, value_name = "DIR")]
        traces: Option<PathBuf>,
    },
    /// Check that the marked blocks of a page of results show the recorded runs; with --from, write new runs into them.
    ///
    /// A block stands between the lines `<!-- lab ID -->` and `<!-- /lab ID -->`. Its record is DIR/ID.json, where DIR is PAGE
    /// without its ending.
    Page {
        /// The page, such as docs/results.md.
        page: PathBuf,
        /// Directory for the results of `sidelong-lab run`. Blocks whose experiment has none there stay as they are.
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
    },
}

impl ExperimentCommand {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            ExperimentCommand::List => {
                let line = |experiment: &Experiment| {
                    format!("{:14} {} ({})\n", experiment.id, experiment.title, experiment.figure)
                };
                say(experiments().iter().map(line).collect::<String>())?;
                Ok(ExitCode::SUCCESS)
            }
            ExperimentCommand::Page { page: path, from } => {
                let blocks = match from {
                    Some(results) => page::update(path, results)?,
                    None => page::check(path)?,
                };
                let done = if from.is_some() { "written" } else { "as recorded" };
                say(blocks.iter().map(|id| format!("{id:14} {done}\n")).collect::<String>())?;
                Ok(ExitCode::SUCCESS)
            }
            ExperimentCommand::Run { id, out, quick, repeat, traces } => {
                let stop = Arc::new(AtomicBool::new(false));
                for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
                    signal_hook::flag::register(signal, Arc::clone(&stop))?;
                }
                let program = std::env::current_exe()?;
                let options = RunOptions {
                    out: out.clone(),
                    quick: *quick,
                    repeat: *repeat,
                    traces: traces.clone(),
                    program,
                    usage: Usage::read,
                    stop,
                };
                let bar = progress::bar(0, "[{pos:>3}/{len}] {wide_msg}");
                let report = sidelong_lab::run(id, &options, &mut |progress| show(&bar, progress))?;
                drop(bar);
                let line = |check: &Check| {
                    let (verdict, measured) = (check.verdict(), check.figure(3));
                    format!("{verdict:12} {}: {measured} (target {})\n", check.what, check.target)
                };
                let checks: String = report.checks.iter().map(line).collect();
                let invalid: String =
                    report.invalid.iter().map(|why| format!("INVALID      {why}\n")).collect();
                say(format!("{checks}{invalid}{}\n", report.directory.join("report.md").display()))?;
                Ok(match report.verdict {
                    Verdict::Met | Verdict::NotMeasured => ExitCode::SUCCESS,
                    Verdict::Missed => ExitCode::from(MISSED),
                    Verdict::Invalid => ExitCode::from(INVALID),
                })
            }
        }
    }
}

/// A bar on a terminal; elsewhere a line for each run.
fn show(bar: &ProgressBar, progress: Progress<'_>) {
    let Progress { done, total, run, remaining } = progress;
    let (number, left) = ((done + 1).min(total), minutes(remaining));
    if !bar.is_hidden() {
        bar.set_length(total as u64);
        bar.set_message(format!("{run}, about {left} left"));
        bar.set_position(number as u64);
    } else if run.is_empty() {
        let _ = writeln!(std::io::stderr(), "{total} runs done");
    } else {
        let _ = writeln!(std::io::stderr(), "[{number:>3}/{total}] {run}, about {left} left");
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
