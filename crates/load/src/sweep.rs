//! Which nodes a refresh reads, how many at once, and for how long it waits for them. It reads nothing and asks no clock.
//!
//! A small cluster is read whole at each refresh, in one batch. In a large one
//!
//! - **priorities**: a node that has work, or is not fresh, is read at each refresh; an idle one at every so many-th, and
//!   after a bounded time in any case;
//! - **credits**: so many reads are under way at most, so that ten thousand answers do not come at once;
//! - **deadlines**: a node that does not answer in time costs its batch one wait, and then none: it is asked again apart
//!   from the others, now and then, until it answers.
//!
//! A refresh waits for [`Limits::wait`](crate::Limits::wait) in all. Whom it does not get to by then comes first the next
//! time.

use std::ops::Range;
use std::time::Duration;

use sidelong_layout::Hot;

/// Looks in a row that must find a node without work for it to be idle.
const QUIET_LOOKS: u8 = 4;
/// CPU in use that counts as work, in thousandths.
const WORK_PERMILLE: u16 = 100;
/// Of a refresh with several batches each waits for so much of the whole.
const PARTS_MAX: usize = 8;
/// Between two waits for silent nodes, in such waits: at first, doubled up to the last. So much of a reader's time they cost,
/// whatever their number.
const SILENT_PAUSE: (u32, u32) = (2, 16);

/// How a whole cluster is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Reads under way at once at most, at least 1. A cluster of no more nodes is read whole at each refresh.
    pub credits: usize,
    /// In a larger one an idle node is read at every so many-th refresh, at least 1.
    pub idle_every: u32,
    /// Nobody is left unread for longer while there is time to read them.
    pub unread_max: Duration,
}

impl Default for Pace {
    /// 256 answers are less than what a socket or a completion queue holds; a quarter of the default of
    /// [`Limits::stale`](crate::Limits::stale).
    fn default() -> Self {
        Pace { credits: 256, idle_every: 8, unread_max: Duration::from_millis(50) }
    }
}

impl Pace {
    /// Reads everyone at each refresh.
    pub const WHOLE: Pace = Pace { credits: 256, idle_every: 1, unread_max: Duration::ZERO };
}

/// What a reader has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Refreshes.
    pub refreshes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Idle nodes whose turn it was not.
    pub skipped: u64,
    /// Nodes that there was no time for: others were waited for.
    pub left: u64,
    /// Reads that were not answered in time.
    pub late: u64,
    /// Reads of what had been torn.
    pub again: u64,
}

/// Whether a node is to be read at each refresh.
pub(crate) fn has_work(hot: &Hot) -> bool {
    hot.busy > 0 || hot.queued > 0 || hot.cpu_permille >= WORK_PERMILLE
}

/// Nodes that are read together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Which of those chosen.
    pub(crate) range: Range<usize>,
    /// For their answers.
    pub(crate) wait: Duration,
}

/// What is known of all nodes, and of the refresh under way.
#[derive(Debug)]
pub(crate) struct Sweep {
    pace: Pace,
    turns: Vec<Turn>,
    /// Who is looked at first: whom the last refresh did not get to.
    first: usize,
    /// Those to read: whoever has work, the idle whose turn it is, and from `silent_from` on the silent.
    chosen: Vec<u32>,
    idle: Vec<u32>,
    silent_from: usize,
    /// How many of them were handed out.
    taken: usize,
    now_ns: u64,
    wait: Duration,
    /// What is left to wait for those who are not silent, and how much of it each batch may take.
    left: Duration,
    each: Duration,
    /// When silent nodes are next read, and from which on.
    silent_ns: u64,
    silent_first: usize,
    /// Between this time and the next, in waits.
    silent_pause: u32,
    swept: Swept,
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    read_ns: u64,
    /// The refresh at which it is next read.
    due: u64,
    quiet: u8,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Cannot be read.
    #[default]
    Absent,
    Prompt,
    /// Did not answer in time.
    Silent,
}

impl Sweep {
    /// Of so many nodes, none of which is there yet.
    ///
    /// # Panics
    /// Where a pace of 0 would read nobody.
    pub(crate) fn new(nodes: usize, pace: Pace) -> Self {
        assert!(pace.credits > 0 && pace.idle_every > 0, "a pace at which nobody is read");
        Sweep {
            pace,
            turns: vec![Turn::default(); nodes],
            first: 0,
            chosen: Vec::with_capacity(nodes),
            idle: Vec::new(),
            silent_from: 0,
            taken: 0,
            now_ns: 0,
            wait: Duration::ZERO,
            left: Duration::ZERO,
            each: Duration::ZERO,
            silent_ns: 0,
            silent_first: 0,
            silent_pause: SILENT_PAUSE.0,
            swept: Swept::default(),
        }
    }

    /// A node can be read from now on.
    pub(crate) fn linked(&mut self, node: usize) {
        self.turns[node] = Turn { state: State::Prompt, ..Turn::default() };
    }

    /// It no longer can.
    pub(crate) fn lost(&mut self, node: usize) {
        self.turns[node].state = State::Absent;
    }

