//! A request's choice of node, and the gate before it, allocate nothing.

use std::time::Duration;

use sidelong_edge::{Gate, RejectedLast, View};
use sidelong_layout::{Ownership, SiteId};
use sidelong_policy::Time;
use sidelong_policy::admission::{CIRCLE, Client, Outlook, Promise, Request, Target, Verdict, Why};
use sidelong_policy::balance::Balance;
use sidelong_policy::health::{self, Failure};
use sidelong_policy::index::Reading;

#[test]
fn a_decision_allocates_nothing() {
    let site = SiteId::new(0);
    for balance in [
        Balance::Weighted,
        Balance::PowerOfTwo,
        Balance::Ewma,
        Balance::RoundRobin,
        Balance::LeastConnections,
    ] {
        let view = View::new(100, 2, Duration::from_millis(200), balance, health::HealthSettings::default());
        for node in view.nodes() {
            view.observe(node, Some(Ownership::serving(site, 1)), Reading::default());
        }
        view.relist();
        let counted = allocation_counter::measure(|| {
            for now in 0..1000 {
                let now = Time::from_ns(now * 1_000_000);
                let node = view.choose(site, None, now).expect("all nodes are up");
                view.waits(node);
                view.waited(node);
                view.answered(node, now, Duration::from_millis(1));
                view.release(node);
                match now.as_ns() % 7 {
                    0 => view.on_failure(node, now, Failure::Silent),
                    _ => view.on_success(node),
                }
            }
        });
        assert_eq!(counted.count_total, 0, "{balance:?}");
    }
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(10))), share: 0.0 };
    let last = RejectedLast {
        requests: vec!["/items/*/bid".parse().unwrap()],
        visit: Some(Duration::from_secs(60)),
    };
    let gate = Gate::new(&[promise], Duration::from_secs(30), Duration::from_millis(150), 1);
    gate.adopt(&[promise].into_iter().collect(), &[last].into_iter().collect());
    let request = Request { method: "GET", target: "/items/3/bid?x" };
    let client = Client::new(([10, 0, 0, 1], 5000).into());
    let counted = allocation_counter::measure(|| {
        let admitted =
            (0..1000).filter(|now| gate.decide(0, site, client, request, Time::from_ns(*now), false).is_ok());
        assert_eq!(admitted.count(), 1000);
    });
    assert_eq!(counted.count_total, 0, "at the gate");
    // A hundredth of the clients.
    let verdict = Verdict::decode(u64::from(CIRCLE / 100) << 33 | Why::OverTarget as u64);
    gate.show(&[Outlook { verdict, ..Outlook::default() }]);
    let counted = allocation_counter::measure(|| {
        for now in 0..1000 {
            let _ = gate.decide(0, site, client, request, Time::from_ns(now), false);
        }
    });
    assert_eq!(counted.count_total, 0, "at the gate of an overloaded site");
    // The counter works.
    assert!(allocation_counter::measure(|| drop(vec![0u8; 100])).count_total > 0);
}
