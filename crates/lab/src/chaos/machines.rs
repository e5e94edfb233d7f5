//! Machines that are network namespaces of this one, on one switch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use sidelong_harness::programs::{ETCD, Names, find};

use super::plan::{Kind, MACHINES};
use super::relay::{Later, Relay};
use crate::error::{Error, Result, file};
use crate::process::Process;

/// The network of benchmarks (RFC 2544).
const NETWORK: [u8; 3] = [198, 18, 7];
/// Who watches and who asks has none of the faults, but those of links.
const OUTSIDE: u8 = 100;
/// What is lost of a hundred packets each way.
const LOSS_PERCENT: u8 = 20;
/// How much later a frame comes each way.
const LATER_US: RangeInclusive<u64> = 1_000..=9_999;
/// What a machine sends at most.
const SLOW: &str = "1mbit";
/// Bytes of the file system of a machine's parts.
const FILES: &str = "64m";
const PROGRAMS: [(Names, &str); 7] = [
    (ETCD, "install Debian's package etcd-server"),
    (&["ip"], "install Debian's package iproute2"),
    (&["tc"], "install Debian's package iproute2"),
    (&["nft"], "install Debian's package nftables"),
    (&["nsenter"], "install Debian's package util-linux"),
    (&["mount"], "install Debian's package mount"),
    (&["socat"], "install Debian's package socat"),
];

/// The machines, each of which is there as long as a process. The thread that makes them is at their switch until they are dropped, as is
/// what it starts.
pub(super) struct Machines {
    holders: Vec<Process>,
    /// What is later than it was sent, by machine.
    relays: Mutex<BTreeMap<usize, Relay>>,
    /// The network and the mounts of the thread before, and its directory: with the mounts it loses that.
    before: ([File; 2], PathBuf),
    /// Sidelong's, by which nothing outlives this process.
    program: PathBuf,
}

impl Machines {
    pub(super) fn begin(program: &Path) -> Result<Machines> {
        if let Some((names, instead)) = PROGRAMS.into_iter().find(|(names, _)| find(names).is_none()) {
            return Err(Error::Absent { what: format!("there is no {} here", names[0]), instead });
        }
        let open = |path: &str| file(path.as_ref(), File::open(path));
        let namespaces = [open("/proc/thread-self/ns/net")?, open("/proc/thread-self/ns/mnt")?];
        let before = (namespaces, file(".".as_ref(), std::env::current_dir())?);
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(|error| Error::Absent {
            what: format!("no namespaces can be made: {error}"),
            instead: "run it as root, with CAP_SYS_ADMIN",
        })?;
        // What is mounted goes with the last that sees it.
        told("mount", &["--make-rprivate", "/"], None, "")?;
        let (holders, relays) = (Vec::new(), Mutex::default());
        let mut machines = Machines { holders, relays, before, program: program.to_owned() };
        let holder = || {
            let mut command = machines.with_this();
            command.args(["unshare", "--net", "--", "sleep", "infinity"]).stdin(Stdio::null());
            Process::spawn(&mut command)
        };
        let holders = (0..MACHINES).map(|_| holder()).collect::<std::result::Result<_, _>>()?;
        machines.holders = holders;
        let outside = at(usize::from(OUTSIDE), 0).ip();
        let mut lines = format!(
            "link set lo up\nlink add switch type bridge\nlink set switch up\naddress add {outside}/24 dev switch\n"
        );
        for (machine, holder) in (1..).zip(&machines.holders) {
            await_namespace(holder)?;
            lines += &format!(
                "link add port{machine} type veth peer name eth0 netns {}\nlink set port{machine} master switch up\n",
                holder.id()
            );
        }
        told("ip", &["-batch", "-"], None, &lines)?;
        for machine in 1..=MACHINES {
            let address = at(machine, 0).ip();
            let lines = format!("link set lo up\naddress add {address}/24 dev eth0\nlink set eth0 up\n");
            told("ip", &["-batch", "-"], Some(machines.holder(machine)), &lines)?;
            let chains = "add table inet chaos\nadd chain inet chaos heard { type filter hook input priority 0; }\n\
                          add chain inet chaos sent { type filter hook output priority 0; }\n";
            told("nft", &["-f", "-"], Some(machines.holder(machine)), chains)?;
        }
        Ok(machines)
    }

