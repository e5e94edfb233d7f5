//! Whether a worker of a proxy that is led lives.

use rustix::process::{Pid, test_kill_process};
use sidelong_layout::Worker;

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
    stat(worker.pid).is_none_or(|(state, started)| state != "Z" && started == worker.started)
}

/// When a process started, as workers state it. `None` if it cannot be read.
pub(super) fn started(pid: u32) -> Option<u32> {
    stat(pid).map(|(_, started)| started)
}

/// A process's state and when it started: proc_pid_stat(5), fields 3 and 22.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, field 2, may have spaces and brackets.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.parse::<u64>().ok()? as u32))
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
        while stat(pid).unwrap().0 != "Z" {
            std::thread::yield_now();
        }
        assert!(!is_alive(Worker { pid, started: started(pid).unwrap() }));
        child.wait().unwrap();
    }
}
