//! A site's lock: which edge may reconfigure the site, for how long, and when the lock may be stolen.
//!
//! It is the first level of the two-level hierarchical locking of Balaji et al. 2004 (3.1.2). The second is the swap of
//! a node's ownership word, in `transfer`.
//!
//! The holder counts its lease of L from the moment it *posted* the last swap that took effect, stops a margin before
//! its end, and renews it every L/3. Another edge takes the lock over once it has seen the same word for 2L. Each uses
//! its own clock, and no two clocks are compared. A word that an observer has seen unchanged for 2L was posted before
//! its first look, so the holder's lease has ended, unless clocks drift apart by a factor of two.
//!
//! A lock is lost by being stolen, not by running late. A holder that slept past its lease stops acting, but may renew.
//! The renewal succeeds only if no other edge took over. (A lock word names its owner, the owner's life and a sequence.
//! So a swap that finds its own new value after a lost completion recognises it.)

use sidelong_layout::{EdgeId, Lock, SiteId};

use crate::Time;
use crate::counter::UpdateCounter;
use crate::op::{Reply, Step, Word, done};
use crate::primitive::{Load, Swap, Swapped};

/// Swaps of a lock that may find another value before the site counts as busy; also consecutive renewals that may come
/// too late.
const TRIES_MAX: u8 = 3;

/// A holder of locks: one life of an edge (or, in server-based reconfiguration, of a node numbered after the edges). It
/// runs one machine per site at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    edge: EdgeId,
    incarnation: u16,
}

impl Holder {
    /// A lock word holds the low 12 bits of the process's incarnation.
    pub const fn new(edge: EdgeId, incarnation: u64) -> Self {
        Holder { edge, incarnation: (incarnation & 0xfff) as u16 }
    }

    /// Whether the lock is this holder's.
    pub fn has(self, lock: Lock) -> bool {
        lock.owner == Some(self.edge) && lock.incarnation == self.incarnation
    }
}

/// The part of a lease that its holder does not use. It exceeds what clocks differ by within one lease.
const LEASE_MARGIN: u64 = 10;
/// Longest interval between two checks whether a draining node is done, in ns.
const ACK_POLL_NS_MAX: u64 = 1_000_000;

/// The waits of the protocol, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    lease_ns: u64,
    margin_ns: u64,
    drain_ns_max: u64,
    poll_ns: u64,
}

/// Why [`Timing`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimingError {
    /// A holder would have to stop before it renews.
    #[error(
        "a lease of {lease_ns} ns leaves no time to renew with a margin of {margin_ns} ns: at most half of it"
    )]
    Margin {
        /// The lease requested.
        lease_ns: u64,
        /// The margin requested.
        margin_ns: u64,
    },
    /// A wait of 0 would spin.
    #[error("lease, margin, drain and poll times must be above 0")]
    Zero,
}

impl Timing {
    /// A lease of `lease_ns`, whose last `margin_ns` are not used. A node has at most `drain_ns_max` to finish the old
    /// site's requests, and is checked every `poll_ns`.
    ///
    /// # Errors
    /// If a value is 0 or the margin exceeds half the lease.
    pub const fn new(
        lease_ns: u64,
        margin_ns: u64,
        drain_ns_max: u64,
        poll_ns: u64,
    ) -> Result<Self, TimingError> {
        if lease_ns == 0 || margin_ns == 0 || drain_ns_max == 0 || poll_ns == 0 {
            Err(TimingError::Zero)
        } else if margin_ns > lease_ns / 2 {
            Err(TimingError::Margin { lease_ns, margin_ns })
        } else {
            Ok(Timing { lease_ns, margin_ns, drain_ns_max, poll_ns })
        }
    }

    /// The timing of a live edge that scans every `interval_ns`. The margin is a tenth of the lease. A draining node is
    /// checked at each scan, or every millisecond if scans are rarer.
    ///
    /// # Errors
    /// If a value is 0, or the lease is too short to have a tenth.
    pub const fn live(lease_ns: u64, drain_ns_max: u64, interval_ns: u64) -> Result<Self, TimingError> {
        let poll_ns = if interval_ns < ACK_POLL_NS_MAX { interval_ns } else { ACK_POLL_NS_MAX };
        Timing::new(lease_ns, lease_ns / LEASE_MARGIN, drain_ns_max, poll_ns)
    }

    /// How long a lock is held unless it is renewed.
    pub const fn lease_ns(self) -> u64 {
        self.lease_ns
    }

