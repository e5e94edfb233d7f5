//! The `sidelong` program: its commands, and how each ends.
//!
//! A command that cannot do what it was asked says why in one line on standard error and exits with 2; one that was
//! interrupted before its results were whole, with 130.
#![forbid(unsafe_code)]

mod cgroup;
mod cli;
mod edge;
mod event;
mod fabric;
mod failure;
mod helper;
mod interrupt;
mod lab;
mod looks;
mod monitor;
mod node;
mod page;
mod parent;
mod parts;
mod perf;
mod sim;
mod status;
mod top;
mod trace;
mod up;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command, PartArgs};
use crate::event::Event;
use crate::failure::Failure;

/// Pingora's figures in `docs/` are with it; the system's allocator costs the edge a fifth of its throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What `top` would warn of stands on its page.
    let is_quiet = cli.quiet || matches!(cli.command, Command::Top(_));
    let default = if is_quiet { "error" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDELONG_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    // A log that cannot be written (its disk is full) must not end what would write it.
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false);
    // Colours in a file or a journal are noise.
    log.with_ansi(std::io::stderr().is_terminal() && !*page::PLAIN).with_env_filter(filter).init();

    let done = match cli.command {
        Command::Up(args) => up::run(&args, cli.quiet),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Node(args) => part(&args, node::run),
        Command::Edge(args) => part(&args, edge::run),
        Command::Helper(args) => helper::run(&args, cli.quiet),
        Command::Trace(args) => match trace::run(&args, cli.quiet) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Sim(args) => match sim::run(&args, cli.quiet) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Lab(args) => lab::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Config(args) => cli::config(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(line)) => {
            let _ = writeln!(std::io::stderr(), "sidelong: {line}");
            ExitCode::from(2)
        }
    }
}

/// Runs a part of a cluster; why it fails is told to who listens to its events, too.
fn part(args: &PartArgs, run: fn(&PartArgs) -> Result<(), Failure>) -> Result<(), Failure> {
    let done = run(args);
    if let (true, Err(Failure(reason))) = (args.events, &done) {
        Event::Failed { reason: reason.clone() }.tell();
    }
    done
}
