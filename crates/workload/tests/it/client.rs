//! The load generator over real sockets. Times are only compared with each other.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Uri};
use sidelong_workload::client::{
    Arrivals, ClientConfig, ClientError, ClientSummary, Cue, Errors, Gaps, Generator, Interval, Load, Run,
    SeriesConfig, Shot, Step, Stream, Summary, WhenRejected, jain_index,
};
use sidelong_workload::origin::{OriginConfig, ServiceTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{TestOrigin, eventually};

/// Answers of an edge that rejects a request, and of other servers that cannot serve one.
const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nx-sidelong-reason: over-target\r\ncontent-length: 0\r\n\r\n";
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

fn closed(connections_per_edge: u32) -> Load {
    Load::Closed { connections_per_edge, think: Duration::ZERO }
}

fn config(edges: &[SocketAddr], load: Load) -> ClientConfig {
    ClientConfig::new(edges.to_vec(), vec!["a".into(), "b".into()], load)
}

fn shot(site: usize, path: &'static str) -> Shot {
    Shot::get(site, HeaderValue::from_static("a.test"), Uri::from_static(path))
}

async fn finish(run: Run) -> Summary {
    tokio::task::spawn_blocking(|| run.wait()).await.unwrap().unwrap()
}

async fn run(config: ClientConfig, path: &'static str) -> Summary {
    finish(Generator::new(config, move |_| shot(0, path)).unwrap().start().unwrap()).await
}

/// A server that answers each connection with `script`'s bytes, request by request, and then closes it.
async fn scripted(script: &'static [&'static [u8]]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for answer in script {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(answer).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_closed_loop_makes_each_request_once() {
    let mut origins = Vec::new();
    for name in ["n1", "n2"] {
        let config = OriginConfig { name: Some(name.into()), ..OriginConfig::default() };
        origins.push(TestOrigin::start(config).await);
    }
    let edges = [origins[0].address, origins[1].address];
    let config = ClientConfig { requests_max: Some(2000), threads: 2, ..config(&edges, closed(4)) };
    let indices = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&indices);
    // One in four of site b, which posts.
    let source = |cue: Cue| match cue.index % 4 {
        0 => Shot { method: Method::POST, body: "12345".into(), ..shot(1, "/o/x/500") },
        _ => shot(0, "/o/x/100"),
    };
    let generator = Generator::new(config, source).unwrap().observe(move |completion| {
        assert!(completion.due_at == completion.sent_at && completion.sent_at <= completion.done_at);
        assert_eq!(completion.site, usize::from(completion.cue.index % 4 == 0));
        assert_eq!(completion.node, Some(["n1", "n2"][completion.edge]));
        assert!(seen.lock().unwrap().insert(completion.cue.index), "each index once");
    });
    let summary = finish(generator.start().unwrap()).await;

    assert_eq!(indices.lock().unwrap().len(), 2000);
    assert!((0..2000).all(|index| indices.lock().unwrap().contains(&index)));
    assert_eq!((summary.requests, summary.errors, summary.dropped), (2000, 0, 0));
    assert_eq!((summary.sites[0].requests, summary.sites[1].requests), (1500, 500));
    assert_eq!((summary.sites[0].bytes, summary.sites[1].bytes), (150_000, 250_000));
    assert_eq!(summary.edges.iter().map(|edge| edge.requests).sum::<u64>(), 2000);
    assert_eq!(origins.iter().map(|o| o.gauges.served_total.load(Relaxed)).sum::<u64>(), 2000);
    assert!(origins.iter().all(|o| o.gauges.accepted_total.load(Relaxed) == 4), "connections are kept");
    assert_eq!(origins.iter().map(|o| o.gauges.received_bytes_total.load(Relaxed)).sum::<u64>(), 2500);

    let of_node =
        |node| summary.nodes.iter().filter(move |n| n.node == node).map(|n| n.requests).sum::<u64>();
    assert_eq!((of_node("n1"), of_node("n2")), (summary.edges[0].requests, summary.edges[1].requests));
    assert!(summary.nodes.iter().all(|node| node.first_seen_s >= 0.0));
    let rate = summary.sites.iter().map(|site| site.requests_per_s).sum::<f64>();
    assert!((rate / summary.requests_per_s - 1.0).abs() < 1e-9, "the sites' rates add up");
    let latency = summary.latency;
    assert!(0.0 < latency.p50_ms && latency.p50_ms <= latency.p99_ms && latency.p99_ms <= latency.max_ms);

    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["sites"][1]["site"], "b");
    assert_eq!(json["sites"][1]["p99_ms"], summary.sites[1].latency.p99_ms);
}

