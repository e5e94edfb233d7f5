//! The roster: the cluster file by which all parts on a machine go, and its epoch, which grows with each change.
//!
//! The first part that starts writes it from its own cluster file. A part that starts beside others goes by theirs, so that a
//! file that somebody is editing changes nothing until it is adopted ([`crate::reload`]). The roster is a file in a directory of
//! its own in the run directory: a line with a check, one with epoch and slots as JSON, and the cluster file as TOML. There are two copies, and each is replaced
//! whole.
//!
//! Where parts are on several machines, etcd has the roster (`roster::etcd`). On each machine one part fetches it from there (`roster::fetching`) and
//! writes it into the run directory, as it is; from then on all is as on one machine. [`Place`] is what commands use of both.

mod asked;
mod etcd;
mod fetching;
mod kept;
mod lookups;
mod place;
mod start;

use serde::Serialize;
use sidelong_config::{self as config, Cluster, SlotTable};
use sidelong_fabric::{Initiator, RunDirectory};
use sidelong_layout::{Ownership, RegionKind, SiteId, WORDS_BYTES, WORDS_OWNERSHIP};
use sidelong_reconfig::words_region;

use crate::fabric::items_region;
use crate::failure::Failure;
pub use asked::Presence;
pub(crate) use asked::{answer, answered, of_all};
pub use etcd::{LAMP_S, Version};
pub(crate) use fetching::Fetching;
pub use kept::{Roster, age, epoch};
pub(crate) use kept::{SeenEpoch, busy, directory, forget, keep, legible, refuse, trouble};
pub(crate) use lookups::Lookups;
pub use place::Place;
pub(crate) use place::secrets_of_parts;
pub use start::whole;

use kept::{LOCK, read_word};

/// Attempts to take the lock when a part starts. Each waits for a moment.
const LOCKS_MAX: usize = 50;

/// The cluster with each node at the site that it serves now. If no part of it runs here, the nodes are where the file has them.
pub fn as_it_serves(cluster: Cluster) -> Cluster {
    let run = RunDirectory::at(&cluster.run_dir);
    let newest = cluster.has_roster().then(|| Roster::read(&run)).flatten();
    let current = newest.filter(|newest| newest.is_alive(&run)).and_then(|newest| newest.cluster().ok());
    let Some(current) = current.filter(|current| current.name == cluster.name) else { return cluster };
    let mut initiator = Initiator::new();
    let mut own_of = |name: &str| {
        let shapes = [(RegionKind::Words, WORDS_BYTES)];
        let word = read_word(&run, &mut initiator, (&words_region(name), &shapes), WORDS_OWNERSHIP)?;
        Ownership::decode(word, current.capacity.sites)
    };
    let slot_of = |site: SiteId| {
        let name = &current.sites.get(site.index())?.name;
        cluster.sites.position(|site| site.name == *name)
    };
    let nodes = cluster.nodes.map(|node| {
        // One that has never run is where the file has it.
        let site = own_of(&node.name).map_or(node.site, |own| own.serving_site().and_then(slot_of));
        config::Node { site, ..node.clone() }
    });
    Cluster { nodes, ..cluster }
}

/// The share of the keys that a cache has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// It has one, and serves.
    Has,
    /// It takes one, and others give it up.
    Takes,
    /// It gives its own up.
    GivesUp,
    /// It has none: it has not started since it joined, or was lost.
    HasNone,
    /// It has one, and does not answer. Who only looks at its memory does not see that.
    Silent,
    /// It has one, and does not run.
    Dead,
}

/// The caches of a cluster by name, and the share of the keys that each has; none if they are not on one machine.
pub fn caches(cluster: &Cluster) -> Vec<(String, Share)> {
    let (run, standing) = (RunDirectory::at(&cluster.run_dir), &cluster.standing.caches);
    let runs = |name: &str| run.is_exposed(&items_region(name));
    let share = |name: &str| match (standing.had_share(name), standing.has_share(name)) {
        (true, true) => {
            if runs(name) {
                Share::Has
            } else {
                Share::Dead
            }
        }
        (false, true) if runs(name) => Share::Takes,
        (true, false) => Share::GivesUp,
        (false, _) => Share::HasNone,
    };
    let caches = cluster.caches.values().filter(|_| cluster.is_of_one_machine());
    caches.map(|cache| (cache.name.clone(), share(&cache.name))).collect()
}

