//! What /proc tells of processes: their state, and the CPU time that they have used.

use std::collections::BTreeMap;
use std::time::Duration;

/// Some fields of /proc/PID/stat (proc_pid_stat(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessStat {
    /// Name of the program, at most 15 bytes. It may hold anything, spaces and parentheses included.
    pub program: String,
    /// Whether the process has ended, and its parent has not waited for it yet.
    pub has_ended: bool,
    /// Process ID of the parent.
    pub parent: u32,
    /// CPU time of the process and of its children.
    pub cpu: CpuTicks,
    /// When the process started, in ticks since boot.
    pub started_ticks: u64,
}

/// CPU time in the kernel's ticks, of which there are `sysconf(_SC_CLK_TCK)` in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTicks {
    /// Time of the process itself, in user and system mode.
    pub own: u64,
    /// Time of the children that the process has waited for, in user and system mode.
    pub waited: u64,
}

impl ProcessStat {
    /// Reads the fields of a process. `None` if there is no such process, or its file cannot be read.
    pub fn read(pid: u32) -> Option<ProcessStat> {
        ProcessStat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the text of /proc/PID/stat. `None` if it is not such a text.
    pub fn parse(text: &str) -> Option<ProcessStat> {
        let (begin, rest) = text.rsplit_once(')')?;
        let (_, program) = begin.split_once('(')?;
        // From field 3 on.
        let mut fields = rest.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let mut times = fields.skip(9);
        let mut time = || times.next()?.parse::<u64>().ok();
        let [user, system, waited_user, waited_system] = [time()?, time()?, time()?, time()?];
        let cpu = CpuTicks { own: user + system, waited: waited_user + waited_system };
        let started_ticks = times.nth(4)?.parse().ok()?;
        Some(ProcessStat { program: program.to_owned(), has_ended, parent, cpu, started_ticks })
    }
}

impl CpuTicks {
    /// The time that a number of ticks is.
    pub fn duration(ticks: u64) -> Duration {
        Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second().max(1) as u32
    }
}

/// The living children that the main thread of a process has started.
pub fn children(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The living threads of a process, and the time of each on a CPU.
fn threads_ns(pid: u32) -> impl Iterator<Item = (u32, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let id = task.file_name().to_str()?.parse().ok()?;
        let counts = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((id, counts.split(' ').next()?.parse().ok()?))
    })
}

/// CPU time of processes at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CpuUsed {
    /// Time of all threads, including those that have ended, in steps of 10 ms.
    ticks: Duration,
    /// Time on a CPU of each living thread. Empty if the kernel does not count it.
    threads_ns: BTreeMap<u32, u64>,
}

impl CpuUsed {
    /// CPU time of one process without its children. A process that does not exist has used nothing.
    pub fn of_process(pid: u32) -> CpuUsed {
        let ticks = CpuTicks::duration(ProcessStat::read(pid).map_or(0, |stat| stat.cpu.own));
        CpuUsed { ticks, threads_ns: threads_ns(pid).collect() }
    }

    /// CPU time of processes and of their children, living or ended. A process that does not exist has used nothing.
    pub fn of_families(pids: impl IntoIterator<Item = u32>) -> CpuUsed {
        let mut used = CpuUsed::default();
        for pid in pids {
            let ended = ProcessStat::read(pid).map_or(0, |stat| stat.cpu.waited);
            used.ticks += CpuTicks::duration(ended);
            for member in std::iter::once(pid).chain(children(pid)) {
                let CpuUsed { ticks, threads_ns } = CpuUsed::of_process(member);
                used.ticks += ticks;
                used.threads_ns.extend(threads_ns);
            }
        }
        used
    }

    /// The CPU time from `before` to now: exact if no thread has ended since, otherwise within 10 ms.
    pub fn since(&self, before: &CpuUsed) -> Duration {
        let have_ended = before.threads_ns.keys().any(|thread| !self.threads_ns.contains_key(thread));
        if have_ended || self.threads_ns.is_empty() {
            return self.ticks.saturating_sub(before.ticks);
        }
        let used = |(thread, ns): (&u32, &u64)| {
            ns.saturating_sub(before.threads_ns.get(thread).copied().unwrap_or(0))
        };
        Duration::from_nanos(self.threads_ns.iter().map(used).sum())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 250 50 8 1 20 0 3 0 100 1 1";
        let cpu = CpuTicks { own: 300, waited: 9 };
        let program = "a) b".to_owned();
        let stat = ProcessStat { program, has_ended: false, parent: 7, cpu, started_ticks: 100 };
        assert_eq!(ProcessStat::parse(text), Some(stat));
        assert_eq!(ProcessStat::parse("42 (a) S 1"), None);
        let own = ProcessStat::read(std::process::id()).unwrap();
        assert!(!own.has_ended && own.parent == std::os::unix::process::parent_id());
        assert_eq!(ProcessStat::read(u32::MAX), None);
    }

    #[test]
    fn cpu_time_is_exact_while_all_threads_live() {
        let used = |ticks_ms, threads: &[(u32, u64)]| CpuUsed {
            ticks: Duration::from_millis(ticks_ms),
            threads_ns: threads.iter().copied().collect(),
        };
        let before = used(20, &[(1, 5_000_000), (2, 9_000_000)]);
        let since = |now: CpuUsed| now.since(&before);
        assert_eq!(
            since(used(30, &[(1, 6_000_000), (2, 9_500_000), (3, 7)])),
            Duration::from_nanos(1_500_007)
        );
        assert_eq!(since(used(30, &[(1, 6_000_000)])), Duration::from_millis(10), "one has ended");
        assert_eq!(since(used(30, &[])), Duration::from_millis(10));
    }

    #[test]
    fn a_family_has_used_what_its_children_have_living_or_ended() {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut busy = Command::new("sh");
        busy.args(["-c", &format!("sh -c '{work}'; sh -c '{work}; touch $0; exec cat' \"$0\"; :")])
            .arg(&ready);
        let mut busy = busy.stdin(std::process::Stdio::piped()).spawn().unwrap();
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let none = CpuUsed::default();
        let used = CpuUsed::of_families([busy.id()]);
        assert_eq!(used.threads_ns.len(), 2, "the shell and its living child");
        // Both have done the same.
        let (living, all) = (used.since(&none), used.ticks);
        assert!(living > Duration::ZERO && all > living, "{used:?}");
        assert_eq!(CpuUsed::of_families([u32::MAX]), none);
        drop(busy.stdin.take());
        busy.wait().unwrap();
    }
}
