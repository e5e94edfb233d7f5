//! `cargo xtask vm`: runs a command where there are verbs, whatever the machine: in a QEMU guest with Debian's kernel and
//! soft-RoCE, whose root is the host's own. docs/vm.md is for its users; `guest` starts QEMU, `init.sh` and `run.sh` are
//! the guest's side, and `course` says who may
//! start and when all is over, as `watch` waits for it.

mod course;
mod cpio;
mod guest;
mod host;
mod image;
mod job;
mod kernel;
mod output;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::error::Error;
use course::Course;
use guest::{Guest, Machine, Part};
use host::Host;
use job::Job;
use terminal::Terminal;
pub(crate) use watch::TIMED_OUT;
use watch::Watch;

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask vm ibv_devinfo
  cargo xtask vm -- sh -c 'ib_read_lat -d rxe0 & sleep 1; ib_read_lat -d rxe0 127.0.0.1'
  cargo xtask vm --two --port 18515 --node 'ib_read_lat -d rxe0' --edge 'ib_read_lat -d rxe0 node'
  cargo xtask vm --out results target/release/sidelong lab run R10 --out results
  cargo xtask vm        a shell

The guest sees this machine's files, so whatever is built or installed here runs there. What it
writes is gone with it, except below --out. The device is rxe0, its GID index 1. Standard input
is empty.

Exit codes: the command's (with --two the edge's, or that of a node that failed before); 2 if
there was no guest to run it in; 124 when time is up; 130, 143 for SIGINT, SIGTERM.";

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Boot two guests, node (10.77.0.1) and edge (10.77.0.2), joined by a wire.
    ///
    /// Lines are printed with the guest's name before them. All ends when the edge's command ends: the node's
    /// is then sent SIGTERM, and has five seconds.
    #[arg(long, requires_all = ["node", "edge"], conflicts_with = "command")]
    two: bool,
    /// What a shell is to run in the guest `node`.
    #[arg(long, value_name = "COMMAND", requires = "two")]
    node: Option<OsString>,
    /// What a shell is to run in the guest `edge`, once the node's command has started.
    #[arg(long, value_name = "COMMAND", requires = "two")]
    edge: Option<OsString>,
    /// Start the edge's command only once the node listens on this TCP port.
    #[arg(long, requires = "two")]
    port: Option<u16>,
    /// A directory that guests may write to, under the same path.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End the guest after this time, its start included: 90s, 5m [default: 300s; a shell has a day]
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// Print the guest's console, too.
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments, without a shell's help; a shell if there is none.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A command in a guest takes this long at most, where the caller names no time.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// A shell that someone forgot.
const SHELL_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Events under way from a guest's threads. A guest has some six in all.
const EVENTS_MAX: usize = 16;

/// What guests find in /etc/hosts besides what the host has there.
const HOSTS: &str = "10.77.0.1 node\n10.77.0.2 edge";

/// A guest as the caller asked for it: see `Job`.
struct Plan {
    name: &'static str,
    netdev: &'static str,
    address: &'static str,
    command: Vec<OsString>,
}

/// Runs the command, and returns its exit code.
pub(crate) fn run(args: &Args) -> Result<u8, Error> {
    let with_terminal = !args.two && args.command.is_empty();
    let terminal = with_terminal.then(Terminal::find).transpose()?;
    let host = Host::look()?;
    let signal = watch::catch_signals()?;
    let limit = args.timeout.unwrap_or(if with_terminal { SHELL_LIMIT } else { COMMAND_LIMIT });
    let end = Instant::now() + limit;

    let dir = tempfile::Builder::new().prefix("sidelong-vm.").tempdir();
    let dir = dir.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let initramfs = dir.path().join("initramfs");
    write(&initramfs, &image::initramfs(&host.kernel, &host.busybox)?)?;
    let out = args.out.as_deref().map(make_out).transpose()?;
    let mark = format!("end of {}", dir.path().display());
    let machine = Machine {
        kernel: &image::kernel(&host.kernel, &cache()?)?,
        initramfs: &initramfs,
        out: out.as_deref(),
        terminal: with_terminal,
        verbose: args.verbose,
        mark: &mark,
    };
    let plans = plans(args);
    let mut wires = wires(plans.len())?;
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let mut guests = Vec::new();
    for (place, plan) in plans.iter().enumerate() {
        let job = Job {
            name: plan.name,
            netdev: plan.netdev,
            address: plan.address,
            hosts: HOSTS,
            port: args.port.filter(|_| place == 0),
            out: machine.out,
            terminal: terminal.as_ref().map(|terminal| &*terminal.size),
            end: machine.mark,
            dir: &current_dir()?,
            environment: &std::env::vars_os().collect::<Vec<_>>(),
            command: &plan.command,
        };
        let dir = dir.path().join(plan.name);
        std::fs::create_dir(&dir).map_err(|source| Error::Write { path: dir.clone(), source })?;
        write(&dir.join("job"), &job.script())?;
        write(&dir.join("run.sh"), include_bytes!("run.sh"))?;
        let name = args.two.then_some(plan.name);
        guests.push(Guest::start(&machine, Part { place, name, job: &dir, wire: wires.pop() }, &sender)?);
    }
    drop(sender);
    let course = Course::of(guests.len(), args.port.is_some());
    Watch { names: plans.iter().map(|plan| plan.name).collect(), guests, course, signal, limit, end }
        .see_through(&events)
}

