//! Samples one process against the CPUs that it may run on and the machine's memory.
//!
//! A process has no run queue of its own, and no network counters.

use std::path::Path;

use rustix::process::Pid;
use rustix::thread::sched_getaffinity;

use super::probe::{Machinery, Offer, Probe};
use super::{Counters, CpuCounter, Sample, Source, ticks_ns};
use crate::proc::process;

#[derive(Debug)]
pub(super) struct Process {
    stat: Probe,
    pid: Option<Pid>,
    machinery: Machinery,
    offer: Offer,
}

impl Process {
    pub(super) fn open(proc: &Path, pid: u32, buffer: &mut Vec<u8>) -> Self {
        Process {
            stat: Probe::open(proc.join(pid.to_string()).join("stat")),
            pid: i32::try_from(pid).ok().and_then(Pid::from_raw),
            machinery: Machinery::read(proc, buffer),
            offer: Offer::default(),
        }
    }
}

impl Source for Process {
    fn probes(&self) -> Vec<&Probe> {
        vec![&self.stat]
    }

    fn look(&mut self, now_ns: u64, buffer: &mut Vec<u8>, sample: &mut Sample) -> Counters {
        let Some(stat) = self.stat.read(buffer, process::process) else { return Counters::default() };
        let detail = &mut sample.detail;
        detail.threads = stat.threads;
        (detail.cpu_user_ns, detail.cpu_system_ns) = (ticks_ns(stat.user_ticks), ticks_ns(stat.system_ticks));
        let used_ns = detail.cpu_user_ns.saturating_add(detail.cpu_system_ns);
        let cpus = self.cpus();
        detail.cpus = cpus.unwrap_or(0);
        if let Some(memory_bytes) = self.machinery.memory_bytes {
            let page_bytes = rustix::param::page_size() as u64;
            sample.set_memory(stat.resident_pages.saturating_mul(page_bytes), memory_bytes);
        }
        let cpu = cpus
            .map(|cpus| CpuCounter { used_ns, offered_ns: self.offer.count(now_ns, u64::from(cpus) * 1000) });
        Counters { cpu, network_bytes: None }
    }
}

impl Process {
    /// Number of CPUs that the process may use; all, if the kernel does not tell.
    fn cpus(&self) -> Option<u32> {
        let allowed = self.pid.and_then(|pid| sched_getaffinity(Some(pid)).ok());
        allowed.map(|cpus| cpus.count()).or(self.machinery.cpus)
    }
}
