//! Changes what the parts on this machine go by: another cluster file, or an edge or front less. All of them adopt it, or none.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sidelong_config::{Change, Cluster, ClusterFile, Standing, Takes, diff};
use sidelong_edge::{check_tls, share_region};
use sidelong_fabric::{Access, Directory as _, RunDirectory};
use sidelong_layout::{NodeId, RegionKind, SiteId, WORDS_BYTES};
use sidelong_reconfig::{front_region, load_region, words_region};

use crate::by_hand::{Hand, Wish};
use crate::failure::Failure;
use crate::history::{BY_HAND, JOINED, LEFT, Log, Record};
use crate::parts::{self, Parts, certificates};
use crate::roster::{self, Roster};

/// Pause between two looks at who has adopted it.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a reload does, before it is done.
pub struct Reload {
    run: RunDirectory,
    roster: Roster,
    file: ClusterFile,
    /// What the file changes.
    pub changes: Vec<Change>,
}

impl Reload {
    /// Of the cluster that runs by `file` from now on. The file is checked.
    ///
    /// # Errors
    /// If it cannot be used, or no part of its cluster runs on this machine.
    pub fn new(file: ClusterFile) -> Result<Self, Failure> {
        let cluster = file.cluster()?;
        for edge in &cluster.edges {
            check_tls(&edge.name, &certificates(edge), edge.client_ca.as_deref())?;
        }
        let run = RunDirectory::at(&cluster.run_dir);
        let roster = alive(&cluster, &run)?;
        let file = ClusterFile::clone(&cluster.file);
        let changes = diff(&roster.file, &file)?;
        Ok(Reload { run, roster, file, changes })
    }

    /// Whether there is anything to do: the file changes something, or an earlier change of the members was cut short.
    pub fn is_needed(&self) -> bool {
        let Standing { leaving, closing, .. } = &self.roster.standing;
        !(self.changes.is_empty() && leaving.is_empty() && closing.is_empty())
    }

    /// Has all parts that run adopt it within `wait`, and returns the epoch. Nodes that it has no more are held before, which takes until
    /// no request is left there: with `waits` however long that is. If a part refuses it, or a node cannot be held, all go back.
    ///
    /// # Errors
    /// If it has a change that no running cluster takes, a part refuses it or does not answer, or a node cannot be held: with the reasons.
    pub fn carry_out(self, wait: Duration, waits: bool) -> Result<u64, Failure> {
        let is_needed = self.is_needed();
        let Reload { run, roster, file, changes } = self;
        let stops: Vec<_> = changes
            .iter()
            .filter_map(|change| match change.takes {
                Takes::Stop(why) => Some(format!("{}: {why}", change.key)),
                Takes::Nothing | Takes::Restart(_) => None,
            })
            .collect();
        if !stops.is_empty() {
            return Err(Failure::new(format!(
                "nothing is changed, because this takes a stop of all parts: {}",
                stops.join("; ")
            )));
        }
        if !is_needed {
            return Ok(roster.epoch);
        }
        let next = roster.followed_by(file, &run)?;
        let (old, new) = (roster.cluster()?, next.cluster()?);
        let kinds = [site_names, node_names, front_names];
        let joined: Names = kinds.iter().flat_map(|names| difference(&names(&new), &names(&old))).collect();
        let [sites, nodes, fronts] = kinds.map(|names| difference(&names(&old), &names(&new)));
        may_end(&run, &roster, &old, &fronts)?;
        // A change that was cut short may have left something of their names.
        let parts_of = |cluster| -> Names { node_names(cluster).union(&front_names(cluster)).cloned().collect() };
        forget(&run, &difference(&parts_of(&new), &parts_of(&old)), wait)?;
        // It may also have held these, which stay now.
        let stay: Names = difference(&roster.standing.leaving, &nodes);
        let stay: Names = stay.intersection(&node_names(&new)).cloned().collect();
        let mut last = roster;
        if !nodes.is_empty() {
            last = hold(&run, last, &nodes, wait, waits)?;
        }
        if !sites.is_empty() {
            last = close(&run, last, &sites, wait, waits)?;
        }
        if !fronts.is_empty() {
            last = end(&run, last, &fronts, wait)?;
        }
        let next = Roster { epoch: last.epoch + 1, ..next };
        let epoch = adopt(&run, &last, next, wait)?;
        resume(&new, &stay);
        let left = nodes.union(&fronts).cloned().collect();
        if let Err(Failure(why)) = forget(&run, &left, wait) {
            tracing::warn!("{why}");
        }
        let parts = Parts::new(new)?;
        joined.iter().for_each(|name| keep(&parts, name, JOINED));
        sites.iter().chain(&nodes).chain(&fronts).for_each(|name| keep(&parts, name, LEFT));
        Ok(epoch)
    }
}

