//! The roster in etcd: one entry, changed by compare-and-swap, and a history of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rustix::system::uname;
use serde::{Deserialize, Serialize};
use sidelong_config::{Cluster, ClusterFile, Etcd};
use sidelong_etcd::{Access, Change, Client, Entry, Error, Found, If, Keys, Then};
use sidelong_fabric::RunDirectory;
use sidelong_fabric::control::{Secret, SecretId};
use sidelong_os::{check_private, open_regular};
use time::OffsetDateTime;

use super::kept::{RESTORED, Roster, busy};
use crate::fabric;
use crate::failure::Failure;
use crate::stamp::{text, user};

/// What all keys begin with.
const PREFIX: &str = "/sidelong";
/// Attempts of a change while others make changes.
const TRIES_MAX: usize = 16;
/// Files of the past that are kept.
const HISTORY_MAX: usize = 16;
/// Most bytes of a password.
const PASSWORD_BYTES_MAX: u64 = 1024;
/// How long a machine that says nothing is shown to run, in seconds.
pub const LAMP_S: u64 = 30;
/// How an entry begins.
const SEAL: &str = "# sealed ";
/// How the entry of a file goes on.
const TITLE: &str = "# sidelong file ";

/// The entries of one cluster.
pub(super) struct Entries {
    client: Client,
    /// Entries are sealed by it, so that whoever writes in etcd cannot run commands on nodes.
    secret: Secret,
    cluster: String,
    run: RunDirectory,
    /// Whether the last change may have taken effect, although it has failed.
    pub(super) is_in_doubt: bool,
}

/// By which a machine shows in etcd that its parts run: they light the page and the alert, and nothing is decided by them but that a
/// person who takes a part for lost is told.
#[derive(Default)]
pub(super) struct Lamps {
    lease: Option<i64>,
    /// Which secret has sealed them.
    by: Option<SecretId>,
    /// The part of each, and the revision in which this machine has lit it.
    lit: BTreeMap<String, u64>,
}

/// The roster as etcd has it.
pub(super) struct Stored {
    pub(super) roster: Roster,
    /// Which secret has sealed it. It seals what replaces it, too: while the secret is changed, not all parts may know the other one.
    pub(super) by: SecretId,
    /// When it was last changed.
    revision: u64,
    /// The newest revision of etcd when it was read, after which changes are heard.
    seen: u64,
}

/// A file of the past, or the present one.
pub struct Version {
    /// The epoch since which parts go by it.
    pub epoch: u64,
    /// When it was written, by the clock of that machine.
    pub at: String,
    /// Who has written it: a user, and the machine.
    pub by: String,
    /// The file as it was written.
    pub text: String,
}

/// What stands before such a file, as JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    at: String,
    by: String,
}

impl Entries {
    /// The entries of the cluster whose parts on this machine use that run directory. Nothing is asked yet.
    pub(super) fn new(cluster: &Cluster, etcd: &Etcd, run: RunDirectory) -> Result<Self, Failure> {
        let endpoints: Result<Vec<_>, _> = etcd.endpoints.iter().map(|endpoint| endpoint.parse()).collect();
        let identity = etcd.certificate.as_deref().zip(etcd.key.as_deref());
        let password =
            |path: &Path| password(path).map_err(|why| Failure::new(format!("{}: {why}", path.display())));
        let user = match (&etcd.user, &etcd.password_file) {
            (Some(user), Some(path)) => Some((user.clone(), password(path)?)),
            _ => None,
        };
        let access = Access::new(endpoints?, etcd.ca.as_deref(), identity, user)?;
        Ok(Entries {
            client: Client::new(access)?,
            secret: fabric::secret(cluster)?,
            cluster: cluster.name.clone(),
            run,
            is_in_doubt: false,
        })
    }

    fn lamp_keys(&self) -> String {
        format!("{PREFIX}/{}/lamp/", self.cluster)
    }

