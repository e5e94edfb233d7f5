//! A choice of node allocates nothing.

use std::time::Duration;

use sidelong_edge::View;
use sidelong_layout::{Ownership, SiteId};
use sidelong_policy::Time;
use sidelong_policy::balance::Balance;
use sidelong_policy::health::{self, Failure};
use sidelong_policy::index::Reading;

#[test]
fn a_choice_allocates_nothing() {
    let site = SiteId::new(0);
    for balance in [Balance::Weighted, Balance::PowerOfTwo, Balance::RoundRobin, Balance::LeastConnections] {
        let view = View::new(100, 2, Duration::from_millis(200), balance, health::Settings::default());
        for node in view.nodes() {
            view.observe(node, Some(Ownership::serving(site, 1)), Reading::default());
        }
        view.relist();
        let counted = allocation_counter::measure(|| {
            for now in 0..1000 {
                let now = Time::from_ns(now * 1_000_000);
                let node = view.choose(site, None, now).expect("all nodes are up");
                view.release(node);
                match now.as_ns() % 7 {
                    0 => view.on_failure(node, now, Failure::Other),
                    _ => view.on_success(node),
                }
            }
        });
        assert_eq!(counted.count_total, 0, "{balance:?}");
    }
    // What counts does count.
    assert!(allocation_counter::measure(|| drop(vec![0u8; 100])).count_total > 0);
}
