//! `cargo xtask vm`: runs a command where there are verbs, whatever the machine: in a QEMU guest with Debian's kernel and
//! soft-RoCE, whose root is the host's own. docs/vm.md is for its users; `guest` starts QEMU, `init.sh` and `run.sh` are
//! the guest's side.

mod guest;
mod host;
mod image;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::Error;
use guest::{Guest, Machine};

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask vm ibv_devinfo
  cargo xtask vm -- sh -c 'ib_read_lat -d rxe0 & sleep 1; ib_read_lat -d rxe0 127.0.0.1'
  cargo xtask vm --two --node 'ib_read_lat -d rxe0' --edge 'until ib_read_lat -d rxe0 node; do sleep 1; done'
  cargo xtask vm --out results target/release/sidelong-lab run R10 --out results

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
    /// Lines are printed with the guest's name before them. All ends when the edge's command ends.
    #[arg(long, requires_all = ["node", "edge"], conflicts_with = "command")]
    two: bool,
    /// What a shell is to run in the guest `node`.
    #[arg(long, value_name = "COMMAND", requires = "two")]
    node: Option<OsString>,
    /// What a shell is to run in the guest `edge`.
    #[arg(long, value_name = "COMMAND", requires = "two")]
    edge: Option<OsString>,
    /// A directory that guests may write to, under the same path.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End the guest after this time, its start included: 90s, 5m
    #[arg(long, value_parser = duration, default_value = "300s")]
    timeout: Duration,
    /// End the guest when it has printed nothing for this time [default: no limit].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    silence: Option<Duration>,
    /// Print the end of the guest's console, too.
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments, without a shell's help.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present = "two")]
    command: Vec<OsString>,
}

/// By the processor's own virtualization; what a guest takes to be ready, on a host that is busy.
const KVM: (&str, Duration) = ("kvm", Duration::from_secs(20));
/// By an emulator, which boots a guest in seven seconds where nothing else runs, and in minutes where much does.
const EMULATED: (&str, Duration) = ("tcg,thread=multi", Duration::from_secs(300));
/// How often guests and signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// As timeout(1) has it.
pub(crate) const TIMED_OUT: u8 = 124;

/// Runs the command, and returns its exit code.
pub(crate) fn run(args: &Args) -> Result<u8, Error> {
    let kernel = host::kernel()?;
    let signal = catch_signals()?;
    let end = Instant::now() + args.timeout;
    let dir = tempfile::Builder::new().prefix("sidelong-vm.").tempdir();
    let dir = dir.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let initramfs = image::initramfs(&kernel.modules, dir.path())?;
    let out = args.out.as_deref().map(make_out).transpose()?;
    let on = |(accelerator, boot_limit): (&str, Duration)| {
        let dir = dir.path().join(accelerator);
        std::fs::create_dir(&dir).map_err(|source| Error::Write { path: dir.clone(), source })?;
        let out = out.as_deref();
        let machine = Machine { accelerator, kernel: &kernel.image, initramfs: &initramfs, out };
        let up_by = end.min(Instant::now() + boot_limit);
        let guests = start(args, &machine, &dir)?;
        Run { guests, signal: &signal, up_by, end, heard: Instant::now(), args }.see_through()
    };
    let why = match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => match on(KVM) {
            Err(error @ Error::NotUp { .. }) => error.to_string(),
            done => return done,
        },
        Err(error) => format!("cannot open /dev/kvm: {error}"),
    };
    eprintln!("xtask: no KVM, so the guest is emulated: {why}");
    on(EMULATED)
}

/// Boots the guests that the caller asked for.
fn start(args: &Args, machine: &Machine<'_>, dir: &Path) -> Result<Vec<Guest>, Error> {
    let boot = |name, command: &[OsString], wire| {
        Guest::start(machine, name, dir.join(name), &words(command)?, wire)
    };
    if !args.two {
        return Ok(vec![boot("vm", &args.command, None)?]);
    }
    let ends = UnixStream::pair();
    let (node, edge) = ends.map_err(|source| Error::Start { command: "a wire".into(), source })?;
    let shell = |line: &Option<OsString>| ["sh".into(), "-c".into(), line.clone().unwrap_or_default()];
    Ok(vec![
        boot("node", &shell(&args.node), Some((node, "10.77.0.1/24")))?,
        boot("edge", &shell(&args.edge), Some((edge, "10.77.0.2/24")))?,
    ])
}

