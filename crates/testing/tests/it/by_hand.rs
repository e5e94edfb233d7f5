//! Nodes that a person holds, pins, moves and gives back.

use std::time::Duration;

use sidelong_app::Parts;
use sidelong_app::by_hand::Wish;
use sidelong_config::Configuration;
use sidelong_layout::{NodeId, NodeState, Time};
use sidelong_os::monotonic_ns;
use sidelong_testing::{Cluster, Here, eventually, get, in_bursts, metrics};

/// A node's state and site, as its word says.
fn node(cluster: &Cluster, name: &str) -> (NodeState, String) {
    let index = cluster.file.nodes.iter().position(|node| node.name == name).unwrap();
    let mut links = Parts::new(cluster.file.cluster().unwrap()).unwrap().read_only_links().unwrap();
    let mut own = None;
    eventually("the word is read", || {
        links.scan(Time::from_ns(monotonic_ns()));
        own = links.ownership(NodeId::new(index));
        own.is_some()
    });
    let own = own.unwrap();
    (own.state, cluster.file.sites[own.site.unwrap().index()].name.clone())
}

fn by_force(cluster: &Cluster, node: &str) -> Result<String, String> {
    cluster.by_hand(node, Wish::Drain, |hand| hand.force = true)
}

/// Nodes of a cluster in which nothing moves by itself: n1 to n3 at alpha, n4 at beta.
fn quiet() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    // A command or a part that stalls is not taken for dead, and a drain waits for it.
    (cluster.file.reconfig.lease, cluster.file.reconfig.drain_max) =
        (Duration::from_secs(2), Duration::from_secs(30));
    cluster
}

/// The nodes that answer for a site.
fn answering(cluster: &Cluster, site: &str) -> Vec<String> {
    let mut nodes: Vec<_> =
        (0..30).map(|_| get(cluster.edge(0), &format!("{site}.test"), "/o/1/1").node().to_owned()).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

#[test]
fn a_node_is_moved_and_stays() {
    let cluster = quiet();
    let parts = cluster.serving_here();
    let said = cluster.move_to("n1", "beta").unwrap();
    assert_eq!(said, "n1 serves beta, pinned there until `sidelong resume n1`");
    assert_eq!(node(&cluster, "n1"), (NodeState::Pinned, "beta".to_owned()));
    eventually("it answers for beta", || answering(&cluster, "beta").contains(&"n1".to_owned()));
    assert_eq!(cluster.move_to("n1", "beta").unwrap(), "n1 is pinned at beta already");
    cluster.resume("n1").unwrap();
    assert_eq!(node(&cluster, "n1"), (NodeState::Serving, "beta".to_owned()));
    // A held node may be moved, too, and one be pinned where it is.
    cluster.drain("n1").unwrap();
    cluster.move_to("n1", "alpha").unwrap();
    assert_eq!(node(&cluster, "n1"), (NodeState::Pinned, "alpha".to_owned()));
    let said = cluster.move_to("n3", "alpha").unwrap();
    assert_eq!(said, "n3 is pinned at alpha until `sidelong resume n3`");
    cluster.drain("n3").unwrap();
    assert_eq!(node(&cluster, "n3"), (NodeState::Held, "alpha".to_owned()));
    parts.into_iter().for_each(Here::end);
}

/// Pinned nodes serve a site without load, while another site has more than it can serve.
#[test]
fn no_edge_moves_a_node_that_a_person_keeps() {
    let cluster = Cluster::demo().with_service(Duration::from_millis(1));
    let parts = cluster.serving_here();
    // The load may have moved the node: where it goes to does not matter.
    eventually("it is pinned", || cluster.move_to("n1", "alpha").is_ok());
    eventually("it is held", || by_force(&cluster, "n8").is_ok());
    let moves = || {
        metrics(cluster.admin(0))
            .into_iter()
            .filter(|(name, _)| name.starts_with("sidelong_edge_moves_total"))
            .map(|(_, count)| count)
            .sum::<f64>()
    };
    let before = moves();
    _ = in_bursts(&cluster, 256, || eventually("others move", || moves() > before + 20.0));
    assert_eq!(node(&cluster, "n1"), (NodeState::Pinned, "alpha".to_owned()));
    assert_eq!(node(&cluster, "n8").0, NodeState::Held);
    parts.into_iter().for_each(Here::end);
}

#[test]
fn a_floor_is_broken_by_force_alone_and_filled_up_by_the_edges() {
    let cluster = quiet();
    let parts = cluster.serving_here();
    let refused = cluster.drain("n4").unwrap_err();
    assert_eq!(refused, "beta is at its floor of 1 and cannot spare n4; --force takes it nevertheless");
    let refused = cluster.move_to("n4", "alpha").unwrap_err();
    assert!(refused.contains("beta is at its floor of 1"), "{refused}");
    assert_eq!(node(&cluster, "n4"), (NodeState::Serving, "beta".to_owned()));
    let said = by_force(&cluster, "n4").unwrap();
    assert!(said.starts_with("n4 is held; "), "{said}");
    assert_eq!(node(&cluster, "n4"), (NodeState::Held, "beta".to_owned()));
    eventually("beta gets another node", || get(cluster.edge(0), "beta.test", "/o/1/1").status == 200);
    parts.into_iter().for_each(Here::end);
}

#[test]
fn force_says_which_floor_it_breaks() {
    let mut cluster = quiet();
    cluster.file.baseline.configuration = Configuration::Rigid;
    let parts = cluster.serving_here();
    let said = by_force(&cluster, "n4").unwrap();
    let broken = "beta has 0 nodes, below its floor of 1";
    assert!(said.ends_with(&format!("; {broken}")), "{said}");
    let history = std::fs::read_to_string(cluster.run_dir().join("by_hand.history.jsonl")).unwrap();
    assert!(history.contains(broken), "{history}");
    cluster.resume("n4").unwrap();
    eventually("beta answers", || get(cluster.edge(0), "beta.test", "/o/1/1").status == 200);
    parts.into_iter().for_each(Here::end);
}
