//! The command line of `sidelong-lab perf`, and its checks.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::results::{Completion, Operation, PerfFabric};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use crate::load::LoadArgs;
use sidelong_app::Failure;

/// The port where `perf serve` listens and `--to` connects.
const PORT: u16 = 7471;
/// The longest operation that is measured.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// The longest inbox of a target.
const INBOX_BYTES_MAX: usize = 128 << 20;

const EXAMPLES: &str = "\
Examples:
  sidelong-lab perf                                  read 64 bytes between two processes of this machine
  sidelong-lab perf read --peers 8                   read eight regions in one batch
  sidelong-lab perf write --sizes all --fabric tcp   write 1 B to 1 MB
  sidelong-lab perf write --ping-pong                write until the target sees it: half a round trip
  sidelong-lab perf read --size 64K --bandwidth      keep windows of 16 reads in flight
  sidelong-lab perf read --fabric tcp --background 64
                                                 read while 64 threads keep the target's CPU busy
  sidelong-lab perf load --scheme socket-sync        sample a node's load by one of the schemes
  sidelong-lab perf serve --secret-file FILE         serve on one machine; on the other:
  sidelong-lab perf read --to HOST --fabric tcp --secret-file FILE";

/// The arguments of `sidelong-lab perf`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct PerfArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PerfCommand>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Subcommand)]
pub(crate) enum PerfCommand {
    /// Serve as the target of `--to` from another machine, one measurement at a time, until Ctrl-C.
    Serve(ServeArgs),
    /// Measure how a scheme samples a node's load: the time of a sample, the delay until a load step is seen, the cost to
    /// the node, the accuracy.
    Load(LoadArgs),
    /// Run threads that compute and communicate until standard input ends.
    #[command(hide = true)]
    Background {
        /// Number of threads.
        threads: u32,
    },
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address of the control endpoint. The fabric opens further ports on the same address.
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// CPU to pin the target to: auto (the first), none, or a number.
    #[arg(long, value_name = "CPU", default_value = "auto", value_parser = pin)]
    pub(crate) pin: Pin,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Exit after the first measurement.
    #[arg(long)]
    pub(crate) once: bool,
    /// Exit when standard input ends: the measuring side started this process.
    #[arg(long, hide = true)]
    pub(crate) child: bool,
}

/// The RDMA device, for verbs.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct DeviceArgs {
    /// RDMA device, as `ibv_devices` lists it [default: the first with an active port].
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Port of the device [default: the first active one].
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u8>,
    /// Index of the port's address [default: the first of RoCE version 2; 0 on InfiniBand].
    #[arg(long, value_name = "N")]
    pub(crate) gid_index: Option<u8>,
}

impl DeviceArgs {
    /// These arguments as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let DeviceArgs { device, port, gid_index } = self;
        let numbers = [("--port", port), ("--gid-index", gid_index)];
        let numbers = numbers.into_iter().filter_map(|(flag, n)| Some((flag, n.as_ref()?.to_string())));
        let device = device.iter().map(|name| ("--device", name.clone()));
        device.chain(numbers).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}

#[derive(Args)]
pub(crate) struct SecretArgs {
    /// File of mode 0600 with the secret that both sides share, 16 bytes or more [default: the variable SIDELONG_SECRET].
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// Operation to measure.
    #[arg(value_parser = named(OPERATIONS, Operation::as_str), default_value = "read")]
    pub(crate) operation: Operation,
    /// Fabric to measure.
    #[arg(long, value_parser = named(FABRICS, PerfFabric::as_str), default_value = "shm")]
    pub(crate) fabric: PerfFabric,
    /// Regions of the target; a batch has one operation on each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) peers: u32,
    /// Bytes of each operation; atomics always have 8.
    #[arg(long, visible_alias = "bytes", value_name = "BYTES", default_value = "64", value_parser = bytes)]
    pub(crate) size: usize,
    /// Measure all powers of two from 1 B to 1 MB instead of one size.
    #[arg(long, value_enum, value_name = "all", conflicts_with = "size")]
    pub(crate) sizes: Option<Sizes>,
    /// Have the target answer each write by a write, and count half of the round trip, as ib_write_lat does.
    #[arg(long, conflicts_with_all = ["bandwidth", "sizes"])]
    pub(crate) ping_pong: bool,
    /// Measure bytes per second with a window of operations in flight, instead of latency.
    #[arg(long)]
    pub(crate) bandwidth: bool,
    /// Operations in flight with --bandwidth.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) window: u32,
    /// How both sides wait, for completions and for messages [default: polling; events over tcp].
    #[arg(long, value_parser = named(COMPLETIONS, Completion::as_str))]
    pub(crate) completion: Option<Completion>,
    /// Threads that compute and communicate on the target's CPU during the measurement.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(crate) background: u32,
    /// CPUs to pin to: auto (the target on the first, this side on the last), none, or TARGET,THIS; with --to, THIS.
    #[arg(long, value_name = "CPUS", default_value = "auto", value_parser = pin)]
    pub(crate) pin: Pin,
    /// Measure exactly N batches and no CPU time (for `valgrind --tool=callgrind`).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) iterations: Option<u64>,
    /// Machine where `sidelong-lab perf serve` runs, with an optional port [default: this machine].
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print JSON instead of a table; a list with --sizes.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure for a shorter time.
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sizes {
    All,
}

/// The CPUs to pin both sides to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    Auto,
    None,
    One(usize),
    Two(usize, usize),
}

