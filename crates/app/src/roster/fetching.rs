//! A thread that fetches newer rosters from etcd, for all parts on this machine: one part's thread does it, and the others wait to take
//! its place. Where etcd does not answer, it asks the parts of other machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidelong_config::{Cluster, Etcd};
use sidelong_fabric::RunDirectory;

use super::etcd::{Entries, Lamps, Stored};
use super::kept::{FETCHING, Roster, TROUBLE, directory, is_fetched, keep, trouble};
use super::place::{Place, absent, older};
use crate::failure::Failure;

/// Pause before another attempt, and between two looks whether it is to end.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval at which other parts are asked while etcd does not answer: all of them are, by each machine.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Such looks before etcd is asked anew: a watch at a server that has lost the others hears nothing.
const LOOKS: u32 = 10;

/// Has newer rosters come. The thread ends soon after this value: nobody waits until etcd has answered.
pub(crate) struct Fetching {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fetching {
    /// For a part that goes by `cluster`, if etcd has its roster.
    pub(crate) fn start(cluster: &Cluster) -> Option<Self> {
        cluster.etcd.as_ref()?;
        let (stop, cluster) = (Arc::new(AtomicBool::new(false)), cluster.clone());
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("etcd".into()).spawn(move || fetch(cluster, &stopped));
        let thread = thread.inspect_err(|error| tracing::error!(%error, "it hears of no newer file")).ok();
        Some(Fetching { stop, thread })
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

fn fetch(cluster: Cluster, stop: &AtomicBool) {
    let run = RunDirectory::at(&cluster.run_dir);
    let (mut lock, mut asked, mut lamps) = (None, None::<Instant>, Lamps::default());
    let mut told = None;
    while !stop.load(Ordering::Relaxed) {
        // To take the lock means to write to its file, which wakes all who watch the directory.
        if lock.is_none() && !is_fetched(&run) {
            told = trouble(&run);
            lock = RunDirectory::open(directory(&run).path())
                .ok()
                .and_then(|place| place.lock(FETCHING).ok().flatten());
        }
        if lock.is_some() {
            match listen(&cluster, &run, stop, &mut told, &mut lamps) {
                // To hear what comes next.
                Ok(()) => continue,
                Err(Failure(why)) => {
                    tell(&run, Some(why), &mut told);
                    if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                        asked = Some(Instant::now());
                        ask_peers(&cluster, &run);
                    }
                }
            }
        }
        if !stop.load(Ordering::Relaxed) {
            thread::park_timeout(PAUSE);
        }
    }
}

/// Writes down what is wrong, once.
fn tell(run: &RunDirectory, why: Option<String>, told: &mut Option<String>) {
    if why == *told {
        return;
    }
    match &why {
        Some(why) => tracing::error!("the parts on this machine go on by what they know, because {why}"),
        None => tracing::warn!("etcd answers again, and has the file by which the parts go"),
    }
    let written = directory(run).replace(TROUBLE, why.as_deref().unwrap_or_default().as_bytes());
    let _ = written.inspect_err(|error| tracing::warn!("`sidelong status` does not say so: {error}"));
    *told = why;
}

/// Takes what etcd has, and listens for a while.
fn listen(
    cluster: &Cluster,
    run: &RunDirectory,
    stop: &AtomicBool,
    told: &mut Option<String>,
    lamps: &mut Lamps,
) -> Result<(), Failure> {
    let (mut entries, newest) = open(cluster, run)?;
    let Some(newest) = newest else { return Err(lost(run, &cluster.name)) };
    take(&newest, run, cluster)?;
    let held = newest.roster.parts().into_iter().filter(|part| run.has_holder(&part.region));
    if let Err(Failure(why)) = entries.shine(lamps, &held.map(|part| part.name).collect(), newest.by) {
        tracing::debug!("this machine's parts are not shown in etcd to run: {why}");
    }
    // A proxy before etcd may answer, and hold back what is heard of changes.
    let begun = || tell(run, None, told);
    match entries.watch(&newest, begun, (LOOKS, PAUSE), &|| stop.load(Ordering::Relaxed))? {
        Some(heard) => take(&heard, run, cluster),
        None => Ok(()),
    }
}

/// Asks etcd where the newest file says that it is; if that fails, where this machine's own file does: somebody may have mistaken it.
fn open(cluster: &Cluster, run: &RunDirectory) -> Result<(Entries, Option<Stored>), Failure> {
    let ask = |etcd: &Etcd| {
        let mut entries = Entries::new(cluster, etcd, run.clone())?;
        let newest = entries.newest()?;
        Ok((entries, newest))
    };
    let newest = Roster::from_etcd(run).and_then(|newest| newest.file.etcd);
    let Some(own) = &cluster.etcd else { return Err(absent(&cluster.name)) };
    let is_own = |newest: &Etcd| Etcd { state_dir: own.state_dir.clone(), ..newest.clone() } == *own;
    match newest.filter(|newest| !is_own(newest)) {
        None => ask(own),
        Some(other) => ask(&other).or_else(|why| ask(own).map_err(|_| why)),
    }
}

fn lost(run: &RunDirectory, name: &str) -> Failure {
    match Roster::from_etcd(run) {
        Some(here) => older(None, here.epoch),
        None => absent(name),
    }
}

/// Keeps what etcd has, if it is newer.
fn take(stored: &Stored, run: &RunDirectory, cluster: &Cluster) -> Result<(), Failure> {
    if let Some(here) = Roster::from_etcd(run) {
        stored.roster.is_of_cluster(&here)?;
        if stored.roster.epoch < here.epoch {
            return Err(older(Some(&stored.roster), here.epoch));
        }
        if stored.roster.epoch == here.epoch {
            let is_it = stored.roster.entry()? == here.entry()?;
            return if is_it { Ok(()) } else { Err(older(Some(&stored.roster), here.epoch)) };
        }
    }
    keep(run, &stored.roster)?;
    stored.roster.keep_over_restart(cluster);
    Ok(())
}

/// Takes a newer roster from a part of another machine.
fn ask_peers(cluster: &Cluster, run: &RunDirectory) {
    let asked = || {
        let Some(here) = Roster::from_etcd(run) else { return Ok(()) };
        if let Some(newer) = Place::new(cluster)?.newer_of_peers(&here)?.newer {
            keep(run, &newer)?;
            newer.keep_over_restart(cluster);
        }
        Ok(())
    };
    if let Err(Failure(why)) = asked() {
        tracing::debug!("no newer file from other machines: {why}");
    }
}
