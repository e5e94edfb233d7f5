//! `sidelong lab`: the published experiments.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_lab::{Check, Experiment, Progress, RunOptions, experiments};

use crate::cli::{LabArgs, LabCommand};
use crate::failure::{Failure, say};

pub(crate) fn run(args: &LabArgs) -> Result<(), Failure> {
    match &args.command {
        LabCommand::List => {
            let line = |experiment: &Experiment| {
                format!("{:14} {} ({})\n", experiment.id, experiment.title, experiment.figure)
            };
            say(experiments().iter().map(line).collect::<String>())
        }
        LabCommand::BareProxy { listen, to } => {
            sidelong_edge::run_bare_proxy(*listen, *to, 1);
            Ok(())
        }
        LabCommand::Run { id, out, quick, traces } => {
            let stop = Arc::new(AtomicBool::new(false));
            for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
                signal_hook::flag::register(signal, Arc::clone(&stop))?;
            }
            let program = std::env::current_exe()?;
            let options =
                RunOptions { out: out.clone(), quick: *quick, traces: traces.clone(), program, stop };
            let report = sidelong_lab::run(id, &options, &mut show)?;
            let line = |check: &Check| {
                let (verdict, measured) = (check.verdict(), figure(check.measured));
                format!("{verdict:12} {}: {measured} (target {})\n", check.what, check.target)
            };
            let checks: String = report.checks.iter().map(line).collect();
            say(format!("{checks}{}\n", report.directory.join("report.md").display()))
        }
    }
}

/// A line that is written over on a terminal; elsewhere one for each run.
fn show(progress: Progress<'_>) {
    let Progress { done, total, run, remaining } = progress;
    let end = if std::io::stderr().is_terminal() { "\x1b[K\r" } else { "\n" };
    let mut err = std::io::stderr().lock();
    let _ = if run.is_empty() {
        write!(err, "{total} runs done{end}").and_then(|()| if end == "\n" { Ok(()) } else { writeln!(err) })
    } else {
        write!(err, "[{:>3}/{total}] {run}, about {} left{end}", done + 1, minutes(remaining))
    };
    let _ = err.flush();
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
