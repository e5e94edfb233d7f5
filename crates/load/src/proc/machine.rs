//! The files of the whole machine: /proc/stat, loadavg, meminfo, net/dev, net/snmp, net/sockstat.

use super::{fields, lines, narrow, number, value_of};

/// CPU time since boot, summed over the CPUs, in clock ticks (`sysconf(_SC_CLK_TCK)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTicks {
    /// In programs, niced ones included.
    pub user: u64,
    /// In the kernel: system, irq and softirq.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while waiting for a disk. It may decrease.
    pub iowait: u64,
    /// Used by the hypervisor for other machines.
    pub steal: u64,
}

impl CpuTicks {
    /// Time that was not available for more work. It includes stolen time, which the machine cannot use.
    pub fn used(&self) -> u64 {
        self.user.saturating_add(self.system).saturating_add(self.steal)
    }

    /// Total time.
    pub fn total(&self) -> u64 {
        self.used().saturating_add(self.idle).saturating_add(self.iowait)
    }
}

/// /proc/stat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// All CPUs together.
    pub cpu: CpuTicks,
    /// CPUs that are online.
    pub cpus: u32,
    /// Interrupts since boot.
    pub interrupts: u64,
    /// Context switches since boot.
    pub context_switches: u64,
    /// Threads that run or wait for a CPU.
    pub running: Option<u32>,
}

/// Parses /proc/stat; `None` without its `cpu` line.
///
/// Guest time is not added, because the kernel includes it in user time (proc_stat(5)).
pub fn stat(text: &[u8]) -> Option<Stat> {
    let mut cpu = None;
    let mut stat = Stat::default();
    for line in lines(text) {
        let mut fields = fields(line);
        let Some(key) = fields.next() else { continue };
        match key {
            b"cpu" => cpu = cpu_ticks(fields),
            b"intr" => stat.interrupts = fields.next().and_then(number).unwrap_or(0),
            b"ctxt" => stat.context_switches = fields.next().and_then(number).unwrap_or(0),
            b"procs_running" => stat.running = fields.next().and_then(number).map(narrow),
            _ if key.starts_with(b"cpu") => stat.cpus = stat.cpus.saturating_add(1),
            _ => {}
        }
    }
    Some(Stat { cpu: cpu?, ..stat })
}

/// user nice system idle, and since Linux 2.6.11 iowait irq softirq steal.
fn cpu_ticks<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<CpuTicks> {
    let mut ticks = [0u64; 8];
    let mut known = 0;
    for (tick, field) in ticks.iter_mut().zip(fields) {
        *tick = number(field)?;
        known += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
    (known >= 4).then(|| CpuTicks {
        user: user.saturating_add(nice),
        system: system.saturating_add(irq).saturating_add(softirq),
        idle,
        iowait,
        steal,
    })
}

/// /proc/loadavg.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadAverage {
    /// Over 1, 5 and 15 minutes, in thousandths.
    pub milli: [u32; 3],
    /// Threads that run or wait for a CPU.
    pub running: u32,
    /// All threads.
    pub threads: u32,
}

/// Parses /proc/loadavg: `0.04 0.19 0.25 1/92 21010`.
pub fn load_average(text: &[u8]) -> Option<LoadAverage> {
    let mut fields = fields(text);
    let mut average = LoadAverage::default();
    for milli in &mut average.milli {
        *milli = thousandths(fields.next()?)?;
    }
    let mut threads = fields.next()?.splitn(2, |byte| *byte == b'/');
    average.running = narrow(number(threads.next()?)?);
    average.threads = narrow(number(threads.next()?)?);
    Some(average)
}

/// `12.34` is 12340.
fn thousandths(field: &[u8]) -> Option<u32> {
    let mut parts = field.splitn(2, |byte| *byte == b'.');
    let whole = number(parts.next()?)?.checked_mul(1000)?;
    let mut milli = 0;
    if let Some(fraction) = parts.next() {
        number(fraction)?;
        let digits = fraction.iter().chain(b"000").take(3);
        milli = digits.fold(0, |value, byte| value * 10 + u64::from(byte - b'0'));
    }
    Some(narrow(whole.saturating_add(milli)))
}

