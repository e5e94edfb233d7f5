//! `sidelong drain`, `resume` and `move`: what they print, and how they are interrupted.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use sidelong_config::{Configuration, Protocol};

use crate::support::{Client, Cluster, PATIENCE, Running, eventually, get, metrics};

/// Nodes of a cluster in which nothing moves by itself: n1 to n3 at alpha, n4 at beta.
fn quiet() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    // A command or a part that stalls is not taken for dead, and a drain waits for it.
    (cluster.file.reconfig.lease, cluster.file.reconfig.drain_max) =
        (Duration::from_secs(2), Duration::from_secs(30));
    cluster
}

/// A node's state and site, as `top` sees them.
fn node(cluster: &Cluster, name: &str) -> (String, String) {
    let report = cluster.run(&["top", "--once", "--json"]).json();
    let nodes = report["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == name).unwrap();
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("site"))
}

/// Waits until a node is in a state at a site. If it does not come to be, says in which it is, and what the edges have counted.
fn becomes(cluster: &Cluster, name: &str, state: &str, site: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = node(cluster, name);
        if seen == is(state, site) {
            return;
        }
        let counted = || [0, 1].map(|edge| metrics(cluster.admin(edge)));
        assert!(Instant::now() < deadline, "{name} is {seen:?}, not {state} at {site}: {:?}", counted());
    }
}

fn is(state: &str, site: &str) -> (String, String) {
    (state.to_owned(), site.to_owned())
}

fn history(cluster: &Cluster) -> Vec<Value> {
    let listed = cluster.run(&["history", "--json"]).json();
    listed.as_array().unwrap().clone()
}

