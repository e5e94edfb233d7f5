//! Why a command failed; and standard output.

pub(crate) use sidelong_app::{Failure, some};

/// Writes to standard output.
///
/// # Errors
/// If its reader is gone. A command with child processes must still end them in order.
pub(crate) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    Ok(sidelong_os::say(text)?)
}