/// /proc/meminfo, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Memory that the kernel can use.
    pub total_bytes: u64,
    /// Memory available to new work without swapping.
    pub available_bytes: u64,
}

/// Parses /proc/meminfo. Before Linux 3.14, which introduced `MemAvailable`, free memory plus caches are used.
pub fn memory(text: &[u8]) -> Option<Memory> {
    let bytes = |key: &[u8]| value_of(text, key).map(|kib| kib.saturating_mul(1024));
    let available = bytes(b"MemAvailable:").or_else(|| {
        let caches = [b"Buffers:".as_slice(), b"Cached:"].into_iter().filter_map(bytes);
        Some(caches.fold(bytes(b"MemFree:")?, u64::saturating_add))
    });
    Some(Memory { total_bytes: bytes(b"MemTotal:")?, available_bytes: available? })
}

/// Parses /proc/pressure/memory: the time that some thread has waited for memory since boot, in microseconds.
pub fn pressure_us(text: &[u8]) -> Option<u64> {
    let mut some = fields(lines(text).find(|line| line.starts_with(b"some "))?);
    number(some.find_map(|field| field.strip_prefix(b"total="))?)
}

/// /proc/net/dev, summed over the interfaces that lead off this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Network {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
}

/// Prefixes of interfaces within this machine, as systemd, Docker, libvirt and the kernel's drivers name them. Traffic
/// that leaves is counted at another interface.
const INSIDE: [&[u8]; 11] =
    [b"bond", b"br", b"docker", b"dummy", b"ifb", b"tap", b"team", b"tun", b"veth", b"virbr", b"wg"];

fn leads_outside(name: &[u8]) -> bool {
    let vlan = name.contains(&b'.');
    name != b"lo" && !vlan && !INSIDE.iter().any(|prefix| name.starts_with(prefix))
}

/// Parses /proc/net/dev, which shows the network namespace of the process that opened it; `None` without a header.
pub fn network(text: &[u8]) -> Option<Network> {
    let mut lines = lines(text).skip_while(|line| !line.contains(&b'|'));
    lines.next()?;
    let mut sum = Network::default();
    for line in lines {
        // A number may follow the colon without a space, and a name may contain a colon.
        let Some(colon) = line.iter().rposition(|byte| *byte == b':') else { continue };
        if !leads_outside(line[..colon].trim_ascii()) {
            continue;
        }
        let mut counters = fields(&line[colon + 1..]).map(number);
        let mut counter = |skip: usize| counters.nth(skip).flatten().unwrap_or(0);
        // The first eight counters are of received traffic.
        for (total, skip) in [
            (&mut sum.received_bytes, 0),
            (&mut sum.received_packets, 0),
            (&mut sum.sent_bytes, 6),
            (&mut sum.sent_packets, 0),
        ] {
            *total = total.saturating_add(counter(skip));
        }
    }
    Some(sum)
}

/// The TCP connections of /proc/net/snmp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tcp {
    /// Established connections now.
    pub established: u32,
    /// Connections opened since boot, by this machine or another.
    pub opened: u64,
}

/// Parses /proc/net/snmp, whose figures are found by their names in the header line; `None` without `CurrEstab`.
pub fn tcp(text: &[u8]) -> Option<Tcp> {
    let mut tcp = lines(text).filter(|line| line.starts_with(b"Tcp:"));
    let (names, values) = (fields(tcp.next()?), fields(tcp.next()?));
    let (mut established, mut opened) = (None, 0u64);
    for (name, value) in names.zip(values) {
        match name {
            b"CurrEstab" => established = number(value).map(narrow),
            b"ActiveOpens" | b"PassiveOpens" => opened = opened.saturating_add(number(value).unwrap_or(0)),
            _ => {}
        }
    }
    Some(Tcp { established: established?, opened })
}

/// Parses /proc/net/sockstat: TCP sockets in use. They include listening ones, but are cheaper to read.
pub fn tcp_in_use(text: &[u8]) -> Option<u32> {
    let line = lines(text).find(|line| line.starts_with(b"TCP:"))?;
    let mut fields = fields(line).skip_while(|field| *field != b"inuse").skip(1);
    fields.next().and_then(number).map(narrow)
}
