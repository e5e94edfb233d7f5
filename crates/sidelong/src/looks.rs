//! What reading the load takes an edge, told among its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sidelong_edge::Counts;
use sidelong_load::Swept;

type Of = fn(&Swept) -> u64;

/// How many, each written by the thread that reads and told by those that serve metrics.
const COUNTED: [(&str, Of); 5] = [
    ("answered", |swept| swept.reads),
    ("torn", |swept| swept.again),
    ("late", |swept| swept.late),
    ("left", |swept| swept.left),
    ("skipped", |swept| swept.skipped),
];

#[derive(Debug, Default)]
pub(crate) struct LookCounts([AtomicU64; COUNTED.len()]);

impl LookCounts {
    pub(crate) fn show(&self, swept: Swept) {
        for (count, (_, of)) in self.0.iter().zip(COUNTED) {
            count.store(of(&swept), Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(self: Arc<Self>) -> Counts {
        Counts {
            name: "record_reads",
            help: "Reads of load records one-sidedly, by how they ended",
            label: "end",
            read: Box::new(move || {
                let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
                COUNTED.iter().map(|(end, _)| *end).zip(counts).collect()
            }),
        }
    }
}
