//! Why a command failed, in one line for the operator; and standard output.
//!
//! `anyhow` is not used: many errors, ours and those of libraries, already contain their cause in the message, and
//! `anyhow` would print it again. Otherwise a failure is only a line of text.

use std::io::Write as _;

/// One line: what failed, what was found, what was expected.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Failure(line.into())
    }
}

/// An error's message, followed by those of its causes that it does not contain.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut line = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let words = source.to_string();
            if !line.contains(&words) {
                line = format!("{line}: {words}");
            }
            cause = source.source();
        }
        Failure(line)
    }
}

/// Writes to standard output.
///
/// # Errors
/// If its reader is gone. A command with child processes must still end them in order.
pub(crate) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure(format!("cannot write to standard output: {error}")))
}

/// A count and its noun, whose plural has an s.
pub(crate) fn some(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