/// A server that stalls once, for `stall`, at its 100th request.
async fn stalling(stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::new(tokio::sync::Mutex::new(0));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {
                    let mut served = served.lock().await;
                    *served += 1;
                    if *served == 100 {
                        tokio::time::sleep(stall).await;
                    }
                    drop(served);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn an_open_loop_charges_a_stall_to_every_request_that_came_due_meanwhile() {
    let stall = Duration::from_millis(200);
    // 400 requests in 0.8 s: a quarter of them are due while the server stalls.
    let arrivals = Arrivals::Constant { per_s: 500.0 };
    let open = Load::Open { arrivals, in_flight_max: 400 };
    let open = config(&[stalling(stall).await], open);
    let open = run(ClientConfig { requests_max: Some(400), ..open }, "/").await;
    let one_connection = config(&[stalling(stall).await], closed(1));
    let one_connection = run(ClientConfig { requests_max: Some(400), ..one_connection }, "/").await;

    assert_eq!((open.requests, open.errors, open.dropped), (400, 0, 0));
    let stall_ms = stall.as_secs_f64() * 1000.0;
    assert!(open.latency.p90_ms > stall_ms / 4.0, "{:?}", open.latency);
    assert!(open.latency.p99_ms > stall_ms / 2.0, "{:?}", open.latency);
    // The same server, as a client sees it that waits for answers: one request in 400.
    assert!(one_connection.latency.max_ms > stall_ms * 0.99);
    assert!(one_connection.latency.p99_ms < open.latency.p99_ms / 2.0, "{:?}", one_connection.latency);
}

#[tokio::test]
async fn an_open_loop_charges_its_own_lateness_too() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let load = Load::Open { arrivals: Arrivals::Constant { per_s: 500.0 }, in_flight_max: 400 };
    let config = ClientConfig { requests_max: Some(200), ..config(&[origin.address], load) };
    let stall = Duration::from_millis(200);
    // Here the generator stalls.
    let source = move |cue: Cue| {
        if cue.index == 50 {
            std::thread::sleep(stall);
        }
        shot(0, "/o/x/10")
    };
    let summary = finish(Generator::new(config, source).unwrap().start().unwrap()).await;
    assert_eq!((summary.requests, summary.errors, summary.dropped), (200, 0, 0));
    assert!(summary.latency.p90_ms > stall.as_secs_f64() * 1000.0 / 4.0, "{:?}", summary.latency);
}

#[tokio::test]
async fn an_open_loop_keeps_its_schedule_and_sends_nothing_early() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let arrivals = Arrivals::Poisson { per_s: 4000.0, seed: 3 };
    let load = Load::Open { arrivals, in_flight_max: 4000 };
    let config = ClientConfig { requests_max: Some(2000), threads: 2, ..config(&[origin.address], load) };
    let due = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&due);
    let generator = Generator::new(config, |_| shot(0, "/o/x/10")).unwrap().observe(move |completion| {
        assert!(completion.due_at <= completion.sent_at && completion.sent_at <= completion.done_at);
        seen.lock().unwrap().push((completion.cue.index, completion.due_at));
    });
    let summary = finish(generator.start().unwrap()).await;
    assert_eq!((summary.requests, summary.errors, summary.dropped), (2000, 0, 0));
    let mut due = due.lock().unwrap();
    due.sort();
    assert!(due.is_sorted_by_key(|(_, due_at)| due_at));
    let scheduled_s = (due[1999].1 - due[0].1).as_secs_f64();
    assert!((0.9..1.1).contains(&(scheduled_s / 0.5)), "{scheduled_s}");
}

