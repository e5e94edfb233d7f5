//! Histories of one key of a cache, and whether they are linearizable: whether there is an order of the commands, in which each
//! lies between its begin and its end, that one item explains which may be lost at any time.
//!
//! The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with Lowe's memory of what was tried
//! (Testing for Linearizability, 2017).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Most states that a search looks at. What is right is found within some thousands.
const STATES_MAX: usize = 1 << 20;

/// The seed of a random history: that of the variable SIDELONG_SEED, or another one in each process.
pub fn seed() -> u64 {
    let given = std::env::var("SIDELONG_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| std::process::id().into())
}

/// A command, and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A read that found this. One that found nothing says nothing: a read may miss.
    Read(String),
    /// The value was stored, whatever was there.
    Set(String),
    /// The value was stored because there was none.
    Added(String),
    /// `add` found an item.
    NotAdded,
    /// The first value was replaced by the second, by its unique number.
    Swapped(String, String),
    /// The value with the unique number was not there, but another one.
    NotSwapped(String),
    /// The number was added; the sum.
    Sum(u64, u64),
    /// The words were put behind what was there.
    Appended(String),
    /// The item was removed.
    Deleted,
    /// There was no item, says its home.
    Absent,
    /// All items were removed.
    Flushed,
    /// Nobody knows whether this was carried out, or when: it may be yet.
    Perhaps(Box<Op>),
}

/// One command of a history.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it was, with its answer.
    pub op: Op,
    /// When it began, in any unit.
    pub begun: u64,
    /// When it was answered.
    pub ended: u64,
}

impl Event {
    fn is_pending(&self) -> bool {
        matches!(self.op, Op::Perhaps(_))
    }

    /// The time from which on others may not be ordered before it.
    fn end(&self) -> u64 {
        if self.is_pending() { u64::MAX } else { self.ended }
    }
}

