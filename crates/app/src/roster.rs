//! The roster: the cluster file by which all parts on a machine go, and its epoch, which grows with each change.
//!
//! The first part that starts writes it from its own cluster file. A part that starts beside others goes by theirs, so that a
//! file that somebody is editing changes nothing until it is adopted ([`crate::reload`]). The roster is a file in a directory of
//! its own in the run directory: a line with a check, one with epoch and slots as JSON, and the cluster file as TOML. There are two copies, and each is replaced
//! whole.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::{
    self as config, CacheStanding, Capacity, Cluster, ClusterFile, FILE_BYTES_MAX, SlotNames, SlotTable,
    Standing,
};
use sidelong_fabric::{Access, Batch, Initiator, RunDirectory};
use sidelong_layout::{
    FrontMap, HEADER_EPOCH, LOAD_SHAPES, Ownership, RegionKind, SiteId, WORDS_BYTES, WORDS_OWNERSHIP, fnv1a,
    mix64,
};
use sidelong_reconfig::{front_region, load_region, words_region};

use crate::fabric::{items_map, items_region};
use crate::failure::Failure;

/// The copies: the first is written last, and read first.
const COPIES: [&str; 2] = ["newest.toml", "copy.toml"];
/// Longest wait for what a part states.
const READ_MAX: Duration = Duration::from_secs(1);
/// Whoever writes it holds this lock.
const LOCK: &str = "lock";
/// Attempts to take it when a part starts. Each waits for a moment.
const LOCKS_MAX: usize = 50;
/// How a copy begins.
const TITLE: &str = "# sidelong roster, check ";

/// A cluster file that parts have adopted.
#[derive(Clone, PartialEq, Debug)]
pub struct Roster {
    /// 1 for the first.
    pub epoch: u64,
    /// Who is not there, or not for long.
    pub standing: Standing,
    /// Who has which slot.
    pub slots: SlotTable,
    /// The file.
    pub file: ClusterFile,
}

/// What stands before the file, as JSON.
#[derive(Serialize, Deserialize)]
struct Head {
    epoch: u64,
    #[serde(flatten)]
    standing: Standing,
    founding: u64,
    /// Slots for sites, nodes, edges and fronts, and caches.
    capacity: [usize; 4],
    /// By slot; `null` for a vacant one.
    sites: Vec<Option<String>>,
    nodes: Vec<Option<String>>,
    fronts: Vec<Option<String>>,
    caches: Vec<Option<String>>,
}

impl Head {
    fn of(roster: &Roster) -> Self {
        let names = |names: &SlotNames| names.0.all().map(Option::<&String>::cloned).collect();
        let SlotTable { sites, nodes, fronts, caches, capacity, founding } = &roster.slots;
        let capacity = capacity.map_or([0; 4], |of| [of.sites, of.nodes, of.fronts, of.caches]);
        Head {
            epoch: roster.epoch,
            standing: roster.standing.clone(),
            founding: founding.unwrap_or_default(),
            capacity,
            sites: names(sites),
            nodes: names(nodes),
            fronts: names(fronts),
            caches: names(caches),
        }
    }

    fn with(self, file: ClusterFile) -> Roster {
        let Head { epoch, standing, founding, capacity: [sites, nodes, fronts, caches], .. } = self;
        let capacity = Some(Capacity { sites, nodes, fronts, caches });
        let names = |names: Vec<Option<String>>| SlotNames(names.into_iter().collect());
        let (sites, nodes) = (names(self.sites), names(self.nodes));
        let (fronts, caches) = (names(self.fronts), names(self.caches));
        let slots = SlotTable { sites, nodes, fronts, caches, capacity, founding: Some(founding) };
        Roster { epoch, standing, slots, file }
    }
}

impl From<&Cluster> for Roster {
    /// The roster by which a part goes.
    fn from(cluster: &Cluster) -> Self {
        Roster {
            epoch: cluster.epoch,
            standing: cluster.standing.clone(),
            slots: SlotTable::of(cluster),
            file: ClusterFile::clone(&cluster.file),
        }
    }
}

impl Roster {
    /// The newest one of a run directory; `None` if there is none, or both copies are damaged.
    pub fn read(run: &RunDirectory) -> Option<Roster> {
        COPIES.iter().find_map(|name| {
            let text = read(run, name).ok()?;
            Roster::parse(&text).inspect_err(|why| tracing::warn!("the roster's {name}: {why}")).ok()
        })
    }

