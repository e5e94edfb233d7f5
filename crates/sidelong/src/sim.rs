//! `sidelong sim`: clusters that serve out of each other's memory, simulated.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use sidelong_sim::config::Config;
use sidelong_sim::sweep::{self, Options, Progress};

use crate::cli::{SimArgs, SimCommand};
use crate::failure::{Failure, say};

pub(crate) fn run(args: &SimArgs, quiet: bool) -> Result<(), Failure> {
    match &args.command {
        SimCommand::Explain { file, set } => say(Config::load(file, set)?.explain()),
        SimCommand::Compare { first, second } => say(sidelong_sim::compare(first, second)?),
        SimCommand::Run { file, set, out, threads } => {
            let config = Config::load(file, set)?;
            let stop = Arc::new(AtomicBool::new(false));
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
                // The second time it ends at once: a run may be long.
                signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
                signal_hook::flag::register(signal, Arc::clone(&stop))?;
            }
            let threads = match threads {
                Some(threads) => usize::from(*threads),
                None => std::thread::available_parallelism().map_or(1, NonZero::get),
            };
            let begun = Instant::now();
            let mut first = None;
            let mut show = |progress: Progress<'_>| {
                let before = *first.get_or_insert(progress.done);
                if !quiet {
                    show(progress, before, begun);
                }
            };
            sweep::run(&config, &Options { out, threads, stop: &stop }, &mut show)?;
            say(format!("{}\n", out.join("report.md").display()))
        }
    }
}

/// A bar that is written over on a terminal; elsewhere a line for each run.
fn show(progress: Progress<'_>, before: usize, begun: Instant) {
    const WIDTH: usize = 30;
    let Progress { done, total, last } = progress;
    let mut err = std::io::stderr().lock();
    let left = match (done - before, total - done) {
        (0, _) | (_, 0) => String::new(),
        (ran, left) => {
            let seconds = begun.elapsed().as_secs_f64() / ran as f64 * left as f64;
            format!(", about {seconds:.0} s left")
        }
    };
    let _ = if std::io::stderr().is_terminal() {
        let full = WIDTH * done / total.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
        let end = if done == total { "\n" } else { "\r" };
        write!(err, "[{bar}] {done}/{total} {last}{left}\x1b[K{end}")
    } else if last.is_empty() {
        Ok(())
    } else {
        writeln!(err, "[{done:>3}/{total}] {last}{left}")
    };
    let _ = err.flush();
}
