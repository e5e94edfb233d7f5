//! A cluster started by hand, part by part, in any order.

use sidelong_config::Fabric;
use sidelong_testing::{Cluster, Here, eventually, get, try_get};

/// Two nodes and an edge, with a site each.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    cluster
}

fn answers(cluster: &Cluster, site: &str) -> bool {
    let reply = try_get(cluster.edge(0), &format!("{site}.test"), "/o/1/10");
    reply.is_ok_and(|reply| reply.status == 200)
}

fn serves_in_parts(cluster: &Cluster) {
    // The edge first: it waits for the nodes.
    let edge = cluster.here("edge", "edge1");
    let first = cluster.here("node", "n1");
    eventually("the first node's site answers", || answers(cluster, "alpha"));
    let early = get(cluster.edge(0), "beta.test", "/o/1/10");
    assert_eq!(early.status, 503, "a site whose node is not there: {early:?}");

    let second = cluster.here("node", "n2");
    eventually("the second node's site answers", || answers(cluster, "beta"));
    for (site, node) in [("alpha", "n1"), ("beta", "n2")] {
        let reply = get(cluster.edge(0), &format!("{site}.test"), "/o/1/10");
        assert_eq!((reply.status, reply.node(), reply.body.len()), (200, node, 10), "{reply:?}");
    }

    // A node that ends affects no other part, and comes back.
    first.end();
    eventually("its site does not answer", || !answers(cluster, "alpha"));
    assert!(edge.is_running() && answers(cluster, "beta"));
    let first = cluster.here("node", "n1");
    eventually("its site answers again", || answers(cluster, "alpha"));

    [first, second, edge].into_iter().for_each(Here::end);
}

#[test]
fn over_shared_memory() {
    let mut cluster = cluster();
    cluster.file.cluster.fabric = Fabric::Shm;
    serves_in_parts(&cluster);
}

#[test]
fn over_tcp() {
    let mut cluster = cluster();
    cluster.file.cluster.fabric = Fabric::Tcp;
    serves_in_parts(&cluster);
}

#[test]
fn a_node_of_a_live_ones_name_is_refused() {
    let cluster = cluster();
    let first = cluster.here("node", "n1");
    eventually("the node serves", || try_get(cluster.node(0), "any", "/healthz").is_ok());
    let line = cluster.try_here("node", "n1").err().unwrap();
    assert!(line.contains("cannot listen on"), "{line}");
    // Of one that does not listen, only the name is taken.
    let mut agents = Cluster::new(&[("alpha", 1), ("beta", 1)]).foreign();
    agents.file.nodes[0].admin = None;
    let _agent = agents.here("node", "n1");
    let line = agents.try_here("node", "n1").err().unwrap();
    assert!(line.contains("exposed by a process that is still alive"), "{line}");
    assert!(first.is_running());
}
