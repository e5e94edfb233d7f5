//! The `sidelong` program: its commands, and their exit codes.
//!
//! A command that fails prints one line on standard error and exits with 2. A command that was interrupted before its results
//! were complete exits with 130.
#![forbid(unsafe_code)]

mod by_hand;
mod cache;
mod cli;
mod cluster;
mod config;
mod duration;
mod event;
mod failure;
mod front;
mod hangup;
mod history;
mod init;
mod interrupt;
mod lab;
mod load;
mod log;
mod monitor;
mod page;
mod parent;
mod part;
mod progress;
mod sim;
mod status;
mod top;
mod trace;
mod up;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::event::Event;
use crate::failure::Failure;
use crate::part::PartArgs;

/// The figures in `docs/` were measured with it. The system's allocator costs the edge a fifth of its throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The screen of `top` shows what it would warn of.
    let is_quiet = cli.quiet || matches!(cli.command, Command::Top(_));
    let log = match log::start(if is_quiet { "error" } else { "warn" }) {
        Ok(log) => log,
        Err(failure) => return failed(&failure, log::Format::Text),
    };
    let done = match cli.command {
        Command::Up(args) => up::run(&args, cli.quiet),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => status::run(&args),
        Command::History(args) => history::run(&args),
        Command::Drain(args) => by_hand::drain(&args, cli.quiet),
        Command::Resume(args) => by_hand::resume(&args, cli.quiet),
        Command::Move(args) => by_hand::move_to(&args, cli.quiet),
        Command::Node(args) => part(&args, part::node),
        Command::Edge(args) => part(&args, part::edge),
        Command::Front(args) => match &args.ask {
            Some(ask) => front::ask(ask),
            None => part(args.part.as_ref().expect("clap asks for it without a subcommand"), part::front),
        },
        Command::Cache(args) => tell(args.events, cache::run(&args, cli.quiet)),
        Command::Trace(args) => match trace::run(&args, cli.quiet) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Sim(args) => match sim::run(&args, cli.quiet) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Lab(args) => match lab::run(&args) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Load(args) => load::run(&args, cli.quiet),
        Command::Perf(args) => sidelong_perf::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Exec(args) => up::exec(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure, log),
    }
}

fn failed(Failure(line): &Failure, log: log::Format) -> ExitCode {
    match log {
        log::Format::Text => _ = writeln!(std::io::stderr(), "sidelong: {line}"),
        log::Format::Json => tracing::error!("{line}"),
    }
    ExitCode::from(2)
}

/// Runs a part of a cluster, and reports its failure as an event too.
fn part(args: &PartArgs, run: fn(&PartArgs) -> Result<(), Failure>) -> Result<(), Failure> {
    tell(args.events, run(args))
}

/// Reports a failure as an event too, if a part prints events.
fn tell(events: bool, done: Result<(), Failure>) -> Result<(), Failure> {
    if let (true, Err(Failure(reason))) = (events, &done) {
        event::print(&Event::Failed { reason: reason.clone() });
    }
    done
}