type Names = BTreeSet<String>;

fn site_names(cluster: &Cluster) -> Names {
    cluster.sites.values().map(|site| site.name.clone()).collect()
}

fn node_names(cluster: &Cluster) -> Names {
    cluster.nodes.values().map(|node| node.name.clone()).collect()
}

fn front_names(cluster: &Cluster) -> Names {
    cluster.fronts.values().map(|front| front.name.clone()).collect()
}

fn difference(of: &Names, without: &Names) -> Names {
    of.difference(without).cloned().collect()
}

/// Has all parts know that these nodes leave, holds them, and returns the roster that says so. If that fails, all is as it was.
fn hold(
    run: &RunDirectory,
    last: Roster,
    nodes: &Names,
    wait: Duration,
    waits: bool,
) -> Result<Roster, Failure> {
    let standing = Standing { leaving: nodes.clone(), ..last.standing.clone() };
    let marked = Roster { epoch: last.epoch + 1, standing, ..last.clone() };
    adopt(run, &last, marked.clone(), wait)?;
    let cluster = marked.cluster()?;
    let mut held = Names::new();
    let mut failed = None;
    for name in nodes {
        match hand(&cluster, name, Wish::Drain, waits).and_then(Hand::leave) {
            Ok(()) => {
                held.insert(name.clone());
            }
            Err(_) if is_absent(run, &cluster, name) => {}
            Err(Failure(why)) => {
                failed = Some(format!("{name} cannot leave: {why}"));
                break;
            }
        }
    }
    let Some(why) = failed else { return Ok(marked) };
    let back = Roster { epoch: marked.epoch + 1, ..last };
    adopt(run, &marked, back.clone(), wait)?;
    resume(&back.cluster()?, &held);
    Err(Failure::new(format!("nothing is changed, because {why}")))
}

/// Gives nodes back that were held because they were to leave.
fn resume(cluster: &Cluster, names: &Names) {
    for name in names {
        let resumed = hand(cluster, name, Wish::Resume, false).and_then(Hand::carry_out);
        let _ = resumed.inspect_err(|Failure(why)| tracing::warn!("{name} stays held: {why}"));
    }
}

/// Has no edge take requests of these sites any more, frees all nodes that are of them, and returns the roster that says so. If that
/// fails, all is as it was, but for nodes that are free now.
///
/// A mover that goes by an earlier roster may yet make a node drain to such a site. It then sees the newer epoch, and gives the node
/// back; if it had read the epoch before, its node is seen here to be on its way, and is awaited.
fn close(
    run: &RunDirectory,
    last: Roster,
    sites: &Names,
    wait: Duration,
    waits: bool,
) -> Result<Roster, Failure> {
    let standing = Standing { closing: sites.clone(), ..last.standing.clone() };
    let marked = Roster { epoch: last.epoch + 1, standing, ..last.clone() };
    adopt(run, &last, marked.clone(), wait)?;
    let cluster = marked.cluster()?;
    let stays = cluster.sites.entries().find(|(_, site)| !sites.contains(&site.name));
    let stays = SiteId::new(stays.map_or(0, |(slot, _)| slot));
    let closing: Vec<_> = cluster.sites.entries().filter(|(_, site)| sites.contains(&site.name)).collect();
    let closing: Vec<_> = closing.into_iter().map(|(slot, _)| SiteId::new(slot)).collect();
    let freed = cluster.nodes.values().try_for_each(|node| {
        let free = |hand: Hand| hand.free(&closing, stays);
        let freed = hand(&cluster, &node.name, Wish::Drain, waits).and_then(free);
        freed.or_else(|why| if is_absent(run, &cluster, &node.name) { Ok(()) } else { Err((node, why)) })
    });
    let Err((node, Failure(why))) = freed else { return Ok(marked) };
    adopt(run, &marked, Roster { epoch: marked.epoch + 1, ..last }, wait)?;
    Err(Failure::new(format!("nothing is changed, because {} cannot leave its site: {why}", node.name)))
}