/// The item after `op`, if that may happen to what `item` is.
fn after(item: &Option<String>, op: &Op) -> Option<Option<String>> {
    let is = |value: &String| item.as_ref() == Some(value);
    match op {
        Op::Read(value) => is(value).then(|| item.clone()),
        Op::Set(value) | Op::Added(value) => Some(Some(value.clone())),
        Op::NotAdded => item.is_some().then(|| item.clone()),
        Op::Swapped(old, new) => is(old).then(|| Some(new.clone())),
        Op::NotSwapped(old) => (item.is_some() && !is(old)).then(|| item.clone()),
        Op::Sum(added, sum) => {
            let old: u64 = item.as_ref()?.parse().ok()?;
            (old + added == *sum).then(|| Some(sum.to_string()))
        }
        Op::Appended(words) => item.as_ref().map(|old| Some(format!("{old}{words}"))),
        Op::Deleted => item.is_some().then_some(None),
        // An item may be lost at any time, and then does not come back.
        Op::Absent | Op::Flushed => Some(None),
        Op::Perhaps(op) => match &**op {
            // Whatever it found.
            Op::Sum(added, _) => {
                let old: Option<u64> = item.as_ref().and_then(|old| old.parse().ok());
                Some(old.map_or_else(|| item.clone(), |old| Some((old + added).to_string())))
            }
            Op::Added(_) if item.is_some() => Some(item.clone()),
            Op::Deleted => Some(None),
            op => Some(after(item, op).unwrap_or_else(|| item.clone())),
        },
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// It is not, in words.
    Wrong(String),
    /// There are too many orders.
    Undecided,
}

/// Whether a history is linearizable.
pub fn judge(mut events: Vec<Event>) -> Verdict {
    events.sort_by_key(|event| event.begun);
    let words = events.len().div_ceil(64);
    let has = |done: &[u64], event: usize| done[event / 64] >> (event % 64) & 1 == 1;
    let mut seen = HashSet::new();
    let mut stack: Vec<(Vec<u64>, Option<String>)> = vec![(vec![0; words], None)];
    let mut furthest = (0, 0);
    while let Some((done, item)) = stack.pop() {
        let open = || (0..events.len()).filter(|event| !has(&done, *event));
        if open().all(|event| events[event].is_pending()) {
            return Verdict::Linearizable;
        }
        let count: u32 = done.iter().map(|word| word.count_ones()).sum();
        let first_end = open().map(|event| events[event].end()).min().unwrap_or(u64::MAX);
        if count >= furthest.0 {
            let stuck = open().find(|event| events[*event].end() == first_end).unwrap_or_default();
            furthest = (count, stuck);
        }
        let mut candidates: Vec<_> = open().take_while(|event| events[*event].begun <= first_end).collect();
        // What ended first is tried first, and what perhaps never happened last.
        candidates.sort_by_key(|event| std::cmp::Reverse(events[*event].end()));
        for event in candidates {
            let Some(next) = after(&item, &events[event].op) else { continue };
            let mut done = done.clone();
            done[event / 64] |= 1 << (event % 64);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert((done.clone(), hasher.finish())) {
                stack.push((done, next));
            }
        }
        if seen.len() >= STATES_MAX {
            return Verdict::Undecided;
        }
    }
    let around = furthest.1.saturating_sub(6)..events.len().min(furthest.1 + 4);
    let shown: Vec<_> = events[around].iter().map(|event| format!("{event:?}")).collect();
    Verdict::Wrong(format!("no order explains {:?}, among\n{}", events[furthest.1], shown.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(events: &[(Op, u64, u64)]) -> Vec<Event> {
        events
            .iter()
            .map(|(op, begun, ended)| Event { op: op.clone(), begun: *begun, ended: *ended })
            .collect()
    }

    fn set(value: &str) -> Op {
        Op::Set(value.into())
    }

    fn read(value: &str) -> Op {
        Op::Read(value.into())
    }

    fn perhaps(op: Op) -> Op {
        Op::Perhaps(Box::new(op))
    }

    #[test]
    fn what_an_item_may_do_is_accepted() {
        for events in [
            &[(set("a"), 0, 9), (read("a"), 1, 2)][..],
            &[(set("a"), 0, 1), (set("b"), 2, 9), (read("b"), 3, 4), (read("b"), 5, 6)],
            &[(set("a"), 0, 1), (Op::Absent, 2, 3), (Op::Added("b".into()), 4, 5), (read("b"), 6, 7)],
            &[(set("a"), 0, 1), (perhaps(set("b")), 2, 3), (read("a"), 4, 5), (read("b"), 6, 7)],
            &[(set("1"), 0, 1), (Op::Sum(2, 3), 2, 5), (Op::Sum(1, 4), 2, 5), (read("4"), 6, 7)],
            &[(set("a"), 0, 1), (perhaps(Op::Deleted), 2, 3), (Op::NotAdded, 4, 5), (Op::Absent, 6, 7)],
            &[
                (set("a"), 0, 1),
                (Op::Swapped("a".into(), "b".into()), 2, 4),
                (Op::NotSwapped("a".into()), 3, 5),
            ],
            &[(set("a"), 0, 1), (Op::Appended("b".into()), 2, 3), (read("ab"), 4, 5), (Op::Flushed, 6, 7)],
        ] {
            assert_eq!(judge(history(events)), Verdict::Linearizable);
        }
    }

    #[test]
    fn what_no_item_does_is_not() {
        for (why, events) in [
            ("never stored", &[(set("a"), 0, 1), (read("b"), 2, 3)][..]),
            ("stale", &[(set("a"), 0, 1), (set("b"), 2, 3), (read("a"), 4, 5)]),
            ("new, then old", &[(set("a"), 0, 1), (set("b"), 2, 9), (read("b"), 3, 4), (read("a"), 5, 6)]),
            ("before it was stored", &[(read("a"), 0, 1), (set("a"), 2, 3)]),
            ("back from the dead", &[(set("a"), 0, 1), (Op::Deleted, 2, 3), (read("a"), 4, 5)]),
            ("back from a flush", &[(set("a"), 0, 1), (Op::Flushed, 2, 3), (read("a"), 4, 5)]),
            ("back after it was lost", &[(set("a"), 0, 1), (Op::Absent, 2, 3), (read("a"), 4, 5)]),
            ("both added to one", &[(set("1"), 0, 1), (Op::Sum(1, 2), 2, 5), (Op::Sum(1, 2), 2, 5)]),
            (
                "both swapped",
                &[
                    (set("a"), 0, 1),
                    (Op::Swapped("a".into(), "b".into()), 2, 5),
                    (Op::Swapped("a".into(), "c".into()), 2, 5),
                ],
            ),
            ("lost words", &[(set("a"), 0, 1), (Op::Appended("b".into()), 2, 3), (read("a"), 4, 5)]),
            (
                "perhaps, but once",
                &[(perhaps(set("b")), 0, 1), (read("b"), 2, 3), (set("a"), 4, 5), (read("b"), 6, 7)],
            ),
        ] {
            assert!(matches!(judge(history(events)), Verdict::Wrong(_)), "{why}");
        }
    }
}
