//! What a person says of a part: nothing of it is left.

use std::time::Duration;

use sidelong_config::Cluster;
use sidelong_reconfig::{front_region, load_region};

use super::members::Names;
use super::{NEVER, alive, await_parts, board, homes, keep, tell_silent};
use crate::fabric::items_region;
use crate::failure::Failure;
use crate::history::REMOVED;
use crate::parts::{self, Parts};
use crate::roster::{LAMP_S, Place, Presence};

/// Has nobody wait for an edge or front of a cluster any more, because nothing of it is left: neither its process nor, beside a
/// proxy of another make, that proxy. Or has nobody look for keys at a cache, or expect the board at a node, which another one gets. If it
/// starts again, it belongs to the cluster again. Returns the epoch.
///
/// # Errors
/// If the cluster does not run here or has no such part, if that runs, if no other node can have the board, or a part does not go by it.
pub fn lose(cluster: &Cluster, name: &str, wait: Duration) -> Result<u64, Failure> {
    let place = Place::new(cluster)?;
    let roster = alive(cluster, &place)?;
    let current = roster.cluster()?;
    let caches = current.caches.entries().map(|(slot, cache)| (slot, &*cache.name));
    let fronts = current.fronts.entries().map(|(slot, front)| (slot, &*front.name));
    let is_cache = caches.clone().any(|(_, cache)| cache == name);
    // On one machine it is known whether a node has ended.
    let nodes = current.nodes.entries().filter(|_| place.is_far()).map(|(slot, node)| (slot, &*node.name));
    let kinds = if place.is_far() { "node, edge, front or cache" } else { "edge, front or cache" };
    parts::find(kinds, name, fronts.chain(caches).chain(nodes))?;
    let regions = [front_region(name), items_region(name), load_region(name)];
    let presences = regions.map(|region| place.presence(name, region));
    if presences.iter().any(Presence::runs) {
        return Err(Failure::new(format!(
            "{name} runs: end it, and then remove it if others still wait for it"
        )));
    }
    // A region that the kind of the part does not have counts as ended.
    let is_silent = presences.iter().any(|presence| *presence != Presence::Ended);
    if let Some(host) = place.lamps().get(name).filter(|_| is_silent) {
        return Err(Failure::new(format!(
            "{name} does not answer here, but its machine {host} has told etcd within the last {LAMP_S} s that it runs. If it hangs, end \
             it; if nothing is left of it, say so again in {LAMP_S} s"
        )));
    }
    if is_cache && place.is_far() {
        return Err(Failure::new(format!(
            "{name} is a cache of several machines, which are those of the first file: start it again, or stop all and start them without it"
        )));
    }
    if is_cache {
        let away = |away: &mut Names| _ = away.insert(name.to_owned());
        let mut last = roster;
        homes::hand_over(&place, &mut last, &away, &Names::new(), (wait, &NEVER))?;
        keep(&Parts::new(last.cluster()?)?, name, REMOVED);
        return Ok(last.epoch);
    }
    let mut last = roster;
    let mut silent = Names::new();
    if !last.standing.lost.contains(name) {
        last = place.change(&last, |roster| {
            roster.standing.lost.insert(name.to_owned());
        })?;
        silent = await_parts(&place, &last, Place::parts, (wait, &NEVER))?;
        keep(&Parts::new(last.cluster()?)?, name, REMOVED);
    }
    if place.is_far() && board::is_at(&last, name)? {
        silent.extend(board::hand_over(&place, &mut last, &current, wait)?);
    }
    tell_silent(&silent);
    Ok(last.epoch)
}
