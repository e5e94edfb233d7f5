//! `cargo xtask ci`: the steps that must pass before a change lands, one after the other, until one fails.

mod cargo_test;
mod guests;
mod kubernetes;
mod smoke;
mod steps;
mod tally;
mod times;

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use crate::error::Error;
use crate::exec;
use steps::{ON_DEMAND, STEPS};
use tally::Tally;

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask ci               all steps but those on demand
  cargo xtask ci fmt clippy    only these
  cargo xtask ci --list        the steps";

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in the order of --list
    #[arg(value_name = "STEP", value_parser = PossibleValuesParser::new(all_steps().map(|step| step.name)))]
    steps: Vec<String>,
    /// Print the steps and what each proves
    #[arg(long)]
    list: bool,
}

/// One thing that must hold.
struct Step {
    name: &'static str,
    proves: &'static str,
    run: fn(&mut Run) -> Result<(), Failure>,
}

fn all_steps() -> impl Iterator<Item = &'static Step> {
    STEPS.iter().chain(ON_DEMAND)
}

/// Why a step failed.
#[derive(Debug)]
enum Failure {
    /// What was run does not do what it must.
    Unmet(String),
    /// It could not be run.
    Broken(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Broken(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unmet(what) => write!(f, "{what}"),
            Failure::Broken(error) => write!(f, "{error}"),
        }
    }
}

/// What the steps of one run share.
struct Run {
    /// This program: where it was when the run began, for a build meanwhile may replace it.
    here: PathBuf,
    root: PathBuf,
    /// Whether a test that fails runs again. One that looks for rare faults at random does not: it has found one.
    has_second_try: bool,
    tally: Tally,
}

impl Run {
    /// cargo with the given arguments, in the project's root.
    fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = exec::cargo();
        cargo.current_dir(&self.root).args(args);
        cargo
    }

    /// Runs a command that must end well.
    fn must(&self, mut command: Command) -> Result<(), Failure> {
        announce(&command);
        let status = exec::status(&mut command)?;
        ended_well(&command, status)
    }

    /// What a command prints, which must end well within `limit`, or with one of `codes`.
    fn must_print(&self, mut command: Command, limit: Duration, codes: &[i32]) -> Result<String, Failure> {
        announce(&command);
        let (status, printed) = exec::output_within(&mut command, limit)?;
        let Some(status) = status else {
            let what = format!("`{}` was not done after {limit:?}", exec::command_line(&command));
            return Err(Failure::Unmet(what));
        };
        if !status.code().is_some_and(|code| codes.contains(&code)) {
            ended_well(&command, status)?;
        }
        Ok(printed)
    }

    /// Writes the table of times, in which no binary may be over its budget.
    fn keep(&self, times: &[times::Time]) -> Result<(), Failure> {
        let path = self.target()?.join("ci-times.tsv");
        std::fs::write(&path, times::table(times)).map_err(|source| Error::Write { path, source })?;
        times::over_budget(times).map_or(Ok(()), |what| Err(Failure::Unmet(what)))
    }

    /// Where builds lie.
    fn target(&self) -> Result<PathBuf, Failure> {
        let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked"];
        let metadata = exec::output(&mut self.cargo(&metadata))?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)
            .map_err(|error| Error::Parse { what: "`cargo metadata`".into(), why: error.to_string() })?;
        Ok(metadata["target_directory"].as_str().unwrap_or("target").into())
    }
}

fn announce(command: &Command) {
    println!("   $ {}", exec::command_line(command));
}

fn ended_well(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::Unmet(format!("`{}` ended with {status}", exec::command_line(command))))
}

/// Runs the steps that `args` names, or all but those on demand. Whether they passed.
pub(crate) fn run(root: PathBuf, args: &Args) -> Result<bool, Error> {
    if args.list {
        all_steps().for_each(|step| println!("{:<8} {}", step.name, step.proves));
        return Ok(true);
    }
    let here = std::env::current_exe().map_err(|source| Error::Read { path: "xtask".into(), source })?;
    let mut run = Run { here, root, has_second_try: true, tally: Tally::default() };
    let mut times = Vec::new();
    let mut failed = None;
    let by_default = STEPS.iter().filter(|_| args.steps.is_empty());
    let named = all_steps().filter(|step| args.steps.iter().any(|name| name == step.name));
    for step in by_default.chain(named) {
        println!("== {}: {}", step.name, step.proves);
        let start = Instant::now();
        run.has_second_try = STEPS.iter().any(|other| other.name == step.name);
        let done = (step.run)(&mut run);
        times.push(("step", step.name.to_owned(), start.elapsed().as_secs_f64()));
        if let Err(failure) = done {
            failed = Some((step.name, failure));
            break;
        }
    }

    println!("== the slowest");
    times.append(&mut run.tally.times);
    print!("{}", times::slowest(&times));
    if let Err(failure) = run.keep(&times) {
        failed.get_or_insert(("times", failure));
    }
    if let Some((name, failure)) = &failed {
        println!("FAILED: {name}: {failure}");
    }
    run.tally.print(failed.is_some());
    Ok(failed.is_none())
}
