//! The kernel-kept record against the truth: what these tests know that they did, and the figures of /proc.
//!
//! Other programs use the machine meanwhile, so a figure of /proc is compared with two samples of the record. A counter
//! of /proc lies between the two; a momentary figure is compared when both samples agree.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::thread::{CpuSet, sched_setaffinity};
use sidelong_fabric::Region;
use sidelong_layout::{Hot, Machine, kept, valid};
use sidelong_load::proc::machine as proc;
use sidelong_load::{KernelRecord, KernelSpec, OneSided, Reading, Scope, Source as _, Status, monotonic_ns};

use crate::support::kernel::{Other, expose, keep, reader, skipped};
use crate::support::{all_are, limits, refresh_until};

/// Longer than the intervals of survey and beat.
const SETTLE: Duration = Duration::from_millis(25);
/// Most samples, at that interval, of what takes a busy machine a while.
const LOOKS_MAX: u32 = 1000;

struct Kept {
    reader: OneSided,
    _region: Region,
    _record: KernelRecord,
    _directory: tempfile::TempDir,
}

impl Kept {
    fn of(test: &str, scope: Scope) -> Option<Kept> {
        Kept::of_server(test, scope, &[])
    }

    fn of_server(test: &str, scope: Scope, servers: &[SocketAddr]) -> Option<Kept> {
        let record = keep(test, &KernelSpec { servers: servers.to_vec(), ..KernelSpec::new(scope, 1) })?;
        let directory = tempfile::tempdir().unwrap();
        let region = expose(&record, directory.path(), 1);
        let mut reader = reader(directory.path(), limits());
        refresh_until(&mut reader, all_are::<1>(Status::Fresh));
        Some(Kept { reader, _region: region, _record: record, _directory: directory })
    }

    /// The counts so far.
    fn machine(&mut self) -> Machine {
        surveyed(|| self.reader.machine(0).unwrap(), |machine| machine.time_ns)
    }

    /// Listening sockets, established connections, and those that wait.
    fn sockets(&mut self) -> (u16, u32, u32) {
        let found = surveyed(|| self.reader.sockets(0).unwrap(), |sockets| sockets.time_ns);
        assert!(found.dropped == 0 && found.queue_max >= found.queue, "{found:?}");
        (found.listening, found.established, found.queue)
    }

    /// Once the sockets are these: a machine takes its time, with a client's end or a server's.
    fn has_sockets(&mut self, expected: (u16, u32, u32)) {
        let found = (0..LOOKS_MAX).find(|_| self.sockets() == expected);
        assert!(found.is_some(), "{:?} for {expected:?}", self.sockets());
    }

    fn look(&mut self) -> Reading {
        let mut readings = [Reading::default()];
        self.reader.refresh(monotonic_ns(), &mut readings);
        readings[0]
    }
}

/// The result of a survey that begins after this call; on a busy machine the next one may be late.
fn surveyed<R>(mut look: impl FnMut() -> R, time_ns: impl Fn(&R) -> u64) -> R {
    let now_ns = monotonic_ns();
    let mut looks = (0..LOOKS_MAX).map(|_| {
        std::thread::sleep(SETTLE);
        look()
    });
    looks.find(|record| time_ns(record) > now_ns).expect("a survey")
}

