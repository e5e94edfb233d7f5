//! What an edge and a node hold after many requests and moves, and an edge while thousands of clients do nothing or almost nothing.
//! Memory and descriptors are those of the process, as /proc tells. `churn` looks at the same after many joins.
//!
//! `cargo xtask ci endurance` runs these in release. They print what they measure.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sidelong_config::{NodeEntry, Service};

use crate::support::{
    Client, Cluster, PATIENCE, Running, eventually, get, may_open, metrics, try_get, until_it_succeeds,
};

/// Requests in all, of which a tenth have passed before memory is looked at for the first time.
const REQUESTS: u64 = 100_000_000;
/// Moves in all; memory is looked at for the first time after a tenth of them.
const MOVES: u64 = 10_000;
/// Clients, and requests that each sends at a time.
const CLIENTS: u64 = 32;
const PIPELINED: u64 = 16;
/// Clients that hold connections: with 20,000 descriptors an edge takes 10,000, of which some are for others.
const MANY: usize = 9_900;
/// Clients that do not read their answers. Each has some 100 KB of it in the kernel's buffers, which are not the edge's.
const SLOW: usize = 1_000;

/// An edge before a node that answers at once.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let node = cluster.file.nodes.remove(0);
    cluster.file.nodes.push(NodeEntry { service: Some(Service::None), workers: Some(64), ..node });
    cluster.file.limits.connections_max = 2 * MANY as u32;
    cluster
}

fn serves(cluster: &Cluster) {
    eventually("the site answers", || try_get(cluster.edge(0), "alpha.test", "/o/1/10").is_ok());
}

/// Sends requests, several at a time, until `left` of all clients are.
fn ask(address: SocketAddr, left: &AtomicU64) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let requests = "GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\n\r\n".repeat(PIPELINED as usize);
    let mut answers = vec![0; 64 << 10];
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(PIPELINED)).is_ok()
    {
        stream.write_all(requests.as_bytes())?;
        let (mut answered, mut kept) = (0, 0);
        while answered < PIPELINED {
            let count = stream.read(&mut answers[kept..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The head of an answer may come in two pieces, of which the first ends within the mark.
            let bytes = &answers[..kept + count];
            let mark = b"HTTP/1.1 200 OK\r\n";
            let starts = bytes.windows(mark.len()).filter(|window| window == mark).count();
            answered += starts as u64;
            let rest = bytes.len().min(mark.len() - 1);
            answers.copy_within(kept + count - rest..kept + count, 0);
            kept = rest;
        }
    }
    Ok(())
}

fn ask_for(cluster: &Cluster, requests: u64) {
    let left = AtomicU64::new(requests);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(cluster.edge(0), &left))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
    });
}

/// Does it so many times, and sees that the parts then hold what they held after a tenth of that, within 2 %.
fn leaves_nothing_behind(parts: &[&Running], times: u64, work: impl Fn(u64)) {
    let held = || parts.iter().map(|part| (part.resident_bytes(), part.descriptors())).collect::<Vec<_>>();
    work(times / 10);
    let before = held();
    work(times - times / 10);
    let after = held();
    println!("bytes and descriptors after a tenth of {times}: {before:?}, after all: {after:?}");
    for (before, after) in before.iter().zip(&after) {
        assert!(after.0 <= before.0 + before.0 / 50, "{before:?} {after:?}");
        assert!(after.1 <= before.1 + 2 * CLIENTS, "{before:?} {after:?}");
    }
}

#[test]
#[ignore = "a hundred million requests; `cargo xtask ci endurance` runs it"]
fn a_hundred_million_requests_leave_nothing_behind() {
    let cluster = cluster();
    let (node, edge) = (cluster.part("node", "n1"), cluster.part("edge", "edge1"));
    serves(&cluster);
    leaves_nothing_behind(&[&node, &edge], REQUESTS, |requests| ask_for(&cluster, requests));
    let served = metrics(cluster.admin(0))["sidelong_edge_requests_total{site=\"alpha\",code=\"2xx\"}"];
    assert!(served >= REQUESTS as f64, "{served}");
    [node, edge].into_iter().for_each(|part| drop(part.end().succeeded()));
}

#[test]
#[ignore = "ten thousand moves; `cargo xtask ci endurance` runs it"]
fn ten_thousand_moves_leave_nothing_behind() {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let nodes = ["n1", "n2", "n3"].map(|name| cluster.part("node", name));
    let edge = cluster.part("edge", "edge1");
    serves(&cluster);
    let moves = |count| {
        for site in ["beta", "alpha"].into_iter().cycle().take(count as usize) {
            until_it_succeeds(|| cluster.run(&["move", "n1", site]));
        }
    };
    leaves_nothing_behind(&[&nodes[0], &edge], MOVES, moves);
    nodes.into_iter().chain([edge]).for_each(|part| drop(part.end().succeeded()));
}

/// Bytes of memory that each of `count` clients costs a new edge, as `begin` makes them, while others are served. Then the clients leave,
/// or wait until they are `let_go`.
fn cost_of(count: usize, let_go: bool, begin: impl Fn(&mut Client)) -> u64 {
    let mut cluster = cluster();
    cluster.file.limits.client_header_timeout = Duration::from_secs(30);
    cluster.file.limits.idle_timeout = Duration::from_secs(600);
    let (_node, edge) = (cluster.part("node", "n1"), cluster.part("edge", "edge1"));
    serves(&cluster);
    let (few, before) = (edge.descriptors() + 16, edge.resident_bytes());
    let connect = |_| {
        let mut client = Client::connect(cluster.edge(0));
        begin(&mut client);
        client
    };
    let mut held: Vec<_> = (0..count).map(connect).collect();
    eventually("it has them all", || edge.descriptors() >= count as u64);
    // What was sent last is taken in meanwhile.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/10").status, 200, "others are served");
    let cost = edge.resident_bytes().saturating_sub(before) / count as u64;
    if !let_go {
        held.clear();
    }
    eventually("they are gone", || edge.descriptors() < few);
    let refused = metrics(cluster.admin(0))["sidelong_edge_refused_total{reason=\"too-slow\"}"];
    assert_eq!(refused, if let_go { count as f64 } else { 0.0 });
    edge.end().succeeded();
    cost
}

#[test]
#[ignore = "thousands of connections; `cargo xtask ci endurance` runs it"]
fn clients_that_do_little_cost_little_and_are_let_go() {
    // An edge takes clients for half of its own.
    if !may_open(2 * MANY as u64 + 100) {
        return;
    }
    let idle = cost_of(MANY, false, |client| {
        assert_eq!(client.ask("GET", "alpha.test", "/o/1/10").unwrap().status, 200);
    });
    let slow = cost_of(MANY, true, |client| client.send("GET / HTTP/1.1\r\nhost: al").unwrap());
    let unread = cost_of(SLOW, false, |client| {
        client.send("GET /o/1/4000000 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    });
    println!(
        "bytes for each connection: idle {idle}, with half a head {slow}, with an answer that is not read {unread}"
    );
    // The first have no buffer, the second a small one, and the last a whole one.
    assert!(idle <= 8 << 10, "{idle}");
    assert!(slow <= 8 << 10, "{slow}");
    assert!(unread <= 160 << 10, "{unread}");
}
