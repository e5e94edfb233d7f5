//! What a front end knows of a node, and when it may be used.

use std::time::Duration;

use sidelong_layout::{Ack, Hot, Rejected};
use sidelong_state::{Newest, Unusable, Verdict};

use crate::kept::{CpuLoad, Look};
use crate::snapshot::Snapshot;
use crate::sweep::Swept;

/// Whether a node's record may be decided from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Status {
    /// It may: [`Reading::hot`] is of one moment, of the node's present life, and young enough.
    Fresh,
    /// The last good record is too old: its writer died, hangs or gets no CPU.
    Stale,
    /// As stale, and all that the last look brought was torn.
    Torn,
    /// The node has said that it ends, or cannot be reached.
    #[default]
    Gone,
    /// The node is there, but has published no record in its present life.
    NeverWritten,
}

/// One node as last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The last good record, whatever its age; `None` where the node has given none in its present life, or is gone.
    pub hot: Option<Hot>,
    /// The last acknowledgement seen in that life.
    pub ack: Option<Ack>,
    /// Whether `hot` may be used.
    pub status: Status,
    /// When `hot` was read, in ns of this machine's monotonic clock.
    pub seen_at_ns: u64,
    /// How old `hot` is; `u64::MAX` where that is not known. See [`Limits::same_clock`].
    pub age_ns: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { hot: None, ack: None, status: Status::Gone, seen_at_ns: 0, age_ns: u64::MAX }
    }
}

impl Reading {
    /// The record, if it may be decided from.
    pub fn fresh(&self) -> Option<&Hot> {
        self.hot.as_ref().filter(|_| self.status == Status::Fresh)
    }
}

/// The front end's side of a scheme: where readings come from.
pub trait Source {
    /// Brings `into` up to date: a reading for each node, in the order in which the nodes were given. It waits no
    /// longer than its [`Limits`] say, whatever the nodes do.
    ///
    /// `now_ns` is the time on this machine's monotonic clock, for the ages of records and for when to try again.
    ///
    /// # Panics
    /// Where `into` is not as long as there are nodes.
    fn refresh(&mut self, now_ns: u64, into: &mut [Reading]);

    /// What last went wrong with a node, for people; `None` if nothing has since it was reached.
    fn problem(&self, node: usize) -> Option<&str>;

    /// What was read and what not since it was made, where that is counted.
    fn swept(&self) -> Option<Swept> {
        None
    }

    /// Each CPU of a node as of the last refresh, by its number; none where the record does not tell them apart, which
    /// only the kernel's own does.
    fn cpus(&self, _node: usize) -> &[CpuLoad] {
        &[]
    }
}

/// How long a front end waits, and what it takes for old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Records older than this are not used.
    pub stale: Duration,
    /// The longest wait for the answers of all nodes together, and for those of nodes that are known to be silent. A refresh
    /// has one, or three where copies were torn.
    pub wait: Duration,
    /// The longest wait for links, of which a refresh has one where nodes are to be linked to: over verbs both ends set
    /// up a queue pair first.
    pub connect: Duration,
    /// Between the first and the second try to reach a node that is not there; it doubles with each.
    pub retry_min: Duration,
    /// Until it is this.
    pub retry_max: Duration,
    /// Whether the nodes are on this machine, so that a record's time can be compared with the clock here. Otherwise
    /// its age is the time since this reader saw it change: never more than the true one, and a record that was not
    /// yet seen to change is stale.
    pub same_clock: bool,
}

impl Default for Limits {
    /// For one machine: 150 ms is above the 99th percentile of what a keeper is late by with 64 busy threads on its CPU
    /// (63 ms as measured), and leaves time for a look within 200 ms of a node's death.
    fn default() -> Self {
        Limits {
            stale: Duration::from_millis(150),
            wait: Duration::from_millis(10),
            connect: Duration::from_millis(50),
            retry_min: Duration::from_millis(10),
            retry_max: Duration::from_secs(1),
            same_clock: true,
        }
    }
}

/// Clocks of one machine read one after the other: a record may be this much younger than a refresh that began before.
/// A record further ahead is of another clock, or of a machine that was started again.
const AHEAD_NS_MAX: u64 = 1_000_000_000;

/// The judge of one node's records.
#[derive(Debug, Default)]
pub(crate) struct Track {
    incarnation: u64,
    newest: Newest,
    held: Option<Held>,
    ack: Option<Ack>,
    last: Last,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    hot: Hot,
    seen_at_ns: u64,
    /// When this reader saw it replace another.
    changed_at_ns: Option<u64>,
}