fn read<T>(path: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> T {
    parse(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn counters_lie_between_two_looks_at_proc() {
    let Some(mut kept_) = Kept::of("counters_lie_between_two_looks_at_proc", Scope::Machine) else { return };
    let (first, stat, second) = (kept_.machine(), read("/proc/stat", proc::stat), kept_.machine());
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let expected = kept::CPU_TIMES | kept::SWITCHES | kept::INTERRUPTS_TOTAL | kept::LOAD_AVERAGE;
    assert_eq!(first.valid & expected, expected, "{first:?}");
    let between = |what: &str, of: fn(&Machine) -> u64, ticks: u64| {
        // /proc rounds each CPU's time down to a tick.
        let (low, high) = (of(&first).saturating_sub(tick_ns * 8), of(&second) + tick_ns * 8);
        assert!((low..=high).contains(&(ticks * tick_ns)), "{what}: {low} {} {high}", ticks * tick_ns);
    };
    between("user", |m| m.cpu_user_ns + m.cpu_nice_ns, stat.cpu.user);
    between("system", |m| m.cpu_system_ns + m.cpu_irq_ns + m.cpu_softirq_ns, stat.cpu.system);
    between("idle", |m| m.cpu_idle_ns, stat.cpu.idle);
    between("steal", |m| m.cpu_steal_ns, stat.cpu.steal);
    let exactly = |what: &str, of: fn(&Machine) -> u64, truth: u64| {
        assert!((of(&first)..=of(&second)).contains(&truth), "{what}: {truth}, {first:?} {second:?}");
    };
    exactly("context switches", |m| m.context_switches, stat.context_switches);
    // /proc includes interrupts that belong to no CPU, which are few.
    let interrupts = first.interrupts..=second.interrupts + second.interrupts / 1000;
    assert!(interrupts.contains(&stat.interrupts), "{interrupts:?} {}", stat.interrupts);
    assert_eq!(u32::from(first.cpus), stat.cpus);

    let (first, memory, second) = (kept_.machine(), read("/proc/meminfo", proc::memory), kept_.machine());
    assert_eq!(first.memory_total_bytes, memory.total_bytes);
    let used = memory.total_bytes - memory.available_bytes;
    let slack = memory.total_bytes / 100;
    let low = first.memory_used_bytes.min(second.memory_used_bytes).saturating_sub(slack);
    let high = first.memory_used_bytes.max(second.memory_used_bytes) + slack;
    assert!((low..=high).contains(&used), "memory: {used}, {first:?} {second:?}");

    // The record starts with the kernel's load averages, and continues by the kernel's rule.
    let load = read("/proc/loadavg", proc::load_average);
    for (ours, theirs) in [(second.load_1m_milli, load.milli[0]), (second.load_15m_milli, load.milli[2])] {
        // One of the kernel's own samples may lie between, which moves the first average by 8 % of the running threads.
        assert!(ours.abs_diff(theirs) <= 250 + theirs / 4, "{ours} {theirs}");
    }
}

/// A load average follows the kernel's rule: after ten seconds of known load it equals the kernel's.
#[test]
fn load_averages_follow_the_kernels() {
    let Some(mut kept) = Kept::of("load_averages_follow_the_kernels", Scope::Machine) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4).map(|_| busy(None, &stop)).collect();
    std::thread::sleep(Duration::from_secs(11));
    let (ours, theirs) = (kept.machine(), read("/proc/loadavg", proc::load_average));
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The kernel's samples and ours are up to 5 s apart, in which the first average moves 8 % of the way to its limit.
    let (ours, theirs) = (ours.load_1m_milli, theirs.milli[0]);
    assert!(ours.abs_diff(theirs) <= 500 + theirs / 5, "{ours} {theirs}");
}

#[test]
fn run_queues_are_those_of_proc() {
    let Some(mut kept) = Kept::of("run_queues_are_those_of_proc", Scope::Machine) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3).map(|_| busy(None, &stop)).collect();
    std::thread::sleep(SETTLE);
    let (mut compared, mut equal) = (0, 0);
    for _ in 0..3000 {
        let (first, truth) = (kept.look(), read("/proc/stat", proc::stat).running);
        let second = kept.look();
        let (Some(first), Some(second), Some(truth)) = (first.fresh(), second.fresh(), truth) else {
            continue;
        };
        if first.run_queue == second.run_queue {
            compared += 1;
            equal += u32::from(u32::from(first.run_queue) == truth);
        }
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("{compared} compared, {equal} equal");
    assert!(compared > 300 && equal * 100 >= compared * 90, "{compared} compared, {equal} equal");
}

#[test]
fn a_busy_cpu_is_seen_busy_though_nothing_is_switched() {
    let test = "a_busy_cpu_is_seen_busy_though_nothing_is_switched";
    let Some(mut kept) = Kept::of(test, Scope::Machine) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let last = kept.reader.cpus(0).len() - 1;
    let thread = busy(Some(last), &stop);
    // The last CPU has only this to do; other work would keep it just as busy.
    refresh_until(&mut kept.reader, |[_]: &[Reading; 1]| true);
    let began = Instant::now();
    let mut most = 0;
    while began.elapsed() < Duration::from_secs(10) && most < 995 {
        kept.look();
        most = most.max(kept.reader.cpus(0)[last].busy_permille.unwrap_or(0));
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert!(most >= 995, "{most}");
}

#[test]
fn softirqs_are_seen_to_be_raised() {
    let Some(mut kept) = Kept::of("softirqs_are_seen_to_be_raised", Scope::Machine) else { return };
    let raised = |kept: &mut Kept| {
        let look = kept.look();
        let cpus = kept.reader.cpus(0).iter().map(|cpu| u64::from(cpu.raised)).sum::<u64>();
        (look.hot.unwrap().valid & valid::INTERRUPTS != 0, cpus)
    };
    let softirqs = || {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let line = stat.lines().find(|line| line.starts_with("softirq ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (is_valid, before) = raised(&mut kept);
    assert!(is_valid);
    let served = softirqs();
    // Each datagram on the loopback interface raises one.
    let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for _ in 0..2000 {
        from.send_to(&[0; 100], to.local_addr().unwrap()).unwrap();
    }
    let served = softirqs() - served;
    let (_, after) = raised(&mut kept);
    assert!(after - before >= served * 9 / 10, "{} raised, {served} served", after - before);
}

/// Listens at a free port of that address. Outside the range that clients' ports are from: another test's client may have the
/// same one on another address.
fn server_at(host: &str) -> TcpListener {
    (20_000..30_000).find_map(|port| TcpListener::bind((host, port)).ok()).unwrap()
}

#[test]
fn the_connections_of_a_server_are_counted() {
    let test = "the_connections_of_a_server_are_counted";
    let listener = server_at("127.7.7.1");
    let address = listener.local_addr().unwrap();
    let servers = [address];
    let Some(mut kept) = Kept::of_server(test, Scope::Machine, &servers) else { return };
    // Some exist before a record looks for them, some are opened after.
    let mut clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    let accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
    kept.has_sockets((1, 8, 5));
    let Some(mut later) = Kept::of_server(test, Scope::Machine, &servers) else { return };
    later.has_sockets((1, 8, 5));
    // A record of a control group counts them, too.
    if let Some(group) = Group::new(test) {
        let Some(mut grouped) = Kept::of_server(test, Scope::Cgroup(group.path.clone()), &servers) else {
            return;
        };
        grouped.has_sockets((1, 8, 5));
    }

    assert_eq!(kept.machine().valid & (kept::TCP | kept::SOCKETS), kept::TCP | kept::SOCKETS);
    // Other tests connect meanwhile.
    let agree = (0..LOOKS_MAX).any(|_| {
        let (first, truth, second) = (kept.machine(), read("/proc/net/snmp", proc::tcp), kept.machine());
        let (low, high) = (first.tcp_established, second.tcp_established);
        (low.min(high)..=low.max(high)).contains(&truth.established)
    });
    assert!(agree, "the record and /proc count other connections");

    // One ends by a reset, which takes its port from the socket before its state.
    set_socket_linger(&clients[7], Some(Duration::ZERO)).unwrap();
    clients.truncate(2);
    drop(accepted);
    // The clients' ends have closed; accepted connections are closed, the others still wait.
    kept.has_sockets((1, 0, 5));
    drop(listener);
    kept.has_sockets((0, 0, 0));
    // It comes back, first as one socket and then as another process would hold it.
    let again = TcpListener::bind(address).unwrap();
    let _client = TcpStream::connect(address).unwrap();
    kept.has_sockets((1, 1, 1));
    let held = again.try_clone().unwrap();
    drop(again);
    kept.has_sockets((1, 1, 1));
    let _accepted = held.accept().unwrap();
    kept.has_sockets((1, 1, 0));
}

/// Others listen at more ports than any table has room for, before and after the record begins, and at the server's own port.
#[test]
fn nobody_elses_sockets_are_counted() {
    let test = "nobody_elses_sockets_are_counted";
    let others = || -> Vec<_> { (0..200).map(|_| TcpListener::bind("127.7.7.2:0").unwrap()).collect() };
    let _before = others();
    let listener = server_at("127.7.7.2");
    let address = listener.local_addr().unwrap();
    let at = |host: &str| SocketAddr::new(host.parse().unwrap(), address.port());
    let _same_port = TcpListener::bind(at("127.7.7.3")).unwrap();
    let Some(mut kept) = Kept::of_server(test, Scope::Machine, &[address]) else { return };
    let after = others();
    let _elsewhere = [at("127.7.7.3"), after[199].local_addr().unwrap()].map(TcpStream::connect);
    let _clients = [0; 2].map(|_| TcpStream::connect(address).unwrap());
    kept.has_sockets((1, 2, 2));
    // One of several addresses that share a port.
    let both = [address, at("127.7.7.4")];
    let Some(mut kept) = Kept::of_server(test, Scope::Machine, &both) else { return };
    let _second = TcpListener::bind(both[1]).unwrap();
    let _client = TcpStream::connect(both[1]).unwrap();
    kept.has_sockets((2, 3, 3));
}

/// A server that listens at all addresses, of IPv4 or of both families, is the one that answers at each.
#[test]
fn a_server_may_listen_at_all_addresses() {
    let test = "a_server_may_listen_at_all_addresses";
    for (listen, asked) in [("0.0.0.0", "127.7.7.5"), ("::", "127.7.7.6"), ("::", "::1"), ("::1", "::1")] {
        let listener = server_at(listen);
        let at = |host: &str| SocketAddr::new(host.parse().unwrap(), listener.local_addr().unwrap().port());
        let Some(mut kept) = Kept::of_server(test, Scope::Machine, &[at(asked)]) else { return };
        kept.has_sockets((1, 0, 0));
        let _client = TcpStream::connect(at(asked)).unwrap();
        kept.has_sockets((1, 1, 1));
        if listen != asked {
            let other = if asked == "::1" { "::1" } else { "127.7.7.7" };
            let _client = TcpStream::connect(at(other)).unwrap();
            kept.has_sockets((1, 2, 2));
        }
    }
}

/// Connections come and go while softirqs interrupt the system calls that end them. The kernel leaves out a program that such a
/// softirq interrupts on its own CPU.
#[test]
fn no_beginning_or_end_of_a_connection_is_missed() {
    let test = "no_beginning_or_end_of_a_connection_is_missed";
    if std::env::var_os(WITHIN).is_some() {
        return connections_come_and_go(test);
    }
    // In a network namespace of its own, whose loopback device hands packets to all CPUs, which interrupts them.
    let Some(wire) = Wire::new(test) else { return };
    let cpus = std::thread::available_parallelism().unwrap().get().min(32);
    let mask = (1u64 << cpus) - 1;
    let spread =
        format!("ip link set lo up && echo {mask:x} > /sys/class/net/lo/queues/rx-0/rps_cpus && exec \"$@\"");
    let mut within = Command::new("ip");
    within.args(["netns", "exec", &wire.namespace, "sh", "-c", &spread, "sh"]);
    let here = format!("accuracy::{test}");
    within.arg(std::env::current_exe().unwrap()).args(["--exact", &here, "--nocapture"]).env(WITHIN, "1");
    assert!(within.status().unwrap().success());
}

/// Tells a test that it runs within its network namespace.
const WITHIN: &str = "SIDELONG_LOAD_TEST_WITHIN";

fn connections_come_and_go(test: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let Some(mut kept) = Kept::of_server(test, Scope::Machine, &[address]) else { return };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while began.elapsed() < Duration::from_secs(3) {
                    let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
                    // Others may accept these, and these others'.
                    let accepted: Vec<_> = clients.iter().map(|_| listener.accept().unwrap()).collect();
                    drop(accepted);
                    drop(clients);
                }
            });
        }
    });
    // An end that none of the programs was told of is found within two turns of 5 s.
    kept.has_sockets((1, 0, 0));
}

/// Between two network namespaces, so that no other bytes are counted.
#[test]
fn bytes_and_packets_are_those_that_were_sent() {
    let test = "bytes_and_packets_are_those_that_were_sent";
    let Some(wire) = Wire::new(test) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &wire.namespace]).arg(std::env::current_exe().unwrap());
    let Some(_other) = Other::run(command, test, directory.path(), 1, &Scope::Machine) else { return };
    let mut reader = reader(directory.path(), limits());
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));
    let settled = |reader: &mut OneSided| surveyed(|| reader.machine(0).unwrap(), |machine| machine.time_ns);
    let before = settled(&mut reader);
    assert_ne!(before.valid & valid::NETWORK, 0);
    let (datagrams, bytes) = (500u64, 1000u64);
    let socket = UdpSocket::bind((wire.ours, 0)).unwrap();
    for _ in 0..datagrams {
        // To a port that no process listens on: some are answered by ICMP.
        let _ = socket.send_to(&vec![0; bytes as usize], (wire.theirs, 9));
    }
    let after = settled(&mut reader);
    let received = after.net_received_bytes - before.net_received_bytes;
    let packets = after.net_received_packets - before.net_received_packets;
    // With headers of 20 and 8 bytes; neighbour discovery adds some.
    let expected = datagrams * (bytes + 28);
    assert!((expected..expected + 4096).contains(&received), "{received} of {expected}");
    assert!((datagrams..datagrams + 40).contains(&packets), "{packets} of {datagrams}");
    let answered = after.net_sent_packets - before.net_sent_packets;
    assert!(answered > 0 && answered < datagrams, "ICMP answers at a limited rate: {answered}");
    assert!(after.net_sent_bytes > before.net_sent_bytes);
}