#[tokio::test]
async fn requests_beyond_the_room_in_flight_are_dropped_and_counted() {
    let service = ServiceTime::Fixed(Duration::from_millis(300));
    let origin = TestOrigin::start(OriginConfig { workers: 8, service, ..OriginConfig::default() }).await;
    let given: Arc<[Duration]> = (0..20).map(Duration::from_millis).collect();
    let load = Load::Open { arrivals: Arrivals::Given(given), in_flight_max: 3 };
    let summary = run(config(&[origin.address], load), "/o/x/10").await;
    assert_eq!((summary.requests, summary.errors, summary.dropped), (3, 0, 17));
}

#[tokio::test]
async fn an_edge_that_dies_is_counted_and_the_others_go_on() {
    let drain = || OriginConfig { drain_max: Duration::ZERO, ..OriginConfig::default() };
    let dying = TestOrigin::start(drain()).await;
    let lasting = TestOrigin::start(drain()).await;
    let (edges, lasting) = ([dying.address, lasting.address], lasting.gauges);
    let config = ClientConfig { may_be_closed: false, ..config(&edges, closed(4)) };
    let mut run = Generator::new(config, |_| shot(0, "/o/x/100")).unwrap().start().unwrap();

    let dying_gauges = dying.gauges.clone();
    eventually("both are at work", || {
        dying_gauges.served_total.load(Relaxed) > 100 && lasting.served_total.load(Relaxed) > 100
    })
    .await;
    dying.shut_down().await.unwrap().unwrap();
    let served = lasting.served_total.load(Relaxed);
    eventually("the other goes on, and errors are counted", || {
        lasting.served_total.load(Relaxed) > served + 500 && run.live().total.errors >= 8
    })
    .await;

    let back = TestOrigin::start_at(edges[0], drain()).await;
    eventually("all are back", || back.gauges.connections.load(Relaxed) == 4).await;
    eventually("and at work", || back.gauges.served_total.load(Relaxed) > 100).await;
    run.stopper().stop();
    let summary = finish(run).await;
    assert_eq!(summary.edges[1].errors, 0);
    assert_eq!(summary.edges[0].errors, summary.errors);
    assert!(summary.errors_by_kind.connect >= 4, "{:?}", summary.errors_by_kind);
    // Backed off: a few attempts each, not as many as the machine can make.
    assert!(summary.errors < summary.requests / 4, "{} of {}", summary.errors, summary.requests);
}

#[tokio::test]
async fn an_open_loop_takes_an_edge_that_is_away_for_what_it_is() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let origin = TestOrigin::start(OriginConfig::default()).await;
    // There is room for all, so that none is dropped where the machine stands still and then makes up for it.
    let load = Load::Open { arrivals: Arrivals::Constant { per_s: 2000.0 }, in_flight_max: 400 };
    let config = ClientConfig { requests_max: Some(400), ..config(&[gone, origin.address], load) };
    let summary = run(config, "/o/x/10").await;
    assert_eq!(summary.errors_by_kind, Errors { connect: 200, ..Errors::default() });
    assert_eq!((summary.edges[0].errors, summary.edges[1].errors), (200, 0));
}