/// A command as run.sh takes it: the caller's directory, its environment, and the command, each with a zero byte behind.
fn words(command: &[OsString]) -> Result<Vec<u8>, Error> {
    let dir = std::env::current_dir().map_err(|source| Error::Read { path: ".".into(), source })?;
    let mut words = vec![dir.into_os_string()];
    words.extend(std::env::vars_os().map(|(mut pair, value)| {
        pair.push("=");
        pair.push(value);
        pair
    }));
    words.extend_from_slice(command);
    Ok(words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect())
}

/// Guests that run. They end with this value.
struct Run<'a> {
    guests: Vec<Guest>,
    /// The number of a signal that asks us to end, or 0.
    signal: &'a AtomicUsize,
    up_by: Instant,
    end: Instant,
    /// When a guest last printed something, or was not ready yet.
    heard: Instant,
    args: &'a Args,
}

impl Run<'_> {
    /// Waits until the last guest's command ends, or another one's fails: the exit code.
    fn see_through(mut self) -> Result<u8, Error> {
        loop {
            let code = self.look()?;
            if code.is_some() && self.args.verbose {
                self.guests.iter().for_each(|guest| eprintln!("{} console:{}", guest.name, guest.console()));
            }
            match code {
                Some(code) => return Ok(code),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn look(&mut self) -> Result<Option<u8>, Error> {
        let now = Instant::now();
        let mut codes = Vec::new();
        for guest in &mut self.guests {
            let ended = guest.ended()?;
            // What it printed before it ended is there by now.
            if guest.pass_on()? > 0 || !guest.is_up() {
                self.heard = now;
            }
            codes.push(match ended {
                Some(None) if guest.is_up() => return Err(guest.lost()),
                Some(None) => return Err(guest.not_up()),
                None if !guest.is_up() && now >= self.up_by => return Err(guest.not_up()),
                Some(code) => code,
                None => None,
            });
        }
        let failed = || codes.iter().flatten().find(|code| **code != 0).copied();
        if let Some(code) = codes.last().copied().flatten().or_else(failed) {
            return Ok(Some(code));
        }
        match self.signal.load(Ordering::Relaxed) {
            0 => {}
            signal => return Ok(Some(128 | u8::try_from(signal).unwrap_or_default())),
        }
        match self.args.silence {
            _ if now >= self.end => {
                eprintln!("xtask: the command was not done after {:?}: see --timeout", self.args.timeout);
            }
            Some(limit) if now - self.heard >= limit => {
                eprintln!("xtask: the command printed nothing for {limit:?}: see --silence");
            }
            _ => return Ok(None),
        }
        for guest in &self.guests {
            eprintln!("xtask: the end of its console:{}", guest.console());
        }
        Ok(Some(TIMED_OUT))
    }
}

/// Where the number of a signal that asks us to end will stand.
fn catch_signals() -> Result<Arc<AtomicUsize>, Error> {
    let caught = Arc::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).unwrap_or(usize::MAX);
        signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)
            .map_err(|source| Error::Start { command: "a handler of signals".into(), source })?;
    }
    Ok(caught)
}

/// The directory, made where there is none, as both sides name it.
fn make_out(dir: &Path) -> Result<PathBuf, Error> {
    let make = || {
        std::fs::create_dir_all(dir)?;
        dir.canonicalize()
    };
    make().map_err(|source| Error::Write { path: dir.into(), source })
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
        assert_eq!(args.timeout, Duration::from_secs(300));
        assert!(args.out.is_none() && !args.verbose);
        assert_eq!(args.command, ["ls", "--out", "-v"]);
        let words = words(&args.command).unwrap();
        assert!(words.ends_with(b"\0ls\0--out\0-v\0"));
        assert_eq!(words.iter().filter(|byte| **byte == 0).count(), 4 + std::env::vars_os().count());
    }

    #[test]
    fn two_guests_have_a_command_each() {
        assert!(parse(&["--two", "--node", "a | b", "--edge", "c"]).is_some());
        for wrong in [
            &["--two", "--node", "a"][..],
            &["--node", "a", "--edge", "b"],
            &[],
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