/// A group's threads are told from other threads, and counted exactly.
#[test]
fn a_groups_threads_and_cpu_time_are_its_own() {
    let test = "a_groups_threads_and_cpu_time_are_its_own";
    let Some(group) = Group::new(test) else { return };
    let Some(mut kept) = Kept::of(test, Scope::Cgroup(group.path.clone())) else { return };
    // One thread of this process, outside the group.
    let stop = Arc::new(AtomicBool::new(false));
    let outside = busy(None, &stop);
    std::thread::sleep(SETTLE);
    let nothing = kept.look();
    assert_eq!(nothing.fresh().map(|hot| hot.run_queue), Some(0), "{nothing:?}");
    let inside: Vec<_> = (0..3).map(|_| group.busy()).collect();
    // On a busy machine the group may wait throughout one sample, but not for a second.
    let permille = are_seen(&mut kept, 3).iter().map(|hot| hot.cpu_permille).max();
    assert!(permille > Some(10), "whatever else runs: {permille:?}");
    let machine = kept.machine();
    if let Some(truth) = group.memory_bytes() {
        assert_ne!(machine.valid & valid::MEMORY, 0, "{machine:?}");
        assert!(machine.memory_used_bytes.abs_diff(truth) < 1 << 20, "{truth}, {machine:?}");
    } else {
        assert_eq!(machine.valid & valid::MEMORY, 0, "{machine:?}");
    }
    let hot = kept.look().hot.unwrap();
    assert_eq!(hot.valid & (valid::NETWORK | valid::INTERRUPTS), 0, "a group has neither");
    drop(inside);
    refresh_until(&mut kept.reader, |[now]: &[Reading; 1]| now.fresh().is_some_and(|hot| hot.run_queue == 0));
    stop.store(true, Ordering::Relaxed);
    outside.join().unwrap();
}