    /// How long a lock word must be unchanged before it may be stolen.
    pub const fn steal_ns(self) -> u64 {
        self.lease_ns.saturating_mul(2)
    }

    pub(crate) const fn drain_deadline(self, now: Time) -> Time {
        now.after_ns(self.drain_ns_max)
    }

    pub(crate) const fn next_poll(self, now: Time) -> Time {
        now.after_ns(self.poll_ns)
    }
}

/// A word that has not changed since it was first seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sighting {
    /// The word.
    pub word: u64,
    /// When it was first seen, on the observer's clock.
    pub since: Time,
}

impl Sighting {
    /// Takes note of a word in place of the one seen before; returns since when it has been unchanged.
    pub(crate) fn since(seen: &mut Option<Sighting>, now: Time, word: u64) -> Time {
        let same = seen.filter(|seen| seen.word == word);
        seen.insert(same.unwrap_or(Sighting { word, since: now })).since
    }
}

/// What an edge remembers of one site's lock between two [`Move`](crate::Move)s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memo {
    /// The local update counter; the lock's sequence is the shared one.
    pub counter: UpdateCounter,
    /// The lock while another edge holds it.
    pub sighting: Option<Sighting>,
    /// The ownership word that a repair waited for when it lost the lock. The next one does not begin the wait anew: edges that are
    /// too busy to keep a lease would take turns at it for ever.
    pub awaited: Option<Sighting>,
}

impl Memo {
    /// Takes note of a lock word; returns since when it has been unchanged.
    ///
    /// An edge calls this for the locks of all sites in its view, not only of those that it wants to move nodes to,
    /// because no other edge may watch a site whose last holder died. A lock unchanged for [`Timing::steal_ns`] needs
    /// [`Move::repair`](crate::Move::repair).
    pub fn see(&mut self, now: Time, word: u64) -> Option<Time> {
        if Lock::decode(word).owner.is_none() {
            self.sighting = None;
            return None;
        }
        Some(Sighting::since(&mut self.sighting, now, word))
    }
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    site: SiteId,
    holder: Holder,
    word: Lock,
    until: Time,
    renew_at: Time,
}

impl Lease {
    fn new(site: SiteId, holder: Holder, word: Lock, posted: Time, timing: Timing) -> Self {
        Lease {
            site,
            holder,
            word,
            until: posted.after_ns(timing.lease_ns - timing.margin_ns),
            renew_at: posted.after_ns(timing.lease_ns / 3),
        }
    }

    /// Whether the holder may still rely on the lock.
    pub(crate) fn may_act(&self, now: Time) -> bool {
        now < self.until
    }

    /// When [`Renewal`] is due.
    pub(crate) const fn renew_at(&self) -> Time {
        self.renew_at
    }

    pub(crate) const fn release(&self) -> Release {
        let freed = self.word.freed();
        Release { freed, swap: Swap::new(Word::Lock(self.site), self.word.encode(), freed.encode()) }
    }
}

/// A swap of a lock word, and the times from which the lease counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Claim {
    next: Lock,
    swap: Swap,
    first_posted: Time,
    posted: Time,
}

enum Claimed {
    /// The lease counts from here.
    Yes(Time),
    No(u64),
    Unknown,
}

impl Claim {
    fn new(now: Time, site: SiteId, holder: Holder, found: Lock) -> Self {
        let next = found.held_by(holder.edge, holder.incarnation);
        let swap = Swap::new(Word::Lock(site), found.encode(), next.encode());
        Claim { next, swap, first_posted: now, posted: now }
    }

    fn step(&mut self, now: Time, reply: Option<Reply>) -> Step<Claimed> {
        let (first_posted, posted) = (self.first_posted, self.posted);
        self.posted = now;
        Step::Done(match done!(self.swap.step(reply)) {
            Swapped::Yes => Claimed::Yes(posted),
            Swapped::Already => Claimed::Yes(first_posted),
            Swapped::No(found) => Claimed::No(found),
            Swapped::Unknown => Claimed::Unknown,
        })
    }
}

/// Takes a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Acquire {
    site: SiteId,
    holder: Holder,
    timing: Timing,
    heed_counter: bool,
    tries: u8,
    phase: AcquirePhase,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum AcquirePhase {
    Read(Load),
    Claim { claim: Claim, taken_over: bool },
}

