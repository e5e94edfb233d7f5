//! The roster: the cluster file by which all parts on a machine go, and its epoch, which grows with each change.
//!
//! The first part that starts writes it from its own cluster file. A part that starts beside others goes by theirs, so that a
//! file that somebody is editing changes nothing until it is adopted ([`crate::reload`]). The roster is a file in a directory of
//! its own in the run directory: a line about it, and the cluster file as TOML. There are two copies, and each is replaced
//! whole.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use sidelong_config::{self as config, Cluster, ClusterFile, FILE_BYTES_MAX, Fabric};
use sidelong_fabric::{Access, Batch, Initiator, RunDirectory};
use sidelong_layout::{FrontMap, HEADER_EPOCH, LOAD_SHAPES, RegionKind, fnv1a};
use sidelong_reconfig::{front_region, load_region};

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
const TITLE: &str = "# sidelong roster";

/// A cluster file that parts have adopted.
#[derive(Clone, PartialEq, Debug)]
pub struct Roster {
    /// 1 for the first.
    pub epoch: u64,
    /// See [`Cluster::lost`].
    pub lost: BTreeSet<String>,
    /// The file.
    pub file: ClusterFile,
}

impl Roster {
    /// The newest one of a run directory; `None` if there is none, or both copies are damaged.
    pub fn read(run: &RunDirectory) -> Option<Roster> {
        COPIES.iter().find_map(|name| {
            let text = read(run, name).ok()?;
            Roster::parse(&text).inspect_err(|why| tracing::warn!("the roster's {name}: {why}")).ok()
        })
    }

    /// The epoch of the newest one of a run directory, and who is lost, if that has the same file. A thousand parts may start
    /// at once, so it is not parsed.
    fn with_file(run: &RunDirectory, file: &ClusterFile) -> Option<(u64, BTreeSet<String>)> {
        let text = read(run, COPIES[0]).ok()?;
        let (epoch, lost, body) = Roster::checked(&text)?;
        file.to_toml().is_ok_and(|file| file == body).then_some((epoch, lost))
    }

    /// What it means.
    ///
    /// # Errors
    /// If a value is not usable.
    pub fn cluster(&self) -> Result<Cluster, Failure> {
        Ok(self.of(self.file.cluster()?))
    }

    /// A cluster of this roster, which was made of its file, or of what a part takes over of that.
    pub(crate) fn of(&self, cluster: Cluster) -> Cluster {
        Cluster { epoch: self.epoch, lost: self.lost.clone(), ..cluster }
    }

    /// The next one, with what `file` still has of those that were lost.
    pub(crate) fn followed_by(&self, file: ClusterFile) -> Roster {
        let edges = file.edges.iter().map(|edge| &edge.name);
        let names: BTreeSet<_> = edges.chain(file.fronts.iter().map(|front| &front.name)).collect();
        let lost = self.lost.iter().filter(|name| names.contains(name)).cloned().collect();
        Roster { epoch: self.epoch + 1, lost, file }
    }

    /// Whether a part of it runs.
    pub fn is_alive(&self, run: &RunDirectory) -> bool {
        self.parts().iter().any(|part| run.is_exposed(&part.region))
    }

    /// The epoch by which each part that runs goes; `None` where that cannot be read.
    pub fn epochs(&self, run: &RunDirectory) -> Vec<(String, Option<u64>)> {
        let mut initiator = Initiator::new();
        let parts = self.parts().into_iter().filter(|part| run.is_exposed(&part.region));
        parts.map(|part| (part.name.clone(), part.epoch(run, &mut initiator))).collect()
    }

    /// Each part, and where it states its epoch.
    fn parts(&self) -> Vec<Part> {
        let Ok(cluster) = self.cluster() else { return Vec::new() };
        let fronts = vec![(RegionKind::Front, FrontMap { nodes: cluster.nodes.len() }.len())];
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
        cluster.nodes.iter().map(node).chain(cluster.fronts.iter().map(front)).collect()
    }

    /// The epoch, who is lost, and the file, of a copy that is whole.
    fn checked(text: &str) -> Option<(u64, BTreeSet<String>, &str)> {
        let (title, body) = text.split_once('\n')?;
        let (head, sum) = title.strip_prefix(TITLE)?.split_once(" check ")?;
        let (epoch, lost) = head.strip_prefix(" epoch ")?.split_once(" lost ")?;
        let lost = lost.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        (sum == check(head, body).to_string()).then_some((epoch.parse().ok()?, lost, body))
    }

    fn parse(text: &str) -> Result<Roster, String> {
        let (epoch, lost, body) = Roster::checked(text).ok_or("it was damaged, or cut short")?;
        let file = ClusterFile::parse(body, COPIES[0]).map_err(|error| error.to_string())?;
        Ok(Roster { epoch, lost, file })
    }

