//! How a part takes over a newer roster while it runs: what may change, at once; the rest, when it starts again.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::inotify;
use sidelong_config::{Cluster, ClusterFile, diff, live};
use sidelong_edge::ConfigState;
use sidelong_fabric::{Region, RunDirectory};
use sidelong_layout::HEADER_EPOCH;
use sidelong_reconfig::load_region;

use crate::fabric::Exposer;
use crate::failure::Failure;
use crate::handover::Before;
use crate::parts::Parts;
use crate::roster::{self, Fetching, Lookups, Place, Roster};

/// By what a change of the roster shows: a copy is replaced, removed or written to, or its directory goes.
const WATCHED: inotify::WatchFlags = inotify::WatchFlags::MOVED_TO
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::CLOSE_WRITE)
    .union(inotify::WatchFlags::MOVE_SELF)
    .union(inotify::WatchFlags::DELETE_SELF);

/// Makes a part go by another cluster file, of which only live keys differ from the one before.
pub(crate) type Take = Box<dyn FnMut(Cluster) -> Result<(), Failure> + Send>;

/// What follows the roster for one part.
pub(crate) struct Follower {
    run: RunDirectory,
    part: String,
    /// What the part goes by.
    file: Arc<ClusterFile>,
    /// The last one that it has adopted or refused.
    newest: Roster,
    /// Where the part states its epoch.
    stated: Vec<Region>,
    config: Arc<ConfigState>,
    take: Take,
    /// Has etcd's rosters come, if it has them.
    fetching: Option<Fetching>,
    /// Then the hosts in them are looked up again.
    lookups: Option<Lookups>,
    /// Whether one of them means another address than when the roster was read.
    is_outdated: bool,
    /// Why the part could not go by that.
    not_found: Option<String>,
    /// The process from which this one has taken over: what the part goes by, both do.
    before: Option<Arc<Before>>,
    /// What this one goes by, and that one not yet.
    awaited: Option<u64>,
}

impl Follower {
    /// For the part of that name, which has begun. `None` if the cluster has no roster. Others ask for it at `exposer`.
    pub(crate) fn new(
        part: &str,
        parts: &Parts,
        exposer: Option<&Exposer>,
        stated: Vec<Region>,
        take: Take,
    ) -> Option<Self> {
        let cluster = &parts.cluster;
        let (run, config) = (parts.run.clone(), Arc::clone(&parts.config));
        config.adopted(cluster.epoch);
        if let Some(exposer) = exposer {
            let config = Arc::clone(&config);
            roster::answer(exposer, &run, (&cluster.name, part), config);
        }
        // Which others may ask for.
        let kept = cluster.etcd.as_ref().and_then(|_| Roster::read(&run));
        let kept = kept.filter(|kept| kept.epoch == cluster.epoch);
        let newest = kept.unwrap_or_else(|| Roster::from(cluster));
        let follower = Follower {
            run,
            part: part.to_owned(),
            file: Arc::clone(&cluster.file),
            lookups: cluster.etcd.as_ref().and_then(|_| Lookups::start(&newest.hosts)),
            newest,
            is_outdated: false,
            not_found: None,
            stated,
            config,
            take,
            fetching: Fetching::start(cluster),
            before: None,
            awaited: None,
        };
        follower.state(cluster.epoch);
        cluster.has_roster().then_some(follower)
    }

    /// After a process from which this one has taken over, if it has.
    pub(crate) fn after(self, before: Option<Arc<Before>>) -> Self {
        Follower { before, ..self }
    }

    /// Makes an inotify instance report when the roster may have changed. To be called before each [look](Self::look), because its
    /// directory may be another one since the last.
    ///
    /// # Errors
    /// If the user has no inotify watch left.
    pub(crate) fn report_to(&self, inotify: impl AsFd) -> io::Result<()> {
        inotify::add_watch(inotify, roster::directory(&self.run).path(), WATCHED)?;
        Ok(())
    }

    /// Readable once it is to [look](Self::look), though the directory reports nothing.
    pub(crate) fn wakes(&self) -> Option<&OwnedFd> {
        self.lookups.as_ref().map(Lookups::changed)
    }

