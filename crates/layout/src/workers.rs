//! What the workers of a proxy tell the front that controls them: their requests at each node. Workers write it at each
//! request through `fronts/lib/sidelong.h`.
//!
//! Each worker process has a slot of its own, which it takes by compare-and-swap. The front frees the slots of processes
//! that have ended. A worker that finds no free slot counts in [`WorkersMap::uncounted`], which nobody corrects.

use core::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::describe::{Word, described};
use crate::policy::HEALTH;
use crate::word::OWNERSHIP;
use crate::{HEADER_BYTES, NodeId, RegionHeader};

/// Slots for worker processes. A proxy that reloads has two generations of them at a time.
pub const SLOTS: usize = 128;
const WORKER: Word = Word::new("worker", &[("pid", 32), ("started", 32)]);

described! {
    /// A front's workers.
    pub(crate) struct WorkersRegion {
        header: RegionHeader,
        node: [WorkerNode; 0],
        slot: [WorkerSlot; 0],
    }

    /// What all workers share of a node.
    struct WorkerNode {
        sent: AtomicU64,
        #[word(HEALTH)]
        trial: AtomicU64,
        uncounted: AtomicU64,
        /// The kernel's own: when the node last refused a connection.
        refused_ns: AtomicU64,
        #[word(OWNERSHIP)]
        ownership: AtomicU64,
        zero: [u64; 3],
    }

    /// A slot. Its counts follow, and then the next slot.
    struct WorkerSlot {
        #[word(WORKER)]
        owner: AtomicU64,
        zero: [u64; 7],
        counts: [WorkerCounts; 0],
    }

    /// A worker's requests at one node.
    struct WorkerCounts {
        in_flight: AtomicU64,
        unanswered: AtomicU64,
        answers: AtomicU64,
        /// The lower half of a word with `refused`.
        failed: AtomicU32,
        refused: AtomicU32,
    }
}

/// A front's workers: after the header a line for each node that all share, then the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkersMap {
    /// Nodes in it.
    pub nodes: usize,
}

/// The process that holds a slot: `pid:32 started:32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Worker {
    /// Its process ID.
    pub pid: u32,
    /// When it started, in clock ticks since boot (proc_pid_stat(5), field 22), 32 bits of it: another process may get its ID.
    pub started: u32,
}

impl Worker {
    /// The kernel, whose programs count the connections of `proxy = "connect"` in the first slot. No process has this ID, and
    /// it never ends.
    pub const KERNEL: Worker = Worker { pid: u32::MAX, started: u32::MAX };

    /// The word's value.
    pub const fn encode(self) -> u64 {
        WORKER.pack([self.pid as u64, self.started as u64])
    }

    /// From the word's value; `None` for a free slot.
    pub const fn decode(word: u64) -> Option<Self> {
        let [pid, started] = WORKER.unpack(word);
        if word == 0 { None } else { Some(Worker { pid: pid as u32, started: started as u32 }) }
    }
}

impl WorkersMap {
    const fn node(self, node: NodeId) -> usize {
        assert!(node.index() < self.nodes, "a node without a line in the workers' region");
        HEADER_BYTES + node.index() * size_of::<WorkerNode>()
    }

    /// Requests sent to the node less those that have ended there. Only its changes mean something: what a worker had under
    /// way when it died stays in it.
    pub const fn sent(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(WorkerNode, sent)
    }

    /// The health word ([`ChoiceMap::health`](crate::ChoiceMap::health)) of the last trial of a node that had failed: the worker
    /// that stores it by compare-and-swap sends the one request.
    pub const fn trial(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(WorkerNode, trial)
    }

    /// What [`ChoiceMap::ownership`](crate::ChoiceMap::ownership) says, but earlier: workers that lose the choice alone go by this, so that who has
    /// left a site has left it for them, too. 0 says nothing: no front has told them yet.
    pub const fn ownership(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(WorkerNode, ownership)
    }

    /// Requests there of workers without a slot.
    pub const fn uncounted(self, node: NodeId) -> usize {
        self.node(node) + offset_of!(WorkerNode, uncounted)
    }

    const fn slot_bytes(self) -> usize {
        size_of::<WorkerSlot>() + self.nodes * size_of::<WorkerCounts>()
    }

    /// The [`Worker`] that holds a slot; 0 if it is free.
    pub const fn owner(self, slot: usize) -> usize {
        assert!(slot < SLOTS, "a slot that is not there");
        HEADER_BYTES + self.nodes * size_of::<WorkerNode>() + slot * self.slot_bytes()
    }

    const fn counts(self, slot: usize, node: NodeId) -> usize {
        assert!(node.index() < self.nodes, "a node without counts in the slot");
        self.owner(slot) + size_of::<WorkerSlot>() + node.index() * size_of::<WorkerCounts>()
    }

    /// The worker's requests at the node that have not ended.
    pub const fn in_flight(self, slot: usize, node: NodeId) -> usize {
        self.counts(slot, node) + offset_of!(WorkerCounts, in_flight)
    }

    /// Requests whose answer has not begun.
    pub const fn unanswered(self, slot: usize, node: NodeId) -> usize {
        self.counts(slot, node) + offset_of!(WorkerCounts, unanswered)
    }

    /// Successful answers that have begun.
    pub const fn answers(self, slot: usize, node: NodeId) -> usize {
        self.counts(slot, node) + offset_of!(WorkerCounts, answers)
    }

    /// Failures of the node: `refused:32 other:32`.
    pub const fn failures(self, slot: usize, node: NodeId) -> usize {
        self.counts(slot, node) + offset_of!(WorkerCounts, failed)
    }

    /// Length of the region.
    pub const fn len(self) -> usize {
        HEADER_BYTES + self.nodes * size_of::<WorkerNode>() + SLOTS * self.slot_bytes()
    }

    /// Whether it has no node.
    pub const fn is_empty(self) -> bool {
        self.nodes == 0
    }
}

const _: () = {
    let map = WorkersMap { nodes: 2 };
    assert!(map.trial(NodeId::new(1)) == 136 && map.owner(0) == 192);
    assert!(map.in_flight(1, NodeId::new(1)) == 192 + 128 + 64 + 32 && map.len() == 192 + 128 * SLOTS);
};
