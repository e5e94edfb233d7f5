//! `sidelong-lab sim`: clusters that serve out of each other's memory, simulated.

mod live;

use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use sidelong_sim::Error;
use sidelong_sim::config::Config;
use sidelong_sim::speed::Case;
use sidelong_sim::sweep::{self, Options, Progress};

use crate::failure::{Failure, say};
use crate::interrupt::{self, INTERRUPTED};
use crate::progress;

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Run every combination of a configuration's values, and write rows.csv, result.json and report.md to DIR.
    ///
    /// An interrupted sweep (exit code 130) continues when it is run again.
    Run {
        /// Configuration file; an empty file means all defaults.
        file: PathBuf,
        /// Override a field of the file with one or more values. A relative path is resolved from the current directory;
        /// in the file, from the file's directory.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
        /// Directory for the results.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Runs at a time [default: the number of CPUs].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
    },
    /// Print every field of a configuration: its value, its meaning and its source.
    Explain {
        /// Configuration file [default: all defaults].
        file: Option<PathBuf>,
        /// Override a field, as for `run`.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
    },
    /// Print two results side by side, with confidence intervals over seeds.
    Compare {
        /// Directory of the first result.
        first: PathBuf,
        /// Directory of the second result.
        second: PathBuf,
    },
    /// Run a cooperative cache live on this machine, beside its simulation: a process for each node, which reads the others' memory.
    ///
    /// The clients, the requests and the caches are those of the file; disks take the time that it says. All else takes the
    /// time that it takes here.
    Live {
        /// Configuration file; an empty file means all defaults.
        file: PathBuf,
        /// Override a field, as for `run`. Each combination of several values is a run.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
        /// Print a JSON line for each run.
        #[arg(long)]
        json: bool,
    },
    /// One node of `sim live`.
    #[command(hide = true)]
    LiveNode {
        file: PathBuf,
        #[arg(long)]
        set: Vec<String>,
        #[arg(long)]
        point: usize,
        #[arg(long)]
        node: u32,
        #[arg(long)]
        run_dir: PathBuf,
    },
    /// Time the simulator itself, for `lab run sim-speed`.
    #[command(hide = true)]
    Speed {
        /// What it simulates: hold-PENDING, line, cluster-NODES-MB.
        case: Case,
        /// Requests, or events of the hold model.
        #[arg(value_parser = clap::value_parser!(u64).range(1..=sidelong_sim::fields::REQUESTS_MAX))]
        count: u64,
    },
}

pub(crate) fn run(args: &SimArgs, quiet: bool) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Explain { file, set } => {
            let config = match file {
                Some(file) => Config::load(file, set)?,
                None => Config::parse("", "the defaults", Path::new(""), set)?,
            };
            say(config.explain())?;
        }
        SimCommand::Compare { first, second } => say(sidelong_sim::compare(first, second)?)?,
        SimCommand::Speed { case, count } => speed(*case, *count)?,
        SimCommand::Live { file, set, json } => live::run(file, set, *json)?,
        SimCommand::LiveNode { file, set, point, node, run_dir } => {
            live::node(file, set, *point, *node, run_dir.clone())?;
        }
        SimCommand::Run { file, set, out, threads } => {
            let threads = match threads {
                Some(threads) => usize::from(*threads),
                None => std::thread::available_parallelism().map_or(1, NonZero::get),
            };
            return sweep(&Config::load(file, set)?, out, threads, quiet);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a case took, as JSON.
fn speed(case: Case, count: u64) -> Result<(), Failure> {
    let cpu_s = || sidelong_os::thread_cpu().as_secs_f64();
    let run = case.prepare(count);
    let (cpu, begun) = (cpu_s(), Instant::now());
    let work = run();
    let (cpu_s, wall_s) = (cpu_s() - cpu, begun.elapsed().as_secs_f64());
    let outcome = work.outcome.as_ref();
    say(format!(
        "{}\n",
        serde_json::json!({
            "requests": work.requests,
            "events": work.events,
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "here_rate": outcome.map(|outcome| outcome.here_rate),
            "read_rate": outcome.map(|outcome| outcome.read_rate),
        })
    ))
}

fn sweep(config: &Config, out: &Path, threads: usize, quiet: bool) -> Result<ExitCode, Failure> {
    let stop = interrupt::watch()?;
    let bar = progress::bar(0, "[{bar:30}] {pos}/{len}, about {eta} left; done: {wide_msg}");
    let mut show = |progress: Progress<'_>| {
        if !quiet {
            show(&bar, progress);
        }
    };
    match sweep::run(config, &Options { out, threads, stop: &stop }, &mut show) {
        Err(interrupted @ Error::Interrupted { .. }) => {
            let _ = writeln!(std::io::stderr(), "sidelong: {}: {interrupted}", out.display());
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other?,
    }
    say(format!("{}\n", out.join("report.md").display()))?;
    Ok(ExitCode::SUCCESS)
}

/// A bar on a terminal; elsewhere a line for each run.
fn show(bar: &ProgressBar, progress: Progress<'_>) {
    let Progress { done, total, last } = progress;
    bar.set_position(done as u64);
    if last.is_empty() {
        // Runs of an earlier, interrupted sweep say nothing of how long the rest takes.
        bar.set_length(total as u64);
        bar.reset_eta();
    } else if bar.is_hidden() {
        let left = bar.eta().as_secs();
        let left = if done < total { format!(", about {left} s left") } else { String::new() };
        let _ = writeln!(std::io::stderr(), "[{done:>3}/{total}] {last}{left}");
    } else {
        bar.set_message(last.to_owned());
    }
}
