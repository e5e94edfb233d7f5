use std::net::SocketAddr;

use sidelong_policy::admission::{AdmissionRule, AdmissionSettings, AdmissionSnapshot, CIRCLE, Controller};
use sidelong_policy::cluster::{NodeView, SiteView, Traffic};

use super::*;

const SITE: SiteId = SiteId::new(0);
const OTHER: SiteId = SiteId::new(1);
const THREADS: usize = 2;
const ANY: Request<'static> = Request { method: "GET", target: "/" };

fn client(k: u16) -> Client {
    Client::new(SocketAddr::from(([10, 0, (k >> 8) as u8, k as u8], 5000)))
}

/// A controller's outlooks for sites that each have one node with that many waiting requests, or an unknown one.
fn shown(gate: &Gate, queued: [Option<u32>; 2]) {
    use sidelong_layout::{ByServer, Hot, Ownership, valid};
    use sidelong_policy::index::Capacity;
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
    let settings = AdmissionSettings { rule: AdmissionRule::Target, ..AdmissionSettings::default() };
    let mut controller = Controller::new(settings, vec![promise; 2], 2).unwrap();
    let node = |(site, queued): (usize, &Option<u32>)| NodeView {
        ownership: Some(Ownership::serving(SiteId::new(site), 1)),
        load: queued.map(|queued| Hot {
            valid: valid::ORIGIN,
            workers: 2,
            busy: 2,
            queued,
            by_server: ByServer::service_us(5_000),
            ..Hot::default()
        }),
        up: true,
        dead: false,
        capacity: Capacity::default(),
        in_flight: 0,
    };
    let nodes: Vec<_> = queued.iter().enumerate().map(node).collect();
    let sites = [SiteView { floor: 1, ceiling: 9, priority: 0, waiting: 0, busy: false }; 2];
    let (nodes, sites, traffic) = (&nodes, &sites, &[Traffic::default(); 2]);
    let (answers, others) = (&[Answers::default(); 2], &[None; 2]);
    let snapshot = AdmissionSnapshot { nodes, sites, traffic, answers, others, wall_ns: 0 };
    gate.show(controller.step(&snapshot, Time::from_ns(1)));
}

fn promise() -> Promise {
    Promise { target: Some(Target::ResponseP99(Duration::from_millis(40))), ..Promise::default() }
}

fn gate() -> Gate {
    Gate::new(&[promise(), Promise::default()], Duration::from_secs(30), Duration::from_millis(150), THREADS)
}

fn sum<'a>(counts: impl Iterator<Item = (&'static str, u64)> + 'a) -> u64 {
    counts.map(|(_, count)| count).sum()
}

#[test]
fn it_is_open_until_something_is_shown_and_where_the_view_is_old() {
    let gate = gate();
    let now = Time::from_ns(1);
    assert!(
        (0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, false).is_ok())
    );
    shown(&gate, [Some(99), Some(99)]);
    let inside = (0..100)
        .filter(|k| gate.decide(usize::from(*k) % THREADS, SITE, client(*k), ANY, now, false).is_ok())
        .count();
    assert!(inside < 10, "{inside}");
    assert!((0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, true).is_ok()));
    let admitted: Vec<_> = gate.admitted(SITE).filter(|(_, count)| *count > 0).collect();
    assert!(admitted.contains(&("no-target", 100)) && admitted.contains(&("old-view", 100)), "{admitted:?}");
    assert_eq!(sum(gate.admitted(SITE)) + sum(gate.rejected(SITE)), 300);
    shown(&gate, [None, Some(99)]);
    assert!(
        (0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, false).is_ok())
    );
    assert!(gate.admitted(SITE).any(|counted| counted == ("no-records", 100)));
}

#[test]
fn a_connection_is_closed_only_where_no_site_would_have_it() {
    let gate = gate();
    let now = Time::from_ns(1);
    shown(&gate, [Some(99), Some(0)]);
    assert!((0..100).all(|k| gate.takes_in(usize::from(k) % THREADS, client(k), now)));
    shown(&gate, [Some(99), Some(99)]);
    for k in 0..500 {
        let wanted = [SITE, OTHER].map(|site| gate.decide(0, site, client(k), ANY, now, false).is_ok());
        assert_eq!(gate.takes_in(usize::from(k) % THREADS, client(k), now), wanted.contains(&true));
    }
    assert!(gate.closed() > 400, "{}", gate.closed());
}

/// A gate whose sites admit one client in 80. The first has what it rejects last.
fn gate_with_last() -> Gate {
    let (requests, visit) = (vec!["POST /".parse().unwrap()], Some(Duration::from_secs(60)));
    let gate = gate();
    gate.adopt(
        &[promise(), Promise::default()].into_iter().collect(),
        &[RejectedLast { requests, visit }].into_iter().collect(),
    );
    overload(&gate);
    gate
}

fn overload(gate: &Gate) {
    let verdict = Verdict::decode(u64::from(CIRCLE / 80) << 33 | Why::OverTarget as u64);
    gate.show(&[Outlook { verdict, ..Outlook::default() }; 2]);
}

const BID: Request<'static> = Request { method: "POST", target: "/items/3/bids" };

/// The clients whose request is admitted at a time, in s.
fn admitted(gate: &Gate, site: SiteId, request: Request<'_>, at_s: u64) -> Vec<u16> {
    let now = Time::from_ns(at_s * 1_000_000_000);
    (0..500).filter(|k| gate.decide(0, site, client(*k), request, now, false).is_ok()).collect()
}

