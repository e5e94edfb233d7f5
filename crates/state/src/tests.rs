use std::collections::BTreeMap;

use proptest::prelude::*;
use sidelong_layout::{
    Ack, Budget, EdgeId, FrontWord, Hot, Lock, NodeId, NodeState, Ownership, Rejected, SiteId, valid,
};

use super::*;

const SECOND: u64 = 1_000_000_000;
const SITES: usize = 2;

fn timing() -> Timing {
    Timing::new(6 * SECOND, SECOND, 3 * SECOND, SECOND).unwrap()
}

fn site(index: usize) -> SiteId {
    SiteId::new(index)
}

fn node(index: usize) -> NodeId {
    NodeId::new(index)
}

fn pool() -> Pool {
    Pool::new([1, 0], [0, 0, 1].map(|home| Some(site(home))))
}

fn holder(index: usize) -> Holder {
    Holder::new(EdgeId::new(index), 7)
}

fn plan(index: usize) -> Plan {
    Plan::new(node(index), Ownership::serving(site(0), 0), site(1))
}

fn a_move(memo: Memo) -> Move {
    Move::new(plan(0), holder(0), pool(), timing(), memo)
}

/// Two sites; nodes 0 and 1 serve site 0 with floor 1, node 2 serves site 1. Nodes acknowledge at once.
struct Cluster {
    words: BTreeMap<Word, u64>,
    now: Time,
    acknowledges: bool,
    unreachable: Option<Word>,
    /// Completions to lose: at which operation, and whether the operation takes effect.
    losses: Vec<(usize, bool)>,
    steps: Vec<&'static str>,
}

impl Cluster {
    fn new() -> Self {
        let budget = |floor, current| Budget { floor, current, generation: 0 }.encode();
        let serving = |index| Ownership::serving(site(index), 0).encode();
        let words = BTreeMap::from([
            (Word::Budget(site(0)), budget(1, 2)),
            (Word::Budget(site(1)), budget(0, 1)),
            (Word::Ownership(node(0)), serving(0)),
            (Word::Ownership(node(1)), serving(0)),
            (Word::Ownership(node(2)), serving(1)),
        ]);
        Cluster { words, now: Time(0), acknowledges: true, unreachable: None, losses: vec![], steps: vec![] }
    }

    fn value(&self, word: Word) -> u64 {
        self.words.get(&word).copied().unwrap_or(0)
    }

    fn lock(&self) -> Lock {
        Lock::decode(self.value(Word::Lock(site(1))))
    }

    fn node(&self, index: usize) -> Ownership {
        Ownership::decode(self.value(Word::Ownership(node(index))), SITES).unwrap()
    }

    fn budgets(&self) -> [u16; 2] {
        [0, 1].map(|index| Budget::decode(self.value(Word::Budget(site(index)))).current)
    }

    fn execute(&mut self, op: Op) -> Reply {
        let loss = self.losses.iter().find(|(at, _)| *at == self.steps.len() - 1).copied();
        if self.unreachable == Some(op.word()) || loss.is_some_and(|(_, effect)| !effect) {
            return Reply::Lost;
        }
        let before = self.value(op.word());
        self.words.insert(op.word(), op.applied_to(before));
        if let (Word::Ownership(node), true) = (op.word(), self.acknowledges)
            && let Some(Ownership { generation, .. }) = Ownership::decode(self.value(op.word()), SITES)
        {
            self.words.insert(Word::Ack(node), Ack { generation }.encode());
        }
        if loss.is_some() { Reply::Lost } else { Reply::Value(before) }
    }

    fn run(&mut self, machine: &mut Move) -> Outcome {
        self.run_from(machine, None)
    }

    /// Continues with a machine that awaits `reply`.
    fn run_from(&mut self, machine: &mut Move, mut reply: Option<Reply>) -> Outcome {
        loop {
            match machine.step(self.now, reply.take()) {
                Step::Do(op) => {
                    self.steps.push(machine.step_name());
                    reply = Some(self.execute(op));
                }
                Step::WaitUntil(time) => self.now = time,
                Step::Done(outcome) => return outcome,
            }
        }
    }

    /// Executes operations up to the first of `step`, and withholds its reply from the machine.
    fn run_to(&mut self, machine: &mut Move, step: &str) -> Option<Reply> {
        let mut reply = None;
        while self.steps.last() != Some(&step) {
            let Step::Do(op) = machine.step(self.now, reply) else { panic!("it waits or ends") };
            self.steps.push(machine.step_name());
            reply = Some(self.execute(op));
        }
        reply
    }
}

