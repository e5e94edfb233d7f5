//! The addresses of a front without a proxy, and what its programs do.

use std::fmt::Write as _;
use std::time::Duration;

use sidelong_app::front::{Attached, connect_failure};
use sidelong_config::{Cluster, FrontEntry};
use sidelong_load::{ConnectError, Connections, monotonic_ns};

use crate::failure::Failure;

/// That the programs are attached and the front scans, and where the connections are.
///
/// # Errors
/// If they are not, or it does not.
pub(super) fn survey(cluster: &Cluster, entry: &FrontEntry) -> Result<String, Failure> {
    let place = Attached::of(cluster, entry)?;
    // Of any cluster file: the front has refused others.
    let found = Connections::read(&place.spec(cluster, 0)).map_err(|error| match error {
        ConnectError::Directory { path, source } => Failure::new(format!(
            "{}: {source}; `sidelong front {}` attaches the programs",
            path.display(),
            entry.name
        )),
        error => connect_failure(entry, &error),
    })?;
    if !found.missing.is_empty() {
        return Err(Failure::new(format!(
            "front {}: not attached to {}: {}; start the front again",
            entry.name,
            place.group.display(),
            found.missing.join(", ")
        )));
    }
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(found.scanned_ns));
    if found.scanned_ns == 0 || age > cluster.load.stale {
        return Err(Failure::new(format!(
            "front {} does not run, or hangs: connections go to the nodes that served their site last, in random order",
            entry.name
        )));
    }
    let mut said = format!(
        "front {} runs, and scanned {:.1} ms ago\nprograms are attached to {}\n",
        entry.name,
        age.as_secs_f64() * 1e3,
        place.group.display()
    );
    for (slot, node) in cluster.nodes.entries() {
        let connections = found.at.get(slot).copied().unwrap_or_default();
        let _ = writeln!(said, "node {} has {connections} connections", node.name);
    }
    Ok(said)
}