    /// The newest one of a run directory, if that has the same file. A thousand parts may start at once, so the file is not parsed.
    fn with_file(run: &RunDirectory, file: &ClusterFile) -> Option<Roster> {
        let text = read(run, COPIES[0]).ok()?;
        let (head, body) = Roster::checked(&text)?;
        file.to_toml().is_ok_and(|file| file == body).then(|| head.with(file.clone()))
    }

    /// What it means.
    ///
    /// # Errors
    /// If a value is not usable.
    pub fn cluster(&self) -> Result<Cluster, Failure> {
        self.of(&self.file)
    }

    /// What a file of its cluster means, such as what a part takes over of its own.
    ///
    /// # Errors
    /// If a value is not usable.
    pub(crate) fn of(&self, file: &ClusterFile) -> Result<Cluster, Failure> {
        let cluster = file.cluster_after(&self.slots, false)?;
        Ok(Cluster { epoch: self.epoch, standing: self.standing.clone(), ..cluster })
    }

    /// The first roster of a cluster of which no part runs, which begins with that file. If it has the same members as `last`, they keep their
    /// slots, and so what their memory says.
    fn begun(cluster: &Cluster, last: Option<&Roster>) -> Roster {
        let epoch = last.map_or(0, |last| last.epoch) + 1;
        let mut slots = SlotTable::of(cluster);
        match last {
            Some(last) if last.slots.has_all_of(cluster) => slots = last.slots.clone(),
            // What earlier members have left is nobody's.
            Some(_) => slots.founding = Some(mix64(cluster.founding ^ epoch)),
            None => {}
        }
        let file = ClusterFile::clone(&cluster.file);
        let mut standing = Standing::default();
        if let Some(CacheStanding { change, away, entering, .. }) =
            last.map(|last| last.standing.caches.clone())
        {
            // What such a cache has left in its memory was replaced since.
            let is_there = |name: &String| cluster.caches.values().any(|cache| cache.name == *name);
            let away = away.union(&entering).filter(|name| is_there(name)).cloned().collect();
            standing.caches = CacheStanding { change: change + 1, away, ..CacheStanding::default() };
        }
        Roster { epoch, standing, slots, file }
    }

