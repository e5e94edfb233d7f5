//! An edge's reads of load records, counted for its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sidelong_edge::{Counts, Loads, ReadLoads};
use sidelong_fabric::ScanCounts;
use sidelong_layout::{Slots, Time};
use sidelong_load::{Reading, RecordOf, Status};
use sidelong_reconfig::Links;

type Of = fn(&ScanCounts) -> u64;

/// The counts by label, written by the scanning thread and read at the scrape.
const COUNTED: [(&str, Of); 5] = [
    ("answered", |counts| counts.reads),
    ("torn", |counts| counts.again),
    ("late", |counts| counts.late),
    ("left", |counts| counts.left),
    ("skipped", |counts| counts.skipped),
];

#[derive(Debug, Default)]
pub(crate) struct ReadCounts([AtomicU64; COUNTED.len()]);

impl ReadCounts {
    pub(crate) fn show(&self, counts: ScanCounts) {
        for (count, (_, of)) in self.0.iter().zip(COUNTED) {
            count.store(of(&counts), Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(self: Arc<Self>) -> Counts {
        Counts {
            name: "record_reads",
            help: "Reads of load records, by how they ended",
            label: "end",
            read: Box::new(move || {
                let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
                COUNTED.iter().map(|(end, _)| *end).zip(counts).collect()
            }),
        }
    }
}

/// The load of all nodes, and what reading it has taken so far.
pub(crate) struct CountedLoads {
    pub(crate) loads: Loads,
    pub(crate) counts: Arc<ReadCounts>,
}

impl ReadLoads for CountedLoads {
    fn scan(&mut self, now: Time, links: &mut Links, readings: &mut [Reading]) -> u64 {
        self.loads.scan(now, links, readings);
        self.counts.show(self.loads.counts(links));
        let rejected = |reading: &&Reading| matches!(reading.status, Status::Stale | Status::Torn);
        readings.iter().filter(rejected).count() as u64
    }

    fn adopt(&mut self, links: &mut Links, records: &Slots<RecordOf>) {
        self.loads.adopt(links, records);
    }
}
