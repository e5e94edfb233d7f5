//! The command line of `sidelong perf`, and what of it does not go together.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::perf::load::LoadArgs;

/// Where `perf serve` listens, and `--to` asks.
const PORT: u16 = 7471;
/// The longest operation that is measured.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// All messages together that wait at the target.
const INBOX_BYTES_MAX: usize = 128 << 20;

const EXAMPLES: &str = "\
Examples:
  sidelong perf                                  a read of 64 bytes, this machine against itself
  sidelong perf read --peers 8                   eight regions in one batch
  sidelong perf write --sizes all --fabric tcp   1 B to 1 MB
  sidelong perf write --ping-pong                until the target sees it, by its answer
  sidelong perf read --size 64K --bandwidth      windows of 16 in flight
  sidelong perf read --fabric tcp --background 64
                                                 while 64 threads keep the target's CPU busy
  sidelong perf load --scheme socket-sync        a look at a node's load, by one of the schemes
  sidelong perf serve --secret-file FILE         on one machine, and on the other:
  sidelong perf read --to HOST --fabric tcp --secret-file FILE";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    pub(super) command: Option<PerfCommand>,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
}

#[derive(Subcommand)]
pub(super) enum PerfCommand {
    /// The target's side, for `--to` from another machine; it serves one measurement after the other until Ctrl-C.
    Serve(ServeArgs),
    /// How load is had from a node by each scheme: how long a look takes, how soon a step is seen, what it costs, how
    /// true it is.
    Load(LoadArgs),
    /// Busy threads that compute and communicate, until standard input ends.
    #[command(hide = true)]
    Background {
        /// How many.
        threads: u32,
    },
}

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Where to listen. The fabric has ports of its own on the same address.
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    pub(super) listen: SocketAddr,
    #[command(flatten)]
    pub(super) secret: SecretArgs,
    /// The CPU to stay on: auto (the first), none, or its number.
    #[arg(long, value_name = "CPU", default_value = "auto", value_parser = pin)]
    pub(super) pin: Pin,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// End after the first measurement.
    #[arg(long)]
    pub(super) once: bool,
    /// Started by the measuring side, on the same machine: end with it.
    #[arg(long, hide = true)]
    pub(super) child: bool,
}

/// Which RDMA device, for verbs.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct DeviceArgs {
    /// The RDMA device, as `ibv_devices` names it; else the first with an active port.
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Its port; else the first active one.
    #[arg(long, value_name = "N")]
    pub(super) port: Option<u8>,
    /// Which of the port's addresses; else the first of RoCE version 2, on InfiniBand 0.
    #[arg(long, value_name = "N")]
    pub(super) gid_index: Option<u8>,
}

