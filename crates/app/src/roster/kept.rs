//! What a run directory keeps of the roster, and what parts state there.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::{
    self as config, CacheStanding, Capacity, Cluster, ClusterFile, FILE_BYTES_MAX, Hosts, SlotNames,
    SlotTable, Standing,
};
use sidelong_fabric::{Access, Batch, Initiator, RunDirectory};
use sidelong_layout::{FrontMap, HEADER_EPOCH, LOAD_SHAPES, RegionKind, fnv1a, mix64};
use sidelong_reconfig::{front_region, load_region};

use crate::fabric::{items_map, items_region};
use crate::failure::Failure;

/// The copies: the first is written last, and read first.
pub(super) const COPIES: [&str; 2] = ["newest.toml", "copy.toml"];
/// Longest wait for what a part states.
const READ_MAX: Duration = Duration::from_secs(1);
/// Whoever writes it holds this lock.
pub(super) const LOCK: &str = "lock";
/// Whoever fetches newer rosters from etcd holds this lock.
pub(super) const FETCHING: &str = "etcd.lock";
/// What a roster that is put back into etcd is ahead of the newest that is known: parts that do not answer may know newer ones.
pub(super) const RESTORED: u64 = 1000;
/// What is wrong with etcd, if anything.
pub(super) const TROUBLE: &str = "etcd.trouble";
/// The latest addition to rosters that this release knows: 1 is that the board may be handed over. A roster that uses a later one is of a newer
/// release, and this one would drop what that means.
const KNOWN: u32 = 1;
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
    /// The file as a person wrote it, if etcd has it.
    pub text: Option<String>,
    /// What the hosts that are named there meant when it was read.
    pub(crate) hosts: Hosts,
}

/// What stands before the file, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) epoch: u64,
    /// The latest addition that it uses.
    #[serde(default)]
    needs: u32,
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
    pub(super) fn of(roster: &Roster) -> Self {
        let names = |names: &SlotNames| names.0.all().map(Option::<&String>::cloned).collect();
        let SlotTable { sites, nodes, fronts, caches, capacity, founding } = &roster.slots;
        let capacity = capacity.map_or([0; 4], |of| [of.sites, of.nodes, of.fronts, of.caches]);
        Head {
            epoch: roster.epoch,
            needs: u32::from(roster.standing.board.term > 0),
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
        Roster { epoch, standing, slots, file, text: None, hosts: Hosts::new() }
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
            text: None,
            hosts: Hosts::new(),
        }
    }
}

impl Roster {
    /// The newest one of a run directory; `None` if there is none, or both copies are damaged.
    pub fn read(run: &RunDirectory) -> Option<Roster> {
        COPIES.iter().find_map(|name| {
            let text = read(run, name).ok()?;
            Roster::parse(&text, run).inspect_err(|why| tracing::warn!("the roster's {name}: {why}")).ok()
        })
    }

    /// Likewise, if it is of a cluster whose file etcd has: one of one machine may have left another there.
    pub(super) fn from_etcd(run: &RunDirectory) -> Option<Roster> {
        Roster::read(run).filter(|here| here.file.etcd.is_some())
    }

