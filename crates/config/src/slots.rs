//! Which site, node and mover has which slot, in a cluster that changes while it runs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sidelong_layout::{EDGES_MAX, NODES_MAX, SITES_MAX, Slots};

use crate::cluster::Cluster;
use crate::sections::CACHE_PEERS_MAX;

/// How many slots a cluster has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// For sites.
    pub sites: usize,
    /// For nodes.
    pub nodes: usize,
    /// For edges and fronts.
    pub fronts: usize,
    /// For caches.
    pub caches: usize,
}

impl Capacity {
    /// What a cluster has at least: more than one machine is likely to run, because slots that nobody has cost little. A slot for a cache
    /// takes 33 KB of each cache's memory.
    pub const LEAST: Capacity = Capacity { sites: 128, nodes: 512, fronts: 32, caches: 8 };

    /// Of a cluster that starts with so many: room for as many again.
    pub(crate) fn of(sites: usize, nodes: usize, fronts: usize, caches: usize) -> Self {
        let room =
            |count: usize, least: usize, most: usize| (2 * count).max(least).next_power_of_two().min(most);
        let least = Capacity::LEAST;
        Capacity {
            sites: room(sites, least.sites, SITES_MAX),
            nodes: room(nodes, least.nodes, NODES_MAX),
            // A person takes locks, too.
            fronts: room(fronts, least.fronts, EDGES_MAX - 1),
            caches: room(caches, least.caches, CACHE_PEERS_MAX),
        }
    }
}

/// Members of a roster who are not there, or not for long, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// Edges and fronts for which nobody waits: nothing of them is left, as a person has said, or they have never been there.
    pub lost: BTreeSet<String>,
    /// Nodes and edges that are about to leave: nodes are held, and nobody gives them back; edges end.
    pub leaving: BTreeSet<String>,
    /// Sites that are about to leave: they take no request, and keep no node.
    pub closing: BTreeSet<String>,
    /// Which caches have no share of the keys, or will not have one.
    #[serde(rename = "shares")]
    pub caches: CacheStanding,
    /// Which node has the board.
    #[serde(default)]
    pub board: BoardStanding,
}

/// Which node has the board of a cluster whose parts do not share memory. At first that is the first node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BoardStanding {
    /// The epoch in which it was handed over; 0 before that. Each time it begins anew.
    pub term: u64,
    /// The node that has it, once it was handed over.
    pub node: Option<String>,
    /// The node that had it before, until that is known to have given it up: nobody has it meanwhile.
    pub from: Option<String>,
}

/// Caches of a roster that are not, or not for long, homes of keys, by name. One that is both away and leaving ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CacheStanding {
    /// Rises with each change of these, so that who goes on with one knows that it is still theirs.
    pub change: u64,
    /// Caches that have no share.
    pub away: BTreeSet<String>,
    /// Caches that begin to have one.
    pub entering: BTreeSet<String>,
    /// Caches that give it up.
    pub leaving: BTreeSet<String>,
    /// Caches that will end, and take no share again.
    pub ending: BTreeSet<String>,
}

impl CacheStanding {
    /// Whether some are to take over others' keys, or hand their own over.
    pub fn is_changing(&self) -> bool {
        !self.entering.is_empty() || self.leaving.iter().any(|name| !self.away.contains(name))
    }

    /// Whether a cache had a share of the keys before.
    pub fn had_share(&self, name: &str) -> bool {
        !self.away.contains(name) && !self.entering.contains(name)
    }

    /// Whether a cache has a share of the keys from now on.
    pub fn has_share(&self, name: &str) -> bool {
        !self.away.contains(name) && !self.leaving.contains(name)
    }

    /// Whether a cache is about to end.
    pub fn ends(&self, name: &str) -> bool {
        self.away.contains(name) && self.leaving.contains(name)
    }
}

/// Which site, node, edge or front, and cache, by name, has which slot. By default there is none yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotTable {
    /// The sites.
    pub sites: SlotNames,
    /// The nodes.
    pub nodes: SlotNames,
    /// The edges and fronts.
    pub fronts: SlotNames,
    /// The caches.
    pub caches: SlotNames,
    /// How many slots there are, once that is decided.
    pub capacity: Option<Capacity>,
    /// See [`Cluster::founding`]; `None` before that.
    pub founding: Option<u64>,
}

