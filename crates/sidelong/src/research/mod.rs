//! The command line of `sidelong-lab`.

mod experiments;
mod sim;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use sidelong_perf::PerfArgs;

use crate::cli;
use crate::failure::Failure;
use crate::load::{self, LoadArgs};
use experiments::ExperimentCommand;
use sim::SimArgs;
use trace::TraceArgs;

/// Experiments, simulations, traces and measurements.
///
/// It also takes every command of `sidelong`: experiments start the parts of their clusters by it.
#[derive(Parser)]
#[command(name = "sidelong-lab", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Research {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print no progress, and log errors only (SIDELONG_LOG=info or debug logs more).
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sidelong-lab run R10 --out results       run an experiment, and write its report
  sidelong-lab sim run cluster-sim.toml --set nodes=16,64 --set protocol=lazy,ledger --out results
  sidelong-lab trace info access.log.gz    what a request trace holds
  sidelong-lab perf read --fabric tcp      time reads of another process's memory";

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Experiments(ExperimentCommand),
    /// Simulate caching clusters and data-centers.
    Sim(SimArgs),
    /// Analyse, convert and generate request traces.
    Trace(TraceArgs),
    /// Measure operations on the memory of another process, here or on another machine.
    Perf(PerfArgs),
    /// Put a load on a site that runs: persons who look, bid, buy and sell.
    Load(LoadArgs),
    #[command(flatten)]
    Operate(cli::Command),
}

impl Research {
    /// Parses the command line. The operator's commands are left out of the help: `sidelong --help` has them.
    pub(crate) fn parse_hiding_operations() -> Self {
        Self::from_arg_matches(&Self::own().get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// The command line, whose help has the program's own commands.
    pub(crate) fn own() -> clap::Command {
        let theirs = cli::Cli::command();
        let names = theirs.get_subcommands().map(|command| command.get_name().to_owned());
        let hide = |all: clap::Command, name| all.mut_subcommand(name, |command| command.hide(true));
        names.fold(Self::command(), hide)
    }
}

impl Command {
    /// Whether it shows on a screen what it would warn of.
    pub(crate) fn has_screen(&self) -> bool {
        matches!(self, Command::Operate(command) if command.has_screen())
    }

    pub(crate) fn run(&self, is_quiet: bool) -> Result<ExitCode, Failure> {
        let done = match self {
            Command::Experiments(command) => return command.run(),
            Command::Sim(args) => return sim::run(args, is_quiet),
            Command::Trace(args) => return trace::run(args, is_quiet),
            Command::Perf(args) => sidelong_perf::run(args),
            Command::Load(args) => load::run(args, is_quiet),
            Command::Operate(command) => return command.run(is_quiet),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::parse_documented;

    #[test]
    fn the_command_line_is_well_formed() {
        Research::command().debug_assert();
    }

    #[test]
    fn every_command_in_the_documentation_is_understood() {
        parse_documented::<Research>("sidelong-lab");
    }
}
