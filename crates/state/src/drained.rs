//! When a draining node has left its old site.
//!
//! Two kinds of witnesses know. A node with a server of its own acknowledges once that has finished the old site's requests,
//! whoever sent them. Each front states that it has seen the node drain and has no request there any more. Both
//! statements stay true while the node drains (`layout::front` says why), so they are taken one after the other. A node
//! that acknowledges may still get a request from a front that has not seen it drain; that is why the fronts are asked,
//! too.

use sidelong_layout::{Ack, EdgeId, FrontWord, NodeId, SEQUENCE_MAX};

use crate::op::{Reply, Step, Word, done};
use crate::pool::Pool;
use crate::primitive::Load;

/// What last kept a draining node at its old site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Undrained {
    /// The node has not acknowledged: its server has requests there, or the node does not run.
    Node,
    /// The front has so many requests there.
    Requests(EdgeId, u32),
    /// The front has not seen that the node drains.
    Unseen(EdgeId),
    /// What the front states could not be read.
    Unread(EdgeId),
}

/// Asks the witnesses of one node, and remembers who has testified.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Drained {
    node: NodeId,
    generation: u64,
    fronts: u16,
    /// The witness that is asked; `None` after the last.
    witness: Option<Witness>,
    load: Load,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Witness {
    Node,
    Front(u16),
}

impl Drained {
    /// Of `node`, which drains with that generation.
    pub(crate) fn new(node: NodeId, generation: u64, pool: &Pool) -> Self {
        let fronts = pool.fronts();
        let first = if pool.acknowledges(node) { Some(Witness::Node) } else { front(0, fronts) };
        Drained { node, generation, fronts, witness: first, load: load(node, first) }
    }

    /// Whether the fronts are asked.
    pub(crate) const fn asks_fronts(&self) -> bool {
        matches!(self.witness, Some(Witness::Front(_)))
    }

    /// Whether all have testified, or who has not. If not, call again later, without a reply.
    pub(crate) fn step(&mut self, mut reply: Option<Reply>) -> Step<Result<(), Undrained>> {
        while let Some(witness) = self.witness {
            let value = done!(self.load.step(reply.take()));
            let (undrained, next) = match witness {
                Witness::Node => {
                    let ack = value.and_then(Ack::decode);
                    let has_left = ack.is_some_and(|ack| ack.generation == self.generation);
                    ((!has_left).then_some(Undrained::Node), front(0, self.fronts))
                }
                Witness::Front(index) => (self.judge(index, value), front(index + 1, self.fronts)),
            };
            if undrained.is_none() {
                self.witness = next;
            }
            self.load = load(self.node, self.witness);
            if let Some(undrained) = undrained {
                return Step::Done(Err(undrained));
            }
        }
        Step::Done(Ok(()))
    }

    /// What a front's word says against the node.
    fn judge(&self, index: u16, word: Option<u64>) -> Option<Undrained> {
        let front = EdgeId::new(usize::from(index));
        let Some(word) = word else { return Some(Undrained::Unread(front)) };
        if FrontWord::has_left(word, self.generation) {
            return None;
        }
        let FrontWord { seen, requests } = FrontWord::decode(word);
        let has_seen = seen == Some(self.generation & SEQUENCE_MAX);
        Some(if has_seen { Undrained::Requests(front, requests) } else { Undrained::Unseen(front) })
    }
}

fn front(index: u16, fronts: u16) -> Option<Witness> {
    (index < fronts).then_some(Witness::Front(index))
}

fn load(node: NodeId, witness: Option<Witness>) -> Load {
    Load::new(match witness {
        Some(Witness::Front(index)) => Word::Front(EdgeId::new(usize::from(index)), node),
        Some(Witness::Node) | None => Word::Ack(node),
    })
}
