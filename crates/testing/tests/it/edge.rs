//! How an edge treats requests, valid and invalid ones, over real sockets.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_config::Service;

use sidelong_testing::{Client, Cluster, Here, PATIENCE, eventually, get, metrics, read_head, try_get};
use sidelong_trace::{Reader, Trace};

/// Two sites of two nodes each whose requests take no time, behind one edge with an access log.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]);
    for node in &mut cluster.file.nodes {
        node.service = Some(Service::None);
    }
    cluster.file.edges.truncate(1);
    cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
    cluster
}

/// The cluster that most tests need, and a client of its edge.
fn served(change: impl FnOnce(&mut Cluster)) -> (Cluster, Vec<Here>, Client) {
    let mut cluster = cluster();
    change(&mut cluster);
    let up = cluster.serving_here();
    let client = Client::connect(cluster.edge(0));
    (cluster, up, client)
}

#[test]
fn requests_go_to_their_hosts_site() {
    let (cluster, _up, mut client) = served(|cluster| {
        cluster.file.sites[1].hosts.push("www.beta.test".into());
    });
    let port = cluster.edge(0).port();
    let hosts = [
        ("alpha.test", ["n1", "n2"]),
        ("ALPHA.Test", ["n1", "n2"]),
        (&format!("alpha.test:{port}"), ["n1", "n2"]),
        ("beta.test", ["n3", "n4"]),
        ("www.beta.test", ["n3", "n4"]),
    ];
    for (host, nodes) in hosts {
        for _ in 0..8 {
            let reply = client.ask("GET", host, "/o/7/100").unwrap();
            assert_eq!((reply.status, reply.body.len()), (200, 100), "{host}: {reply:?}");
            assert!(nodes.contains(&reply.node()), "{host}: {reply:?}");
        }
    }
    let reply = client.ask("GET", "beta.test", "http://beta.test/o/7/100").unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 100), "as to a proxy: {reply:?}");
    // Two hosts in one request are a known attack.
    assert_eq!(client.ask("GET", "alpha.test", "http://beta.test/o/7/100").unwrap().status, 400);
}

#[test]
fn a_host_of_no_site_is_misdirected() {
    let (_cluster, _up, mut client) = served(|_| ());
    for host in ["gamma.test", "", "alpha.test.gamma.test", "127.0.0.1", "[::1]:80"] {
        let reply = client.ask("GET", host, "/").unwrap();
        assert_eq!(reply.status, 421, "{host:?}: {reply:?}");
        assert!(reply.header("content-type").unwrap().starts_with("text/plain"), "{reply:?}");
        assert!(reply.body.contains("no site of this cluster has that Host"), "{reply:?}");
    }
    assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200, "on the same connection");
}

#[test]
fn many_misdirected_requests_add_up_to_nothing() {
    let (_cluster, _up, mut client) = served(|cluster| {
        cluster.file.limits.header_bytes_max = 1024;
        cluster.file.limits.client_header_timeout = Duration::from_millis(300);
    });
    // More headers and more time than one request may take.
    for _ in 0..4 {
        for _ in 0..20 {
            assert_eq!(client.ask("GET", "gamma.test", &"/long".repeat(20)).unwrap().status, 421);
        }
        std::thread::sleep(Duration::from_millis(400));
    }
    assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
}

#[test]
fn connections_that_nobody_uses_are_closed() {
    let (_cluster, _up, mut client) =
        served(|cluster| cluster.file.limits.idle_timeout = Duration::from_secs(1));
    assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
    assert_eq!(client.rest(), "");
}

