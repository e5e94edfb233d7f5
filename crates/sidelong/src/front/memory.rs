//! Says who uses the memory by which a proxy is controlled.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use sidelong_app::front::{choice_map, directory};
use sidelong_config::{Cluster, FrontEntry};
use sidelong_edge::adapter_regions;
use sidelong_fabric::RunDirectory;
use sidelong_layout::{
    ChoiceMap, HEADER_BYTES, NodeId, NodeState, Ownership, RegionHeader, RegionKind, SLOTS, Worker,
    WorkersMap,
};
use sidelong_load::monotonic_ns;

use crate::failure::Failure;

/// That the front runs, and whose workers ask it.
///
/// # Errors
/// If it does not, or none does.
pub(super) fn survey(cluster: &Cluster, entry: &FrontEntry) -> Result<String, Failure> {
    let run = RunDirectory::at(directory(cluster, entry));
    let [choice, workers] = adapter_regions(&entry.name).map(|region| format!("{region}.region"));
    let open = |name: &str, kind, len| -> Result<File, Failure> {
        let path = run.path().join(name);
        let wrong = |why: String| Failure::new(format!("{}: {why}", path.display()));
        let file = run
            .read(name)
            .map_err(|error| wrong(format!("{error}; `sidelong front {}` makes it", entry.name)))?;
        let mut words = [0; HEADER_BYTES];
        file.read_exact_at(&mut words, 0).map_err(|error| wrong(error.to_string()))?;
        let words = std::array::from_fn(|i| u64::from_le_bytes(words.as_chunks().0[i]));
        RegionHeader::checked(&words, 0, kind, len).map_err(|error| wrong(error.to_string()))?;
        Ok(file)
    };
    let word = |file: &File, offset: usize| -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, offset as u64)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let map = choice_map(cluster);
    let choice = open(&choice, RegionKind::Choice, map.len())?;
    let scanned = word(&choice, ChoiceMap::TIME)?;
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(scanned));
    if scanned == 0 || age > cluster.load.stale {
        return Err(Failure::new(format!(
            "front {} does not run, or hangs: {} sends requests by itself",
            entry.name, entry.proxy
        )));
    }
    let mut held = String::new();
    for (index, node) in cluster.nodes.entries() {
        let ownership = word(&choice, map.ownership(NodeId::new(index)))?;
        let state = Ownership::decode(ownership, map.sites).map(|ownership| ownership.state);
        if state == Some(NodeState::Held) {
            let _ = writeln!(held, "node {0} is held: `sidelong resume {0}` gives it back", node.name);
        }
    }
    let map = WorkersMap { nodes: map.nodes };
    let file = open(&workers, RegionKind::Workers, map.len())?;
    let mut pids = Vec::new();
    for slot in 0..SLOTS {
        pids.extend(Worker::decode(word(&file, map.owner(slot))?).map(|worker| worker.pid.to_string()));
    }
    if pids.is_empty() {
        return Err(Failure::new(format!(
            "front {} runs, and no worker of {} has sent a request by it: compare its configuration with `sidelong front config {}`",
            entry.name, entry.proxy, entry.name
        )));
    }
    let (workers, ask) = if pids.len() == 1 { ("worker", "asks") } else { ("workers", "ask") };
    Ok(format!(
        "front {} runs, and scanned {:.1} ms ago\n{} {workers} of {} {ask} it: {}\n{held}",
        entry.name,
        age.as_secs_f64() * 1e3,
        pids.len(),
        entry.proxy,
        pids.join(", ")
    ))
}
