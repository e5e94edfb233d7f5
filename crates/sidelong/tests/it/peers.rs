//! Edges of which one is killed: its requests count at the other, and no longer when it is dead.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use sidelong_config::{AdmissionRule, Fabric};

use crate::support::overload::{CLIENTS, SERVICE, cluster, while_asked};
use crate::support::{Cluster, Running, eventually, get, try_get};

/// Starts an edge, and waits until it shares: then it has read its file, and the next part may get another one.
fn edge(cluster: &Cluster, index: usize) -> Running {
    let edge = cluster.part("edge", &cluster.file.edges[index].name);
    eventually("the edge tells", || try_get(cluster.admin(index), "any", "/metrics").is_ok());
    edge
}

/// How many of `requests` requests for alpha, one after the other, the second edge rejects.
fn rejected(cluster: &Cluster, requests: usize) -> usize {
    let status = |_| {
        let reply = get(cluster.edge(1), "alpha.test", "/o/1/100");
        assert!([200, 503].contains(&reply.status), "{reply:?}");
        reply.status
    };
    (0..requests).map(status).filter(|status| *status == 503).count()
}

/// Has an edge that is started next go by the file as it is, whatever the parts beside it have read. Over tcp, and where no part
/// runs yet, it does so anyway.
fn adopt(cluster: &Cluster) {
    let done = cluster.run(&["reload"]);
    let needs_none = ["no part of", "only the parts of a cluster on one machine"];
    assert!(done.code == Some(0) || needs_none.iter().any(|why| done.err.contains(why)), "{done:?}");
}

/// The first edge admits all requests; the second gets requests only here, and must know the first's. Then the first
/// dies.
fn hears_and_forgets(cluster: &mut Cluster, has_record: bool) {
    cluster.file.admission.rule = AdmissionRule::None;
    adopt(cluster);
    let first = edge(cluster, 0);
    cluster.file.admission.rule = AdmissionRule::Target;
    adopt(cluster);
    let _second = edge(cluster, 1);
    let cluster = &*cluster;
    for k in 0..2 {
        for site in ["alpha", "beta"] {
            let answers = || try_get(cluster.edge(k), &format!("{site}.test"), "/o/1/1");
            eventually("each answers", || answers().is_ok_and(|reply| reply.status == 200));
        }
    }
    let unanswered = r#"node_unanswered_requests{node="n1"}"#;
    let of_first = r#"peer_unanswered_requests{edge="edge1"}"#;
    while_asked(cluster, || {
        // All clients, except those whose answer is arriving.
        let many = Some(CLIENTS as f64 * 0.6);
        eventually("the other hears of it", || {
            cluster.figure(1, of_first) >= many && cluster.figure(1, unanswered) >= many
        });
        eventually("it rejects because of the other edge's requests", || rejected(cluster, 20) > 0);
        eventually("they delay its own", || {
            cluster.figure(1, r#"queue_delay_seconds{site="alpha"}"#) > Some(0.05)
        });
        // A record may be stale for a moment.
        let workers = cluster.figure(1, r#"node_capacity_workers{node="n1"}"#);
        assert!(has_record || workers.is_none(), "{workers:?}");
        let status = |more: &[&str]| cluster.run(&[&["status"], more].concat()).succeeded();
        let told = || serde_json::from_str::<serde_json::Value>(&status(&["--json"])).unwrap();
        eventually("status tells of it, too", || {
            let told = told();
            told["sites"][0]["unanswered"].as_f64() >= many
                && told["nodes"][0]["unanswered"] == told["sites"][0]["unanswered"]
                && told["edges"][1]["hears"][0] == "edge1"
        });
        assert!(status(&[]).contains("in flight"), "{}", status(&[]));

        first.kill();
        eventually("it is left out", || cluster.figure(1, of_first).is_none());
        eventually("all are admitted", || cluster.figure(1, r#"admitted_ratio{site="alpha"}"#) == Some(1.0));
    });
    assert_eq!(rejected(cluster, 30), 0, "nobody for the sake of who is dead");
    assert_eq!(cluster.figure(1, unanswered), Some(0.0));
    assert!(cluster.figure(1, r#"peer_age_seconds{edge="edge1"}"#) > Some(0.15), "and it says so");
    let status = cluster.run(&["status"]).succeeded();
    assert!(status.contains("edge2 does not hear edge1"), "{status}");
}

#[test]
fn an_edge_counts_what_another_has_under_way_until_that_is_dead() {
    let mut cluster = cluster(&["alpha", "beta"]);
    let _nodes = ["n1", "n2"].map(|name| cluster.part("node", name));
    hears_and_forgets(&mut cluster, true);
}

#[test]
fn edges_hear_each_other_over_tcp() {
    let mut cluster = cluster(&["alpha", "beta"]);
    cluster.file.cluster.fabric = Fabric::Tcp;
    let _nodes = ["n1", "n2"].map(|name| cluster.part("node", name));
    hears_and_forgets(&mut cluster, true);
}

/// The edges' requests there, and the rate of answers, are all that is known of it.
#[test]
fn a_server_without_a_record_is_guarded_by_what_all_edges_have_there() {
    let mut cluster = cluster(&["alpha", "beta"]);
    let [first, _second] = ["n1", "n2"].map(|name| cluster.part("node", name));
    let address = cluster.node(0);
    eventually("the node has its site", || try_get(address, "any", "/o/1/1").is_ok());
    // Its word stays in memory, its record becomes stale.
    first.kill();
    cluster.file.nodes[0].listen = Some(serve(cluster.at(0)));
    hears_and_forgets(&mut cluster, false);
}

/// A server other than Sidelong's, with two workers, which ends with the test's process.
fn serve(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let workers = Arc::new((Mutex::new(2u32), Condvar::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let workers = Arc::clone(&workers);
            std::thread::spawn(move || answer(stream, &workers));
        }
    });
    address
}

fn answer(stream: TcpStream, (idle, freed): &(Mutex<u32>, Condvar)) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n" {
            *freed.wait_while(idle.lock().unwrap(), |idle| *idle == 0).unwrap() -= 1;
            std::thread::sleep(SERVICE);
            *idle.lock().unwrap() += 1;
            freed.notify_one();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}
