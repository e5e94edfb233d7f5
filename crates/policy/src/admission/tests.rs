use proptest::prelude::*;
use sidelong_layout::{ByServer, Hot, Ownership, SiteId, valid};

use super::*;
use crate::index::Capacity;

const MS: u64 = 1_000_000;

/// A node of two workers that take 5 ms each, with `queued` requests waiting, after `served` answers.
fn node(site: usize, queued: u32, at_ms: u64, served: u64) -> NodeView {
    let load = Hot {
        generation: 1,
        valid: valid::ORIGIN,
        time_ns: at_ms * MS,
        workers: 2,
        busy: 2,
        queued,
        served,
        by_server: ByServer::service_us(5_000),
        ..Hot::default()
    };
    NodeView {
        ownership: Some(Ownership::serving(SiteId::new(site), 1)),
        load: Some(load),
        up: true,
        dead: false,
        capacity: Capacity::default(),
        in_flight: 0,
    }
}

fn site(priority: u8) -> SiteView {
    SiteView { floor: 1, ceiling: 9, priority, waiting: 0, busy: false }
}

fn promise(target: Target) -> Promise {
    Promise { target: Some(target), share: 0.0 }
}

fn queue_ms(ms: u64) -> Promise {
    promise(Target::Queue(Duration::from_millis(ms)))
}

/// A controller, its sites, and the scans that it was shown.
#[derive(Clone)]
struct Bench {
    controller: Controller,
    sites: Vec<SiteView>,
    traffic: Vec<Traffic>,
    answers: Vec<Answers>,
    others: Vec<Option<f64>>,
    now_ms: u64,
}

impl Bench {
    fn new(promises: &[Promise], nodes: usize) -> Self {
        Bench::by(AdmissionSettings::default(), promises, nodes)
    }

    fn by(settings: AdmissionSettings, promises: &[Promise], nodes: usize) -> Self {
        Bench {
            controller: Controller::new(settings, promises.to_vec(), nodes).unwrap(),
            sites: vec![site(0); promises.len()],
            traffic: vec![Traffic::default(); nodes],
            answers: vec![Answers::default(); promises.len()],
            others: vec![None; promises.len()],
            now_ms: 0,
        }
    }

    fn look(&mut self, nodes: &[NodeView]) -> Vec<Outlook> {
        self.now_ms += 1;
        let Bench { controller, sites, traffic, answers, others, now_ms } = self;
        let snapshot = AdmissionSnapshot { nodes, sites, traffic, answers, others, wall_ns: 0 };
        controller.step(&snapshot, Time::from_ns(*now_ms * MS)).to_vec()
    }

    /// Scans the same nodes `count` times while they answer at their rate, and returns the last outlooks.
    fn looks(&mut self, count: u64, node_of: impl Fn(u64) -> Vec<NodeView>) -> Vec<Outlook> {
        let mut last = Vec::new();
        for _ in 0..count {
            last = self.look(&node_of(self.now_ms));
        }
        last
    }
}

/// The part of 10,000 clients that is admitted.
fn let_in(verdict: Verdict, treatment: Treatment) -> f64 {
    let client = |k: u32| Client::new(std::net::SocketAddr::from((k.to_be_bytes(), 80)));
    let rotation = AdmissionSettings::default().rotation;
    let inside =
        (0..10_000).filter(|k| decide(verdict, treatment, client(*k), u64::from(*k), rotation).is_ok());
    inside.count() as f64 / 10_000.0
}

#[test]
fn a_short_queue_lets_everybody_in_and_a_long_one_few() {
    // A queue of 1 is 2.5 ms.
    let mut bench = Bench::new(&[queue_ms(40)], 2);
    let mut look = |queued| bench.looks(1, |ms| vec![node(0, queued, ms, 0); 2])[0];
    let short = look(4);
    assert!(short.verdict.is_open() && short.verdict.why() == Why::Within, "{short:?}");
    assert_eq!((short.delay, short.met), (Some(Duration::from_millis(10)), Some(true)));
    let long = look(16);
    assert!(long.verdict.admitted() < 0.01 && long.verdict.why() == Why::OverTarget, "{long:?}");
    assert!((let_in(long.verdict, Treatment::Whole) - long.verdict.admitted()).abs() < 0.01);
    assert_eq!(look(17).met, Some(false));
    let after = look(0);
    assert_eq!((after.verdict.admitted(), after.verdict.why()), (1.0, Why::Recovering), "{after:?}");
    assert_eq!(let_in(after.verdict, Treatment::Whole), 1.0);
    assert!(let_in(after.verdict, Treatment::Trimmed { kept: 6_554 }) < 0.12);
    (0..4_100).for_each(|_| _ = look(0));
    assert_eq!(look(0).verdict, Verdict::open(Why::Within));
}

