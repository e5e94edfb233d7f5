//! `sidelong-lab perf`: measures operations between two processes, on one machine or on two, as perftest does.
//!
//! | part | what it is |
//! |---|---|
//! | `args` | the command line and its checks |
//! | `target` | the target's process: exposes, receives, answers |
//! | `far` | the measuring side's session with a target, started here or served elsewhere |
//! | `session` | what each side of a session begins with: secret, run directory, how it is stopped |
//! | `talk` | the messages between both, over the control endpoint |
//! | `measure` | latency and bandwidth |
//! | `ping_pong` | writes that the target answers |
//! | `background` | busy threads at the target |
//! | `device` | RDMA devices, where there are verbs |
//! | `cpus` | which side runs where |
//! | `figures` | prints the result |
//! | `load` | `perf load`, whose target is a node |
//! | `results` | what it prints as JSON, for who reads it |
//!
//! A target on this machine is a process of its own. It differs from one elsewhere only in its secret, which is made for one
//! measurement.
#![forbid(unsafe_code)]

mod args;
mod background;
mod cpus;
mod device;
mod far;
mod figures;
pub mod load;
mod measure;
mod ping_pong;
pub mod results;
mod session;
mod talk;
mod target;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::sync::atomic::AtomicBool;

use crate::results::Figures;

pub use args::PerfArgs;
use args::{MeasureArgs, PerfCommand};
use far::Far;
use measure::{Cost, Measurement};
use session::stop_flag;

use sidelong_app::Failure;

/// Carries out the command.
///
/// # Errors
/// The line for the operator: arguments that do not go together, a target that cannot be reached or has ended, a failed operation.
pub fn run(args: &PerfArgs) -> Result<(), Failure> {
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
    let style =
        ProgressStyle::with_template("[{pos:>2}/{len}] {wide_msg}").expect("a template of this program");
    let bar = ProgressBar::new(sizes.len() as u64).with_style(style).with_finish(ProgressFinish::AndClear);
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
            target_cpu: far.exposed.cpu,
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
