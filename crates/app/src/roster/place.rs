//! Where the parts of a cluster keep their roster, and how it is known by which one each goes: the run directory of one machine, or etcd
//! and the control endpoints of several.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sidelong_config::{Cluster, ClusterFile, Etcd};
use sidelong_fabric::control::{Cause, ControlDirectory, SecretId};
use sidelong_fabric::{Error, Initiator, RunDirectory};
use sidelong_layout::RegionKind;

use super::asked::{self, Presence};
use super::etcd::{self, Entries, Stored, Version};
use super::kept::{self, Part, RESTORED, Roster, is_fetched, trouble};
use crate::fabric;
use crate::failure::Failure;
use crate::rotation::Known;

/// Where a cluster keeps its roster, and how its parts are asked.
pub struct Place {
    run: RunDirectory,
    far: Option<Far>,
}

/// What the parts of several machines have.
struct Far {
    /// The cluster's name.
    name: String,
    entries: Mutex<Entries>,
    control: Arc<ControlDirectory>,
}

/// What other machines have told of rosters.
pub(super) struct Told {
    /// The newest, if it is newer than the one that they were asked about.
    pub(super) newer: Option<Roster>,
    /// Whether any part has answered.
    pub(super) is_heard: bool,
}

impl Place {
    /// Where a cluster keeps its roster. Nothing is asked yet.
    ///
    /// # Errors
    /// If a file of its secret, or of what it needs for etcd, cannot be read.
    pub fn new(cluster: &Cluster) -> Result<Self, Failure> {
        let run = RunDirectory::at(&cluster.run_dir);
        let far = |etcd: &Etcd| {
            let entries = Mutex::new(Entries::new(cluster, etcd, run.clone())?);
            Ok::<_, Failure>(Far { name: cluster.name.clone(), entries, control: fabric::control(cluster)? })
        };
        Ok(Place { far: cluster.etcd.as_ref().map(far).transpose()?, run })
    }

    /// The run directory of this machine.
    pub fn run(&self) -> &RunDirectory {
        &self.run
    }

    /// Whether etcd has the roster.
    pub fn is_far(&self) -> bool {
        self.far.is_some()
    }

    /// The newest roster; `None` if there is none.
    ///
    /// # Errors
    /// If etcd cannot be asked, or has an older one than this machine.
    pub fn newest(&self) -> Result<Option<Roster>, Failure> {
        self.newest_by(Entries::newest)
    }