    /// Chooses whom a refresh at `now_ns` reads, which waits for `wait` in all, and for as long for silent nodes.
    pub(crate) fn begin(&mut self, now_ns: u64, wait: Duration) {
        self.swept.refreshes += 1;
        (self.now_ns, self.wait, self.left, self.taken) = (now_ns, wait, wait, 0);
        self.chosen.clear();
        self.idle.clear();
        let refresh = self.swept.refreshes;
        let unread_ns = u64::try_from(self.pace.unread_max.as_nanos()).unwrap_or(u64::MAX);
        let is_small = self.turns.len() <= self.pace.credits;
        let mut silent = 0;
        for node in (self.first..self.turns.len()).chain(0..self.first) {
            let turn = &self.turns[node];
            match turn.state {
                State::Absent => {}
                State::Silent => silent += 1,
                State::Prompt if is_small || turn.quiet < QUIET_LOOKS => self.chosen.push(node as u32),
                State::Prompt if turn.due <= refresh || now_ns.saturating_sub(turn.read_ns) >= unread_ns => {
                    self.idle.push(node as u32);
                }
                State::Prompt => self.swept.skipped += 1,
            }
        }
        self.chosen.append(&mut self.idle);
        self.silent_from = self.chosen.len();
        let parts = self.silent_from.div_ceil(self.pace.credits).clamp(1, PARTS_MAX);
        self.each = wait / parts as u32;
        if silent > 0 && now_ns >= self.silent_ns {
            self.choose_silent();
        }
    }

    /// One batch of them at most, in turn.
    fn choose_silent(&mut self) {
        let from = self.silent_first;
        let nodes = (from..self.turns.len()).chain(0..from);
        let silent = nodes.filter(|node| self.turns[*node].state == State::Silent).take(self.pace.credits);
        self.chosen.extend(silent.map(|node| node as u32));
        self.silent_first = self.chosen.last().map_or(0, |last| (*last as usize + 1) % self.turns.len());
        self.silent_pause = (self.silent_pause * 2).min(SILENT_PAUSE.1);
        self.silent_ns = self.after_waits(self.silent_pause);
    }

    fn after_waits(&self, waits: u32) -> u64 {
        let span = u64::try_from(self.wait.saturating_mul(waits).as_nanos()).unwrap_or(u64::MAX);
        self.now_ns.saturating_add(span)
    }

    /// Those to read together next; `None` once all have been, or there is no time for more.
    pub(crate) fn next(&mut self) -> Option<Part> {
        if self.taken < self.silent_from && self.left.is_zero() {
            self.first = self.chosen[self.taken] as usize;
            self.swept.left += (self.silent_from - self.taken) as u64;
            self.taken = self.silent_from;
        }
        let is_prompt = self.taken < self.silent_from;
        let end = if is_prompt { self.silent_from } else { self.chosen.len() };
        let range = self.taken..end.min(self.taken + self.pace.credits);
        self.taken = range.end;
        let wait = if is_prompt { self.each.min(self.left) } else { self.wait };
        (!range.is_empty()).then_some(Part { range, wait })
    }

    /// The nodes of a part.
    pub(crate) fn nodes(&self, range: Range<usize>) -> &[u32] {
        &self.chosen[range]
    }

    /// A node has answered, and has work or wants to be looked at, or not.
    pub(crate) fn saw(&mut self, node: usize, wanted: bool) {
        self.swept.reads += 1;
        let every = u64::from(self.pace.idle_every);
        let turn = &mut self.turns[node];
        turn.state = State::Prompt;
        turn.read_ns = self.now_ns;
        turn.quiet = if wanted { 0 } else { turn.quiet.saturating_add(1) };
        // Whoever falls idle at one time does not come at one time ever after.
        let pause = if turn.quiet == QUIET_LOOKS { 1 + node as u64 % every } else { every };
        turn.due = self.swept.refreshes + pause;
    }

    /// It has not, within its part's wait.
    pub(crate) fn missed(&mut self, node: usize) {
        self.swept.late += 1;
        if std::mem::replace(&mut self.turns[node].state, State::Silent) == State::Prompt {
            // It may only have been late: it is soon asked again.
            let soon_ns = self.after_waits(SILENT_PAUSE.0);
            let is_set = self.silent_ns > self.now_ns;
            self.silent_ns = if is_set { self.silent_ns.min(soon_ns) } else { soon_ns };
            self.silent_pause = SILENT_PAUSE.0;
        }
    }

    /// Somebody of a part was waited for in vain.
    pub(crate) fn waited(&mut self, part: &Part) {
        if part.range.start < self.silent_from {
            self.left = self.left.saturating_sub(part.wait);
        }
    }

    /// So many were read once more.
    pub(crate) fn read_again(&mut self, count: usize) {
        self.swept.again += count as u64;
    }

    /// Since it was made.
    pub(crate) fn swept(&self) -> Swept {
        self.swept
    }
}

#[cfg(test)]
mod tests;
