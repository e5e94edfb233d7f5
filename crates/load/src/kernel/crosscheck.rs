//! Checks a new record against /proc once at the start: a figure that disagrees is published as not valid.
//!
//! The programs read the kernel's own variables, whose meaning may differ in a kernel that was never tested. For
//! example, a virtual machine that allocates memory on first use counts pages in MemFree that no zone counts as free.
//!
//! The record is read before and after /proc, so a counter of /proc must lie between the two. Momentary figures get
//! some slack. Three figures are not checked: load averages start from those of /proc, bytes and packets start at 0,
//! and no file gives the number of connections that wait to be accepted.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, MapMut, Object};
use sidelong_layout::{KERNEL_MACHINE, Machine, kept, valid};
use sidelong_os::monotonic_ns;

use super::{KernelError, REGION, refused};
use crate::proc::machine::{self, Memory, Stat};

/// The map of the fields that the programs leave out: `distrusted` of `../bpf/record.bpf.c`.
const DISTRUSTED: &str = ".data.distrust";
/// A figure is rejected if it disagrees each time; a single disagreement may mean that some work just began or ended.
const TRIES: u32 = 4;
/// Longest wait for a survey. One is due every 10 ms, in a timer's interrupt, however busy the machine is.
const SURVEY_MAX: Duration = Duration::from_secs(2);
const SURVEY_PAUSE: Duration = Duration::from_millis(2);

/// A figure that differs between a record and /proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Disagreement {
    /// The field's bit in [`Machine::valid`].
    bit: u16,
    figure: &'static str,
    expected: RangeInclusive<u64>,
    found: u64,
}

/// The figures of /proc that could be read.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    stat: Option<Stat>,
    memory: Option<Memory>,
    tcp_established: Option<u32>,
    memory_pressure_us: Option<u64>,
}

impl Truth {
    fn read() -> Self {
        fn parsed<T>(path: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
            parse(&std::fs::read(path).ok()?)
        }
        Truth {
            stat: parsed("/proc/stat", machine::stat),
            memory: parsed("/proc/meminfo", machine::memory),
            tcp_established: parsed("/proc/net/snmp", |text| machine::tcp(text).map(|tcp| tcp.established)),
            memory_pressure_us: parsed("/proc/pressure/memory", machine::pressure_us),
        }
    }
}

/// Compares the record of the whole machine with /proc, makes the programs leave out what disagrees, and logs it.
///
/// # Errors
/// If the record is not written, or its maps cannot be used.
pub(super) fn check(object: &mut Object) -> Result<(), KernelError> {
    let mut doubtful = compared(object)?;
    for _ in 1..TRIES {
        if doubtful.is_empty() {
            return Ok(());
        }
        let again = compared(object)?;
        doubtful.retain(|one| again.iter().any(|other| other.figure == one.figure));
    }
    for Disagreement { figure, expected, found, .. } in &doubtful {
        tracing::warn!(
            figure,
            record = format_args!("{} to {}", expected.start(), expected.end()),
            proc = found,
            "the record that the kernel keeps disagrees with /proc: the figure is marked as not valid"
        );
    }
    distrust(object, doubtful.iter().fold(0, |bits, one| bits | one.bit))
}

/// Makes the programs leave out these fields from the next survey on.
fn distrust(object: &mut Object, bits: u16) -> Result<(), KernelError> {
    let map = object.maps_mut().find(|map| map.name() == DISTRUSTED);
    let map: MapMut<'_> = map.ok_or_else(|| KernelError::Object { what: DISTRUSTED.to_owned() })?;
    let update = map.update(&0u32.to_ne_bytes(), &u32::from(bits).to_ne_bytes(), MapFlags::ANY);
    update.map_err(|source| refused("the list of fields to leave out", source))
}

fn compared(object: &Object) -> Result<Vec<Disagreement>, KernelError> {
    let (before, truth) = (survey(object)?, Truth::read());
    Ok(disagreements(&before, &truth, &survey(object)?))
}

/// A survey that begins after this call.
fn survey(object: &Object) -> Result<Machine, KernelError> {
    let region = object.maps().find(|map| map.name() == REGION);
    let region = region.ok_or_else(|| KernelError::Object { what: REGION.to_owned() })?;
    let (from_ns, deadline) = (monotonic_ns(), Instant::now() + SURVEY_MAX);
    while Instant::now() < deadline {
        let found = region.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = found.map_err(|source| refused("a read of the record", source))?;
        let machine = bytes.as_deref().and_then(machine_of);
        if let Some(machine) = machine.filter(|machine| machine.time_ns >= from_ns) {
            return Ok(machine);
        }
        std::thread::sleep(SURVEY_PAUSE);
    }
    Err(KernelError::Silent { waited: SURVEY_MAX })
}

/// `None` if it was never written, or is being written.
fn machine_of(region: &[u8]) -> Option<Machine> {
    let (bytes, _) = region.get(KERNEL_MACHINE..)?.as_chunks::<8>();
    let words: &[[u8; 8]; Machine::WORDS] = bytes.first_chunk()?;
    Machine::validated(&words.map(u64::from_ne_bytes)).ok()
}