#[test]
fn where_a_node_is_idle_all_are_let_in() {
    let mut bench = Bench::new(&[queue_ms(40)], 3);
    let looked = bench.looks(50, |ms| vec![node(0, 500, ms, 0), node(0, 500, ms, 0), node(0, 0, ms, 0)]);
    assert!(looked[0].verdict.is_open(), "{looked:?}");
}

#[test]
fn sites_without_a_target_let_everybody_in() {
    let mut bench = Bench::new(&[Promise::default()], 1);
    let looked = bench.looks(50, |ms| vec![node(0, 9_999, ms, 0)]);
    assert_eq!(looked[0], Outlook { verdict: Verdict::open(Why::NoTarget), ..Outlook::default() });
}

#[test]
fn of_what_is_not_known_nothing_is_decided() {
    let mut bench = Bench::new(&[queue_ms(10)], 2);
    let full = |ms| vec![node(0, 900, ms, 0), node(0, 900, ms, 0)];
    assert!(bench.looks(5, full)[0].verdict.admitted() < 0.01);
    let old = |ms| full(ms).into_iter().map(|view| NodeView { load: None, ..view }).collect();
    assert_eq!(bench.looks(1, old)[0].verdict, Verdict::open(Why::Blind));
    assert!(bench.looks(5, full)[0].verdict.admitted() < 0.01);
    let down = |ms| full(ms).into_iter().map(|view| NodeView { up: false, ..view }).collect();
    assert_eq!(bench.looks(1, down)[0].verdict, Verdict::open(Why::Blind));
    // One node that reports is enough.
    let one = |ms| vec![node(0, 900, ms, 0), NodeView { load: None, ..node(0, 0, ms, 0) }];
    assert!(bench.looks(5, one)[0].verdict.admitted() < 0.01);
    // A record without a server's line does not report the queue.
    let bare = |ms| {
        let view = node(0, 900, ms, 0);
        vec![NodeView { load: view.load.map(|hot| Hot { valid: valid::CPU, ..hot }), ..view }; 2]
    };
    assert_eq!(bench.looks(1, bare)[0].verdict, Verdict::open(Why::Blind));
}

#[test]
fn a_node_is_believed_by_what_it_is_seen_to_do() {
    // It claims 400 a second and does 100, so ten waiting requests are 100 ms, not 25.
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    let looked = bench.looks(1_000, |ms| vec![node(0, 10, ms, ms / 10)]);
    let delay = looked[0].delay.unwrap().as_secs_f64();
    assert!((delay - 0.1).abs() < 0.015, "{delay}");
    // A node whose answers all fail is not fast.
    let looked = bench.looks(1_000, |ms| vec![node(0, 10, ms, 100)]);
    assert!(looked[0].delay.unwrap() > Duration::from_millis(400), "{looked:?}");
    // A new life is judged anew.
    let fresh = |ms| {
        let view = node(0, 10, ms, 0);
        vec![NodeView { load: view.load.map(|hot| Hot { generation: 2, ..hot }), ..view }]
    };
    assert_eq!(bench.looks(1, fresh)[0].delay, Some(Duration::from_millis(25)));
}

#[test]
fn what_the_edges_have_sent_counts_before_the_record_knows() {
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    bench.traffic[0].in_flight = 42;
    assert_eq!(bench.look(&[node(0, 0, 0, 0)])[0].delay, Some(Duration::from_millis(100)));
}

/// A node of two workers without a usable record.
fn unheard(up: bool) -> NodeView {
    NodeView { load: None, up, capacity: Capacity { workers: 2, ..Capacity::default() }, ..node(0, 0, 0, 0) }
}

