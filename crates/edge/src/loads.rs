//! One scan of a cluster: the nodes' words and their load records together, with one wait.
//!
//! `load` and `reconfig` do not know each other. Here the reads of both are posted in one batch. The socket schemes
//! request records by messages, so with them the words are scanned first.

use sidelong_fabric::ScanCounts;
use sidelong_layout::{Slots, Time};
use sidelong_load::{Reading, RecordOf, Records, Sockets, Source as _};
use sidelong_reconfig::Links;

/// How an edge reads the load of all nodes.
pub enum Loads {
    /// From the nodes' memory, by the scanner of the [`Links`] passed to each scan.
    Memory(Records),
    /// By requests to the nodes.
    Sockets(Sockets),
}

impl Loads {
    /// Reads all words and records, and updates `into`.
    pub fn scan(&mut self, now: Time, links: &mut Links, into: &mut [Reading]) {
        match self {
            Loads::Memory(records) => {
                links.scan_with(now, records);
                records.show(links.scanner_mut(), now, into);
            }
            Loads::Sockets(sockets) => {
                links.scan(now);
                sockets.refresh(now.as_ns(), into);
            }
        }
    }

    /// Goes by other nodes from now on. Nodes that answer to requests stay the same.
    pub fn adopt(&mut self, links: &mut Links, nodes: &Slots<RecordOf>) {
        if let Loads::Memory(records) = self {
            records.adopt(links.scanner_mut(), nodes);
        }
    }

    /// The last problem with reading a node's record, in words.
    pub fn problem<'a>(&'a self, links: &'a Links, node: usize) -> Option<&'a str> {
        match self {
            Loads::Memory(records) => records.problem(links.scanner(), node),
            Loads::Sockets(sockets) => sockets.problem(node),
        }
    }

    /// Counts of one-sided reads.
    pub fn counts(&self, links: &Links) -> ScanCounts {
        match self {
            Loads::Memory(_) => links.scanner().counts(),
            Loads::Sockets(_) => ScanCounts::default(),
        }
    }
}
