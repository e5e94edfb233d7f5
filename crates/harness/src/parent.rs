//! The parts of an `up` and their parent: parts end with their `up`, and the next `up` sees to it that they have.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use sidelong_config::Cluster;
use sidelong_fabric::RunDirectory;

use sidelong_app::Failure;

/// Longest wait for the parts of a killed `up` to end by themselves.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(15);
/// Longest wait for those that are killed after that.
const KILLED_MAX: Duration = Duration::from_secs(5);
/// Time between two checks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Makes this process end with its parent, if it was started as a part of an `up`, which has that process ID if it is not 0.
pub fn end_with_parent(parent: Option<i32>) -> Result<(), Failure> {
    let Some(parent) = parent else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended already.
    if parent != 0 && getppid().map_or(0, |pid| pid.as_raw_nonzero().get()) != parent {
        return Err(Failure::new("the process that started this one has ended"));
    }
    Ok(())
}

/// A lock that a part of an `up` holds while it lives, for [`end_left_behind`].
///
/// It is a record lock, of which the kernel tells who holds it. It lasts until the process closes any descriptor of the file,
/// so nothing else in a part opens it.
pub fn hold(parent: Option<i32>, cluster: &Cluster) -> Result<Option<File>, Failure> {
    // The others, such as the lab's, have no `up`.
    if parent.is_none_or(|parent| parent == 0) {
        return Ok(None);
    }
    let file = open(&RunDirectory::open(&cluster.run_dir)?)?;
    fcntl_lock(&file, FlockOperation::LockShared)?;
    Ok(Some(file))
}

/// Waits until the parts of a killed `up` in this run directory have ended and released their ports. They were told to end
/// when it died. One that is stopped is made to go on, and one that does not end is killed.
///
/// Call it once the directory is claimed: then there is no other `up` whose parts these could be.
pub fn end_left_behind(run: &RunDirectory) -> Result<(), Failure> {
    end_within(LEFT_BEHIND_MAX, run)
}

/// Ends what a killed `up` has left in this run directory, with a wait before a part is killed.
fn end_within(wait: Duration, run: &RunDirectory) -> Result<(), Failure> {
    let file = open(run)?;
    let began = Instant::now();
    let mut told = None;
    while let Some(pid) = holder(&file)? {
        let waited = began.elapsed();
        if waited > wait + KILLED_MAX {
            let path = run.path().display();
            let found = format!("process {pid}, a part of a killed `sidelong up`, still runs here");
            return Err(Failure::new(format!("{path}: {found} after {} s; end it", waited.as_secs())));
        }
        let is_late = waited > wait;
        if told != Some((pid, is_late)) {
            told = Some((pid, is_late));
            let signals: &[_] = if is_late { &[Signal::KILL] } else { &[Signal::TERM, Signal::CONT] };
            // It may have ended meanwhile, and its number may be another's. If it still holds the lock, the descriptor is
            // its own, or that of a process which has ended.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && holder(&file)? == Some(pid)
            {
                signals.iter().for_each(|signal| _ = pidfd_send_signal(&process, *signal));
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A process that holds the parts' lock.
fn holder(file: &File) -> Result<Option<Pid>, Failure> {
    match fcntl_getlk(file, &Flock::from(FlockType::WriteLock))? {
        None => Ok(None),
        Some(Flock { pid: None, .. }) => {
            Err(Failure::new("a part of a killed `sidelong up` still runs in another PID namespace; end it"))
        }
        Some(Flock { pid, .. }) => Ok(pid),
    }
}

/// The file that all parts of an `up` hold a shared lock on.
const PARTS: &str = "parts";

fn open(run: &RunDirectory) -> Result<File, Failure> {
    let failed = |error| Failure::new(format!("cannot open {}: {error}", run.path().join(PARTS).display()));
    run.append(PARTS).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use rustix::process::kill_process;

    use super::*;

    /// Tells the other process its run directory, and whether it ends for SIGTERM.
    const RUN: &str = "SIDELONG_TEST_RUN";
    const IS_DEAF: &str = "SIDELONG_TEST_IS_DEAF";
    const READY: &str = "holds the lock";

    /// Another process that holds the lock of this directory.
    fn left_behind(run: &RunDirectory, is_deaf: bool) -> Child {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["parent::tests::other_process", "--exact", "--nocapture"]).env(RUN, run.path());
        if is_deaf {
            other.env(IS_DEAF, "");
        }
        let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(other.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line == READY));
        other
    }

    #[test]
    fn a_part_that_was_left_behind_and_does_not_end_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        let mut other = left_behind(&run, true);
        end_within(Duration::from_millis(100), &run).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    /// The kernel lets it go on only if no process of its session is its new parent, as the first of a container may be.
    #[test]
    fn a_part_that_was_left_behind_stopped_is_told_to_end() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        let mut other = left_behind(&run, false);
        kill_process(Pid::from_child(&other), Signal::STOP).unwrap();
        end_within(Duration::from_secs(60), &run).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }

    /// Not a test: what the other process does. It ends by itself in a minute.
    #[test]
    fn other_process() {
        let Ok(run) = std::env::var(RUN) else { return };
        if std::env::var_os(IS_DEAF).is_some() {
            signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)))
                .unwrap();
        }
        let file = open(&RunDirectory::at(run)).unwrap();
        fcntl_lock(&file, FlockOperation::LockShared).unwrap();
        println!("\n{READY}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