#[test]
fn a_node_without_a_record_is_guarded_by_what_goes_there() {
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    let mut look = |in_flight, answers| {
        bench.traffic[0] = Traffic { in_flight, answers, up: true };
        bench.look(&[unheard(false)])[0]
    };
    // With as many requests as workers, the node's speed does not show.
    assert_eq!(look(2, 100).verdict, Verdict::open(Why::Blind));
    // 400 answers a second: ten waiting requests are 25 ms.
    let mut last = Outlook::default();
    for k in 0..1_000 {
        last = look(12, 100 + k * 2 / 5);
    }
    let delay = last.delay.unwrap().as_secs_f64();
    assert!((delay - 0.025).abs() < 0.003 && last.verdict.why() == Why::OverTarget, "{last:?}");
    // Fewer requests than workers.
    (0..100).for_each(|_| last = look(1, 500));
    assert_eq!((last.delay, last.verdict.admitted()), (Some(Duration::ZERO), 1.0));
    // A node that no longer answers has a long queue, however fast it was.
    (0..3_000).for_each(|_| last = look(12, 500));
    assert!(last.delay.unwrap() > Duration::from_secs(1) && last.verdict.admitted() < 0.01, "{last:?}");
    // Its connections fail, so nothing is known of the site.
    bench.traffic[0].up = false;
    assert_eq!(bench.look(&[unheard(false)])[0].verdict, Verdict::open(Why::Blind));
}

#[test]
fn a_node_whose_record_goes_is_judged_by_what_was_seen_of_it_meanwhile() {
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    let mut look = |view, answers| {
        bench.traffic[0] = Traffic { in_flight: 12, answers, up: true };
        bench.look(&[view])[0].delay.unwrap().as_secs_f64()
    };
    // It claims 400 a second and does 100.
    let (mut with, mut without) = (0.0, 0.0);
    (0..1_000).for_each(|ms| with = look(node(0, 10, ms, ms / 10), ms / 10));
    (0..3).for_each(|_| without = look(unheard(false), 100));
    assert!((with - 0.1).abs() < 0.015 && (without - 0.1).abs() < 0.015, "{with}, {without}");
    // A record without the server's part does not count.
    let bare = NodeView { load: Some(Hot { valid: valid::CPU, ..Hot::default() }), ..unheard(true) };
    assert!(look(bare, 100) > 0.08);
    // While a machine is suspended its records are old and nothing is answered. Afterwards it counts as no slower.
    (0..300).for_each(|_| without = look(unheard(false), 100));
    assert!(without > 0.15, "{without}");
    assert!(look(node(0, 10, 1_300, 100), 100) < 0.115);
}

#[test]
fn edges_draw_together_and_none_follows_another_against_what_it_sees() {
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    // 22.5 ms, near the integral's rest; too briefly to show that a shorter budget suffices.
    let nine = |ms| vec![node(0, 9, ms, ms * 2 / 5)];
    let pressed = |outlooks: Vec<Outlook>| outlooks[0].verdict.pressure().unwrap();
    let alone = pressed(bench.looks(150, nine));
    bench.others = vec![Some(alone + 1.0)];
    let together = pressed(bench.looks(150, nine));
    assert!((together - alone - 1.0).abs() < 0.4, "{alone} to {together}");
    // Whatever the others report: without a queue all are admitted, and with a queue over its budget few.
    bench.others = vec![Some(6.9)];
    assert_eq!(pressed(bench.looks(500, |ms| vec![node(0, 0, ms, 0)])), 0.0);
    bench.others = vec![Some(0.0)];
    assert!(pressed(bench.looks(500, |ms| vec![node(0, 18, ms, ms * 2 / 5)])) > 3.0);
}

#[test]
fn who_knows_nothing_of_a_site_presses_nobody() {
    assert_eq!(Verdict::open(Why::Blind).pressure(), None);
    assert_eq!(Verdict::default().pressure(), None);
    assert_eq!(Verdict::open(Why::Within).pressure(), Some(0.0));
    assert_eq!(Verdict::part(0.0, 0, Why::AllOverloaded, 1).pressure(), Some(6.9));
}

