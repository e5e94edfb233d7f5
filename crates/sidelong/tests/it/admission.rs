//! What the program says of requests that are not admitted, and what is known of a node that was killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::Value;

use crate::support::overload::{self, CLIENTS};
use crate::support::{Client, Cluster, eventually, metrics, try_get};

/// A cluster of [`overload`], behind one edge.
fn cluster(sites: &[&str]) -> Cluster {
    let mut cluster = overload::cluster(sites);
    cluster.file.edges.truncate(1);
    cluster
}

#[test]
fn by_the_papers_rule_nobody_is_let_in_while_all_nodes_are_overloaded_and_all_when_nothing_is_known() {
    let mut cluster = cluster(&["alpha"]);
    cluster = cluster.with_service(Duration::from_secs(600));
    cluster.file.sites[0].queue_max = None;
    cluster.file.baseline.threshold = Some(0.0);
    // Whatever a node does is too much, and this one is always busy.
    let node = cluster.part("node", "n1");
    let address = cluster.node(0);
    eventually("the node has read its file", || try_get(address, "any", "/healthz").is_ok());
    let mut busy = Client::connect(address);
    busy.send("GET /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    // The edge reads the node's memory, and sends its requests to a server that outlives it.
    cluster.file.nodes[0].listen = Some(serve(cluster.at(0)));
    cluster.run(&["reload"]).succeeded();
    let _edge = cluster.part("edge", "edge1");
    let ask = || try_get(cluster.edge(0), "alpha.test", "/o/1/100");
    let admin = cluster.admin(0);
    eventually("the edge tells", || try_get(admin, "any", "/metrics").is_ok());
    eventually("everybody is shown out", || {
        cluster.figure(0, r#"admitted_ratio{site="alpha"}"#) == Some(0.0) && ask().is_err()
    });
    assert!(cluster.figure(0, "closed_at_accept_total") >= Some(1.0));
    node.kill();
    eventually("its record is too old to decide from", || ask().is_ok_and(|reply| reply.status == 200));
    let admitted = metrics(admin).into_iter().filter(|(name, _)| name.contains("admitted_total"));
    let why: f64 = admitted
        .filter(|(name, _)| name.contains("\"no-records\"") || name.contains("\"old-view\""))
        .map(|(_, count)| count)
        .sum();
    assert!(why >= 1.0, "and it says so");
}

#[test]
fn up_status_and_top_say_what_edges_turn_away() {
    // Beta has no request.
    let mut cluster = cluster(&["alpha", "beta"]).with_load(1 << 40, None);
    cluster.file.workload.as_mut().unwrap().clients_per_edge = CLIENTS as u32;
    let up = cluster.up(&["--plain"]);
    eventually("a line says so", || {
        up.out().lines().any(|line| line.contains("alpha 1 nodes") && line.contains("/s rejected"))
    });
    let status = |more: &[&str]| cluster.run(&[&["status"], more].concat()).succeeded();
    let text = status(&[]);
    assert!(text.starts_with("test: 1 of 1 edges answer"), "{text}");
    let row = text.lines().find(|line| line.starts_with("alpha")).unwrap();
    assert!(row.contains("queue 100 ms") && row.contains("over-target"), "{text}");
    let top = |more: &[&str]| cluster.run(&[&["top", "--once"], more].concat()).succeeded();
    let counted = || -> f64 {
        let rejected = |name: &&String| name.starts_with("sidelong_edge_rejected_total{site=\"alpha\"");
        let metrics = metrics(cluster.admin(0));
        metrics.keys().filter(rejected).map(|name| metrics[name]).sum()
    };
    for (said, rejected) in [(&status as &dyn Fn(&[&str]) -> String, "rejected"), (&top, "rejected_total")] {
        let before = counted();
        let told: Value = serde_json::from_str(&said(&["--json"])).unwrap();
        let rejected = told["sites"][0][rejected].as_f64().unwrap();
        assert!((before..=counted()).contains(&rejected) && rejected > 0.0, "{told}");
        assert_eq!(told["sites"][1]["admitted_ratio"].as_f64(), Some(1.0), "{told}");
    }
    assert!(top(&[]).lines().any(|line| line.starts_with("site ") && line.contains("admitted")));
    let done = up.end();
    let row = done.out.lines().rev().find(|line| line.starts_with("alpha ")).unwrap();
    let columns: Vec<&str> = row.split_whitespace().collect();
    let [.., errors, rejected] = columns[..] else { panic!("{row}") };
    // A rejection is not an error.
    assert_eq!(errors, "0", "{}", done.out);
    assert!(rejected.parse::<u64>().unwrap() > 0, "{}", done.out);
    assert!(done.out.contains(&format!(", 0 errors, {rejected} rejected, ")), "{}", done.out);
}

#[test]
fn what_the_load_asks_for_is_answered_fails_or_is_rejected() {
    let mut cluster = cluster(&["alpha"]).with_load(1 << 20, None);
    cluster.file.workload.as_mut().unwrap().clients_per_edge = CLIENTS as u32;
    let path = cluster.path("requests.csv");
    let summary =
        cluster.up(&["--json", "--for", "4s", "--requests", path.to_str().unwrap()]).finish().json();
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key} of {of}"));
    let rows = std::fs::read_to_string(path).unwrap();
    let count = |fate: &str| rows.lines().filter(|row| row.split(',').nth(5) == Some(fate)).count() as u64;
    let away = number(&summary, "rejected");
    assert!(away > 0 && count("answered") > 0, "{summary}");
    assert_eq!((away, number(&summary, "errors")), (count("rejected") + count("closed"), count("failed")));
    assert_eq!(number(&summary, "requests"), count("answered") + away + number(&summary, "errors"));
    let site = &summary["sites"][0];
    assert_eq!(number(site, "load_rejected"), away, "{summary}");
    // The edge counts those that it answered, and does not report its last moments.
    assert!(number(site, "rejected") <= count("rejected"), "{summary}");
}

#[test]
fn without_a_target_top_shows_no_admission() {
    let mut cluster = cluster(&["alpha"]);
    cluster.file.sites[0].queue_max = None;
    let _parts = cluster.serving_here();
    let top = cluster.run(&["top", "--once"]).succeeded();
    assert!(!top.contains("admitted"), "{top}");
}

#[test]
fn a_cluster_that_does_not_run_has_no_status() {
    let cluster = cluster(&["alpha"]);
    let line = cluster.run(&["status"]).refused();
    assert!(line.contains("no edge of ") && line.contains("edge1 does not answer at 127."), "{line}");
}

/// A server with one answer, which ends with the test's process.
fn serve(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    if line.ends_with("\r\n\r\n") || line == "\r\n" {
                        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    address
}