/// Whether these edges and fronts may leave: a proxy of another make goes on when its front ends, so a person must have said that nothing
/// is left of it.
///
/// # Errors
/// If one may not.
fn may_end(run: &RunDirectory, roster: &Roster, cluster: &Cluster, names: &Names) -> Result<(), Failure> {
    for front in cluster.fronts.values().filter(|front| names.contains(&front.name)) {
        let (name, is_gone) = (&front.name, !run.is_exposed(&front_region(&front.name)));
        if let Some(entry) =
            front.controls.as_ref().filter(|_| !(is_gone && roster.standing.lost.contains(name)))
        {
            let proxy = entry.proxy;
            return Err(Failure::new(format!(
                "nothing is changed, because {proxy} of front {name} may have requests: stop {proxy}, then the front, say \
                 `sidelong remove {name} --lost`, and reload once more"
            )));
        }
    }
    Ok(())
}

/// Has these edges end, once their requests have, and returns the roster by which they do. Those that do not run have ended.
fn end(run: &RunDirectory, last: Roster, edges: &Names, wait: Duration) -> Result<Roster, Failure> {
    let leaving = last.standing.leaving.union(edges).cloned().collect();
    let standing = Standing { leaving, ..last.standing.clone() };
    let marked = Roster { epoch: last.epoch + 1, standing, ..last.clone() };
    roster::change(run, &marked)?;
    let deadline = Instant::now() + wait + last.file.limits.response_timeout;
    let runs = |name: &&String| run.is_exposed(&front_region(name));
    while edges.iter().any(|name| runs(&name)) && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
    match edges.iter().find(runs) {
        None => Ok(marked),
        Some(name) => Err(Failure::new(format!("{name} has not ended: end it, and reload once more"))),
    }
}

/// A person's links to a cluster, for what becomes of a node.
fn hand(cluster: &Cluster, name: &str, wish: Wish, waits: bool) -> Result<Hand, Failure> {
    let slot = cluster.nodes.position(|node| node.name == name).unwrap_or_default();
    let mut hand = Hand::new(Parts::new(cluster.clone())?, NodeId::new(slot), wish)?;
    hand.waits = waits;
    hand.await_words().map_err(Failure::new)?;
    Ok(hand)
}

/// Whether nothing is left at a node that could have requests: it has never been there, or its process has ended, which was its server,
/// too.
fn is_absent(run: &RunDirectory, cluster: &Cluster, name: &str) -> bool {
    let node = cluster.nodes.values().find(|node| node.name == name);
    let (words, access) = (words_region(name), Access::ReadOnly);
    let has_words = run.find(&words, RegionKind::Words, WORDS_BYTES, access).is_ok();
    let is_foreign = node.is_some_and(|node| node.is_foreign);
    !has_words || !is_foreign && !run.is_exposed(&load_region(name))
}

