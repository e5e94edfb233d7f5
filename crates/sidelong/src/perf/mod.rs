//! `sidelong perf`: what operations cost between two processes, of this machine or of two, as perftest measures it.
//!
//! | part | what it is |
//! |---|---|
//! | `args` | the command line, and what of it does not go together |
//! | `target` | the side that is measured against: offers, receives, answers |
//! | `far` | that side as the measuring one has it, started here or served elsewhere |
//! | `talk` | what both say to each other, over the control endpoint |
//! | `measure` | latency and bandwidth |
//! | `ping_pong` | writes that the target answers |
//! | `background` | busy threads at the target |
//! | `device` | RDMA devices, where there are verbs |
//! | `cpus` | which side runs where |
//! | `figures` | what came of it |
//! | `load` | `perf load`, which has a node for its target |
//!
//! A target on this machine is a process of its own that differs from one elsewhere in its secret alone, which is made for
//! the one measurement.

mod args;
mod background;
mod cpus;
mod device;
mod far;
mod figures;
mod load;
mod measure;
mod ping_pong;
mod talk;
mod target;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidelong_fabric::control::Secret;

pub(crate) use args::PerfArgs;
use args::{MeasureArgs, PerfCommand, SecretArgs, word};
use far::Far;
use figures::Figures;
use measure::Measurement;

use crate::failure::Failure;

/// The variable that may hold the secret.
const SECRET: &str = "SIDELONG_SECRET";

pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.command {
        Some(PerfCommand::Serve(args)) => target::serve(args),
        Some(PerfCommand::Load(args)) => load::run(args),
        Some(PerfCommand::Background { threads }) => background::run(*threads),
        None => measure(&args.measure),
    }
}

fn measure(args: &MeasureArgs) -> Result<(), Failure> {
    args.check()?;
    let stop = stop_flag()?;
    let (target_cpu, initiator_cpu) = match &args.to {
        None => cpus::both(args.pin)?,
        Some(_) => (None, cpus::this(args.pin)?),
    };
    // The child inherits what is set here, and sets its own.
    let mut far = Far::new(args, target_cpu)?;
    cpus::hold(initiator_cpu)?;
    let measured = measure_against(args, &mut far, initiator_cpu, &stop);
    // What failed may be no more than how that shows.
    let all = measured.or_else(|failure| far.is_there().and(Err(failure)))?;
    figures::print(&all, args.json, args.sizes.is_some())
}

fn measure_against(
    args: &MeasureArgs,
    far: &mut Far,
    initiator_cpu: Option<usize>,
    stop: &AtomicBool,
) -> Result<Vec<Figures>, Failure> {
    let (mut initiator, device) = far.initiator(args)?;
    let links = far.links(&mut initiator)?;
    let pong = args.ping_pong.then(|| far.ping_pong(&args.device)).transpose()?;
    if args.background > 0 {
        far.background(args.background)?;
    }
    let sizes = args.all_sizes();
    let mut all = Vec::with_capacity(sizes.len());
    for (index, &bytes) in sizes.iter().enumerate() {
        show(args, index, sizes.len(), bytes);
        let mut measurement = Measurement {
            args,
            far,
            stop,
            initiator: &mut initiator,
            links: &links,
            pong: pong.as_ref(),
            bytes,
        };
        let (latency, bandwidth, cost) = if args.bandwidth {
            let (bandwidth, cost) = measurement.bandwidth()?;
            (None, Some(bandwidth), cost)
        } else {
            let (latency, cost) = measurement.latency()?;
            (Some(latency), None, cost)
        };
        all.push(Figures {
            operation: args.operation,
            ping_pong: args.ping_pong,
            fabric: args.fabric,
            device: device.clone(),
            completion: args.completion(),
            peers: args.peers,
            bytes,
            bytes_moved: args.operation.bytes_moved(bytes),
            background: args.background,
            target_cpu: far.offered.cpu,
            initiator_cpu,
            latency,
            bandwidth,
            cost,
        });
    }
    show(args, sizes.len(), sizes.len(), 0);
    Ok(all)
}

/// A line that is written over, on a terminal alone.
fn show(args: &MeasureArgs, done: usize, total: usize, bytes: usize) {
    let mut err = std::io::stderr().lock();
    if !err.is_terminal() || total < 2 {
        return;
    }
    let _ = if done < total {
        let (operation, fabric) = (word(args.operation), word(args.fabric));
        write!(err, "[{:>2}/{total}] {operation} of {bytes} bytes over {fabric}\x1b[K\r", done + 1)
    } else {
        write!(err, "\x1b[K")
    };
    let _ = err.flush();
}

/// Where the target of that process number has its regions.
fn run_dir(target: u32) -> PathBuf {
    sidelong_config::default_run_dir(&format!("perf-{target}"))
}

/// Raised by Ctrl-C and SIGTERM.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// What both sides know, from a file or the environment.
fn secret(args: &SecretArgs) -> Result<Secret, Failure> {
    if let Some(path) = &args.secret_file {
        return Ok(Secret::read(path)?);
    }
    let text = std::env::var(SECRET).map_err(|_| {
        Failure(format!(
            "both sides need the same secret: --secret-file FILE, mode 0600 (head -c 24 /dev/urandom | base64 >FILE), or \
             {SECRET}"
        ))
    })?;
    Ok(Secret::new(text.trim().as_bytes())?)
}
