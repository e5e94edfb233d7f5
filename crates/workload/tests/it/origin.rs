//! The origin over real sockets. Times are only compared with each other.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sidelong_workload::client::{ClientConfig, Generator, Load, Shot};
use sidelong_workload::origin::{OriginConfig, OriginError, OriginGauges, ServiceTime, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{PATIENCE, TestOrigin, eventually, fetch, receive, send};

/// Longer than any test: a request that holds its worker until the origin is cut.
const FOREVER: ServiceTime = ServiceTime::Fixed(Duration::from_secs(3600));

#[tokio::test]
async fn synthetic_bodies_have_the_size_asked_for() {
    let config =
        OriginConfig { synthetic_bytes_max: 3_000_000, name: Some("n7".into()), ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    let sizes = [0, 1, 1024, 65_535, 65_536, 65_537, 3_000_000];
    for bytes in sizes {
        let reply = fetch(origin.address, "GET", &format!("/o/x/{bytes}?query")).await;
        assert_eq!((reply.status, reply.body.len()), (200, bytes));
        assert_eq!(reply.header("content-length"), Some(bytes.to_string().as_str()));
        assert_eq!(reply.header("x-sidelong-node"), Some("n7"));
    }
    assert_eq!(fetch(origin.address, "GET", "/o/x/3000001").await.status, 403);
    assert_eq!(fetch(origin.address, "GET", "/elsewhere").await.status, 404);
    assert_eq!(origin.gauges.sent_bytes_total.load(Relaxed), sizes.iter().sum::<usize>() as u64);
    assert_eq!(origin.gauges.served_total.load(Relaxed), sizes.len() as u64);
    assert_eq!(origin.gauges.errors_total.load(Relaxed), 2);
}

#[tokio::test]
async fn a_head_request_is_told_the_size_and_sent_no_body() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let reply = fetch(origin.address, "HEAD", "/o/x/100000").await;
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    assert_eq!(reply.header("content-length"), Some("100000"));
    assert_eq!(origin.gauges.sent_bytes_total.load(Relaxed), 0);
}

#[tokio::test]
async fn files_are_served_from_the_root_and_from_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("index.html"), "<p>home").unwrap();
    std::fs::write(root.join("sub/a b.css"), "p {}").unwrap();
    std::fs::write(root.join("large.bin"), vec![0; 2000]).unwrap();
    std::fs::write(directory.path().join("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(directory.path().join("secret.txt"), root.join("link.txt")).unwrap();
    std::os::unix::fs::symlink(root.join("index.html"), root.join("inner.html")).unwrap();
    let config = OriginConfig { root: Some(root.clone()), file_bytes_max: 1999, ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;

    let home = fetch(origin.address, "GET", "/").await;
    assert_eq!((home.status, home.body.as_slice()), (200, b"<p>home".as_slice()));
    assert_eq!(home.header("content-type"), Some("text/html; charset=utf-8"));
    let style = fetch(origin.address, "GET", "/sub/a%20b.css?v=1").await;
    assert_eq!(
        (style.body.as_slice(), style.header("content-type")),
        (b"p {}".as_slice(), Some("text/css; charset=utf-8"))
    );
    assert_eq!(fetch(origin.address, "HEAD", "/index.html").await.header("content-length"), Some("7"));
    assert_eq!(fetch(origin.address, "GET", "/inner.html").await.status, 200);
    assert_eq!(fetch(origin.address, "GET", "/large.bin").await.status, 403);

    for path in [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/sub/%2e%2e%2f%2e%2e%2fsecret.txt",
        "//../secret.txt",
        "/link.txt",
        "/sub",
        "/missing",
        "/index.html/more",
    ] {
        let reply = fetch(origin.address, "GET", path).await;
        assert_eq!((reply.status, reply.body.len()), (404, 0), "{path}");
    }

    // Once read, a file is served from memory.
    std::fs::remove_file(root.join("index.html")).unwrap();
    assert_eq!(fetch(origin.address, "GET", "/./index.html").await.body, b"<p>home");
}

#[tokio::test]
async fn files_that_do_not_fit_in_memory_are_read_each_time() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "first").unwrap();
    let config =
        OriginConfig { root: Some(root.path().into()), cache_bytes_max: 4, ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    assert_eq!(fetch(origin.address, "GET", "/a.txt").await.body, b"first");
    std::fs::write(root.path().join("a.txt"), "second").unwrap();
    assert_eq!(fetch(origin.address, "GET", "/a.txt").await.body, b"second");
}

#[tokio::test]
async fn request_bodies_are_read_counted_and_bounded() {
    let origin = TestOrigin::start(OriginConfig { body_bytes_max: 5000, ..OriginConfig::default() }).await;
    let post =
        async |bytes: usize| receive(send(origin.address, "POST", "/o/x/10", &vec![b'x'; bytes]).await).await;
    assert_eq!(post(5000).await.status, 200);
    assert_eq!(origin.gauges.received_bytes_total.load(Relaxed), 5000);
    assert_eq!(post(5001).await.status, 413);
    let put = fetch(origin.address, "PUT", "/o/x/10").await;
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, HEAD, POST")));
}

#[tokio::test]
async fn a_body_that_is_set_answers_every_path() {
    let config = OriginConfig { body: Some("hello".into()), ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    assert_eq!(fetch(origin.address, "GET", "/any/path").await.body, b"hello");
    assert_eq!(fetch(origin.address, "GET", "/healthz").await.body, b"");
}

#[tokio::test]
async fn requests_beyond_the_queue_are_refused_and_health_is_still_told() {
    let config = OriginConfig {
        workers: 2,
        service: FOREVER,
        queue_depth_max: 1,
        drain_max: Duration::ZERO,
        ..OriginConfig::default()
    };
    let origin = TestOrigin::start(config).await;
    let gauges = origin.gauges.clone();
    let mut held = Vec::new();
    for outstanding in 1..=3 {
        held.push(send(origin.address, "GET", "/o/x/1", b"").await);
        eventually("the request is taken", || gauges.outstanding.load(Relaxed) == outstanding).await;
    }
    assert_eq!((gauges.in_service(), gauges.queued()), (2, 1));

    let refused = fetch(origin.address, "GET", "/o/x/1").await;
    assert_eq!(refused.status, 503);
    let retry_after_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&retry_after_s), "{retry_after_s}");
    assert_eq!(gauges.refused_total.load(Relaxed), 1);
    assert_eq!(fetch(origin.address, "GET", "/healthz").await.status, 200);

    // The clients have left, but the workers do not know.
    drop(held);
    eventually("the clients are gone", || gauges.connections.load(Relaxed) == 0).await;
    assert_eq!((gauges.in_service(), gauges.queued()), (2, 1));
    assert_eq!(fetch(origin.address, "GET", "/o/x/1").await.status, 503);
}

