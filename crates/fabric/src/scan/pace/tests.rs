use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const WAIT: Duration = Duration::from_millis(10);

fn schedule(nodes: usize, pace: Pace) -> Schedule {
    let mut schedule = Schedule::new(nodes, 0, pace);
    (0..nodes).for_each(|node| schedule.linked(node));
    schedule
}

/// Runs a scan in which `answer` tells whether a node is busy or idle, or does not answer. Returns the nodes asked, by
/// part.
fn scan(
    schedule: &mut Schedule,
    now_ns: u64,
    mut answer: impl FnMut(usize) -> Option<bool>,
) -> Vec<Vec<usize>> {
    let mut asked = Vec::new();
    schedule.begin(Time(now_ns), WAIT, false);
    while let Some(part) = schedule.next() {
        let nodes: Vec<_> = schedule.items(part.range.clone()).iter().map(|node| *node as usize).collect();
        let mut all = true;
        for node in &nodes {
            match answer(*node) {
                Some(work) => schedule.saw(*node, work),
                None => {
                    all = false;
                    schedule.missed(*node);
                }
            }
        }
        if !all {
            schedule.waited(&part);
        }
        asked.push(nodes);
    }
    asked
}

#[test]
fn a_small_cluster_is_read_whole_with_one_wait() {
    let mut schedule = schedule(8, Pace::default());
    for look in 0..100 {
        let asked = scan(&mut schedule, look * MS, |_| Some(false));
        assert_eq!(asked, [Vec::from_iter(0..8)]);
    }
    schedule.unlinked(3);
    assert_eq!(scan(&mut schedule, 100 * MS, |_| Some(false)), [vec![0, 1, 2, 4, 5, 6, 7]]);
    assert_eq!(schedule.counts(), ScanCounts { scans: 101, reads: 807, ..ScanCounts::default() });
}

#[test]
fn no_more_are_under_way_than_there_are_credits() {
    let mut schedule = schedule(10_000, Pace { credits: 256, ..Pace::WHOLE });
    let asked = scan(&mut schedule, 0, |_| Some(true));
    assert_eq!(asked.len(), 40);
    assert!(asked.iter().all(|part| part.len() <= 256));
    assert_eq!(asked.concat(), Vec::from_iter(0..10_000));
}

#[test]
fn who_has_work_is_read_at_each_look_and_the_idle_in_turn() {
    let mut schedule =
        schedule(1000, Pace { credits: 100, idle_every: 8, unread_max: Duration::from_secs(1) });
    let is_hot = |node: usize| node.is_multiple_of(10);
    for look in 0..20 {
        scan(&mut schedule, look * MS, |node| Some(is_hot(node)));
    }
    let mut reads = BTreeMap::new();
    let mut most = 0;
    for look in 20..100 {
        let asked = scan(&mut schedule, look * MS, |node| Some(is_hot(node))).concat();
        assert!(asked[..100].iter().all(|node| is_hot(*node)), "they come first");
        most = most.max(asked.len());
        asked.into_iter().for_each(|node| *reads.entry(node).or_insert(0) += 1);
    }
    for node in 0..1000 {
        assert_eq!(reads[&node], if is_hot(node) { 80 } else { 10 }, "{node}");
    }
    assert!(most <= 100 + 900 / 8 + 20, "the idle do not come all at once: {most}");

    // A node that becomes busy is read at every scan from the next on.
    let woken = 7;
    let mut looks = 0;
    while !scan(&mut schedule, (100 + looks) * MS, |node| Some(node == woken)).concat().contains(&woken) {
        looks += 1;
        assert!(looks < 8, "idle for longer than it may be");
    }
    for look in 0..4 {
        let asked = scan(&mut schedule, (120 + look) * MS, |node| Some(node == woken)).concat();
        assert!(asked.contains(&woken));
    }
}

#[test]
fn nobody_is_unread_for_long() {
    let pace = Pace { credits: 10, idle_every: 1000, unread_max: Duration::from_millis(50) };
    let mut schedule = schedule(100, pace);
    let mut last = vec![0; 100];
    for look in 0..1000 {
        let now_ns = look * 7 * MS;
        for node in scan(&mut schedule, now_ns, |_| Some(false)).concat() {
            last[node] = now_ns;
        }
        assert!(last.iter().all(|read_ns| now_ns - read_ns < 50 * MS), "at look {look}");
    }
    assert!(schedule.counts().skipped > 80_000, "{:?}", schedule.counts());
}

