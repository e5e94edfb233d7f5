//! A front end's knowledge of a node, and whether it may be used.

use std::time::Duration;

use sidelong_fabric::{Patience, ScanCounts};
use sidelong_layout::{Ack, Hot, Rejected};
use sidelong_state::{Newest, Unusable, Verdict};

use crate::kept::{CpuLoad, Look};
use crate::snapshot::Snapshot;

/// Whether decisions may use a node's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Status {
    /// They may: [`Reading::hot`] is consistent, of the node's current life, and young enough.
    Fresh,
    /// The last valid record is too old: its writer died, hangs or gets no CPU.
    Stale,
    /// As stale, and every copy of the last scan was torn.
    Torn,
    /// The node has announced its end, or cannot be reached.
    #[default]
    Gone,
    /// The node is there, but has published no record in its current life.
    NeverWritten,
}

/// One node as last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The last valid record, of any age; `None` if the node has published none in its current life, or is gone.
    pub hot: Option<Hot>,
    /// The last acknowledgement seen in that life.
    pub ack: Option<Ack>,
    /// Whether `hot` may be used.
    pub status: Status,
    /// When `hot` was read, in ns of this machine's monotonic clock.
    pub seen_at_ns: u64,
    /// Age of `hot`; `u64::MAX` if unknown. See [`Limits::same_clock`].
    pub age_ns: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { hot: None, ack: None, status: Status::Gone, seen_at_ns: 0, age_ns: u64::MAX }
    }
}

impl Reading {
    /// The record, if decisions may use it.
    pub fn fresh(&self) -> Option<&Hot> {
        self.hot.as_ref().filter(|_| self.status == Status::Fresh)
    }
}

/// The front end's side of a scheme: a source of readings.
pub trait Source {
    /// Updates `into`, which has one reading for each node, in the order in which the nodes were given. It waits no
    /// longer than its [`Limits`] allow, whatever the nodes do.
    ///
    /// `now_ns` is the time of this machine's monotonic clock. It determines the ages of records and the times of
    /// retries.
    ///
    /// # Panics
    /// If `into` does not have one entry for each node.
    fn refresh(&mut self, now_ns: u64, into: &mut [Reading]);

    /// The last problem with a node, in words; `None` if there was none since it was last reached.
    fn problem(&self, node: usize) -> Option<&str>;

    /// Counts of reads since it was made, if it counts them.
    fn counts(&self) -> Option<ScanCounts> {
        None
    }

    /// Each CPU of a node as of the last refresh, by number; empty if the record does not tell CPUs apart, as only
    /// kernel-kept ones do.
    fn cpus(&self, _node: usize) -> &[CpuLoad] {
        &[]
    }
}

/// Timeouts of a front end, and the age from which records are stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Older records are not used.
    pub stale: Duration,
    /// Longest wait for the answers of all nodes together, and for those of silent nodes. A refresh waits once, or
    /// three times if copies were torn.
    pub wait: Duration,
    /// Longest wait for links; a refresh waits once if there are links to make. Over verbs both ends set up a queue
    /// pair first.
    pub connect: Duration,
    /// Pause between the first and the second attempt to reach a missing node; it doubles each time.
    pub retry_min: Duration,
    /// Longest such pause.
    pub retry_max: Duration,
    /// Whether the nodes are on this machine, so that a record's time can be compared with the clock here. Otherwise
    /// the age is the time since this reader saw the record change. That is never more than the true age, and a record
    /// not yet seen to change is stale.
    pub same_clock: bool,
}

impl Default for Limits {
    /// Limits for one machine. 150 ms exceeds the 99th percentile of a keeper's delay with 64 busy threads on its CPU
    /// (63 ms measured), and leaves time for a scan within 200 ms of a node's death.
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

impl Limits {
    /// The limits that concern a scan.
    pub fn patience(&self) -> Patience {
        let retry = (self.retry_min, self.retry_max);
        Patience { answers: self.wait, links: self.connect, retry, ..Patience::default() }
    }
}

/// A machine's clocks are read one after the other, so a record may be younger than a refresh that began before it. A
/// record further ahead comes from another clock, or from a machine that was restarted.
const AHEAD_NS_MAX: u64 = 1_000_000_000;

/// Judges one node's records.
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
    /// When this reader saw it change.
    changed_at_ns: Option<u64>,
}

/// The result of the last copy.
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
    /// Takes a copy. Returns true if it was torn and another is worthwhile; `state` bounds the repetitions.
    pub(crate) fn see(&mut self, snapshot: &Snapshot, now_ns: u64) -> bool {
        if snapshot.incarnation != self.incarnation {
            // Another life: everything known of the previous one is void.
            *self = Track { incarnation: snapshot.incarnation, ..Track::default() };
        }
        self.ack = Ack::decode(snapshot.ack);
        self.last = match self.newest.judge::<{ Hot::WORDS }, Hot>(&snapshot.hot) {
            Verdict::Again => return true,
            Verdict::Use(hot) if hot.generation == self.incarnation as u32 => {
                self.hold(hot, now_ns);
                Last::Record
            }
            // The region has a new owner, but the record is still the previous one's.
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

    /// As [`Track::see`], for a copy of a kernel-kept record, which has no acknowledgement.
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

    /// The last valid record, of any age.
    pub(crate) fn hot(&self) -> Option<&Hot> {
        self.held.as_ref().map(|held| &held.hot)
    }

    /// There was no answer in time.
    pub(crate) fn missed(&mut self) {
        self.last = Last::Nothing;
    }

    /// The node cannot be reached. Its record is dropped, because the next process there may be another one.
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

    /// The result of all copies so far, at `now_ns`.
    pub(crate) fn reading(&mut self, now_ns: u64, limits: &Limits) -> Reading {
        let reading = self.judge(now_ns, limits);
        if reading.status != Status::Fresh {
            // A keeper that restarts its sequence would be taken for an outdated one for ever. No new record can be
            // worse than the present one.
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
