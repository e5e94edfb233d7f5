//! What this process may do, and giving it up.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::KernelError;

/// What it takes, for people.
pub(super) const NEEDED: &str = "CAP_BPF and CAP_PERFMON";

/// Those that programs are loaded with, each with its name. CAP_SYS_ADMIN stands for either (capabilities(7)).
const ALL: [(CapabilitySet, &str); 2] =
    [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];

/// Whether this thread may load programs.
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

/// Gives up every capability of this thread, and so of those that it starts from here on: once a record is kept nothing
/// more is needed. Called before other threads are started, as each has its own.
///
/// # Errors
/// Where the system refuses, which it does to nobody.
pub fn drop_privileges() -> Result<(), KernelError> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|error| KernelError::Drop(error.into()))
}
