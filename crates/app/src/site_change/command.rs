//! Runs a command without a shell, in a process group of its own, bounded in time and in what is kept of its output.
//!
//! A command that fails leaves no process behind in its group. One that succeeds may, such as the server that it has started.
//! A server that prints to the command's output can do so until the agent ends: a later print then ends it by SIGPIPE.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open, waitid,
};
use sidelong_layout::FaultCause;

use super::broken::{Broken, VOID_EVERY};

/// From SIGTERM to SIGKILL, for a command that is killed.
const END_GRACE: Duration = Duration::from_secs(2);
/// Longest wait for its end after SIGKILL. The kernel may keep it longer, in a read from a lost disk for example.
const KILLED_MAX: Duration = Duration::from_secs(2);
/// Most bytes that are kept of what it prints: the last ones.
const OUTPUT_BYTES_MAX: usize = 4096;
/// Most characters of its last line that are logged.
const LINE_CHARS_MAX: usize = 400;
/// Most bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// Most reads after its end: as much as a pipe holds, if nobody made it larger. Its children may print for ever.
const LAST_READS_MAX: usize = 4;
/// Most pipes that are kept open for processes that commands have left behind.
const LEFT_BEHIND_MAX: usize = 64;

/// Runs the command, and kills it after `limit`, or once `is_void`. Input is empty. Blocks until it has ended, for a few
/// seconds more than `limit` at most.
pub(super) fn run(command: Command, limit: Duration, is_void: &dyn Fn() -> bool) -> Result<(), Broken> {
    if is_void() {
        return Err(Broken::Void);
    }
    let not_started =
        |error: io::Error| Broken::Failed(FaultCause::NotStarted, format!("could not be started: {error}"));
    let mut running = Running::start(command).map_err(not_started)?;
    let ended = running.watch_until(Instant::now() + limit, is_void);
    let result = match ended {
        Watched::Void => Err(Broken::Void),
        Watched::TooLong => {
            let why = format!("took longer than {limit:?} and was killed");
            Err(Broken::Failed(FaultCause::TimedOut, why))
        }
        Watched::Ended => running.status().map_err(not_started).and_then(judged),
    };
    // Before its children say that they were killed.
    let last_line = running.last_line();
    if result.is_err() {
        running.kill();
    }
    running.leave();
    result.map_err(|broken| match broken {
        Broken::Failed(cause, why) if !last_line.is_empty() => {
            Broken::Failed(cause, format!("{why}: {last_line}"))
        }
        broken => broken,
    })
}

fn judged(status: WaitIdStatus) -> Result<(), Broken> {
    let byte = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => {
            Err(Broken::Failed(FaultCause::Status(byte(code)), format!("ended with status {code}")))
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            Err(Broken::Failed(FaultCause::Signal(byte(signal)), format!("was ended by signal {signal}")))
        }
    }
}

/// Why the wait for a command is over.
enum Watched {
    Ended,
    TooLong,
    Void,
}

/// A command that was started. It is not reaped before [`Running::leave`], so that its group's number is nobody else's.
struct Running {
    child: Child,
    group: Pid,
    /// Readable once it has ended.
    end: OwnedFd,
    has_ended: bool,
    /// What it and its children print.
    output: PipeReader,
    /// Nobody has the other end of `output`.
    is_silent: bool,
    /// The last of what they printed.
    printed: VecDeque<u8>,
}

impl Running {
    /// Takes the command, which holds the other end of the pipe until it is dropped.
    fn start(mut command: Command) -> io::Result<Self> {
        let (output, printer) = io::pipe()?;
        ioctl_fionbio(&output, true)?;
        command.stdin(Stdio::null()).stdout(printer.try_clone()?).stderr(printer).process_group(0);
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        let end = match pidfd_open(group, PidfdFlags::empty()) {
            Ok(end) => end,
            Err(error) => {
                // Nobody would see that it has ended.
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                return Err(error.into());
            }
        };
        let printed = VecDeque::with_capacity(OUTPUT_BYTES_MAX);
        Ok(Running { child, group, end, has_ended: false, output, is_silent: false, printed })
    }

