//! Which faults a seed makes, and when.

use std::time::Duration;

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Machines, numbered from 1.
pub(super) const MACHINES: usize = 5;
/// The first machines, which have a server of etcd each.
pub(super) const ETCD: usize = 3;
/// How long a fault lasts.
const LASTS_MS: std::ops::Range<u64> = 300..4_000;
/// Between the beginnings of two faults. So two are often there at once, and at times none.
const APART_MS: std::ops::Range<u64> = 200..1_800;
/// Most faults at once.
const AT_ONCE: usize = 2;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// A part is killed, and starts again.
    Kill,
    /// A part is stopped, and goes on.
    Stop,
    /// A machine loses its power: all that runs there is killed, and starts again.
    Crash,
    /// A machine sends nothing to the others, and hears nothing of them.
    Cut,
    /// It hears nothing.
    Deaf,
    /// It sends nothing.
    Mute,
    /// It answers that nobody listens there.
    Reject,
    /// A fifth of what it sends and hears is lost.
    Loss,
    /// It sends a megabit a second.
    Slow,
    /// What it sends and hears comes later, in order.
    Delay,
    /// Each frame comes later by itself, so that some overtake others.
    Reorder,
    /// Its link is taken down.
    Link,
    /// The file system of its parts' files is full.
    Full,
    /// It loses its power, and has the files of before the first fault when it starts again.
    Old,
    /// A part can open no file and no connection more.
    Descriptors,
    /// The file by which a front leads its proxy is truncated, and not that by which the proxy answers.
    Truncate,
    /// Both are overwritten.
    Scribble,
    /// Two servers of etcd are killed, and start again.
    Etcd,
}

impl Kind {
    pub(super) const ALL: [Kind; 18] = [
        Kind::Kill,
        Kind::Stop,
        Kind::Crash,
        Kind::Cut,
        Kind::Deaf,
        Kind::Mute,
        Kind::Reject,
        Kind::Loss,
        Kind::Slow,
        Kind::Delay,
        Kind::Reorder,
        Kind::Link,
        Kind::Full,
        Kind::Old,
        Kind::Descriptors,
        Kind::Truncate,
        Kind::Scribble,
        Kind::Etcd,
    ];

    /// Its word in rows.csv.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Stop => "stop",
            Kind::Crash => "crash",
            Kind::Cut => "cut",
            Kind::Deaf => "deaf",
            Kind::Mute => "mute",
            Kind::Reject => "reject",
            Kind::Loss => "loss",
            Kind::Slow => "slow",
            Kind::Delay => "delay",
            Kind::Reorder => "reorder",
            Kind::Link => "link",
            Kind::Full => "full",
            Kind::Old => "old",
            Kind::Descriptors => "descriptors",
            Kind::Truncate => "truncate",
            Kind::Scribble => "scribble",
            Kind::Etcd => "etcd",
        }
    }

    /// Which parts it may be of; `None` if it is of machines.
    fn parts(self) -> Option<fn(&Target) -> bool> {
        match self {
            Kind::Kill | Kind::Stop | Kind::Descriptors => Some(|_| true),
            Kind::Truncate | Kind::Scribble => Some(|part| part.shares_memory),
            _ => None,
        }
    }
}

/// A part that faults may be of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) machine: usize,
    /// Whether it has memory that another process reads.
    pub(super) shares_memory: bool,
}

/// A fault of a seed. At its end all is as before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// The machine that it is of, or on which the part is; 0 if it is of several.
    pub(super) machine: usize,
    /// The part, by its place.
    pub(super) part: Option<usize>,
    /// When it begins and ends, from the beginning of the run on.
    pub(super) from: Duration,
    pub(super) until: Duration,
}

/// The faults of a seed in `time`, of these parts and their machines. All kinds come once, in another order for each seed, before one comes
/// again.
pub(super) fn plan(seed: u64, parts: &[Target], time: Duration) -> Vec<Fault> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut faults, mut left) = (Vec::<Fault>::new(), Vec::new());
    let mut from = Duration::ZERO;
    loop {
        from += Duration::from_millis(random.random_range(APART_MS));
        let until = from + Duration::from_millis(random.random_range(LASTS_MS));
        if until > time {
            return faults;
        }
        let there: Vec<_> = faults.iter().filter(|fault| fault.until > from).collect();
        if there.len() == AT_ONCE {
            continue;
        }
        if left.is_empty() {
            left = Kind::ALL.to_vec();
        }
        let kind = left.swap_remove(random.random_range(0..left.len()));
        // Neither machine nor part has two at once. What cannot be now comes later.
        let is_free = |machine: usize| there.iter().all(|fault| ![machine, 0].contains(&fault.machine));
        let machines = (1..=MACHINES).filter(|machine| is_free(*machine));
        let chosen = match kind.parts() {
            Some(takes) => {
                let some = parts.iter().enumerate().filter(|(_, part)| is_free(part.machine) && takes(part));
                let some = some.map(|(place, part)| (part.machine, Some(place)));
                some.collect::<Vec<_>>().choose(&mut random).copied()
            }
            None if kind == Kind::Etcd => (1..=ETCD).all(is_free).then_some((0, None)),
            None => machines.collect::<Vec<_>>().choose(&mut random).map(|machine| (*machine, None)),
        };
        match chosen {
            Some((machine, part)) => faults.push(Fault { kind, machine, part, from, until }),
            None => left.push(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_no_target_has_two_faults_at_once() {
        let time = Duration::from_secs(60);
        let parts = [1, 1, 2, 3, 4, 5].map(|machine| Target { machine, shares_memory: machine == 2 });
        let plans: Vec<_> = (0..50).map(|seed| plan(seed, &parts, time)).collect();
        for faults in &plans {
            assert!(faults.len() >= Kind::ALL.len(), "{faults:?}");
            for (at, fault) in faults.iter().enumerate() {
                assert!(fault.until <= time && fault.from < fault.until);
                let part = fault.part.map(|part| &parts[part]);
                assert_eq!(part.is_some(), fault.kind.parts().is_some());
                assert!(part.is_none_or(|part| part.machine == fault.machine));
                let is_of_memory = matches!(fault.kind, Kind::Truncate | Kind::Scribble);
                assert!(part.is_none_or(|part| part.shares_memory || !is_of_memory));
                let others = faults[..at].iter().filter(|other| other.until > fault.from);
                assert!(others.clone().count() < AT_ONCE);
                assert!({ others }.all(|other| other.machine != fault.machine && other.machine != 0));
            }
        }
        assert!(plans.windows(2).all(|two| two[0] != two[1]));
        for faults in &plans {
            let kinds = faults.iter().take(Kind::ALL.len()).map(|fault| fault.kind);
            assert_eq!(kinds.collect::<std::collections::BTreeSet<_>>(), Kind::ALL.into(), "each comes once");
        }
    }
}
