//! Nodes whose servers listen at Unix sockets: nginx and gunicorn, unmodified.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;

use sidelong_testing::foreign::{Draining, answers, at_sockets, foreign, learned, server, socket};
use sidelong_testing::servers::{gunicorn, nginx, nginx_over_http2, signal_all};
use sidelong_testing::{eventually, get, metrics, try_get};

#[test]
fn an_edge_routes_to_servers_at_unix_sockets_that_go_and_come_back() {
    let cluster = at_sockets(foreign(&[("alpha", 2)]));
    let Some(_one) = nginx(&cluster, "one", server(&cluster, 0)) else { return };
    let Some(two) = gunicorn(&cluster, "two", server(&cluster, 1), 1) else { return };
    let _agents = [cluster.here("node", "n1"), cluster.here("node", "n2")];
    let _edge = cluster.here("edge", "edge1");
    let serves = || {
        for _ in 0..50 {
            assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
        }
    };
    answers(&cluster, "alpha", "one");
    answers(&cluster, "alpha", "two");
    serves();
    // Its socket's file stays, and nobody listens there.
    signal_all(&two, Signal::KILL);
    two.finish();
    assert!(socket(&cluster, 1).exists());
    serves();
    let three = gunicorn(&cluster, "three", server(&cluster, 1), 1).unwrap();
    answers(&cluster, "alpha", "three");
    serves();
    // It removes the file as it ends.
    three.end().succeeded();
    assert!(!socket(&cluster, 1).exists());
    serves();
    std::fs::write(socket(&cluster, 1), "no socket").unwrap();
    serves();
    std::fs::remove_file(socket(&cluster, 1)).unwrap();
    std::fs::create_dir(socket(&cluster, 1)).unwrap();
    serves();
    std::fs::remove_dir(socket(&cluster, 1)).unwrap();
    let Some(_four) = nginx(&cluster, "four", server(&cluster, 1)) else { return };
    answers(&cluster, "alpha", "four");
}

#[test]
fn an_edge_speaks_http2_to_a_server_at_a_unix_socket() {
    let mut cluster = at_sockets(foreign(&[("alpha", 1)]));
    cluster.file.nodes[0].http2 = true;
    let files = cluster.path("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("index.html"), "home").unwrap();
    let Some(_server) = nginx_over_http2(&cluster, server(&cluster, 0), &files) else { return };
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    answers(&cluster, "alpha", "home");
    for _ in 0..20 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").body, "home");
    }
}

#[test]
fn a_server_at_a_unix_socket_has_done_with_a_site_when_it_takes_up_another() {
    let draining = Draining::start_gunicorn(at_sockets(Draining::cluster()));
    draining.into_iter().for_each(Draining::go_to_and_fro);
}

#[test]
fn the_workers_of_a_server_at_a_unix_socket_are_learned() {
    let cluster = at_sockets(foreign(&[("alpha", 1)]));
    let Some(_server) = gunicorn(&cluster, "one", server(&cluster, 0), 4) else { return };
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    answers(&cluster, "alpha", "one");
    learned(&cluster, 12, Duration::from_millis(20), |found| (4.0 / 1.5..=4.0 * 1.5).contains(&found));
}

/// Over TCP the kernel lets a client wait. Here it is told at once that there is no room.
#[test]
fn a_request_waits_for_a_full_accept_queue() {
    let mut cluster = at_sockets(foreign(&[("alpha", 1)]));
    cluster.file.limits.connect_timeout = Duration::from_secs(60);
    let address = SocketAddrUnix::new(socket(&cluster, 0)).unwrap();
    let stream =
        |flags| rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listening = stream(SocketFlags::CLOEXEC);
    rustix::net::bind(&listening, &address).unwrap();
    rustix::net::listen(&listening, 1).unwrap();
    let mut clients = Vec::new();
    loop {
        let client = stream(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        match rustix::net::connect(&client, &address) {
            Ok(()) => clients.push(client),
            Err(error) => break assert_eq!(error, rustix::io::Errno::AGAIN),
        }
    }
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    let edge = cluster.edge(0);
    eventually("the edge is up", || std::net::TcpStream::connect(edge).is_ok());
    eventually("it knows the node", || {
        try_get(cluster.admin(0), "any", "/readyz").is_ok_and(|reply| reply.status == 200)
    });
    let asked = std::thread::spawn(move || get(edge, "alpha.test", "/").status);
    eventually("the request is at the node", || {
        metrics(cluster.admin(0)).get("sidelong_edge_node_in_flight{node=\"n1\"}") == Some(&1.0)
    });
    assert!(!asked.is_finished());
    let listening = UnixListener::from(listening);
    for _ in 0..=clients.len() {
        use std::io::Write as _;
        let (mut accepted, _) = listening.accept().unwrap();
        let _ = accepted.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        // Those of this test's own clients say nothing.
        let _ = accepted.shutdown(std::net::Shutdown::Write);
    }
    assert_eq!(asked.join().unwrap(), 200);
}
