//! What is told of a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::simulated::check::Rule;

/// Lines of history that a failure shows.
const TAIL_LINES: usize = 60;

/// How a run, or many, went.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    /// Over all that happened, in order.
    pub(crate) history: u64,
    pub(crate) moved: usize,
    /// How often moves and repairs ended in which way.
    pub(crate) outcomes: BTreeMap<String, usize>,
    /// Steps that a mover passed through.
    pub(crate) steps: BTreeSet<&'static str>,
    pub(crate) edge_crashes: usize,
    pub(crate) machine_crashes: usize,
    /// How long after the last fault all was mended, at most.
    pub(crate) mended_after: Duration,
}

impl Summary {
    pub(crate) fn add(&mut self, other: Summary) {
        self.history ^= other.history.rotate_left(1);
        self.moved += other.moved;
        other.outcomes.into_iter().for_each(|(how, count)| *self.outcomes.entry(how).or_default() += count);
        self.steps.extend(other.steps);
        self.edge_crashes += other.edge_crashes;
        self.machine_crashes += other.machine_crashes;
        self.mended_after = self.mended_after.max(other.mended_after);
    }
}

/// How a run went wrong.
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    /// The end of its history.
    pub(crate) story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}broken: {:?}", self.story, self.rule)
    }
}

/// What happened: all of it as a hash, the end of it as text.
pub(crate) struct Log {
    pub(crate) hash: u64,
    tail: VecDeque<String>,
    told: bool,
}

impl Log {
    /// With `told`, every line is printed.
    pub(crate) fn new(told: bool) -> Self {
        Log { hash: 0xcbf2_9ce4_8422_2325, tail: VecDeque::new(), told }
    }

    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{:>12} {what}", at.as_nanos());
        // FNV-1a (draft-eastlake-fnv, section 6).
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.told {
            println!("{line}");
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    pub(crate) fn story(&self) -> String {
        self.tail.iter().flat_map(|line| [line, "\n"]).collect()
    }
}