#[test]
fn a_move_is_twelve_operations() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::Moved);
    let steps = [
        "read-lock",
        "take-lock",
        "read-node",
        "read-donor-budget",
        "reserve",
        "drain",
        "read-epoch",
        "await-ack",
        "read-receiver-budget",
        "land",
        "raise-budget",
        "free-lock",
    ];
    assert_eq!(cluster.steps, steps);
    assert!(cluster.node(0).serves(site(1)));
    assert_eq!((cluster.budgets(), cluster.lock().owner), ([1, 2], None));
    let mut next = Move::new(plan(1), holder(0), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut next), Outcome::Recent);
    assert_eq!(
        cluster.run(&mut Move::new(plan(1), holder(0), pool(), timing(), next.memo())),
        Outcome::AtFloor
    );
    assert_eq!(cluster.lock().owner, None);
}

#[test]
fn a_free_node_is_taken_without_a_donor() {
    let mut cluster = Cluster::new();
    let free = Ownership { state: NodeState::Free, site: None, next: None, generation: 4 };
    cluster.words.insert(Word::Ownership(node(0)), free.encode());
    let plan = Plan { expected: free, ..plan(0) };
    assert_eq!(
        cluster.run(&mut Move::new(plan, holder(0), pool(), timing(), Memo::default())),
        Outcome::Moved
    );
    assert!(cluster.node(0).serves(site(1)) && !cluster.steps.contains(&"reserve"));
}

/// Takes node 0 out of service, and returns how it ended.
fn hold(cluster: &mut Cluster, index: usize, force: bool) -> Outcome {
    let expected = cluster.node(index);
    let plan = Plan { expected, goal: Goal::Hold, force, ..plan(index) };
    cluster.run(&mut Move::new(plan, holder(0), pool(), timing(), memo(cluster, 0)))
}

/// Of one who has seen the last change of the site's lock.
fn memo(cluster: &Cluster, index: usize) -> Memo {
    let lock = Lock::decode(cluster.value(Word::Lock(site(index))));
    Memo { counter: UpdateCounter::new(lock.sequence), ..Memo::default() }
}

#[test]
fn a_node_is_held_and_resumed() {
    let mut cluster = Cluster::new();
    assert_eq!(hold(&mut cluster, 0, false), Outcome::Moved);
    let steps = ["reserve", "drain", "read-epoch", "await-ack", "settle", "free-lock"];
    assert_eq!(cluster.steps[4..], steps, "under the donor's lock");
    let held = cluster.node(0);
    assert_eq!((held.state, held.site, cluster.budgets()), (NodeState::Held, Some(site(0)), [1, 1]));
    assert_eq!(hold(&mut cluster, 1, false), Outcome::AtFloor);
    assert_eq!(hold(&mut cluster, 1, true), Outcome::Moved, "but by force");
    assert_eq!(cluster.budgets(), [0, 1]);
    // A repair leaves both where they are, and counts none.
    let mut repair = Move::repair(site(0), holder(1), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut repair), Outcome::Recovered { left_out: 0 });
    assert_eq!((cluster.node(0).state, cluster.budgets()), (NodeState::Held, [0, 1]));
    let resume = Plan::new(node(0), cluster.node(0), site(0));
    let mut machine = Move::new(resume, holder(0), pool(), timing(), memo(&cluster, 0));
    assert_eq!(cluster.run(&mut machine), Outcome::Moved);
    assert_eq!((cluster.node(0).serving_site(), cluster.budgets()), (Some(site(0)), [1, 1]));
}

#[test]
fn a_pinned_node_stays_pinned_where_it_is_repaired_and_where_it_does_not_drain() {
    let mut cluster = Cluster::new();
    let pin = Plan { goal: Goal::Pin(site(0)), ..plan(0) };
    let mut machine = Move::new(pin, holder(0), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut machine), Outcome::Moved);
    assert_eq!((cluster.node(0).state, cluster.budgets()), (NodeState::Pinned, [2, 1]));
    let mut repair = Move::repair(site(0), holder(1), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut repair), Outcome::Recovered { left_out: 0 });
    cluster.acknowledges = false;
    assert_eq!(hold(&mut cluster, 0, false), Outcome::NotDrained(Undrained::Node));
    assert_eq!((cluster.node(0).state, cluster.budgets()), (NodeState::Pinned, [2, 1]));
}

