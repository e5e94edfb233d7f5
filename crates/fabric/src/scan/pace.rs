//! The pace of scans: which items a scan reads, how many at once, and how long it waits. It does no I/O and asks no clock.
//!
//! Only items that have a link are gone over, so that room for more costs a scan nothing. A small cluster is read whole at each scan, in one batch. In a large one
//!
//! - **priorities**: a busy node is read at each scan; an idle one at every n-th, and after a bounded time in any case;
//! - **credits**: a bounded number of nodes is read at once, so that ten thousand answers do not come together;
//! - **deadlines**: a node that does not answer in time costs its batch one wait, and then none: it is read apart from the
//!   others, occasionally, until it answers.
//!
//! A scan waits a bounded time in all. The nodes that it does not reach by then come first in the next one.

use std::ops::Range;
use std::time::Duration;

use sidelong_layout::Time;

/// Consecutive scans that must find a node idle before it is read in rotation.
const QUIET_SCANS: u8 = 4;
/// Parts into which a scan of several batches divides its wait.
const PARTS_MAX: usize = 8;
/// Pause between two waits for silent nodes, in units of that wait: the first pause, doubled up to the last. It bounds
/// the share of a reader's time that silent nodes cost, however many there are.
const SILENT_PAUSE: (u32, u32) = (2, 16);

/// How scans cover a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Most nodes read at once, at least 1. A cluster of at most this size is read whole at each scan.
    pub credits: usize,
    /// In a larger cluster, an idle node is read at every n-th scan; at least 1.
    pub idle_every: u32,
    /// Longest time that a node is left unread, as long as there is time to read it.
    pub unread_max: Duration,
}

impl Default for Pace {
    /// The answers of 256 nodes fit in a socket's buffer and in a completion queue. 50 ms is a third of the age from
    /// which a record is old.
    fn default() -> Self {
        Pace { credits: 256, idle_every: 8, unread_max: Duration::from_millis(50) }
    }
}

impl Pace {
    /// Reads every node at each scan.
    pub const WHOLE: Pace = Pace { credits: 256, idle_every: 1, unread_max: Duration::ZERO };
}

/// Counts since a scanner was made. Items that are not nodes are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCounts {
    /// Scans.
    pub scans: u64,
    /// Nodes that answered.
    pub reads: u64,
    /// Idle nodes that were not due.
    pub skipped: u64,
    /// Nodes that were not read because others had used up the time.
    pub left: u64,
    /// Nodes that did not answer in time.
    pub late: u64,
    /// Second reads of torn copies.
    pub again: u64,
}

/// Items that are read together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Their indexes among the chosen items.
    pub(super) range: Range<usize>,
    /// Longest wait for their answers.
    pub(super) wait: Duration,
}

/// The schedule of all items, and the scan in progress.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    /// The nodes, followed by the items that are never idle.
    turns: Vec<Turn>,
    nodes: usize,
    /// The items that have a link, in order: only these are gone over.
    linked: Vec<u32>,
    /// The node to consider first: one that the last scan did not reach.
    first: usize,
    /// The items to read: those never idle, busy nodes, idle nodes that are due, and from `silent_from` on the silent
    /// ones.
    chosen: Vec<u32>,
    idle: Vec<u32>,
    silent_from: usize,
    /// How many of them have been handed out.
    taken: usize,
    now: Time,
    wait: Duration,
    /// Time left for items that are not silent, and the share of each batch.
    left: Duration,
    each: Duration,
    /// When silent items are next read, and which comes first.
    silent_due: Time,
    silent_first: usize,
    /// Pause until the next read of silent items, in waits.
    silent_pause: u32,
    counts: ScanCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    read_at: Time,
    /// The number of the scan that next reads it.
    due: u64,
    quiet: u8,
    /// Links over which it can be read.
    links: u8,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// It has no link.
    #[default]
    Absent,
    Prompt,
    /// It did not answer in time.
    Silent,
}

impl Schedule {
    /// A schedule of `nodes` nodes and `others` other items, none of which has a link yet.
    ///
    /// # Panics
    /// If a pace of 0 would read no node.
    pub(super) fn new(nodes: usize, others: usize, pace: Pace) -> Self {
        let mut schedule = Schedule {
            pace,
            turns: vec![Turn::default(); nodes + others],
            nodes,
            linked: Vec::with_capacity(nodes + others),
            first: 0,
            chosen: Vec::with_capacity(nodes + others),
            idle: Vec::new(),
            silent_from: 0,
            taken: 0,
            now: Time::default(),
            wait: Duration::ZERO,
            left: Duration::ZERO,
            each: Duration::ZERO,
            silent_due: Time::default(),
            silent_first: 0,
            silent_pause: SILENT_PAUSE.0,
            counts: ScanCounts::default(),
        };
        schedule.set_pace(pace);
        schedule
    }

    pub(super) fn set_pace(&mut self, pace: Pace) {
        assert!(pace.credits > 0 && pace.idle_every > 0, "a pace at which nobody is read");
        self.pace = pace;
    }

    /// An item has one more link over which it can be read.
    pub(super) fn linked(&mut self, item: usize) {
        let links = self.turns[item].links + 1;
        if let Err(place) = self.linked.binary_search(&(item as u32)) {
            self.linked.insert(place, item as u32);
        }
        self.turns[item] = Turn { state: State::Prompt, links, ..Turn::default() };
    }

