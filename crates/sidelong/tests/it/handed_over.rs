//! An edge whose socket belongs to whoever starts it, as systemd does (sd_listen_fds(3)): the socket outlives it, and clients wait
//! in it for the next one. And an edge that takes over from another process, which ends once its clients have left.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use sidelong_testing::machines::{FABRIC, Machines, SECRET, write_secret};

use crate::support::{
    Client, Cluster, Done, Running, SteadyLoad, eventually, number, run, try_get, until_it_succeeds,
};

/// How often an edge is taken over, if SIDELONG_ROUNDS does not say otherwise.
const ROUNDS: u64 = 5;

/// The edge of a cluster, with `socket` as its third descriptor. A shell knows the process ID that systemd would tell it.
fn edge(cluster: &Cluster, socket: &TcpListener) -> Running {
    let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_sidelong"), "edge", "edge1", "--config"]);
    command.arg(cluster.config());
    Running::start_with(command, OwnedFd::from(socket.try_clone().unwrap()))
}

#[test]
fn no_client_is_rejected_while_one_edge_takes_over_from_another() {
    let mut cluster = Cluster::new(&[("alpha", 1)]).with_service(Duration::from_millis(100));
    cluster.file.nodes[0].workers = Some(8);
    cluster.file.edges[0].threads = 2;
    cluster.file.edges.truncate(1);
    let socket = TcpListener::bind(cluster.edge(0)).unwrap();
    let _node = cluster.part("node", "n1");
    let first = edge(&cluster, &socket);
    eventually("it serves", || {
        try_get(cluster.edge(0), "alpha.test", "/o/1/10").is_ok_and(|reply| reply.status == 200)
    });

    let (stop, served, cut) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let mut running = std::thread::scope(|scope| {
        let mut running = first;
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match try_get(cluster.edge(0), "alpha.test", "/o/1/10") {
                        Ok(reply) => assert_eq!(reply.status, 200),
                        // It was connected and had said nothing yet, for longer than an edge waits at its end.
                        Err(error) => {
                            assert_ne!(error.kind(), ErrorKind::ConnectionRefused);
                            cut.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..3 {
            let before = served.load(Ordering::Relaxed);
            eventually("requests are served", || served.load(Ordering::Relaxed) > before + 20);
            running.signal(Signal::TERM);
            running.finish().succeeded();
            running = edge(&cluster, &socket);
        }
        stop.store(true, Ordering::Relaxed);
        running
    });

    let cut = cut.into_inner();
    assert!(cut <= 3, "{cut} requests were cut");

    // Nobody serves, and yet a client is not refused.
    running.signal(Signal::KILL);
    eventually("it is dead", || !running.is_running());
    let mut waits = Client::connect(cluster.edge(0));
    waits.send("GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    let next = edge(&cluster, &socket);
    assert_eq!(waits.reply(true).unwrap().status, 200);
    drop(waits);
    next.end().succeeded();

    let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let expected = format!(
        "edge edge1: LISTEN_FDS hands over others; expected a listening TCP socket at {}",
        cluster.edge(0)
    );
    assert_eq!(edge(&cluster, &other).finish().refused(), expected);
}

/// Another process that takes over `edge1`, once it has.
fn successor(cluster: &Cluster) -> Running {
    taking_over(cluster.start(&["edge", "edge1", "--takeover", "--events"]))
}

fn taking_over(edge: Running) -> Running {
    eventually("it has taken over", || edge.out().contains("{\"event\":\"ready\"}"));
    edge
}

/// Requests whose servers answer once the client has sent the rest.
fn begun(cluster: &Cluster, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(cluster.edge(0))).collect();
    for client in &mut clients {
        client.send("GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 4\r\n\r\n12").unwrap();
    }
    eventually("they are at work", || {
        cluster.file.nodes.iter().map(|node| in_flight(cluster, &node.name)).sum::<f64>() >= count as f64
    });
    clients
}

/// The edge's requests at a node.
fn in_flight(cluster: &Cluster, node: &str) -> f64 {
    cluster.figure(0, &format!("node_in_flight{{node=\"{node}\"}}")).unwrap_or(0.0)
}

fn end(clients: Vec<Client>) {
    for mut client in clients {
        client.send("34").unwrap();
        assert_eq!(client.reply(true).unwrap().status, 200);
    }
}

fn serves(cluster: &Cluster, edge: usize, host: &str) {
    eventually("it serves", || {
        try_get(cluster.edge(edge), host, "/o/1/10").is_ok_and(|reply| reply.status == 200)
    });
}

/// An edge that nobody runs any more ends well.
fn ends(mut edge: Running) {
    eventually("the one before has ended", || !edge.is_running());
    edge.finish().succeeded();
}

/// Has `edge1` taken over again and again while `n2` moves, and clients of both edges keep their connections.
fn again_and_again(
    cluster: &Cluster,
    edge: Running,
    next: impl Fn() -> Running,
    command: impl Fn(&[&str]) -> Done,
) -> Running {
    for edge in 0..cluster.file.edges.len() {
        ["alpha.test", "beta.test"].iter().for_each(|host| serves(cluster, edge, host));
    }
    let load = SteadyLoad::start(cluster);
    let last = (0..number("SIDELONG_ROUNDS", ROUNDS)).fold(edge, |edge, round| {
        let next = next();
        let site = if round % 2 == 0 { "beta" } else { "alpha" };
        until_it_succeeds(|| command(&["move", "n2", site]));
        ends(edge);
        next
    });
    assert_eq!(load.end(), Vec::<String>::new());
    last
}

#[test]
fn an_edge_is_taken_over_again_and_again_while_nodes_move_and_no_request_is_lost() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]);
    let nodes = ["n1", "n2", "n3", "n4"].map(|node| cluster.part("node", node));
    let [edge, other] = ["edge1", "edge2"].map(|edge| cluster.part("edge", edge));
    let edge = again_and_again(&cluster, edge, || successor(&cluster), |words| cluster.run(words));
    for part in [edge, other].into_iter().chain(nodes) {
        part.end().succeeded();
    }
}