/// Removes what those of these names leave behind, once they have ended: who has the name next begins anew.
///
/// # Errors
/// If it cannot be removed, or one of them runs for longer than `wait`.
fn forget(run: &RunDirectory, names: &Names, wait: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + wait;
    let regions = |name| [words_region(name), load_region(name), front_region(name), share_region(name)];
    for (name, region) in names.iter().flat_map(|name| regions(name).map(|region| (name, region))) {
        while run.is_exposed(&region) {
            if Instant::now() >= deadline {
                return Err(Failure::new(format!("{name}, which is not of the cluster, still runs: end it")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        run.forget(&region).map_err(|error| Failure::new(format!("{region} is still there: {error}")))?;
    }
    Ok(())
}

/// Keeps in the history that a node has joined or left.
fn keep(parts: &Parts, name: &str, how: &str) {
    match Log::open(parts, BY_HAND) {
        Ok(Some(log)) => {
            log.recorder().record(Record::of_member(name, how));
            log.finish();
        }
        Ok(None) => {}
        Err(Failure(why)) => tracing::warn!("{why}"),
    }
}

/// Has nobody wait for an edge or front of a cluster any more, because nothing of it is left: neither its process nor, beside a
/// proxy of another make, that proxy. If it starts again, it belongs to the cluster again. Returns the epoch.
///
/// # Errors
/// If the cluster does not run here or has no such front, if that runs, or a part does not go by it.
pub fn lose(cluster: &Cluster, name: &str, wait: Duration) -> Result<u64, Failure> {
    let run = RunDirectory::at(&cluster.run_dir);
    let roster = alive(cluster, &run)?;
    let current = roster.cluster()?;
    parts::find("edge or front", name, current.fronts.entries().map(|(slot, front)| (slot, &*front.name)))?;
    if run.is_exposed(&front_region(name)) {
        return Err(Failure::new(format!(
            "{name} runs here: end it, and then remove it if nodes still wait for it"
        )));
    }
    if roster.standing.lost.contains(name) {
        return Ok(roster.epoch);
    }
    let mut next = roster.followed_by(roster.file.clone(), &run)?;
    next.standing.lost.insert(name.to_owned());
    adopt(&run, &roster, next, wait)
}

/// The roster of a cluster of which a part runs here.
fn alive(cluster: &Cluster, run: &RunDirectory) -> Result<Roster, Failure> {
    if !roster::has_one(cluster) {
        return Err(Failure::new(
            "only the parts of a cluster on one machine adopt a changed file: copy this one to each machine, and restart \
             one part after another",
        ));
    }
    let roster = Roster::read(run).filter(|roster| roster.is_alive(run));
    roster.ok_or_else(|| {
        let (name, place) = (&cluster.name, run.path().display());
        Failure::new(format!(
            "no part of {name} runs here (in {place}): a part reads the file when it starts"
        ))
    })
}

/// Has all parts that run go by `next` instead of `last` within `wait`, and returns its epoch. If one refuses, all go back.
fn adopt(run: &RunDirectory, last: &Roster, next: Roster, wait: Duration) -> Result<u64, Failure> {
    roster::change(run, &next)?;
    let Err(Failure(why)) = await_parts(run, &next, wait) else { return Ok(next.epoch) };
    let back = Roster { epoch: next.epoch + 1, ..last.clone() };
    let back = roster::change(run, &back).and_then(|()| await_parts(run, &back, wait));
    Err(Failure::new(match back {
        Ok(()) => format!("nothing is changed, because {why}"),
        Err(Failure(then)) => format!("{why}; and not all parts went back: {then}"),
    }))
}

/// Waits until all parts that run go by `next`.
fn await_parts(run: &RunDirectory, next: &Roster, wait: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + wait;
    loop {
        let parts = next.epochs(run);
        let refusals = parts.iter().filter_map(|(part, _)| {
            Some(format!("{part} refuses it: {}", roster::refused(run, part, next.epoch)?))
        });
        let refusals: Vec<_> = refusals.collect();
        if !refusals.is_empty() {
            return Err(Failure::new(refusals.join("; ")));
        }
        let late = parts.iter().filter(|(_, epoch)| epoch.is_none_or(|epoch| epoch < next.epoch));
        let late: Vec<_> = late.map(|(part, _)| part.as_str()).collect();
        if late.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let late = late.join(", ");
            return Err(Failure::new(format!(
                "{late} did not take it over within {wait:?}: see the log there"
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