    /// Shows for [`LAMP_S`] that these parts run on this machine, and no others.
    pub(super) fn shine(
        &mut self,
        lamps: &mut Lamps,
        parts: &BTreeSet<String>,
        by: SecretId,
    ) -> Result<(), Failure> {
        let kept = lamps.lease.map(|lease| self.client.keep(lease)).transpose()?;
        if kept != Some(true) || lamps.by != Some(by) {
            let lease = if kept == Some(true) { lamps.lease } else { Some(self.client.grant(LAMP_S)?) };
            *lamps = Lamps { lease, by: Some(by), lit: BTreeMap::new() };
        }
        let keys = self.lamp_keys();
        for part in parts.iter().filter(|part| !lamps.lit.contains_key(*part)).cloned().collect::<Vec<_>>() {
            let key = format!("{keys}{part}");
            let value = self.sealed(lamps.by, &key, &host());
            let put = Then::Put { key: &key, value: value.as_bytes(), lease: lamps.lease };
            let lit = self.client.transact(&[], &[put])?;
            lamps.lit.insert(part, lit.unwrap_or_default());
        }
        let out: Vec<_> = lamps.lit.keys().filter(|part| !parts.contains(*part)).cloned().collect();
        for part in out {
            let key = format!("{keys}{part}");
            // Unless another machine has lit it meanwhile.
            let is_own = lamps.lit.remove(&part).unwrap_or_default();
            self.client.transact(&[If::Unchanged(&key, is_own)], &[Then::Delete(&key)])?;
        }
        Ok(())
    }

    /// The parts that run, as their machines have told etcd, and the name of each one's machine.
    pub(super) fn lamps(&mut self) -> Result<BTreeMap<String, String>, Failure> {
        let keys = self.lamp_keys();
        let lit = self.client.get(Keys::Under(&keys))?.entries;
        let lamp = |entry: Entry| {
            let (host, _) = self.opened(&entry.key, entry.value)?;
            Some((entry.key.strip_prefix(&*keys)?.to_owned(), host))
        };
        Ok(lit.into_iter().filter_map(lamp).collect())
    }

    fn roster_key(&self) -> String {
        format!("{PREFIX}/{}/roster", self.cluster)
    }

    fn history_keys(&self) -> String {
        format!("{PREFIX}/{}/file/", self.cluster)
    }

    /// The newest roster; `None` if etcd has none.
    pub(super) fn newest(&mut self) -> Result<Option<Stored>, Failure> {
        let found = self.client.get(Keys::One(&self.roster_key()))?;
        self.stored_in(found)
    }

    /// Likewise, if etcd has it at once.
    pub(super) fn newest_soon(&mut self) -> Result<Option<Stored>, Failure> {
        let found = self.client.get_soon(Keys::One(&self.roster_key()))?;
        self.stored_in(found)
    }

    fn stored_in(&self, mut found: Found) -> Result<Option<Stored>, Failure> {
        let entry = found.entries.pop();
        entry.map(|entry| self.stored(entry.value, entry.revision, found.revision)).transpose()
    }

    fn stored(&self, value: Vec<u8>, revision: u64, seen: u64) -> Result<Stored, Failure> {
        let key = self.roster_key();
        let (text, by) = self.opened(&key, value).ok_or_else(|| {
            Failure::new(format!(
                "etcd's {key} is not sealed by the secret of this machine: its secret_file is an old one, or somebody else has written the \
                 entry. If `sidelong secret show` says that the secret is right, `sidelong cluster restore` puts back what the parts of \
                 this machine go by"
            ))
        })?;
        let roster = Roster::parse(&text, &self.run).map_err(|why| {
            Failure::new(format!("etcd's {key} cannot be read by this release, or on this machine: {why}"))
        })?;
        if roster.file.cluster.name != self.cluster || roster.file.etcd.is_none() {
            return Err(Failure::new(format!("etcd's {key} is of the cluster {}", roster.file.cluster.name)));
        }
        Ok(Stored { roster, by, revision, seen })
    }

    /// An entry as it is stored, sealed by the secret of that name, or by the first. The seal is of the key, too.
    fn sealed(&self, by: Option<SecretId>, key: &str, text: &str) -> String {
        format!("{SEAL}{}\n{text}", self.secret.seal(by, format!("{key}\n{text}").as_bytes()))
    }

    /// What an entry holds, and which secret has sealed it, if this cluster's has.
    fn opened(&self, key: &str, value: Vec<u8>) -> Option<(String, SecretId)> {
        let value = String::from_utf8(value).ok()?;
        let (seal, text) = value.strip_prefix(SEAL)?.split_once('\n')?;
        let by = self.secret.has_sealed(format!("{key}\n{text}").as_bytes(), seal)?;
        Some((text.to_owned(), by))
    }

