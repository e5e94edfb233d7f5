//! The configurations that a cluster can run in, under load that goes from site to site.

use std::time::Duration;

use sidelong_config::{Configuration, Fabric, MovedBy, Protocol, Scheme};
use sidelong_testing::{Cluster, Here, eventually, in_bursts, metrics};

/// Two sites of two nodes. Requests take long, so that nodes are busy with few of them: a machine that is full of other tests cannot send
/// many.
fn cluster(change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_service(Duration::from_millis(50));
    change(&mut cluster);
    cluster
}

/// The nodes that the first edge sees serving each site.
fn nodes(cluster: &Cluster) -> [usize; 2] {
    let seen = metrics(cluster.admin(0));
    ["alpha", "beta"].map(|site| {
        let serves = |node: &usize| format!("sidelong_edge_node_site{{node=\"n{node}\",site=\"{site}\"}}");
        (1..=4).filter(|node| seen.get(&serves(node)) == Some(&1.0)).count()
    })
}

/// The requests that the first edge has answered for each site.
fn answered(cluster: &Cluster) -> [f64; 2] {
    ["alpha", "beta"].map(|site| {
        let counted = cluster.figure(0, &format!("requests_total{{site=\"{site}\",code=\"2xx\"}}"));
        counted.unwrap_or(0.0)
    })
}

fn moves_nodes(change: impl FnOnce(&mut Cluster)) {
    let cluster = cluster(change);
    let parts = cluster.serving_here();
    let failed = in_bursts(&cluster, 96, || {
        for more in [0, 1] {
            eventually("a node goes to the site under load", || nodes(&cluster)[more] == 3);
        }
        assert!(answered(&cluster).iter().all(|answered| *answered > 0.0));
    });
    assert_eq!(failed, 0, "requests failed");
    parts.into_iter().for_each(Here::end);
}

#[test]
fn servers_may_move_themselves() {
    moves_nodes(|cluster| cluster.file.baseline.by = MovedBy::Server);
}

#[test]
fn the_papers_protocol_moves_nodes() {
    moves_nodes(|cluster| cluster.file.baseline.protocol = Protocol::Paper);
}

#[test]
fn servers_may_move_themselves_by_the_papers_protocol() {
    moves_nodes(|cluster| {
        cluster.file.baseline.by = MovedBy::Server;
        cluster.file.baseline.protocol = Protocol::Paper;
    });
}

#[test]
fn memory_may_be_reached_over_tcp() {
    moves_nodes(|cluster| cluster.file.cluster.fabric = Fabric::Tcp);
}

#[test]
fn load_may_be_asked_for_over_sockets() {
    for scheme in [Scheme::SocketAsync, Scheme::SocketSync] {
        moves_nodes(|cluster| cluster.file.set_scheme(scheme));
    }
}

#[test]
fn sockets_and_tcp_go_together() {
    moves_nodes(|cluster| {
        cluster.file.set_scheme(Scheme::SocketSync);
        cluster.file.cluster.fabric = Fabric::Tcp;
    });
}

#[test]
fn a_rigid_cluster_moves_nothing() {
    let cluster = cluster(|cluster| cluster.file.baseline.configuration = Configuration::Rigid);
    let parts = cluster.serving_here();
    let failed = in_bursts(&cluster, 96, || {
        eventually("both sites had two bursts", || {
            assert!(nodes(&cluster).iter().all(|nodes| *nodes <= 2), "a node has moved");
            answered(&cluster).iter().all(|answered| *answered >= 192.0)
        });
    });
    assert_eq!(failed, 0, "requests failed");
    eventually("each site has its nodes", || nodes(&cluster) == [2, 2]);
    assert!(metrics(cluster.admin(0)).keys().all(|name| !name.contains("_moves_total{")), "none is counted");
    parts.into_iter().for_each(Here::end);
}