impl SlotTable {
    /// Whether the cluster has the same sites, nodes, movers and caches, whatever their slots.
    pub fn has_all_of(&self, cluster: &Cluster) -> bool {
        let other = SlotTable::of(cluster);
        let kinds = [
            (&self.sites, &other.sites),
            (&self.nodes, &other.nodes),
            (&self.fronts, &other.fronts),
            (&self.caches, &other.caches),
        ];
        let names = |names: &SlotNames| names.0.values().cloned().collect::<BTreeSet<_>>();
        kinds.into_iter().all(|(own, other)| names(own) == names(other))
    }

    /// With vacant slots up to as many as `other` has: where parts may know who had a slot, it stays one.
    #[must_use]
    pub fn padded(self, other: &SlotTable) -> Self {
        let padded = |own: SlotNames, other: &SlotNames| {
            let vacant = (own.0.len()..other.0.len()).map(|_| None);
            SlotNames(own.0.all().map(Option::<&String>::cloned).chain(vacant).collect())
        };
        SlotTable {
            sites: padded(self.sites, &other.sites),
            nodes: padded(self.nodes, &other.nodes),
            fronts: padded(self.fronts, &other.fronts),
            caches: padded(self.caches, &other.caches),
            ..self
        }
    }

    /// As the parts of a cluster have it.
    pub fn of(cluster: &Cluster) -> Self {
        SlotTable {
            sites: SlotNames(cluster.sites.map(|site| site.name.clone())),
            nodes: SlotNames(cluster.nodes.map(|node| node.name.clone())),
            fronts: SlotNames(cluster.fronts.map(|front| front.name.clone())),
            caches: SlotNames(cluster.caches.map(|cache| cache.name.clone())),
            capacity: Some(cluster.capacity),
            founding: Some(cluster.founding),
        }
    }
}

/// The names of those who have the slots of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotNames(pub Slots<String>);

impl SlotNames {
    /// Gives each of `members` its slot: that of its name, or else the lowest one that nobody has had since before, or with `reuse` false
    /// was never taken.
    pub(crate) fn seat<T>(&self, members: Vec<T>, name: impl Fn(&T) -> &String, reuse: bool) -> Slots<T> {
        let slot = |member: &T| self.0.position(|known| known == name(member));
        let mut slots: Vec<Option<T>> = (0..self.0.len()).map(|_| None).collect();
        let mut new = Vec::new();
        for member in members {
            match slot(&member) {
                Some(slot) => slots[slot] = Some(member),
                None => new.push(member),
            }
        }
        // Parts may still mean those who leave just now.
        let mut vacant = (0..self.0.len()).filter(|slot| reuse && self.0.get(*slot).is_none());
        for member in new {
            match vacant.next() {
                Some(slot) => slots[slot] = Some(member),
                None => slots.push(Some(member)),
            }
        }
        slots.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seated(last: &SlotNames, members: &[&str], reuse: bool) -> Vec<Option<String>> {
        let members = members.iter().map(|name| (*name).to_owned()).collect();
        last.seat(members, |name: &String| name, reuse).all().map(Option::<&String>::cloned).collect()
    }

    #[test]
    fn a_name_keeps_its_slot_and_a_new_one_gets_the_lowest() {
        fn seats(names: &[&str]) -> Vec<Option<String>> {
            names.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect()
        }
        let last = SlotNames(seats(&["a", "", "c", "d", ""]).into_iter().collect());
        assert_eq!(seated(&last, &["d", "x", "a", "y", "z"], true), seats(&["a", "x", "", "d", "y", "z"]));
        assert_eq!(seated(&last, &["d", "x", "a"], false), seats(&["a", "", "", "d", "", "x"]));
        assert_eq!(seated(&SlotNames::default(), &["b", "a"], false), seats(&["b", "a"]));
    }

    #[test]
    fn a_cluster_has_room_for_as_many_again() {
        assert_eq!(Capacity::of(2, 8, 1, 0), Capacity::LEAST);
        assert_eq!(
            Capacity::of(90, 1000, 20, 5),
            Capacity { sites: 256, nodes: 2048, fronts: 64, caches: 16 }
        );
        let most =
            Capacity { sites: SITES_MAX, nodes: NODES_MAX, fronts: EDGES_MAX - 1, caches: CACHE_PEERS_MAX };
        assert_eq!(Capacity::of(SITES_MAX, NODES_MAX, EDGES_MAX - 1, CACHE_PEERS_MAX), most);
    }
}
