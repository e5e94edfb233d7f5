use proptest::prelude::*;

use super::cgroup::*;
use super::machine::*;
use super::process::*;
use super::*;

// Captured on Linux 6.18, two CPUs; net_dev with two interfaces added.
const STAT: &[u8] = include_bytes!("../../testdata/stat");
const MEMINFO: &[u8] = include_bytes!("../../testdata/meminfo");
const NET_DEV: &[u8] = include_bytes!("../../testdata/net_dev");
const SNMP: &[u8] = include_bytes!("../../testdata/snmp");
const SOCKSTAT: &[u8] = include_bytes!("../../testdata/sockstat");
const PID_STAT: &[u8] = include_bytes!("../../testdata/pid_stat");

#[test]
fn the_machine_as_captured() {
    let cpu = CpuTicks { user: 51807, system: 6138 + 47, idle: 292_594, iowait: 771, steal: 22 };
    let seen = stat(STAT).unwrap();
    assert_eq!(seen.cpu, cpu);
    assert_eq!((cpu.used(), cpu.total()), (58_014, 351_379));
    assert_eq!((seen.cpus, seen.interrupts), (2, 487_553));
    assert_eq!((seen.context_switches, seen.running), (696_200, Some(1)));

    let average = LoadAverage { milli: [40, 190, 250], running: 1, threads: 92 };
    assert_eq!(load_average(b"0.04 0.19 0.25 1/92 21010\n"), Some(average));

    let seen = memory(MEMINFO).unwrap();
    assert_eq!(seen, Memory { total_bytes: 24_684_096 << 10, available_bytes: 24_223_944 << 10 });

    let outside = Network {
        received_bytes: 124_740_513,
        received_packets: 8270,
        sent_bytes: 755_154,
        sent_packets: 6298,
    };
    assert_eq!(network(NET_DEV), Some(outside));
    assert_eq!(tcp(SNMP), Some(Tcp { established: 0, opened: 133 }));
    assert_eq!(tcp_in_use(SOCKSTAT), Some(1));
}