impl DeviceArgs {
    /// The same, for another command line.
    pub(super) fn words(&self) -> Vec<String> {
        let DeviceArgs { device, port, gid_index } = self;
        let numbers = [("--port", port), ("--gid-index", gid_index)];
        let numbers = numbers.into_iter().filter_map(|(flag, n)| Some((flag, n.as_ref()?.to_string())));
        let device = device.iter().map(|name| ("--device", name.clone()));
        device.chain(numbers).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}

#[derive(Args)]
pub(super) struct SecretArgs {
    /// A file of mode 0600 with 16 bytes or more that both sides know; else the variable SIDELONG_SECRET has them.
    #[arg(long, value_name = "FILE")]
    pub(super) secret_file: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct MeasureArgs {
    /// What to measure.
    #[arg(value_enum, default_value = "read")]
    pub(super) operation: Operation,
    /// Over which fabric.
    #[arg(long, value_enum, default_value = "shm")]
    pub(super) fabric: PerfFabric,
    /// Regions of the target, one operation on each, in one batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(super) peers: u32,
    /// Bytes of each operation; atomics have 8.
    #[arg(long, visible_alias = "bytes", value_name = "BYTES", default_value = "64", value_parser = bytes)]
    pub(super) size: usize,
    /// 1 B to 1 MB in powers of two, in place of one size.
    #[arg(long, value_enum, value_name = "all", conflicts_with = "size")]
    pub(super) sizes: Option<Sizes>,
    /// Each write is answered by one of the target's: half of the time of both, as ib_write_lat counts.
    #[arg(long, conflicts_with_all = ["bandwidth", "sizes"])]
    pub(super) ping_pong: bool,
    /// Bytes a second in place of latency: windows of operations in flight.
    #[arg(long)]
    pub(super) bandwidth: bool,
    /// Operations in one window of --bandwidth.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) window: u32,
    /// How completions, and at the target messages, are waited for; by default as the fabric does it best.
    #[arg(long, value_enum)]
    pub(super) completion: Option<Completion>,
    /// Threads that compute and communicate on the target's CPU meanwhile.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(super) background: u32,
    /// The CPUs to stay on: auto (the target on the first and this side on the last), none, TARGET,THIS; with --to, THIS.
    #[arg(long, value_name = "CPUS", default_value = "auto", value_parser = pin)]
    pub(super) pin: Pin,
    /// Exactly so many batches, in place of a time, and no CPU time (for `valgrind --tool=callgrind`).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) iterations: Option<u64>,
    /// The machine where `sidelong perf serve` runs, in place of this one.
    #[arg(long, value_name = "HOST")]
    pub(super) to: Option<String>,
    #[command(flatten)]
    pub(super) secret: SecretArgs,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// JSON instead of a table; a list with --sizes.
    #[arg(long)]
    pub(super) json: bool,
    /// A short run.
    #[arg(long)]
    pub(super) quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    /// One-sided read.
    Read,
    /// One-sided write.
    Write,
    /// A write of which the target is told: until its inbox has it.
    WriteImm,
    /// A message: until the target's inbox has it.
    Send,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    Faa,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PerfFabric {
    /// Memory of this machine.
    Shm,
    /// A thread of the target answers over TCP.
    Tcp,
    /// RDMA: InfiniBand or RoCE.
    Verbs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Completion {
    /// Looked for again and again.
    Polling,
    /// Slept for.
    Events,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Sizes {
    All,
}

/// On which CPUs whom to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pin {
    Auto,
    None,
    One(usize),
    Two(usize, usize),
}

/// A name as the command line has it.
pub(super) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Operation {
    /// Whether a process receives it.
    pub(super) fn is_two_sided(self) -> bool {
        matches!(self, Operation::Send | Operation::WriteImm)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Operation::Cas | Operation::Faa)
    }

    /// What is moved for one of `bytes`: memory is made of words, messages are not.
    pub(super) fn bytes_moved(self, bytes: usize) -> usize {
        if self == Operation::Send { bytes } else { bytes.next_multiple_of(8) }
    }
}

impl MeasureArgs {
    /// The sizes to measure.
    pub(super) fn all_sizes(&self) -> Vec<usize> {
        match self.sizes {
            Some(Sizes::All) => (0..=20).map(|power| 1 << power).collect(),
            None if self.operation.is_atomic() => vec![8],
            None => vec![self.size],
        }
    }

    /// The longest of them.
    pub(super) fn size_max(&self) -> usize {
        self.all_sizes().into_iter().max().unwrap_or(8)
    }

    /// How completions are waited for.
    pub(super) fn completion(&self) -> Completion {
        self.completion.unwrap_or(match self.fabric {
            PerfFabric::Shm | PerfFabric::Verbs => Completion::Polling,
            PerfFabric::Tcp => Completion::Events,
        })
    }

    /// Messages that the target's inbox has room for.
    pub(super) fn slots(&self) -> usize {
        2 * self.window.max(16) as usize
    }

    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let (operation, fabric) = (word(self.operation), word(self.fabric));
        let refuse = |line: String| Err(Failure(line));
        match (self.fabric, self.completion) {
            (PerfFabric::Shm, Some(Completion::Events)) if !self.operation.is_two_sided() => {
                return refuse(format!(
                    "{operation} over shm is done by this side's own CPU and is complete when it returns: there is no \
                     event to wait for; leave --completion out, or measure send or write-imm, where the target may wait"
                ));
            }
            (PerfFabric::Tcp, Some(Completion::Polling)) => {
                return refuse(format!(
                    "over {fabric} both sides sleep until their sockets have something: it has --completion events alone"
                ));
            }
            _ => {}
        }
        if self.fabric != PerfFabric::Verbs && self.device != DeviceArgs::default() {
            return refuse(format!("an RDMA device is for --fabric verbs, not {fabric}"));
        }
        if self.ping_pong && (self.operation != Operation::Write || self.peers > 1) {
            return refuse(format!("--ping-pong is of writes to one peer, not {operation}"));
        }
        if self.operation.is_atomic() && self.sizes.is_some() {
            return refuse(format!("{operation} is always of 8 bytes: leave --sizes out"));
        }
        if self.operation.is_two_sided() && self.peers > 1 {
            return refuse(format!("{operation} has one receiver: leave --peers out"));
        }
        if self.bandwidth && self.peers > 1 {
            return refuse("--bandwidth is of one peer: leave --peers out, or set --window".to_owned());
        }
        if self.peers > 1 && self.peers as usize * self.size_max() > 256 << 20 {
            return refuse("more than 256 MB of regions: fewer --peers, or a smaller --size".to_owned());
        }
        if self.operation.is_two_sided() && self.slots() * self.size_max() > INBOX_BYTES_MAX {
            return refuse(format!(
                "two windows of {} messages of {} bytes are more than {} MB: a smaller --window or --size",
                self.window,
                self.size_max(),
                INBOX_BYTES_MAX >> 20
            ));
        }
        if self.to.is_some() && matches!(self.pin, Pin::Two(..)) {
            return refuse(
                "--to: the other side has its own --pin (perf serve --pin CPU); give one CPU here".to_owned(),
            );
        }
        if self.to.is_none() && matches!(self.pin, Pin::One(_)) {
            return refuse("--pin takes two CPUs here: TARGET,THIS".to_owned());
        }
        if let (PerfFabric::Shm, Some(host)) = (self.fabric, &self.to)
            && !address(host)?.ip().is_loopback()
        {
            return refuse(format!("shm is the memory of one machine: --fabric tcp reaches {host}"));
        }
        Ok(())
    }
}

/// `HOST`, `HOST:PORT`, an address with or without port.
pub(super) fn address(host: &str) -> Result<SocketAddr, Failure> {
    use std::net::ToSocketAddrs as _;
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let found = if host.contains(':') { host.to_socket_addrs() } else { (host, PORT).to_socket_addrs() };
    let first = found.map_err(|error| Failure(format!("--to {host}: {error}")))?.next();
    first.ok_or_else(|| Failure(format!("--to {host}: it has no address")))
}

/// `64`, `4K`, `1M`.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['K', 'k', 'M', 'm']) {
        Some(number) if text.ends_with(['K', 'k']) => (number, 1 << 10),
        Some(number) => (number, 1 << 20),
        None => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|count| count.checked_mul(unit));
    bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes)).ok_or_else(|| "1 to 1M".to_owned())
}

pub(super) fn pin(text: &str) -> Result<Pin, String> {
    let cpu = |text: &str| text.parse().map_err(|_| "auto, none, or numbers of CPUs".to_owned());
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

    #[test]
    fn memory_moves_in_words_and_messages_do_not() {
        assert_eq!([1, 8, 9].map(|bytes| Operation::Read.bytes_moved(bytes)), [8, 8, 16]);
        assert_eq!([1, 8, 9].map(|bytes| Operation::Send.bytes_moved(bytes)), [1, 8, 9]);
    }
}
