//! Facts about the running kernel, collected before a program is loaded: the places of its per-CPU variables, its
//! tracepoints, and some figures that only files give.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Enum, Struct, Typedef, Var};

use super::{KernelError, privilege};
use crate::proc::machine;

const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Counters of IP and TCP that the record needs, by the names of their numbers: bytes and packets in, bytes and packets
/// out, established connections.
pub(super) const COUNTERS: [&str; 5] = [
    "IPSTATS_MIB_INOCTETS",
    "IPSTATS_MIB_INPKTS",
    "IPSTATS_MIB_OUTOCTETS",
    "IPSTATS_MIB_OUTPKTS",
    "TCP_MIB_CURRESTAB",
];

/// Facts about this kernel.
#[derive(Debug)]
pub(super) struct Facts {
    /// CPUs that the machine may have: one more than the highest number.
    pub(super) cpus: u32,
    /// Memory nodes if they are numbered from 0 without a gap, otherwise 0.
    pub(super) nodes: u32,
    pub(super) memory_total_bytes: u64,
    /// Over 1, 5 and 15 minutes, in thousandths.
    pub(super) load_milli: [u32; 3],
    /// Whether it accounts for pressure (PSI).
    pub(super) pressure: bool,
    /// Offsets of per-CPU variables from the run queue's.
    pub(super) variables: BTreeMap<String, i64>,
    pub(super) tracepoints: Vec<&'static str>,
    pub(super) counters: [Option<u32>; COUNTERS.len()],
}

impl Facts {
    pub(super) fn read() -> Result<Self, KernelError> {
        privilege::check(privilege::TO_TRACE)?;
        let no_types = |reason: String| KernelError::NoTypes { path: TYPES.into(), reason };
        if !Path::new(TYPES).exists() {
            return Err(no_types("no such file".to_owned()));
        }
        let types = Btf::from_path(TYPES).map_err(|error| no_types(error.to_string()))?;
        let has = |name: &str| types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some();
        let tracepoints = super::EVENTS.iter().map(|(_, tracepoint, _)| *tracepoint);
        if types.type_by_name::<Struct<'_>>("task_group").is_none() {
            return Err(KernelError::Lacks { what: "task groups (CONFIG_FAIR_GROUP_SCHED)".to_owned() });
        }
        let text = |path: &str| {
            std::fs::read(path).map_err(|source| KernelError::Read { path: PathBuf::from(path), source })
        };
        let memory = machine::memory(&text("/proc/meminfo")?);
        let load = machine::load_average(&text("/proc/loadavg")?);
        let possible = text("/sys/devices/system/cpu/possible")?;
        let nodes = text("/sys/devices/system/node/online").unwrap_or_else(|_| b"0".to_vec());
        Ok(Facts {
            cpus: last_of_list(&possible).map_or(1, |last| last + 1),
            nodes: last_of_list(&nodes).filter(|_| !nodes.contains(&b',')).map_or(0, |last| last + 1),
            memory_total_bytes: memory.map_or(0, |memory| memory.total_bytes),
            load_milli: load.map_or([0; 3], |load| load.milli),
            pressure: text("/proc/pressure/memory").is_ok(),
            variables: variables(&types),
            tracepoints: tracepoints.filter(|name| has(name)).collect(),
            counters: counters(&types),
        })
    }

    /// Offset of a per-CPU variable from the run queue of the same CPU; 0 if it does not exist.
    pub(super) fn variable(&self, name: &str) -> i64 {
        self.variables.get(name).copied().unwrap_or(0)
    }

    pub(super) fn has_tracepoint(&self, name: &str) -> bool {
        self.tracepoints.contains(&name)
    }
}

/// The last number of a list such as `0-3,8`.
fn last_of_list(text: &[u8]) -> Option<u32> {
    let text = str::from_utf8(text).ok()?.trim();
    text.rsplit([',', '-']).next()?.parse().ok()
}

fn variables(types: &Btf<'_>) -> BTreeMap<String, i64> {
    let section =
        types.type_by_kind::<DataSec<'_>>().find(|one| one.name().is_some_and(|n| n == ".data..percpu"));
    let Some(section) = section else { return BTreeMap::new() };
    let offsets: BTreeMap<String, i64> = section
        .iter()
        .filter_map(|variable| {
            let named = types.type_by_id::<Var<'_>>(variable.ty)?;
            Some((named.name()?.to_str()?.to_owned(), i64::from(variable.offset)))
        })
        .collect();
    let Some(queues) = offsets.get("runqueues").copied() else { return BTreeMap::new() };
    offsets.into_iter().map(|(name, offset)| (name, offset - queues)).collect()
}

fn counters(types: &Btf<'_>) -> [Option<u32>; COUNTERS.len()] {
    let mut found = [None; COUNTERS.len()];
    for one in types.type_by_kind::<Enum<'_>>() {
        for member in one.iter() {
            let name = member.name.and_then(|name| name.to_str());
            if let Some(place) = COUNTERS.iter().position(|counter| Some(*counter) == name) {
                found[place] = u32::try_from(member.value).ok();
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::last_of_list;

    #[test]
    fn lists_end_with_their_last_number() {
        assert_eq!(last_of_list(b"0-3\n"), Some(3));
        assert_eq!(last_of_list(b"0"), Some(0));
        assert_eq!(last_of_list(b"0-3,8\n"), Some(8));
        assert_eq!(last_of_list(b""), None);
    }
}
