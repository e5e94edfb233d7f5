//! The files of a control group, in either version.

use super::{fields, lines, narrow, number, value_of};

/// A limit of a control group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// No limit.
    Unlimited,
    /// A limit, in thousandths of a CPU or in bytes.
    Of(u64),
}

impl Limit {
    /// The limit, or `all` if there is none or it is higher.
    pub fn within(self, all: u64) -> u64 {
        match self {
            Limit::Unlimited => all,
            Limit::Of(limit) => limit.min(all),
        }
    }
}

/// `cpu.stat` of version 2, in microseconds since the group was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the kernel's own names")]
pub struct CpuStat {
    pub usage_us: u64,
    pub user_us: u64,
    pub system_us: u64,
}

/// Parses `cpu.stat`; `None` for that of version 1, which counts only throttling.
pub fn cpu_stat(text: &[u8]) -> Option<CpuStat> {
    Some(CpuStat {
        usage_us: value_of(text, b"usage_usec")?,
        user_us: value_of(text, b"user_usec").unwrap_or(0),
        system_us: value_of(text, b"system_usec").unwrap_or(0),
    })
}

/// Parses `cpu.max` of version 2, `QUOTA PERIOD` in microseconds or `max PERIOD`, into thousandths of a CPU.
pub fn cpu_max(text: &[u8]) -> Option<Limit> {
    let mut fields = fields(text);
    match fields.next()? {
        b"max" => Some(Limit::Unlimited),
        quota => millicpus(number(quota)?, number(fields.next()?)?),
    }
}

/// Parses `cpu.cfs_quota_us` of version 1, -1 for none, with the number in `cpu.cfs_period_us`, into thousandths of a
/// CPU.
pub fn cpu_quota(quota: &[u8], period_us: u64) -> Option<Limit> {
    match quota.trim_ascii() {
        b"-1" => Some(Limit::Unlimited),
        quota => millicpus(number(quota)?, period_us),
    }
}

fn millicpus(quota_us: u64, period_us: u64) -> Option<Limit> {
    quota_us.saturating_mul(1000).checked_div(period_us).map(Limit::Of)
}

/// Parses `memory.max` of version 2 or `memory.limit_in_bytes` of version 1, whose "none" is a number beyond any
/// memory.
pub fn memory_limit(text: &[u8]) -> Option<Limit> {
    match text.trim_ascii() {
        b"max" => Some(Limit::Unlimited),
        bytes => number(bytes).map(Limit::Of),
    }
}

/// Parses a file of one number: `memory.current`, `memory.usage_in_bytes`, `cpuacct.usage`, `pids.current`.
pub fn count(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii())
}

/// Parses `memory.stat`: the cached file pages that the kernel reclaims first, in bytes. Memory in use minus these is
/// the working set, by which container managers judge. Version 1 gives them with (`total_`) and without descendants.
pub fn inactive_file(text: &[u8]) -> Option<u64> {
    value_of(text, b"total_inactive_file").or_else(|| value_of(text, b"inactive_file"))
}

/// Number of CPUs in a list (cpuset(7), "List format"): `0-3,8` has 5.
pub fn cpu_list(text: &[u8]) -> Option<u32> {
    let line = lines(text).next()?.trim_ascii();
    let mut cpus = 0u64;
    for range in line.split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        cpus = cpus.saturating_add(last.checked_sub(first)?.saturating_add(1));
    }
    Some(narrow(cpus))
}
