//! CPU placement: the measured side and the measuring side each get a CPU of their own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

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

#[cfg(test)]
mod tests {
    use super::*;

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