/// The figures of /proc outside the range between two surveys, one taken before it was read and one after.
fn disagreements(before: &Machine, truth: &Truth, after: &Machine) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let mut check = |bit: u16, figure, of: fn(&Machine) -> u64, slack: u64, truth: Option<u64>| {
        let (first, second) = (of(before), of(after));
        let expected = first.min(second).saturating_sub(slack)..=first.max(second).saturating_add(slack);
        if let Some(truth) = truth.filter(|truth| after.valid & bit != 0 && !expected.contains(truth)) {
            found.push(Disagreement { bit, figure, expected, found: truth });
        }
    };
    if let Some(memory) = truth.memory {
        let used_bytes = memory.total_bytes.saturating_sub(memory.available_bytes);
        // Each CPU holds back some pages of the kernel's counters.
        check(
            valid::MEMORY,
            "memory_used_bytes",
            |m| m.memory_used_bytes,
            memory.total_bytes / 50,
            Some(used_bytes),
        );
    }
    if let Some(stat) = truth.stat {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // /proc accounts a CPU's time at ticks and rounds down; the record is exact to the moment.
        let slack_ns = 10 * tick_ns * u64::from(stat.cpus.max(1));
        let user = |m: &Machine| m.cpu_user_ns + m.cpu_nice_ns;
        let system = |m: &Machine| m.cpu_system_ns + m.cpu_irq_ns + m.cpu_softirq_ns;
        let ns = |ticks: u64| Some(ticks.saturating_mul(tick_ns));
        check(kept::CPU_TIMES, "cpu_user_ns", user, slack_ns, ns(stat.cpu.user));
        check(kept::CPU_TIMES, "cpu_system_ns", system, slack_ns, ns(stat.cpu.system));
        check(kept::CPU_TIMES, "cpu_idle_ns", |m| m.cpu_idle_ns, slack_ns, ns(stat.cpu.idle));
        check(kept::CPU_TIMES, "cpu_steal_ns", |m| m.cpu_steal_ns, slack_ns, ns(stat.cpu.steal));
        let switches = stat.context_switches;
        check(kept::SWITCHES, "context_switches", |m| m.context_switches, switches / 100, Some(switches));
        // /proc includes interrupts that belong to no CPU, which are few.
        let interrupts = stat.interrupts;
        check(kept::INTERRUPTS_TOTAL, "interrupts", |m| m.interrupts, interrupts / 100, Some(interrupts));
        let running = stat.running.map(u64::from);
        let slack = 16 + running.unwrap_or(0) / 2;
        check(valid::RUN_QUEUE, "run_queue", |m| u64::from(m.run_queue), slack, running);
    }
    if let Some(established) = truth.tcp_established.map(u64::from) {
        let slack = 16 + established / 4;
        check(kept::TCP, "tcp_established", |m| u64::from(m.tcp_established), slack, Some(established));
    }
    // The kernel updates pressure when its file is read, and otherwise about every 2 s.
    check(
        kept::PRESSURE,
        "memory_pressure_us",
        |m| m.memory_pressure_us,
        2_500_000,
        truth.memory_pressure_us,
    );
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::{KernelRecord, KernelSpec};
    use super::*;
    use crate::sampler::Scope;

    const GIB: u64 = 1 << 30;

    fn record(used_bytes: u64) -> Machine {
        Machine {
            valid: valid::MEMORY | kept::SWITCHES,
            memory_used_bytes: used_bytes,
            memory_total_bytes: 24 * GIB,
            context_switches: 1_000_000,
            ..Machine::default()
        }
    }

    fn truth(available_bytes: u64) -> Truth {
        let memory = Memory { total_bytes: 24 * GIB, available_bytes };
        let stat = Stat { context_switches: 1_000_500, cpus: 2, ..Stat::default() };
        Truth { memory: Some(memory), stat: Some(stat), ..Truth::default() }
    }

    #[test]
    fn what_agrees_stays() {
        let after = Machine { context_switches: 1_001_000, ..record(2 * GIB) };
        assert_eq!(disagreements(&record(2 * GIB), &truth(22 * GIB), &after), []);
    }

    /// A virtual machine on which MemFree is 22.4 GiB and the zones have 8.
    #[test]
    fn memory_that_no_zone_counts_is_found() {
        let (before, after) = (record(16 * GIB), record(16 * GIB + 4096));
        let found = disagreements(&before, &truth(23 * GIB), &after);
        assert_eq!(
            found.iter().map(|one| (one.bit, one.figure)).collect::<Vec<_>>(),
            [(valid::MEMORY, "memory_used_bytes")]
        );
        assert_eq!(found[0].found, GIB);
    }

    #[test]
    fn what_is_not_valid_anyway_is_not_compared() {
        let before = Machine { valid: 0, ..record(16 * GIB) };
        assert_eq!(disagreements(&before, &truth(23 * GIB), &before), []);
    }

    #[test]
    fn the_programs_leave_out_what_is_distrusted() {
        let mut record = match KernelRecord::start(&KernelSpec::new(Scope::Machine, 1)) {
            Ok(record) => record,
            Err(error @ KernelError::Verifier { .. }) => panic!("{error}"),
            Err(error) => {
                // Written past the harness, which shows a test's output only if it fails.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: the_programs_leave_out_what_is_distrusted: {error}"
                );
                return;
            }
        };
        let all = survey(&record._object).unwrap().valid;
        assert_ne!(all & valid::MEMORY, 0, "/proc agrees");
        distrust(&mut record._object, valid::MEMORY).unwrap();
        survey(&record._object).unwrap();
        assert_eq!(survey(&record._object).unwrap().valid, all & !valid::MEMORY);
    }
}
