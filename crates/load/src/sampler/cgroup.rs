//! Samples a control group against its own limits, not those of the groups above it.
//!
//! It never asks for the version: each figure comes from the first of its possible files that opens. A group has no
//! network counters, and no run queue that is cheap to count.

use std::path::{Component, Path, PathBuf};

use super::probe::{Machinery, Offer, Probe};
use super::{Counters, CpuCounter, Sample, Source};
use crate::proc::cgroup;

#[derive(Debug)]
pub(super) struct Cgroup {
    /// Version 2: usage, user and system time in one file.
    cpu_stat: Probe,
    /// Version 1: three files.
    cpu_usage: Probe,
    cpu_user: Probe,
    cpu_system: Probe,
    cpu_max: Probe,
    cpu_quota: Probe,
    cpu_period: Probe,
    cpus: Probe,
    memory: Probe,
    memory_limit: Probe,
    memory_stat: Probe,
    pids: Probe,
    machinery: Machinery,
    offer: Offer,
}

impl Cgroup {
    pub(super) fn open(proc: &Path, group: &Path, buffer: &mut Vec<u8>) -> Self {
        let open = |controller: &str, names: &[&str]| {
            let directories = [Some(group.to_owned()), beside(group, controller)];
            let paths = directories.iter().flatten();
            Probe::open_first(paths.flat_map(|path| names.iter().map(|name| path.join(name))))
        };
        Cgroup {
            cpu_stat: open("cpu", &["cpu.stat"]),
            cpu_usage: open("cpuacct", &["cpuacct.usage"]),
            cpu_user: open("cpuacct", &["cpuacct.usage_user"]),
            cpu_system: open("cpuacct", &["cpuacct.usage_sys"]),
            cpu_max: open("cpu", &["cpu.max"]),
            cpu_quota: open("cpu", &["cpu.cfs_quota_us"]),
            cpu_period: open("cpu", &["cpu.cfs_period_us"]),
            cpus: open("cpuset", &["cpuset.cpus.effective", "cpuset.effective_cpus"]),
            memory: open("memory", &["memory.current", "memory.usage_in_bytes"]),
            memory_limit: open("memory", &["memory.max", "memory.limit_in_bytes"]),
            memory_stat: open("memory", &["memory.stat"]),
            pids: open("pids", &["pids.current"]),
            machinery: Machinery::read(proc, buffer),
            offer: Offer::default(),
        }
    }
}

impl Source for Cgroup {
    /// The limit is left out: without usage it is no figure.
    fn probes(&self) -> Vec<&Probe> {
        vec![&self.cpu_stat, &self.cpu_usage, &self.memory, &self.pids]
    }

    fn look(&mut self, now_ns: u64, buffer: &mut Vec<u8>, sample: &mut Sample) -> Counters {
        let threads = self.pids.read(buffer, cgroup::count).unwrap_or(0);
        sample.detail.threads = u32::try_from(threads).unwrap_or(u32::MAX);
        if let Some((used_bytes, total_bytes)) = self.memory(buffer) {
            sample.set_memory(used_bytes, total_bytes);
        }
        let used_ns = self.cpu_used_ns(buffer, sample);
        let millicpus = self.millicpus(buffer);
        sample.detail.cpus = millicpus.map_or(0, |millicpus| millicpus.div_ceil(1000) as u32);
        let cpu = used_ns.zip(millicpus).map(|(used_ns, millicpus)| CpuCounter {
            used_ns,
            offered_ns: self.offer.count(now_ns, millicpus),
        });
        Counters { cpu, network_bytes: None }
    }
}

impl Cgroup {
    /// The working set and its limit, in bytes.
    fn memory(&self, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
        let used_bytes = self.memory.read(buffer, cgroup::count)?;
        let idle_bytes = self.memory_stat.read(buffer, cgroup::inactive_file).unwrap_or(0);
        let limit = self.memory_limit.read(buffer, cgroup::memory_limit).unwrap_or(cgroup::Limit::Unlimited);
        Some((used_bytes.saturating_sub(idle_bytes), limit.within(self.machinery.memory_bytes?)))
    }

    fn cpu_used_ns(&self, buffer: &mut Vec<u8>, sample: &mut Sample) -> Option<u64> {
        let detail = &mut sample.detail;
        if let Some(stat) = self.cpu_stat.read(buffer, cgroup::cpu_stat) {
            detail.cpu_user_ns = stat.user_us.saturating_mul(1000);
            detail.cpu_system_ns = stat.system_us.saturating_mul(1000);
            return Some(stat.usage_us.saturating_mul(1000));
        }
        let usage_ns = self.cpu_usage.read(buffer, cgroup::count)?;
        detail.cpu_user_ns = self.cpu_user.read(buffer, cgroup::count).unwrap_or(0);
        detail.cpu_system_ns = self.cpu_system.read(buffer, cgroup::count).unwrap_or(0);
        Some(usage_ns)
    }

    /// The group's share of the machine, in thousandths of a CPU: the number of its CPUs, or less by its quota.
    fn millicpus(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let cpus = self.cpus.read(buffer, cgroup::cpu_list).or(self.machinery.cpus)?;
        let quota = self.cpu_max.read(buffer, cgroup::cpu_max).or_else(|| {
            let period_us = self.cpu_period.read(buffer, cgroup::count)?;
            self.cpu_quota.read(buffer, |quota| cgroup::cpu_quota(quota, period_us))
        });
        Some(quota.unwrap_or(cgroup::Limit::Unlimited).within(u64::from(cpus) * 1000))
    }
}

/// The directory of the same group under another controller of version 1, each of which has its own tree:
/// `/sys/fs/cgroup/memory/a/b` beside `/sys/fs/cgroup/cpuacct/a/b`.
pub(crate) fn beside(group: &Path, controller: &str) -> Option<PathBuf> {
    const TREES: [&str; 6] = ["cpu", "cpuacct", "cpu,cpuacct", "cpuset", "memory", "pids"];
    let is_tree = |part: &Component<'_>| TREES.iter().any(|tree| part.as_os_str() == *tree);
    let at = group.components().position(|part| is_tree(&part))?;
    let parts = group.components().enumerate();
    Some(parts.map(|(i, part)| if i == at { controller.as_ref() } else { part.as_os_str() }).collect())
}
