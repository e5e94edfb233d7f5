//! Why a command ended without doing what it was asked: one line for whoever asked. And what it says where it did.

use std::io::Write as _;

/// The line.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Failure(line.into())
    }
}

/// Any error's own words, with what caused it where they leave that out.
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
/// Where nobody reads it any more: a command that has others to look after must still end them in order.
pub(crate) fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure(format!("cannot write to standard output: {error}")))
}

/// So many of something whose plural has an s.
pub(crate) fn some(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