/// A throttled group waits for its next period, though its threads could run.
#[test]
fn a_group_that_is_held_to_its_share_shows_its_threads() {
    let test = "a_group_that_is_held_to_its_share_shows_its_threads";
    let Some(group) = Group::new(test) else { return };
    group.hold(Some(2_000));
    let Some(mut kept) = Kept::of(test, Scope::Cgroup(group.path.clone())) else { return };
    let inside: Vec<_> = (0..3).map(|_| group.busy()).collect();
    // A group may overrun by a tick on each CPU and then waits longer, so a sample shows more or less than its share.
    let mut permille: Vec<_> = are_seen(&mut kept, 3).iter().map(|hot| hot.cpu_permille).collect();
    permille.sort_unstable();
    assert!(permille[permille.len() / 2] < 300, "a tenth of a CPU: {permille:?}");

    // Threads that are put back are not counted twice, nor those that end while they wait.
    group.hold(None);
    are_seen(&mut kept, 3);
    group.hold(Some(2_000));
    drop(inside);
    refresh_until(&mut kept.reader, |[now]: &[Reading; 1]| now.fresh().is_some_and(|hot| hot.run_queue == 0));
}

/// Expects `threads` for a second in all samples, except those taken while a thread is moved or put back. Returns the
/// samples.
fn are_seen(kept: &mut Kept, threads: u16) -> Vec<Hot> {
    let are_there = |[now]: &[Reading; 1]| now.fresh().is_some_and(|hot| hot.run_queue == threads);
    refresh_until(&mut kept.reader, are_there);
    let mut looks = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        looks.extend(kept.look().fresh().copied());
        std::thread::sleep(Duration::from_millis(5));
    }
    let counts: Vec<_> = looks.iter().map(|hot| hot.run_queue).collect();
    let right = counts.iter().filter(|count| **count == threads).count();
    assert!(right * 100 >= counts.len() * 80, "{counts:?}");
    looks
}