    fn text(&self) -> Result<String, Failure> {
        let body = self.file.to_toml()?;
        let lost: Vec<_> = self.lost.iter().map(String::as_str).collect();
        let head = format!(" epoch {} lost {}", self.epoch, lost.join(","));
        let sum = check(&head, &body);
        Ok(format!("{TITLE}{head} check {sum}\n{body}"))
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
        let (shapes, access) = (&self.shapes, Access::ReadOnly);
        let (link, _) = initiator.connect_shaped(run, &self.region, shapes, 0, access, READ_MAX).ok()?;
        let mut batch = Batch::new();
        let read = batch.read(link, HEADER_EPOCH, 8);
        initiator.run(&mut batch, READ_MAX);
        initiator.close(link);
        batch.value(read).ok()
    }
}

/// The directory of the roster.
pub(crate) fn place(run: &RunDirectory) -> RunDirectory {
    RunDirectory::at(run.path().join("roster"))
}

/// The epoch of the newest roster, which is not parsed; `None` if there is none, or both copies are damaged.
pub(crate) fn epoch(run: &RunDirectory) -> Option<u64> {
    COPIES.iter().find_map(|name| {
        let text = read(run, name).ok()?;
        Roster::checked(&text).map(|(epoch, ..)| epoch)
    })
}

/// Whether parts of that cluster have a roster: they share the memory of one machine, and more than caches.
pub fn has_one(cluster: &Cluster) -> bool {
    let shares = matches!(cluster.fabric, Fabric::Auto | Fabric::Shm);
    cluster.secret.is_none() && shares && !cluster.has_only_caches()
}

/// The cluster as the parts of one that runs go by it; otherwise as its file has it.
///
/// # Errors
/// If the roster's file cannot be used any more.
pub fn current(cluster: Cluster) -> Result<Cluster, Failure> {
    let run = RunDirectory::at(&cluster.run_dir);
    let newest = has_one(&cluster).then(|| Roster::read(&run)).flatten();
    // Another cluster in the same directory is refused by its words.
    let newest = newest.filter(|newest| newest.file.cluster.name == cluster.name);
    match newest.filter(|newest| newest.is_alive(&run)) {
        // As whoever has it may have changed it since.
        Some(newest) if newest.file == *cluster.file => Ok(newest.of(cluster)),
        Some(newest) => newest.cluster(),
        None => Ok(cluster),
    }
}

/// The cluster by which the part of that name goes, which starts with the file of `cluster`. If it was lost, it is no more.
///
/// # Errors
/// If the run directory cannot be used.
pub(crate) fn enter(cluster: Cluster, part: &str) -> Result<Cluster, Failure> {
    if !has_one(&cluster) {
        return Ok(cluster);
    }
    let run = RunDirectory::open(&cluster.run_dir)?;
    for _ in 0..LOCKS_MAX {
        let same = Roster::with_file(&run, &cluster.file);
        if let Some((epoch, lost)) = same.filter(|(_, lost)| !lost.contains(part)) {
            return Ok(Cluster { epoch, lost, ..cluster });
        }
        if let Some(_alone) = RunDirectory::open(place(&run).path())?.lock(LOCK)? {
            return enter_alone(cluster, &run, part);
        }
    }
    Err(busy())
}

/// What a part goes by that starts, with the roster to itself.
fn enter_alone(cluster: Cluster, run: &RunDirectory, part: &str) -> Result<Cluster, Failure> {
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
            tracing::warn!(
                "the cluster that runs goes by another file than this part was given, and so does this part: `sidelong reload` \
                 has them adopt the file"
            );
            last
        }
        last => {
            let (epoch, file) = (last.map_or(0, |last| last.epoch) + 1, ClusterFile::clone(&cluster.file));
            let first = Roster { epoch, lost: BTreeSet::new(), file };
            first.write(run)?;
            first
        }
    };
    if !last.lost.contains(part) {
        return if last.file == *cluster.file { Ok(last.of(cluster)) } else { last.cluster() };
    }
    let mut next = last.followed_by(last.file.clone());
    next.lost.remove(part);
    next.write(run)?;
    next.cluster()
}

/// Writes `next`, which follows the newest.
///
/// # Errors
/// If somebody else has changed it meanwhile, or it cannot be written.
pub(crate) fn change(run: &RunDirectory, next: &Roster) -> Result<(), Failure> {
    let _alone = lock(run)?;
    if Roster::read(run).is_some_and(|newest| newest.epoch + 1 != next.epoch) {
        return Err(Failure::new(
            "somebody else has changed the cluster at this moment: look, and try again",
        ));
    }
    next.write(run)
}

/// Writes one again that was lost.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn restore(run: &RunDirectory, lost: &Roster) -> Result<(), Failure> {
    let _alone = lock(run)?;
    if Roster::read(run).is_none() { lost.write(run) } else { Ok(()) }
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

fn refusal(part: &str) -> String {
    format!("{part}.refused")
}

fn lock(run: &RunDirectory) -> Result<File, Failure> {
    RunDirectory::open(place(run).path())?.lock(LOCK)?.ok_or_else(busy)
}

fn busy() -> Failure {
    Failure::new("somebody else is changing the cluster at this moment: try again")
}

fn read(run: &RunDirectory, name: &str) -> io::Result<String> {
    let mut text = String::new();
    // The line, and what TOML makes longer of a file.
    place(run).read(name)?.take(4 * FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn check(head: &str, body: &str) -> u64 {
    fnv1a(format!("{head}\n{body}").as_bytes())
}