#[test]
fn a_dead_persons_drain_is_finished_or_taken_back() {
    for acknowledges in [true, false] {
        let mut cluster = Cluster { acknowledges, ..Cluster::new() };
        let plan = Plan { goal: Goal::Hold, ..plan(0) };
        let mut dead = Move::new(plan, holder(0), pool(), timing(), Memo::default());
        cluster.run_to(&mut dead, "await-ack");
        let mut repair = Move::repair(site(0), holder(1), pool(), timing(), Memo::default());
        assert_eq!(cluster.run(&mut repair), Outcome::Busy);
        cluster.now = Time(cluster.now.0 + timing().steal_ns());
        let mut repair = Move::repair(site(0), holder(1), pool(), timing(), repair.memo());
        assert_eq!(cluster.run(&mut repair), Outcome::Recovered { left_out: 0 });
        let expected = if acknowledges { (NodeState::Held, [1, 1]) } else { (NodeState::Serving, [2, 1]) };
        assert_eq!((cluster.node(0).state, cluster.budgets()), expected);
    }
}

#[test]
fn a_plan_is_void_once_its_node_has_changed() {
    let mut cluster = Cluster::new();
    // It left its site and came back: the same site, another generation.
    let changed = plan(0).expected.now_serving(site(0));
    cluster.words.insert(Word::Ownership(node(0)), changed.encode());
    assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::NodeChanged);
    assert_eq!((cluster.node(0), cluster.budgets(), cluster.lock().owner), (changed, [2, 1], None));
    let fresh = Plan { expected: changed, ..plan(0) };
    let mut next = Move::new(fresh, holder(0), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut next), Outcome::Recent);
    let mut next = Move::new(fresh, holder(0), pool(), timing(), next.memo());
    assert_eq!(cluster.run(&mut next), Outcome::Moved);
}

#[test]
fn a_node_that_does_not_drain_stays() {
    let mut cluster = Cluster { acknowledges: false, ..Cluster::new() };
    assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::NotDrained(Undrained::Node));
    assert_eq!((cluster.node(0).serving_site(), cluster.budgets()), (Some(site(0)), [2, 1]));
    assert_eq!(cluster.now, Time(3 * SECOND), "waits as long as it may");
    assert!(cluster.steps.contains(&"renew-lock"), "and keeps its lock meanwhile");
}

#[test]
fn a_move_that_is_given_up_says_who_kept_the_node() {
    let front = EdgeId::new(1);
    let gave_up = |said: Option<FrontWord>, unreachable| {
        let mut cluster = Cluster { unreachable, ..Cluster::new() };
        cluster.words.insert(Word::Front(EdgeId::new(0), node(0)), FrontWord::GONE);
        cluster.words.insert(Word::Front(front, node(0)), said.map_or(0, FrontWord::encode));
        let pool = pool().with_fronts([0, 1].map(EdgeId::new)).with_silent([true; 3]);
        cluster.run(&mut Move::new(plan(0), holder(0), pool, timing(), Memo::default()))
    };
    let says = |requests| Some(FrontWord { seen: Some(1), requests });
    assert_eq!(gave_up(says(0), None), Outcome::Moved);
    assert_eq!(gave_up(says(3), None), Outcome::NotDrained(Undrained::Requests(front, 3)));
    assert_eq!(gave_up(None, None), Outcome::NotDrained(Undrained::Unseen(front)));
    let lost = Some(Word::Front(front, node(0)));
    assert_eq!(gave_up(says(0), lost), Outcome::NotDrained(Undrained::Unread(front)));
}

#[test]
fn a_mover_waits_longer_for_requests_that_are_cut() {
    let gave_up = |cuts: [bool; 2]| {
        let mut cluster = Cluster { acknowledges: false, ..Cluster::new() };
        let pool = pool().with_cuts(cuts);
        let mut machine = Move::new(plan(0), holder(0), pool, timing(), Memo::default());
        assert_eq!(cluster.run(&mut machine), Outcome::NotDrained(Undrained::Node));
        cluster.now
    };
    let waits = gave_up([false, true]);
    assert_eq!(gave_up([true, false]), waits.after_ns(CUT_NS_MAX), "those of the donor are");
}