#[test]
fn old_and_odd_kernels() {
    // Before 2.6.11 there are four counters, before 3.14 no MemAvailable.
    let old = stat(b"cpu 10 5 3 100\ncpu0 10 5 3 100\n").unwrap();
    assert_eq!(old.cpu, CpuTicks { user: 15, system: 3, idle: 100, ..CpuTicks::default() });
    assert_eq!((old.cpus, old.running), (1, None));
    let seen = memory(b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 1 kB\nCached: 20 kB\n").unwrap();
    assert_eq!(seen.available_bytes, 31 << 10);

    assert_eq!(stat(b"cpu 10 5 3\n"), None);
    assert_eq!(stat(b"cpu 10 5 -3 4\n"), None);
    assert_eq!(stat(b"intr 5\n"), None);
    assert_eq!(load_average(b"0.04 0.19 0.25\n"), None);
    assert_eq!(load_average(b"1 2.5 3.1234 4/5 6"), load_average(b"1.000 2.500 3.123 4/5 6"));
    assert_eq!(memory(b"MemTotal: many kB\n"), None);
    assert_eq!(network(b""), None);
    assert_eq!(network(b"a|b\n eth0: 5\n"), Some(Network { received_bytes: 5, ..Network::default() }));
    assert_eq!(tcp(b"Tcp: A CurrEstab\nTcp: 1\n"), None);
    assert_eq!(tcp(b"Tcp: CurrEstab\nTcp: 7\n"), Some(Tcp { established: 7, opened: 0 }));
}

#[test]
fn a_process_of_any_name() {
    let seen = process(PID_STAT).unwrap();
    assert_eq!(seen, ProcessStat { user_ticks: 0, system_ticks: 0, threads: 1, resident_pages: 383 });
    let odd = b"7 (a) R 1 (\xff b)) S 1 1 1 0 -1 0 0 0 0 0 11 12 0 0 20 0 3 0 9 8 44 1\n";
    let seen = process(odd).unwrap();
    assert_eq!(seen, ProcessStat { user_ticks: 11, system_ticks: 12, threads: 3, resident_pages: 44 });
    assert_eq!(process(b"7 (cut off) S 1 1"), None);
}

#[test]
fn control_groups_of_both_versions() {
    let two = cpu_stat(b"usage_usec 579937117\nuser_usec 518070157\nsystem_usec 61866960\nnice_usec 0\n");
    let expected = CpuStat { usage_us: 579_937_117, user_us: 518_070_157, system_us: 61_866_960 };
    assert_eq!(two, Some(expected));
    assert_eq!(cpu_stat(b"nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"), None);

    assert_eq!(cpu_max(b"max 100000\n"), Some(Limit::Unlimited));
    assert_eq!(cpu_max(b"50000 100000\n"), Some(Limit::Of(500)));
    assert_eq!(cpu_max(b"50000 0\n"), None);
    assert_eq!(cpu_quota(b"-1\n", 100_000), Some(Limit::Unlimited));
    assert_eq!(cpu_quota(b"250000\n", 100_000), Some(Limit::Of(2500)));

    assert_eq!(memory_limit(b"max\n"), Some(Limit::Unlimited));
    assert_eq!(memory_limit(b"9223372036854771712\n").map(|limit| limit.within(1 << 30)), Some(1 << 30));
    assert_eq!(count(b"501875898060\n"), Some(501_875_898_060));
    assert_eq!(inactive_file(b"inactive_file 40960\ntotal_inactive_file 530853888\n"), Some(530_853_888));
    assert_eq!(inactive_file(b"anon 1\ninactive_file 40960\n"), Some(40_960));

    assert_eq!(cpu_list(b"0-3,8\n"), Some(5));
    assert_eq!(cpu_list(b"\n"), None);
    assert_eq!(cpu_list(b"3-1\n"), None);
}

#[test]
fn numbers_do_not_overflow() {
    assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(number(b"18446744073709551616"), None);
    assert_eq!(number(b"+1"), None);
    assert_eq!(load_average(b"99999999999.9 0 0 1/1 1").unwrap().milli[0], u32::MAX);
}

/// Calls every parser, only to see that none panics.
fn parse_all(text: &[u8]) {
    stat(text);
    load_average(text);
    memory(text);
    network(text);
    tcp(text);
    tcp_in_use(text);
    process(text);
    cpu_stat(text);
    cpu_max(text);
    cpu_quota(text, 1000);
    memory_limit(text);
    count(text);
    inactive_file(text);
    cpu_list(text);
}

/// A captured file with a piece overwritten or cut out, which finds more than noise does.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let files = prop::sample::select(vec![STAT, MEMINFO, NET_DEV, SNMP, SOCKSTAT, PID_STAT]);
    let patch = prop::collection::vec(any::<u8>(), 0..32);
    (files, any::<prop::sample::Index>(), 0usize..64, patch).prop_map(|(file, at, cut, patch)| {
        let mut text = file.to_vec();
        let start = at.index(text.len());
        let end = (start + cut).min(text.len());
        text.splice(start..end, patch);
        text
    })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(text: Vec<u8>) {
        parse_all(&text);
    }

    #[test]
    fn damaged_files_are_survived(text in damaged()) {
        parse_all(&text);
    }

    #[test]
    fn counters_are_read_as_written(ticks: [u32; 8], running: u32, switches: u64) {
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.map(u64::from);
        let columns = ticks.map(|tick| tick.to_string()).join(" ");
        let text = format!("cpu  {columns} 0 0\ncpu0 {columns}\nctxt {switches}\nprocs_running {running}\n");
        let seen = stat(text.as_bytes()).unwrap();
        let cpu = CpuTicks { user: user + nice, system: system + irq + softirq, idle, iowait, steal };
        prop_assert_eq!(seen.cpu, cpu);
        prop_assert_eq!((seen.running, seen.context_switches), (Some(running), switches));
    }

    #[test]
    fn a_cpu_list_counts_its_ranges(ranges in prop::collection::vec((0u32..1000, 0u32..8), 1..8)) {
        let list: Vec<_> = ranges.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let cpus = ranges.iter().map(|(_, more)| more + 1).sum();
        prop_assert_eq!(cpu_list(list.join(",").as_bytes()), Some(cpus));
    }
}

#[test]
fn pressure_is_the_total_of_some() {
    let text = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
    assert_eq!(pressure_us(text), Some(1234));
    assert_eq!(pressure_us(b"full avg10=0.00 total=9\n"), None);
    assert_eq!(pressure_us(b""), None);
}
