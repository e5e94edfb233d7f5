//! How an edge treats requests, valid and invalid ones, over real sockets.

use std::time::Duration;

use sidelong_config::Service;

use sidelong_testing::{Client, Cluster, Here, eventually, get, metrics};
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
    let mut wrong = Client::connect(cluster.edge(0));
    wrong.send("GET /odd#\"x\" HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    assert_eq!(wrong.reply(true).unwrap().status, 400);
    let malformed = metrics(cluster.admin(0))["sidelong_edge_refused_total{reason=\"malformed\"}"];
    assert_eq!(malformed, 1.0);

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
    assert_eq!(having(r#""GET /odd#\"x\" HTTP/1.1" 400 16 - - "#), 1, "{log}");
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
