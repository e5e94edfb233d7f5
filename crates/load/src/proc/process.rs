//! The file of one process: /proc/PID/stat.

use super::{fields, narrow, number};

/// The resources of a process, all its threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessStat {
    /// CPU time in the program, in clock ticks.
    pub user_ticks: u64,
    /// CPU time in the kernel for it, in clock ticks.
    pub system_ticks: u64,
    /// Number of threads.
    pub threads: u32,
    /// Resident memory, in pages.
    pub resident_pages: u64,
}

/// Parses /proc/PID/stat. The second field is the program's name in parentheses, which may contain any character; the
/// last parenthesis ends it (proc_pid_stat(5)).
pub fn process(text: &[u8]) -> Option<ProcessStat> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    // The first field here is field 3, the state; the numbers below are the manual's.
    let mut fields = fields(&text[name_end + 1..]);
    let mut place = 3;
    let mut field = |at: usize| {
        let skip = at - place;
        place = at + 1;
        fields.nth(skip).and_then(number)
    };
    Some(ProcessStat {
        user_ticks: field(14)?,
        system_ticks: field(15)?,
        threads: narrow(field(20)?),
        resident_pages: field(24)?,
    })
}
