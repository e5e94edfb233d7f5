//! An edge's reads of load records, counted for its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sidelong_edge::Counts;
use sidelong_fabric::ScanCounts;

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