/// Whatever it has sent: nothing, a part of HTTP/2's preface, or all of it and no settings.
#[test]
fn who_begins_with_nothing_is_let_go() {
    let (cluster, _up, _client) = served(|cluster| {
        cluster.file.limits.client_header_timeout = Duration::from_secs(1);
        cluster.file.limits.idle_timeout = Duration::from_secs(1);
    });
    let begin = |sent: &str| {
        let mut client = Client::connect(cluster.edge(0));
        client.send(sent).unwrap();
        client
    };
    let silent = ["", "PRI * HTTP/2.0\r\n\r\nS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].map(begin);
    for mut client in silent {
        client.rest();
    }
    assert_eq!(metrics(cluster.admin(0))[r#"sidelong_edge_refused_total{reason="too-slow"}"#], 1.0);
}

#[test]
fn headers_are_bounded() {
    let (cluster, _up, mut client) = served(|cluster| cluster.file.limits.header_bytes_max = 4096);
    let fits = "x".repeat(3500);
    let request =
        |padding: &str| format!("GET /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\nx-pad: {padding}\r\n\r\n");
    client.send(request(&fits)).unwrap();
    assert_eq!(client.reply(true).unwrap().status, 200);
    // The limit is per request, not per connection.
    client.send(request(&fits)).unwrap();
    assert_eq!(client.reply(true).unwrap().status, 200);

    for bytes in [5_000, 64 << 10, 4 << 20] {
        let mut client = Client::connect(cluster.edge(0));
        // The edge need not read it to the end.
        let _ = client.send(request(&"x".repeat(bytes)));
        let answer = client.rest();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{bytes}: {answer:?}");
    }
    let mut client = Client::connect(cluster.edge(0));
    let many = (0..1000).map(|k| format!("x-{k}: y\r\n")).collect::<String>();
    let _ = client.send(format!("GET / HTTP/1.1\r\nhost: alpha.test\r\n{many}\r\n"));
    let answer = client.rest();
    // The limit of 256 of them is reached before that many bytes.
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1").status, 200, "nobody else notices");
}

/// Sends `begin`, then piece after piece without a long pause, until the server ends the connection; returns its last
/// answer.
fn dribble(cluster: &Cluster, begin: &str, piece: &str) -> String {
    let mut client = Client::connect(cluster.edge(0));
    client.send(begin).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while client.send(piece).is_ok() {
        assert!(Instant::now() < deadline, "it may dribble for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.rest()
}

#[test]
fn who_dribbles_a_header_is_cut_off() {
    let (cluster, _up, mut client) =
        served(|cluster| cluster.file.limits.client_header_timeout = Duration::from_millis(300));
    let words = dribble(&cluster, "GET /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\n", "x-slow: y\r\n");
    assert!(words.is_empty() || words.starts_with("HTTP/1.1 408 "), "{words:?}");
    let words = dribble(&cluster, "GET /", "x");
    assert!(words.is_empty() || words.starts_with("HTTP/1.1 408 "), "{words:?}");
    // A client that sends nothing more gets the answer, too.
    let mut silent = Client::connect(cluster.edge(0));
    silent.send("GET /o/1/1 HTTP/1.1\r\nhost:").unwrap();
    let words = silent.rest();
    assert!(words.starts_with("HTTP/1.1 408 "), "{words:?}");
    assert_eq!(metrics(cluster.admin(0))[r#"sidelong_edge_refused_total{reason="too-slow"}"#], 3.0);
    // A connection without a new request stays open.
    assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
}

#[test]
fn who_dribbles_a_body_is_cut_off() {
    let (cluster, _up, _client) =
        served(|cluster| cluster.file.limits.client_body_timeout = Duration::from_millis(300));
    let head = "POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 100000\r\n\r\n";
    let words = dribble(&cluster, head, "x");
    assert!(words.is_empty() || words.starts_with("HTTP/1.1 408 "), "{words:?}");
    let head = "POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ntransfer-encoding: chunked\r\n\r\n";
    let words = dribble(&cluster, head, "1\r\nx\r\n");
    assert!(words.is_empty() || words.starts_with("HTTP/1.1 408 "), "{words:?}");
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1").status, 200);
}

/// A server that begins to read a body only after `late`, and answers a request for `/held` once it may `go`.
fn serve_late(mut stream: TcpStream, late: Duration, go: &AtomicBool) -> Option<()> {
    loop {
        let head = read_head(&mut stream).ok()?;
        if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
            std::thread::sleep(late);
            stream.read_exact(&mut vec![0; length.parse().ok()?]).ok()?;
        }
        while head.contains("/held") && !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// A site of one such server behind an edge.
fn served_late(late: Duration, change: impl FnOnce(&mut Cluster)) -> (Cluster, [Here; 2], Arc<AtomicBool>) {
    let mut cluster = Cluster::new(&[("alpha", 1)]).foreign();
    cluster.file.edges.truncate(1);
    change(&mut cluster);
    let (listener, go) = (TcpListener::bind(cluster.node(0)).unwrap(), Arc::<AtomicBool>::default());
    let may_go = Arc::clone(&go);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let go = Arc::clone(&may_go);
            std::thread::spawn(move || serve_late(stream, late, &go));
        }
    });
    let parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    eventually("it is served", || {
        try_get(cluster.edge(0), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });
    (cluster, parts, go)
}

/// Requests in flight are answered. HTTP/1 says Connection: close with the answer, HTTP/2 sends GOAWAY.
#[test]
fn an_edge_that_ends_says_so_to_clients_that_stay() {
    let (cluster, [_node, edge], go) = served_late(Duration::ZERO, |_| ());
    let mut client = Client::connect(cluster.edge(0));
    client.send("GET /held HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    let over_h2 = async {
        let stream = tokio::net::TcpStream::connect(cluster.edge(0)).await.unwrap();
        let (mut h2, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://alpha.test/held").body(()).unwrap();
        let (answer, _) = h2.send_request(request, true).unwrap();
        let answer = tokio::spawn(answer);
        tokio::task::spawn_blocking({
            let (admin, shutdown) = (cluster.admin(0), edge.shutdown());
            move || {
                let in_flight = || metrics(admin)["sidelong_edge_node_in_flight{node=\"n1\"}"];
                eventually("both are at the server", || in_flight() == 2.0);
                shutdown.finish();
                eventually("the edge is to end", || {
                    !try_get(admin, "any", "/readyz").is_ok_and(|reply| reply.status == 200)
                });
                go.store(true, Ordering::Relaxed);
            }
        })
        .await
        .unwrap();
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
        loop {
            match h2.ready().await {
                Ok(ready) => h2 = ready,
                Err(error) => break assert!(error.is_go_away() && error.is_remote(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, over_h2).await.unwrap() });
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{reply:?}");
    assert_eq!(client.rest(), "");
    edge.end();
}

/// The client has sent as much as there was room for.
#[test]
fn a_server_that_takes_a_body_late_does_not_make_the_client_late() {
    const LIMIT: Duration = Duration::from_secs(2);
    // More than all buffers on the way.
    const BYTES: usize = 16 << 20;
    let (cluster, _parts, _) = served_late(3 * LIMIT, |cluster| {
        let limits = &mut cluster.file.limits;
        (limits.client_body_timeout, limits.response_timeout) = (LIMIT, PATIENCE);
        limits.body_bytes_max = BYTES as u64;
    });
    let mut client = Client::connect(cluster.edge(0));
    client.send(format!("POST / HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: {BYTES}\r\n\r\n")).unwrap();
    // Once this much is gone the server has begun to read, and what is left of the time is the client's.
    client.send(vec![b'x'; BYTES - 1]).unwrap();
    std::thread::sleep(LIMIT / 10);
    client.send("x").unwrap();
    assert_eq!(client.reply(true).unwrap().status, 200);
}

#[test]
fn who_does_not_read_is_let_go_and_his_node_is_not_blamed() {
    let (cluster, _up, _client) =
        served(|cluster| cluster.file.limits.response_timeout = Duration::from_secs(1));
    let mut silent: Vec<_> = (0..20).map(|_| Client::connect(cluster.edge(0))).collect();
    for client in &mut silent {
        client.send("GET /o/1/50000000 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    }
    let in_flight = |metrics: &std::collections::BTreeMap<String, f64>| {
        (1..=4).map(|k| metrics[&format!("sidelong_edge_node_in_flight{{node=\"n{k}\"}}")]).sum::<f64>()
    };
    eventually("they are served", || in_flight(&metrics(cluster.admin(0))) > 0.0);
    eventually("they are let go", || in_flight(&metrics(cluster.admin(0))) == 0.0);
    let up = metrics(cluster.admin(0));
    assert!((1..=4).all(|k| up[&format!("sidelong_edge_node_up{{node=\"n{k}\"}}")] == 1.0), "{up:?}");
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1").status, 200);
}

#[test]
fn bodies_are_bounded() {
    let (cluster, _up, mut client) = served(|cluster| cluster.file.limits.body_bytes_max = 10_000);
    let post = |bytes: usize| {
        let body = "x".repeat(bytes);
        format!("POST /o/1/5 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: {bytes}\r\n\r\n{body}")
    };
    client.send(post(10_000)).unwrap();
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 5), "{reply:?}");

    let mut client = Client::connect(cluster.edge(0));
    client.send(post(10_001)).unwrap();
    assert_eq!(client.reply(true).unwrap().status, 413);

    // A body of unannounced length.
    let mut client = Client::connect(cluster.edge(0));
    client.send("POST /o/1/5 HTTP/1.1\r\nhost: alpha.test\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    for _ in 0..4 {
        let _ = client.send(&chunk);
    }
    assert_eq!(client.reply(true).unwrap().status, 413);
    assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1").status, 200, "its node is not blamed");
    let up = metrics(cluster.admin(0));
    assert!((1..=4).all(|k| up[&format!("sidelong_edge_node_up{{node=\"n{k}\"}}")] == 1.0), "{up:?}");
}

#[test]
fn a_connection_carries_many_requests() {
    let (_cluster, _up, mut client) = served(|_| ());
    for bytes in [10, 0, 100_000, 1] {
        let reply = client.ask("GET", "alpha.test", &format!("/o/1/{bytes}")).unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, bytes), "{}", reply.head);
    }
    // A HEAD has no body to wait for, though its length is given.
    let reply = client.ask("HEAD", "alpha.test", "/o/1/77").unwrap();
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("77")), "{reply:?}");
    let reply = client.ask("GET", "beta.test", "/o/1/5").unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 5), "{reply:?}");

    client.send("POST /o/1/3 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 4\r\n\r\nbody").unwrap();
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, 3), "{reply:?}");
    let reply = client.ask("GET", "beta.test", "/nowhere").unwrap();
    assert_eq!(reply.status, 404, "a server's own answer: {reply:?}");
    assert_eq!(client.ask("GET", "beta.test", "/o/1/5").unwrap().status, 200);
}

#[test]
fn requests_sent_without_waiting_are_answered_in_order_or_not_at_all() {
    let (_cluster, _up, mut client) = served(|_| ());
    let request = |bytes: usize| format!("GET /o/1/{bytes} HTTP/1.1\r\nhost: alpha.test\r\n\r\n");
    client.send([request(11), request(22), request(33)].concat()).unwrap();
    let mut lengths = Vec::new();
    while let Ok(reply) = client.reply(true) {
        lengths.push(reply.body.len());
        if lengths.len() == 3 {
            break;
        }
    }
    // A client may have to resend requests that were not answered before the close (RFC 9112, 9.3.2).
    assert!([11, 22, 33].starts_with(&lengths) && !lengths.is_empty(), "{lengths:?}");
}

#[test]
fn too_many_connections_are_rejected() {
    let (cluster, _up, first) = served(|cluster| cluster.file.limits.connections_max = 3);
    let mut inside = vec![first];
    inside.extend((0..2).map(|_| Client::connect(cluster.edge(0))));
    for client in &mut inside {
        // Connections that were used for the start may still be closing.
        eventually("there is room for three", || {
            let reply = client.ask("GET", "alpha.test", "/o/1/1");
            let inside = reply.is_ok_and(|reply| reply.status == 200);
            if !inside {
                *client = Client::connect(cluster.edge(0));
            }
            inside
        });
    }
    let mut outside = Client::connect(cluster.edge(0));
    let reply = outside.ask("GET", "alpha.test", "/o/1/1").unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert!(metrics(cluster.admin(0))[r#"sidelong_edge_refused_total{reason="too-many"}"#] >= 1.0);
    inside.pop();
    eventually("there is room again", || {
        try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
    });
}

#[test]
fn one_client_does_not_take_the_places_of_others() {
    let (cluster, _up, first) = served(|cluster| cluster.file.limits.connections_per_client_max = Some(3));
    let reason = r#"sidelong_edge_refused_total{reason="too-many-of-client"}"#;
    let status = |client: &mut Client| client.ask("GET", "alpha.test", "/o/1/1").map(|reply| reply.status);
    // The connection of the start may still be closing.
    let mut inside = vec![first];
    eventually("three are served", || {
        inside.retain_mut(|client| status(client).is_ok_and(|status| status == 200));
        let is_full = inside.len() == 3;
        if !is_full {
            inside.push(Client::connect(cluster.edge(0)));
        }
        is_full
    });
    let refused = metrics(cluster.admin(0))[reason];
    let mut outside: Vec<_> = (0..20).map(|_| Client::connect(cluster.edge(0))).collect();
    let answered = outside.iter_mut().filter_map(|client| status(client).ok()).collect::<Vec<_>>();
    assert!(!answered.is_empty() && answered.iter().all(|status| *status == 503), "{answered:?}");
    eventually("each is counted", || metrics(cluster.admin(0))[reason] - refused == 20.0);
    let IpAddr::V4(address) = inside[0].local_address().ip() else { panic!("not IPv4") };
    let mut other =
        Client::connect_from(Ipv4Addr::from_bits(address.to_bits() ^ 1), cluster.edge(0)).unwrap();
    assert_eq!(status(&mut other).unwrap(), 200, "another client");
    assert!(inside.iter_mut().all(|client| status(client).unwrap() == 200), "none is cut off");
    inside.pop();
    eventually("there is room again", || {
        try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
    });
}

#[test]
fn a_proxy_has_as_many_connections_as_its_clients() {
    let (cluster, _up, _client) = served(|cluster| {
        cluster.file.limits.connections_per_client_max = Some(1);
        cluster.file.edges[0].trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(cluster.edge(0))).collect();
    for client in &mut clients {
        assert_eq!(client.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
    }
}

#[test]
fn nonsense_harms_nobody() {
    // Empty lines are no request.
    let (cluster, _up, _client) = served(|cluster| cluster.file.limits.idle_timeout = Duration::from_secs(1));
    let wrong = [
        "\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nhost: alpha.test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost alpha.test\r\n\r\n",
        "POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: -1\r\n\r\n",
        "POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    ];
    for words in wrong {
        let mut client = Client::connect(cluster.edge(0));
        client.send(words).unwrap();
        let status = client.reply(true).map(|reply| reply.status);
        let refused = matches!(status, Ok(400..=599))
            || status.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock);
        assert!(refused, "{words:?}: {status:?}");
        assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1").status, 200, "after {words:?}");
    }
}

#[test]
fn it_counts_and_logs_what_it_answers() {
    let (cluster, up, mut client) = served(|_| ());
    let begun = metrics(cluster.admin(0));
    for _ in 0..7 {
        assert_eq!(client.ask("GET", "alpha.test", "/o/1/1000").unwrap().status, 200);
    }
    for _ in 0..3 {
        assert_eq!(
            client.ask("GET", "beta.test", "/nowhere \"quoted\"".split(' ').next().unwrap()).unwrap().status,
            404
        );
    }
    for _ in 0..2 {
        assert_eq!(client.ask("GET", "gamma.test", "/").unwrap().status, 421);
    }

    let page = get(cluster.admin(0), "any", "/metrics");
    assert_eq!(page.status, 200);
    let kind = page.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    assert!(page.body.ends_with("\n# EOF\n"), "{}", page.body);
    // Some of many: `metrics.rs` checks all of them.
    let families = [
        ("requests", "counter"),
        ("request_duration_seconds", "histogram"),
        ("retries", "counter"),
        ("misdirected", "counter"),
        ("refused", "counter"),
        ("move_duration_seconds", "histogram"),
        ("discarded_reads", "counter"),
        ("record_reads", "counter"),
        ("view_age_seconds", "gauge"),
        ("view_stale", "gauge"),
        ("access_log_dropped", "counter"),
        ("node_up", "gauge"),
        ("node_in_flight", "gauge"),
        ("node_load", "gauge"),
        ("node_site", "gauge"),
    ];
    let types: Vec<_> = page.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    for (family, kind) in families {
        let line = format!("sidelong_edge_{family} {kind}");
        assert_eq!(types.iter().filter(|found| **found == line).count(), 1, "{line} once in {types:#?}");
    }

    // Counted once they are answered, which may be a moment after their clients know.
    let counts = [
        (r#"requests_total{site="alpha",code="2xx"}"#, 7.0),
        (r#"requests_total{site="beta",code="4xx"}"#, 3.0),
        (r#"requests_total{site="beta",code="5xx"}"#, 0.0),
        (r#"request_duration_seconds_count{site="alpha"}"#, 7.0),
        ("misdirected_total", 2.0),
        ("retries_total", 0.0),
    ];
    for (name, count) in counts {
        let name = format!("sidelong_edge_{name}");
        eventually(&format!("{name} has risen by {count}"), || {
            metrics(cluster.admin(0))[&name] - begun[&name] == count
        });
    }
    let now = metrics(cluster.admin(0));
    let answered = r#"sidelong_edge_record_reads_total{end="answered"}"#;
    assert!(now[answered] > begun[answered], "its records are read all the while");
    for (node, site) in [("n1", "alpha"), ("n2", "alpha"), ("n3", "beta"), ("n4", "beta")] {
        assert_eq!(now[&format!("sidelong_edge_node_site{{node=\"{node}\",site=\"{site}\"}}")], 1.0);
        assert_eq!(now[&format!("sidelong_edge_node_in_flight{{node=\"{node}\"}}")], 0.0);
    }
    eventually("its view is young", || metrics(cluster.admin(0))["sidelong_edge_view_stale"] == 0.0);

    let mut wrong = Client::connect(cluster.edge(0));
    let head = "POST /wrong HTTP/1.1\r\nhost: alpha.test\r\ntransfer-encoding: chunked";
    wrong.send(format!("{head}\r\n\r\nnone\r\n")).unwrap();
    assert_eq!(wrong.reply(true).unwrap().status, 400);

    assert_eq!(get(cluster.admin(0), "any", "/healthz").body, "ok\n");
    assert_eq!(get(cluster.admin(0), "any", "/").status, 404);
    up.into_iter().for_each(Here::end);

    // The start sent one or more requests for each site.
    let path = cluster.path("access.log");
    let log = std::fs::read_to_string(&path).unwrap();
    let having = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(having("\"GET /o/1/1000 HTTP/1.1\" 200 1000 alpha n"), 7, "{log}");
    assert_eq!(having("\"GET /nowhere HTTP/1.1\" 404 0 beta n"), 3, "{log}");
    assert_eq!(having("\"GET / HTTP/1.1\" 421 "), 2, "{log}");
    assert_eq!(having("\"POST /wrong HTTP/1.1\" 400 "), 1, "{log}");
    assert!(log.lines().all(|line| line.starts_with("127.") && line.contains(" - - [")), "{log}");
    let (trace, broken) = Trace::read(Reader::open(&path).unwrap()).unwrap();
    assert_eq!((trace.requests().len(), broken.broken), (log.lines().count(), 0));
}

#[test]
fn a_client_that_leaves_is_logged_as_any_other() {
    let (cluster, up, _) = served(|cluster| {
        for node in &mut cluster.file.nodes {
            (node.service, node.service_time) = (Some(Service::Fixed), Some(Duration::from_millis(300)));
        }
    });
    eventually("its request is on its way", || {
        // Each client leaves at once. One that was answered before is followed by another.
        let mut client = Client::connect(cluster.edge(0));
        client.send("GET /o/1/4711 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
        metrics(cluster.admin(0)).iter().any(|(name, value)| name.contains("node_in_flight") && *value > 0.0)
    });
    let path = cluster.path("access.log");
    let log = || std::fs::read_to_string(&path).unwrap();
    eventually("it is logged", || log().contains("/o/1/4711 "));
    up.into_iter().for_each(Here::end);
    let (_, broken) = Trace::read(Reader::open(&path).unwrap()).unwrap();
    assert_eq!(broken.broken, 0, "{}", log());
}
