//! The privileges of this process, and dropping them.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::KernelError;

/// A capability and its name.
type Named = (CapabilitySet, &'static str);

/// The capabilities that programs need which look into the kernel.
pub(crate) const TO_TRACE: &[Named] =
    &[(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
/// The capabilities that programs need, too, which act on the sockets of a control group.
pub(crate) const TO_DIRECT: &[Named] =
    &[TO_TRACE[0], (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), TO_TRACE[1]];

/// Checks whether this thread has these capabilities. CAP_SYS_ADMIN implies CAP_BPF and CAP_PERFMON (capabilities(7)).
pub(crate) fn check(needed: &[Named]) -> Result<(), KernelError> {
    let mut held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if held.contains(CapabilitySet::SYS_ADMIN) {
        held |= CapabilitySet::BPF | CapabilitySet::PERFMON;
    }
    let list = |of: &mut dyn Iterator<Item = &Named>| {
        let names: Vec<_> = of.map(|(_, name)| *name).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    };
    let missing = || needed.iter().filter(|(one, _)| !held.contains(*one));
    let verb = match missing().count() {
        0 => return Ok(()),
        1 => "is",
        _ => "are",
    };
    let missing = format!("{} {verb}", list(&mut missing()));
    Err(KernelError::Capability { missing, needed: list(&mut needed.iter()) })
}

/// Drops every capability of this thread, and so of threads that it starts later: a running record needs none. Call it
/// before other threads start, because each thread has its own.
///
/// # Errors
/// If the system refuses, which it never should.
pub fn drop_privileges() -> Result<(), KernelError> {
    keep(CapabilitySet::empty())
}

/// Drops the capabilities of this thread that programs no longer need once they are attached. CAP_BPF stays, to detach them, or
/// CAP_SYS_ADMIN if that stands for it; and CAP_DAC_OVERRIDE, for the run directory of another user. Call it as
/// [`drop_privileges`].
///
/// # Errors
/// If the system refuses, which it never should.
pub fn keep_privileges_to_detach() -> Result<(), KernelError> {
    let held = capabilities(None).map_err(|error| KernelError::Drop(error.into()))?.permitted;
    let to_detach =
        if held.contains(CapabilitySet::BPF) { CapabilitySet::BPF } else { CapabilitySet::SYS_ADMIN };
    keep(held & (to_detach | CapabilitySet::DAC_OVERRIDE))
}

/// Keeps these capabilities of this thread, and no other.
fn keep(kept: CapabilitySet) -> Result<(), KernelError> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|error| KernelError::Drop(error.into()))
}
