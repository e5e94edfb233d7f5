//! Why a part or a command failed, in one line for the operator.
//!
//! `anyhow` is not used: many errors, ours and those of libraries, already contain their cause in the message, and
//! `anyhow` would print it again. Otherwise a failure is only a line of text.

/// One line: what failed, what was found, what was expected.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    /// A failure with this line.
    pub fn new(line: impl Into<String>) -> Self {
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

/// A count and its noun, whose plural has an s.
pub fn some(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
