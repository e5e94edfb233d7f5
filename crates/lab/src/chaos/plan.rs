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
    /// Its link is taken down.
    Link,
    /// Two servers of etcd are killed, and start again.
    Etcd,
}

impl Kind {
    pub(super) const ALL: [Kind; 11] = [
        Kind::Kill,
        Kind::Stop,
        Kind::Crash,
        Kind::Cut,
        Kind::Deaf,
        Kind::Mute,
        Kind::Reject,
        Kind::Loss,
        Kind::Slow,
        Kind::Link,
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
            Kind::Link => "link",
            Kind::Etcd => "etcd",
        }
    }
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

/// The faults of a seed in `time`, of the parts on these machines. All kinds come once, in another order for each seed, before one comes again.
pub(super) fn plan(seed: u64, parts: &[usize], time: Duration) -> Vec<Fault> {
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
        let machines: Vec<_> = (1..=MACHINES)
            .filter(|machine| there.iter().all(|fault| fault.machine != *machine && fault.machine != 0))
            .collect();
        let there_is_etcd = there.iter().any(|fault| fault.machine <= ETCD);
        let (machine, part) = match kind {
            Kind::Etcd if there_is_etcd => {
                left.push(kind);
                continue;
            }
            Kind::Etcd => (0, None),
            Kind::Kill | Kind::Stop => {
                let of_free = |part: &usize| machines.contains(&parts[*part]);
                let some: Vec<_> = (0..parts.len()).filter(of_free).collect();
                let Some(part) = some.choose(&mut random) else {
                    left.push(kind);
                    continue;
                };
                (parts[*part], Some(*part))
            }
            _ => match machines.choose(&mut random) {
                Some(machine) => (*machine, None),
                None => {
                    left.push(kind);
                    continue;
                }
            },
        };
        faults.push(Fault { kind, machine, part, from, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_no_target_has_two_faults_at_once() {
        let time = Duration::from_secs(60);
        let parts = [1, 1, 2, 3, 4, 5];
        let plans: Vec<_> = (0..50).map(|seed| plan(seed, &parts, time)).collect();
        for faults in &plans {
            assert!(faults.len() >= 2 * Kind::ALL.len(), "{faults:?}");
            for (at, fault) in faults.iter().enumerate() {
                assert!(fault.until <= time && fault.from < fault.until);
                assert_eq!(fault.part.is_some(), matches!(fault.kind, Kind::Kill | Kind::Stop));
                assert!(fault.part.is_none_or(|part| parts[part] == fault.machine));
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