#[tokio::test]
async fn failures_are_told_apart() {
    let head: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart";
    let forever = ServiceTime::Fixed(Duration::from_secs(3600));
    let slow = OriginConfig { service: forever, drain_max: Duration::ZERO, ..OriginConfig::default() };
    let full = OriginConfig { queue_depth_max: 0, ..slow.clone() };
    let (slow, full) = (TestOrigin::start(slow).await, TestOrigin::start(full).await);
    let plain = TestOrigin::start(OriginConfig::default()).await;
    let _held = crate::support::send(full.address, "GET", "/o/x/1", b"").await;
    eventually("its only worker is held", || full.gauges.in_service() == 1).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (edge, path, expected) in [
        (gone, "/", Errors { connect: 3, ..Errors::default() }),
        (slow.address, "/o/x/1", Errors { timeout: 3, ..Errors::default() }),
        (scripted(&[b""]).await, "/", Errors { closed: 3, ..Errors::default() }),
        // The same, without rejections.
        (scripted(&[b""]).await, "/", Errors { broken: 3, ..Errors::default() }),
        (scripted(&[b"this is no HTTP\r\n\r\n"]).await, "/", Errors { broken: 3, ..Errors::default() }),
        (scripted(Box::leak(Box::new([head]))).await, "/", Errors { body: 3, ..Errors::default() }),
        (plain.address, "/none", Errors { status_4xx: 3, ..Errors::default() }),
        (full.address, "/o/x/1", Errors { unavailable: 3, ..Errors::default() }),
    ] {
        let timeout = if expected.timeout > 0 { Duration::from_millis(50) } else { crate::support::PATIENCE };
        let config = ClientConfig {
            requests_max: Some(3),
            timeout,
            may_be_closed: expected.closed > 0,
            ..config(&[edge], closed(1))
        };
        let summary = run(config, path).await;
        assert_eq!((summary.requests, summary.errors_by_kind), (3, expected));
        assert_eq!((summary.requests_per_s, summary.latency.max_ms), (0.0, 0.0), "failures are in no rate");
    }
}

#[tokio::test]
async fn a_client_that_is_told_to_come_back_later_does_so_later_each_time() {
    for (answer, expected) in [
        (REFUSED, Errors { refused: 5, ..Errors::default() }),
        // As other proxies do.
        (UNAVAILABLE, Errors { unavailable: 5, ..Errors::default() }),
    ] {
        let edge = scripted(Box::leak(Box::new([answer; 5]))).await;
        let begun = Instant::now();
        let summary = run(ClientConfig { requests_max: Some(5), ..config(&[edge], closed(1)) }, "/").await;
        assert_eq!((summary.requests, summary.errors_by_kind), (5, expected));
        assert_eq!((summary.errors, summary.rejected), (expected.unavailable, expected.refused));
        // 10, 20, 40 and 80 ms in between.
        assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    }
}

/// A server that answers each address by its history: `refusals` times with 503 (or by closing the connection), and
/// then normally.
async fn refusing(refusals: u32, closing: bool) -> (SocketAddr, Arc<Mutex<HashMap<IpAddr, u32>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let counts = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, from)) = listener.accept().await {
            let counts = Arc::clone(&counts);
            tokio::spawn(async move {
                while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {
                    let count = {
                        let mut counts = counts.lock().unwrap();
                        let count = counts.entry(from.ip()).or_insert(0);
                        *count += 1;
                        *count
                    };
                    let answer: &[u8] = match count > refusals {
                        true => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                        false if closing => return,
                        false => REFUSED,
                    };
                    let _ = stream.write_all(answer).await;
                }
            });
        }
    });
    (address, asked)
}

fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| IpAddr::from([127, 0, 9, last])).collect()
}

#[tokio::test]
async fn clients_have_addresses_of_their_own_and_are_counted_apart() {
    let (edge, asked) = refusing(10, false).await;
    let stream = |per_s, clients| {
        let steps = vec![Step { at: Duration::ZERO, per_s }];
        Stream { steps, gaps: Gaps::Equal, clients: Some(clients) }
    };
    // One of five clients sends as many requests as the others together.
    let streams = vec![stream(400.0, 0..4), stream(400.0, 4..5)];
    let load = Load::Open { arrivals: Arrivals::Streams { streams, seed: 1 }, in_flight_max: 400 };
    let clients = addresses(5);
    let config = ClientConfig {
        requests_max: Some(400),
        clients: clients.clone(),
        threads: 2,
        ..config(&[edge], load)
    };
    let generator = Generator::new(config, |cue: Cue| {
        assert_eq!(cue.stream == 1, cue.client == 4);
        shot(cue.stream, "/")
    });
    let summary = finish(generator.unwrap().start().unwrap()).await;
    assert_eq!((summary.requests, summary.sites[0].requests, summary.sites[1].requests), (400, 200, 200));
    for (client, requests) in summary.clients.iter().zip([50, 50, 50, 50, 200]) {
        assert_eq!((client.requests, client.rejected), (requests, 10), "{client:?}");
        assert_eq!(client.answered, requests - 10);
        assert_eq!(u64::from(asked.lock().unwrap()[&client.client]), requests);
    }
    assert_eq!(summary.clients.iter().map(|client| client.client).collect::<Vec<_>>(), clients);
    let fairness =
        |clients: &[ClientSummary]| jain_index(clients.iter().map(|client| client.answered as f64));
    assert_eq!(fairness(&summary.clients[..4]), Some(1.0));
    assert!(fairness(&summary.clients) < Some(0.7));
}