#[test]
fn late_answers_shorten_the_budget_of_a_p99_target_within_bounds() {
    let target = Duration::from_millis(80);
    let mut bench = Bench::new(&[promise(Target::ResponseP99(target))], 1);
    let quiet = |ms| vec![node(0, 0, ms, 0)];
    let begun = bench.looks(1, quiet)[0];
    assert_eq!((begun.budget, begun.met), (Some(target / 2), None));
    for _ in 0..1_000 {
        bench.answers[0].late += 1;
        bench.looks(1, quiet);
    }
    let late = bench.looks(1, quiet)[0];
    assert_eq!((late.budget, late.met), (Some(target / 16), Some(false)));
    // Answers in time lengthen it only while the budget kept them in time.
    for _ in 0..1_000 {
        bench.answers[0].in_time += 100;
        bench.looks(1, quiet);
    }
    assert_eq!(bench.looks(1, quiet)[0].budget, late.budget);
    for _ in 0..1_000 {
        bench.answers[0].in_time += 100;
        bench.looks(1, |ms| vec![node(0, 30, ms, ms * 2 / 5)]);
    }
    // What was learned shows after the overload, during which less suffices.
    let long = bench.looks(5_000, quiet)[0];
    assert!(long.budget.unwrap() > target * 3 / 4 && long.budget.unwrap() < target, "{long:?}");
    assert_eq!(long.met, Some(true));
}

#[test]
fn the_lowest_that_has_more_than_its_share_makes_room() {
    let look = |shares: [f64; 3], nodes_each: u64| {
        let promises = shares.map(|share| Promise { share, ..queue_ms(40) });
        let mut bench = Bench::new(&promises, 3 * nodes_each as usize);
        bench.sites = vec![site(9), site(1), site(0)];
        // A queue of 4 is 10 ms: a quarter of the budget, which is the whole budget of a site that makes room.
        let of = |site: usize| move |_| if site == 0 { 100 } else { 4 };
        let nodes = move |ms: u64| {
            let sites = (0..3).flat_map(move |site| (0..nodes_each).map(move |k| (site, of(site)(k))));
            sites.map(|(site, queued)| node(site, queued, ms, 0)).collect::<Vec<_>>()
        };
        bench.looks(5, nodes).iter().map(|outlook| outlook.verdict.why()).collect::<Vec<_>>()
    };
    use Why::{OverTarget, Within, Yields};
    assert_eq!(look([0.0, 0.0, 0.0], 2), [OverTarget, Within, Yields]);
    assert_eq!(look([0.0, 0.0, 0.5], 2), [OverTarget, Yields, Within], "within its share");
    assert_eq!(look([0.0, 0.5, 0.5], 2), [OverTarget, Within, Within]);
    assert_eq!(look([0.0, 0.0, 0.0], 1), [OverTarget, Within, Within], "at their floors");
}

#[test]
fn by_the_papers_rule_all_nodes_must_be_overloaded() {
    let settings = AdmissionSettings {
        rule: AdmissionRule::Paper,
        weights: Weights::CONNECTIONS,
        ..AdmissionSettings::default()
    };
    let mut bench = Bench::by(settings, &[Promise::default()], 2);
    let all = bench.looks(1, |ms| vec![node(0, 1, ms, 0), node(0, 1, ms, 0)])[0];
    assert_eq!((all.verdict.admitted(), all.verdict.why()), (0.0, Why::AllOverloaded));
    assert_eq!(let_in(all.verdict, Treatment::Whole), 0.0);
    let one = bench.looks(1, |ms| vec![node(0, 1, ms, 0), node(0, 0, ms, 0)])[0];
    assert_eq!(one.verdict, Verdict::open(Why::Within));
    let none = bench.looks(1, |ms| vec![NodeView { load: None, ..node(0, 1, ms, 0) }; 2])[0];
    assert_eq!(none.verdict, Verdict::open(Why::Blind));
}