/// The nodes that answer for a site.
fn answering(cluster: &Cluster, site: &str) -> Vec<String> {
    let mut nodes: Vec<_> =
        (0..30).map(|_| get(cluster.edge(0), &format!("{site}.test"), "/o/1/1").node().to_owned()).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn me() -> String {
    let done = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_node_is_drained_and_resumed() {
    let cluster = quiet();
    let mut up = cluster.up(&["--plain"]);
    cluster.await_whole(&mut up);
    let said = cluster.run(&["drain", "n2"]).succeeded();
    assert_eq!(said, "n2 is held; `sidelong resume n2` gives it back to alpha\n");
    assert_eq!(node(&cluster, "n2"), is("held", "alpha"));
    assert!(!answering(&cluster, "alpha").contains(&"n2".to_owned()));
    assert_eq!(cluster.run(&["drain", "n2"]).succeeded(), "n2 is held already\n");

    let by = me();
    let shown = cluster.run(&["status"]).succeeded();
    assert!(shown.contains(&format!("n2 is held by {by} since 20")), "{shown}");
    let status = cluster.run(&["status", "--json"]).json();
    assert_eq!(
        (&status["nodes"][1]["state"], &status["nodes"][1]["by"]),
        (&"held".into(), &by.as_str().into())
    );
    let state = r#"sidelong_edge_node_state{node="n2",state="held"}"#;
    assert_eq!(metrics(cluster.admin(0)).get(state), Some(&1.0));
    let table = cluster.run(&["top", "--once"]).succeeded();
    assert!(table.contains("held (alpha)"), "{table}");

    assert_eq!(cluster.run(&["resume", "n2"]).succeeded(), "n2 serves alpha\n");
    assert_eq!(node(&cluster, "n2"), is("serving", "alpha"));
    eventually("it answers again", || answering(&cluster, "alpha").contains(&"n2".to_owned()));
    assert_eq!(cluster.run(&["resume", "n2"]).succeeded(), "n2 is at alpha, and not held\n");
    let shown = cluster.run(&["status"]).succeeded();
    assert!(!shown.contains("held"), "{shown}");

    let done = history(&cluster);
    let told = |record: &Value| {
        ["node", "how", "to", "by"].map(|key| record[key].as_str().unwrap_or_default().to_owned())
    };
    let told: Vec<_> = done.iter().map(told).collect();
    assert_eq!(told, [["n2", "held", "alpha", &by], ["n2", "resumed", "alpha", &by]]);
    let plain = cluster.run(&["history"]).succeeded();
    assert!(
        plain.contains("  n2 alpha -> held in ") && plain.contains("  n2 resumed at alpha in "),
        "{plain}"
    );
    up.end().succeeded();
}

#[test]
fn a_person_moves_what_runs_whatever_became_of_the_file() {
    let mut cluster = quiet();
    let mut up = cluster.up(&["--plain"]);
    cluster.await_whole(&mut up);
    cluster.file.nodes.iter_mut().for_each(|node| node.name += "-new");
    cluster.run(&["move", "n2", "beta"]).succeeded();
    assert_eq!(node(&cluster, "n2"), is("pinned", "beta"));
    assert_eq!(history(&cluster).last().unwrap()["node"], "n2");
    // Another cluster that is to have the same directory does not run.
    cluster.file.cluster.name = "other".into();
    let refused = cluster.run(&["move", "n2", "alpha"]).refused();
    assert!(refused.contains("no node \"n2\"; it has n1-new, "), "{refused}");
    up.end().succeeded();
}

/// A request at n1, the only node of alpha then, that ends when its client has sent so many bytes.
fn with_open_request(bytes: usize) -> (Cluster, Running, Client) {
    let mut cluster = quiet();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.reconfig.drain_max = Duration::from_secs(3);
    // The request stays open for as long as a test takes on a busy machine.
    let limits = &mut cluster.file.limits;
    (limits.client_body_timeout, limits.response_timeout) =
        (Duration::from_secs(3000), Duration::from_secs(3000));
    let mut up = cluster.up(&["--plain"]);
    cluster.await_whole(&mut up);
    for idle in ["n2", "n3"] {
        cluster.run(&["move", idle, "beta"]).succeeded();
    }
    eventually("n1 alone answers", || answering(&cluster, "alpha") == ["n1"]);
    let mut client = Client::connect(cluster.edge(0));
    client
        .send(format!("POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: {bytes}\r\n\r\n"))
        .unwrap();
    let in_flight = r#"sidelong_edge_node_in_flight{node="n1"}"#;
    eventually("the request is at n1", || metrics(cluster.admin(0)).get(in_flight) == Some(&1.0));
    cluster.run(&["move", "n2", "alpha"]).succeeded();
    (cluster, up, client)
}

#[test]
fn a_node_with_requests_stays_unless_one_waits_for_them() {
    let (cluster, up, mut client) = with_open_request(1);
    let refused = cluster.run(&["drain", "n1"]).refused();
    assert!(refused.contains("requests of alpha at n1 had not ended after 3s"), "{refused}");
    assert!(refused.ends_with("edge1 has 1 request there; --wait waits for them"), "{refused}");
    assert_eq!(node(&cluster, "n1"), is("serving", "alpha"));
    let mut drain = cluster.start(&["drain", "n1", "--wait"]);
    becomes(&cluster, "n1", "draining", "alpha");
    assert!(drain.is_running());
    client.send("x").unwrap();
    client.reply(true).unwrap();
    drain.finish().succeeded();
    assert_eq!(node(&cluster, "n1"), is("held", "alpha"));
    up.end().succeeded();
}

#[test]
fn a_drain_that_is_interrupted_leaves_the_node_at_its_site() {
    let (cluster, up, mut client) = with_open_request(3000);
    // A node ends a request that is silent for a minute, and then it has drained.
    let (over, is_over) = mpsc::sync_channel::<()>(0);
    let keeping = thread::spawn(move || {
        while is_over.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            client.send("x").unwrap();
        }
    });
    // Not SIGINT: a shell has what it runs in the background ignore that, tests included.
    for signal in [Signal::TERM, Signal::KILL] {
        let drain = cluster.start(&["drain", "n1", "--wait"]);
        becomes(&cluster, "n1", "draining", "alpha");
        drain.signal(signal);
        drain.finish();
        // An edge takes it back.
        becomes(&cluster, "n1", "serving", "alpha");
    }
    drop(over);
    keeping.join().unwrap();
    up.end().succeeded();
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let mut cluster = quiet();
    let refused = |cluster: &Cluster, words: &[&str], expected: &str| {
        let line = cluster.run(words).refused();
        assert!(line.contains(expected), "{line}");
    };
    refused(&cluster, &["drain", "n9"], "no node \"n9\"; it has n1, n2, n3, n4");
    refused(&cluster, &["move", "n1", "gamma"], "no site \"gamma\"; it has alpha, beta");
    refused(&cluster, &["resume", "n1"], "no node of cluster test is heard: ");
    assert!(!cluster.run_dir().exists(), "nothing was created");
    cluster.file.baseline.protocol = Protocol::Paper;
    refused(&cluster, &["drain", "n1"], "the published protocol has no moves by hand");
    // The words outlive a cluster that was killed; nobody is there to have requests.
    let cluster = quiet();
    let mut up = cluster.up(&["--plain"]);
    cluster.await_whole(&mut up);
    up.end().succeeded();
    refused(&cluster, &["drain", "n1"], "no node of cluster test is heard: ");
}
