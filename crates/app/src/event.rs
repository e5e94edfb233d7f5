//! The events of a running part, as words in its log and as what its caller receives.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::some;

/// An event. Times are in ns of the machine's monotonic clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// It serves: a node answers requests, an edge has a complete view.
    Ready,
    /// It ends because of an error.
    Failed {
        /// The error.
        reason: String,
    },
    /// It made a choice that the operator left open.
    Note {
        /// The choice, in words.
        text: String,
    },
    /// It moved a node.
    Moved {
        /// The node.
        node: String,
        /// The site that the node left; `None` if it served none.
        from: Option<String>,
        /// The site that the node joined.
        to: String,
        /// Why, in words.
        why: String,
        /// When the move ended.
        at_ns: u64,
        /// Time from the decision to the end.
        took_ns: u64,
    },
    /// A move or repair ended otherwise.
    Ended {
        /// The site that was to get a node, or was repaired.
        site: String,
        /// The node; `None` for a repair.
        node: Option<String>,
        /// Why it was begun, in words.
        why: Option<String>,
        /// How it ended, in words.
        how: String,
        /// When it ended.
        at_ns: u64,
    },
    /// The first request was sent to a node since it serves its site.
    FirstRequest {
        /// The node.
        node: String,
        /// The site.
        site: String,
        /// When the request was sent.
        at_ns: u64,
    },
    /// A node failed and was taken out, or takes requests again.
    Health {
        /// The node.
        node: String,
        /// Whether it takes requests.
        up: bool,
        /// When this was found.
        at_ns: u64,
    },
    /// Requests were rejected or the target was missed since the last event of this kind, or neither any more.
    Admission {
        /// The site.
        site: String,
        /// Requests that were admitted since then.
        admitted: u64,
        /// Requests that were rejected since then.
        rejected: u64,
        /// Why, in words.
        why: String,
        /// Whether the target is met; `None` if that is not known.
        met: Option<bool>,
    },
    /// The view is too old to balance by, or fresh again.
    View {
        /// Whether it is too old.
        stale: bool,
        /// When this was found.
        at_ns: u64,
    },
    /// Requests came to the node's built-in origin for a site that the node did not serve. Told at its end.
    Misdirected {
        /// How many.
        requests: u64,
    },
}

impl Event {
    /// Logs it, in words.
    pub fn log(&self) {
        match self {
            Event::Health { up: false, .. } | Event::View { stale: true, .. } | Event::Misdirected { .. } => {
                tracing::warn!("{self}")
            }
            _ => tracing::info!("{self}"),
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
