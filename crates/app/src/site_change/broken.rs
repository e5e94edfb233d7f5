//! Why a step of a change did not end well, and how often a step checks whether it is void.

use std::time::Duration;

use sidelong_layout::FaultCause;

/// Time between two checks whether a change is void.
pub(super) const VOID_EVERY: Duration = Duration::from_millis(10);

/// Why a step did not end well.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// The change became void, and what ran was killed.
    Void,
    /// The step failed. The words follow what was done: "ended with status 1: no such unit".
    Failed(FaultCause, String),
}
