//! Metrics of the documents that an edge answers with from nodes' memory, read at the scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::emit::{Labels, family};
use super::figures::{Head, counter};
use crate::documents::{DocumentStatus, Shared};

#[derive(Debug)]
pub(super) struct DocumentCollector(pub(super) Arc<Shared>);

const DOCUMENTS: Head<'static> =
    counter("documents", "", "Requests that a cache may answer, by where the answer came from");
const BYTES: Head<'static> =
    counter("document", "bytes", "Bytes of the answers from nodes' memory, with their heads");
const READS: Head<'static> =
    counter("document_reads", "", "Reads of nodes' memory for documents, by how they ended");

impl Collector for DocumentCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let DocumentStatus { memory, memory_after_wait, server, memory_bytes, answered_reads, failed_reads } =
            self.0.status();
        let by = |label, count: (&'static str, u64)| (vec![(label, count.0)], count.1 as f64);
        let from = [("memory", memory), ("memory-after-wait", memory_after_wait), ("server", server)];
        family(&mut encoder, &DOCUMENTS, from.map(|count| by("from", count)))?;
        family(&mut encoder, &BYTES, [(Labels::new(), memory_bytes as f64)])?;
        let ends = [("answered", answered_reads), ("failed", failed_reads)];
        family(&mut encoder, &READS, ends.map(|count| by("end", count)))
    }
}