    /// Gives a machine's parts a small file system of their own at this directory.
    pub(super) fn give_files(&self, directory: &Path) -> Result<()> {
        file(directory, fs::create_dir_all(directory))?;
        let options = format!("size={FILES},mode=700");
        told("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &directory.display().to_string()], None, "")
    }

    fn holder(&self, machine: usize) -> &Process {
        &self.holders[machine - 1]
    }

    /// A command of these words on a machine.
    pub(super) fn command<S: AsRef<std::ffi::OsStr>>(
        &self,
        machine: usize,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.with_this();
        command.arg("nsenter").arg(net_of(self.holder(machine))).arg("--").args(words);
        command
    }

    /// Starts a process of these words on a machine, which appends to that log.
    pub(super) fn spawn(&self, machine: usize, log: &Path, words: &[String]) -> Result<Process> {
        let mut command = self.command(machine, words);
        command.env("SIDELONG_LOG", "info");
        let output = || file(log, File::options().create(true).append(true).open(log));
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        Ok(Process::spawn(&mut command)?)
    }

    /// Puts a machine so far from all others, each way.
    pub(super) fn set_apart(&self, machine: usize, delay: Duration) -> Result<()> {
        if self.relays().contains_key(&machine) {
            self.end_fault(machine, Kind::Delay)?;
        }
        let us = delay.as_micros() as u64;
        self.delay(machine, &Later { us: us..=us, reorders: false })
    }

    /// The beginning of a command that ends with this process at the latest.
    fn with_this(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("exec").arg(format!("--with-parent={}", std::process::id())).arg("--");
        command
    }

    /// Begins a fault of a machine.
    pub(super) fn begin_fault(&self, machine: usize, kind: Kind) -> Result<()> {
        let holder = Some(self.holder(machine));
        let [a, b, c] = NETWORK;
        let others = format!("{a}.{b}.{c}.0/28");
        let heard = |what| format!("add rule inet chaos heard ip saddr {others} iif != lo {what}\n");
        let sent = |what| format!("add rule inet chaos sent ip daddr {others} oif != lo {what}\n");
        let loss = &*format!("numgen random mod 100 < {LOSS_PERCENT} drop");
        let rules = match kind {
            Kind::Cut => heard("drop") + &sent("drop"),
            Kind::Deaf => heard("drop"),
            Kind::Mute => sent("drop"),
            Kind::Reject => heard("meta l4proto tcp reject with tcp reset"),
            Kind::Loss => heard(loss) + &sent(loss),
            Kind::Link => return told("ip", &["link", "set", "eth0", "down"], holder, ""),
            Kind::Slow => {
                let tbf = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", SLOW];
                let tbf = [&tbf[..], &["burst", "8kb", "latency", "100ms"]].concat();
                return told("tc", &tbf, holder, "");
            }
            Kind::Delay | Kind::Reorder => {
                return self.delay(machine, &Later { us: LATER_US, reorders: kind == Kind::Reorder });
            }
            _ => return Ok(()),
        };
        told("nft", &["-f", "-"], holder, &rules)
    }

    /// Puts a relay between a machine and the switch.
    fn delay(&self, machine: usize, later: &Later) -> Result<()> {
        let [near, far] = ["near", "far"].map(|end| format!("{end}{machine}"));
        let relay = Relay::begin([&near, &far], later, || self.with_this())?;
        let lines = format!(
            "link add wire{machine} type bridge\nlink set wire{machine} up\nlink set {near} master wire{machine}\n\
             link set {far} master switch\nlink set port{machine} master wire{machine}\n"
        );
        told("ip", &["-batch", "-"], None, &lines)?;
        self.relays().insert(machine, relay);
        Ok(())
    }

    fn relays(&self) -> MutexGuard<'_, BTreeMap<usize, Relay>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a fault of a machine.
    pub(super) fn end_fault(&self, machine: usize, kind: Kind) -> Result<()> {
        let holder = Some(self.holder(machine));
        match kind {
            Kind::Link => told("ip", &["link", "set", "eth0", "up"], holder, ""),
            Kind::Slow => told("tc", &["qdisc", "del", "dev", "eth0", "root"], holder, ""),
            Kind::Delay | Kind::Reorder => {
                let lines = format!("link set port{machine} master switch\nlink del wire{machine}\n");
                let relay = self.relays().remove(&machine);
                told("ip", &["-batch", "-"], None, &lines)?;
                drop(relay);
                Ok(())
            }
            _ => told("nft", &["flush", "table", "inet", "chaos"], holder, ""),
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Their threads share what is to be changed.
        self.relays().clear();
        let ([net, mounts], directory) = &self.before;
        let back = setns(net, CloneFlags::CLONE_NEWNET)
            .and_then(|()| setns(mounts, CloneFlags::CLONE_NEWNS))
            .map_err(io::Error::from)
            .and_then(|()| std::env::set_current_dir(directory));
        if let Err(error) = back {
            tracing::warn!("this thread stays in a namespace that it made: {error}");
        }
    }
}

/// An address of a machine.
pub(super) fn at(machine: usize, port: u16) -> SocketAddr {
    let [a, b, c] = NETWORK;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, machine as u8)), port)
}

fn net_of(holder: &Process) -> String {
    format!("--net=/proc/{}/ns/net", holder.id())
}

/// Waits until it has a namespace of its own.
fn await_namespace(holder: &Process) -> Result<()> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    for _ in 0..1_000 {
        let its = of(&holder.id().to_string());
        if its.is_some() && its != of("thread-self") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Error::Serve { what: "unshare".into(), said: "makes no network namespace".into() })
}

/// Has a program do what these lines tell, at a machine or at the switch.
fn told(program: &str, words: &[&str], holder: Option<&Process>, lines: &str) -> Result<()> {
    let mut command = match holder {
        Some(holder) => {
            let mut command = Command::new("nsenter");
            command.arg(net_of(holder)).arg("--").arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |said: String| Error::Serve { what: format!("{program} {}", words.join(" ")), said };
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut input = child.stdin.take().expect("it is piped");
    let written = input.write_all(lines.as_bytes());
    drop(input);
    let done = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if written.is_ok() && done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}
