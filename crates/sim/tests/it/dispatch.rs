//! The choice of node matters, and no request is lost by it.

use std::path::Path;
use std::sync::Arc;

use sidelong_sim::Outcome;
use sidelong_sim::cluster::Cluster;
use sidelong_sim::config::Config;

/// Eight nodes that hold all objects and are busy four fifths of the time, with requests that come at random.
fn outcome(dispatcher: &str) -> Outcome {
    let sets = [
        "nodes=8",
        "objects=200",
        "requests=60000",
        "arrivals=poisson",
        "rate_per_node=2400",
        &format!("dispatcher={dispatcher}"),
    ]
    .map(str::to_owned);
    let config = Config::parse("", "test.toml", Path::new(""), &sets).unwrap();
    let point = config.points().remove(0);
    let requests = Arc::new(point.requests().unwrap());
    Cluster::run(point.setup(requests).unwrap())
}

#[test]
fn who_goes_to_the_least_busy_waits_less() {
    let [in_turn, two, least] = ["round-robin", "power-of-two", "least-connections"].map(outcome);
    assert_eq!([in_turn.requests, two.requests, least.requests], [48_000; 3]);
    assert!(in_turn.cpu_busy > 0.6 && in_turn.cpu_busy < 0.95, "{in_turn:?}");
    assert!(least.response_ms_p99 < two.response_ms_p99, "{least:?} {two:?}");
    assert!(two.response_ms_p99 < in_turn.response_ms_p99, "{two:?} {in_turn:?}");
}
