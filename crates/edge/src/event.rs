//! The events of an edge, for people.

use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_reconfig::Report;

/// An event. Times are of this machine's monotonic clock.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The view is complete for the first time.
    Ready,
    /// A move or repair has ended.
    Ended(Report),
    /// The first request was sent to a node after it joined its site.
    FirstRequest {
        /// The node.
        node: NodeId,
        /// Its site.
        site: SiteId,
        /// When the request was routed.
        at: Time,
    },
    /// A node failed and was taken out, or takes requests again.
    Health {
        /// The node.
        node: NodeId,
        /// Whether requests go to it.
        up: bool,
    },
    /// Requests were rejected in about the last second, or a target was missed; or neither is the case any more.
    Admission {
        /// The site.
        site: SiteId,
        /// Requests admitted since the last event of this kind.
        admitted: u64,
        /// Requests rejected since then.
        rejected: u64,
        /// Why most of them were rejected, or why all are admitted.
        why: &'static str,
        /// Whether the site's target is met, if that is known.
        met: Option<bool>,
    },
    /// No node's words or load could be read for too long, or they can be read again.
    View {
        /// Whether the edge now routes by its own knowledge.
        stale: bool,
    },
}