    /// Seals all entries by the secret of that name. One that this cluster's secret has not sealed stays as it is.
    pub(super) fn seal_anew(&mut self, by: SecretId) -> Result<(), Failure> {
        let (under, lamps) = (format!("{PREFIX}/{}/", self.cluster), self.lamp_keys());
        for _ in 0..TRIES_MAX {
            let mut is_done = true;
            // Machines light their lamps anew.
            let entries = self.client.get(Keys::Under(&under))?.entries.into_iter();
            for entry in entries.filter(|entry| !entry.key.starts_with(&*lamps)) {
                let opened = self.opened(&entry.key, entry.value);
                let Some((text, _)) = opened.filter(|(_, sealer)| *sealer != by) else { continue };
                let sealed = self.sealed(Some(by), &entry.key, &text);
                let put = Then::Put { key: &entry.key, value: sealed.as_bytes(), lease: None };
                is_done &=
                    self.client.transact(&[If::Unchanged(&entry.key, entry.revision)], &[put])?.is_some();
            }
            if is_done {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Stores the first roster of a cluster.
    pub(super) fn found(&mut self, roster: &Roster) -> Result<(), Failure> {
        let key = self.roster_key();
        match self.store(&[If::Absent(&key)], roster, None, true)? {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "etcd has the cluster {} already, as {key}: `sidelong cluster apply` changes its file",
                self.cluster
            ))),
        }
    }

    /// As [`change`](super::kept::change).
    pub(super) fn change(
        &mut self,
        last: &Roster,
        edit: &mut dyn FnMut(&mut Roster),
    ) -> Result<Roster, Failure> {
        let key = self.roster_key();
        for _ in 0..TRIES_MAX {
            let Some(Stored { roster, by, revision, .. }) = self.newest()? else { return Err(wiped(&key)) };
            roster.is_still(last)?;
            let mut next = roster.clone();
            edit(&mut next);
            next.epoch = roster.epoch.max(last.epoch) + 1;
            if self.store(&[If::Unchanged(&key, revision)], &next, Some(by), next.text != roster.text)? {
                return Ok(next);
            }
        }
        Err(busy())
    }

    /// Stores a roster again that etcd has lost, sealed by the secret of that name.
    pub(super) fn restore(&mut self, roster: &Roster, by: Option<SecretId>) -> Result<(), Failure> {
        let key = self.roster_key();
        let found = self.client.get(Keys::One(&key))?.entries.pop();
        let when = found.as_ref().map_or(If::Absent(&key), |entry| If::Unchanged(&key, entry.revision));
        if let Some(entry) = found
            && self.opened(&key, entry.value.clone()).is_some()
        {
            let stored = self.stored(entry.value, entry.revision, entry.revision)?.roster;
            stored.is_of_cluster(roster)?;
            let known = roster.epoch.saturating_sub(RESTORED);
            if stored.epoch > known || stored.epoch == known && stored.is_still(roster).is_ok() {
                return Err(Failure::new(format!(
                    "etcd has lost nothing: it has the file by which the parts go (epoch {})",
                    stored.epoch
                )));
            }
        }
        if self.store(&[when], roster, by, true)? { Ok(()) } else { Err(busy()) }
    }

