//! Shared by the tests of kernel-kept records: keeping one here or in another process, and reading it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Initiator, Region, RegionSpec, RunDirectory};
use sidelong_layout::{Instance, KERNEL_BYTES, RegionKind};
use sidelong_load::{KernelError, KernelRecord, KernelSpec, Limits, OneSided, Scope};

/// Passes the other process its directory, its incarnation and its scope.
const ROLE: &str = "SIDELONG_LOAD_TEST_KERNEL";
/// The other process's message.
const KEEPING: &str = "keeping";

/// Keeps a record; `None`, with a printed reason, if this kernel keeps none for this process.
///
/// # Panics
/// If the kernel should keep one, and does not.
pub(crate) fn keep(test: &str, spec: &KernelSpec) -> Option<KernelRecord> {
    match KernelRecord::start(spec) {
        Ok(record) => Some(record),
        Err(error @ KernelError::Verifier { .. }) => panic!("{error}"),
        Err(error) => skipped(test, &error),
    }
}

/// Prints past the harness, which shows a test's output only if it fails.
pub(crate) fn skipped<T>(test: &str, why: &dyn std::fmt::Display) -> Option<T> {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    None
}

pub(crate) fn expose(record: &KernelRecord, directory: &Path, incarnation: u64) -> Region {
    let (name, kind, len) = ("n0", RegionKind::Kernel, KERNEL_BYTES);
    let spec =
        RegionSpec { name, kind, len, access: Access::ReadOnly, instance: Instance::alone(incarnation) };
    Host::Shm(ShmHost::new(directory)).expose_mapped(&spec, &record.memory().unwrap()).unwrap()
}

pub(crate) fn reader(directory: &Path, limits: Limits) -> OneSided {
    let directory = Arc::new(RunDirectory::open(directory).unwrap());
    OneSided::new(directory, Initiator::new(), &super::records(["n0".to_owned()]), false, limits)
}

/// A process that makes the kernel keep a record, and then sleeps.
pub(crate) struct Other {
    child: Child,
    /// Open until it ends: its harness writes a message after a minute.
    _stdout: BufReader<ChildStdout>,
}

impl Other {
    /// `None`, with a printed reason, if the kernel keeps none.
    pub(crate) fn start(test: &str, directory: &Path, incarnation: u64, scope: &Scope) -> Option<Other> {
        Other::run(Command::new(std::env::current_exe().unwrap()), test, directory, incarnation, scope)
    }

    /// Starts it by `command`, to which the test program's arguments are added.
    pub(crate) fn run(
        command: Command,
        test: &str,
        directory: &Path,
        incarnation: u64,
        scope: &Scope,
    ) -> Option<Other> {
        let (other, said) = Other::spawn(command, directory, incarnation, scope);
        match said.as_deref() {
            Some(KEEPING) => Some(other),
            said => skipped(test, &said.expect("the other process says why it ends")),
        }
    }

    /// Why the kernel keeps no record for `command`.
    pub(crate) fn refused(command: Command, directory: &Path, scope: &Scope) -> String {
        Other::spawn(command, directory, 1, scope).1.expect("the other process says why it ends")
    }

    /// The process, and its first message.
    fn spawn(
        mut command: Command,
        directory: &Path,
        incarnation: u64,
        scope: &Scope,
    ) -> (Other, Option<String>) {
        let group = match scope {
            Scope::Cgroup(path) => path.to_str().unwrap(),
            _ => "",
        };
        // With one test thread the harness does not wake after a minute to say that the test still runs.
        let mut child = command
            .args(["--exact", "support::kernel::kernel_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{incarnation} {} {group}", directory.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.by_ref().lines().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix("> ").map(str::to_owned));
        (Other { child, _stdout: stdout }, said)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it; no thread of it runs when this returns.
    pub(crate) fn stop(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap(); // SIGKILL
        self.child.wait().unwrap();
    }

    /// CPU time that it has used, in clock ticks.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid())).unwrap();
        let stat = sidelong_load::proc::process::process(&stat).unwrap();
        stat.user_ticks + stat.system_ticks
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what the other process does.
#[test]
fn kernel_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut parts = role.splitn(3, ' ');
    let mut part = || parts.next().unwrap();
    let (incarnation, directory, group) = (part().parse().unwrap(), part(), part());
    let scope = if group.is_empty() { Scope::Machine } else { Scope::Cgroup(group.into()) };
    let record = match KernelRecord::start(&KernelSpec::new(scope, incarnation)) {
        Ok(record) => record,
        Err(error @ KernelError::Verifier { .. }) => panic!("{error}"),
        Err(error) => return println!("\n> {error}"),
    };
    let _region = expose(&record, directory.as_ref(), incarnation);
    println!("\n> {KEEPING}");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}
