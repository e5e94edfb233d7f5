//! CPU placement: the measured side and the measuring side each get a CPU of their own.

use std::process::{Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};
use crate::process::Process;

/// The first two CPUs that this process may use.
pub(crate) fn two() -> Result<[usize; 2]> {
    let (one, others) = one_and_others()?;
    Ok([one, others[0]])
}

/// The first CPU that this process may use, and all others, at least one.
pub(crate) fn one_and_others() -> Result<(usize, Vec<usize>)> {
    let allowed = sched_getaffinity(None).map_err(|errno| Error::Cpus(errno.to_string()))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (one, others) = (cpus.next(), cpus.collect::<Vec<_>>());
    match one {
        Some(one) if !others.is_empty() => Ok((one, others)),
        _ => Err(Error::Cpus("this process may use one only".into())),
    }
}

/// Pins the calling thread, and all threads that it starts meanwhile, to one CPU or some.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub(crate) fn to(cpu: usize) -> Result<Pinned> {
        Pinned::to_any(&[cpu])
    }

    pub(crate) fn to_any(cpus: &[usize]) -> Result<Pinned> {
        let failed = |errno: rustix::io::Errno| Error::Cpus(errno.to_string());
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut only = CpuSet::new();
        cpus.iter().for_each(|cpu| only.set(*cpu));
        sched_setaffinity(None, &only).map_err(failed)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Keeps CPUs from being idle, at a priority that gives way to everything else.
///
/// A virtual CPU that is idle is halted. To wake it costs tens of µs, which count as CPU time of who wakes and of who is woken. How many
/// depends on what else wakes that CPU, so that the one of two servers that has threads with timers beside its clients seems cheaper.
#[derive(Debug)]
pub(crate) struct Awake(Vec<Process>);

/// What [`Awake`] runs: for as long as the process that it is told lives, or some 100 ms longer.
const SPIN: &str = "while kill -0 $0; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null";

impl Awake {
    pub(crate) fn hold(cpus: &[usize]) -> Result<Awake> {
        let mut awake = Awake(Vec::new());
        for cpu in cpus {
            let _pinned = Pinned::to(*cpu)?;
            let mut command = Command::new("chrt");
            command.args(["--idle", "0", "sh", "-c", SPIN, &std::process::id().to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            awake.0.push(Process::spawn(&mut command)?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        // Its shell ends at SIGTERM only between two of its commands.
        self.0.iter_mut().for_each(Process::kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_held_awake_is_busy_and_gives_way() {
        let Ok([first, _]) = two() else { return };
        let mut awake = Awake::hold(&[first]).unwrap();
        let stat = format!("/proc/{}/stat", awake.0[0].id());
        // Field 41 is the policy, 5 of which is SCHED_IDLE (sched(7)).
        let policy = || std::fs::read_to_string(&stat).unwrap().split(' ').nth(40).map(str::to_owned);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while policy().as_deref() != Some("5") {
            assert!(std::time::Instant::now() < deadline, "{:?}", policy());
        }
        assert!(awake.0[0].status().unwrap().is_none());
        drop(awake);
        assert!(!std::path::Path::new(&stat).exists());
    }

    #[test]
    fn threads_that_are_started_meanwhile_stay() {
        let Ok([_, second]) = two() else { return };
        let pinned = Pinned::to(second).unwrap();
        let child = std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap();
        assert!(child.is_set(second) && child.count() == 1);
        drop(pinned);
        assert!(sched_getaffinity(None).unwrap().count() >= 2);
    }
}
