//! When a mover begins a repair by itself, and why.

use sidelong_layout::{Budget, EdgeId, Lock, NodeId, Ownership, SiteId};
use sidelong_reconfig::{Cause, Mover, Protocol, Report, Scan, SiteWords, Task};
use sidelong_state::{Op, Outcome, Pool, Reply, Step, Time, Timing, Word};

use crate::support::plan::plan;

const SITE: SiteId = SiteId::new(0);
const NODE: NodeId = NodeId::new(0);
const FLOOR: u16 = 1;
const TWO_LEASES: u64 = 2_000;

/// A site and its node, whose words a mover repairs.
struct Cluster {
    ownership: u64,
    budget: Budget,
    lock: u64,
    mover: Mover,
}

impl Cluster {
    fn new() -> Self {
        let timing = Timing::new(TWO_LEASES / 2, 100, 500, 10).unwrap();
        let pool = Pool::new([FLOOR], [Some(SITE)]);
        Cluster {
            ownership: Ownership::serving(SITE, 1).encode(),
            budget: Budget { floor: FLOOR, current: 1, generation: 0 },
            lock: 0,
            mover: Mover::new(EdgeId::new(0), 1, 1, pool, timing, Protocol::Lease),
        }
    }

    /// Shows the mover all words; the repair that it makes of it.
    fn look(&mut self, at: u64) -> Option<Report> {
        let ownerships = [Ownership::decode(self.ownership, 1)];
        let invalid: &[NodeId] = if ownerships[0].is_some() { &[] } else { &[NODE] };
        let sites = [Some(SiteWords { lock: self.lock, budget: self.budget })];
        self.mover.look(Scan { ownerships: &ownerships, invalid, sites: &sites }, Time(at));
        let mut reply = None;
        loop {
            match self.mover.step(Time(at), reply.take())? {
                Step::Do(op) => reply = Some(self.execute(op)),
                Step::WaitUntil(_) => panic!("nothing drains"),
                Step::Done(ended) => return Some(ended),
            }
        }
    }

    fn execute(&mut self, op: Op) -> Reply {
        let value = match op.word() {
            Word::Ownership(_) => self.ownership,
            Word::Budget(_) => self.budget.encode(),
            Word::Lock(_) => self.lock,
            Word::Epoch => return Reply::Value(0),
            word => panic!("{word:?}"),
        };
        let new = op.applied_to(value);
        match op.word() {
            Word::Ownership(_) => self.ownership = new,
            Word::Budget(_) => self.budget = Budget::decode(new),
            _ => self.lock = new,
        }
        Reply::Value(value)
    }

    /// The cause of the repair that comes after that long and not a moment sooner.
    fn repaired_after(&mut self, began: u64, wait: u64) -> Cause {
        assert_eq!(self.look(began), None);
        assert_eq!(self.look(began + wait - 1), None);
        let report = self.look(began + wait).expect("a repair");
        assert_eq!(report.outcome, Outcome::Recovered { left_out: 0 });
        assert!(Ownership::decode(self.ownership, 1).is_some_and(|word| word.serves(SITE)));
        assert_eq!((self.budget.floor, self.budget.current), (FLOOR, 1));
        assert_eq!(Lock::decode(self.lock).owner, None);
        assert_eq!(self.look(began + wait + 1), None, "nothing is left to do");
        let Task::Repair(_, cause) = report.task else { panic!("a repair") };
        cause
    }
}

#[test]
fn each_kind_of_wrong_word_is_put_right_after_two_leases() {
    let mut cluster = Cluster::new();
    let nowhere = Ownership::serving(SiteId::new(4000), 9).encode();
    cluster.ownership = nowhere;
    assert_eq!(cluster.repaired_after(10_000, TWO_LEASES), Cause::Ownership(NODE));
    cluster.budget = Budget { current: 9, ..cluster.budget };
    assert_eq!(cluster.repaired_after(20_000, TWO_LEASES), Cause::Unsettled);
    cluster.budget = Budget { floor: 16_383, ..cluster.budget };
    let cause = Cause::Floor { found: 16_383, expected: FLOOR };
    assert_eq!(cluster.repaired_after(30_000, TWO_LEASES), cause);
    cluster.lock = Lock::decode(5).held_by(EdgeId::new(4000), 77).encode();
    assert_eq!(cluster.repaired_after(40_000, TWO_LEASES), Cause::Abandoned);
    // All of it at once.
    cluster.lock = Lock::decode(9).held_by(EdgeId::new(0), 1).encode();
    cluster.ownership = u64::MAX;
    cluster.budget = Budget { floor: 0, current: 16_383, generation: 0 };
    assert_eq!(cluster.repaired_after(50_000, TWO_LEASES), Cause::Abandoned);
}

/// The memory of a node that had just come was lost, and it serves its old site again.
#[test]
fn a_site_gives_no_node_while_its_budget_counts_one_that_is_elsewhere() {
    let mut cluster = Cluster::new();
    let own = Ownership::decode(cluster.ownership, 1).unwrap();
    let away = plan(NODE, own, SiteId::new(0));
    assert_eq!(cluster.look(10_000), None);
    assert!(cluster.mover.may_leave(&away));
    cluster.budget = Budget { current: 2, ..cluster.budget };
    assert_eq!(cluster.look(10_001), None, "it is not repaired yet");
    assert!(!cluster.mover.may_leave(&away));
    assert!(cluster.mover.may_leave(&plan(NODE, Ownership { site: None, ..own }, SITE)), "it leaves no site");
    assert!(cluster.look(10_001 + TWO_LEASES).is_some());
    assert_eq!(cluster.look(10_002 + TWO_LEASES), None);
    assert!(cluster.mover.may_leave(&away));
}

/// Two edges whose cluster files have other floors would put each other's right without end.
#[test]
fn a_floor_in_dispute_is_put_right_ever_more_seldom() {
    let mut cluster = Cluster::new();
    let mut dispute = |began: u64, wait: u64| {
        cluster.budget = Budget { floor: 0, ..cluster.budget };
        cluster.repaired_after(began, wait);
    };
    let mut began = 0;
    for doubled in [0, 1, 2, 3, 4, 5, 6, 6, 6] {
        dispute(began, TWO_LEASES << doubled);
        began += (TWO_LEASES << doubled) + 10;
    }
    let peace = TWO_LEASES << 7;
    dispute(began + peace, TWO_LEASES);
}

/// Persons who find a site at its floor, by a budget that is too low, try again every few milliseconds.
#[test]
fn a_budget_that_keeps_others_from_a_site_is_put_right_while_they_try() {
    let mut cluster = Cluster::new();
    cluster.budget = Budget { current: 0, ..cluster.budget };
    let mut repaired = None;
    for at in 0..TWO_LEASES {
        let sequence = 2 * at + 2;
        cluster.lock = match at % 8 {
            0..7 => Lock::decode(sequence).held_by(EdgeId::new(4000), 77).encode(),
            _ => sequence,
        };
        assert_eq!(repaired, None, "after {at}");
        repaired = cluster.look(10_000 + at);
    }
    cluster.lock = 2 * TWO_LEASES + 2;
    let report = cluster.look(10_000 + TWO_LEASES + 8).expect("a repair");
    assert_eq!(report.task, Task::Repair(SITE, Cause::Unsettled));
    assert_eq!(cluster.budget.current, 1);
}
