//! `sidelong perf`: measures operations between two processes, on one machine or on two, as perftest does.
//!
//! | part | what it is |
//! |---|---|
//! | `args` | the command line and its checks |
//! | `target` | the target's process: offers, receives, answers |
//! | `far` | the measuring side's session with a target, started here or served elsewhere |
//! | `talk` | the messages between both, over the control endpoint |
//! | `measure` | latency and bandwidth |
//! | `ping_pong` | writes that the target answers |
//! | `background` | busy threads at the target |
//! | `device` | RDMA devices, where there are verbs |
//! | `cpus` | which side runs where |
//! | `figures` | prints the result |
//! | `load` | `perf load`, whose target is a node |
//!
//! A target on this machine is a process of its own. It differs from one elsewhere only in its secret, which is made for one
//! measurement.

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

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidelong_fabric::control::Secret;
use sidelong_lab::results::perf::Figures;

pub(crate) use args::PerfArgs;
use args::{MeasureArgs, PerfCommand, SecretArgs};
use far::Far;
use measure::{Cost, Measurement};

use crate::failure::Failure;
use crate::progress;

/// The environment variable of the secret.
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
    // The child inherits the settings made here, and makes its own.
    let mut far = Far::new(args, target_cpu)?;
    cpus::hold(initiator_cpu)?;
    let measured = measure_against(args, &mut far, initiator_cpu, &stop);
    // A failed operation may be the first sign that the target has ended.
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
    let bar = progress::bar(sizes.len() as u64, "[{pos:>2}/{len}] {wide_msg}");
    for &bytes in &sizes {
        if sizes.len() > 1 {
            bar.set_message(format!("{} of {bytes} bytes over {}", args.operation, args.fabric));
            bar.inc(1);
        }
        let mut measurement = Measurement {
            args,
            far,
            stop,
            initiator: &mut initiator,
            links: &links,
            pong: pong.as_ref(),
            bytes,
        };
        let (speed, cost) = if args.bandwidth { measurement.bandwidth()? } else { measurement.latency()? };
        let Cost { operations, initiator_cpu_ns, target_cpu_ns, inbox_full } = cost;
        all.push(Figures {
            operation: args.operation,
            ping_pong: args.ping_pong,
            fabric: args.fabric,
            device: device.clone(),
            completion: args.completion(),
            peers: args.peers,
            bytes: bytes as u64,
            bytes_moved: args.operation.bytes_moved(bytes) as u64,
            background: args.background,
            target_cpu: far.offered.cpu,
            initiator_cpu,
            speed,
            operations,
            initiator_cpu_ns,
            target_cpu_ns,
            inbox_full,
        });
    }
    Ok(all)
}

/// The run directory of the target with that process id.
fn run_dir(target: u32) -> PathBuf {
    sidelong_config::default_run_dir(&format!("perf-{target}"))
}

/// A flag that Ctrl-C and SIGTERM raise.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The secret, from a file or the environment.
fn secret(args: &SecretArgs) -> Result<Secret, Failure> {
    if let Some(path) = &args.secret_file {
        return Ok(Secret::read(path)?);
    }
    let text = std::env::var(SECRET).map_err(|_| {
        Failure(format!(
            "the secret is missing: both sides need the same one, by --secret-file FILE of mode 0600 (head -c 24 /dev/urandom | \
             base64 >FILE) or by the variable {SECRET}"
        ))
    })?;
    Ok(Secret::new(text.trim().as_bytes())?)
}