/// Reads a value by its `name`; the help lists all with what they are.
fn named<T>(
    all: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync,
{
    let names = all.iter().map(|(value, help)| PossibleValue::new(name(*value)).help(*help));
    PossibleValuesParser::new(names).map(move |text| {
        let known = all.iter().find(|(value, _)| name(*value) == text);
        known.expect("one of the possible values").0
    })
}

const OPERATIONS: &[(Operation, &str)] = &[
    (Operation::Read, "One-sided read"),
    (Operation::Write, "One-sided write"),
    (Operation::WriteImm, "One-sided write that notifies the target's inbox"),
    (Operation::Send, "Message to the target's inbox"),
    (Operation::Cas, "Compare-and-swap"),
    (Operation::Faa, "Fetch-and-add"),
];

const FABRICS: &[(PerfFabric, &str)] = &[
    (PerfFabric::Shm, "Memory of this machine"),
    (PerfFabric::Tcp, "TCP, answered by a thread of the target"),
    (PerfFabric::Verbs, "RDMA: InfiniBand or RoCE"),
];

const COMPLETIONS: &[(Completion, &str)] =
    &[(Completion::Polling, "Poll without a pause"), (Completion::Events, "Sleep until an event")];

impl MeasureArgs {
    /// The sizes to measure.
    pub(crate) fn all_sizes(&self) -> Vec<usize> {
        match self.sizes {
            Some(Sizes::All) => (0..=20).map(|power| 1 << power).collect(),
            None if self.operation.is_atomic() => vec![8],
            None => vec![self.size],
        }
    }

    /// The longest of them.
    pub(crate) fn size_max(&self) -> usize {
        self.all_sizes().into_iter().max().unwrap_or(8)
    }

    /// How completions are waited for.
    pub(crate) fn completion(&self) -> Completion {
        self.completion.unwrap_or(match self.fabric {
            PerfFabric::Shm | PerfFabric::Verbs => Completion::Polling,
            PerfFabric::Tcp => Completion::Events,
        })
    }

    /// Messages that the target's inbox has room for.
    pub(crate) fn slots(&self) -> usize {
        2 * self.window.max(16) as usize
    }

    /// Rejects combinations that make no sense.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let MeasureArgs { operation, fabric, .. } = self;
        let refuse = |line: String| Err(Failure(line));
        match (self.fabric, self.completion) {
            (PerfFabric::Shm, Some(Completion::Events)) if !self.operation.is_two_sided() => {
                return refuse(format!(
                    "--completion events: over shm this side's own CPU does the {operation}, which is complete when it \
                     returns; remove --completion, or measure send or write-imm, where the target may wait"
                ));
            }
            (PerfFabric::Tcp, Some(Completion::Polling)) => {
                return refuse(format!(
                    "--completion polling: over {fabric} both sides sleep until their sockets are ready; use --completion \
                     events alone"
                ));
            }
            _ => {}
        }
        if self.fabric != PerfFabric::Verbs && self.device != DeviceArgs::default() {
            return refuse(format!("--device, --port and --gid-index are for --fabric verbs, not {fabric}"));
        }
        if self.ping_pong && (self.operation != Operation::Write || self.peers > 1) {
            return refuse(format!(
                "--ping-pong measures writes to one peer, not {operation}: remove it, or --peers"
            ));
        }
        if self.operation.is_atomic() && self.sizes.is_some() {
            return refuse(format!("{operation} is always of 8 bytes: remove --sizes"));
        }
        if self.operation.is_two_sided() && self.peers > 1 {
            return refuse(format!("{operation} has one receiver: remove --peers"));
        }
        if self.bandwidth && self.peers > 1 {
            return refuse("--bandwidth measures one peer: remove --peers, or set --window".to_owned());
        }
        if self.peers > 1 && self.peers as usize * self.size_max() > 256 << 20 {
            return refuse("the regions exceed 256 MB: reduce --peers or --size".to_owned());
        }
        if self.operation.is_two_sided() && self.slots() * self.size_max() > INBOX_BYTES_MAX {
            return refuse(format!(
                "two windows of {} messages of {} bytes exceed {} MB: choose a smaller --window or --size",
                self.window,
                self.size_max(),
                INBOX_BYTES_MAX >> 20
            ));
        }
        if self.to.is_some() && matches!(self.pin, Pin::Two(..)) {
            return refuse(
                "--pin takes one CPU with --to: the target has its own --pin (perf serve --pin CPU)"
                    .to_owned(),
            );
        }
        if self.to.is_none() && matches!(self.pin, Pin::One(_)) {
            return refuse("--pin takes two CPUs without --to: TARGET,THIS".to_owned());
        }
        if let (PerfFabric::Shm, Some(host)) = (self.fabric, &self.to)
            && !address(host)?.ip().is_loopback()
        {
            return refuse(format!("shm is the memory of one machine: use --fabric tcp to reach {host}"));
        }
        Ok(())
    }
}

