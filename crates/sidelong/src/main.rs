//! The `sidelong` program: its commands, and how each ends.
//!
//! A command that cannot do what it was asked says why in one line on standard error and exits with 2.
#![forbid(unsafe_code)]

mod cli;
mod edge;
mod event;
mod failure;
mod lab;
mod node;
mod parts;
mod perf;
mod trace;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

/// Pingora's figures in `docs/` are with it; the system's allocator costs the edge a fifth of its throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let default = if cli.quiet { "error" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIDELONG_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let done = match cli.command {
        Command::Up(args) => up::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Edge(args) => edge::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Config(args) => cli::config(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(line)) => {
            eprintln!("sidelong: {line}");
            ExitCode::from(2)
        }
    }
}