#[tokio::test]
async fn capacity_is_workers_over_service_time() {
    let mut origins = Vec::new();
    for workers in [1, 4] {
        let service = ServiceTime::Fixed(Duration::from_micros(10_500));
        origins.push(TestOrigin::start(OriginConfig { workers, service, ..OriginConfig::default() }).await);
    }
    // Both at once, so that other load slows both alike, and with so many waiting that neither queue runs dry.
    let edges = origins.iter().map(|origin| origin.address).collect();
    let load = Load::Closed { connections_per_edge: 64, think: Duration::ZERO };
    let config = ClientConfig::new(edges, vec!["a".into()], load);
    let run = Generator::new(config, |_| shot("/o/x/100")).unwrap().start().unwrap();
    let served = |origin: usize| origins[origin].gauges.served_total.load(Relaxed);
    eventually("both are saturated", || served(0) >= 5).await;
    let mut ratio = 0.0;
    // A machine that is busy with something else may starve the clients of one of them for a while.
    for _ in 0..20 {
        let before = (served(0), served(1));
        eventually("one has served a while", || served(0) >= before.0 + 60).await;
        ratio = (served(1) - before.1) as f64 / (served(0) - before.0) as f64;
        if (3.6..4.4).contains(&ratio) {
            break;
        }
    }
    run.stopper().stop();
    let summary = tokio::task::spawn_blocking(|| run.wait()).await.unwrap().unwrap();
    assert_eq!(summary.errors, 0);
    assert!((3.6..4.4).contains(&ratio), "{ratio}");
    for origin in &origins {
        assert_eq!(origin.gauges.service_mean(), Duration::from_micros(10_500));
        eventually("nothing is left in service", || origin.gauges.in_service() == 0).await;
    }
}

