//! Processes of the program, each ended when its value is dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use rustix::process::{Pid, Signal, kill_process};
use sidelong_harness::process::{Ended, Process};

use crate::{PATIENCE, eventually};

/// Most lines of each of its outputs that a failed test prints.
const SAID_MAX: usize = 50;

/// A program of ours, `sidelong` or `sidelong-lab`. Cargo puts it above the directory of the test, and builds it for the tests of its
/// own package.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).expect("a test is in a directory of the build");
    built.join(name)
}

/// A process that a test started.
#[derive(Debug)]
pub struct Running {
    process: Process,
    out: File,
    err: File,
}

impl Running {
    /// `sidelong` with these arguments; `sidelong-lab` if they name a cluster file with a baseline.
    pub fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let arguments: Vec<A> = arguments.into_iter().collect();
        let has_baseline = |name: &A| {
            let name = Path::new(name.as_ref());
            name.is_file() && std::fs::read_to_string(name).is_ok_and(|text| text.contains("\n[baseline]\n"))
        };
        let name = if arguments.iter().any(has_baseline) { "sidelong-lab" } else { "sidelong" };
        let mut command = Command::new(program(name));
        command.args(arguments);
        Self::start_command(command)
    }

    /// `sidelong-lab` with these arguments.
    pub fn start_lab<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::new(program("sidelong-lab"));
        command.args(arguments);
        Self::start_command(command)
    }

    /// Any command. Its output goes to files, so that it never waits for a reader.
    pub fn start_command(command: Command) -> Self {
        Self::start_with(command, Stdio::null())
    }

    /// Any command, with its standard input.
    pub fn start_with(mut command: Command, input: impl Into<Stdio>) -> Self {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.env_remove("SIDELONG_LOG").env_remove("SIDELONG_LOG_FORMAT").stdin(input);
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        Running { process: Process::spawn(&mut command).unwrap(), out, err }
    }

    /// Its ID.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Bytes of memory that it has.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes().unwrap()
    }

    /// Descriptors that it has open.
    pub fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero())).unwrap().count() as u64
    }

    /// Its standard output so far.
    pub fn out(&self) -> String {
        text(&self.out)
    }

    /// Its standard error so far.
    pub fn err(&self) -> String {
        text(&self.err)
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.status().unwrap().is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it ends by itself.
    pub fn finish(mut self) -> Done {
        let ended = self.process.wait(PATIENCE, &AtomicBool::new(false)).unwrap();
        let Ended::Itself(status) = ended else {
            panic!("does not end; it said:\n{}{}", self.out(), self.err());
        };
        Done { code: status.code(), signal: status.signal(), out: self.out(), err: self.err() }
    }

    /// Asks it to end, and waits until it has.
    pub fn end(self) -> Done {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Kills it.
    pub fn kill(self) -> Done {
        self.signal(Signal::KILL);
        self.finish()
    }
}

impl Drop for Running {
    /// After a failed assertion it prints the end of what the process said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for said in [self.out(), self.err()] {
                let lines: Vec<_> = said.lines().collect();
                eprintln!("{}: {:#?}", self.pid(), &lines[lines.len().saturating_sub(SAID_MAX)..]);
            }
        }
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit code; `None` if a signal has ended it.
    pub code: Option<i32>,
    /// The signal that has ended it.
    pub signal: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Done {
    /// Its standard output, after it has succeeded.
    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Its standard output as JSON, after it has succeeded.
    pub fn json(self) -> serde_json::Value {
        let out = self.succeeded();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// The reason why it failed: one line on standard error, and exit code 2.
    pub fn refused(self) -> String {
        assert_eq!((self.code, self.signal), (Some(2), None), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let line = ["sidelong: ", "sidelong-lab: "].iter().find_map(|name| self.err.strip_prefix(name));
        let line = line.and_then(|line| line.strip_suffix('\n'));
        let line = line.filter(|line| !line.is_empty() && !line.contains('\n'));
        line.unwrap_or_else(|| panic!("not one line: {self:?}")).to_owned()
    }
}

/// Runs `sidelong` to its end, as [`Running::start`].
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Done {
    Running::start(arguments).finish()
}

/// Runs `sidelong-lab` to its end.
pub fn run_lab<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Done {
    Running::start_lab(arguments).finish()
}

/// Stops a process, and waits until none of its threads runs.
pub fn stop_whole(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    eventually("it stands still", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
        threads.flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        })
    });
}

/// The whole content of a file, whatever its writer's position.
fn text(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
