//! One process: /proc/PID/stat.

use super::{fields, narrow, number};

/// What a process uses, all its threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessStat {
    /// CPU time in the program, in clock ticks.
    pub user_ticks: u64,
    /// CPU time in the kernel for it, in clock ticks.
    pub system_ticks: u64,
    /// Threads it has.
    pub threads: u32,
    /// Memory that it holds, in pages.
    pub resident_pages: u64,
}

/// From /proc/PID/stat. Its second field is the program's name in parentheses, in which anything may stand: the last
/// parenthesis ends it (proc_pid_stat(5)).
pub fn process(text: &[u8]) -> Option<ProcessStat> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    // Field 3, the state, is the first here; the numbers below are the manual's.
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
