//! What a part of a cluster tells of itself while it runs: JSON lines on its standard output.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

/// One line. Times are ns of the machine's monotonic clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// It serves: a node its requests, an edge with a fresh view.
    Ready,
    /// It ends without doing what it was asked.
    Failed { reason: String },
    /// It chose something for the operator, and why.
    Note { text: String },
    /// It moved a node.
    Moved { node: String, from: Option<String>, to: String, at_ns: u64, took_ns: u64 },
    /// A move or repair ended otherwise.
    Ended { site: String, node: Option<String>, how: String, at_ns: u64 },
    /// The first request went to a node since that came to its site.
    FirstRequest { node: String, site: String, at_ns: u64 },
    /// A node is taken out, or taken back in.
    Health { node: String, up: bool, at_ns: u64 },
    /// Requests were let in and turned away since this was last told, or the target was missed; or neither is so any more.
    Admission { site: String, admitted: u64, rejected: u64, why: String, met: Option<bool> },
    /// The view is too old to balance by, or fresh again.
    View { stale: bool, at_ns: u64 },
}

impl Event {
    /// Prints it; who no longer listens misses it.
    pub(crate) fn tell(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}