    /// Adopts the newest roster, unless it has. One that is refused is refused once, with the reason. One that was lost is
    /// written again.
    pub(crate) fn look(&mut self) {
        self.await_other();
        if self.fetching.is_some() {
            self.config.set_lacks_etcd(roster::trouble(&self.run).is_some());
        }
        self.is_outdated |= self.lookups.as_ref().is_some_and(Lookups::have_changed);
        // A part looks at all that becomes of its regions, so this is cheap while nothing has changed.
        let Some(epoch) = roster::epoch(&self.run).filter(|epoch| *epoch >= self.newest.epoch) else {
            tracing::error!(
                "the roster was removed, damaged or replaced by an older one; it is written again"
            );
            if let Err(Failure(why)) = roster::keep(&self.run, &self.newest) {
                tracing::error!("{why}");
            }
            return;
        };
        if epoch == self.newest.epoch {
            if std::mem::take(&mut self.is_outdated) {
                self.find_again();
            }
            return;
        }
        let Some(mut newest) = Roster::read(&self.run) else { return };
        let stays = self.keep_holder(&mut newest);
        let (epoch, adopted) = (newest.epoch, self.adopt(&newest, stays.as_deref()));
        self.newest = newest;
        self.lookups.iter().for_each(|lookups| lookups.replace(&self.newest.hosts));
        match adopted {
            Ok(()) => {
                tracing::info!(epoch, "goes by a new cluster file");
                self.awaited = Some(epoch);
                self.await_other();
            }
            // Its successor says what the part does.
            Err(Failure(why)) if self.config.has_successor() => {
                tracing::error!(epoch, "the new cluster file is refused: {why}");
            }
            Err(Failure(why)) => {
                tracing::error!(epoch, "the new cluster file is refused, and the old one kept: {why}");
                self.config.refused();
                roster::refuse(&self.run, &self.part, epoch, &why);
            }
        }
    }

    /// Goes by what the hosts of its roster mean now, as far as it takes other addresses over while it runs.
    fn find_again(&mut self) {
        // One that was refused is not tried again in another guise.
        if self.config.epoch() != self.newest.epoch {
            return;
        }
        let mut found = self.newest.found_again(&self.run);
        let stays = found.as_mut().ok().and_then(|found| self.keep_holder(found));
        if found.as_ref().is_ok_and(|found| found.hosts == self.newest.hosts) {
            // Two of them at one place are nowhere as before.
            return;
        }
        match found.and_then(|found| self.adopt(&found, stays.as_deref()).map(|()| found)) {
            Ok(found) => {
                self.not_found = None;
                self.tell_of_moves(&found);
                self.lookups.iter().for_each(|lookups| lookups.replace(&found.hosts));
                self.newest = found;
            }
            // It is tried again soon.
            Err(Failure(why)) if self.not_found.as_ref() != Some(&why) => {
                tracing::error!("what hosts mean now cannot be used, and what they meant still is: {why}");
                self.not_found = Some(why);
            }
            Err(_) => {}
        }
    }

    /// Says which hosts mean other addresses, and what of that this part does not follow.
    fn tell_of_moves(&self, found: &Roster) {
        let is_another = |(host, at): &(&String, &IpAddr)| self.newest.hosts.get(*host) != Some(at);
        let moved = found.hosts.iter().filter(is_another).map(|(host, at)| format!("{host} is at {at}"));
        tracing::info!("hosts mean other addresses: {}", moved.collect::<Vec<_>>().join(", "));
        for change in diff(&self.file, &found.file).into_iter().flatten() {
            tracing::warn!(
                "{} stays at {} here, until this part is restarted",
                change.key,
                change.old.unwrap_or_default()
            );
        }
    }

    /// The node `stays`, if any, is where it was.
    fn adopt(&mut self, newest: &Roster, stays: Option<&str>) -> Result<(), Failure> {
        let file = live(&self.file, &newest.file, &self.part, stays)?;
        let mut cluster = newest.of(&file)?;
        if cluster.standing.lost.contains(&self.part) {
            // Nobody waits for it any more, so an edge or front must not go on. If it is started again, it belongs to the cluster again.
            tracing::error!(
                "a person has said that {} is lost, and nobody waits for it: it ends. Started again, it belongs to the cluster again",
                self.part
            );
            cluster.standing.leaving.insert(self.part.clone());
        }
        (self.take)(cluster)?;
        self.file = Arc::new(file);
        Ok(())
    }

    /// The node that has the board, if it has another address by `newest` and does not answer there: the board may be in use where it was. Its
    /// host means what it did, until a lookup finds that it answers. A newer life of the node proves that the one before has ended.
    fn keep_holder(&self, newest: &mut Roster) -> Option<String> {
        newest.file.etcd.as_ref()?;
        let (old, new) = (self.file.cluster().ok()?, newest.cluster().ok()?);
        let holder = new.board_holder()?;
        let before = old.nodes.values().find(|node| node.name == holder.name)?.fabric_listen;
        let place = (before != holder.fabric_listen).then(|| Place::new(&new))?;
        if place.is_ok_and(|place| place.presence(&holder.name, load_region(&holder.name)).runs()) {
            return None;
        }
        for (host, at) in &mut newest.hosts {
            let meant = self.newest.hosts.get(host).copied();
            if *at == holder.fabric_listen.ip() && meant == Some(before.ip()) {
                *at = before.ip();
            }
        }
        Some(holder.name.clone())
    }

    /// Whether it is to [look](Self::look) soon, though nothing is reported.
    pub(crate) fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// States what both processes of the part go by.
    fn await_other(&mut self) {
        if let Some(epoch) = self.awaited
            && self.before.as_ref().is_none_or(|before| before.follows(epoch))
        {
            self.awaited = None;
            self.state(epoch);
        }
    }

    fn state(&self, epoch: u64) {
        let says = |region: &Region| region.store(HEADER_EPOCH, epoch, Ordering::Release);
        self.config.state(epoch, || self.stated.iter().for_each(says));
    }
}
