//! How moves and repairs ended, and why they were begun, in words.

use sidelong_layout::{EdgeId, Fault};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_reconfig::{Cause, Ended, How};
use sidelong_state::{Outcome, PaperOutcome, Undrained};

use crate::event::Event;
use crate::failure::some;
use crate::parts::Parts;

pub(crate) fn ended_event(parts: &Parts, ended: &Ended) -> Event {
    let at_ns = ended.ended.as_ns();
    match ended.plan {
        Some(plan) if ended.moved() => Event::Moved {
            node: parts.node_name(plan.node),
            from: plan.from().map(|site| parts.site_name(site)),
            to: parts.site_name(plan.to),
            why: why(parts, &plan),
            at_ns,
            took_ns: ended.ended.since(ended.began).as_nanos() as u64,
        },
        plan => Event::Ended {
            site: parts.site_name(ended.site),
            node: plan.map(|plan| parts.node_name(plan.node)),
            why: plan.map(|plan| why(parts, &plan)).or(ended.cause.map(|cause| told(parts, cause))),
            how: how(parts, ended.how),
            at_ns,
        },
    }
}

/// Why a node was to move, in words.
fn why(parts: &Parts, plan: &MovePlan) -> String {
    let from = plan.from().map(|site| parts.site_name(site));
    plan.reason.told(from.as_deref(), &parts.site_name(plan.to)).to_string()
}

/// Why a site was repaired, in words.
pub(crate) fn told(parts: &Parts, cause: Cause) -> String {
    match cause {
        Cause::Abandoned => "its lock stood unchanged for two leases".to_owned(),
        Cause::Unsettled => "its budget was not what its nodes said, or one was left on its way".to_owned(),
        Cause::Floor { found, expected } => {
            format!("its floor on the board was {found}, the cluster file says {expected}")
        }
        Cause::Ownership(node) => {
            format!("the ownership word of {} said nothing in this cluster", parts.node_name(node))
        }
    }
}

fn how(parts: &Parts, how: How) -> String {
    let how = match how {
        How::Lease(Outcome::Moved) | How::Paper(PaperOutcome::Moved) => "moved",
        How::Lease(Outcome::Busy) | How::Paper(PaperOutcome::Busy) => "busy",
        How::Lease(Outcome::Recent) | How::Paper(PaperOutcome::Recent) => "recent",
        How::Lease(Outcome::AtFloor) => "the donor is at its floor",
        How::Lease(Outcome::NodeChanged) | How::Paper(PaperOutcome::NodeChanged) => "the node had changed",
        How::Lease(Outcome::NotDrained(kept)) => {
            return format!("its old site's requests had not ended in time: {}", undrained(parts, kept));
        }
        How::Lease(Outcome::NotChanged { fault }) => return not_changed(fault),
        How::Lease(Outcome::Contended) => "the donor's budget kept changing",
        How::Lease(Outcome::Unreachable) => "a word could not be reached",
        How::Lease(Outcome::Uncertain { .. }) => "completions were lost; repaired",
        How::Lease(Outcome::Recovered { .. }) => "repaired",
        How::Lease(Outcome::LeaseLost) => "the lease was lost",
        How::Paper(PaperOutcome::Lost) => "completions were lost",
    };
    how.to_owned()
}

/// What kept a node at its old site, in words.
pub(crate) fn undrained(parts: &Parts, kept: Undrained) -> String {
    let front = |front: EdgeId| &parts.cluster.fronts[front.index()].name;
    match kept {
        Undrained::Node => "its server has not finished them".to_owned(),
        Undrained::Requests(edge, requests) => {
            format!("{} has {} there", front(edge), some(requests as usize, "request"))
        }
        Undrained::Unseen(edge) => format!("{} has not seen that the node leaves; it may hang", front(edge)),
        Undrained::Unread(edge) => format!("what {} has there cannot be read", front(edge)),
    }
}

/// Why a node could not change sites, in words.
pub(crate) fn not_changed(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "its commands did not end in time".to_owned(), |fault| fault.to_string())
}