#[tokio::test]
async fn in_a_closed_loop_each_connection_is_a_client() {
    let (edge, asked) = refusing(0, false).await;
    let config = ClientConfig {
        requests_max: Some(300),
        clients: addresses(3),
        threads: 2,
        ..config(&[edge], closed(3))
    };
    let summary = run(config, "/").await;
    assert_eq!(asked.lock().unwrap().len(), 3);
    assert_eq!(summary.clients.iter().map(|client| client.answered).sum::<u64>(), 300);
    assert!(summary.clients.iter().all(|client| client.answered > 0), "{:?}", summary.clients);
}

#[tokio::test]
async fn refusals_are_told_apart_from_answers_and_have_times_of_their_own() {
    for closing in [false, true] {
        let (edge, _) = refusing(20, closing).await;
        let load = Load::Open { arrivals: Arrivals::Constant { per_s: 1000.0 }, in_flight_max: 100 };
        let config = ClientConfig {
            requests_max: Some(100),
            series: Some(SeriesConfig {
                interval: Duration::from_millis(10),
                length: Duration::from_secs(1),
            }),
            ..config(&[edge], load)
        };
        let summary = run(config, "/").await;
        let site = &summary.sites[0];
        let errors = match closing {
            true => Errors { closed: 20, ..Errors::default() },
            false => Errors { refused: 20, ..Errors::default() },
        };
        assert_eq!((site.requests, site.errors, site.rejected, site.errors_by_kind), (100, 0, 20, errors));
        assert_eq!((summary.edges[0].errors, summary.edges[0].rejected), (0, 20));
        assert!(0.0 < site.refusal.p50_ms && site.refusal.p50_ms <= site.refusal.max_ms);
        assert_eq!(site.refusal, summary.refusal);
        assert!(0.0 < summary.lag.p50_ms && summary.lag.p50_ms <= summary.latency.p50_ms, "{summary:?}");

        let series = &summary.series.as_ref().unwrap().sites;
        let sum = |of: fn(&Interval) -> u64| series[0].iter().map(of).sum::<u64>();
        assert_eq!((sum(|i| i.offered), sum(|i| i.answered)), (100, 80));
        assert_eq!(sum(|i| i.refused + i.closed), 20);
        // Due at a time that is no measurement: ten each.
        assert_eq!(series[0].len(), 10);
        assert!(series[0].iter().all(|interval| interval.offered == 10), "{series:?}");
        let max_ms = series[0].iter().map(|interval| interval.max_ms).fold(0.0, f64::max);
        assert!((max_ms / site.latency.max_ms - 1.0).abs() < 0.01);
        assert!(series[1].iter().all(|interval| interval.offered == 0));
    }
}

#[tokio::test]
async fn a_client_that_ignores_what_it_is_told_asks_again_at_once() {
    let (edge, _) = refusing(30, true).await;
    let begun = Instant::now();
    let when_rejected = WhenRejected::Repeat;
    let closed = ClientConfig { requests_max: Some(5), when_rejected, ..config(&[edge], closed(1)) };
    let summary = run(closed, "/").await;
    assert_eq!((summary.requests, summary.errors_by_kind.closed), (35, 30));
    // With pauses, these alone would take more than 6 s.
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());

    let (edge, _) = refusing(30, false).await;
    let load = Load::Open { arrivals: Arrivals::Constant { per_s: 1000.0 }, in_flight_max: 10 };
    let open = ClientConfig { requests_max: Some(5), when_rejected, ..config(&[edge], load) };
    let summary = run(open, "/").await;
    assert_eq!((summary.requests - summary.rejected, summary.errors_by_kind.refused), (5, 30));
}