#[test]
fn what_is_worth_more_is_admitted_of_more_clients_and_begins_no_visit() {
    let gate = gate_with_last();
    let few = admitted(&gate, SITE, ANY, 1);
    assert!((1..20).contains(&few.len()), "{few:?}");
    assert_eq!(admitted(&gate, SITE, ANY, 2), few, "who is not admitted is on no visit");
    let bidders = admitted(&gate, SITE, BID, 3);
    assert!((350..450).contains(&bidders.len()), "{}", bidders.len());
    assert!(few.iter().all(|client| bidders.contains(client)));
    assert_eq!(admitted(&gate, SITE, ANY, 4), few, "a bid does not let its client in for the rest");
    for request in [ANY, BID] {
        assert_eq!(admitted(&gate, OTHER, request, 5), few, "the other site tells none apart");
    }
}

#[test]
fn clients_on_a_visit_are_those_of_more_and_whatever_they_send_goes_on_with_it() {
    let gate = gate_with_last();
    let few = admitted(&gate, SITE, ANY, 1);
    gate.show(&[Outlook::default(); 2]);
    assert_eq!(admitted(&gate, SITE, ANY, 10).len(), 500, "there is no overload");
    overload(&gate);
    let visitors = admitted(&gate, SITE, ANY, 60);
    assert!((350..450).contains(&visitors.len()), "{}", visitors.len());
    for (request, at_s) in [(BID, 110), (ANY, 160), (BID, 210)] {
        let kept = admitted(&gate, SITE, request, at_s);
        // Two clients may have one place.
        let lost = visitors.iter().filter(|client| !kept.contains(client)).count();
        assert!(lost < 10, "{lost} have lost their visit by {at_s} s");
    }
    assert_eq!(admitted(&gate, SITE, ANY, 300), few, "the visits are over");
}

#[test]
fn a_client_that_sends_too_much_gains_nothing_by_sending_what_is_worth_more() {
    let gate = gate_with_last();
    let greedy = client(7);
    let trimmed = Treatment::Trimmed { kept: 6_554 };
    gate.treatments[greedy.bucket()].store(trimmed.encode(), Ordering::Relaxed);
    let is_admitted = |ns: &u64| gate.decide(0, SITE, greedy, BID, Time::from_ns(*ns), false).is_ok();
    let admitted = (0..10_000).filter(is_admitted).count();
    assert!(admitted < 50, "a tenth of one in 80: {admitted}");
}

#[test]
fn no_connection_is_closed_on_which_a_request_could_be_admitted() {
    let now = Time::from_ns(1);
    let accepted = |gate: &Gate| (0..500).filter(|k| gate.takes_in(0, client(*k), now)).count();
    assert!((350..450).contains(&accepted(&gate_with_last())));
}

fn gatekeeper() -> Gatekeeper {
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
    Gatekeeper::new(Gate::new(&[promise; 2], Duration::from_secs(30), Duration::from_millis(150), THREADS))
}

#[test]
fn people_are_told_why_most_were_rejected_and_when_a_target_is_missed() {
    let mut gatekeeper = gatekeeper();
    let gate = gatekeeper.gate();
    let slot = &gate.sites[0];
    let rejected =
        |why: usize, count| gate.counts.of(1).site(SITE).rejected[why].fetch_add(count, Ordering::Relaxed);
    let mut at_s = 0;
    let mut told = || {
        at_s += 2;
        let mut told = None;
        gatekeeper.tell(Time::from_ns(at_s * 1_000_000_000), &mut |event| {
            let Event::Admission { site: SITE, rejected, why, met, .. } = event else { return };
            assert!(told.replace((rejected, why, met)).is_none());
        });
        told
    };
    assert_eq!(told(), None);
    rejected(Why::OverTarget as usize, 3);
    rejected(GREEDY, 5);
    assert_eq!(told(), Some((8, "greedy", None)));
    rejected(Why::OverTarget as usize, 10);
    assert_eq!(told(), Some((10, "over-target", None)));
    assert_eq!(told(), Some((0, "no-target", None)), "once, that it is over");
    assert_eq!(told(), None);
    slot.met.store(0, Ordering::Relaxed);
    assert_eq!(told(), Some((0, "no-target", Some(false))));
    slot.met.store(1, Ordering::Relaxed);
    assert_eq!((told(), told()), (Some((0, "no-target", Some(true))), None));
}

#[test]
fn the_part_let_in_is_averaged_and_comes_to_what_it_is() {
    let mut gatekeeper = gatekeeper();
    let gate = gatekeeper.gate();
    let now = Time::from_ns(1);
    let mut pass = |queued: Option<u32>, ms| {
        shown(&gate, [queued, Some(0)]);
        (0..ms).for_each(|_| gatekeeper.average(Duration::from_millis(1), now));
        (gate.ratio(SITE), gate.ratio(OTHER))
    };
    assert_eq!(pass(Some(0), 1), (1.0, 1.0));
    let (after_a_moment, other) = pass(Some(99), 50);
    assert!((0.8..1.0).contains(&after_a_moment) && other == 1.0, "{after_a_moment}");
    assert_eq!(pass(Some(99), 5_000).0, gate.verdict(SITE).admitted());
    assert_eq!(pass(Some(0), 5_000).0, 1.0);
}

#[test]
fn answers_are_in_time_or_late() {
    let gate = gate();
    for (thread, ms) in [(0, 1), (1, 40), (1, 41), (0, 99)] {
        gate.succeeded(thread, SITE, Duration::from_millis(ms));
        gate.succeeded(thread, OTHER, Duration::from_millis(ms));
    }
    assert_eq!((gate.late(SITE), gate.late(OTHER)), (Some([2, 4]), None));
}
