//! Who comes and goes with a file, and whether they may.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sidelong_config::{Cluster, ClusterFile, SlotTable};
use sidelong_edge::{adapter_regions, share_region};
use sidelong_reconfig::{front_region, load_region, words_region};

use super::LOOK_EVERY;
use crate::fabric::items_region;
use crate::failure::Failure;
use crate::roster::{self, Place, Presence, Roster};

/// Names of members.
pub(super) type Names = BTreeSet<String>;

/// The members of one cluster that another does not have.
pub(super) struct Members {
    pub(super) sites: Names,
    pub(super) nodes: Names,
    pub(super) fronts: Names,
    pub(super) caches: Names,
}

impl Members {
    pub(super) fn new(of: &Cluster, without: &Cluster) -> Self {
        let sites = |of: &Cluster| of.sites.values().map(|site| site.name.clone()).collect();
        let nodes = |of: &Cluster| of.nodes.values().map(|node| node.name.clone()).collect();
        let fronts = |of: &Cluster| of.fronts.values().map(|front| front.name.clone()).collect();
        let caches = |of: &Cluster| of.caches.values().map(|cache| cache.name.clone()).collect();
        Members {
            sites: difference(&sites(of), &sites(without)),
            nodes: difference(&nodes(of), &nodes(without)),
            fronts: difference(&fronts(of), &fronts(without)),
            caches: difference(&caches(of), &caches(without)),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.sites.iter().chain(&self.nodes).chain(&self.fronts).chain(&self.caches)
    }

    /// Removes what these leave behind, once they have ended: who has the name next begins anew.
    ///
    /// # Errors
    /// If it cannot be removed, or one of them runs for longer than `wait`.
    pub(super) fn forget(&self, place: &Place, wait: Duration) -> Result<(), Failure> {
        let run = place.run();
        let deadline = Instant::now() + wait;
        let of_node = |name| vec![words_region(name), load_region(name)];
        let of_front =
            |name| [vec![front_region(name), share_region(name)], adapter_regions(name).into()].concat();
        let nodes = self.nodes.iter().map(|name| (name, of_node(name)));
        let fronts = self.fronts.iter().map(|name| (name, of_front(name)));
        let caches = self.caches.iter().map(|name| (name, vec![items_region(name)]));
        for (name, regions) in nodes.chain(fronts).chain(caches) {
            for region in regions {
                while run.is_exposed(&region) {
                    if Instant::now() >= deadline {
                        return Err(Failure::new(format!(
                            "{name}, which is not of the cluster, still runs: end it"
                        )));
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                let forgotten = run.forget(&region);
                forgotten.map_err(|error| Failure::new(format!("{region} is still there: {error}")))?;
            }
            roster::forget(run, name);
        }
        Ok(())
    }
}

pub(super) fn difference(of: &Names, without: &Names) -> Names {
    of.difference(without).cloned().collect()
}

/// The slots of those whom `file` has. Slots that are vacant are given away if all parts that run go by this roster: then nobody means
/// who had them.
///
/// # Errors
/// If the file cannot be used, or has more members than there are slots.
pub(super) fn seated(roster: &Roster, file: &ClusterFile, place: &Place) -> Result<SlotTable, Failure> {
    // On several machines one that does not answer may know who had a slot, unless a person has said that nothing is left of it.
    let parts = place
        .parts(roster)
        .into_iter()
        .filter(|(name, presence)| presence.runs() || !roster.standing.lost.contains(name));
    let all_know = { parts }.all(|(_, presence)| presence.goes_by(roster.epoch));
    let cluster = file.cluster_after(&roster.slots, all_know)?;
    let Cluster { sites, nodes, fronts, caches, capacity, .. } = &cluster;
    let full = [
        ("sites", sites.len(), capacity.sites),
        ("nodes", nodes.len(), capacity.nodes),
        ("edges and fronts", fronts.len(), capacity.fronts),
        ("caches", caches.len(), capacity.caches),
    ];
    if let Some((kind, _, room)) = full.into_iter().find(|(_, count, room)| count > room) {
        return Err(Failure::new(format!(
            "the cluster has room for {room} {kind} while it runs: stop all parts and start them with this file, and it has \
             room for twice as many as the file has"
        )));
    }
    Ok(SlotTable::of(&cluster))
}

/// Whether these edges and fronts may leave: a proxy of another make goes on when its front ends, so a person must have said that nothing
/// is left of it.
///
/// # Errors
/// If one may not.
pub(super) fn may_end(
    place: &Place,
    roster: &Roster,
    cluster: &Cluster,
    names: &Names,
) -> Result<(), Failure> {
    for front in cluster.fronts.values().filter(|front| names.contains(&front.name)) {
        let name = &front.name;
        let runs = || place.presence(name, front_region(name)).runs();
        let Some(entry) = &front.controls else { continue };
        if !roster.standing.lost.contains(name) || runs() {
            let proxy = entry.proxy;
            return Err(Failure::new(format!(
                "nothing is changed, because {proxy} of front {name} may have requests: stop {proxy}, then the front, say \
                 `sidelong remove {name} --lost`, and try again"
            )));
        }
    }
    Ok(())
}

/// Whether these nodes and edges of several machines may leave.
///
/// # Errors
/// If nobody knows what is left of one.
pub(super) fn may_leave(
    place: &Place,
    roster: &Roster,
    cluster: &Cluster,
    left: &Members,
) -> Result<(), Failure> {
    let nodes = left.nodes.iter().map(|name| (name, load_region(name)));
    let fronts = left.fronts.iter().map(|name| (name, front_region(name)));
    // One that was lost and runs is asked like any other.
    for (name, region) in nodes.chain(fronts).filter(|(name, _)| !roster.standing.lost.contains(*name)) {
        let is_foreign = cluster.nodes.values().any(|node| node.name == *name && node.is_foreign);
        let why = match place.presence(name, region) {
            Presence::Silent { .. } => format!("{name} does not answer, and may have requests"),
            Presence::Ended if is_foreign => {
                format!("nobody knows the requests of {name}'s server without its agent: start it")
            }
            _ => continue,
        };
        return Err(Failure::new(format!(
            "nothing is changed, because {why}; if nothing is left of it, say `sidelong remove {name} --lost` first"
        )));
    }
    Ok(())
}
