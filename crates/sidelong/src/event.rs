//! The events of a running part, as JSON lines on standard output.

use std::io::Write as _;

pub(crate) use sidelong_app::Event;

/// Prints an event, and ignores a reader that is gone.
pub(crate) fn print(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
