//! Which node has the board: it is handed to another one before its holder leaves or goes to another address, or once it is lost.
//!
//! The board of a cluster on several machines is memory of one node's process. Two boards would be two locks for each site, so that a new one
//! begins only when the old one cannot change any more. First an epoch says who is to have it: by that the old holder frees its memory, which
//! the others see as the death of the board, and movers forget what they have under way. When the holder says that it goes by this epoch, is
//! proven to have ended, or a person has said that nothing of it is left, a second epoch lets the heir begin: with budgets of no node, by
//! which nobody can take one before a repair has counted them.

use std::collections::BTreeMap;
use std::time::Duration;

use sidelong_config::{BoardStanding, Cluster, Node, Standing};
use sidelong_reconfig::load_region;

use super::members::Names;
use super::{NEVER, await_parts};
use crate::failure::Failure;
use crate::roster::{Place, Presence, Roster};

/// Whether another node is to have the board in a cluster that becomes `new`: the one that has it goes or is lost, or an earlier attempt was
/// cut short.
pub(super) fn is_due(place: &Place, last: &Roster, new: &Cluster) -> Result<bool, Failure> {
    Ok(place.is_far() && (last.standing.board.from.is_some() || !is_kept(last, &last.cluster()?, new)))
}

/// Whether the board may be left with the node that has it, though that is lost: it comes back with the node.
pub(super) fn may_stay(last: &Roster, new: &Cluster) -> Result<bool, Failure> {
    let stays = last.cluster()?.board_holder().is_some_and(|holder| stays(new, holder));
    Ok(stays && last.standing.board.from.is_none())
}

/// Whether the node that has the board is not lost, and stays.
fn is_kept(last: &Roster, cluster: &Cluster, new: &Cluster) -> bool {
    let holder = cluster.board_holder();
    holder.is_some_and(|holder| stays(new, holder) && !last.standing.lost.contains(&holder.name))
}

/// Whether `name` has the board, or has not given it up.
pub(super) fn is_at(last: &Roster, name: &str) -> Result<bool, Failure> {
    let has_it = last.cluster()?.board_holder().is_some_and(|node| node.name == name);
    Ok(has_it || last.standing.board.from.as_deref() == Some(name))
}

/// Hands the board to a node that runs and stays where it is, by `new`; or ends an earlier attempt at that. Returns the parts that did not
/// answer.
///
/// # Errors
/// If there is no such node, or the one that has the board does not give it up.
pub(super) fn hand_over(
    place: &Place,
    last: &mut Roster,
    new: &Cluster,
    wait: Duration,
) -> Result<Names, Failure> {
    let adopted = |roster: &Roster| await_parts(place, roster, Place::parts, (wait, &NEVER));
    let runs = |name: &str| place.presence(name, load_region(name)).runs();
    let cluster = last.cluster()?;
    let holder = cluster.board_holder().map(|node| node.name.clone());
    let from = last.standing.board.from.clone();
    let waits = from.is_some() && is_kept(last, &cluster, new);
    if !(waits && holder.as_ref().is_some_and(|heir| runs(heir))) {
        if !cluster.is_open() {
            return Err(Failure::new(
                "the board stays where it is in a cluster whose nodes must stay the same",
            ));
        }
        // A part that is behind would only be missed once nobody has the board.
        adopted(last)?;
        let parts: BTreeMap<_, _> = place.parts(last).into_iter().collect();
        let Standing { lost, leaving, .. } = &last.standing;
        let is_fit = |node: &&Node| {
            let is_other = Some(&node.name) != holder.as_ref() && !leaving.contains(&node.name);
            is_other && stays(new, node) && parts.get(&node.name).is_some_and(Presence::runs)
        };
        let before = holder.as_deref().unwrap_or("a node that has left");
        let heir = cluster.nodes.values().find(is_fit).ok_or_else(|| {
            Failure::new(format!(
                "{before} has the board, by which all move nodes, and no other node that runs and stays can have it: start one, or have one \
                 join first, and say this again"
            ))
        })?;
        // An heir that had to wait for it has never begun. One that has left has ended.
        let from = from.or_else(|| holder.clone());
        let is_silent = |name: &&String| matches!(parts.get(*name), Some(Presence::Silent { .. }));
        if let Some(from) = from.as_ref().filter(is_silent).filter(|from| !lost.contains(*from)) {
            return Err(unheard(from));
        }
        tracing::warn!("{} is to have the board in place of {before}: until then no node moves", heir.name);
        let node = Some(heir.name.clone());
        *last = place.change(last, |roster| {
            let term = roster.epoch + 1;
            roster.standing.board = BoardStanding { term, node: node.clone(), from: from.clone() };
        })?;
    }
    let mut silent = adopted(last)?;
    let BoardStanding { node: heir, from, .. } = &last.standing.board;
    if let Some(from) = from.as_ref().filter(|from| silent.contains(*from)) {
        return Err(unheard(from));
    }
    if let Some(heir) = heir.as_ref().filter(|heir| !runs(heir)) {
        return Err(Failure::new(format!(
            "{heir} was to have the board, and has ended: say this again, and another node gets it"
        )));
    }
    *last = place.change(last, |roster| roster.standing.board.from = None)?;
    silent.extend(adopted(last)?);
    Ok(silent)
}

fn stays(new: &Cluster, node: &Node) -> bool {
    new.nodes.values().any(|other| other.name == node.name && other.fabric_listen == node.fabric_listen)
}

fn unheard(holder: &str) -> Failure {
    Failure::new(format!(
        "{holder} has the board and does not answer, so that it may be in use: start or continue it, or, if nothing of it is left, say \
         `sidelong remove {holder} --lost`"
    ))
}
