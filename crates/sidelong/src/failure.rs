//! Why a command failed; and standard output.

use std::io::Write as _;

pub(crate) use sidelong_app::{Failure, some};

/// Writes to standard output.
///
/// # Errors
/// If its reader is gone. A command with child processes must still end them in order.
pub(crate) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure(format!("cannot write to standard output: {error}")))
}
