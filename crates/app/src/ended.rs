//! How moves and repairs ended, and why they were begun, in words.

use sidelong_layout::{EdgeId, Fault};
use sidelong_reconfig::{Cause, Report};
use sidelong_state::{Outcome, Undrained};

use crate::event::Event;
use crate::failure::some;
use crate::history::Record;
use crate::parts::Parts;

/// The event of a move or repair, with the names and the reason of its record.
pub(crate) fn event(parts: &Parts, report: &Report, record: &Record) -> Event {
    let Record { node, from, to, why, .. } = record.clone();
    let at_ns = report.ended.as_ns();
    match (node, why) {
        (Some(node), Some(why)) if report.moved() => {
            let took_ns = report.ended.since(report.began).as_nanos() as u64;
            Event::Moved { node, from, to, why, at_ns, took_ns }
        }
        (node, why) => Event::Ended { site: to, node, why, how: how(parts, report.outcome), at_ns },
    }
}

/// Why a site was repaired, in words.
pub(crate) fn cause(parts: &Parts, cause: Cause) -> String {
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

fn how(parts: &Parts, outcome: Outcome) -> String {
    let how = match outcome {
        Outcome::Moved | Outcome::Busy | Outcome::Recent => outcome.word(),
        Outcome::AtFloor => "the donor is at its floor",
        Outcome::NodeChanged => "the node had changed",
        Outcome::NotDrained(kept) => {
            return format!("its old site's requests had not ended in time: {}", undrained(parts, kept));
        }
        Outcome::NotChanged { fault } => return not_changed(fault),
        Outcome::Behind => "the cluster has changed meanwhile",
        Outcome::Contended => "the donor's budget kept changing",
        Outcome::Unreachable => "a word could not be reached",
        Outcome::Uncertain { .. } => "completions were lost; repaired",
        Outcome::Recovered { .. } => "repaired",
        Outcome::LeaseLost => "the lease was lost",
        Outcome::Lost => "completions were lost",
    };
    how.to_owned()
}

/// What kept a node at its old site, in words.
pub(crate) fn undrained(parts: &Parts, kept: Undrained) -> String {
    // It may have joined since this part began.
    let members = parts.members.load();
    let front = |front: EdgeId| {
        members.fronts.get(front.index()).map_or("one that has left", |front| front.name.as_str())
    };
    match kept {
        Undrained::Node => "its server has not finished them".to_owned(),
        Undrained::Requests(edge, requests) => {
            format!("{} has {} there", front(edge), some(requests as usize, "request"))
        }
        Undrained::Unseen(edge) => {
            let is_led = members.fronts.get(edge.index()).is_some_and(|front| front.is_led);
            let why =
                if is_led { "it cannot control its proxy, as its log says, or hangs" } else { "it may hang" };
            format!("{} has not seen that the node leaves; {why}", front(edge))
        }
        Undrained::Board => "the board cannot be read".to_owned(),
        Undrained::Unread(edge) => format!("what {} has there cannot be read", front(edge)),
    }
}

/// Why a node could not change sites, in words.
pub(crate) fn not_changed(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "its commands did not end in time".to_owned(), |fault| fault.to_string())
}
