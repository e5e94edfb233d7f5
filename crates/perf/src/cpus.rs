//! Pins each side to a CPU: on a shared one the scheduler would be measured.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::Pin;
use sidelong_app::Failure;

/// The CPUs of the target and of this side; `None` if not pinned.
pub(super) fn both(pin: Pin) -> Result<(Option<usize>, Option<usize>), Failure> {
    Ok(match pin {
        Pin::None => (None, None),
        Pin::Two(target, this) => (Some(target), Some(this)),
        Pin::Auto | Pin::One(_) => (target(pin)?, this(pin)?),
    })
}

/// The CPU of a target: the first by default.
pub(super) fn target(pin: Pin) -> Result<Option<usize>, Failure> {
    one(pin, allowed()?.first())
}

/// The CPU of the measuring side: the last by default, so that the sides differ on a machine with two.
pub(super) fn this(pin: Pin) -> Result<Option<usize>, Failure> {
    one(pin, allowed()?.last())
}

fn one(pin: Pin, auto: Option<&usize>) -> Result<Option<usize>, Failure> {
    match pin {
        Pin::Auto => Ok(auto.copied()),
        Pin::None => Ok(None),
        Pin::One(cpu) => Ok(Some(cpu)),
        Pin::Two(..) => Err(Failure::new("--pin takes one CPU here, that of this side")),
    }
}

/// Pins this thread, and all that it starts from now on, to `cpu`.
pub(super) fn hold(cpu: Option<usize>) -> Result<(), Failure> {
    is_allowed(cpu)?;
    put(cpu)
}

/// Rejects a CPU that this process may not use.
pub(super) fn is_allowed(cpu: Option<usize>) -> Result<(), Failure> {
    let allowed = allowed()?;
    match cpu.filter(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => Err(Failure(format!(
            "--pin: CPU {cpu} is not among those that this process may use, {allowed:?}"
        ))),
    }
}

/// Pins without that check, for a process that is already pinned elsewhere.
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
