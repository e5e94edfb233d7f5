//! The cluster that a command is about: of its file, or as an `up` on this machine runs it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sidelong_app::roster;
use sidelong_config::{Cluster, ClusterFile, Fabric};
use sidelong_fabric::RunDirectory;
use sidelong_harness::up::RUN_FILE;

use crate::failure::Failure;

/// Whether this program is `sidelong-lab`, which takes the baselines of the papers.
pub(crate) static IS_LAB: AtomicBool = AtomicBool::new(false);

/// Reads the cluster file of an operator, or of a researcher.
///
/// # Errors
/// If it cannot be read or used, or has a baseline that this program does not take.
pub(crate) fn load(path: &Path) -> Result<ClusterFile, Failure> {
    let mut file = ClusterFile::load(path)?;
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

/// What the file at `path` says, even if that is only where etcd has the rest.
pub(crate) fn short(path: &Path) -> Result<Cluster, Failure> {
    Ok(ClusterFile::load(path)?.cluster()?)
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
