//! The events of a running part: JSON lines on its standard output, and words in its log.

use std::fmt;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

use crate::failure::some;

/// An event. Times are in ns of the machine's monotonic clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// It serves: a node answers requests, an edge has a complete view.
    Ready,
    /// It ends because of an error.
    Failed { reason: String },
    /// It made a choice that the operator left open.
    Note { text: String },
    /// It moved a node.
    Moved { node: String, from: Option<String>, to: String, why: String, at_ns: u64, took_ns: u64 },
    /// A move or repair ended otherwise.
    Ended { site: String, node: Option<String>, why: Option<String>, how: String, at_ns: u64 },
    /// The first request was sent to a node since it serves its site.
    FirstRequest { node: String, site: String, at_ns: u64 },
    /// A node failed and was taken out, or takes requests again.
    Health { node: String, up: bool, at_ns: u64 },
    /// Requests were rejected or the target was missed since the last event of this kind, or neither any more.
    Admission { site: String, admitted: u64, rejected: u64, why: String, met: Option<bool> },
    /// The view is too old to balance by, or fresh again.
    View { stale: bool, at_ns: u64 },
    /// Requests came to the node's built-in origin for a site that the node did not serve. Told at its end.
    Misdirected { requests: u64 },
}

impl Event {
    /// Logs it, in words.
    pub(crate) fn log(&self) {
        match self {
            Event::Health { up: false, .. } | Event::View { stale: true, .. } | Event::Misdirected { .. } => {
                tracing::warn!("{self}")
            }
            _ => tracing::info!("{self}"),
        }
    }

    /// Prints it, and ignores a reader that is gone.
    pub(crate) fn print(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Ready => f.write_str("ready"),
            Event::Failed { reason } => write!(f, "failed: {reason}"),
            Event::Note { text } => f.write_str(text),
            Event::Moved { node, from, to, why, took_ns, .. } => {
                let from = from.as_deref().unwrap_or("no site");
                write!(f, "moved {node} from {from} to {to} in {:.2} ms: {why}", *took_ns as f64 / 1e6)
            }
            Event::Ended { site, node: Some(node), why, how, .. } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
                write!(f, "did not move {node} to {site}: {how}{why}")
            }
            Event::Ended { site, node: None, why, how, .. } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
                write!(f, "repaired site {site}: {how}{why}")
            }
            Event::FirstRequest { node, site, .. } => {
                write!(f, "sent the first request to {node} since it serves {site}")
            }
            Event::Health { node, up: true, .. } => write!(f, "{node} takes requests again"),
            Event::Health { node, up: false, .. } => write!(f, "{node} failed and takes no requests"),
            Event::Admission { site, admitted, rejected, why, met } => {
                match rejected {
                    0 => write!(f, "{site} admits all requests: {why}")?,
                    _ => write!(f, "{site} admitted {admitted} requests and rejected {rejected}: {why}")?,
                }
                match met {
                    Some(true) => f.write_str("; the target is met"),
                    Some(false) => f.write_str("; the target is missed"),
                    None => Ok(()),
                }
            }
            Event::View { stale: true, .. } => {
                f.write_str("the view is stale: routing by this edge's own requests and failures")
            }
            Event::View { stale: false, .. } => f.write_str("the view is fresh again"),
            Event::Misdirected { requests } => {
                let requests = some(*requests as usize, "request");
                write!(f, "{requests} came for a site that the node did not serve")
            }
        }
    }
}