    /// The slots of those whom `file` has. Slots that are vacant are given away if all parts that run go by this roster: then nobody means
    /// who had them.
    ///
    /// # Errors
    /// If the file cannot be used, or has more members than there are slots.
    pub(crate) fn seated(&self, file: &ClusterFile, run: &RunDirectory) -> Result<SlotTable, Failure> {
        let all_know =
            self.epochs(run).iter().all(|(_, epoch)| epoch.is_some_and(|epoch| epoch >= self.epoch));
        let cluster = file.cluster_after(&self.slots, all_know)?;
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

    /// Whether the other one has the same members, and the same of them are about to leave.
    pub(crate) fn has_members_of(&self, other: &Roster) -> bool {
        let leaving = |of: &Roster| [of.standing.leaving.clone(), of.standing.closing.clone()];
        self.slots == other.slots && leaving(self) == leaving(other)
    }

    /// Whether a node, edge, front or cache of it has that name.
    pub fn has(&self, name: &str) -> bool {
        let SlotTable { nodes, fronts, caches, .. } = &self.slots;
        [nodes, fronts, caches].into_iter().any(|names| names.0.position(|known| known == name).is_some())
    }

    /// Whether a part of it runs.
    pub fn is_alive(&self, run: &RunDirectory) -> bool {
        self.parts().iter().any(|part| run.is_exposed(&part.region))
    }

    /// The epoch by which each part that runs goes; `None` where that cannot be read.
    pub fn epochs(&self, run: &RunDirectory) -> Vec<(String, Option<u64>)> {
        Roster::epochs_of(self.parts().into_iter(), run)
    }

    /// The epochs of the caches alone.
    pub(crate) fn cache_epochs(&self, run: &RunDirectory) -> Vec<(String, Option<u64>)> {
        let is_cache = |part: &Part| part.shapes.iter().any(|(kind, _)| *kind == RegionKind::Cache);
        Roster::epochs_of(self.parts().into_iter().filter(is_cache), run)
    }

    fn epochs_of(parts: impl Iterator<Item = Part>, run: &RunDirectory) -> Vec<(String, Option<u64>)> {
        let mut initiator = Initiator::new();
        let parts = parts.filter(|part| run.is_exposed(&part.region));
        parts.map(|part| (part.name.clone(), part.epoch(run, &mut initiator))).collect()
    }

    /// Each part, and where it states its epoch.
    fn parts(&self) -> Vec<Part> {
        let Ok(cluster) = self.cluster() else { return Vec::new() };
        let fronts = vec![(RegionKind::Front, FrontMap { nodes: cluster.capacity.nodes }.len())];
        let front = |front: &config::Front| Part {
            region: front_region(&front.name),
            name: front.name.clone(),
            shapes: fronts.clone(),
        };
        let node = |node: &config::Node| Part {
            region: load_region(&node.name),
            name: node.name.clone(),
            shapes: LOAD_SHAPES.to_vec(),
        };
        let cache = |peer: &config::CachePeer| Part {
            region: items_region(&peer.name),
            name: peer.name.clone(),
            shapes: vec![(RegionKind::Cache, items_map(&cluster, peer).len())],
        };
        let nodes = cluster.nodes.values().map(node);
        nodes.chain(cluster.fronts.values().map(front)).chain(cluster.caches.values().map(cache)).collect()
    }

    /// The head and the file of a copy that is whole.
    fn checked(text: &str) -> Option<(Head, &str)> {
        let (title, rest) = text.split_once('\n')?;
        let (head, body) = rest.strip_prefix("# ")?.split_once('\n')?;
        (title.strip_prefix(TITLE)? == fnv1a(rest.as_bytes()).to_string()).then_some(())?;
        Some((serde_json::from_str(head).ok()?, body))
    }

    fn parse(text: &str) -> Result<Roster, String> {
        let (head, body) = Roster::checked(text).ok_or("it was damaged, or cut short")?;
        let file = ClusterFile::parse(body, COPIES[0]).map_err(|error| error.to_string())?;
        Ok(head.with(file))
    }

    fn text(&self) -> Result<String, Failure> {
        let (head, body) = (serde_json::to_string(&Head::of(self))?, self.file.to_toml()?);
        let rest = format!("# {head}\n{body}");
        Ok(format!("{TITLE}{}\n{rest}", fnv1a(rest.as_bytes())))
    }

    fn write(&self, run: &RunDirectory) -> Result<(), Failure> {
        let text = self.text()?;
        let written = COPIES.iter().rev().try_for_each(|name| place(run).replace(name, text.as_bytes()));
        written.map_err(|error| {
            Failure::new(format!("cannot write the roster in {}: {error}", run.path().display()))
        })
    }
}

/// A part, and the region in whose header it states its epoch.
struct Part {
    name: String,
    region: String,
    shapes: Vec<(RegionKind, usize)>,
}

impl Part {
    fn epoch(&self, run: &RunDirectory, initiator: &mut Initiator) -> Option<u64> {
        read_word(run, initiator, (&self.region, &self.shapes), HEADER_EPOCH)
    }
}

/// A word in the memory of another process on this machine.
fn read_word(
    run: &RunDirectory,
    initiator: &mut Initiator,
    (region, shapes): (&str, &[(RegionKind, usize)]),
    offset: usize,
) -> Option<u64> {
    let (link, _) = initiator.connect_shaped(run, region, shapes, 0, Access::ReadOnly, READ_MAX).ok()?;
    let mut batch = Batch::new();
    let read = batch.read(link, offset, 8);
    initiator.run(&mut batch, READ_MAX);
    initiator.close(link);
    batch.value(read).ok()
}

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
    let caches = cluster.caches.values().filter(|_| cluster.has_roster());
    caches.map(|cache| (cache.name.clone(), share(&cache.name))).collect()
}

/// The directory of the roster.
pub(crate) fn place(run: &RunDirectory) -> RunDirectory {
    RunDirectory::at(run.path().join("roster"))
}

/// The epoch of the newest roster, which is not parsed; `None` if there is none, or both copies are damaged.
pub fn epoch(run: &RunDirectory) -> Option<u64> {
    COPIES.iter().find_map(|name| {
        let text = read(run, name).ok()?;
        Roster::checked(&text).map(|(head, _)| head.epoch)
    })
}

/// How long ago the newest roster was written.
pub fn age(run: &RunDirectory) -> Option<Duration> {
    let written = std::fs::metadata(place(run).path().join(COPIES[0])).and_then(|found| found.modified());
    written.ok()?.elapsed().ok()
}

