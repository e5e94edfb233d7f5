//! When a draining node has left its old site.
//!
//! Two kinds of witnesses know. A node with a server of its own acknowledges once that has finished the old site's requests,
//! whoever sent them. Each front states that it has seen the node drain and has no request there any more. Both
//! statements stay true while the node drains (`layout::front` says why), so they are taken one after the other. A node
//! that acknowledges may still get a request from a front that has not seen it drain; that is why the fronts are asked,
//! too.

use sidelong_layout::{Ack, EdgeId, FrontWord, NodeId};

use crate::op::{Reply, Step, Word, done};
use crate::pool::Pool;
use crate::primitive::Load;

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

    /// Whether all have testified. If not, call again later, without a reply.
    pub(crate) fn step(&mut self, mut reply: Option<Reply>) -> Step<bool> {
        while let Some(witness) = self.witness {
            let value = done!(self.load.step(reply.take()));
            let (has_left, next) = match witness {
                Witness::Node => {
                    let ack = value.and_then(Ack::decode);
                    (ack.is_some_and(|ack| ack.generation == self.generation), front(0, self.fronts))
                }
                Witness::Front(index) => {
                    let has_left = value.is_some_and(|word| FrontWord::has_left(word, self.generation));
                    (has_left, front(index + 1, self.fronts))
                }
            };
            if has_left {
                self.witness = next;
            }
            self.load = load(self.node, self.witness);
            if !has_left {
                return Step::Done(false);
            }
        }
        Step::Done(true)
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
