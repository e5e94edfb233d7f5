//! Moves as a policy would plan them.

use sidelong_layout::{NodeId, Ownership, SiteId};
use sidelong_policy::reconfigure::{MovePlan, Need, Reason, SiteFigures, Source};

/// A move from what was seen, for some reason.
pub(crate) fn plan(node: NodeId, expected: Ownership, to: SiteId) -> MovePlan {
    let receiver = SiteFigures { load: Some(2.0), nodes: 1, strain: None, admitted: 1.0, lasted_us: 0 };
    let reason = Reason { need: Need::High, source: Source::Idle, receiver, donor: None };
    MovePlan { node, expected, to, reason }
}
