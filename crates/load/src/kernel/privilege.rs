//! The privileges of this process, and dropping them.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::KernelError;

/// The capabilities that are needed, for messages.
pub(super) const NEEDED: &str = "CAP_BPF and CAP_PERFMON";

/// The capabilities that loading programs needs, with their names. CAP_SYS_ADMIN implies both (capabilities(7)).
const ALL: [(CapabilitySet, &str); 2] =
    [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];

/// Checks whether this thread may load programs.
pub(super) fn check() -> Result<(), KernelError> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<_> = ALL.iter().filter(|(one, _)| !held.contains(*one)).map(|(_, name)| *name).collect();
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(KernelError::Capability { missing: format!("{one} is") }),
        [first, second, ..] => Err(KernelError::Capability { missing: format!("{first} and {second} are") }),
    }
}

/// Drops every capability of this thread, and so of threads that it starts later: a running record needs none. Call it
/// before other threads start, because each thread has its own.
///
/// # Errors
/// If the system refuses, which it never should.
pub fn drop_privileges() -> Result<(), KernelError> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|error| KernelError::Drop(error.into()))
}