    /// Likewise, where to go on without etcd is better than to wait for it.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub(super) fn newest_soon(&self) -> Result<Option<Roster>, Failure> {
        self.newest_by(Entries::newest_soon)
    }

    fn newest_by(
        &self,
        ask: impl FnOnce(&mut Entries) -> Result<Option<Stored>, Failure>,
    ) -> Result<Option<Roster>, Failure> {
        let Some(far) = &self.far else { return Ok(Roster::read(&self.run)) };
        let found = ask(&mut far.entries())?.map(|stored| stored.roster);
        if let Some(here) = Roster::from_etcd(&self.run) {
            if let Some(found) = &found {
                found.is_of_cluster(&here)?;
            }
            if found.as_ref().is_none_or(|found| found.epoch < here.epoch) {
                return Err(older(found.as_ref(), here.epoch));
            }
        }
        if let Some(found) = &found {
            far.control.adopt(fabric::table(&found.cluster()?));
        }
        Ok(found)
    }

    /// The file as it was written.
    ///
    /// # Errors
    /// As [`newest`](Self::newest), and if etcd does not have it.
    pub fn text(&self) -> Result<String, Failure> {
        let name = &self.far()?.name;
        self.newest()?.and_then(|newest| newest.text).ok_or_else(|| absent(name))
    }

    /// What is wrong with etcd beside a cluster that goes by `newest`, as the parts on this machine know it, or as it shows now; `None` if
    /// nothing is.
    pub fn trouble(&self, newest: &Roster) -> Option<String> {
        self.far.as_ref()?;
        if is_fetched(&self.run) {
            return trouble(&self.run);
        }
        match self.newest() {
            Err(Failure(why)) => Some(why),
            Ok(None) => Some(older(None, newest.epoch).0),
            Ok(Some(found)) => (found.epoch < newest.epoch).then(|| older(Some(&found), newest.epoch).0),
        }
    }

    /// Stores the first roster of a cluster, with the file that `text` is.
    ///
    /// # Errors
    /// If there is one, parts go by one, or the file cannot be used.
    pub fn found(&self, cluster: &Cluster, text: String) -> Result<(), Failure> {
        let first = etcd::first(cluster, text)?;
        let far = self.far()?;
        far.control.adopt(fabric::table(cluster));
        match self.newest_epoch(&first) {
            Some(epoch @ 1..) if far.entries().newest()?.is_none() => Err(older(None, epoch)),
            _ => far.entries().found(&first),
        }
    }

    /// The newest roster, by which all parts go that answer, or an older one.
    ///
    /// # Errors
    /// If there is none, or a part goes by a newer one.
    pub(crate) fn current(&self, cluster: &str) -> Result<Roster, Failure> {
        let newest = self.newest()?.ok_or_else(|| absent(cluster))?;
        match self.newest_epoch(&newest).filter(|epoch| *epoch > newest.epoch) {
            Some(epoch) => Err(older(Some(&newest), epoch)),
            None => Ok(newest),
        }
    }

    /// The highest epoch by which a part of the roster goes.
    fn newest_epoch(&self, of: &Roster) -> Option<u64> {
        self.parts(of).into_iter().filter_map(|(_, presence)| presence.epoch()).max()
    }

    /// A file as the parts on this machine would go by it.
    ///
    /// # Errors
    /// If it cannot be used on several machines.
    pub(crate) fn localized(&self, mut file: ClusterFile) -> Result<ClusterFile, Failure> {
        if self.is_far() {
            etcd::usable(&file)?;
            file.cluster.run_dir = Some(self.run.path().to_owned());
        }
        Ok(file)
    }

    /// The files that the cluster went by, oldest first; the last is the present one.
    ///
    /// # Errors
    /// If etcd does not have the roster, or cannot be asked.
    pub fn history(&self) -> Result<Vec<Version>, Failure> {
        self.far()?.entries().history()
    }

    /// Takes the files of these epochs, which a part has refused, out of the history.
    pub(crate) fn forget(&self, epochs: Range<u64>) {
        let Some(far) = &self.far else { return };
        let forgotten = far.entries().forget(epochs);
        let _ = forgotten.inspect_err(|Failure(why)| {
            tracing::warn!("the history in etcd has a file that was refused: {why}")
        });
    }

    /// Puts back into etcd what the parts go by, if it has lost that, and returns the epoch. Epochs leave room for rosters that are known to
    /// parts that do not answer.
    ///
    /// # Errors
    /// If it has not, or no roster is known.
    pub fn restore(&self) -> Result<u64, Failure> {
        let far = self.far()?;
        let here = Roster::from_etcd(&self.run).ok_or_else(|| {
            Failure::new(
                "no part of the cluster has run on this machine: use one where a part has, or `sidelong cluster init`",
            )
        })?;
        let known = self.newer_of_peers(&here)?.newer.unwrap_or(here);
        let epoch = known.epoch + RESTORED;
        // While the secret is changed, by one that all know.
        let told = asked::secrets(&far.control, &endpoints(&known.cluster()?));
        if let Some(Err(Error::Control { cause: cause @ Cause::Secret, address })) =
            told.iter().find(|told| matches!(told, Err(Error::Control { cause: Cause::Secret, .. })))
        {
            return Err(Failure::new(format!(
                "the part at {address} refuses this machine ({cause}): do this on a machine that has the newest secret_file"
            )));
        }
        let is_known = |id: &SecretId| told.iter().flatten().all(|has| has.contains(id));
        let by = fabric::secret(&known.cluster()?)?.ids().into_iter().find(is_known);
        far.entries().restore(&Roster { epoch, ..known }, by)?;
        Ok(epoch)
    }

    /// What other machines tell of rosters that are newer than `known`.
    ///
    /// # Errors
    /// If there is one, and cannot be had.
    pub(super) fn newer_of_peers(&self, known: &Roster) -> Result<Told, Failure> {
        self.newer_within(asked::ANSWER_MAX, known)
    }

    /// As [`newer_of_peers`](Self::newer_of_peers), of those that were asked a moment ago.
    pub(super) fn newer_since(&self, known: &Roster) -> Result<Told, Failure> {
        self.newer_within(asked::ANSWER_AGAIN_MAX, known)
    }

    /// As [`newer_of_peers`](Self::newer_of_peers), where etcd has answered with `known`: one part that answers is enough not to wait for slow ones,
    /// because a change is not over before all parts that run know it.
    pub(super) fn newer_than_etcds(&self, known: &Roster) -> Result<Told, Failure> {
        let told = self.newer_since(known)?;
        if told.is_heard { Ok(told) } else { self.newer_of_peers(known) }
    }

    fn newer_within(&self, longest: Duration, known: &Roster) -> Result<Told, Failure> {
        let Some(far) = &self.far else { return Ok(Told { newer: None, is_heard: false }) };
        far.control.adopt(fabric::table(&known.cluster()?));
        let (newer, is_heard) = asked::newer(&far.control, known, longest).map_err(|epoch| {
            Failure::new(format!(
                "a part goes by epoch {epoch}, and does not hand that file out: try again, or on its machine"
            ))
        })?;
        let newer = newer.map(|text| Roster::parse(&text, &self.run).map_err(Failure::new)).transpose()?;
        Ok(Told { newer, is_heard })
    }

    /// The parts that run, as their machines have told etcd within the last [`LAMP_S`](super::LAMP_S) seconds, and the name of each
    /// one's machine. Nobody else can be sure of them, or of those that are not there.
    pub fn lamps(&self) -> BTreeMap<String, String> {
        // What is wrong with etcd is said elsewhere.
        self.far.as_ref().and_then(|far| far.entries().lamps().ok()).unwrap_or_default()
    }

    /// Seals what etcd has by the secret of that name, which all parts know.
    ///
    /// # Errors
    /// If etcd does not answer.
    pub(crate) fn seal_anew(&self, by: SecretId) -> Result<(), Failure> {
        self.far()?.entries().seal_anew(by)
    }

    /// As [`kept::change`].
    pub(crate) fn change(&self, last: &Roster, mut edit: impl FnMut(&mut Roster)) -> Result<Roster, Failure> {
        let Some(far) = &self.far else { return kept::change(&self.run, last, edit) };
        let next = far.entries().change(last, &mut edit)?;
        far.control.adopt(fabric::table(&next.cluster()?));
        Ok(next)
    }

    /// Whether the last change may have taken effect, although it has failed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.entries().is_in_doubt)
    }

    /// What is known of the part that has that region while it runs.
    pub(crate) fn presence(&self, name: &str, region: String) -> Presence {
        let part = Part { name: name.to_owned(), region, shapes: Vec::new() };
        match &self.far {
            Some(far) => asked::presence(&far.control, &far.name, &part),
            None if self.run.is_exposed(&part.region) => Presence::Runs { epoch: None, refused: None },
            None => Presence::Ended,
        }
    }

    /// What is known of the parts of a cluster whose file is copied by hand to several machines.
    ///
    /// # Errors
    /// If the secret of this machine cannot be read.
    pub fn parts_by_hand(cluster: &Cluster) -> Result<Vec<(String, Presence)>, Failure> {
        let (control, parts) = (fabric::control(cluster)?, endpoints(cluster));
        let found = asked::presences(&control, &cluster.name, &parts);
        Ok(parts.into_iter().map(|part| part.name).zip(found).collect())
    }

    /// What is known of each part of a roster.
    pub fn parts(&self, roster: &Roster) -> Vec<(String, Presence)> {
        // Caches of several machines follow no roster.
        let follows = |part: &Part| !self.is_far() || !is_cache(part);
        self.presences(roster.parts().into_iter().filter(follows).collect())
    }

    /// What is known of the caches alone.
    pub(crate) fn caches(&self, roster: &Roster) -> Vec<(String, Presence)> {
        self.presences(roster.parts().into_iter().filter(is_cache).collect())
    }

    fn presences(&self, parts: Vec<Part>) -> Vec<(String, Presence)> {
        let Some(far) = &self.far else {
            let mut initiator = Initiator::new();
            let runs = parts.into_iter().filter(|part| self.run.is_exposed(&part.region));
            let presence = |part: Part| {
                let epoch = part.epoch(&self.run, &mut initiator);
                let refused = kept::refusal_of(&self.run, &part.name);
                (part.name, Presence::Runs { epoch, refused })
            };
            return runs.map(presence).collect();
        };
        let found = asked::presences(&far.control, &far.name, &parts);
        parts.into_iter().map(|part| part.name).zip(found).collect()
    }

    fn far(&self) -> Result<&Far, Failure> {
        self.far.as_ref().ok_or_else(|| Failure::new("the cluster's file has no [etcd]: its parts are on one machine, or their file is copied by hand"))
    }
}

