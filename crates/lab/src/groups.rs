//! What an experiment adds to the control groups of `up`'s servers: their agents, which then have no CPU time beyond their
//! nodes', as a daemon on a machine of its own, and background work.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sidelong_harness::cgroup::of_process;

use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::process::Process;

/// Longest wait until `up` serves: it makes its data first.
const READY_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(10);
/// Never sleeps, and asks for nothing but CPU time.
const BUSY: &str = "while :; do :; done";

/// What was added, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Added {
    background: Vec<Process>,
    groups: Vec<PathBuf>,
}

impl Added {
    /// Waits until `listen` accepts, which `up` opens last. Then moves each node's agent into the group of its server, and starts so
    /// many busy processes there, node by node, for `time`: servers that are starved would not end when they are told to, and
    /// be killed. Adds nothing if `up` has ended.
    pub(crate) fn to(
        up: &mut Process,
        bench: &Bench<'_>,
        listen: SocketAddr,
        background: &[u32],
        time: Duration,
    ) -> Result<Added> {
        let mut added = Added::default();
        if !serves(up, bench, listen)? {
            return Ok(added);
        }
        let children = up.children();
        let agents: Vec<_> = children.iter().filter_map(|pid| Some((*pid, node_of(*pid)?))).collect();
        let groups: Vec<_> = children.iter().filter_map(|pid| of_process(*pid).ok()?).collect();
        for ((agent, node), busy_here) in agents.into_iter().zip(background) {
            let name = format!("{node}-server");
            let is_its = |group: &&PathBuf| group.file_name().is_some_and(|found| *found == *name);
            let group = groups.iter().find(is_its).ok_or_else(|| Error::Absent {
                what: format!("no process of `up` is in a control group {name}"),
                instead: "run the lab where `up` may make control groups",
            })?;
            let members = group.join("cgroup.procs");
            file(&members, fs::write(&members, agent.to_string()))?;
            added.groups.push(group.clone());
            for _ in 0..*busy_here {
                added.background.push(busy(bench, group, time)?);
            }
        }
        Ok(added)
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        self.background.clear();
        // `up` could not remove them with these processes in them. If it still runs, it does so itself.
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
        if let Some(top) = self.groups.first().and_then(|group| group.parent()) {
            let _ = fs::remove_dir(top);
        }
    }
}

/// Waits until `listen` accepts. Returns whether it does: not if `up` has ended.
fn serves(up: &mut Process, bench: &Bench<'_>, listen: SocketAddr) -> Result<bool> {
    let deadline = Instant::now() + READY_MAX;
    while TcpStream::connect_timeout(&listen, CONNECT_MAX).is_err() {
        bench.go_on()?;
        if up.status()?.is_some() {
            return Ok(false);
        }
        if Instant::now() > deadline {
            let said = format!("no answer at {listen} in {} s", READY_MAX.as_secs());
            return Err(Error::Serve { what: "up".to_owned(), said });
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}

/// A process that keeps one CPU busy for `time`, in the group.
fn busy(bench: &Bench<'_>, group: &Path, time: Duration) -> Result<Process> {
    let mut command = Command::new(&bench.options.program);
    command.arg("exec").arg(format!("--with-parent={}", std::process::id()));
    command.arg("--join-cgroup").arg(group).args(["--", "timeout"]);
    command.arg(time.as_secs_f64().to_string()).args(["sh", "-c", BUSY]);
    let at = |extension: &str| bench.path(&format!("runs/background.{extension}"));
    Ok(Process::start(command, &at("out"), &at("log"))?)
}

/// The node whose agent or origin the process is.
fn node_of(pid: u32) -> Option<String> {
    let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = arguments.split('\0').skip(1);
    (arguments.next()? == "node").then(|| arguments.next().map(str::to_owned))?
}