/// A thread that uses a CPU, the given one if any.
fn busy(cpu: Option<usize>, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        if let Some(cpu) = cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set).unwrap();
        }
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    })
}

/// A pair of interfaces, one of them in a network namespace of its own.
struct Wire {
    namespace: String,
    ours: Ipv4Addr,
    theirs: Ipv4Addr,
}

impl Wire {
    fn new(test: &str) -> Option<Wire> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = format!("sidelong-{pid}-{number}");
        let (ours, theirs) = (format!("sl{pid}-{number}"), format!("sr{pid}-{number}"));
        let [here, there] = [1, 2].map(|host| Ipv4Addr::new(10, 78, number, host));
        let wire = Wire { namespace: namespace.clone(), ours: here, theirs: there };
        for command in [
            format!("netns add {namespace}"),
            format!("link add {ours} type veth peer name {theirs} netns {namespace}"),
            format!("addr add {here}/24 dev {ours}"),
            format!("link set {ours} up"),
            format!("-n {namespace} addr add {there}/24 dev {theirs}"),
            format!("-n {namespace} link set {theirs} up"),
        ] {
            match Command::new("ip").args(command.split(' ')).output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    return skipped(test, &format!("ip {command}: {why}"));
                }
                Err(error) => return skipped(test, &format!("ip: {error}")),
            }
        }
        Some(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // This deletes its interface, and so the other one.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// A control group with the cpu controller.
struct Group {
    path: PathBuf,
}

impl Group {
    fn new(test: &str) -> Option<Group> {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let root = if first.is_dir() { first } else { Path::new("/sys/fs/cgroup") };
        let path = root.join(format!("sidelong-test.{}.{test}", std::process::id()));
        let control = root.join("cgroup.subtree_control");
        if control.exists()
            && let Err(error) = std::fs::write(&control, "+cpu")
        {
            return skipped(test, &format!("no cpu controller: {error}"));
        }
        // Without this controller, its memory is unavailable and not claimed.
        let _ = std::fs::write(control, "+memory");
        match std::fs::create_dir(&path) {
            Ok(()) => Some(Group { path }),
            Err(error) => skipped(test, &format!("no control group: {error}")),
        }
    }

    /// Limits it to `quota_us` of CPU time in each 20 ms, or lifts the limit, in either version.
    fn hold(&self, quota_us: Option<u32>) {
        let first = self.path.join("cpu.cfs_quota_us");
        if first.exists() {
            std::fs::write(self.path.join("cpu.cfs_period_us"), "20000").unwrap();
            std::fs::write(first, quota_us.map_or("-1".into(), |quota| quota.to_string())).unwrap();
        } else {
            let quota = quota_us.map_or("max".into(), |quota| quota.to_string());
            std::fs::write(self.path.join("cpu.max"), format!("{quota} 20000")).unwrap();
        }
    }

    /// Its memory, in version 2 with the memory controller on.
    fn memory_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.path.join("memory.current")).ok()?;
        text.trim().parse().ok()
    }

    /// A process in it that uses a CPU.
    fn busy(&self) -> Busy {
        let script = format!("echo $$ > {}/cgroup.procs; while :; do :; done", self.path.display());
        Busy(Command::new("sh").args(["-c", &script]).spawn().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process stays in the group for a moment.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = writeln!(std::io::stderr(), "{} is left", self.path.display());
    }
}

struct Busy(std::process::Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
