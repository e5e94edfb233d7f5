use std::fs;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::monotonic_ns;

const WINDOW: u64 = RATE_WINDOW_NS;

fn write(root: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A /proc of four CPUs and 1 GiB.
fn proc_of_four(root: &Path) {
    write(root, "stat", "cpu 0 0 0 0\ncpu0 0\ncpu1 0\ncpu2 0\ncpu3 0\nprocs_running 4\n");
    write(root, "meminfo", "MemTotal: 1048576 kB\nMemAvailable: 262144 kB\n");
}

#[test]
fn the_machine_by_its_files() {
    let proc = tempfile::tempdir().unwrap();
    let root = proc.path();
    proc_of_four(root);
    write(root, "net/dev", "a|b\n eth0: 1000 1 0 0 0 0 0 0 500 2 0 0\n");
    let mut sampler = Sampler::under(root, &Scope::Machine).unwrap();

    let first = sampler.sample(0);
    assert_eq!(first.hot.valid, valid::RUN_QUEUE | valid::MEMORY, "no rate without an earlier look");
    assert_eq!((first.hot.run_queue, first.hot.memory_permille), (3, 750));

    // 75 of 100 ticks were used, and 3,000 bytes were transferred.
    write(root, "stat", "cpu 70 0 5 20 5\ncpu0 0\nprocs_running 0\n");
    write(root, "net/dev", "a|b\n eth0: 3000 1 0 0 0 0 0 0 1500 2 0 0\n");
    let second = sampler.sample(WINDOW);
    let all_here = valid::RUN_QUEUE | valid::MEMORY | valid::CPU | valid::NETWORK;
    assert_eq!(second.hot.valid, all_here);
    assert_eq!((second.hot.cpu_permille, second.hot.run_queue), (750, 0));
    assert_eq!(second.hot.net_bytes_per_s, 3000 * 1_000_000_000 / WINDOW);
    assert_eq!((second.hot.time_ns, second.detail.time_ns), (WINDOW, WINDOW));

    // Sampled again within the window, the rate still covers a whole one.
    assert_eq!(sampler.sample(WINDOW + 1).hot.cpu_permille, 750);

    // A malformed file costs only its own figures.
    write(root, "stat", "no such thing\n");
    assert_eq!(sampler.sample(2 * WINDOW).hot.valid, valid::MEMORY | valid::NETWORK);
}

#[test]
fn a_scope_without_files_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    for scope in [Scope::Machine, Scope::Cgroup(empty.path().join("group")), Scope::Process(1)] {
        let error = Sampler::under(empty.path(), &scope).unwrap_err().to_string();
        assert!(error.contains(&scope.to_string()) && error.contains("No such file"), "{error}");
    }
}

#[test]
fn a_control_group_of_version_2() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    proc_of_four(root);
    write(root, "group/cpu.stat", "usage_usec 1000\nuser_usec 600\nsystem_usec 400\n");
    write(root, "group/cpu.max", "50000 100000\n");
    write(root, "group/memory.current", "300000\n");
    write(root, "group/memory.stat", "anon 5\ninactive_file 100000\n");
    write(root, "group/memory.max", "1000000\n");
    write(root, "group/pids.current", "17\n");
    let mut sampler = Sampler::under(root, &Scope::Cgroup(root.join("group"))).unwrap();

    let first = sampler.sample(0);
    assert_eq!((first.hot.valid, first.hot.memory_permille), (valid::MEMORY, 200));
    assert_eq!((first.detail.threads, first.detail.cpus), (17, 1));
    assert_eq!((first.detail.cpu_user_ns, first.detail.cpu_system_ns), (600_000, 400_000));

    // Half of the half CPU that it may use.
    let used_us = 1000 + WINDOW / 1000 / 4;
    write(root, "group/cpu.stat", format!("usage_usec {used_us}\n"));
    let second = sampler.sample(WINDOW);
    assert_eq!((second.hot.cpu_permille, second.hot.valid), (500, valid::MEMORY | valid::CPU));

    // Without a limit, it is measured against the machine: one CPU of four.
    write(root, "group/cpu.max", "max 100000\n");
    write(root, "group/memory.max", "max\n");
    sampler.sample(2 * WINDOW);
    write(root, "group/cpu.stat", format!("usage_usec {}\n", used_us + WINDOW / 1000));
    let last = sampler.sample(3 * WINDOW);
    assert_eq!((last.hot.cpu_permille, last.detail.memory_total_bytes), (250, 1 << 30));
}

#[test]
fn a_control_group_of_version_1() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    proc_of_four(root);
    write(root, "cpuacct/pool/n1/cpuacct.usage", "0\n");
    write(root, "cpu/pool/n1/cpu.stat", "nr_periods 0\n");
    write(root, "cpu/pool/n1/cpu.cfs_quota_us", "200000\n");
    write(root, "cpu/pool/n1/cpu.cfs_period_us", "100000\n");
    write(root, "memory/pool/n1/memory.usage_in_bytes", "500000\n");
    write(root, "memory/pool/n1/memory.limit_in_bytes", "1000000\n");
    write(root, "pids/pool/n1/pids.current", "3\n");
    // Any of the trees leads to all of them.
    for tree in ["cpuacct", "memory", "cpu,cpuacct"] {
        write(root, "cpuacct/pool/n1/cpuacct.usage", "0\n");
        let group = root.join(tree).join("pool/n1");
        let mut sampler = Sampler::under(root, &Scope::Cgroup(group)).unwrap();
        sampler.sample(0);
        write(root, "cpuacct/pool/n1/cpuacct.usage", format!("{}\n", WINDOW / 2));
        let seen = sampler.sample(WINDOW);
        assert_eq!(seen.hot.valid, valid::MEMORY | valid::CPU, "{tree}");
        assert_eq!((seen.hot.cpu_permille, seen.hot.memory_permille), (250, 500));
        assert_eq!((seen.detail.cpus, seen.detail.threads), (2, 3));
    }
}

/// On the real /proc: a process that spins differs from one that sleeps, and the machine is at least half as busy as
/// the spinning process reports. The other half allows for ticks on either side of a sample.
#[test]
fn work_is_seen() {
    let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
    let mut spins = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let scopes = [Scope::Process(sleeps.id()), Scope::Process(spins.id()), Scope::Machine];
    let mut samplers = scopes.map(|scope| Sampler::new(&scope).unwrap());
    for sampler in &mut samplers {
        sampler.sample(monotonic_ns());
    }
    std::thread::sleep(Duration::from_nanos(8 * WINDOW));
    let [asleep, spinning, machine] = samplers.each_mut().map(|sampler| sampler.sample(monotonic_ns()).hot);
    for child in [&mut sleeps, &mut spins] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for hot in [asleep, spinning, machine] {
        assert_ne!(hot.valid & valid::CPU, 0);
    }
    assert!(spinning.cpu_permille > asleep.cpu_permille, "{spinning:?} {asleep:?}");
    assert!(machine.cpu_permille >= spinning.cpu_permille / 2, "{machine:?} {spinning:?}");
}

#[test]
fn the_machine_itself_can_be_sampled() {
    let mut sampler = Sampler::new(&Scope::Machine).unwrap();
    let sample = sampler.sample(monotonic_ns());
    let here = valid::RUN_QUEUE | valid::MEMORY;
    assert_eq!(sample.hot.valid & here, here);
    assert!(sample.detail.cpus > 0 && sample.detail.memory_total_bytes > sample.detail.memory_used_bytes);
    assert!(sample.detail.context_switches > 0 && sample.detail.threads > 0);
}