pub(crate) enum Acquired {
    /// Held. `taken_over`: from a holder that left it, which may be an earlier machine of this process.
    Held { lease: Lease, taken_over: bool },
    /// Another edge holds it.
    Busy,
    /// The site was reconfigured since this edge last looked.
    Recent,
    /// Completions were lost too often.
    Unreachable,
}

impl Acquire {
    /// With `heed_counter`, refuses a site that was reconfigured since the last look (Balaji et al. 2004, 3.1.2).
    pub(crate) const fn new(site: SiteId, holder: Holder, timing: Timing, heed_counter: bool) -> Self {
        let phase = AcquirePhase::Read(Load::new(Word::Lock(site)));
        Acquire { site, holder, timing, heed_counter, tries: 0, phase }
    }

    pub(crate) const fn step_name(&self) -> &'static str {
        match self.phase {
            AcquirePhase::Read(_) => "read-lock",
            AcquirePhase::Claim { taken_over: false, .. } => "take-lock",
            AcquirePhase::Claim { taken_over: true, .. } => "steal-lock",
        }
    }

    pub(crate) fn step(&mut self, now: Time, mut reply: Option<Reply>, memo: &mut Memo) -> Step<Acquired> {
        loop {
            let found = match &mut self.phase {
                AcquirePhase::Read(load) => done!(load.step(reply.take())),
                AcquirePhase::Claim { claim, taken_over } => match done!(claim.step(now, reply.take())) {
                    Claimed::Yes(posted) => {
                        let lease = Lease::new(self.site, self.holder, claim.next, posted, self.timing);
                        memo.sighting = None;
                        return Step::Done(Acquired::Held { lease, taken_over: *taken_over });
                    }
                    Claimed::No(found) => Some(found),
                    Claimed::Unknown => None,
                },
            };
            let Some(found) = found else { return Step::Done(Acquired::Unreachable) };
            match self.judge(now, found, memo) {
                Ok(phase) => self.phase = phase,
                Err(end) => return Step::Done(end),
            }
        }
    }

    fn judge(&mut self, now: Time, found: u64, memo: &mut Memo) -> Result<AcquirePhase, Acquired> {
        let lock = Lock::decode(found);
        let seen_since = memo.see(now, found);
        let may_take = match seen_since {
            None if self.heed_counter && !memo.counter.may_reconfigure(lock.sequence) => {
                return Err(Acquired::Recent);
            }
            None => true,
            Some(since) => self.holder.has(lock) || now >= since.after_ns(self.timing.steal_ns()),
        };
        self.tries += 1;
        if !may_take || self.tries > TRIES_MAX {
            return Err(Acquired::Busy);
        }
        let claim = Claim::new(now, self.site, self.holder, lock);
        Ok(AcquirePhase::Claim { claim, taken_over: seen_since.is_some() })
    }
}

/// Renews a lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Renewal {
    claim: Claim,
    tries: u8,
}

impl Renewal {
    pub(crate) fn new(now: Time, lease: &Lease) -> Self {
        Renewal { claim: Claim::new(now, lease.site, lease.holder, lease.word), tries: 1 }
    }

    /// Whether `lease` holds on and may be acted on.
    pub(crate) fn step(
        &mut self,
        now: Time,
        mut reply: Option<Reply>,
        lease: &mut Lease,
        timing: Timing,
    ) -> Step<bool> {
        loop {
            match done!(self.claim.step(now, reply.take())) {
                Claimed::Yes(posted) => {
                    *lease = Lease::new(lease.site, lease.holder, self.claim.next, posted, timing);
                    if lease.may_act(now) || self.tries == TRIES_MAX {
                        return Step::Done(lease.may_act(now));
                    }
                    self.claim = Claim::new(now, lease.site, lease.holder, lease.word);
                    self.tries += 1;
                }
                Claimed::No(_) | Claimed::Unknown => return Step::Done(false),
            }
        }
    }
}

/// Frees a lock, which may have been stolen meanwhile. Either way this holder no longer has it, unless the result is
/// `Unknown`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Release {
    freed: Lock,
    swap: Swap,
}

impl Release {
    /// The sequence of the free lock, if it is known to have been freed.
    pub(crate) fn step(&mut self, reply: Option<Reply>) -> Step<Option<u64>> {
        Step::Done(match done!(self.swap.step(reply)) {
            Swapped::Yes | Swapped::Already => Some(self.freed.sequence),
            Swapped::No(_) | Swapped::Unknown => None,
        })
    }
}
