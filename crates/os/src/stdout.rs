//! Standard output.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes to standard output, at once.
///
/// # Errors
/// If its reader is gone. A command with child processes must still end them in order.
pub fn say(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
}
