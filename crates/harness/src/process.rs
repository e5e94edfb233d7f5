//! Processes that this one starts. A process does not outlive its [`Process`] value: it gets SIGTERM, and then SIGKILL.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sidelong_os::{CpuTicks, CpuUsed, ProcessStat, children};

use crate::{Error, Result, file};

/// Time between two checks of a process.
const POLL: Duration = Duration::from_millis(5);
/// Time between SIGTERM and SIGKILL.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How much of a log is searched for its last line, in bytes from the end.
const LOG_TAIL_BYTES: u64 = 1 << 14;

/// A child of this process.
#[derive(Debug)]
pub struct Process {
    program: PathBuf,
    child: Child,
}

/// How a wait for a process ended.
#[derive(Debug)]
pub enum Ended {
    /// The process has ended.
    Itself(ExitStatus),
    /// It runs, and the time is up.
    TooLong,
    /// It runs, and nobody waits any more.
    Stopped,
}

impl Process {
    /// Starts `command` without input, with standard output to `output` and standard error to `log`, so that nobody has to read them.
    ///
    /// # Errors
    /// If a file cannot be made, or the program not be started.
    pub fn start(mut command: Command, output: &Path, log: &Path) -> Result<Process> {
        let create = |path: &Path| file(path, File::create(path));
        command.stdin(Stdio::null()).stdout(create(output)?).stderr(create(log)?);
        Process::spawn(&mut command)
    }

    /// Starts `command` with the input and outputs that it has.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Process> {
        let program = PathBuf::from(command.get_program());
        match command.spawn() {
            Ok(child) => Ok(Process { program, child }),
            Err(source) => Err(Error::Start { program, source }),
        }
    }

    /// Its ID, as a number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, which is near. Returns its status, if that is known.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }

    /// Its ID, which is its own until its end was seen.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The pipe of its standard output, the first time that it is asked for.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until it ends, `stop` is raised, or `limit` is over.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> Result<Ended> {
        let begun = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(Ended::Stopped);
            }
            if let Some(status) = self.status()? {
                return Ok(Ended::Itself(status));
            }
            if begun.elapsed() > limit {
                return Ok(Ended::TooLong);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its living children that its main thread has started.
    pub fn children(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|source| Error::Start { program: self.program.clone(), source })
    }

    /// Stops it, so that it takes no CPU until [`Process::resume`].
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended, as it was told to. Kills it at `deadline`.
    pub fn await_end(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        if !matches!(self.wait(left, &AtomicBool::new(false)), Ok(Ended::Itself(_))) {
            tracing::warn!(pid = self.child.id(), "does not drain, is killed");
            self.kill();
        }
    }

    /// What its threads have used so far, for differences that are finer than [`Process::cpu_time`].
    ///
    /// # Errors
    /// If it is gone.
    pub fn cpu_used(&self) -> Result<CpuUsed> {
        // Of a process that is gone nothing can be said.
        self.cpu_time()?;
        Ok(CpuUsed::of_process(self.child.id()))
    }

    /// Memory of it that is resident, in bytes.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resident_bytes(&self) -> Result<u64> {
        // The counts in /proc/PID/status lag by up to some pages for each CPU.
        let path = PathBuf::from(format!("/proc/{}/smaps_rollup", self.child.id()));
        let text = file(&path, std::fs::read_to_string(&path))?;
        resident_of(&text).ok_or_else(|| Error::Output { path, found: "no resident memory".into() })
    }

    /// CPU time of all its threads so far, in steps of 10 ms.
    ///
    /// # Errors
    /// If it is gone.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = ProcessStat::read(self.child.id());
        let path = || format!("/proc/{}/stat", self.child.id()).into();
        let stat = stat.ok_or_else(|| Error::Output { path: path(), found: "no CPU time".into() })?;
        Ok(CpuTicks::duration(stat.cpu.own))
    }

    /// CPU time of all its threads and of its living children so far, in steps of 10 ms.
    ///
    /// # Errors
    /// If it is gone.
    pub fn family_cpu_time(&self) -> Result<Duration> {
        // A child that has ended meanwhile counts nothing.
        let children = children(self.child.id()).into_iter().filter_map(ProcessStat::read);
        let ticks = children.map(|child| child.cpu.own).sum();
        Ok(self.cpu_time()? + CpuTicks::duration(ticks))
    }

    /// Sends a signal. The process has not been waited for, so its ID is still its own. A process that has just ended
    /// ignores it.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal(Signal::TERM);
        self.resume();
        self.await_end(Instant::now() + DRAIN_MAX);
    }
}

/// A process and all those that it started and that live, the oldest first.
pub fn family(first: Pid) -> Vec<Pid> {
    let mut family = vec![first];
    let mut next = 0;
    while let Some(parent) = family.get(next) {
        let pids = children(parent.as_raw_nonzero().get().unsigned_abs());
        family.extend(pids.into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)));
        next += 1;
    }
    family
}

/// The first line `Rss:` of a /proc/PID/smaps_rollup, in bytes.
fn resident_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The last line of a log that is not empty.
pub fn last_line(path: &Path) -> Option<String> {
    let mut from = File::open(path).ok()?;
    let length = from.metadata().ok()?.len();
    from.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    from.take(LOG_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    tail.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_found() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                1234 kB\nPss:  9 kB\n";
        assert_eq!(resident_of(text), Some(1234 * 1024));
        assert_eq!(resident_of("Pss: 9 kB\n"), None);
    }

    #[test]
    fn a_paused_process_takes_no_cpu_and_ends_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let output = directory.path().join("output");
        let mut busy = Process::start(busy, &output, &output).unwrap();
        while busy.cpu_time().unwrap() < Duration::from_millis(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        busy.pause();
        std::thread::sleep(Duration::from_millis(20));
        let before = busy.cpu_time().unwrap();
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(busy.cpu_time().unwrap(), before);
        assert!(busy.status().unwrap().is_none());

        let begun = Instant::now();
        drop(busy);
        assert!(begun.elapsed() < DRAIN_MAX);
    }
}