#[test]
fn a_silent_node_costs_one_wait_and_then_a_sixteenth_of_the_time() {
    let mut schedule = schedule(8, Pace::default());
    let dead = |node| (node != 5).then_some(true);
    assert_eq!(scan(&mut schedule, 0, dead).len(), 1, "with the others, when nobody knows");
    let mut alone = Vec::new();
    for look in 1..=1600 {
        let asked = scan(&mut schedule, look * MS, dead);
        assert_eq!(asked[0], [0, 1, 2, 3, 4, 6, 7]);
        if asked.len() > 1 {
            assert_eq!(asked[1..], [[5]]);
            alone.push(look);
        }
    }
    assert_eq!(alone[..6], [20, 60, 140, 300, 460, 620], "in ms: ever more seldom, to a bound");
    assert_eq!(alone.len(), 12);
    // It answers, and is read with the others again.
    let mut look = 1601;
    while scan(&mut schedule, look * MS, |_| Some(true)).len() == 1 {
        look += 1;
        assert!(look < 1800);
    }
    assert_eq!(scan(&mut schedule, (look + 1) * MS, |_| Some(true)), [Vec::from_iter(0..8)]);
}

#[test]
fn many_that_fall_silent_at_once_keep_nobody_waiting_for_long() {
    let mut schedule = schedule(10_000, Pace::WHOLE);
    let is_dead = |node: usize| node % 50 == 1;
    let (mut known, mut looks, mut seen) = (0, 0, vec![0u64; 10_000]);
    while known < 200 {
        looks += 1;
        let (mut waited, mut prompt) = (Duration::ZERO, Vec::new());
        schedule.begin(Time(looks * 20 * MS), WAIT, false);
        while let Some(part) = schedule.next() {
            let nodes = schedule.items(part.range.clone()).to_vec();
            let is_lane = nodes.iter().all(|node| is_dead(*node as usize));
            for node in nodes.iter().map(|node| *node as usize) {
                if is_dead(node) {
                    schedule.missed(node);
                    known += usize::from(!is_lane);
                } else {
                    schedule.saw(node, true);
                    seen[node] = looks;
                    prompt.push(node);
                }
            }
            if nodes.iter().any(|node| is_dead(*node as usize)) {
                schedule.waited(&part);
                waited += part.wait;
            }
        }
        assert!(waited <= WAIT * 2, "for those who were prompt, and for the silent: {waited:?}");
        assert!(prompt.len() >= 256);
    }
    assert_eq!(looks, 5, "eight batches of forty a look");
    for node in (0..10_000).filter(|node| !is_dead(*node)) {
        assert!(seen[node] > 0, "{node} was kept waiting");
    }
    assert!(schedule.counts().left > 0, "{:?}", schedule.counts());
    // From then on every node is read at each scan.
    let asked = scan(&mut schedule, 10_000 * MS, |node| (!is_dead(node)).then_some(true)).concat();
    assert!(asked.iter().filter(|node| !is_dead(**node)).count() == 9_800, "{}", asked.len());
}

proptest! {
    /// Whatever nodes do: no node is read twice in a scan, no part exceeds the credits, the waits are bounded, and a
    /// node that answers is read again within a bounded number of scans.
    #[test]
    fn a_schedule_keeps_its_bounds(
        nodes in 1usize..40,
        credits in 1usize..12,
        idle_every in 1u32..10,
        answers in prop::collection::vec(prop::collection::vec(0u8..8, 40), 1..60),
    ) {
        let mut schedule = schedule(nodes, Pace { credits, idle_every, unread_max: Duration::from_secs(100) });
        let mut unread = vec![0u32; nodes];
        for (look, answers) in answers.iter().enumerate() {
            schedule.begin(Time(look as u64 * MS), WAIT, false);
            let (mut seen, mut waited) = (vec![false; nodes], Duration::ZERO);
            let left = schedule.counts().left;
            while let Some(part) = schedule.next() {
                prop_assert!(part.range.len() <= credits);
                let all = schedule.items(part.range.clone()).to_vec();
                let mut silent = false;
                for node in all.into_iter().map(|node| node as usize) {
                    prop_assert!(!std::mem::replace(&mut seen[node], true));
                    match answers[node] {
                        0 => { schedule.missed(node); silent = true; }
                        answer => schedule.saw(node, answer == 1),
                    }
                }
                if silent {
                    schedule.waited(&part);
                    waited += part.wait;
                }
            }
            prop_assert!(waited <= WAIT * 2);
            let was_left = schedule.counts().left > left;
            for node in 0..nodes {
                let is_prompt = schedule.turns[node].state == State::Prompt;
                unread[node] = if seen[node] || was_left || !is_prompt { 0 } else { unread[node] + 1 };
                prop_assert!(unread[node] <= idle_every, "{} after {} looks", node, unread[node]);
            }
        }
    }
}
