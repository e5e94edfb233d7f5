//! The figures of the process itself, under the names that Prometheus's client libraries give them on every platform.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use sidelong_os::{CpuTicks, ProcessStat, process_cpu};

use super::emit::{ConfigCollector, ConfigState, Labels, family};
use super::figures::{Head, Kind};

/// Everything in the registry, and what has no prefix: the cluster file that a part goes by, and the figures of the process.
pub(super) fn encode(registry: &Registry, config: Option<&Arc<ConfigState>>) -> String {
    let mut process = Registry::default();
    if let Some(config) = config {
        process.register_collector(Box::new(ConfigCollector(Arc::clone(config))));
    }
    process.register_collector(Box::new(Process));
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = text::encode_registry(&mut out, registry);
    let _ = text::encode(&mut out, &process);
    out
}

/// Reads them at the scrape. What the system does not report is left out.
#[derive(Debug)]
struct Process;

const fn head(name: &'static str, unit: &'static str, help: &'static str, kind: Kind) -> Head<'static> {
    Head { name, unit, help, kind }
}

const CPU: Head<'static> =
    head("process_cpu", "seconds", "CPU time used, in user and system mode", Kind::Counter);
const MEMORY: Head<'static> =
    head("process_resident_memory", "bytes", "Memory of the process in RAM", Kind::Gauge);
const FILES: Head<'static> = head("process_open_fds", "", "Open file descriptors", Kind::Gauge);
const FILES_MAX: Head<'static> =
    head("process_max_fds", "", "File descriptors that may be open at once", Kind::Gauge);
const START: Head<'static> =
    head("process_start_time", "seconds", "When the process started, since 1970", Kind::Gauge);

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let one = |value: Option<f64>| value.map(|value| (Labels::new(), value));
        family(&mut encoder, &CPU, one(Some(process_cpu().as_secs_f64())))?;
        family(&mut encoder, &MEMORY, one(resident_bytes()))?;
        family(&mut encoder, &FILES, one(open_files()))?;
        // Without a limit there is nothing to report.
        let files_max = getrlimit(Resource::Nofile).current;
        family(&mut encoder, &FILES_MAX, one(files_max.map(|files| files as f64)))?;
        family(&mut encoder, &START, one(*STARTED))
    }
}

/// Seconds since boot, including those in which the machine was suspended, as the start of a process counts them.
fn boot_s() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(kib.trim().parse::<f64>().ok()? * 1024.0)
}

fn open_files() -> Option<f64> {
    // One of them is the directory that is read here.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// In seconds since 1970. Worked out once, so that it does not waver.
static STARTED: LazyLock<Option<f64>> = LazyLock::new(|| {
    let started_s = CpuTicks::duration(ProcessStat::read(std::process::id())?.started_ticks).as_secs_f64();
    let age_s = boot_s() - started_s;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now_s - age_s)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_all_of_it() {
        assert!(resident_bytes().unwrap() > 1e5);
        assert!(open_files().unwrap() >= 3.0);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let started_s = STARTED.unwrap();
        // Within the tick that it is counted in.
        assert!(started_s <= now_s + 0.02 && started_s > now_s - 86_400.0, "{started_s} {now_s}");
    }
}