#[test]
fn who_floods_is_trimmed_and_others_stay_whole() {
    let mut census = Census::default();
    let mut treatments = vec![Treatment::Whole; BUCKETS];
    let flood =
        |asked: u32| move |bucket| if bucket == 7 { 100 * asked } else { u32::from(bucket < 100) * asked };
    for round in 1..10 {
        census.count(
            Time::from_ns(10_000_000_000 * u64::from(round)),
            flood(10 * round),
            |bucket, treatment| treatments[bucket] = treatment,
        );
    }
    let Treatment::Trimmed { kept } = treatments[7] else { panic!("{:?}", treatments[7]) };
    // To four times another client's requests, from a hundred times.
    assert!((f64::from(kept) / 65_536.0 - 0.04).abs() < 0.005, "{kept}");
    assert!(treatments.iter().enumerate().all(|(k, of)| k == 7 || *of == Treatment::Whole));
    let half = Verdict::part(0.5, 0, Why::OverTarget, 1);
    let inside = let_in(half, treatments[7]);
    assert!((inside - 0.02).abs() < 0.01, "{inside}");
    let refused = (0..100).find_map(|salt| {
        decide(half, treatments[7], Client::default(), salt, AdmissionSettings::default().rotation).err()
    });
    assert!(refused.unwrap().greedy);
}

/// A hundred clients request half of what a node can serve, at random. One client has 64 connections and retries at
/// once, whatever the answer. The others lose only what it takes to notice that the flood is back.
#[test]
fn who_floods_takes_little_from_the_others() {
    const FLOOD: u64 = 0;
    const CONNECTIONS: usize = 64;
    let mut bench = Bench::new(&[queue_ms(40)], 1);
    let (mut census, mut asked) = (Census::default(), vec![0u32; BUCKETS]);
    let mut treatments = vec![Treatment::Whole; BUCKETS];
    let rotation = AdmissionSettings::default().rotation;
    let client =
        |k: u64| Client { address: crate::balance::mix(k), connection: crate::balance::mix(k + 1_000) };
    let mut waiting = std::collections::VecDeque::<u64>::new();
    let (mut served, mut flooding, mut refused, mut heeding) = (0, 0, 0, 0);
    for ms in 0..60_000u64 {
        // Two workers of 5 ms: two answers in each fifth millisecond.
        if ms.is_multiple_of(5) {
            let answered = waiting.drain(..waiting.len().min(2)).collect::<Vec<_>>();
            served += answered.len() as u64;
            flooding -= answered.iter().filter(|k| **k == FLOOD).count();
        }
        let verdict = bench.look(&[node(0, waiting.len().saturating_sub(2) as u32, ms, served)])[0].verdict;
        let now = Time::from_ns(ms * 1_000_000);
        census.count(now, |bucket| asked[bucket], |bucket, treatment| treatments[bucket] = treatment);
        let lots = crate::balance::mix(ms);
        let one = lots.is_multiple_of(5).then_some(1 + (lots >> 8) % 100);
        let flood = std::iter::repeat_n(FLOOD, CONNECTIONS - flooding);
        for (salt, k) in one.into_iter().chain(flood).enumerate() {
            let client = client(k);
            asked[client.bucket()] += 1;
            let decided =
                decide(verdict, treatments[client.bucket()], client, ms << 8 | salt as u64, rotation);
            let counts = k != FLOOD && ms > 1_000;
            heeding += u32::from(counts);
            match decided {
                Ok(()) => {
                    waiting.push_back(k);
                    flooding += usize::from(k == FLOOD);
                }
                Err(_) => refused += u32::from(counts),
            }
        }
    }
    assert!(heeding > 10_000 && refused * 100 < heeding, "{refused} of {heeding}");
    // The flood gets as much of the rest as does no harm.
    assert!(served > 16_000, "{served}");
}

#[test]
fn clients_behind_one_address_are_told_apart_by_connection() {
    let mut census = Census::default();
    let mut treatments = vec![Treatment::Whole; BUCKETS];
    census.count(
        Time::from_ns(1_000_000_000),
        |bucket| u32::from(bucket == 3) * 1_000,
        |bucket, of| treatments[bucket] = of,
    );
    assert_eq!((treatments[3], treatments[4]), (Treatment::ByConnection, Treatment::Whole));
    let half = Verdict::part(0.5, 0, Why::OverTarget, 1);
    let decided = |port, treatment| {
        let client = Client::new(std::net::SocketAddr::from(([10, 0, 0, 1], port)));
        decide(half, treatment, client, u64::from(port), AdmissionSettings::default().rotation).is_ok()
    };
    let inside = |of| (0..1_000).filter(|port| decided(*port, of)).count();
    assert!(inside(Treatment::ByConnection).abs_diff(500) < 80);
    assert!([0, 1_000].contains(&inside(Treatment::Whole)));
}

