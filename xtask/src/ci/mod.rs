//! `cargo xtask ci`: the steps that must pass before a change lands, one after the other, until one fails.

mod cargo_test;
mod guests;
mod kubernetes;
mod packages;
mod run;
mod smoke;
mod steps;
mod tally;
mod times;

use std::path::PathBuf;
use std::time::Instant;

use clap::builder::PossibleValuesParser;

use crate::error::Error;
use run::{Run, Step};
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

fn all_steps() -> impl Iterator<Item = &'static Step> {
    STEPS.iter().chain(ON_DEMAND)
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
