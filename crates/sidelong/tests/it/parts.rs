//! `sidelong node` and `sidelong edge` as processes: their events, and the signals and parents by which they end.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Client, Cluster, PATIENCE, Running, eventually, get, metrics, try_get};

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

#[test]
fn they_tell_what_happens_where_asked() {
    let mut cluster = cluster();
    // Reported at the next scan, and not before there is a word to read.
    cluster.file.sites.truncate(1);
    let mut node = std::process::Command::new(env!("CARGO_BIN_EXE_sidelong"));
    node.args(["node", "n1", "--events", "--config"]).arg(cluster.config());
    let node = Running::start_command(node);
    eventually("the node is ready", || node.out().contains("{\"event\":\"ready\"}"));
    let mut edge = std::process::Command::new(env!("CARGO_BIN_EXE_sidelong"));
    edge.args(["edge", "edge1", "--events", "--config"]).arg(cluster.config());
    let edge = Running::start_command(edge);
    assert!(!edge.out().contains("\"ready\""), "the second node is not there: {}", edge.out());
    let second = cluster.part("node", "n2");
    eventually("the edge is ready", || edge.out().contains("{\"event\":\"ready\"}"));
    assert!(edge.out().contains("load by rdma-async, because"), "{}", edge.out());
    for line in edge.out().lines().chain(node.out().lines()) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["event"].is_string(), "{event}");
    }
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/10").status, 200);
    for part in [node, edge, second] {
        part.end().succeeded();
    }
}

#[test]
fn what_supervises_an_edge_hears_of_it() {
    let cluster = cluster();
    let path = cluster.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut text = [0; 256];
        let bytes = socket.recv(&mut text).expect("it says something");
        String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
    };
    let script = "WATCHDOG_PID=$$ exec \"$@\"";
    let mut edge = std::process::Command::new("sh");
    edge.args(["-c", script, "sh", env!("CARGO_BIN_EXE_sidelong"), "edge", "edge1", "--config"]);
    edge.arg(cluster.config()).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let edge = Running::start_command(edge);
    assert_eq!(heard(), "WATCHDOG=1", "it goes on, and has not read all nodes");
    let nodes = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    while heard() != "READY=1" {}
    assert_eq!(heard(), "WATCHDOG=1");
    edge.signal(Signal::TERM);
    while heard() != "STOPPING=1" {}
    edge.finish().succeeded();
    for node in nodes {
        node.end().succeeded();
    }
}

#[test]
fn an_edge_ends_on_sigint_too() {
    let cluster = cluster();
    let nodes = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let edge = cluster.part("edge", "edge1");
    eventually("it serves", || answers(&cluster, "beta"));
    edge.signal(Signal::INT);
    let done = edge.finish();
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    for node in nodes {
        node.signal(Signal::INT);
        node.finish().succeeded();
    }
}

#[test]
fn sighup_does_not_end_up_and_is_logged() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let mut up = cluster.serving(&["--json"]);
    for times in 1..=2 {
        up.signal(Signal::HUP);
        eventually("it says so each time", || up.err().matches("SIGHUP was ignored").count() == times);
    }
    assert!(up.is_running(), "{}", up.err());
    up.end().succeeded();
}

/// Two slow nodes started by hand, an edge with a log, and a client whose request has reached the first node.
fn in_the_middle_of_a_request() -> (Cluster, [Running; 2], Running, Client) {
    let mut cluster = cluster().with_service(Duration::from_millis(700));
    cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
    let nodes = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let edge = cluster.part("edge", "edge1");
    eventually("it serves", || answers(&cluster, "beta"));
    let mut client = Client::connect(cluster.edge(0));
    client.send("GET /o/4711/10 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    let in_flight = "sidelong_edge_node_in_flight{node=\"n1\"}";
    eventually("a request is on its way", || metrics(cluster.admin(0)).get(in_flight) == Some(&1.0));
    // The edge counts it before it has connected. The node's work then takes seven times as long as this.
    std::thread::sleep(Duration::from_millis(100));
    (cluster, nodes, edge, client)
}

#[test]
fn an_edge_finishes_what_was_begun() {
    let (cluster, _nodes, edge, mut client) = in_the_middle_of_a_request();
    edge.signal(Signal::TERM);
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 10), "{reply:?}");
    edge.finish().succeeded();
    assert!(try_get(cluster.edge(0), "alpha.test", "/o/1/10").is_err(), "nobody listens any more");
    let log = std::fs::read_to_string(cluster.path("access.log")).unwrap();
    assert!(log.lines().last().unwrap().contains("\"GET /o/4711/10 HTTP/1.1\" 200 10 alpha n1"), "{log}");
}

#[test]
fn a_node_finishes_what_was_begun() {
    let (_cluster, [node, _other], _edge, mut client) = in_the_middle_of_a_request();
    node.signal(Signal::TERM);
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 10), "{reply:?}");
    node.finish().succeeded();
}

#[test]
fn a_part_whose_parent_is_gone_does_not_start() {
    let cluster = cluster();
    let config = cluster.config();
    let started = |parent: u32| {
        let parent = format!("--with-parent={parent}");
        Running::start(["node", "n1", "--config", config.to_str().unwrap(), &parent])
    };
    let line = started(1).finish().refused();
    assert!(line.contains("the process that started this one has ended"), "{line}");
    let node = started(std::process::id());
    eventually("the node serves", || try_get(cluster.node(0), "any", "/healthz").is_ok());
    node.end().succeeded();
}