    /// The newest one of a run directory, if that has the same file. A thousand parts may start at once, so the file is not parsed.
    pub(super) fn with_file(run: &RunDirectory, file: &ClusterFile) -> Option<Roster> {
        let text = read(run, COPIES[0]).ok()?;
        let (head, body) = Roster::checked(&text)?;
        let is_it = head.needs <= KNOWN && file.to_toml().is_ok_and(|file| file == body);
        is_it.then(|| head.with(file.clone()))
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
    pub(super) fn begun(cluster: &Cluster, last: Option<&Roster>) -> Roster {
        let epoch = last.map_or(0, |last| last.epoch) + 1;
        let mut slots = SlotTable::of(cluster);
        match last {
            Some(last) if last.slots.has_all_of(cluster) => slots = last.slots.clone(),
            // What earlier members have left is nobody's.
            Some(_) => slots.founding = Some(mix64(cluster.founding ^ epoch)),
            None => {}
        }
        let mut standing = Standing::default();
        if let Some(CacheStanding { change, away, entering, .. }) =
            last.map(|last| last.standing.caches.clone())
        {
            // What such a cache has left in its memory was replaced since.
            let is_there = |name: &String| cluster.caches.values().any(|cache| cache.name == *name);
            let away = away.union(&entering).filter(|name| is_there(name)).cloned().collect();
            standing.caches = CacheStanding { change: change + 1, away, ..CacheStanding::default() };
        }
        Roster { epoch, standing, slots, ..Roster::from(cluster) }
    }

    /// The one after it, which has another file and nobody away. Parts find the hosts in it when they read it.
    pub(crate) fn next(&self, slots: SlotTable, file: ClusterFile, text: Option<String>) -> Roster {
        let (epoch, standing) = (self.epoch + 1, Standing::default());
        Roster { epoch, standing, slots, file, text, hosts: Hosts::new() }
    }

    /// Whether the other one has the same members, and the same of them are about to leave.
    pub(crate) fn has_members_of(&self, other: &Roster) -> bool {
        let leaving = |of: &Roster| [of.standing.leaving.clone(), of.standing.closing.clone()];
        self.slots == other.slots && leaving(self) == leaving(other)
    }

    /// Checks that this one, which etcd has, was founded with `here`.
    ///
    /// # Errors
    /// If it is another cluster's.
    pub(super) fn is_of_cluster(&self, here: &Roster) -> Result<(), Failure> {
        if self.slots.founding == here.slots.founding {
            return Ok(());
        }
        Err(Failure::new(format!(
            "etcd has another cluster by the name {0}: give one of them another name, or another etcd. If nobody needs that one, `etcdctl del \
             /sidelong/{0}/roster`, and then `sidelong cluster restore`",
            self.file.cluster.name
        )))
    }

    /// Checks that nobody has changed it since it was `last`.
    ///
    /// # Errors
    /// If somebody has.
    pub(crate) fn is_still(&self, last: &Roster) -> Result<(), Failure> {
        let has_same_file = if self.text.is_some() && last.text.is_some() {
            // What its hosts mean may have changed meanwhile.
            self.text == last.text
        } else {
            self.file == last.file
        };
        let has_same_board = self.standing.board == last.standing.board;
        if self.has_members_of(last) && has_same_file && has_same_board {
            return Ok(());
        }
        Err(Failure::new("somebody else has changed the cluster at this moment: look, and try again"))
    }

    /// Has it go by another one's file, and the slots of that.
    pub(crate) fn take_file(&mut self, of: &Roster) {
        *self = Roster { epoch: self.epoch, standing: self.standing.clone(), ..of.clone() };
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

    /// Each part, and where it states its epoch.
    pub(super) fn parts(&self) -> Vec<Part> {
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
    pub(super) fn checked(text: &str) -> Option<(Head, &str)> {
        let (title, rest) = text.split_once('\n')?;
        let (head, body) = rest.strip_prefix("# ")?.split_once('\n')?;
        (title.strip_prefix(TITLE)? == fnv1a(rest.as_bytes()).to_string()).then_some(())?;
        Some((serde_json::from_str(head).ok()?, body))
    }

    /// One that is kept in a run directory, or in etcd for the parts that have that run directory.
    pub(super) fn parse(text: &str, run: &RunDirectory) -> Result<Roster, String> {
        let (head, body) = Roster::checked(text).ok_or("it was damaged, or cut short")?;
        if head.needs > KNOWN {
            return Err("it is of a newer release than this one: upgrade this machine".to_owned());
        }
        let (mut file, hosts) =
            ClusterFile::parse_adopted(body, COPIES[0]).map_err(|error| error.to_string())?;
        let text = file.etcd.is_some().then(|| body.to_owned());
        if text.is_some() {
            file.cluster.run_dir = Some(run.path().to_owned());
        }
        Ok(Roster { text, hosts, ..head.with(file) })
    }

    /// This roster, by what its hosts mean now.
    ///
    /// # Errors
    /// If it cannot be used so.
    pub(crate) fn found_again(&self, run: &RunDirectory) -> Result<Roster, Failure> {
        Roster::parse(&self.entry()?, run).map_err(Failure::new)
    }

    /// As it is kept.
    pub(super) fn entry(&self) -> Result<String, Failure> {
        let written = self.text.is_none().then(|| self.file.to_toml()).transpose()?;
        let body = self.text.as_ref().or(written.as_ref()).map_or("", String::as_str);
        let head = serde_json::to_string(&Head::of(self))?;
        let rest = format!("# {head}\n{body}");
        Ok(format!("{TITLE}{}\n{rest}", fnv1a(rest.as_bytes())))
    }

    pub(super) fn write(&self, run: &RunDirectory) -> Result<(), Failure> {
        let text = self.entry()?;
        let written = COPIES.iter().rev().try_for_each(|name| directory(run).replace(name, text.as_bytes()));
        written.map_err(|error| {
            Failure::new(format!("cannot write the roster in {}: {error}", run.path().display()))
        })?;
        Ok(())
    }

    /// Has the machine keep it for when its run directory is empty, if the file that it has of `cluster` says where.
    pub(super) fn keep_over_restart(&self, cluster: &Cluster) {
        let Some(state) = cluster.etcd.as_ref().and_then(|etcd| etcd.state_dir.as_ref()) else { return };
        let written = RunDirectory::open(state).map_err(Failure::from).and_then(|state| {
            Ok(state.replace(&kept_name(&self.file.cluster.name), self.entry()?.as_bytes())?)
        });
        if let Err(Failure(why)) = written {
            tracing::warn!("after a restart of this machine no part starts without etcd, because {why}");
        }
    }

    /// What this machine keeps, for when its run directory is empty.
    pub(super) fn kept(cluster: &Cluster, run: &RunDirectory) -> Option<Roster> {
        let state = RunDirectory::at(cluster.etcd.as_ref()?.state_dir.as_ref()?);
        let text = read_all(state.read(&kept_name(&cluster.name)).ok()?).ok()?;
        Roster::parse(&text, run)
            .inspect_err(|why| tracing::warn!("the roster in {}: {why}", state.path().display()))
            .ok()
    }
}

/// A part, and the region in whose header it states its epoch.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) region: String,
    pub(super) shapes: Vec<(RegionKind, usize)>,
}

impl Part {
    pub(super) fn epoch(&self, run: &RunDirectory, initiator: &mut Initiator) -> Option<u64> {
        read_word(run, initiator, (&self.region, &self.shapes), HEADER_EPOCH)
    }
}

/// A word in the memory of another process on this machine.
pub(super) fn read_word(
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

/// The directory of the roster.
pub(crate) fn directory(run: &RunDirectory) -> RunDirectory {
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
    let written = std::fs::metadata(directory(run).path().join(COPIES[0])).and_then(|found| found.modified());
    written.ok()?.elapsed().ok()
}

/// Changes the newest one by `edit`, and returns it. It is still as `last`, but for edges and fronts that were lost or have started since,
/// and for the shares of caches.
///
/// # Errors
/// If somebody else has changed it meanwhile, or it cannot be written.
pub(super) fn change(
    run: &RunDirectory,
    last: &Roster,
    mut edit: impl FnMut(&mut Roster),
) -> Result<Roster, Failure> {
    let _alone = lock(run)?;
    let mut next = match Roster::read(run) {
        Some(next) => next,
        None => legible(run).map(|()| last.clone())?,
    };
    next.is_still(last)?;
    edit(&mut next);
    next.epoch = next.epoch.max(last.epoch) + 1;
    next.write(run)?;
    Ok(next)
}

/// Whether what a run directory has is no roster that this release cannot read: it is not to be written over.
///
/// # Errors
/// If it is, with the reason.
pub(crate) fn legible(run: &RunDirectory) -> Result<(), Failure> {
    let whole =
        COPIES.iter().find_map(|name| read(run, name).ok().filter(|text| Roster::checked(text).is_some()));
    let Some(Err(why)) = whole.map(|text| Roster::parse(&text, run)) else { return Ok(()) };
    let place = directory(run).path().display().to_string();
    Err(Failure::new(format!("the roster in {place} cannot be used: {why}")))
}

/// Keeps one that is newer than what is there; it may have been lost, or replaced by an older one.
///
/// # Errors
/// If it cannot be written, or parts of a cluster of one machine run there, and this one is of several.
pub(crate) fn keep(run: &RunDirectory, newer: &Roster) -> Result<(), Failure> {
    if !is_newest(run, newer)? {
        return Ok(());
    }
    let _alone = lock(run)?;
    if is_newest(run, newer)? { newer.write(run) } else { Ok(()) }
}

/// Whether a roster is newer than what is there. One that a cluster of one machine has left there is older than any that etcd has.
fn is_newest(run: &RunDirectory, newer: &Roster) -> Result<bool, Failure> {
    // One of a newer release cannot be read, and has an epoch nevertheless.
    let Some(here) = Roster::read(run) else { return Ok(epoch(run).is_none_or(|epoch| epoch < newer.epoch)) };
    if newer.file.etcd.is_none() || here.file.etcd.is_some() {
        return Ok(here.epoch < newer.epoch);
    }
    if here.is_alive(run) {
        return Err(Failure::new(format!(
            "parts of a cluster of one machine run in {}: end them first",
            run.path().display()
        )));
    }
    Ok(true)
}

/// The highest epoch that a part has seen, for its next life. A front keeps those that the board has had, and may then begin while the board
/// is away. A node keeps those by which it has begun.
pub(crate) struct SeenEpoch {
    /// The run directory, and what outlives a restart of the machine.
    places: Vec<(RunDirectory, String)>,
    founding: u64,
}

impl SeenEpoch {
    /// Of the part of that name.
    pub(crate) fn of(part: &str, cluster: &Cluster, run: &RunDirectory) -> Self {
        let state = cluster.etcd.as_ref().and_then(|etcd| etcd.state_dir.as_ref());
        let state = state.map(|state| (RunDirectory::at(state), format!("{}.{}", cluster.name, seen(part))));
        let places = [(directory(run), seen(part))].into_iter().chain(state).collect();
        SeenEpoch { places, founding: cluster.founding }
    }

    /// 0 if none is known of this cluster, as it was founded.
    pub(crate) fn read(&self) -> u64 {
        let read = |(place, name): &(RunDirectory, String)| {
            let text = read_all(place.read(name).ok()?).ok()?;
            let (of, epoch) = text.trim_end().split_once(' ')?;
            epoch.parse().ok().filter(|_| of.parse() == Ok(self.founding))
        };
        self.places.iter().filter_map(read).max().unwrap_or(0)
    }

    /// Keeps a higher one wherever it can be written.
    ///
    /// # Errors
    /// If that is not all places where it belongs.
    pub(crate) fn keep(&self, epoch: u64) -> io::Result<()> {
        let text = format!("{} {epoch}\n", self.founding);
        // One may be full, and the other not.
        let kept: Vec<_> =
            self.places.iter().map(|(place, name)| place.replace(name, text.as_bytes())).collect();
        kept.into_iter().collect()
    }
}

fn seen(part: &str) -> String {
    format!("{part}.seen")
}

/// Lets others know that a part refuses the roster of that epoch, and why.
pub(crate) fn refuse(run: &RunDirectory, part: &str, epoch: u64, why: &str) {
    let written = directory(run).replace(&refusal(part), format!("{epoch} {why}\n").as_bytes());
    let _ = written.inspect_err(|error| tracing::warn!(%error, "cannot write down why"));
}

/// The epoch of the roster that a part has refused last, and why.
pub(super) fn refusal_of(run: &RunDirectory, part: &str) -> Option<(u64, String)> {
    let text = read(run, &refusal(part)).ok()?;
    let (of, why) = text.trim_end().split_once(' ')?;
    Some((of.parse().ok()?, why.to_owned()))
}

/// Removes what a part has left that is gone.
pub(crate) fn forget(run: &RunDirectory, part: &str) {
    for name in [refusal(part), seen(part)] {
        let _ = std::fs::remove_file(directory(run).path().join(name));
    }
}

fn refusal(part: &str) -> String {
    format!("{part}.refused")
}

pub(super) fn lock(run: &RunDirectory) -> Result<File, Failure> {
    RunDirectory::open(directory(run).path())?.lock(LOCK)?.ok_or_else(busy)
}

pub(crate) fn busy() -> Failure {
    Failure::new("somebody else is changing the cluster at this moment: try again")
}

pub(super) fn read(run: &RunDirectory, name: &str) -> io::Result<String> {
    read_all(directory(run).read(name)?)
}

fn read_all(file: File) -> io::Result<String> {
    let mut text = String::new();
    // The line, and what TOML makes longer of a file.
    file.take(4 * FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The file in which a machine keeps the roster of that cluster.
fn kept_name(cluster: &str) -> String {
    format!("{cluster}.roster.toml")
}

/// What is wrong with etcd, as the parts on this machine see it.
pub(crate) fn trouble(run: &RunDirectory) -> Option<String> {
    read(run, TROUBLE).ok().filter(|text| !text.is_empty())
}

/// Whether a part on this machine fetches newer rosters.
pub(super) fn is_fetched(run: &RunDirectory) -> bool {
    directory(run).is_locked(FETCHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_part_has_seen_outlives_a_restart_of_its_machine() {
        let directory = tempfile::tempdir().unwrap();
        let [run, state] = ["run", "state"].map(|name| directory.path().join(name));
        for place in [run.join("roster"), state.clone()] {
            RunDirectory::open(place).unwrap();
        }
        let etcd = config::Etcd { state_dir: Some(state), ..config::Etcd::default() };
        let cluster = Cluster { etcd: Some(etcd), ..ClusterFile::demo().cluster().unwrap() };
        let of = |part: &str, cluster: &Cluster| SeenEpoch::of(part, cluster, &RunDirectory::at(&run));
        assert_eq!(of("edge1", &cluster).read(), 0);
        of("edge1", &cluster).keep(7).unwrap();
        let of_run_dir_alone = Cluster { etcd: None, ..cluster.clone() };
        assert_eq!(of("edge1", &of_run_dir_alone).read(), 7);
        std::fs::remove_dir_all(&run).unwrap();
        assert_eq!(of("edge1", &of_run_dir_alone).read(), 0);
        assert_eq!(of("edge1", &cluster).read(), 7);
        assert_eq!(of("edge2", &cluster).read(), 0);
        let of_another = Cluster { founding: cluster.founding + 1, ..cluster };
        assert_eq!(of("edge1", &of_another).read(), 0);
    }
}
