//! What the gate counts. Each thread that serves clients raises counts of its own, and whoever reads them sums those of all
//! threads: no request waits for a cache line that another thread writes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sidelong_layout::SiteId;
use sidelong_policy::admission::{Answers, BUCKETS, Why};

/// Counts requests that are admitted because the view is stale: the index after those of [`Why::ALL`].
pub(super) const OLD_VIEW: usize = Why::ALL.len();
/// Counts requests that are rejected because the client sends much more than the others: likewise.
pub(super) const GREEDY: usize = Why::ALL.len();

/// The counts of all threads.
#[derive(Debug)]
pub(super) struct Counts(Box<[ThreadCounts]>);

/// One thread's counts. Processors fetch cache lines in pairs, hence the alignment.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCounts {
    sites: Box<[SiteCounts]>,
    asked: Box<ClientBuckets>,
    pub(super) closed: AtomicU64,
}

/// One thread's counts of a site.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct SiteCounts {
    pub(super) in_time: AtomicU64,
    pub(super) late: AtomicU64,
    /// By [`Why`], and one more.
    pub(super) admitted: [AtomicU64; GREEDY + 1],
    pub(super) rejected: [AtomicU64; GREEDY + 1],
}

/// Requests by bucket of their client.
#[derive(Debug)]
#[repr(align(128))]
struct ClientBuckets([AtomicU32; BUCKETS]);

impl ThreadCounts {
    fn new(sites: usize) -> Self {
        ThreadCounts {
            sites: (0..sites).map(|_| SiteCounts::default()).collect(),
            asked: Box::new(ClientBuckets(std::array::from_fn(|_| AtomicU32::new(0)))),
            closed: AtomicU64::new(0),
        }
    }

    pub(super) fn site(&self, site: SiteId) -> &SiteCounts {
        &self.sites[site.index()]
    }

    /// Requests of clients in `bucket`.
    pub(super) fn asked(&self, bucket: usize) -> &AtomicU32 {
        &self.asked.0[bucket]
    }
}

impl Counts {
    pub(super) fn new(threads: usize, sites: usize) -> Self {
        Counts((0..threads).map(|_| ThreadCounts::new(sites)).collect())
    }

    /// The counts of one thread, to raise.
    pub(super) fn of(&self, thread: usize) -> &ThreadCounts {
        &self.0[thread]
    }

    /// Begins anew with a site.
    pub(super) fn clear(&self, site: SiteId) {
        for SiteCounts { in_time, late, admitted, rejected } in self.0.iter().map(|thread| thread.site(site))
        {
            let all = [in_time, late].into_iter().chain(admitted).chain(rejected);
            all.for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }

    // Sums.

    /// It may wrap.
    pub(super) fn asked(&self, bucket: usize) -> u32 {
        let asked = self.0.iter().map(|thread| thread.asked(bucket).load(Ordering::Relaxed));
        asked.fold(0, u32::wrapping_add)
    }

    pub(super) fn closed(&self) -> u64 {
        self.0.iter().map(|thread| thread.closed.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn answers(&self, site: SiteId) -> Answers {
        Answers {
            in_time: self.sum(site, |counts| &counts.in_time),
            late: self.sum(site, |counts| &counts.late),
        }
    }

    pub(super) fn admitted(&self, site: SiteId) -> [u64; GREEDY + 1] {
        std::array::from_fn(|why| self.sum(site, |counts| &counts.admitted[why]))
    }

    pub(super) fn rejected(&self, site: SiteId) -> [u64; GREEDY + 1] {
        std::array::from_fn(|why| self.sum(site, |counts| &counts.rejected[why]))
    }

    fn sum(&self, site: SiteId, count: impl Fn(&SiteCounts) -> &AtomicU64) -> u64 {
        self.0.iter().map(|thread| count(thread.site(site)).load(Ordering::Relaxed)).sum()
    }
}