    fn watch_until(&mut self, deadline: Instant, is_void: &dyn Fn() -> bool) -> Watched {
        loop {
            self.watch(deadline);
            if self.has_ended {
                return Watched::Ended;
            }
            if is_void() {
                return Watched::Void;
            }
            if Instant::now() >= deadline {
                return Watched::TooLong;
            }
        }
    }

    /// Waits until it prints or ends, at most [`VOID_EVERY`], and reads a part of what it printed.
    fn watch(&mut self, deadline: Instant) {
        let wait = deadline.saturating_duration_since(Instant::now()).min(VOID_EVERY);
        let mut watched = Vec::with_capacity(2);
        if !self.has_ended {
            watched.push(PollFd::new(&self.end, PollFlags::IN));
        }
        if !self.is_silent {
            watched.push(PollFd::new(&self.output, PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        if poll(&mut watched, Some(&timeout)).is_err() {
            // A signal, or no memory.
            std::thread::sleep(wait);
            return;
        }
        self.has_ended |= !self.has_ended && !watched[0].revents().is_empty();
        self.read();
    }

    /// Reads what is there, at most [`READ_BYTES`]. Returns their number.
    fn read(&mut self) -> usize {
        let mut bytes = [0; READ_BYTES];
        // Nothing is there, or a signal came.
        let Ok(count) = self.output.read(&mut bytes) else { return 0 };
        self.is_silent = count == 0;
        let kept = &bytes[count.saturating_sub(OUTPUT_BYTES_MAX)..count];
        let over = (self.printed.len() + kept.len()).saturating_sub(OUTPUT_BYTES_MAX);
        self.printed.drain(..over);
        self.printed.extend(kept);
        count
    }

    /// Waits until it has ended, and does not reap it.
    fn status(&self) -> io::Result<WaitIdStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group), options)?;
        Ok(status.ok_or(io::ErrorKind::NotFound)?)
    }