#[test]
fn a_turn_comes_and_is_foretold() {
    let rotation = Duration::from_secs(30);
    let client = Client::new(std::net::SocketAddr::from(([10, 0, 0, 1], 80)));
    let at = |ms: u64| {
        let verdict = Verdict::part(0.1, verdict::turn(ms * MS, rotation), Why::OverTarget, 1);
        decide(verdict, Treatment::Whole, client, 0, rotation)
    };
    let inside: Vec<_> = (0..30_000).filter(|ms| at(*ms).is_ok()).collect();
    assert!(inside.len().abs_diff(3_000) <= 2, "{}", inside.len());
    let turn_ms = inside.iter().find(|ms| at((*ms + 29_999) % 30_000).is_err()).unwrap();
    assert_eq!(at(turn_ms + 30_000 - 3_500).unwrap_err().retry_after_s, 3);
    assert_eq!(at(turn_ms + 30_000 - 20_000).unwrap_err().retry_after_s, 5, "the load may be gone by then");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let new = |settings, promises: &[Promise]| Controller::new(settings, promises.to_vec(), 1).map(|_| ());
    let (settings, half) = (AdmissionSettings::default(), Promise { share: 0.5, ..Promise::default() });
    assert_eq!(new(settings, &[half, half]), Ok(()));
    assert_eq!(
        new(settings, &[half, half, half]).unwrap_err().to_string(),
        "the sum of shares must not exceed 1"
    );
    assert!(new(settings, &[queue_ms(0)]).is_err());
    assert!(new(settings, &[Promise { share: f64::NAN, ..half }]).is_err());
    assert!(new(AdmissionSettings { lag: Duration::ZERO, ..settings }, &[]).is_err());
    assert!(new(AdmissionSettings { rotation: Duration::ZERO, ..settings }, &[]).is_err());
    assert!(new(AdmissionSettings { threshold: -1.0, ..settings }, &[]).is_err());
}

