//! The cluster that a command is about: of its file, or as an `up` on this machine runs it.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::unistd::{
    Gid, Uid, User, getegid, geteuid, initgroups, setegid, seteuid, setgid, setgroups, setuid,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use sidelong_app::roster;
use sidelong_config::{Cluster, ClusterFile, Fabric};
use sidelong_fabric::RunDirectory;
use sidelong_harness::up::RUN_FILE;

use crate::failure::Failure;

/// Where commands look for the cluster file, and a package's units have it.
pub(crate) const INSTALLED: &str = "/etc/sidelong/cluster.toml";

/// Whether this program is `sidelong-lab`, which takes the baselines of the papers.
pub(crate) static IS_LAB: AtomicBool = AtomicBool::new(false);

/// Reads the cluster file for a command of an operator, or of a researcher. From now on this process acts as the user to whom the cluster
/// belongs.
///
/// # Errors
/// As [`load_own`], or if it cannot act so.
pub(crate) fn load(path: &Path) -> Result<ClusterFile, Failure> {
    let file = ClusterFile::load(path)?;
    act_as_owner(&file)?;
    usable(path, file)
}

/// Reads the cluster file for a part.
///
/// # Errors
/// If it cannot be read or used, or has a baseline that this program does not take.
pub(crate) fn load_own(path: &Path) -> Result<ClusterFile, Failure> {
    usable(path, ClusterFile::load(path)?)
}

/// As [`load_own`], for a command of root that sees what all users have before it acts as the cluster's.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_as_owner(path: &Path) -> Result<ClusterFile, Failure> {
    let file = ClusterFile::load(path)?;
    let Some((user, group)) = owner(&file) else { return usable(path, file) };
    let (own_user, own_group) = (geteuid(), getegid());
    setegid(group).and_then(|()| seteuid(user)).map_err(|errno| cannot_act(user, errno))?;
    let file = usable(path, file);
    seteuid(own_user).and_then(|()| setegid(own_group)).map_err(|errno| cannot_act(own_user, errno))?;
    file
}

/// The whole of a file that may be short.
fn usable(path: &Path, mut file: ClusterFile) -> Result<ClusterFile, Failure> {
    if file.is_short() {
        file = roster::whole(&file)?;
    }
    if file.baseline.is_none() || IS_LAB.load(Ordering::Relaxed) {
        return Ok(file);
    }
    let path = path.display();
    Err(Failure::new(format!(
        "{path} has [baseline], which is for comparisons: leave it out, or use sidelong-lab"
    )))
}

/// What the file at `path` says, even if that is only where etcd has the rest. As [`load`] otherwise.
pub(crate) fn short(path: &Path) -> Result<Cluster, Failure> {
    let file = ClusterFile::load(path)?;
    act_as_owner(&file)?;
    Ok(file.cluster()?)
}

/// Has a command of root act as the user to whom the run directory belongs, for good: parts refuse what another user has written there.
fn act_as_owner(file: &ClusterFile) -> Result<(), Failure> {
    let Some((user, group)) = owner(file) else { return Ok(()) };
    let groups = || match User::from_uid(user)? {
        Some(User { name, .. }) => initgroups(&CString::new(name).map_err(|_| Errno::EINVAL)?, group),
        None => setgroups(&[group]),
    };
    let act = || groups().and_then(|()| setgid(group)).and_then(|()| setuid(user));
    act().map_err(|errno| cannot_act(user, errno))?;
    // Or /proc/self would stay root's.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// The user to whom the run directory belongs, and its group, if this process is root's and may act so.
fn owner(file: &ClusterFile) -> Option<(Uid, Gid)> {
    let owner = fs::symlink_metadata(file.cluster.run_dir.as_ref()?).ok()?;
    let is_root = geteuid().is_root() && owner.uid() != 0;
    is_root.then(|| (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid())))
}

fn cannot_act(user: Uid, errno: Errno) -> Failure {
    Failure::new(format!("cannot act as the cluster's user (uid {user}): {errno}"))
}

/// The cluster of the file at `path` as it runs, with `fabric` instead of the file's if given.
///
/// If it runs on this machine, this is what its parts go by. That may differ from the file: `up` puts servers and proxies of
/// other makes in place of the file's, and the file may have changed since.
pub(crate) fn cluster(path: &Path, fabric: Option<Fabric>) -> Result<Cluster, Failure> {
    with_nodes(any(path, fabric)?, path)
}

/// As [`cluster`], and of caches alone, too.
pub(crate) fn any(path: &Path, fabric: Option<Fabric>) -> Result<Cluster, Failure> {
    roster::current(written(path, fabric)?)
}

/// The cluster of the file at `path`, whatever its parts go by. If an `up` on this machine runs it, it is the file that this has
/// written.
pub(crate) fn of_file(path: &Path, fabric: Option<Fabric>) -> Result<Cluster, Failure> {
    with_nodes(written(path, fabric)?, path)
}

fn written(path: &Path, fabric: Option<Fabric>) -> Result<Cluster, Failure> {
    let meant = |mut file: ClusterFile| {
        file.cluster.fabric = fabric.unwrap_or(file.cluster.fabric);
        file.cluster()
    };
    let cluster = meant(load(path)?)?;
    Ok(as_run(&cluster)?.map(meant).transpose()?.unwrap_or(cluster))
}

/// What the parts of a cluster have read, if an `up` on this machine runs it.
fn as_run(cluster: &Cluster) -> Result<Option<ClusterFile>, Failure> {
    let run = RunDirectory::at(&cluster.run_dir);
    if !run.is_claimed() {
        return Ok(None);
    }
    let file = match run.read(RUN_FILE) {
        Ok(file) => ClusterFile::of_file(file, &run.path().join(RUN_FILE))?,
        // It is about to be written.
        Err(_) => return Ok(None),
    };
    // Another cluster in the same directory is refused by its words.
    Ok(Some(file).filter(|file| file.cluster.name == cluster.name))
}

/// A cluster that has more than caches.
///
/// # Errors
/// If it has not.
pub(crate) fn with_nodes(cluster: Cluster, path: &Path) -> Result<Cluster, Failure> {
    if !cluster.has_only_caches() {
        return Ok(cluster);
    }
    let file = path.display();
    Err(Failure::new(format!(
        "{file} has only caches: start each by sidelong cache NAME --config {file}, and ask it for its stats"
    )))
}