/// The guests to boot, in the order in which their commands start.
fn plans(args: &Args) -> Vec<Plan> {
    let shell = |line: &Option<OsString>| vec!["sh".into(), "-c".into(), line.clone().unwrap_or_default()];
    if args.two {
        return vec![
            Plan { name: "node", netdev: "eth0", address: "10.77.0.1/24", command: shell(&args.node) },
            Plan { name: "edge", netdev: "eth0", address: "10.77.0.2/24", command: shell(&args.edge) },
        ];
    }
    let mut command = args.command.clone();
    if command.is_empty() {
        command.push(std::env::var_os("SHELL").unwrap_or("/bin/sh".into()));
    }
    vec![Plan { name: "vm", netdev: "lo", address: "", command }]
}

/// The ends of the wire between two guests; one has none.
fn wires(guests: usize) -> Result<Vec<UnixStream>, Error> {
    if guests < 2 {
        return Ok(Vec::new());
    }
    let ends = UnixStream::pair();
    ends.map(|ends| <[UnixStream; 2]>::from(ends).into())
        .map_err(|source| Error::Start { command: "the wire between two guests".into(), source })
}

/// The directory, made where there is none, as both sides name it.
fn make_out(dir: &Path) -> Result<PathBuf, Error> {
    let make = || {
        std::fs::create_dir_all(dir)?;
        dir.canonicalize()
    };
    make().map_err(|source| Error::Write { path: dir.into(), source })
}

/// Where unpacked kernels are kept: beside this program's own build, which every clone may have somewhere else.
fn cache() -> Result<PathBuf, Error> {
    let cannot_read = |source| Error::Read { path: "the path of this program".into(), source };
    let program = std::env::current_exe().map_err(cannot_read)?;
    Ok(program.ancestors().nth(2).unwrap_or(Path::new("/")).join("vm"))
}

fn current_dir() -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(|source| Error::Read { path: ".".into(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|source| Error::Write { path: path.into(), source })
}

/// A time as a user writes it.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    match number.parse::<u32>() {
        Ok(number) if number > 0 && factor > 0 => Ok(Duration::from_secs(u64::from(number) * factor)),
        _ => Err("expected a number of seconds, or one with s, m or h behind it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Option<Args> {
        Cli::try_parse_from([&["vm"], words].concat()).ok().map(|cli| cli.args)
    }

    #[test]
    fn a_command_is_taken_as_it_is() {
        let args = parse(&["--timeout", "5m", "ls", "--out", "-v"]).expect("it is sound");
        assert_eq!(args.timeout, Some(Duration::from_secs(300)));
        assert!(args.out.is_none() && !args.verbose);
        let plans = plans(&args);
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].command, ["ls", "--out", "-v"]);
    }

    #[test]
    fn two_guests_have_a_command_each() {
        let args = parse(&["--two", "--node", "a | b", "--edge", "c"]).expect("it is sound");
        let plans = plans(&args);
        assert_eq!(plans.iter().map(|plan| plan.name).collect::<Vec<_>>(), ["node", "edge"]);
        assert_eq!(plans[0].command, ["sh", "-c", "a | b"]);
        for plan in &plans {
            let address = plan.address.trim_end_matches("/24");
            assert!(HOSTS.contains(&format!("{address} {}", plan.name)), "{}", plan.name);
        }
        for wrong in [
            &["--two", "--node", "a"][..],
            &["--node", "a", "--edge", "b"],
            &["--port", "1", "ls"],
            &["--two", "--node", "a", "--edge", "b", "ls"],
        ] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn times_are_read() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "s", "0s", "-1", "1 s", "1d", "99999999999"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
