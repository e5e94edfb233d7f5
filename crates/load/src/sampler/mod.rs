//! Samplers: from the kernel's files to the figures of a record.

mod cgroup;
mod machine;
mod probe;
mod process;
mod window;

use std::fmt;
use std::path::{Path, PathBuf};

use sidelong_layout::{Detail, Hot, valid};

use crate::Error;
use cgroup::Cgroup;
pub(crate) use cgroup::beside;
use machine::Machine;
pub(crate) use probe::Probe;
use process::Process;
pub(crate) use window::Window;

/// The load that a node reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The machine's, if a node has it to itself.
    Machine,
    /// A control group's, if several nodes share the machine. Its directory: of version 2, or of any controller of
    /// version 1 (`/sys/fs/cgroup/cpuacct/NAME`), from which the other controllers' directories are derived.
    Cgroup(PathBuf),
    /// A process's, if nodes share the machine without control groups.
    Process(u32),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Machine => f.write_str("this machine"),
            Scope::Cgroup(path) => write!(f, "control group {}", path.display()),
            Scope::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

/// Shortest window of rates, in ns. The kernel counts CPU time in ticks of 10 ms (proc_stat(5)), so a shorter window
/// would give only 0 and 1000 permille. It is the interval of Vaidyanathan et al. (2006, section 5).
pub const RATE_WINDOW_NS: u64 = 50_000_000;

/// The figures of one sample. `hot.valid` tells which are available. The publisher sets sequence, check and generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Run queue, CPU, memory and network.
    pub hot: Hot,
    /// The other figures; unavailable ones are 0.
    pub detail: Detail,
}

/// Samples the load of a [`Scope`] from files that it keeps open.
#[derive(Debug)]
pub struct Sampler {
    source: Box<dyn Source + Send>,
    /// Buffer for every file.
    buffer: Vec<u8>,
    window: Window<Counters>,
}

/// The files of one scope.
trait Source: fmt::Debug {
    /// The files with figures, open or not; at least one.
    fn probes(&self) -> Vec<&Probe>;

    /// Samples them into `sample`, and returns the counters whose differences are rates.
    fn look(&mut self, now_ns: u64, buffer: &mut Vec<u8>, sample: &mut Sample) -> Counters;
}

/// Counters whose differences are rates. `None` if unavailable.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    cpu: Option<CpuCounter>,
    network_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct CpuCounter {
    used_ns: u64,
    /// CPU time that was available.
    offered_ns: u64,
}

impl Sampler {
    /// Opens the files that exist.
    ///
    /// # Errors
    /// [`Error::NothingToSample`] if there are none.
    pub fn new(scope: &Scope) -> Result<Self, Error> {
        Sampler::under(Path::new("/proc"), scope)
    }

    /// With another directory as /proc.
    fn under(proc: &Path, scope: &Scope) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        let source: Box<dyn Source + Send> = match scope {
            Scope::Machine => Box::new(Machine::open(proc)),
            Scope::Cgroup(path) => Box::new(Cgroup::open(proc, path, &mut buffer)),
            Scope::Process(pid) => Box::new(Process::open(proc, *pid, &mut buffer)),
        };
        let probes = source.probes();
        if !probes.iter().any(|probe| probe.is_open())
            && let Some((path, source)) = probes.first().and_then(|probe| probe.failure())
        {
            return Err(Error::NothingToSample { scope: scope.clone(), path, source });
        }
        drop(probes);
        Ok(Sampler { source, buffer, window: Window::default() })
    }

    /// Samples the load. CPU and network are rates since an earlier call, between one and two [`RATE_WINDOW_NS`] ago if
    /// calls are frequent. The first call has neither.
    pub fn sample(&mut self, now_ns: u64) -> Sample {
        let mut sample = Sample::default();
        (sample.hot.time_ns, sample.detail.time_ns) = (now_ns, now_ns);
        let counters = self.source.look(now_ns, &mut self.buffer, &mut sample);
        if let Some((elapsed_ns, earlier)) = self.window.slide(now_ns, counters, RATE_WINDOW_NS) {
            sample.set_cpu(earlier.cpu, counters.cpu);
            sample.set_network(elapsed_ns, earlier.network_bytes, counters.network_bytes);
        }
        sample
    }
}

impl Sample {
    fn set_run_queue(&mut self, running: u32) {
        self.hot.run_queue = u16::try_from(running).unwrap_or(u16::MAX);
        self.hot.valid |= valid::RUN_QUEUE;
    }

    fn set_memory(&mut self, used_bytes: u64, total_bytes: u64) {
        let Some(permille) = permille(used_bytes, total_bytes) else { return };
        self.hot.memory_permille = permille;
        self.hot.valid |= valid::MEMORY;
        (self.detail.memory_used_bytes, self.detail.memory_total_bytes) = (used_bytes, total_bytes);
    }

    fn set_cpu(&mut self, earlier: Option<CpuCounter>, now: Option<CpuCounter>) {
        let (Some(earlier), Some(now)) = (earlier, now) else { return };
        let used_ns = now.used_ns.saturating_sub(earlier.used_ns);
        let offered_ns = now.offered_ns.saturating_sub(earlier.offered_ns);
        if let Some(permille) = permille(used_ns, offered_ns) {
            self.hot.cpu_permille = permille;
            self.hot.valid |= valid::CPU;
        }
    }

    fn set_network(&mut self, elapsed_ns: u64, earlier: Option<u64>, now: Option<u64>) {
        let (Some(earlier), Some(now)) = (earlier, now) else { return };
        self.hot.net_bytes_per_s = per_second(now.saturating_sub(earlier), elapsed_ns);
        self.hot.valid |= valid::NETWORK;
    }
}

/// `part` of `whole` in thousandths, at most 1000.
pub(crate) fn permille(part: u64, whole: u64) -> Option<u16> {
    let permille = (u128::from(part) * 1000).checked_div(u128::from(whole))?;
    Some(permille.min(1000) as u16)
}

/// `amount` in `elapsed_ns`, per second; `elapsed_ns` is not 0.
pub(crate) fn per_second(amount: u64, elapsed_ns: u64) -> u64 {
    let rate = u128::from(amount) * 1_000_000_000 / u128::from(elapsed_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Clock ticks in nanoseconds.
fn ticks_ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests;
