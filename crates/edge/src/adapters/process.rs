//! What is known of the workers of a proxy that is controlled: whether they live, and whether there are others.

use rustix::process::{Pid, test_kill_process};
use sidelong_layout::Worker;
use sidelong_os::ProcessStat;

/// Whether the process lives. One that may not be asked does, and so does the kernel.
pub(super) fn is_alive(worker: Worker) -> bool {
    if worker == Worker::KERNEL {
        return true;
    }
    let pid = i32::try_from(worker.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return false };
    if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    // One that its parent has not waited for has ended, too.
    ProcessStat::read(worker.pid)
        .is_none_or(|stat| !stat.has_ended && stat.started_ticks as u32 == worker.started)
}

/// When a process started, as workers state it. `None` if it cannot be read.
pub(super) fn started(pid: u32) -> Option<u32> {
    ProcessStat::read(pid).map(|stat| stat.started_ticks as u32)
}

/// Whether a process is one of `program`, and the only one, but for its parent, which may be its master. One that it has replaced
/// would be another. Without the right to see all of that program it is not.
pub(super) fn is_alone(pid: u32, program: &str) -> bool {
    let Some(own) = ProcessStat::read(pid).filter(|stat| !stat.has_ended && stat.program == program) else {
        return false;
    };
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others = pids.filter(|other| ![pid, own.parent].contains(other));
    !others
        .any(|other| ProcessStat::read(other).is_some_and(|stat| !stat.has_ended && stat.program == program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_another_with_its_id_does_not() {
        let pid = std::process::id();
        let own = Worker { pid, started: started(pid).unwrap() };
        assert!(is_alive(own) && is_alive(Worker::KERNEL));
        assert!(!is_alive(Worker { started: own.started.wrapping_add(1), ..own }));
        assert!(!is_alive(Worker { pid: u32::MAX, started: 0 }));

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while !ProcessStat::read(pid).unwrap().has_ended {
            std::thread::yield_now();
        }
        assert!(!is_alive(Worker { pid, started: started(pid).unwrap() }));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_alone_beside_its_parent_and_one_that_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        // A name that nobody else has.
        let program = format!("alone-{}", std::process::id());
        let path = directory.path().join(&program);
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        let start = || {
            let child = std::process::Command::new(&path).arg("60").spawn().unwrap();
            while ProcessStat::read(child.id()).unwrap().program != program {
                std::thread::yield_now();
            }
            child
        };
        let mut first = start();
        let is_alone = || is_alone(first.id(), &program);
        assert!(is_alone());
        let mut second = start();
        assert!(!is_alone());
        second.kill().unwrap();
        while !ProcessStat::read(second.id()).unwrap().has_ended {
            std::thread::yield_now();
        }
        assert!(is_alone());
        second.wait().unwrap();

        let own = ProcessStat::read(std::process::id()).unwrap();
        assert!(!super::is_alone(first.id(), &own.program), "it is of another program");
        assert!(!super::is_alone(u32::MAX, &program));
        first.kill().unwrap();
        first.wait().unwrap();
    }
}