/// The cluster as the parts of one that runs go by it; otherwise as its file has it.
///
/// # Errors
/// If the roster's file cannot be used any more.
pub fn current(cluster: Cluster) -> Result<Cluster, Failure> {
    if cluster.etcd.is_some() {
        return start::current(&cluster);
    }
    let run = RunDirectory::at(&cluster.run_dir);
    let newest = cluster.has_roster().then(|| Roster::read(&run)).flatten();
    // Another cluster in the same directory is refused by its words.
    let Some(newest) = newest.filter(|newest| newest.file.cluster.name == cluster.name) else {
        return Ok(cluster);
    };
    if newest.is_alive(&run) || newest.file == *cluster.file {
        return newest.cluster();
    }
    // As the first part that starts will have it.
    let first = Roster::begun(&cluster, Some(&newest)).cluster()?;
    Ok(Cluster { epoch: 0, ..first })
}

/// The cluster by which a process goes that keeps to what the parts go by, and is none itself.
///
/// # Errors
/// If etcd is not to have its file, or nobody knows the newest.
pub(crate) fn follow(cluster: &Cluster) -> Result<Cluster, Failure> {
    if cluster.etcd.is_none() {
        return Err(Failure::new("the cluster's file has no [etcd]: run `sidelong node NAME` for each node"));
    }
    start::follow(cluster, &RunDirectory::open(&cluster.run_dir)?)
}

/// The cluster by which the part of that name goes, which starts with the file of `cluster`. If it was lost, it is no more.
///
/// # Errors
/// If the run directory cannot be used.
pub(crate) fn enter(cluster: Cluster, part: &str) -> Result<Cluster, Failure> {
    if !cluster.has_roster() {
        return Ok(cluster);
    }
    let run = RunDirectory::open(&cluster.run_dir)?;
    if cluster.etcd.is_some() {
        return start::enter(&cluster, &run, part);
    }
    for _ in 0..LOCKS_MAX {
        let same = Roster::with_file(&run, &cluster.file);
        if let Some(same) = same.filter(|same| !same.standing.lost.contains(part)) {
            // Parsing and checking once more takes as long as it did before.
            let is_as_given = same.slots == SlotTable::of(&cluster);
            return if is_as_given {
                Ok(Cluster { epoch: same.epoch, standing: same.standing, ..cluster })
            } else {
                same.cluster()
            };
        }
        if let Some(_alone) = RunDirectory::open(directory(&run).path())?.lock(LOCK)? {
            return enter_alone(&cluster, &run, part);
        }
    }
    Err(busy())
}

/// What a part goes by that starts, with the roster to itself.
fn enter_alone(cluster: &Cluster, run: &RunDirectory, part: &str) -> Result<Cluster, Failure> {
    let last = Roster::read(run);
    if last.is_none() {
        legible(run)?;
    }
    let last = match last {
        Some(last) if last.file == *cluster.file => last,
        Some(last) if last.is_alive(run) => {
            let (name, place) = (&last.file.cluster.name, run.path().display());
            if *name != cluster.name {
                return Err(Failure::new(format!(
                    "another cluster, {name}, runs in {place}: give this one a run_dir of its own"
                )));
            }
            if Roster::from(cluster).has(part) && !last.has(part) {
                return Err(Failure::new(format!(
                    "{part} is in this file, and not in the cluster that runs: `sidelong reload` has it join"
                )));
            }
            tracing::warn!(
                "the cluster that runs goes by another file than this part was given, and so does this part: `sidelong reload` \
                 has them adopt the file"
            );
            last
        }
        None if Roster::from(cluster).is_alive(run) => {
            return Err(Failure::new(format!(
                "the roster is gone from {}, and the parts that run write it again: try again",
                run.path().display()
            )));
        }
        last => {
            let last = last.filter(|last| last.file.cluster.name == cluster.name);
            let first = Roster::begun(cluster, last.as_ref());
            first.write(run)?;
            first
        }
    };
    if !last.standing.lost.contains(part) {
        return last.cluster();
    }
    let mut next = Roster { epoch: last.epoch + 1, ..last };
    next.standing.lost.remove(part);
    next.write(run)?;
    next.cluster()
}

/// Whether the part that has begun by `cluster` knows the members as the newest roster has them: others see that it is there now, and may
/// not have seen it before.
pub(crate) fn is_newest(cluster: &Cluster, run: &RunDirectory) -> bool {
    if cluster.etcd.is_some() {
        return start::is_newest(cluster);
    }
    !cluster.has_roster()
        || epoch(run).is_none_or(|newest| newest <= cluster.epoch)
        || Roster::read(run).is_none_or(|newest| newest.has_members_of(&Roster::from(cluster)))
}