/// `HOST`, `HOST:PORT`, an address with or without port.
pub(crate) fn address(host: &str) -> Result<SocketAddr, Failure> {
    use std::net::ToSocketAddrs as _;
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let found = if host.contains(':') { host.to_socket_addrs() } else { (host, PORT).to_socket_addrs() };
    let first = found.map_err(|error| Failure(format!("--to {host}: {error}")))?.next();
    first.ok_or_else(|| Failure(format!("--to {host}: the name has no address")))
}

/// `64`, `4K`, `1M`.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['K', 'k', 'M', 'm']) {
        Some(number) if text.ends_with(['K', 'k']) => (number, 1 << 10),
        Some(number) => (number, 1 << 20),
        None => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|count| count.checked_mul(unit));
    bytes
        .filter(|bytes| (1..=BYTES_MAX).contains(bytes))
        .ok_or_else(|| "expected 1 to 1M, such as 64, 4K or 1M".to_owned())
}

pub(crate) fn pin(text: &str) -> Result<Pin, String> {
    let cpu = |text: &str| text.parse().map_err(|_| "expected auto, none, or numbers of CPUs".to_owned());
    match text {
        "auto" => Ok(Pin::Auto),
        "none" => Ok(Pin::None),
        _ => match text.split_once(',') {
            Some((target, this)) => Ok(Pin::Two(cpu(target)?, cpu(this)?)),
            None => Ok(Pin::One(cpu(text)?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!((bytes("64"), bytes("4K"), bytes("1M")), (Ok(64), Ok(4096), Ok(1 << 20)));
        for wrong in ["0", "2M", "-1", "K", "", "1G", "99999999999999999999K"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cpus_are_two_one_or_none() {
        assert_eq!((pin("auto"), pin("none")), (Ok(Pin::Auto), Ok(Pin::None)));
        assert_eq!((pin("3"), pin("0,1")), (Ok(Pin::One(3)), Ok(Pin::Two(0, 1))));
        assert!(pin("0,1,2").is_err() && pin("x").is_err() && pin("").is_err());
    }

    #[test]
    fn a_device_is_passed_on() {
        let args = DeviceArgs { device: Some("rxe0".into()), port: None, gid_index: Some(1) };
        assert_eq!(args.words(), ["--device", "rxe0", "--gid-index", "1"]);
        assert!(DeviceArgs::default().words().is_empty());
    }

    #[test]
    fn hosts_have_the_usual_port() {
        assert_eq!(address("10.0.0.1").unwrap(), SocketAddr::from(([10, 0, 0, 1], PORT)));
        assert_eq!(address("10.0.0.1:9").unwrap(), SocketAddr::from(([10, 0, 0, 1], 9)));
        assert_eq!(address("::1").unwrap().port(), PORT);
    }
}