#[test]
fn nodes_wait_for_the_requests_of_the_process_before_and_both_go_by_a_changed_file() {
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.edges.truncate(1);
    cluster.file.sites[0].floor = 1;
    cluster.file.reconfig.drain_max = Duration::from_millis(300);
    let nodes = ["n1", "n2"].map(|node| cluster.part("node", node));
    let mut edge = cluster.part("edge", "edge1");
    serves(&cluster, 0, "alpha.test");
    let clients = begun(&cluster, 2);
    // On a busy machine both may be at one node.
    let busy = ["n1", "n2"].into_iter().find(|node| in_flight(&cluster, node) > 0.0).unwrap();
    let next = successor(&cluster);
    assert!(edge.is_running(), "its clients wait for answers");
    cluster.run(&["drain", busy]).refused();
    cluster.file.sites[0].hosts.push("other.test".into());
    cluster.run(&["reload"]).succeeded();
    serves(&cluster, 0, "other.test");
    cluster.run(&["drain", busy]).refused();
    assert!(edge.is_running(), "it goes by the file, too");
    end(clients);
    ends(edge);
    until_it_succeeds(|| cluster.run(&["drain", busy]));
    for part in [next].into_iter().chain(nodes) {
        part.end().succeeded();
    }
}

#[test]
fn a_third_process_has_the_first_end_and_one_that_is_killed_takes_the_one_before_with_it() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let node = cluster.part("node", "n1");
    let mut first = cluster.part("edge", "edge1");
    serves(&cluster, 0, "alpha.test");
    let clients = begun(&cluster, 1);
    let mut second = successor(&cluster);
    let third = cluster.start(&["edge", "edge1", "--takeover", "--events"]);
    serves(&cluster, 0, "alpha.test");
    assert!(first.is_running() && second.is_running(), "the third waits");
    end(clients);
    ends(first);
    let mut third = taking_over(third);
    ends(second);

    let _waits = begun(&cluster, 1);
    let mut fourth = successor(&cluster);
    fourth.signal(Signal::KILL);
    eventually("both are dead", || !fourth.is_running() && !third.is_running());
    // Who starts it again finds nothing that is in use.
    let again = successor(&cluster);
    serves(&cluster, 0, "alpha.test");
    for part in [again, node] {
        part.end().succeeded();
    }
}

#[test]
fn one_that_cannot_start_takes_nothing_over() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let node = cluster.part("node", "n1");
    // Nobody runs it yet.
    let edge = successor(&cluster);
    serves(&cluster, 0, "alpha.test");
    cluster.part("edge", "edge1").finish().refused();
    // What restarts edges after an upgrade goes by the exit code.
    let fabric = cluster.start(&["edge", "edge1", "--takeover", "--fabric", "tcp"]).finish();
    assert!(fabric.code == Some(3) && fabric.err.contains("goes by another file"), "{fabric:?}");
    serves(&cluster, 0, "alpha.test");
    for part in [edge, node] {
        part.end().succeeded();
    }
}

#[test]
fn on_several_machines_as_well() {
    let mut machines = Machines::of(&[("alpha", 2), ("beta", 2)], 2);
    for (edge, port) in machines.cluster.file.edges.iter_mut().zip(FABRIC + 10..) {
        edge.fabric_listen = Some(SocketAddr::new(edge.listen.ip(), port));
    }
    let whole = machines.whole();
    write_secret(&machines.cluster.path("secret"), SECRET);
    let nodes = ["n1", "n2", "n3", "n4"].map(|node| machines.part("node", node));
    let [edge, other] = ["edge1", "edge2"].map(|edge| machines.part("edge", edge));
    let next = || taking_over(machines.part_with(SECRET, "edge", "edge1", &["--takeover", "--events"]));
    let command = |words: &[&str]| run([words, &["--config", whole.to_str().unwrap()]].concat());
    let edge = again_and_again(&machines.cluster, edge, next, command);
    for part in [edge, other].into_iter().chain(nodes) {
        part.end().succeeded();
    }
}
