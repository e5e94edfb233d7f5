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
    /// Whether it has said nothing, and its word is read again.
    rereads: bool,
    load: Load,
}

/// What is found at the node.
pub(crate) enum ChangeEnd {
    /// No end of the change yet, or it cannot be read.
    Nothing,
    /// The end.
    Ended(ChangeResult),
    /// Another word: it was lost with the node's process and made anew, or another mover works on it.
    Other(u64),
}

impl Changed {
    pub(crate) fn new(node: NodeId, word: Ownership) -> Self {
        Changed { node, word, rereads: false, load: Load::new(Word::Ack(node)) }
    }

    /// What is found. After [`ChangeEnd::Nothing`] call again later, without a reply.
    pub(crate) fn step(&mut self, mut reply: Option<Reply>) -> Step<ChangeEnd> {
        loop {
            let value = done!(self.load.step(reply.take()));
            if self.rereads {
                (self.rereads, self.load) = (false, Load::new(Word::Ack(self.node)));
                let other = value.filter(|value| *value != self.word.encode());
                return Step::Done(other.map_or(ChangeEnd::Nothing, ChangeEnd::Other));
            }
            let change = value.and_then(Change::decode);
            if let Some(change) = change.filter(|change| change.generation == self.word.generation) {
                return Step::Done(ChangeEnd::Ended(change.result));
            }
            (self.rereads, self.load) = (true, Load::new(Word::Ownership(self.node)));
        }
    }

    /// The successor that is back where it was, and stays there until a person has looked at it.
    pub(crate) fn pinned(&self) -> Ownership {
        self.word.site.map_or_else(|| self.held(), |site| self.word.now(NodeState::Pinned, site))
    }

    /// The successor that is held, because nobody knows which site runs on the node: where it was or, if it came from none,
    /// where it was to go.
    pub(crate) fn held(&self) -> Ownership {
        let site = self.word.site.or(self.word.next).expect("it changes to a site");
        self.word.now(NodeState::Held, site)
    }
}
