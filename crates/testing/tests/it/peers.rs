//! What edges know of each other.

use std::fs::hard_link;
use std::time::Duration;

use sidelong_config::Fabric;
use sidelong_testing::overload::{cluster, while_asked};
use sidelong_testing::{Client, Cluster, Here, eventually, metrics, try_get};

/// Starts an edge, and waits until it shares: then it has read its file, and the next part may get another one.
fn edge(cluster: &Cluster, index: usize) -> Here {
    let edge = cluster.here("edge", &cluster.file.edges[index].name);
    eventually("the edge tells", || try_get(cluster.admin(index), "any", "/metrics").is_ok());
    edge
}

#[test]
fn an_edge_that_knows_nothing_of_a_site_goes_by_the_verdict_of_one_that_does() {
    let mut cluster = cluster(&["alpha", "beta"]);
    let _nodes = ["n1", "n2"].map(|name| cluster.here("node", name));
    let _seeing = edge(&cluster, 0);
    let answers = || try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200);
    eventually("it answers", answers);
    // Another run directory contains only what the first edge shares.
    let other = cluster.path("other");
    std::fs::create_dir(&other).unwrap();
    hard_link(cluster.run_dir().join("edge1.share.region"), other.join("edge1.share.region")).unwrap();
    cluster.file.cluster.run_dir = Some(other);
    let _blind = edge(&cluster, 1);
    let lent = r#"verdict_lent{site="alpha"}"#;
    eventually("it uses the other's verdict", || cluster.figure(1, lent) == Some(1.0));
    while_asked(&cluster, || {
        let over_target = |address| {
            try_get(address, "alpha.test", "/o/1/100").is_ok_and(|reply| {
                reply.status == 503 && reply.header("x-sidelong-reason") == Some("over-target")
            })
        };
        eventually("an edge with a view rejects", || over_target(cluster.edge(0)));
        eventually("so does one that does not", || over_target(cluster.edge(1)));
    });
    assert_eq!(cluster.figure(1, r#"verdict_lent{site="beta"}"#), Some(0.0), "nothing is promised to beta");
    assert_eq!(cluster.figure(0, lent), Some(0.0));
}

#[test]
fn only_who_waits_for_an_answer_counts_and_no_longer_than_that() {
    let cluster = cluster(&["alpha", "beta"]).with_service(Duration::from_secs(600));
    let _node = cluster.here("node", "n1");
    let _edge = edge(&cluster, 0);
    let count = |name: &str| cluster.figure(0, &format!("{name}{{node=\"n1\"}}"));
    let are = |in_flight: f64, unanswered: f64| {
        let counts = [count("node_in_flight"), count("node_unanswered_requests")];
        counts == [Some(in_flight), Some(unanswered)]
    };
    eventually("it knows the node", || {
        cluster.figure(0, r#"node_site{node="n1",site="alpha"}"#) == Some(1.0)
    });
    let mut post = Client::connect(cluster.edge(0));
    post.send("POST /o/1/5 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 4\r\n\r\nhal").unwrap();
    eventually("one that is still being sent is there and waits for nothing", || are(1.0, 0.0));
    post.send("f").unwrap();
    eventually("it waits", || are(1.0, 1.0));
    let mut get = Client::connect(cluster.edge(0));
    get.send("GET /o/1/5 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    eventually("so does one without a body", || are(2.0, 2.0));
    drop(get);
    eventually("a client that leaves is not counted", || are(1.0, 1.0));
    drop(post);
    eventually("nor is the other", || are(0.0, 0.0));
}

#[test]
fn an_edge_whom_none_can_join_shares_nothing() {
    let mut cluster = cluster(&["alpha", "beta"]);
    cluster.file.edges.truncate(1);
    cluster.file.cluster.fabric = Fabric::Tcp;
    let _node = cluster.here("node", "n1");
    let _edge = edge(&cluster, 0);
    assert!(cluster.regions().iter().all(|name| !name.contains("share")), "{:?}", cluster.regions());
    assert!(metrics(cluster.admin(0)).keys().all(|name| !name.contains("peer")));
}
