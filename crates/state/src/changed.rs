//! How a node's change of sites ended.

use sidelong_layout::{Change, ChangeResult, NodeId, NodeState, Ownership};

use crate::op::{Reply, Step, Word, done};
use crate::primitive::Load;

/// Asks the node until it says how its change ended, or has had time enough.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Changed {
    node: NodeId,
    /// Its word while it changes.
    pub(crate) word: Ownership,
    load: Load,
}

impl Changed {
    pub(crate) fn new(node: NodeId, word: Ownership) -> Self {
        Changed { node, word, load: load(node) }
    }

    /// What the node says; `None` if nothing yet, or it cannot be read. Then call again later, without a reply.
    pub(crate) fn step(&mut self, reply: Option<Reply>) -> Step<Option<ChangeResult>> {
        let value = done!(self.load.step(reply));
        self.load = load(self.node);
        let change = value.and_then(Change::decode);
        Step::Done(
            change.filter(|change| change.generation == self.word.generation).map(|change| change.result),
        )
    }

    /// The successor that is held, because nobody knows which site runs on the node: where it was or, if it came from none,
    /// where it was to go.
    pub(crate) fn held(&self) -> Ownership {
        let site = self.word.site.or(self.word.next).expect("it changes to a site");
        self.word.now(NodeState::Held, site)
    }
}

fn load(node: NodeId) -> Load {
    Load::new(Word::Ack(node))
}