impl Far {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the nodes, edges and fronts of a cluster on several machines for the secrets that count there. Caches answer otherwise.
///
/// # Errors
/// If the secret of this machine cannot be read.
pub(crate) fn secrets_of_parts(cluster: &Cluster) -> Result<Vec<Known>, Failure> {
    let (control, parts) = (fabric::control(cluster)?, endpoints(cluster));
    let told = asked::secrets(&control, &parts);
    Ok(parts.into_iter().zip(told).map(|(part, told)| Known::new(part.name, told)).collect())
}

/// The nodes, edges and fronts of a cluster on several machines that can be asked.
fn endpoints(cluster: &Cluster) -> Vec<Part> {
    let has_endpoint = |part: &Part| {
        let front = cluster.fronts.values().find(|front| front.name == part.name);
        !is_cache(part) && front.is_none_or(|front| front.fabric_listen.is_some())
    };
    Roster::from(cluster).parts().into_iter().filter(has_endpoint).collect()
}

fn is_cache(part: &Part) -> bool {
    part.shapes.iter().any(|(kind, _)| *kind == RegionKind::Cache)
}

/// etcd has an older roster than the parts, or none.
pub(super) fn older(found: Option<&Roster>, epoch: u64) -> Failure {
    let has = found.map_or("has lost the cluster".to_owned(), |found| {
        format!("has an older file (epoch {})", found.epoch)
    });
    Failure::new(format!(
        "etcd {has}, and the parts go by epoch {epoch}: was it restored from a backup? On a machine where parts run, `sidelong cluster \
         restore` puts back what they go by"
    ))
}

/// etcd has no such cluster.
pub(crate) fn absent(cluster: &str) -> Failure {
    Failure::new(format!(
        "etcd has no cluster {cluster}: `sidelong cluster init` puts its file there. If its parts run, etcd has lost it: on a machine where \
         they do, `sidelong cluster restore` puts it back"
    ))
}