    /// Stores a roster, and what its file says in the history if it `is_new`. False if the condition does not hold.
    fn store(
        &mut self,
        when: &[If<'_>],
        roster: &Roster,
        by: Option<SecretId>,
        is_new: bool,
    ) -> Result<bool, Failure> {
        let key = self.roster_key();
        let entry = self.sealed(by, &key, &roster.entry()?);
        let written =
            Written { at: text(OffsetDateTime::now_utc()), by: format!("{} at {}", user(), host()) };
        let body = roster.text.as_deref().unwrap_or_default();
        let version = format!("{TITLE}{}\n{body}", serde_json::to_string(&written)?);
        let version_key = format!("{}{:020}", self.history_keys(), roster.epoch);
        let version = self.sealed(by, &version_key, &version);
        let put = |key, value| Then::Put { key, value, lease: None };
        let all = [put(&*key, entry.as_bytes()), put(&*version_key, version.as_bytes())];
        let all = if is_new { &all[..] } else { &all[..1] };
        self.is_in_doubt = false;
        let stored = match self.client.transact(when, all) {
            Ok(stored) => stored.is_some(),
            Err(error @ Error::Doubtful { .. }) => {
                let now = self.client.get(Keys::One(&key)).ok().and_then(|mut found| found.entries.pop());
                // Nobody else writes these words.
                self.is_in_doubt = now.is_none_or(|now| now.value != entry.as_bytes());
                if self.is_in_doubt {
                    return Err(error.into());
                }
                true
            }
            Err(error) => return Err(error.into()),
        };
        if stored && is_new {
            let forgotten = self.forget_old();
            let _ = forgotten.inspect_err(|Failure(why)| tracing::debug!("old files stay in etcd: {why}"));
        }
        Ok(stored)
    }

    /// The entries of the history, oldest first, each with its epoch.
    fn versions(&mut self) -> Result<Vec<(u64, Entry)>, Failure> {
        let keys = self.history_keys();
        let entries = self.client.get(Keys::Under(&keys))?.entries.into_iter();
        let versions =
            entries.filter_map(|entry| Some((entry.key.strip_prefix(&*keys)?.parse().ok()?, entry)));
        Ok(versions.collect())
    }

    fn forget_old(&mut self) -> Result<(), Failure> {
        for (_, old) in self.versions()?.iter().rev().skip(HISTORY_MAX) {
            self.client.transact(&[], &[Then::Delete(&old.key)])?;
        }
        Ok(())
    }

    /// Takes the files of these epochs out of the history.
    pub(super) fn forget(&mut self, epochs: Range<u64>) -> Result<(), Failure> {
        for (_, entry) in self.versions()?.iter().filter(|(epoch, _)| epochs.contains(epoch)) {
            self.client.transact(&[], &[Then::Delete(&entry.key)])?;
        }
        Ok(())
    }

    /// The files that the cluster went by, oldest first; the last is the present one.
    pub(super) fn history(&mut self) -> Result<Vec<Version>, Failure> {
        let versions = self.versions()?.into_iter();
        let version = |(epoch, Entry { key, value, .. }): (u64, Entry)| {
            let (value, _) = self.opened(&key, value)?;
            let (head, text) = value.strip_prefix(TITLE)?.split_once('\n')?;
            let Written { at, by } = serde_json::from_str(head).ok()?;
            Some(Version { epoch, at, by, text: text.to_owned() })
        };
        Ok(versions.filter_map(version).collect())
    }

    /// Waits for a roster that is stored after `last`, for so many turns at most, or until `is_over` after one of them. Says when it
    /// has `begun`.
    pub(super) fn watch(
        &mut self,
        last: &Stored,
        begun: impl FnOnce(),
        (turns, turn): (u32, Duration),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Stored>, Failure> {
        let key = self.roster_key();
        let mut watch = self.client.watch(Keys::One(&key), last.seen + 1)?;
        begun();
        let mut changes = Vec::new();
        for _ in 0..turns {
            changes = watch.next(turn)?;
            if !changes.is_empty() || is_over() {
                break;
            }
        }
        drop(watch);
        match changes.pop() {
            None => Ok(None),
            Some(Change::Deleted(_)) => Err(wiped(&key)),
            Some(Change::Put(entry)) => self.stored(entry.value, entry.revision, entry.revision).map(Some),
        }
    }
}

fn host() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

fn wiped(key: &str) -> Failure {
    Failure::new(format!(
        "etcd has no {key} any more: the parts that run go on, and `sidelong cluster restore` puts it back"
    ))
}

/// Reads a password, of which a line end is no part.
fn password(path: &Path) -> Result<String, String> {
    let file = open_regular(path).map_err(|error| error.to_string())?;
    check_private(&file)?;
    let mut text = String::new();
    file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The first roster of a cluster, whose file is `text`.
///
/// # Errors
/// If it cannot be used on several machines.
pub(super) fn first(cluster: &Cluster, text: String) -> Result<Roster, Failure> {
    usable(&cluster.file)?;
    let first = Roster::begun(cluster, None);
    Ok(Roster { text: Some(text), ..first })
}

/// Checks that a file means the same on each machine.
///
/// # Errors
/// If it does not.
pub(super) fn usable(file: &ClusterFile) -> Result<(), Failure> {
    if file.is_short() {
        return Err(Failure::new("the file has no site, node, edge or cache: expected the whole cluster"));
    }
    if let Some(path) = file.relative_path() {
        return Err(Failure::new(format!(
            "the file has the relative path {}, and each machine reads it in another directory: write it from / on",
            path.display()
        )));
    }
    Ok(())
}