proptest! {
    #[test]
    fn verdicts_and_treatments_fit_in_words(part in 0.0..=1.1f64, turn in 0..1u32 << 30, kept: u16, word: u64) {
        let verdict = Verdict::part(part, turn, Why::OverTarget, 1);
        prop_assert_eq!(Verdict::decode(verdict.encode()), verdict);
        for treatment in [Treatment::Whole, Treatment::ByConnection, Treatment::Trimmed { kept }] {
            prop_assert_eq!(Treatment::decode(treatment.encode()), treatment);
        }
        // Any word decodes to some verdict.
        let any = Verdict::decode(word);
        prop_assert!((0.0..=1.0).contains(&any.admitted()));
    }

    /// A client that is admitted by a verdict is admitted by a wider one, so clients do not flicker as the part grows.
    #[test]
    fn a_wider_verdict_lets_in_no_fewer(parts in [0.0..=1.0f64, 0.0..=1.0f64], turn in 0..1u32 << 30, hash: u64) {
        let [narrow, wide] = [parts[0].min(parts[1]), parts[0].max(parts[1])]
            .map(|part| Verdict::part(part, turn, Why::OverTarget, 1));
        prop_assert_eq!(narrow.wider(wide).admitted(), wide.admitted());
        let client = Client { address: hash, connection: hash };
        let inside = |verdict| decide(verdict, Treatment::Whole, client, 0, Duration::from_secs(1)).is_ok();
        prop_assert!(inside(wide) || !inside(narrow));
        prop_assert_eq!(inside(Verdict::part(0.0, turn, Why::OverTarget, 1)), false);
    }

    /// Whatever records say, each part is between 0 and 1, each figure is a number, and the same scans give the same
    /// verdicts.
    #[test]
    fn any_looks_make_sense(
        looks in proptest::collection::vec(
            (proptest::collection::vec((0..4u32, 0..=u32::MAX, 0..=u64::MAX, 0..=u32::MAX), 4), 0..10_000u64, 0..99u64),
            1..40,
        ),
    ) {
        let promises = [queue_ms(5), promise(Target::ResponseP99(Duration::from_millis(9))), Promise::default()];
        let mut once = Bench::new(&promises, 4);
        let mut again = Bench::new(&promises, 4);
        for (nodes, late, after_ms) in looks {
            let view = |(k, (kind, queued, served, service_us)): (usize, &(u32, u32, u64, u32))| {
                let view = node(k % 4, *queued, *served % 1_000_000_007, *served);
                let hot = view.load.map(|hot| Hot { by_server: ByServer::service_us(*service_us), generation: *kind, ..hot });
                NodeView { load: hot.filter(|_| *kind > 0), in_flight: *queued, ..view }
            };
            let views: Vec<_> = nodes.iter().enumerate().map(view).collect();
            let goes = |(kind, queued, served, service_us): &(u32, u32, u64, u32)| {
                Traffic { in_flight: queued ^ service_us, answers: *served, up: *kind < 3 }
            };
            let traffic: Vec<_> = nodes.iter().map(goes).collect();
            for bench in [&mut once, &mut again] {
                bench.traffic.clone_from(&traffic);
                bench.now_ms += after_ms;
                bench.answers[1].late += late;
            }
            let outlooks = once.look(&views);
            prop_assert_eq!(&outlooks, &again.look(&views));
            for outlook in outlooks {
                prop_assert!((0.0..=1.0).contains(&outlook.verdict.admitted()));
                let is_all = !matches!(outlook.verdict.why(), Why::OverTarget | Why::Yields);
                prop_assert_eq!(outlook.verdict.admitted() == 1.0, is_all);
            }
        }
    }

    /// A longer queue never admits more.
    #[test]
    fn a_longer_queue_lets_in_no_more(before in proptest::collection::vec(0..100u32, 0..30), queued in 0..100u32, more in 0..100u32) {
        let mut shorter = Bench::new(&[queue_ms(40)], 1);
        before.iter().for_each(|queued| { shorter.look(&[node(0, *queued, 0, 0)]); });
        let mut longer = shorter.clone();
        let (short, long) = (shorter.look(&[node(0, queued, 0, 0)])[0], longer.look(&[node(0, queued + more, 0, 0)])[0]);
        // An empty queue halves what was learned.
        prop_assert!(long.verdict.admitted() <= short.verdict.admitted());
    }
    /// Without a record, a longer queue never admits more either.
    #[test]
    fn more_in_flight_lets_in_no_more(
        before in proptest::collection::vec((0..100u32, 0..9u64), 0..60), in_flight in 0..100u32, more in 0..100u32,
    ) {
        let mut fewer = Bench::new(&[queue_ms(40)], 1);
        let see = |bench: &mut Bench, in_flight, answered| {
            let answers = bench.traffic[0].answers + answered;
            bench.traffic[0] = Traffic { in_flight, answers, up: true };
            bench.look(&[unheard(false)])[0]
        };
        before.iter().for_each(|(in_flight, answered)| { see(&mut fewer, *in_flight, *answered); });
        let mut greater = fewer.clone();
        // Whether a queue ran dry tells its service rate, so here none does.
        let (in_flight, more) = (in_flight + 3, in_flight + 3 + more);
        let (few, many) = (see(&mut fewer, in_flight, 0), see(&mut greater, more, 0));
        prop_assert!(many.verdict.admitted() <= few.verdict.admitted());
    }

    /// Requests in the record are not counted twice, however they are spread over the edges.
    #[test]
    fn no_request_is_counted_twice(queued in 0..100u32, edges in proptest::collection::vec(0..40u32, 1..5)) {
        let sum: u32 = edges.iter().sum();
        let mut bench = Bench::new(&[queue_ms(40)], 1);
        bench.traffic[0].in_flight = sum;
        let both = bench.look(&[node(0, queued, 0, 0)])[0].delay;
        // A queue of 1 is 2.5 ms; two of the requests are in service.
        let waiting = queued.max(sum.saturating_sub(2));
        prop_assert_eq!(both, Some(Duration::from_micros(2_500) * waiting));
    }
}
