//! The node's side of a move: when to acknowledge.
//!
//! The node learns of changes by loading its own ownership word, which others swap from the side, and answers by a
//! plain store to its acknowledgement word, which nobody else writes.

use sidelong_layout::{Ack, NodeState, Ownership};

/// Decides what a node acknowledges.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeAgent {
    acknowledged: Option<u64>,
}

impl NodeAgent {
    /// One that has acknowledged nothing yet.
    pub const fn new() -> Self {
        NodeAgent { acknowledged: None }
    }

    /// The acknowledgement to store now, if a new one is due.
    ///
    /// `word` is the ownership word as just loaded; `in_flight` counts the requests of the site that it leaves, and is
    /// taken *after* that load, so that none of them was let in before the word was seen and is missed. A node that
    /// drains acknowledges at 0; every other state at once. A word that this version does not know is not answered.
    pub fn observe(&mut self, word: u64, in_flight: u32) -> Option<Ack> {
        let node = Ownership::decode(word)?;
        let due = node.state != NodeState::Draining || in_flight == 0;
        if !due || self.acknowledged == Some(node.generation) {
            return None;
        }
        self.acknowledged = Some(node.generation);
        Some(Ack { generation: node.generation })
    }
}
