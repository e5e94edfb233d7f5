//! The programs `sidelong`, for operators, and `sidelong-lab`, for research: their commands, and their exit codes.
//!
//! A command that fails prints one line on standard error and exits with 2. A command that was interrupted before its results
//! were complete exits with 130. `sidelong doctor` and `sidelong edge --takeover` say more by theirs.
#![forbid(unsafe_code)]

mod agents;
mod by_hand;
mod cache;
mod cli;
mod cluster;
mod completion;
mod config;
mod doctor;
mod duration;
mod etcd;
mod event;
mod failure;
mod front;
mod hangup;
mod history;
mod init;
mod interrupt;
mod load;
mod log;
mod manual;
mod members;
mod own_part;
mod page;
mod part;
mod progress;
mod reload;
mod remove;
mod research;
mod running;
mod secret;
mod status;
mod supervisor;
mod table;
mod top;
mod up;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{CommandFactory as _, Parser as _};
use clap_complete::CompleteEnv;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::research::Research;

/// The figures in `docs/` were measured with it. The system's allocator costs the edge a fifth of its throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `sidelong`.
pub fn operate() -> ExitCode {
    // What the shell asks for, by the variable COMPLETE.
    CompleteEnv::with_factory(Cli::command).completer("sidelong").complete();
    let Cli { command, quiet } = Cli::parse();
    started("sidelong", quiet || command.has_screen(), || command.run(quiet))
}

/// `sidelong-lab`, which takes the commands of `sidelong`, too.
pub fn research() -> ExitCode {
    let Research { command, quiet } = Research::parse_hiding_operations();
    cluster::IS_LAB.store(true, Ordering::Relaxed);
    started("sidelong-lab", quiet || command.has_screen(), || command.run(quiet))
}

/// Runs a command of the program of that name, with a log.
fn started(name: &str, is_quiet: bool, run: impl FnOnce() -> Result<ExitCode, Failure>) -> ExitCode {
    let log = match log::start(if is_quiet { "error" } else { "warn" }) {
        Ok(log) => log,
        Err(failure) => return failed(name, &failure, log::Format::Text),
    };
    run().unwrap_or_else(|failure| failed(name, &failure, log))
}

fn failed(name: &str, Failure(line): &Failure, log: log::Format) -> ExitCode {
    match log {
        log::Format::Text => _ = writeln!(std::io::stderr(), "{name}: {line}"),
        log::Format::Json => tracing::error!("{line}"),
    }
    ExitCode::from(2)
}