/// What the last look brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Last {
    Record,
    Torn,
    NeverWritten,
    Nothing,
    #[default]
    Lost,
}

impl Track {
    /// Takes in a look. True: it was torn and another is worth its while, of which `state` bounds the number.
    pub(crate) fn see(&mut self, snapshot: &Snapshot, now_ns: u64) -> bool {
        if snapshot.incarnation != self.incarnation {
            // Another life: nothing of the one before is of use.
            *self = Track { incarnation: snapshot.incarnation, ..Track::default() };
        }
        self.ack = Ack::decode(snapshot.ack);
        self.last = match self.newest.judge::<{ Hot::WORDS }, Hot>(&snapshot.hot) {
            Verdict::Again => return true,
            Verdict::Use(hot) if hot.generation == self.incarnation as u32 => {
                self.hold(hot, now_ns);
                Last::Record
            }
            // The region has a new owner, the record not yet.
            Verdict::Use(_) => {
                self.newest = Newest::new();
                Last::NeverWritten
            }
            Verdict::GiveUp(Unusable::Rejected(Rejected::Never)) => Last::NeverWritten,
            Verdict::GiveUp(Unusable::Rejected(_)) => Last::Torn,
            Verdict::GiveUp(Unusable::Foreign { .. } | Unusable::Older { .. }) => Last::Nothing,
        };
        false
    }

    /// As [`Track::see`] for a copy of a record that the kernel keeps. It has no word that acknowledges.
    pub(crate) fn see_kept(&mut self, incarnation: u64, look: Look, now_ns: u64) -> bool {
        if incarnation != self.incarnation {
            *self = Track { incarnation, ..Track::default() };
        }
        self.last = match look {
            Look::Again => return true,
            Look::Whole(hot) => {
                self.hold(hot, now_ns);
                Last::Record
            }
            Look::Never => Last::NeverWritten,
            Look::Torn => Last::Torn,
            Look::Old => Last::Nothing,
        };
        false
    }

    /// The last good record, whatever its age.
    pub(crate) fn hot(&self) -> Option<&Hot> {
        self.held.as_ref().map(|held| &held.hot)
    }

    /// No answer in time.
    pub(crate) fn missed(&mut self) {
        self.last = Last::Nothing;
    }

    /// The node cannot be reached. What it said before is forgotten: who comes back may be another.
    pub(crate) fn lost(&mut self) {
        *self = Track { ack: self.ack, ..Track::default() };
    }

    fn hold(&mut self, hot: Hot, now_ns: u64) {
        let changed_at_ns = match &self.held {
            None => None,
            Some(held) if held.hot == hot => held.changed_at_ns,
            Some(_) => Some(now_ns),
        };
        self.held = Some(Held { hot, seen_at_ns: now_ns, changed_at_ns });
    }

    /// What all looks together say at `now_ns`.
    pub(crate) fn reading(&mut self, now_ns: u64, limits: &Limits) -> Reading {
        let reading = self.judge(now_ns, limits);
        if reading.status != Status::Fresh {
            // A keeper that began its sequence again would be taken for one overtaken, for ever. Nothing that comes
            // now can be worse than what is held.
            self.newest = Newest::new();
        }
        reading
    }

    fn judge(&self, now_ns: u64, limits: &Limits) -> Reading {
        let without = |status| Reading { status, ack: self.ack, ..Reading::default() };
        let held = match (self.last, self.held) {
            (Last::NeverWritten, _) => return without(Status::NeverWritten),
            (Last::Torn, None) => return without(Status::Torn),
            (Last::Lost, _) | (_, None) => return without(Status::Gone),
            (_, Some(held)) if held.hot.valid == 0 => return without(Status::Gone),
            (_, Some(held)) => held,
        };
        let age_ns = held.age_ns(now_ns, limits.same_clock);
        let status = match self.last {
            _ if u128::from(age_ns) <= limits.stale.as_nanos() => Status::Fresh,
            Last::Torn => Status::Torn,
            _ => Status::Stale,
        };
        Reading { hot: Some(held.hot), ack: self.ack, status, seen_at_ns: held.seen_at_ns, age_ns }
    }
}

impl Held {
    fn age_ns(&self, now_ns: u64, same_clock: bool) -> u64 {
        let time_ns = self.hot.time_ns;
        if same_clock && time_ns <= now_ns.saturating_add(AHEAD_NS_MAX) {
            return now_ns.saturating_sub(time_ns);
        }
        self.changed_at_ns.map_or(u64::MAX, |changed_ns| now_ns.saturating_sub(changed_ns))
    }
}

#[cfg(test)]
mod tests;
