//! On which CPU each side runs: two that share one measure the scheduler.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;
use crate::perf::args::Pin;

/// The target's CPU and this side's, where they are held to any.
pub(super) fn both(pin: Pin) -> Result<(Option<usize>, Option<usize>), Failure> {
    Ok(match pin {
        Pin::None => (None, None),
        Pin::Two(target, this) => (Some(target), Some(this)),
        Pin::Auto | Pin::One(_) => (target(pin)?, this(pin)?),
    })
}

/// For a target by itself: the first CPU.
pub(super) fn target(pin: Pin) -> Result<Option<usize>, Failure> {
    one(pin, allowed()?.first())
}

/// For a measuring side by itself: the last CPU, so that both on one machine do not meet where it has two.
pub(super) fn this(pin: Pin) -> Result<Option<usize>, Failure> {
    one(pin, allowed()?.last())
}

fn one(pin: Pin, auto: Option<&usize>) -> Result<Option<usize>, Failure> {
    match pin {
        Pin::Auto => Ok(auto.copied()),
        Pin::None => Ok(None),
        Pin::One(cpu) => Ok(Some(cpu)),
        Pin::Two(..) => Err(Failure::new("--pin: one CPU, this side's own")),
    }
}

/// Holds this thread, and all that it starts from here on, to `cpu`.
pub(super) fn hold(cpu: Option<usize>) -> Result<(), Failure> {
    is_allowed(cpu)?;
    put(cpu)
}

/// Refuses one that this process may not use.
pub(super) fn is_allowed(cpu: Option<usize>) -> Result<(), Failure> {
    let allowed = allowed()?;
    match cpu.filter(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            Err(Failure(format!("--pin: CPU {cpu} is none of those that this process may use, {allowed:?}")))
        }
    }
}

/// The same without a look whether this process may use it: for one that is held elsewhere.
pub(super) fn put(cpu: Option<usize>) -> Result<(), Failure> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}

fn allowed() -> Result<Vec<usize>, Failure> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_meet_only_where_there_is_one_cpu() {
        let (target, this) = both(Pin::Auto).unwrap();
        assert_eq!(target == this, allowed().unwrap().len() == 1);
        assert_eq!(both(Pin::None).unwrap(), (None, None));
        assert_eq!(both(Pin::Two(5, 6)).unwrap(), (Some(5), Some(6)));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let Failure(line) = hold(Some(CpuSet::MAX_CPU - 1)).unwrap_err();
        assert!(line.contains("CPU 1023"), "{line}");
    }
}
