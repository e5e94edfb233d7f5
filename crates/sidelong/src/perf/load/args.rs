//! The command line of `sidelong perf load`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use sidelong_config::Scheme;

use crate::failure::Failure;
use crate::perf::args::{Pin, pin};

const EXAMPLES: &str = "\
Examples:
  sidelong perf load                                        a look at one node's load, by the best scheme here
  sidelong perf load --scheme socket-sync --background 64   while 64 threads keep the node's CPU busy
  sidelong perf load step --scheme rdma-async --period 50   from a load step to its being seen
  sidelong perf load slowdown --scheme socket-async --granularity 1
                                                            of an application on the node, by being looked at
  sidelong perf load accuracy --background 16               the record against the truth";

/// How long a measurement takes by default, and where it is to be short.
const TIME: Duration = Duration::from_secs(5);
const TIME_QUICK: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::perf) struct LoadArgs {
    /// What to measure.
    #[arg(value_enum, default_value = "latency")]
    pub(super) measure: Measure,
    /// Who keeps the record and who reads it: auto, socket-async, socket-sync, rdma-async, rdma-sync, e-rdma-sync.
    #[arg(long, value_name = "SCHEME", default_value = "auto", value_parser = scheme)]
    pub(super) scheme: Scheme,
    /// Threads on the node's CPU meanwhile: with accuracy they come and go, else they compute and communicate all the time.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(super) background: u32,
    /// Between two looks, in ms; 0 is without a pause. A step is always looked for without one.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    granularity: Option<u64>,
    /// T: how often a thread of the node refreshes the record, in ms, under the schemes that have one.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    period: Option<u64>,
    /// Threads that wake for a step.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) threads: u32,
    /// How long to measure, in seconds.
    #[arg(long = "for", value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// The CPUs to stay on: auto (the node on the first and this side on the last), none, or NODE,THIS.
    #[arg(long, value_name = "CPUS", default_value = "auto", value_parser = pin)]
    pub(super) pin: Pin,
    /// JSON instead of lines.
    #[arg(long)]
    pub(super) json: bool,
    /// A short run.
    #[arg(long)]
    pub(super) quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// How long one look at the node's record takes.
    Latency,
    /// From the waking of threads on the node's CPU to their being seen in the record.
    Step,
    /// How much slower an application on the node's CPU gets by being looked at.
    Slowdown,
    /// Threads and CPU load as the record has them, against the truth.
    Accuracy,
    /// Interrupts that the record shows raised and not yet served, by CPU.
    Interrupts,
}

impl LoadArgs {
    /// Between two looks.
    pub(super) fn granularity(&self) -> Duration {
        Duration::from_millis(self.granularity.unwrap_or(match self.measure {
            Measure::Latency | Measure::Slowdown | Measure::Interrupts => 1,
            Measure::Accuracy => 10,
            Measure::Step => 0,
        }))
    }

    /// T. M 5 has 50 ms; a slow-down is that of a record which is as fresh as the looks are often.
    pub(super) fn period(&self) -> Duration {
        match (self.period, self.measure) {
            (Some(ms), _) => Duration::from_millis(ms),
            (None, Measure::Slowdown) => self.granularity().max(Duration::from_millis(1)),
            (None, _) => Duration::from_millis(50),
        }
    }

    /// How long to measure.
    pub(super) fn time(&self) -> Duration {
        let default = if self.quick { TIME_QUICK } else { TIME };
        self.seconds.map_or(default, Duration::from_secs)
    }

    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if matches!(self.pin, Pin::One(_)) {
            return Err(Failure::new("--pin takes two CPUs here: NODE,THIS"));
        }
        if self.measure == Measure::Slowdown && self.background > 0 {
            return Err(Failure::new(
                "slowdown is of an application that has the CPU to itself: leave --background out",
            ));
        }
        if self.measure == Measure::Step && self.granularity.is_some_and(|ms| ms > 0) {
            return Err(Failure::new("a step is looked for without a pause: leave --granularity out"));
        }
        Ok(())
    }
}

/// As the cluster file has it.
fn scheme(text: &str) -> Result<Scheme, String> {
    let known = Scheme::ALL.iter().find(|scheme| scheme.as_str() == text);
    let words = || Scheme::ALL.iter().map(|scheme| scheme.as_str()).collect::<Vec<_>>().join(", ");
    known.copied().ok_or_else(|| format!("one of {}", words()))
}
