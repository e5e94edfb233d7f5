//! What movers and nodes make of words that others write: a machine ends whatever it reads at any moment, and changes no word to
//! one that no mover of its cluster writes.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sidelong_layout::{Budget, Change, EdgeId, Lock, NodeId, SiteId};
use sidelong_state::{
    Goal, Holder, Memo, Move, NodeAgent, Op, Plan, Pool, Reply, Step, Time, Timing, UpdateCounter, Word,
};

const NODES: usize = 4;
const SITES: usize = 2;
const FRONTS: usize = 2;
/// Far more than a repair of these words takes once nobody else writes.
const OPS_MAX: usize = 20_000;

#[derive(Arbitrary, Debug)]
struct Input {
    job: Job,
    counter: u64,
    cuts: [bool; SITES],
    silent: [bool; NODES],
    changes: bool,
    /// What others do before each operation; nothing any more after these.
    others: Vec<Others>,
}

#[derive(Arbitrary, Debug)]
enum Job {
    Repair { site: bool },
    Move { node: u8, expected: u64, site: bool, goal: u8, force: bool },
}

#[derive(Arbitrary, Debug)]
enum Others {
    Nothing,
    /// Time passes, in us.
    Wait(u32),
    /// The word holds this now.
    Write(u64),
    /// The completion is lost, and the operation takes effect or not.
    Lose {
        applied: bool,
    },
}

fuzz_target!(|input: Input| {
    let homes = [Some(0), Some(0), Some(1), None].map(|home: Option<usize>| home.map(SiteId::new));
    let pool = Pool::new([1; SITES], homes)
        .with_fronts((0..FRONTS).map(EdgeId::new))
        .with_silent(input.silent)
        .with_cuts(input.cuts)
        .with_changes(input.changes.then_some(50_000_000));
    let timing = Timing::new(100_000_000, 10_000_000, 50_000_000, 1_000_000).expect("it is valid");
    let holder = Holder::new(EdgeId::new(0), 1);
    let memo = Memo { counter: UpdateCounter::new(input.counter), ..Memo::default() };
    let site = |is_second: bool| SiteId::new(is_second.into());
    let mut machine = match input.job {
        Job::Repair { site: at } => Move::repair(site(at), holder, pool.clone(), timing, memo),
        Job::Move { node, expected, site: to, goal, force } => {
            let Some(expected) = pool.ownership(expected) else { return };
            let node = NodeId::new(usize::from(node) % NODES);
            let goal = match goal % 3 {
                0 => Goal::Serve(site(to)),
                1 => Goal::Pin(site(to)),
                _ => Goal::Hold,
            };
            let plan = Plan { node, expected, goal, force };
            // What the policy and people never ask for.
            if (goal.site().is_none() && plan.from().is_none()) || plan.is_met() {
                return;
            }
            Move::new(plan, holder, pool.clone(), timing, memo)
        }
    };
    let mut agents: [NodeAgent; NODES] = std::array::from_fn(|_| NodeAgent::new());
    let mut memory = BTreeMap::<Word, u64>::new();
    let (mut now, mut reply, mut others) = (Time::default(), None, input.others.into_iter());
    for _ in 0..OPS_MAX {
        match machine.step(now, reply.take()) {
            Step::Done(_) => return,
            Step::WaitUntil(time) => now = time.max(now),
            Step::Do(op) => {
                let word = op.word();
                let held = memory.entry(word).or_default();
                reply = Some(Reply::Value(*held));
                match others.next() {
                    None | Some(Others::Nothing) => {}
                    Some(Others::Wait(us)) => now = now.after_ns(1_000 * u64::from(us)),
                    Some(Others::Write(value)) => {
                        *held = value;
                        reply = Some(Reply::Value(value));
                        if let Word::Ownership(node) = word {
                            let _ = agents[node.index()].observe(value, 0);
                        }
                        let _ = (Change::decode(value), Memo::default().see(now, value));
                    }
                    Some(Others::Lose { applied }) => {
                        reply = Some(Reply::Lost);
                        if !applied {
                            continue;
                        }
                    }
                }
                let new = op.applied_to(*held);
                if new != *held {
                    judge(op, new, &pool);
                }
                *held = new;
                now = now.after_ns(10_000);
            }
        }
    }
    panic!("it does not end: {}", machine.step_name());
});

/// Whether a mover of this cluster may write it.
fn judge(op: Op, new: u64, pool: &Pool) {
    match op.word() {
        Word::Lock(site) => {
            assert!(
                site.index() < SITES && Lock::decode(new).owner.is_none_or(|owner| owner == EdgeId::new(0))
            );
        }
        Word::Budget(site) => {
            assert!(site.index() < SITES && pool.allows(site, Budget::decode(new)), "{op:?}");
        }
        Word::Ownership(node) => assert!(node.index() < NODES && pool.ownership(new).is_some(), "{op:?}"),
        Word::Ack(_) | Word::Front(..) | Word::Counter(..) | Word::Epoch => {
            panic!("it is not a mover's: {op:?}")
        }
    }
}