#[test]
fn a_dead_holders_move_is_settled_by_whoever_steals_its_lock() {
    let mut cluster = Cluster::new();
    let mut dead = a_move(Memo::default());
    let unheard = cluster.run_to(&mut dead, "await-ack");
    let mut thief = Move::new(plan(1), holder(1), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut thief), Outcome::Busy);
    let since = thief.memo().sighting.unwrap().since;
    cluster.now = Time(since.0 + timing().steal_ns() - 1);
    let mut early = Move::repair(site(1), holder(1), pool(), timing(), thief.memo());
    assert_eq!(cluster.run(&mut early), Outcome::Busy);
    cluster.now = Time(since.0 + timing().steal_ns());
    let mut late = Move::repair(site(1), holder(1), pool(), timing(), early.memo());
    assert_eq!(cluster.run(&mut late), Outcome::Recovered { left_out: 0 });
    assert!(cluster.node(0).serves(site(1)), "it had acknowledged, so it goes on");
    assert_eq!((cluster.budgets(), cluster.lock().owner), ([1, 2], None));
    assert_eq!(cluster.run_from(&mut dead, unheard), Outcome::LeaseLost);
}

#[test]
fn a_repair_that_loses_its_lock_does_not_wait_anew() {
    let mut cluster = Cluster { acknowledges: false, ..Cluster::new() };
    cluster.run_to(&mut a_move(Memo::default()), "await-ack");
    // Whoever holds the lock is too busy to keep it, and repairs the site after each theft.
    let repair = |cluster: &mut Cluster, memo| {
        let mut early = Move::repair(site(1), holder(1), pool(), timing(), memo);
        assert_eq!(cluster.run(&mut early), Outcome::Busy);
        cluster.now = cluster.now.after_ns(timing().steal_ns());
        Move::repair(site(1), holder(1), pool(), timing(), early.memo())
    };
    let mut starved = repair(&mut cluster, Memo::default());
    cluster.steps.clear();
    let unheard = cluster.run_to(&mut starved, "recover-await-ack");
    let theft = cluster.lock().held_by(EdgeId::new(2), 1);
    cluster.words.insert(Word::Lock(site(1)), theft.encode());
    cluster.now = cluster.now.after_ns(6 * SECOND);
    assert_eq!(cluster.run_from(&mut starved, unheard), Outcome::LeaseLost);
    let mut next = repair(&mut cluster, starved.memo());
    let began = cluster.now;
    assert_eq!(cluster.run(&mut next), Outcome::Recovered { left_out: 0 });
    assert!(cluster.node(0).serves(site(0)), "it goes back");
    assert_eq!((cluster.now, next.memo().awaited), (began, None));
}

#[test]
fn what_an_earlier_machine_of_the_same_life_left_is_taken_at_once() {
    let mut cluster = Cluster::new();
    let own = Lock::decode(0).held_by(EdgeId::new(0), 7);
    cluster.words.insert(Word::Lock(site(1)), own.encode());
    assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::Recovered { left_out: 0 });
    let former_life = Lock::decode(0).held_by(EdgeId::new(0), 6);
    cluster.words.insert(Word::Lock(site(1)), former_life.encode());
    assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::Busy);
}

#[test]
fn a_repair_puts_right_what_no_mover_writes() {
    let mut cluster = Cluster::new();
    let nowhere = Ownership::serving(site(4000), 7).encode();
    cluster.words.insert(Word::Ownership(node(0)), nowhere);
    cluster.words.insert(Word::Ownership(node(2)), u64::MAX);
    for (index, floor) in [(0, 16_383), (1, 9)] {
        let budget = Budget { floor, current: 16_383, generation: 5 };
        cluster.words.insert(Word::Budget(site(index)), budget.encode());
    }
    let mut repair = Move::repair(site(1), holder(0), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut repair), Outcome::Recovered { left_out: 0 });
    assert_eq!(cluster.node(0), Ownership::serving(site(0), 8), "at home");
    assert_eq!(cluster.node(2), Ownership::serving(site(1), 0));
    let budgets = [0, 1].map(|index| Budget::decode(cluster.value(Word::Budget(site(index)))));
    assert_eq!(budgets.map(|budget| (budget.floor, budget.current)), [(1, 2), (0, 1)]);
}

#[test]
fn a_budget_that_no_mover_writes_gives_no_node() {
    for budget in
        [Budget { floor: 0, current: 2, generation: 0 }, Budget { floor: 1, current: 4, generation: 0 }]
    {
        let mut cluster = Cluster::new();
        cluster.words.insert(Word::Budget(site(0)), budget.encode());
        assert_eq!(cluster.run(&mut a_move(Memo::default())), Outcome::Contended, "{budget:?}");
        assert!(cluster.node(0).serves(site(0)));
        assert_eq!((cluster.budgets(), cluster.lock().owner), ([2, 1], None), "it is rebuilt");
    }
}

