//! What `status` says of the parts themselves: who is behind, who does not answer, and what is wrong with etcd.

use std::collections::BTreeMap;

use serde::Serialize;
use sidelong_app::roster::{self, LAMP_S, Place, Presence, Roster};
use sidelong_config::{self as config, Cluster, is_nowhere};

use crate::failure::Failure;

/// What is wrong with the parts of a cluster.
#[derive(Default)]
pub(super) struct Members {
    pub(super) behind: Vec<Behind>,
    pub(super) silent: Vec<Silent>,
    /// What is wrong with etcd.
    pub(super) etcd: Option<String>,
}

impl Members {
    pub(super) fn ask(cluster: &Cluster) -> Result<Self, Failure> {
        let place = Place::new(cluster)?;
        if cluster.secret.is_some() && !place.is_far() && cluster.fabric != config::Fabric::Shm {
            let found = Place::parts_by_hand(cluster)?.into_iter();
            let silent = found.filter_map(|(part, presence)| Silent::new(cluster, part, presence));
            return Ok(Members { silent: silent.collect(), ..Members::default() });
        }
        let newest = Roster::read(place.run()).filter(|newest| newest.epoch == cluster.epoch);
        let Some(newest) = newest.or_else(|| place.is_far().then(|| Roster::from(cluster))) else {
            return Ok(Members::default());
        };
        let for_s = roster::age(place.run()).map(|age| age.as_secs());
        let mut members = Members { etcd: place.trouble(&newest), ..Members::default() };
        for (part, presence) in place.parts(&newest) {
            match presence {
                Presence::Runs { epoch, refused } if epoch.is_none_or(|epoch| epoch < newest.epoch) => {
                    let refused = refused.filter(|(of, _)| *of == newest.epoch).map(|(_, why)| why);
                    members.behind.push(Behind { part, epoch, for_s, refused });
                }
                presence => {
                    let silent = Silent::new(cluster, part, presence);
                    members
                        .silent
                        .extend(silent.filter(|silent| !newest.standing.lost.contains(&silent.part)));
                }
            }
        }
        let lamps = if members.silent.is_empty() { BTreeMap::new() } else { place.lamps() };
        for silent in &mut members.silent {
            silent.seen_at = lamps.get(&silent.part).cloned();
        }
        Ok(members)
    }
}

/// A part that does not go by the newest cluster file.
#[derive(PartialEq, Debug, Serialize)]
pub(super) struct Behind {
    pub(super) part: String,
    /// By which it goes, if it says so.
    pub(super) epoch: Option<u64>,
    /// Since the newest was adopted, in seconds.
    pub(super) for_s: Option<u64>,
    /// Why it refuses the newest.
    pub(super) refused: Option<String>,
}

/// A part on another machine that does not answer.
#[derive(PartialEq, Debug, Serialize)]
pub(super) struct Silent {
    pub(super) part: String,
    /// Whether its silence keeps nodes from moving.
    pub(super) holds_nodes: bool,
    /// The machine that has told etcd lately that it runs.
    pub(super) seen_at: Option<String>,
    /// Why it refuses this machine, if it does.
    pub(super) refuses: Option<String>,
    /// Whether a person may say that nothing is left of it.
    #[serde(skip)]
    pub(super) can_be_lost: bool,
    /// Whether this machine does not find its host.
    pub(super) is_nowhere: bool,
}

impl Silent {
    pub(super) fn plain(&self) -> String {
        let Silent { part, holds_nodes, seen_at, refuses, can_be_lost, is_nowhere } = self;
        let moves = if *holds_nodes { ", and may have requests at nodes, so that none moves" } else { "" };
        if let Some(why) = refuses {
            return format!("{part} refuses this machine{moves}: {why}\n");
        }
        if *is_nowhere {
            return format!("{part} cannot be asked{moves}: this machine does not find its host\n");
        }
        let what = match (seen_at, can_be_lost) {
            (Some(host), _) => format!(
                "its machine {host} has told etcd within the last {LAMP_S} s that it runs, so that the way from here is cut, it hangs, or it has just ended"
            ),
            (None, true) => format!(
                "start it; or, if nothing is left of it, say `sidelong remove {part} --lost --config FILE`"
            ),
            (None, false) => {
                "start it; or, if it will not be back, take it out of all files, and restart the parts"
                    .to_owned()
            }
        };
        format!("{part} does not answer here{moves}: {what}\n")
    }

    fn new(cluster: &Cluster, part: String, presence: Presence) -> Option<Self> {
        let Presence::Silent { refuses } = presence else { return None };
        let front = cluster.fronts.values().find(|front| front.name == part);
        let node = cluster.nodes.values().find(|node| node.name == part);
        let place = node.map(|node| node.fabric_listen).or(front.and_then(|front| front.fabric_listen));
        Some(Silent {
            holds_nodes: front.is_some(),
            seen_at: None,
            refuses,
            can_be_lost: cluster.etcd.is_some(),
            is_nowhere: place.is_some_and(|place| is_nowhere(place.ip())),
            part,
        })
    }
}

impl Behind {
    pub(super) fn plain(&self, newest: u64) -> String {
        let Behind { part, epoch, for_s, refused } = self;
        let long = for_s.map_or_else(String::new, |s| format!(", for {s} s"));
        match (epoch, refused) {
            (_, Some(why)) => {
                format!("{part} refuses cluster file {newest}{long}, and goes by the one before: {why}\n")
            }
            (Some(epoch), None) => {
                let count = newest.saturating_sub(*epoch);
                format!(
                    "{part} is {count} behind{long}: it goes by cluster file {epoch}, and {newest} is the newest\n"
                )
            }
            (None, None) => {
                format!("{part} does not say by which cluster file it goes; {newest} is the newest\n")
            }
        }
    }
}
