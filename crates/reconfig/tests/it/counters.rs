//! Dual update counters (Balaji et al. 2004, 3.1.2) as movers keep them: another owner's reconfiguration is news once,
//! to a mover that has not scanned since.

use std::collections::BTreeMap;

use sidelong_layout::{Budget, EdgeId, NodeId, NodeState, Ownership, SiteId};
use sidelong_reconfig::{Mover, Protocol, Scan, SiteWords};
use sidelong_state::{Outcome, Pool, Reply, Step, Time, Timing, Word};

use crate::support::plan::plan;

const NODES: usize = 4;
const SITE: SiteId = SiteId::new(0);

/// The words of a site and of nodes that are free for it.
struct Words(BTreeMap<Word, u64>);

impl Words {
    fn new() -> Self {
        let free = Ownership { state: NodeState::Free, site: None, next: None, generation: 1 };
        let nodes = (0..NODES).map(|node| (Word::Ownership(NodeId::new(node)), free.encode()));
        Words(nodes.collect())
    }

    fn word(&self, word: Word) -> u64 {
        self.0.get(&word).copied().unwrap_or(0)
    }

    fn show(&self, mover: &mut Mover) {
        let nodes = (0..NODES).map(NodeId::new);
        let ownerships: Vec<_> =
            nodes.map(|node| Ownership::decode(self.word(Word::Ownership(node)), 1)).collect();
        let (lock, budget) = (self.word(Word::Lock(SITE)), self.word(Word::Budget(SITE)));
        let sites = [Some(SiteWords { lock, budget: Budget::decode(budget) })];
        mover.look(Scan { ownerships: &ownerships, invalid: &[], sites: &sites }, Time(0));
        assert!(mover.is_idle(), "nothing is to be repaired");
    }

    fn moves(&mut self, mover: &mut Mover, node: usize) -> Outcome {
        let node = NodeId::new(node);
        let expected = Ownership::decode(self.word(Word::Ownership(node)), 1).unwrap();
        mover.begin(plan(node, expected, SITE), Time(0));
        let mut reply = None;
        loop {
            match mover.step(Time(0), reply.take()) {
                Some(Step::Do(op)) => {
                    let value = self.word(op.word());
                    self.0.insert(op.word(), op.applied_to(value));
                    reply = Some(Reply::Value(value));
                }
                Some(Step::Done(report)) => return report.outcome,
                _ => panic!("free nodes are not waited for"),
            }
        }
    }
}

#[test]
fn what_was_seen_at_a_look_stops_no_move() {
    let timing = Timing::new(100_000_000, 10_000_000, 1_000_000_000, 1_000_000).unwrap();
    let pool = Pool::new([0], [None; NODES]);
    let mover = |edge| Mover::new(EdgeId::new(edge), 1, 2, pool.clone(), timing, Protocol::Lease);
    let (mut words, mut first, mut second) = (Words::new(), mover(0), mover(1));
    assert_eq!(words.moves(&mut first, 0), Outcome::Moved);
    assert_eq!(words.moves(&mut second, 1), Outcome::Recent, "it has not looked");

    assert_eq!(words.moves(&mut first, 1), Outcome::Moved);
    words.show(&mut second);
    assert_eq!(words.moves(&mut second, 2), Outcome::Recent, "not all words of a look are of one moment");

    assert_eq!(words.moves(&mut first, 2), Outcome::Moved);
    (0..2).for_each(|_| words.show(&mut second));
    assert_eq!(words.moves(&mut second, 3), Outcome::Moved);
}