#[test]
fn a_node_out_of_reach_stops_no_repair() {
    let mut cluster = Cluster { unreachable: Some(Word::Ownership(node(1))), ..Cluster::new() };
    let mut repair = Move::repair(site(1), holder(0), pool(), timing(), Memo::default());
    assert_eq!(cluster.run(&mut repair), Outcome::Recovered { left_out: 1 });
    assert_eq!((cluster.budgets(), cluster.lock().owner), ([1, 1], None));
}

/// Whichever single completion is lost, and whether or not its operation took effect, budgets end exact, the lock free
/// and the node at one of the two sites.
#[test]
fn any_one_completion_may_be_lost() {
    for lost in 0..11 {
        for effect in [false, true] {
            let mut cluster = Cluster { losses: vec![(lost, effect)], ..Cluster::new() };
            let outcome = cluster.run(&mut a_move(Memo::default()));
            assert!(
                matches!(outcome, Outcome::Moved | Outcome::Uncertain { left_out: 0 }),
                "{lost}: {outcome:?}"
            );
            let moved = u16::from(cluster.node(0).serves(site(1)));
            assert!(moved == 1 || cluster.node(0).serves(site(0)), "{lost}");
            assert_eq!((cluster.budgets(), cluster.lock().owner), ([2 - moved, 1 + moved], None), "{lost}");
        }
    }
}

#[test]
#[should_panic(expected = "each operation has one reply")]
fn a_driver_that_forgets_a_reply_is_told() {
    let mut machine = a_move(Memo::default());
    machine.step(Time(0), None);
    machine.step(Time(0), None);
}

#[test]
fn one_life_sees_a_lock_unchanged_until_it_changes() {
    let mut memo = Memo::default();
    let lock = Lock::decode(0).held_by(EdgeId::new(3), 1);
    assert_eq!(memo.see(Time(5), lock.encode()), Some(Time(5)));
    assert_eq!(memo.see(Time(9), lock.encode()), Some(Time(5)));
    let renewed = lock.held_by(EdgeId::new(3), 1);
    assert_eq!(memo.see(Time(11), renewed.encode()), Some(Time(11)));
    assert_eq!(memo.see(Time(12), renewed.freed().encode()), None);
}

#[test]
fn waits_are_checked() {
    assert_eq!(Timing::new(10, 0, 1, 1), Err(TimingError::Zero));
    let error = Timing::new(10, 6, 1, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a lease of 10 ns leaves no time to renew with a margin of 6 ns: at most half of it"
    );
    assert_eq!(Timing::new(u64::MAX, 1, 1, 1).unwrap().steal_ns(), u64::MAX);
}

#[test]
fn an_overload_is_answered_by_one_edge() {
    let mut counter = UpdateCounter::new(0);
    assert!(counter.may_reconfigure(0));
    assert!(!counter.may_reconfigure(1), "another edge acted");
    assert!(counter.may_reconfigure(1), "and this one has taken note");
    counter.note(2);
    assert!(counter.may_reconfigure(2), "its own change is no news");
}

#[test]
fn a_node_acknowledges_draining_when_its_requests_are_done() {
    let mut agent = NodeAgent::new();
    let serving = Ownership::serving(site(0), 4);
    assert_eq!(agent.observe(serving.encode(), 9), Some(Ack { generation: 4 }));
    assert_eq!(agent.observe(serving.encode(), 9), None, "said once");
    let draining = serving.draining_to(Some(site(1))).unwrap();
    assert_eq!(agent.observe(draining.encode(), 1), None);
    assert_eq!(agent.observe(draining.encode(), 0), Some(Ack { generation: 5 }));
    assert_eq!(agent.observe(u64::MAX, 0), None, "a word of another version");
}

