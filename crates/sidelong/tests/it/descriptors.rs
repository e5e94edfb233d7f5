//! Parts that run out of file descriptors go on, say so once, and recover.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sidelong_config::Service;

use crate::support::{Client, Cluster, Running, eventually, get, try_get};

/// More connections than a part has descriptors in these tests.
const CONNECTIONS: usize = 100;
/// More than a part says in such a minute.
const LOG_BYTES_MAX: usize = 8 << 10;

/// One site with a node that takes no time, behind one edge.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.nodes[0].service = Some(Service::None);
    cluster.file.edges.truncate(1);
    cluster
}

/// A part of `cluster` that may never have more than 64 descriptors.
fn with_few_descriptors(cluster: &Cluster, kind: &str, name: &str) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sidelong"), kind, name]);
    command.arg("--config").arg(cluster.config());
    Running::start_command(command)
}

/// One more than the largest of its descriptors.
fn end(pid: Pid) -> u64 {
    let names = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap();
    let numbers = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
    numbers.max().unwrap() + 1
}

/// Lets `part` have so many descriptors from here on.
fn limit(part: &Running, count: u64) {
    let few = Rlimit { current: Some(count), maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(Some(part.pid()), Resource::Nofile, few).unwrap();
}

/// Makes a request on each of more connections than `node` has descriptors, and keeps them all.
fn all_are_served(cluster: &Cluster, node: &Running) {
    let listen = cluster.node(0);
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let mut client = Client::connect(listen);
        let reply =
            client.ask("GET", "alpha.test", "/o/1/10").unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(reply.status, 200, "{number}");
        clients.push(client);
    }
    assert_eq!(get(cluster.node_admin(0), "admin", "/healthz").status, 200);
    let said = node.err();
    assert!(said.len() < LOG_BYTES_MAX && said.matches("WARN cannot accept").count() <= 1, "{said}");
}

#[test]
fn a_node_with_few_descriptors_serves_all_connections() {
    let cluster = cluster();
    let node = with_few_descriptors(&cluster, "node", "n1");
    eventually("it serves", || try_get(cluster.node(0), "a", "/healthz").is_ok());
    all_are_served(&cluster, &node);
}

#[test]
fn a_node_that_has_run_out_of_descriptors_serves_all_connections() {
    let cluster = cluster();
    let node = cluster.part("node", "n1");
    eventually("it serves", || try_get(cluster.node(0), "a", "/healthz").is_ok());
    // Fewer than when it started, so that it cannot have prepared for it.
    limit(&node, node.descriptors() + 16);
    all_are_served(&cluster, &node);
}

/// Whether a request through the edge is answered by the node.
fn is_served(cluster: &Cluster) -> bool {
    try_get(cluster.edge(0), "alpha.test", "/o/1/10").is_ok_and(|reply| reply.status == 200)
}

#[test]
fn an_edge_with_few_descriptors_serves_once_they_are_free() {
    let cluster = cluster();
    let _node = cluster.part("node", "n1");
    let mut edge = with_few_descriptors(&cluster, "edge", "edge1");
    eventually("it serves", || is_served(&cluster));
    let idle: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(cluster.edge(0))).collect();
    eventually("it has no room for another client", || !is_served(&cluster));
    drop(idle);
    eventually("it serves again", || is_served(&cluster));
    // All of several at once, as before.
    let mut clients: Vec<_> = (0..10).map(|_| Client::connect(cluster.edge(0))).collect();
    for client in &mut clients {
        assert_eq!(client.ask("GET", "alpha.test", "/o/1/10").unwrap().status, 200);
    }
    assert!(edge.is_running());
    let said = edge.err();
    assert!(said.len() < LOG_BYTES_MAX && !said.contains("n1"), "{said}");
}

#[test]
fn an_edge_that_has_run_out_of_descriptors_recovers() {
    let cluster = cluster();
    let _node = cluster.part("node", "n1");
    let mut edge = cluster.part("edge", "edge1");
    let serves = || is_served(&cluster);
    eventually("it serves", serves);
    let few = edge.descriptors() + 10;
    limit(&edge, few);
    for _ in 0..2 {
        let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(cluster.edge(0))).collect();
        eventually("it has no descriptor left", || edge.descriptors() >= few);
        // Those that were accepted find no descriptor to the node.
        for client in &mut idle {
            client.send("GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
        }
        drop(idle);
        eventually("it serves again", serves);
    }
    assert!(edge.is_running());
    let said = edge.err();
    assert!(said.len() < LOG_BYTES_MAX, "{said}");
    assert!(!said.contains("n1"), "the node is not to blame: {said}");
}

#[test]
fn idle_connections_to_servers_make_room_for_clients() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_service(Duration::from_millis(100));
    cluster.file.edges.truncate(1);
    cluster.file.edges[0].threads = 2;
    let _nodes = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let edge = cluster.part("edge", "edge1");
    // No thread has a connection to the server of the other site yet.
    eventually("it serves", || {
        let is_ok = |address, host, path| try_get(address, host, path).is_ok_and(|reply| reply.status == 200);
        is_ok(cluster.node(0), "a", "/healthz") && is_ok(cluster.edge(0), "beta.test", "/o/1/10")
    });
    let without = edge.descriptors();
    let keep_idle_connections = || {
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect(cluster.edge(0))).collect();
        for client in &mut clients {
            client.send("GET /o/1/10 HTTP/1.1\r\nhost: beta.test\r\n\r\n").unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.reply(true).unwrap().status, 200);
        }
        drop(clients);
        // Ten of each thread, of which one may be there already.
        let with = without + 18..=without + 20;
        eventually("only connections to the server are left", || with.contains(&edge.descriptors()));
    };
    // Clients take all numbers below the largest, and there is no larger one.
    let fill = || {
        let mut clients = Vec::new();
        while edge.descriptors() < end(edge.pid()) {
            let before = edge.descriptors();
            clients.push(Client::connect(cluster.edge(0)));
            eventually("it is accepted", || edge.descriptors() > before);
        }
        limit(&edge, end(edge.pid()));
        clients
    };
    let began = Instant::now();

    keep_idle_connections();
    let mut client = Client::connect(cluster.edge(0));
    let others = fill();
    eventually("a client is served", || client.ask("GET", "alpha.test", "/o/1/10").unwrap().status == 200);
    drop((client, others));
    limit(&edge, 1000);

    keep_idle_connections();
    let _others = fill();
    // What one thread keeps is not enough for these.
    let _more: Vec<_> = (0..14).map(|_| Client::connect(cluster.edge(0))).collect();
    eventually("another client is served", || is_served(&cluster));

    // By then the connections would have been closed anyway.
    assert!(began.elapsed() < Duration::from_secs(60));
}
