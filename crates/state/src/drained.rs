//! When a draining node has left its old site.
//!
//! Two kinds of witnesses know. A node with a server of its own acknowledges once that has finished the old site's requests,
//! whoever sent them. Each front states that it has seen the node drain and has no request there any more. Both
//! statements stay true while the node drains (`layout::front` says why), so they are taken one after the other. A node
//! that acknowledges may still get a request from a front that has not seen it drain; that is why the fronts are asked,
//! too.
//!
//! Which fronts there are, a mover knows by its roster. It reads the roster's epoch *after* it has made the node drain. A
//! front that joins raises the epoch *before* it looks at the nodes. So the front sees that the node drains, or the mover
//! sees that there is a front more (the order of Dekker's algorithm).

use std::sync::Arc;

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
    /// The board could not be read, so that nobody knows which fronts there are.
    Board,
}

/// What the witnesses say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Testimony {
    /// The node has left its old site.
    Left,
    /// It has not, as far as is known.
    Not(Undrained),
    /// There are witnesses that this roster does not name.
    Behind,
}

/// Asks the witnesses of one node, and remembers who has testified.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Drained {
    node: NodeId,
    generation: u64,
    epoch: u64,
    fronts: Arc<[EdgeId]>,
    /// How many of them have testified.
    testified: u16,
    /// The witness that is asked next; `None` after the last.
    witness: Option<Witness>,
    asked: Asked,
    load: Load,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Witness {
    Node,
    Front(EdgeId),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Asked {
    Epoch,
    Witness(Witness),
}

impl Drained {
    /// Of `node`, which drains with that generation.
    pub(crate) fn new(node: NodeId, generation: u64, pool: &Pool) -> Self {
        let (epoch, fronts) = (pool.epoch(), Arc::clone(pool.fronts()));
        let first = || fronts.first().copied().map(Witness::Front);
        let witness = if pool.acknowledges(node) { Some(Witness::Node) } else { first() };
        let load = Load::new(Word::Epoch);
        Drained { node, generation, epoch, fronts, testified: 0, witness, asked: Asked::Epoch, load }
    }

    /// Whether the epoch is read.
    pub(crate) const fn reads_epoch(&self) -> bool {
        matches!(self.asked, Asked::Epoch)
    }

    /// Whether the fronts are asked.
    pub(crate) const fn asks_fronts(&self) -> bool {
        matches!(self.witness, Some(Witness::Front(_)))
    }

    /// What they say. Unless the node has left, call again later, without a reply. The epoch is read each time: of a front
    /// that is removed from the roster nothing more is expected.
    pub(crate) fn step(&mut self, mut reply: Option<Reply>) -> Step<Testimony> {
        loop {
            let value = done!(self.load.step(reply.take()));
            let end = match (self.asked, value) {
                (Asked::Epoch, None) => Some(Testimony::Not(Undrained::Board)),
                (Asked::Epoch, Some(newest)) => (newest > self.epoch).then_some(Testimony::Behind),
                (Asked::Witness(Witness::Node), value) => {
                    let ack = value.and_then(Ack::decode);
                    let has_left = ack.is_some_and(|ack| ack.generation == self.generation);
                    self.testify(if has_left { None } else { Some(Undrained::Node) }, 0)
                }
                (Asked::Witness(Witness::Front(front)), value) => self.testify(self.judge(front, value), 1),
            };
            let next = if end.is_none() { self.witness } else { None };
            (self.asked, self.load) = match next {
                Some(witness) => (Asked::Witness(witness), Load::new(self.word(witness))),
                None => (Asked::Epoch, Load::new(Word::Epoch)),
            };
            match (end, next) {
                (Some(end), _) => return Step::Done(end),
                (None, None) => return Step::Done(Testimony::Left),
                (None, Some(_)) => {}
            }
        }
    }

    /// Goes on to the next front, `fronts` after the last, unless something keeps the node.
    fn testify(&mut self, undrained: Option<Undrained>, fronts: u16) -> Option<Testimony> {
        if undrained.is_none() {
            self.testified += fronts;
            self.witness = self.fronts.get(usize::from(self.testified)).copied().map(Witness::Front);
        }
        undrained.map(Testimony::Not)
    }

    /// What a front's word says against the node.
    fn judge(&self, front: EdgeId, word: Option<u64>) -> Option<Undrained> {
        let Some(word) = word else { return Some(Undrained::Unread(front)) };
        if FrontWord::has_left(word, self.generation) {
            return None;
        }
        let FrontWord { seen, requests } = FrontWord::decode(word);
        let has_seen = seen == Some(self.generation & SEQUENCE_MAX);
        Some(if has_seen { Undrained::Requests(front, requests) } else { Undrained::Unseen(front) })
    }

    fn word(&self, witness: Witness) -> Word {
        match witness {
            Witness::Front(front) => Word::Front(front, self.node),
            Witness::Node => Word::Ack(self.node),
        }
    }
}