#[tokio::test]
async fn connections_can_be_for_one_request_each() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let open = Load::Open { arrivals: Arrivals::Constant { per_s: 1000.0 }, in_flight_max: 20 };
    for (load, connections) in [(open, 20), (closed(1), 40)] {
        let config =
            ClientConfig { requests_max: Some(20), keep_alive: false, ..config(&[origin.address], load) };
        let summary = run(config, "/o/x/10").await;
        assert_eq!((summary.requests, summary.errors), (20, 0));
        assert_eq!(origin.gauges.accepted_total.load(Relaxed), connections);
    }
}

#[tokio::test]
async fn a_site_may_have_an_edge_of_its_own() {
    let (edges, asked): (Vec<_>, Vec<_>) =
        [refusing(0, false).await, refusing(0, false).await].into_iter().unzip();
    for load in [closed(3), Load::Open { arrivals: Arrivals::Constant { per_s: 1000.0 }, in_flight_max: 100 }]
    {
        let config = ClientConfig {
            is_edge_of_site: true,
            keep_alive: false,
            requests_max: Some(90),
            ..config(&edges, load)
        };
        // Two of three are for the second site.
        let source = |cue: Cue| shot(usize::from(!cue.index.is_multiple_of(3)), "/");
        let summary = finish(Generator::new(config, source).unwrap().start().unwrap()).await;
        let requests = |of: &[sidelong_workload::client::EdgeSummary]| {
            of.iter().map(|edge| edge.requests).collect::<Vec<_>>()
        };
        assert_eq!((requests(&summary.edges), summary.errors), (vec![30, 60], 0));
    }
    assert!(asked.iter().all(|asked| !asked.lock().unwrap().is_empty()));
    let kept = ClientConfig { is_edge_of_site: true, ..config(&edges, closed(1)) };
    let too_few = ClientConfig {
        keep_alive: false,
        ..ClientConfig { is_edge_of_site: true, ..config(&edges[..1], closed(1)) }
    };
    for wrong in [kept, too_few] {
        assert!(Generator::new(wrong, |_| shot(0, "/")).is_err());
    }
}