#[tokio::test]
async fn drawn_service_times_and_the_cost_of_bytes_add_up() {
    let mean = Duration::from_micros(20);
    let config = OriginConfig {
        workers: 64,
        service: ServiceTime::Exponential { mean },
        cost_per_kib: Duration::from_micros(1),
        ..OriginConfig::default()
    };
    let origin = TestOrigin::start(config).await;
    let load = Load::Closed { connections_per_edge: 64, think: Duration::ZERO };
    let config = ClientConfig {
        requests_max: Some(5000),
        ..ClientConfig::new(vec![origin.address], vec!["a".into()], load)
    };
    let run = Generator::new(config, |_| shot("/o/x/10240")).unwrap().start().unwrap();
    tokio::task::spawn_blocking(|| run.wait()).await.unwrap().unwrap();
    let ratio = origin.gauges.service_mean().as_secs_f64() / 30e-6;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_flight_and_refuses_what_is_new() {
    let config =
        OriginConfig { service: ServiceTime::Fixed(Duration::from_millis(200)), ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    let (address, gauges) = (origin.address, origin.gauges.clone());
    let mut idle = TcpStream::connect(address).await.unwrap();
    let in_flight = send(address, "GET", "/o/x/1000", b"").await;
    eventually("both are there", || {
        gauges.outstanding.load(Relaxed) == 1 && gauges.connections.load(Relaxed) == 2
    })
    .await;
    let served = origin.shut_down();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0, "an idle connection is closed");
    assert!(TcpStream::connect(address).await.is_err(), "a new one is refused");
    let reply = receive(in_flight).await;
    assert_eq!((reply.status, reply.body.len()), (200, 1000));
    let drained = tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
    assert_eq!(drained.cut, 0);
    assert_eq!(gauges.connections.load(Relaxed), 0);
}

#[tokio::test]
async fn a_drain_ends_even_if_a_request_does_not() {
    let config =
        OriginConfig { service: FOREVER, drain_max: Duration::from_millis(20), ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    let gauges = origin.gauges.clone();
    let mut stuck = send(origin.address, "GET", "/o/x/1", b"").await;
    eventually("it is taken", || gauges.outstanding.load(Relaxed) == 1).await;
    let drained = tokio::time::timeout(PATIENCE, origin.shut_down()).await.unwrap().unwrap().unwrap();
    assert_eq!(drained.cut, 1);
    assert_eq!(stuck.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_are_bounded() {
    let config = OriginConfig { connections_max: 1, service: FOREVER, ..OriginConfig::default() };
    let origin = TestOrigin::start(config).await;
    let gauges = origin.gauges.clone();
    let first = send(origin.address, "GET", "/o/x/1", b"").await;
    eventually("the first is at work", || gauges.outstanding.load(Relaxed) == 1).await;
    let mut second = send(origin.address, "GET", "/healthz", b"").await;
    let unanswered = tokio::time::timeout(Duration::from_millis(50), second.read(&mut [0])).await;
    assert!(unanswered.is_err() && gauges.connections.load(Relaxed) == 1);
    drop(first);
    assert_eq!(receive(second).await.status, 200);
}

#[tokio::test]
async fn the_longest_idle_connections_make_room_for_new_ones() {
    let origin = TestOrigin::start(OriginConfig { connections_max: 4, ..OriginConfig::default() }).await;
    let ask = async |stream: &mut TcpStream| {
        stream.write_all(b"GET /o/x/3 HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n!\"#") {
            let count = stream.read_buf(&mut bytes).await.unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
        }
    };
    let connect = async || TcpStream::connect(origin.address).await.unwrap();
    let mut busy = connect().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = connect().await;
        tokio::time::timeout(PATIENCE, ask(&mut stream)).await.expect("it is served soon");
        idle.push(stream);
        // One that is used again and again is never the longest idle.
        ask(&mut busy).await;
    }
    let mut first = idle.swap_remove(0);
    assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0, "it was closed");
    assert!(origin.gauges.connections.load(Relaxed) <= 4);
}

#[tokio::test]
async fn idle_connections_are_closed_and_waiting_ones_are_not() {
    let config = OriginConfig {
        service: ServiceTime::Fixed(Duration::from_millis(300)),
        idle_max: Duration::from_millis(40),
        ..OriginConfig::default()
    };
    let origin = TestOrigin::start(config).await;
    let waiting = send(origin.address, "GET", "/o/x/10", b"").await;
    let mut slow = TcpStream::connect(origin.address).await.unwrap();
    slow.write_all(b"GET /o/x/1 HTTP/1.1\r\n").await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, slow.read(&mut [0])).await.expect("it is closed");
    assert_eq!(closed.unwrap_or(0), 0);
    assert_eq!(receive(waiting).await.body.len(), 10);
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_at_the_start() {
    let refused = async |config: OriginConfig| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gauges = std::sync::Arc::new(OriginGauges::default());
        serve(listener, config, gauges, std::future::ready(())).await.expect_err("refused")
    };
    let default = OriginConfig::default;
    assert!(matches!(refused(OriginConfig { workers: 0, ..default() }).await, OriginError::NoWorkers));
    assert!(matches!(
        refused(OriginConfig { connections_max: 0, ..default() }).await,
        OriginError::NoConnections
    ));
    assert!(matches!(
        refused(OriginConfig { head_bytes_max: 100, ..default() }).await,
        OriginError::Head { .. }
    ));
    for idle_max in [Duration::ZERO, Duration::MAX] {
        let config = OriginConfig { idle_max, ..default() };
        assert!(matches!(refused(config).await, OriginError::IdleTime { .. }));
    }
    let name = Some("two\nlines".into());
    assert!(matches!(refused(OriginConfig { name, ..default() }).await, OriginError::Name { .. }));
    let root = Some("/nowhere/at/all".into());
    assert!(matches!(refused(OriginConfig { root, ..default() }).await, OriginError::Root { .. }));
}

fn shot(path: &'static str) -> Shot {
    Shot::get(0, http::HeaderValue::from_static("a.test"), http::Uri::from_static(path))
}
