//! The kernel's own current figures, with which a record is compared.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use nix::time::ClockId;
use rustix::thread::Pid;

use sidelong_app::Failure;

/// Most bytes read of a file in /proc.
const BYTES_MAX: usize = 1 << 16;
/// A control group's tree counts everything if it has at least this share of the CPU time in /proc/stat.
const WHOLE_MIN: f64 = 0.5;
/// The unit of /proc/stat.
const TICK_NS: u64 = 10_000_000;

pub(super) struct Truth {
    stat: File,
    /// Counts in ns rather than ticks, if available.
    accounting: Option<File>,
    cpus: u32,
}

/// The figures of /proc/stat.
struct Stat {
    used_ns: u64,
    running: u32,
    cpus: u32,
}

impl Truth {
    pub(super) fn open() -> Result<Self, Failure> {
        let stat = File::open("/proc/stat")?;
        let mut truth = Truth { stat, accounting: None, cpus: 1 };
        let now = truth.stat()?;
        truth.cpus = now.cpus;
        // In a container the tree may be only its own.
        let accounting = accounting_file().and_then(|path| File::open(path).ok());
        truth.accounting = accounting.filter(|file| {
            number(file).is_some_and(|used_ns| used_ns as f64 >= WHOLE_MIN * now.used_ns as f64)
        });
        Ok(truth)
    }

    /// The source of CPU time, in words.
    pub(super) fn source(&self) -> &'static str {
        if self.accounting.is_some() { "cpuacct.usage" } else { "/proc/stat, in ticks of 10 ms" }
    }

    /// CPUs that are online.
    pub(super) fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Threads that run or wait, without the asking one, and CPU time used by all since boot, in ns.
    ///
    /// The kernel updates a running thread's time at its ticks, or when the time is read. So the clocks of `threads`,
    /// which belong to this process, are read first.
    pub(super) fn now(&self, threads: &[Pid]) -> Result<(u32, u64), Failure> {
        let stat = self.stat()?;
        for thread in threads {
            let _ = clock_of(*thread).now();
        }
        let _ = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
        let used_ns = self.accounting.as_ref().and_then(number).unwrap_or(stat.used_ns);
        Ok((stat.running.saturating_sub(1), used_ns))
    }

    fn stat(&self) -> Result<Stat, Failure> {
        let mut buffer = vec![0; BYTES_MAX];
        let length = self.stat.read_at(&mut buffer, 0)?;
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        parse(&text).ok_or_else(|| Failure::new("/proc/stat is not as proc_stat(5) has it"))
    }
}

/// A thread's CPU time (`MAKE_THREAD_CPUCLOCK` and `CPUCLOCK_SCHED` of include/linux/posix-timers.h).
fn clock_of(thread: Pid) -> ClockId {
    ClockId::from_raw(!thread.as_raw_nonzero().get() << 3 | 4 | 2)
}

fn parse(text: &str) -> Option<Stat> {
    let mut lines = text.lines();
    let ticks: Vec<u64> = lines
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|tick| tick.parse().ok())
        .collect::<Option<_>>()?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    let used: u64 =
        ticks.iter().take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, n)| n).sum();
    let cpus = lines.clone().take_while(|line| line.starts_with("cpu")).count() as u32;
    let running = lines.find_map(|line| line.strip_prefix("procs_running ")?.trim().parse().ok())?;
    Some(Stat { used_ns: used * TICK_NS, running, cpus })
}

/// The file at the top of the tree of the cpuacct controller, which only version 1 has.
fn accounting_file() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == "cpuacct")).then(|| PathBuf::from(at))
    })?;
    Some(mount.join("cpuacct.usage"))
}

fn number(file: &File) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = file.read_at(&mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_all_but_idle_and_waiting() {
        let text = "cpu  10 1 5 100 50 2 3 4 9 9\ncpu0 1 1 1\ncpu1 1 1 1\nintr 7\nprocs_running 3\n";
        let stat = parse(text).unwrap();
        assert_eq!((stat.used_ns, stat.running, stat.cpus), (25 * TICK_NS, 3, 2));
        assert!(parse("cpu  a b\n").is_none() && parse("").is_none());
    }

    #[test]
    fn a_thread_has_a_clock_of_its_own() {
        let begun = clock_of(rustix::thread::gettid()).now().unwrap();
        let same = ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap();
        let after = clock_of(rustix::thread::gettid()).now().unwrap();
        assert!(begun <= same && same <= after, "{begun} {same} {after}");
    }

    #[test]
    fn this_machine_runs() {
        let truth = Truth::open().unwrap();
        assert!(truth.cpus() >= 1 && truth.now(&[]).unwrap().1 > 0);
    }
}
