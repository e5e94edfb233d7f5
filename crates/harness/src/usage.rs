//! CPU time that other work took while a run was under way.
//!
//! The CPU time of this process and its descendants is the experiment's own. User and system time of all others, and time that a
//! hypervisor stole, is not. Time in interrupts is counted for neither: most of it comes from the experiment's own loopback
//! traffic.
//!
//! All time is summed by process. /proc/stat has a sum, too, but the kernel takes it at ticks. Processes that begin with one, as those of
//! a control group with a share of the CPUs do, have up to 10 % more of a machine there than by the clock, and others have less.

use std::fs;

use sidelong_os::ProcessStat;

/// The share of the machine's CPU time that others may take during a run. Ratios are judged, and the closest that an experiment
/// distinguishes (S1) are a tenth apart: a machine that lost more can turn met into missed.
const OTHERS_MAX: f64 = 0.10;
/// The share that a hypervisor may take: half of that, because it takes whole time slices, which latencies show at once.
const STEAL_MAX: f64 = 0.05;
/// The kernel counts in ticks of 10 ms. A share of less CPU time than this has no meaning.
const SECONDS_MIN: f64 = 0.5;

/// CPU time since the machine started, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Time of all CPUs together, including idle time.
    pub all: f64,
    /// Idle time, which includes waiting for a disk.
    pub idle: f64,
    /// Time in all processes that this one can see, including those that have ended.
    pub processes: f64,
    /// Stolen by a hypervisor.
    pub stolen: f64,
    /// Time in this process and its descendants, including those that have ended.
    pub own: f64,
}

impl Usage {
    /// Reads the kernel's counts. Counts that it does not give are 0.
    pub fn read() -> Usage {
        let second = rustix::param::clock_ticks_per_second().max(1) as f64;
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (own, processes) = (own_ticks(std::process::id()) as f64, ticks_of_all() as f64);
        let [all, idle, stolen] = machine(&stat);
        let [all, idle, stolen, processes, own] =
            [all, idle, stolen, processes, own].map(|ticks| ticks / second);
        Usage { all, idle, processes, stolen, own }
    }

    /// The share of the CPU time since `before` that other processes and the hypervisor took; 0 if that was too short to say.
    pub fn others_since(&self, before: &Usage) -> f64 {
        let all = self.all - before.all;
        if all < SECONDS_MIN {
            return 0.0;
        }
        ((self.others() - before.others() + self.stolen - before.stolen) / all).clamp(0.0, 1.0)
    }

    /// The share of the CPU time since `before` that was not idle.
    pub fn busy_since(&self, before: &Usage) -> f64 {
        let all = self.all - before.all;
        if all > 0.0 { (1.0 - (self.idle - before.idle) / all).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Time in processes that are not the experiment's own.
    fn others(&self) -> f64 {
        self.processes - self.own
    }

    /// Why a run from `before` to now cannot be trusted; `None` if others took little.
    pub fn spoilt_since(&self, before: &Usage) -> Option<String> {
        let all = self.all - before.all;
        if all < SECONDS_MIN {
            return None;
        }
        let others = self.others() - before.others();
        let told = |who: &str, share: f64, most: f64| {
            (share > most).then(|| {
                format!("{who} {:.0} % of the CPU time, {:.0} % at most", share * 100.0, most * 100.0)
            })
        };
        told("other processes took", others / all, OTHERS_MAX)
            .or_else(|| told("the hypervisor took", (self.stolen - before.stolen) / all, STEAL_MAX))
    }
}

/// Time of all CPUs, and what was idle and stolen of it, by the first line of /proc/stat, in ticks.
fn machine(stat: &str) -> [f64; 3] {
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal. Guests are part of user.
    [ticks.iter().sum(), ticks.iter().skip(3).take(2).sum(), ticks.get(7).copied().unwrap_or(0.0)]
}

/// CPU time of all processes. That of one that has ended is its parent's.
fn ticks_of_all() -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(ProcessStat::read).map(|stat| stat.cpu.own + stat.cpu.waited).sum()
}

/// CPU time of a process and its descendants, including those that have ended.
fn own_ticks(pid: u32) -> u64 {
    let own = ProcessStat::read(pid).map_or(0, |stat| stat.cpu.own + stat.cpu.waited);
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = children
        .flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>());
    own + pids.map(own_ticks).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(all: f64, processes: f64, stolen: f64, own: f64) -> Usage {
        Usage { all, idle: 0.0, processes, stolen, own }
    }

    #[test]
    fn others_spoil_a_run_and_its_own_work_does_not() {
        let before = used(100.0, 50.0, 1.0, 10.0);
        let spoilt = |more: Usage| {
            let Usage { all, processes, stolen, own, .. } = more;
            let now = used(100.0 + all, 50.0 + processes, 1.0 + stolen, 10.0 + own);
            now.spoilt_since(&before)
        };
        assert_eq!(spoilt(used(20.0, 19.0, 0.0, 19.0)), None, "all of it is its own");
        assert_eq!(spoilt(used(20.0, 6.0, 0.0, 4.5)), None);
        let why = spoilt(used(20.0, 12.0, 0.0, 4.0)).unwrap();
        assert_eq!(why, "other processes took 40 % of the CPU time, 10 % at most");
        let why = spoilt(used(20.0, 4.0, 1.2, 4.0)).unwrap();
        assert_eq!(why, "the hypervisor took 6 % of the CPU time, 5 % at most");
        assert_eq!(spoilt(used(0.2, 0.2, 0.0, 0.0)), None, "too short to say");
        let share = used(120.0, 62.0, 2.2, 14.0).others_since(&before);
        assert!((share - 0.46).abs() < 1e-9, "what others took, and what was stolen: {share}");
        assert_eq!(used(100.2, 50.2, 1.0, 10.0).others_since(&before), 0.0);
    }

    #[test]
    fn the_kernel_says_what_was_used() {
        assert_eq!(machine("cpu  10 1 20 300 5 2 3 7 4 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"), [348.0, 305.0, 7.0]);
        assert_eq!(machine(""), [0.0; 3]);
        let busy = Usage { all: 4.0, idle: 1.0, ..Usage::default() };
        assert_eq!([Usage::default(), busy].map(|before| busy.busy_since(&before)), [0.75, 0.0]);
        let Usage { all, processes, own, .. } = Usage::read();
        assert!(own <= processes && 0.0 < processes && 0.0 < all, "{processes} and {own} of {all}");
    }

    #[test]
    fn descendants_are_its_own() {
        let before = Usage::read();
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; sleep 60"]);
        let mut child = child.spawn().unwrap();
        while Usage::read().own - before.own < 0.03 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(child.try_wait().unwrap().is_none());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