    /// An item has one link fewer.
    pub(super) fn unlinked(&mut self, item: usize) {
        let turn = &mut self.turns[item];
        turn.links -= 1;
        if turn.links == 0 {
            turn.state = State::Absent;
            self.linked.retain(|linked| *linked != item as u32);
        }
    }

    /// Chooses the items of a scan at `now` that waits for `wait` in all, and as long again for silent items. With
    /// `all`, rotation is ignored.
    pub(super) fn begin(&mut self, now: Time, wait: Duration, all: bool) {
        self.counts.scans += 1;
        (self.now, self.wait, self.left, self.taken) = (now, wait, wait, 0);
        self.chosen.clear();
        self.idle.clear();
        let scan = self.counts.scans;
        let place = |item: usize| self.linked.partition_point(|linked| (*linked as usize) < item);
        let (first, nodes) = (place(self.first), place(self.nodes));
        let all = all || nodes <= self.pace.credits;
        let mut silent = 0;
        let (of_nodes, others) = self.linked.split_at(nodes);
        for item in others.iter().chain(&of_nodes[first..]).chain(&of_nodes[..first]) {
            let turn = &self.turns[*item as usize];
            match turn.state {
                State::Absent => {}
                State::Silent => silent += 1,
                State::Prompt if all || turn.quiet < QUIET_SCANS || *item as usize >= self.nodes => {
                    self.chosen.push(*item);
                }
                State::Prompt if turn.due <= scan || now.since(turn.read_at) >= self.pace.unread_max => {
                    self.idle.push(*item);
                }
                State::Prompt => self.counts.skipped += 1,
            }
        }
        self.chosen.append(&mut self.idle);
        self.silent_from = self.chosen.len();
        let parts = self.silent_from.div_ceil(self.batch_max()).clamp(1, PARTS_MAX);
        self.each = wait / parts as u32;
        if silent > 0 && now >= self.silent_due {
            self.choose_silent();
        }
    }

    fn batch_max(&self) -> usize {
        self.pace.credits + self.turns.len() - self.nodes
    }

    /// Chooses silent items in rotation, at most one batch.
    fn choose_silent(&mut self) {
        let from = self.silent_first;
        let items = (from..self.turns.len()).chain(0..from);
        let silent = items.filter(|item| self.turns[*item].state == State::Silent).take(self.batch_max());
        self.chosen.extend(silent.map(|item| item as u32));
        self.silent_first = self.chosen.last().map_or(0, |last| (*last as usize + 1) % self.turns.len());
        self.silent_pause = (self.silent_pause * 2).min(SILENT_PAUSE.1);
        self.silent_due = self.after_waits(self.silent_pause);
    }

    fn after_waits(&self, waits: u32) -> Time {
        self.now.after(self.wait.saturating_mul(waits))
    }

    /// The next items to read together; `None` once all are read or the time is used up.
    pub(super) fn next(&mut self) -> Option<Part> {
        if self.taken < self.silent_from && self.left.is_zero() {
            self.first = (self.chosen[self.taken] as usize).min(self.nodes);
            self.counts.left += (self.silent_from - self.taken) as u64;
            self.taken = self.silent_from;
        }
        let is_prompt = self.taken < self.silent_from;
        let end = if is_prompt { self.silent_from } else { self.chosen.len() };
        let range = self.taken..end.min(self.taken + self.batch_max());
        self.taken = range.end;
        let wait = if is_prompt { self.each.min(self.left) } else { self.wait };
        (!range.is_empty()).then_some(Part { range, wait })
    }

    /// The items of a part.
    pub(super) fn items(&self, range: Range<usize>) -> &[u32] {
        &self.chosen[range]
    }

    /// An item has answered, and is busy or idle.
    pub(super) fn saw(&mut self, item: usize, busy: bool) {
        let every = u64::from(self.pace.idle_every);
        let turn = &mut self.turns[item];
        if turn.links == 0 {
            return; // the answer was that its link is broken
        }
        self.counts.reads += u64::from(item < self.nodes);
        turn.state = State::Prompt;
        turn.read_at = self.now;
        turn.quiet = if busy { 0 } else { turn.quiet.saturating_add(1) };
        // Nodes that become idle together are spread over different scans.
        let pause = if turn.quiet == QUIET_SCANS { 1 + item as u64 % every } else { every };
        turn.due = self.counts.scans + pause;
    }

    /// An item did not answer within its part's wait.
    pub(super) fn missed(&mut self, item: usize) {
        self.counts.late += u64::from(item < self.nodes);
        if self.turns[item].links == 0 {
            return;
        }
        if std::mem::replace(&mut self.turns[item].state, State::Silent) == State::Prompt {
            // It may only have been late, so it is asked again soon.
            let soon = self.after_waits(SILENT_PAUSE.0);
            let is_set = self.silent_due > self.now;
            self.silent_due = if is_set { self.silent_due.min(soon) } else { soon };
            self.silent_pause = SILENT_PAUSE.0;
        }
    }

    /// A part's wait ended without all answers.
    pub(super) fn waited(&mut self, part: &Part) {
        if part.range.start < self.silent_from {
            self.left = self.left.saturating_sub(part.wait);
        }
    }

    /// Counts reads that were repeated.
    pub(super) fn read_again(&mut self, count: usize) {
        self.counts.again += count as u64;
    }

    /// Counts since it was made.
    pub(super) fn counts(&self) -> ScanCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests;