    /// Ends it and all of its group: SIGTERM, then SIGKILL once it has ended and nobody holds its output, or after [`END_GRACE`].
    fn kill(&mut self) {
        let _ = kill_process_group(self.group, Signal::TERM);
        let deadline = Instant::now() + END_GRACE;
        while !(self.has_ended && self.is_silent) && Instant::now() < deadline {
            self.watch(deadline);
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        let deadline = Instant::now() + KILLED_MAX;
        while !self.has_ended && Instant::now() < deadline {
            self.watch(deadline);
        }
    }

    /// The last line so far that says something, without control characters; empty if there is none.
    fn last_line(&mut self) -> String {
        let mut reads = 0;
        while reads < LAST_READS_MAX && self.read() > 0 {
            reads += 1;
        }
        let text = String::from_utf8_lossy(self.printed.make_contiguous());
        let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        let mut lines = text.split(['\n', '\r']).rev().map(plain);
        let line = lines.find(|line| !line.trim().is_empty()).unwrap_or_default();
        line.trim().chars().take(LINE_CHARS_MAX).collect()
    }

    /// Reaps it. What processes print that it left behind is read and dropped from now on.
    fn leave(mut self) {
        if self.has_ended {
            let _ = self.child.wait();
            if self.is_silent {
                return;
            }
        }
        static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);
        if LEFT_BEHIND.fetch_add(1, Ordering::Relaxed) < LEFT_BEHIND_MAX {
            let drop_output = move || {
                if ioctl_fionbio(&self.output, false).is_ok() {
                    let _ = io::copy(&mut self.output, &mut io::sink());
                }
                let _ = self.child.wait();
                LEFT_BEHIND.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("output".into()).spawn(drop_output).is_ok() {
                return;
            }
        }
        LEFT_BEHIND.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!(
            "too many processes hold a command's output: redirect that of servers that commands start"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use rustix::process::kill_process;

    use super::*;

    /// Far longer than any test takes, on a busy machine too.
    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, directory: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(directory);
        shell
    }

    /// Runs a script in a directory, until it is void.
    fn run_in(directory: &Path, script: &str, is_void: &dyn Fn() -> bool) -> Result<(), Broken> {
        let begun = Instant::now();
        let result = run(shell(script, directory), LONG, is_void);
        assert!(begun.elapsed() < LONG / 2, "{script} held us up");
        result
    }

    fn run_script(script: &str) -> Result<(), Broken> {
        run_in(tempfile::tempdir().unwrap().path(), script, &|| false)
    }

    fn failed(cause: FaultCause, why: &str) -> Result<(), Broken> {
        Err(Broken::Failed(cause, why.to_owned()))
    }

    /// A process whose number a script wrote to `pid`.
    struct Process(Pid);

    impl Process {
        fn written(directory: &Path) -> Self {
            let pid = fs::read_to_string(directory.join("pid")).unwrap();
            Process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap())
        }

        /// Whether it lives. One that nobody has reaped does not.
        fn lives(&self) -> bool {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
        }

        fn ends(&self) -> bool {
            becomes(&|| !self.lives())
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            if self.lives() {
                let _ = kill_process(self.0, Signal::KILL);
            }
        }
    }

    fn becomes(is: &dyn Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !is() && begun.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(5));
        }
        is()
    }

    #[test]
    fn a_command_ends_well_with_status_0_only() {
        assert_eq!(run(Command::new("true"), LONG, &|| false), Ok(()));
        assert_eq!(
            run(Command::new("false"), LONG, &|| false),
            failed(FaultCause::Status(1), "ended with status 1")
        );
        assert_eq!(run_script("exit 255"), failed(FaultCause::Status(255), "ended with status 255"));
        assert_eq!(run_script("kill -9 $$"), failed(FaultCause::Signal(9), "was ended by signal 9"));
        assert_eq!(run_script("read line"), failed(FaultCause::Status(1), "ended with status 1"), "no input");
    }

    #[test]
    fn the_last_line_that_it_printed_is_told() {
        let why = |script: &str| match run_script(script) {
            Err(Broken::Failed(FaultCause::Status(3), why)) => why,
            other => panic!("{script}: {other:?}"),
        };
        assert_eq!(
            why(r"echo first; echo '  no such unit  ' >&2; echo; exit 3"),
            "ended with status 3: no such unit"
        );
        assert_eq!(why(r"printf 'a\rb \033[31mred\007\r\n'; exit 3"), "ended with status 3: b [31mred");
        let bytes_printed = 10_000_000;
        let long = why(&format!("head -c {bytes_printed} /dev/zero | tr '\\0' x; exit 3"));
        assert_eq!(long, format!("ended with status 3: {}", "x".repeat(LINE_CHARS_MAX)));
        let after = why(&format!("head -c {bytes_printed} /dev/zero; echo; echo the end >&2; exit 3"));
        assert_eq!(after, "ended with status 3: the end");
    }

    #[test]
    fn what_a_full_pipe_holds_is_read_at_the_end_and_the_last_of_it_kept() {
        let directory = tempfile::tempdir().unwrap();
        let script = "head -c 60000 /dev/zero; echo; echo the end";
        let mut running = Running::start(shell(script, directory.path())).unwrap();
        assert_eq!(running.status().unwrap().exit_status(), Some(0));
        assert_eq!(running.last_line(), "the end");
        assert_eq!(running.printed.len(), OUTPUT_BYTES_MAX);
        running.leave();
    }

    #[test]
    fn what_its_children_say_when_they_are_killed_is_not_its_own() {
        let child = "(trap 'echo stopping; exit' TERM; sleep 600 & echo > begun; wait) &";
        let script = format!("{child} while [ ! -e begun ]; do sleep 0.01; done; echo no such unit; exit 3");
        let why = "ended with status 3: no such unit";
        assert_eq!(run_script(&script), failed(FaultCause::Status(3), why));
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        for (program, why) in [
            (PathBuf::from("no-such-program"), "No such file or directory (os error 2)"),
            (directory.path().join("missing"), "No such file or directory (os error 2)"),
            (file, "Permission denied (os error 13)"),
            (directory.path().to_owned(), "Permission denied (os error 13)"),
            (PathBuf::new(), "No such file or directory (os error 2)"),
        ] {
            let result = run(Command::new(&program), LONG, &|| false);
            let why = format!("could not be started: {why}");
            assert_eq!(result, failed(FaultCause::NotStarted, &why), "{}", program.display());
        }
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let limit = Duration::from_millis(200);
        let begun = Instant::now();
        let result = run(shell("echo waiting; exec sleep 600", directory.path()), limit, &|| false);
        let Err(Broken::Failed(FaultCause::TimedOut, why)) = result else { panic!("{result:?}") };
        assert!(why.starts_with("took longer than 200ms and was killed"), "{why}");
        assert!(begun.elapsed() >= limit && begun.elapsed() < LONG);
    }

    #[test]
    fn one_that_prints_for_ever_is_killed_too() {
        let limit = Duration::from_millis(200);
        let result = run(Command::new("yes"), limit, &|| false);
        assert!(matches!(result, Err(Broken::Failed(FaultCause::TimedOut, _))), "{result:?}");
    }

    #[test]
    fn a_void_command_is_killed_with_its_group() {
        // It can clean up when it is told to end.
        let told = "trap 'echo > told; exit' TERM; sleep 600 & echo $! > pid; echo > begun; wait";
        // It ignores that.
        let deaf = "trap '' TERM; sleep 600 & echo $! > pid; echo > begun; wait";
        // Nobody holds its output.
        let closed =
            "sleep 600 > /dev/null 2>&1 & echo $! > pid; echo > begun; exec sleep 600 > /dev/null 2>&1";
        for script in [told, deaf, closed] {
            let directory = tempfile::tempdir().unwrap();
            let begun = directory.path().join("begun");
            let result = run_in(directory.path(), script, &|| begun.exists());
            assert_eq!(result, Err(Broken::Void));
            assert!(Process::written(directory.path()).ends(), "{script}");
            assert_eq!(directory.path().join("told").exists(), script == told, "{script}");
        }
    }

    #[test]
    fn nothing_runs_that_is_void_already() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(run_in(directory.path(), "echo > begun", &|| true), Err(Broken::Void));
        assert!(!directory.path().join("begun").exists());
    }

    #[test]
    fn what_a_command_leaves_behind_lives_if_it_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        // It holds the output, and prints more than a pipe holds.
        let server =
            "(while head -c 20000 /dev/zero && echo tick >> ticks; do sleep 0.01; done) & echo $! > pid";
        assert_eq!(run_in(directory.path(), server, &|| false), Ok(()));
        let left = Process::written(directory.path());
        let ticks = || fs::read_to_string(directory.path().join("ticks")).unwrap_or_default().lines().count();
        let then = ticks();
        assert!(becomes(&|| ticks() > then + 10) && left.lives(), "it can print on");
    }

    #[test]
    fn what_a_command_leaves_behind_ends_if_it_fails() {
        for output in ["", "> /dev/null 2>&1"] {
            let directory = tempfile::tempdir().unwrap();
            let script = format!("sleep 600 {output} & echo $! > pid; exit 7");
            let result = run_in(directory.path(), &script, &|| false);
            assert_eq!(result, failed(FaultCause::Status(7), "ended with status 7"));
            assert!(Process::written(directory.path()).ends(), "{script}");
        }
    }
}