#[tokio::test]
async fn each_request_has_a_timeout_of_its_own() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let load = Load::Closed { connections_per_edge: 1, think: Duration::from_millis(150) };
    let timeout = Duration::from_millis(500);
    let config = ClientConfig { requests_max: Some(5), timeout, ..config(&[origin.address], load) };
    let summary = run(config, "/o/x/10").await;
    assert_eq!((summary.requests, summary.errors), (5, 0));
    assert_eq!(origin.gauges.accepted_total.load(Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_is_closed_between_requests_costs_no_request() {
    // Announced, and not announced.
    let closing: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"];
    let silent: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"];
    for (script, think) in [(closing, Duration::ZERO), (silent, Duration::from_millis(20))] {
        let load = Load::Closed { connections_per_edge: 2, think };
        let edges = [scripted(Box::leak(script.to_vec().into_boxed_slice())).await];
        let config = ClientConfig { requests_max: Some(20), ..config(&edges, load) };
        let summary = run(config, "/").await;
        assert_eq!((summary.requests, summary.errors), (20, 0));
    }
}

#[tokio::test]
async fn a_look_shows_what_happened_since_the_last_one() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let config =
        ClientConfig { requests_max: Some(3000), threads: 2, ..config(&[origin.address], closed(4)) };
    let generator = Generator::new(config, |cue: Cue| shot((cue.index % 2) as usize, "/o/x/10")).unwrap();
    let generator = generator.observe(move |_| {
        counted.fetch_add(1, Relaxed);
    });
    let mut run = generator.start().unwrap();
    let (mut requests, mut windows) = (0, 0.0);
    loop {
        let finished = run.is_finished();
        let live = run.live();
        assert!(live.total.requests >= requests && live.total.requests <= sent.load(Relaxed) + 8);
        assert_eq!(live.total.requests, live.sites.iter().map(|site| site.requests).sum::<u64>());
        requests = live.total.requests;
        windows += live.total.requests_per_s * live.window_s;
        if finished {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(requests, 3000);
    assert!((windows - 3000.0).abs() < 1.0, "each request is in one window: {windows}");
    let summary = finish(run).await;
    assert_eq!(summary.requests, 3000, "looking takes nothing away");
    assert!(summary.latency.max_ms > 0.0);
}

#[tokio::test]
async fn a_run_ends_when_its_time_is_over_or_it_is_stopped() {
    let origin = TestOrigin::start(OriginConfig::default()).await;
    let rare = Load::Open { arrivals: Arrivals::Constant { per_s: 0.01 }, in_flight_max: 1 };
    let thinking = Load::Closed { connections_per_edge: 1, think: Duration::from_secs(3600) };
    for load in [rare, thinking] {
        let run =
            Generator::new(config(&[origin.address], load), |_| shot(0, "/o/x/1")).unwrap().start().unwrap();
        let served = origin.gauges.served_total.load(Relaxed);
        eventually("the first request", || origin.gauges.served_total.load(Relaxed) > served).await;
        run.stopper().stop();
        assert_eq!(finish(run).await.requests, 1);
    }
    let duration_max = Some(Duration::from_secs(1));
    let summary = run(ClientConfig { duration_max, ..config(&[origin.address], closed(2)) }, "/o/x/1").await;
    assert!(summary.requests > 0 && summary.errors == 0);
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_at_the_start() {
    let edge: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let refused = |config| match Generator::new(config, |_| shot(0, "/")) {
        Ok(_) => panic!("taken"),
        Err(error) => error,
    };
    let open = |arrivals| config(&[edge], Load::Open { arrivals, in_flight_max: 1 });
    assert!(matches!(refused(config(&[], closed(1))), ClientError::NoEdges));
    assert!(matches!(refused(config(&[edge], closed(0))), ClientError::Count { what: "connections", .. }));
    assert!(matches!(refused(config(&[edge], closed(u32::MAX))), ClientError::Count { .. }));
    let none = ClientConfig { sites: vec![], ..config(&[edge], closed(1)) };
    assert!(matches!(refused(none), ClientError::Count { what: "sites", .. }));
    for timeout in [Duration::ZERO, Duration::MAX] {
        let config = ClientConfig { timeout, ..config(&[edge], closed(1)) };
        assert!(matches!(refused(config), ClientError::Timeout { .. }));
    }
    for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(refused(open(Arrivals::Constant { per_s })), ClientError::Rate { .. }));
    }
    let back = Arc::from([Duration::from_secs(1), Duration::ZERO]);
    assert!(matches!(refused(open(Arrivals::Given(back))), ClientError::Unsorted));

    let stream = Stream::poisson(vec![Step { at: Duration::ZERO, per_s: 1.0 }]);
    let streams = |streams| refused(open(Arrivals::Streams { streams, seed: 0 }));
    assert!(matches!(streams(vec![]), ClientError::Count { what: "streams", .. }));
    assert!(matches!(streams(vec![Stream::poisson(vec![])]), ClientError::Count { what: "steps", .. }));
    for clients in [0..2, 1..1] {
        assert!(matches!(streams(vec![stream.clone().of(clients)]), ClientError::Clients { .. }));
    }
    for per_s in [-1.0, f64::NAN, f64::INFINITY] {
        let step = Step { at: Duration::ZERO, per_s };
        assert!(matches!(streams(vec![Stream::poisson(vec![step])]), ClientError::Rate { .. }));
    }
    for (interval, length) in [(0, 1000), (1, 3_600_000), (10, 0)] {
        let [interval, length] = [interval, length].map(Duration::from_millis);
        let series = Some(SeriesConfig { interval, length });
        let config = ClientConfig { series, ..config(&[edge], closed(1)) };
        assert!(matches!(refused(config), ClientError::Count { .. }));
    }
    // A documentation address, and one of another family than the edge's.
    for client in ["192.0.2.1", "::1"] {
        let clients = vec![client.parse().unwrap()];
        let error = refused(ClientConfig { clients, ..config(&[edge], closed(1)) });
        assert!(matches!(error, ClientError::Client { .. }), "{error}");
    }
}
