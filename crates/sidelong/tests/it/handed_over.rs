//! An edge whose socket belongs to whoever starts it, as systemd does (sd_listen_fds(3)): the socket outlives it, and clients wait
//! in it for the next one.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Client, Cluster, Running, eventually, try_get};

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
