//! The node's side of a move: when to acknowledge.
//!
//! The node learns of changes by loading its own ownership word, which movers swap one-sidedly. It answers by a plain
//! store to its acknowledgement word, which no other process writes.

use sidelong_layout::{Ack, NodeState, Ownership, SITES_MAX};

/// Decides what a node acknowledges.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeAgent {
    acknowledged: Option<u64>,
}

impl NodeAgent {
    /// An agent that has acknowledged nothing yet.
    pub const fn new() -> Self {
        NodeAgent { acknowledged: None }
    }

    /// The acknowledgement to store now, if a new one is due.
    ///
    /// `word` is the ownership word as just loaded. `in_flight` counts the requests of the site that the node leaves.
    /// Take it *after* that load, so that it includes every request admitted before the word was seen. A draining node
    /// acknowledges at 0, any other state at once, except that one which changes sites says how that ended instead
    /// ([`Change`](sidelong_layout::Change)). A word that this version does not know gets no answer.
    pub fn observe(&mut self, word: u64, in_flight: u32) -> Option<Ack> {
        // Which sites there are is the movers' business: a generation is acknowledged whatever it is of.
        let node = Ownership::decode(word, SITES_MAX)?;
        let due = match node.state {
            NodeState::Draining => in_flight == 0,
            NodeState::Changing => false,
            NodeState::Free | NodeState::Serving | NodeState::Held | NodeState::Pinned => true,
        };
        if !due || self.acknowledged == Some(node.generation) {
            return None;
        }
        self.acknowledged = Some(node.generation);
        Some(Ack { generation: node.generation })
    }
}
