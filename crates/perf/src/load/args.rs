//! The command line of `sidelong-lab perf load`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelong_config::Scheme;

use crate::args::{Pin, pin};
use sidelong_app::Failure;

const EXAMPLES: &str = "\
Examples:
  sidelong-lab perf load                                        time a sample of one node's load, by the best scheme here
  sidelong-lab perf load --scheme socket-sync --background 64   the same while 64 threads keep the node's CPU busy
  sidelong-lab perf load step --scheme rdma-async --period 50   time from a load step until a sample shows it
  sidelong-lab perf load slowdown --scheme socket-async --granularity 1
                                                            slowdown of an application on a node that is sampled
  sidelong-lab perf load accuracy --background 16               compare the record with the kernel's own counts";

/// Default duration of a measurement, and with --quick.
const TIME: Duration = Duration::from_secs(5);
const TIME_QUICK: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// Property to measure.
    #[arg(value_enum, default_value = "latency")]
    pub(super) measure: Measure,
    /// How the record is kept and read: auto, socket-async, socket-sync, rdma-async, rdma-sync, e-rdma-sync.
    #[arg(long, value_name = "SCHEME", default_value = "auto")]
    pub(super) scheme: Scheme,
    /// Threads on the node's CPU during the measurement. They compute and communicate; with accuracy they come and go.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(super) background: u32,
    /// Interval between two samples in ms, 0 for none. A step is always sampled without a pause.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    granularity: Option<u64>,
    /// T: how often the node refreshes the record, in ms, in the schemes where one of its threads does.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    period: Option<u64>,
    /// Threads that wake at each step.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) threads: u32,
    /// Time to measure, in seconds.
    #[arg(long = "for", value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// CPUs to pin to: auto (the node on the first, this side on the last), none, or NODE,THIS.
    #[arg(long, value_name = "CPUS", default_value = "auto", value_parser = pin)]
    pub(super) pin: Pin,
    /// Print JSON instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// Measure for a shorter time.
    #[arg(long)]
    pub(super) quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Measure {
    /// Time of one sample of the node's record.
    Latency,
    /// Time from the waking of threads on the node's CPU until the record shows them.
    Step,
    /// Slowdown of an application on the node's CPU by the samples.
    Slowdown,
    /// Difference of the record's threads and CPU load from the kernel's own counts.
    Accuracy,
    /// Pending interrupts that the record shows, by CPU.
    Interrupts,
}

impl LoadArgs {
    /// The interval between two samples.
    pub(super) fn granularity(&self) -> Duration {
        Duration::from_millis(self.granularity.unwrap_or(match self.measure {
            Measure::Latency | Measure::Slowdown | Measure::Interrupts => 1,
            Measure::Accuracy => 10,
            Measure::Step => 0,
        }))
    }

    /// T. Vaidyanathan et al. 2006 use 50 ms; a slowdown is measured with a record that is refreshed at the sampling
    /// interval.
    pub(super) fn period(&self) -> Duration {
        match (self.period, self.measure) {
            (Some(ms), _) => Duration::from_millis(ms),
            (None, Measure::Slowdown) => self.granularity().max(Duration::from_millis(1)),
            (None, _) => Duration::from_millis(50),
        }
    }

    /// Time to measure.
    pub(super) fn time(&self) -> Duration {
        let default = if self.quick { TIME_QUICK } else { TIME };
        self.seconds.map_or(default, Duration::from_secs)
    }

    /// Rejects combinations that make no sense.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if matches!(self.pin, Pin::One(_)) {
            return Err(Failure::new("--pin takes two CPUs: NODE,THIS"));
        }
        if self.measure == Measure::Slowdown && self.background > 0 {
            return Err(Failure::new(
                "slowdown measures an application that has the CPU to itself: leave --background out",
            ));
        }
        if self.measure == Measure::Step && self.granularity.is_some_and(|ms| ms > 0) {
            return Err(Failure::new("a step is sampled without a pause: leave --granularity out"));
        }
        Ok(())
    }
}
