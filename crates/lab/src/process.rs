//! Processes that the lab starts. They write to files, so that nothing here blocks on them. A process does not outlive its
//! [`Process`] value: it gets SIGTERM, and then SIGKILL.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sidelong_os::{CpuTicks, CpuUsed, ProcessStat, children};

use crate::error::{Error, Result, file};

/// Time between two checks of a process.
const POLL: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How much of a log is searched for its last line, in bytes from the end.
const LOG_TAIL_BYTES: u64 = 1 << 14;

/// A child of this process.
#[derive(Debug)]
pub(crate) struct Process {
    program: PathBuf,
    child: Child,
}

/// How a wait for a process ended.
pub(crate) enum Ended {
    Itself(ExitStatus),
    TooLong,
    Stopped,
}

impl Process {
    /// Starts `command` without input, with standard output to `output` and standard error to `log`.
    pub(crate) fn start(mut command: Command, output: &Path, log: &Path) -> Result<Process> {
        let create = |path: &Path| file(path, File::create(path));
        command.stdin(Stdio::null()).stdout(create(output)?).stderr(create(log)?);
        let program = PathBuf::from(command.get_program());
        match command.spawn() {
            Ok(child) => Ok(Process { program, child }),
            Err(source) => Err(Error::Start { program, source }),
        }
    }

    /// Waits until it ends, `stop` is raised, or `limit` is over.
    pub(crate) fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> Result<Ended> {
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

    /// Waits until `run` has ended well. `repeat` is the command that repeats it.
    ///
    /// # Errors
    /// If it fails, with the last line of `log`; if it takes longer than `limit`; or if `stop` is raised.
    pub(crate) fn finish(
        &mut self,
        run: &str,
        log: &Path,
        limit: Duration,
        stop: &AtomicBool,
        repeat: impl FnOnce() -> String,
    ) -> Result<()> {
        let run = run.to_owned();
        match self.wait(limit, stop)? {
            Ended::Stopped => Err(Error::Interrupted),
            Ended::TooLong => Err(Error::TooLong { run, limit, repeat: repeat() }),
            Ended::Itself(status) if !status.success() => {
                let said = last_line(log).unwrap_or_else(|| format!("ended with {status}"));
                Err(Error::Failed { run, said, repeat: repeat() })
            }
            Ended::Itself(_) => Ok(()),
        }
    }

    /// Its living children that its main thread has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Its status, if it has ended.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|source| Error::Start { program: self.program.clone(), source })
    }

    /// Stops it, so that it takes no CPU until [`Process::resume`].
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What its threads have used so far, for differences that are finer than [`Process::cpu_time`].
    pub(crate) fn cpu_used(&self) -> Result<CpuUsed> {
        // Of a process that is gone nothing can be said.
        self.cpu_time()?;
        Ok(CpuUsed::of_process(self.child.id()))
    }

    /// Memory of it that is resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        // The counts in /proc/PID/status lag by up to some pages for each CPU.
        let path = PathBuf::from(format!("/proc/{}/smaps_rollup", self.child.id()));
        let text = file(&path, std::fs::read_to_string(&path))?;
        resident_of(&text).ok_or_else(|| Error::Output { path, found: "no resident memory".into() })
    }

    /// CPU time of all its threads so far, in steps of 10 ms.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let stat = ProcessStat::read(self.child.id());
        let path = || format!("/proc/{}/stat", self.child.id()).into();
        let stat = stat.ok_or_else(|| Error::Output { path: path(), found: "no CPU time".into() })?;
        Ok(CpuTicks::duration(stat.cpu.own))
    }

    /// CPU time of all its threads and of its living children so far, in steps of 10 ms.
    pub(crate) fn family_cpu_time(&self) -> Result<Duration> {
        // A child that has ended meanwhile counts nothing.
        let children = children(self.child.id()).into_iter().filter_map(ProcessStat::read);
        let ticks = children.map(|child| child.cpu.own).sum();
        Ok(self.cpu_time()? + CpuTicks::duration(ticks))
    }

    /// Sends a signal. The process has not been waited for, so its ID is still its own. A process that has just ended
    /// ignores it.
    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal(Signal::TERM);
        self.resume();
        let never = AtomicBool::new(false);
        if !matches!(self.wait(DRAIN_MAX, &never), Ok(Ended::Itself(_))) {
            tracing::warn!(pid = self.child.id(), "does not drain, is killed");
            self.kill();
        }
    }
}

/// The first line `Rss:` of a /proc/PID/smaps_rollup, in bytes.
fn resident_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The program of a daemon, which states its version when run with `asked`. Debian's directory of them is not among those of
/// users' programs. `None` if there is none.
pub(crate) fn daemon(name: &str, asked: &str) -> Option<PathBuf> {
    let states_its_version = |program: &PathBuf| {
        Command::new(program).arg(asked).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    [PathBuf::from(name), Path::new("/usr/sbin").join(name)].into_iter().find(states_its_version)
}

/// The last line of a log that is not empty.
pub(crate) fn last_line(path: &Path) -> Option<String> {
    let mut from = File::open(path).ok()?;
    let length = from.metadata().ok()?.len();
    from.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    from.take(LOG_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    tail.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// A path as a shell takes it for one word.
pub(crate) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted(Path::new("/tmp/R10/a.toml")), "/tmp/R10/a.toml");
        assert_eq!(quoted(Path::new("/tmp/my lab's")), r"'/tmp/my lab'\''s'");
    }

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