/// The published protocol without faults: the other edge's counter holds it back once.
#[test]
fn the_papers_protocol_moves_a_node() {
    let mut cluster = Cluster::new();
    let mut run = |edge: usize, counter| {
        let mut machine = PaperMove::new(plan(edge), EdgeId::new(edge), 2, counter);
        let mut reply = None;
        loop {
            match machine.step(reply.take()) {
                Step::Do(op) => {
                    cluster.steps.push(machine.step_name());
                    reply = Some(cluster.execute(op));
                }
                Step::WaitUntil(_) => unreachable!("the paper's edges wait for nothing"),
                Step::Done(outcome) => return (outcome, machine.counter()),
            }
        }
    };
    assert_eq!(run(0, UpdateCounter::default()).0, Outcome::Moved);
    let (outcome, counter) = run(1, UpdateCounter::default());
    assert_eq!(outcome, Outcome::Recent);
    assert_eq!(run(1, counter).0, Outcome::Moved);
    assert!(cluster.node(0).serves(site(1)) && cluster.node(1).serves(site(1)));
}

fn published(publisher: &mut Publisher, served: u64) -> [u64; Hot::WORDS] {
    let mut words = [0; Hot::WORDS];
    let hot = Hot { served, valid: valid::ALL, ..Hot::default() };
    publisher.publish(hot).for_each(|(index, value)| words[index] = value);
    words
}

#[test]
fn a_reader_never_goes_back() {
    let (mut first_life, mut second_life) = (Publisher::new(1), Publisher::new(2));
    let old = published(&mut first_life, 10);
    let new = published(&mut first_life, 11);
    let reborn = published(&mut second_life, 0);
    let mut newest = Newest::new();
    let mut judge = |words| newest.judge::<_, Hot>(&words);
    assert!(matches!(judge(new), Verdict::Use(hot) if hot.served == 11));
    assert_eq!(judge(old), Verdict::GiveUp(Unusable::Older { found: 2, newest: 4 }));
    assert!(matches!(judge(new), Verdict::Use(_)), "the same again is as good as before");
    assert!(matches!(judge(reborn), Verdict::Use(hot) if hot.served == 0));
    assert_eq!(judge(new), Verdict::GiveUp(Unusable::Foreign { found: 1, newest: 2 }));
}

#[test]
fn a_reader_tries_a_bounded_number_of_times() {
    let mut torn = published(&mut Publisher::new(1), 10);
    torn[7] ^= 1;
    let mut newest = Newest::new();
    for _ in 0..2 {
        for _ in 1..COPIES_MAX {
            assert_eq!(newest.judge::<_, Hot>(&torn), Verdict::Again);
        }
        assert_eq!(newest.judge::<_, Hot>(&torn), Verdict::GiveUp(Unusable::Rejected(Rejected::Torn)));
    }
    assert_eq!(newest.judge::<_, Hot>(&[0; 8]), Verdict::GiveUp(Unusable::Rejected(Rejected::Never)));
}

proptest! {
    /// A reader that copies at any point of a publication gets the old record, the new one, or none.
    #[test]
    fn a_publication_is_all_or_nothing(old: u64, new: u64, stores in 0usize..=9) {
        let mut publisher = Publisher::new(3);
        let before = published(&mut publisher, old);
        let mut after = before;
        let hot = Hot { served: new, valid: valid::ALL, ..Hot::default() };
        publisher.publish(hot).take(stores).for_each(|(index, value)| after[index] = value);
        match Hot::validated(&after) {
            Ok(hot) => prop_assert!((stores == 0 && hot.served == old) || (stores == 9 && hot.served == new)),
            Err(rejected) => prop_assert_eq!(rejected, Rejected::Writing),
        }
    }

    /// No reply makes a machine panic or post for ever. (`true`: the reply that the operation expects.)
    #[test]
    fn a_move_ends_whatever_it_is_told(
        replies in prop::collection::vec(any::<Option<(bool, u64)>>(), 400),
        pace in 0u64..SECOND,
    ) {
        let mut machine = a_move(Memo::default());
        let (mut now, mut reply) = (Time(0), None);
        let mut replies = replies.into_iter().cycle();
        for _ in 0..20_000 {
            now = now.after_ns(pace);
            match machine.step(now, reply.take()) {
                Step::Do(op) => {
                    reply = Some(match (replies.next().flatten(), op) {
                        (None, _) => Reply::Lost,
                        (Some((true, _)), Op::CompareAndSwap { expected, .. }) => Reply::Value(expected),
                        (Some((true, value)), _) => Reply::Value(((value % 2) << 60) | (1 << 48) | (value % 8)),
                        (Some((false, value)), _) => Reply::Value(value),
                    });
                }
                Step::WaitUntil(time) => now = now.max(time),
                Step::Done(_) => return Ok(()),
            }
        }
        prop_assert!(false, "no end");
    }
}