/// The cluster as the parts of one that runs go by it; otherwise as its file has it.
///
/// # Errors
/// If the roster's file cannot be used any more.
pub fn current(cluster: Cluster) -> Result<Cluster, Failure> {
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

/// The cluster by which the part of that name goes, which starts with the file of `cluster`. If it was lost, it is no more.
///
/// # Errors
/// If the run directory cannot be used.
pub(crate) fn enter(cluster: Cluster, part: &str) -> Result<Cluster, Failure> {
    if !cluster.has_roster() {
        return Ok(cluster);
    }
    let run = RunDirectory::open(&cluster.run_dir)?;
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
        if let Some(_alone) = RunDirectory::open(place(&run).path())?.lock(LOCK)? {
            return enter_alone(&cluster, &run, part);
        }
    }
    Err(busy())
}

/// What a part goes by that starts, with the roster to itself.
fn enter_alone(cluster: &Cluster, run: &RunDirectory, part: &str) -> Result<Cluster, Failure> {
    let last = Roster::read(run);
    let last = match last {
        Some(last) if last.file == *cluster.file => last,
        Some(last) if last.is_alive(run) => {
            let (name, place) = (&last.file.cluster.name, run.path().display());
            if *name != cluster.name {
                return Err(Failure::new(format!(
                    "another cluster, {name}, runs in {place}: give this one a run_dir of its own"
                )));
            }
            if has_part(cluster, part) && !last.has(part) {
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

/// Whether a node, edge, front or cache of the cluster has that name.
fn has_part(cluster: &Cluster, name: &str) -> bool {
    let is_node = cluster.nodes.values().any(|node| node.name == name);
    is_node
        || cluster.fronts.values().any(|front| front.name == name)
        || cluster.caches.values().any(|cache| cache.name == name)
}

/// Changes the newest one by `edit`, and returns it. It is still as `last`, but for edges and fronts that were lost or have started since,
/// and for the shares of caches.
///
/// # Errors
/// If somebody else has changed it meanwhile, or it cannot be written.
pub(crate) fn change(
    run: &RunDirectory,
    last: &Roster,
    edit: impl FnOnce(&mut Roster),
) -> Result<Roster, Failure> {
    let _alone = lock(run)?;
    let mut next = Roster::read(run).unwrap_or_else(|| last.clone());
    if !next.has_members_of(last) || next.file != last.file {
        return Err(Failure::new(
            "somebody else has changed the cluster at this moment: look, and try again",
        ));
    }
    edit(&mut next);
    next.epoch = next.epoch.max(last.epoch) + 1;
    next.write(run)?;
    Ok(next)
}

/// Writes one again that was lost, or replaced by an older one.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn restore(run: &RunDirectory, lost: &Roster) -> Result<(), Failure> {
    let _alone = lock(run)?;
    let is_older = |newest: Roster| newest.epoch < lost.epoch;
    if Roster::read(run).is_none_or(is_older) { lost.write(run) } else { Ok(()) }
}

/// Whether the part that has begun by `cluster` knows the members as the newest roster has them: others see that it is there now, and may
/// not have seen it before.
pub(crate) fn is_newest(cluster: &Cluster, run: &RunDirectory) -> bool {
    !cluster.has_roster()
        || epoch(run).is_none_or(|newest| newest <= cluster.epoch)
        || Roster::read(run).is_none_or(|newest| newest.has_members_of(&Roster::from(cluster)))
}

/// Lets others know that a part refuses the roster of that epoch, and why.
pub(crate) fn refuse(run: &RunDirectory, part: &str, epoch: u64, why: &str) {
    let written = place(run).replace(&refusal(part), format!("{epoch} {why}\n").as_bytes());
    let _ = written.inspect_err(|error| tracing::warn!(%error, "cannot write down why"));
}

/// Why a part refuses the roster of that epoch, if it does.
pub fn refused(run: &RunDirectory, part: &str, epoch: u64) -> Option<String> {
    let text = read(run, &refusal(part)).ok()?;
    let (of, why) = text.trim_end().split_once(' ')?;
    (of == epoch.to_string()).then(|| why.to_owned())
}

/// Removes what a part has left that is gone.
pub(crate) fn forget(run: &RunDirectory, part: &str) {
    let _ = std::fs::remove_file(place(run).path().join(refusal(part)));
}

fn refusal(part: &str) -> String {
    format!("{part}.refused")
}

fn lock(run: &RunDirectory) -> Result<File, Failure> {
    RunDirectory::open(place(run).path())?.lock(LOCK)?.ok_or_else(busy)
}

pub(crate) fn busy() -> Failure {
    Failure::new("somebody else is changing the cluster at this moment: try again")
}

fn read(run: &RunDirectory, name: &str) -> io::Result<String> {
    let mut text = String::new();
    // The line, and what TOML makes longer of a file.
    place(run).read(name)?.take(4 * FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
