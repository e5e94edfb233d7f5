//! The walkers of `sidelong-lab load` at the demo auction. What the auction itself does is tested without the program.

use sidelong_config::Configuration;

use crate::support::auction::{Auction, Books};
use crate::support::{Running, eventually, get, run, try_get, until_it_succeeds};

#[test]
fn a_thousand_sessions_that_are_killed_hold_nothing_up() {
    let Some(mut auction) = Auction::new(Books::Sqlite) else { return };
    // Otherwise the load may take the last node of the other site, which n2 then may not leave.
    auction.cluster.file.baseline.configuration = Configuration::Rigid;
    let cluster = &auction.cluster;
    let _servers: Vec<_> = (0..3).map(|node| auction.serve_as(node, 2, &[])).collect();
    let _agents = ["n1", "n2", "n3"].map(|name| cluster.part("node", name));
    let _edge = cluster.part("edge", "edge1");
    eventually("the edge has nodes", || {
        try_get(cluster.edge(0), "auction.test", "/health").is_ok_and(|reply| reply.status == 200)
    });
    let url = format!("http://{}", cluster.edge(0));
    let walk =
        ["load", "--walk", "auction", "--host", "auction.test", "--sessions", "1000", "--think", "0.1"];
    let walk = Running::start_lab(walk.into_iter().chain([&*url]));
    let walking = |line: &str| {
        let (before, _) = line.split_once(" sessions  ")?;
        before.split_whitespace().last()?.parse::<u32>().ok()
    };
    eventually("a thousand walk, but for those that just begin", || {
        walk.err().lines().filter_map(walking).max() > Some(900)
    });
    walk.kill();
    let config = cluster.config().to_str().unwrap().to_owned();
    for site in ["api", "auction"] {
        until_it_succeeds(|| run(["move", "n2", site, "--config", &config]));
    }
    assert_eq!(get(cluster.edge(0), "auction.test", "/items/1").status, 200);
    auction.audit();
}
