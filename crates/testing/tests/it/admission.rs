//! Which requests are admitted while not all can be served.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sidelong_config::{Configuration, SiteEntry};

use sidelong_testing::overload::{self, CLIENTS};
use sidelong_testing::{Client, Cluster, STALE_MAX, SetOnDrop, eventually, get, metrics, try_get};

/// A cluster of [`overload`], behind one edge.
fn cluster(sites: &[&str]) -> Cluster {
    let mut cluster = overload::cluster(sites);
    cluster.file.edges.truncate(1);
    cluster
}

/// The answers that clients got, by status.
type Statuses = BTreeMap<u16, usize>;

/// Sends requests for alpha from all clients at once while `work` runs. A client sleeps a little when it is rejected.
fn while_overloaded(cluster: &Cluster, work: impl FnOnce()) -> Statuses {
    while_asked(cluster, "alpha.test", CLIENTS, work)
}

/// Sends requests for any site from `clients` clients at once while `work` runs.
fn while_asked(cluster: &Cluster, host: &str, clients: usize, work: impl FnOnce()) -> Statuses {
    let over = AtomicBool::new(false);
    // All are connected, as an answer shows, before the first sends many requests.
    let taken_in = |_| {
        let mut client = Client::connect(cluster.edge(0));
        assert_eq!(client.ask("GET", host, "/o/1/100").unwrap().status, 200);
        client
    };
    let clients: Vec<_> = (0..clients).map(taken_in).collect();
    let ask = |mut client: Client| {
        let mut statuses = Statuses::new();
        while !over.load(Ordering::Relaxed) {
            let reply = client.ask("GET", host, "/o/1/100").expect("no connection is cut");
            *statuses.entry(reply.status).or_default() += 1;
            if reply.status == 503 {
                assert_eq!(reply.header("x-sidelong-reason"), Some("over-target"), "{reply:?}");
                let seconds: u32 = reply.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=5).contains(&seconds), "{reply:?}");
                assert!(reply.body.contains("overloaded"), "{reply:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        statuses
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| ask(client))).collect();
        let _ends_them = SetOnDrop(&over);
        work();
        drop(_ends_them);
        let mut all = Statuses::new();
        for statuses in clients.into_iter().map(|client| client.join().unwrap()) {
            statuses.into_iter().for_each(|(status, count)| *all.entry(status).or_default() += count);
        }
        all
    })
}

#[test]
fn an_overloaded_site_turns_away_what_it_cannot_serve_in_time_and_no_other_does() {
    let cluster = cluster(&["alpha", "beta"]);
    let _up = cluster.serving_here();
    let mut delays = Vec::new();
    let statuses = while_overloaded(&cluster, || {
        let rejected = r#"rejected_total{site="alpha",why="over-target"}"#;
        eventually("some are rejected", || cluster.figure(0, rejected) > Some(200.0));
        for _ in 0..50 {
            let reply = get(cluster.edge(0), "beta.test", "/o/1/100");
            assert_eq!(reply.status, 200, "beta is not affected: {reply:?}");
            delays.extend(cluster.figure(0, r#"queue_delay_seconds{site="alpha"}"#));
        }
    });
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 503], "{statuses:?}");
    // Of 30 clients 28 would wait, for 280 ms. The machine may delay a verdict now and then.
    delays.sort_by(f64::total_cmp);
    assert!(delays[delays.len() / 2] < 0.15, "{delays:?}");
    let told = metrics(cluster.admin(0));
    let sum = |begin: &str| -> f64 {
        told.iter().filter(|(name, _)| name.starts_with(begin)).map(|(_, count)| count).sum()
    };
    assert_eq!(sum("sidelong_edge_rejected_total{site=\"alpha\""), statuses[&503] as f64);
    assert_eq!(sum("sidelong_edge_rejected_total{site=\"beta\""), 0.0);
    assert!(sum("sidelong_edge_admitted_total{site=\"alpha\"") >= statuses[&200] as f64);
    assert_eq!(told["sidelong_edge_closed_at_accept_total"], 0.0, "beta would have them");
    assert_eq!(told[r#"sidelong_edge_admitted_ratio{site="beta"}"#], 1.0);
    eventually("all are admitted again", || {
        cluster.figure(0, r#"admitted_ratio{site="alpha"}"#) == Some(1.0)
    });
    assert_eq!(cluster.figure(0, r#"target_met{site="alpha"}"#), Some(1.0));
}

/// Runs `work` while eight clients send requests for alpha, six of which wait at its one node, for 60 ms, and others
/// for beta, which has two nodes. `work` is given the number of rejected requests, and of nodes that moved from the
/// first site named to the second.
fn beside_beta(
    configuration: Configuration,
    alpha: impl FnOnce(&mut SiteEntry),
    clients_of_beta: usize,
    work: impl FnOnce(&dyn Fn() -> f64, &dyn Fn(&str, &str) -> f64),
) {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).with_service(Duration::from_millis(20));
    cluster.file.edges.truncate(1);
    cluster.file.baseline.configuration = configuration;
    // A node that stalls is not taken for dead, and needs no other in its place.
    cluster.file.load.stale = STALE_MAX;
    alpha(&mut cluster.file.sites[0]);
    let _up = cluster.serving_here();
    let count = |name: &str| cluster.figure(0, name).unwrap_or(0.0);
    let rejected = || count(r#"rejected_total{site="alpha",why="over-target"}"#);
    let moved = |from: &str, to: &str| {
        let counted = |reason| count(&format!(r#"moves_total{{from="{from}",to="{to}",reason="{reason}"}}"#));
        ["high", "stranded", "floor", "stage"].map(counted).iter().sum()
    };
    let mut of_alpha = Statuses::new();
    let of_beta = while_asked(&cluster, "beta.test", clients_of_beta, || {
        of_alpha = while_asked(&cluster, "alpha.test", 8, || work(&rejected, &moved));
    });
    assert!(of_beta.keys().all(|status| *status == 200), "{of_beta:?}");
    assert_eq!(of_alpha.get(&503).copied().unwrap_or(0) as f64, rejected(), "{of_alpha:?}");
}

/// On two nodes four wait, for 20 ms, which is no danger; and three keep those of the less important beta busy.
#[test]
fn a_site_over_its_target_gets_a_node_and_then_turns_nobody_away() {
    let important = |alpha: &mut SiteEntry| {
        (alpha.priority, alpha.queue_max) = (1, Some(Duration::from_millis(100)));
    };
    beside_beta(Configuration::Rigid, important, 3, |rejected, _| {
        for _ in 0..3 {
            let before = rejected();
            eventually("without another node it goes on", || rejected() > before + 20.0);
        }
    });
    beside_beta(Configuration::Reconfigured, important, 3, |rejected, moved| {
        eventually("a node comes", || moved("beta", "alpha") > 0.0);
        eventually("nothing is rejected for a second", || {
            let before = rejected();
            std::thread::sleep(Duration::from_secs(1));
            rejected() == before
        });
        assert_eq!((moved("beta", "alpha"), moved("alpha", "beta")), (1.0, 0.0), "and the node stays");
    });
}

#[test]
fn a_queue_that_a_site_has_time_for_takes_nobodys_node() {
    let patient = |alpha: &mut SiteEntry| alpha.queue_max = Some(Duration::from_secs(10));
    beside_beta(Configuration::Reconfigured, patient, 0, |rejected, moved| {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!((moved("beta", "alpha"), rejected()), (0.0, 0.0));
    });
    // By load alone it moves: the load is four times what its workers can do.
    beside_beta(
        Configuration::Reconfigured,
        |_| (),
        0,
        |_, moved| {
            eventually("a node comes", || moved("beta", "alpha") > 0.0);
        },
    );
}

/// One address retries at once, on many connections, whatever the answer.
#[test]
fn a_client_that_ignores_refusals_does_not_starve_those_who_heed_them() {
    const FLOODING: usize = 24;
    const HEEDING: u8 = 10;
    let cluster = cluster(&["alpha"]);
    let _up = cluster.serving_here();
    let over = AtomicBool::new(false);
    let connect = |host: u8| Client::connect_from(Ipv4Addr::new(127, 200, 0, host), cluster.edge(0));
    let ask = |client: &mut Client| client.ask("GET", "alpha.test", "/o/1/100").map(|reply| reply.status);
    let flood = || {
        let mut refused = 0;
        let mut client = None;
        while !over.load(Ordering::Relaxed) {
            // If its connection is closed at accept, it reconnects at once.
            let connected = client.take().or_else(|| connect(0).ok());
            client = connected.and_then(|mut client| {
                let status = ask(&mut client).ok()?;
                refused += usize::from(status == 503);
                // Far sooner than `retry-after`, but leaving CPU time for the others.
                std::thread::sleep(Duration::from_millis(5));
                Some(client)
            });
        }
        refused
    };
    // Together they request half of what the node can serve.
    let [asked, served] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let total = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let heed = &|host: u8| {
        // One after another.
        std::thread::sleep(Duration::from_millis(20) * u32::from(host));
        while !over.load(Ordering::Relaxed) {
            let status = connect(host).and_then(|mut client| ask(&mut client));
            asked.fetch_add(1, Ordering::Relaxed);
            served.fetch_add(usize::from(status.is_ok_and(|status| status == 200)), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    std::thread::scope(|scope| {
        let ends_them = SetOnDrop(&over);
        let flood: Vec<_> = (0..FLOODING).map(|_| scope.spawn(flood)).collect();
        (1..=HEEDING).for_each(|host| _ = scope.spawn(move || heed(host)));
        eventually("the flood is known for one", || {
            cluster.figure(0, r#"rejected_total{site="alpha",why="greedy"}"#) > Some(1000.0)
        });
        // Over seconds, because there is always a moment at which the flood is rejected. If the machine has no time for
        // the node, that is not the edge's fault: it may take more than the first seconds.
        eventually("nine of ten who heed are served", || {
            let before = (total(&served), total(&asked));
            std::thread::sleep(Duration::from_secs(3));
            let (served, asked) = (total(&served) - before.0, total(&asked) - before.1);
            asked > 80 && served * 10 > asked * 9
        });
        drop(ends_them);
        let refused: usize = flood.into_iter().map(|client| client.join().unwrap()).sum();
        assert!(refused > 1000, "{refused}");
    });
}

/// The part of requests that are answered while alpha is overloaded by clients that each send one and do not come back: of five that
/// keep sending `request`, and of all others.
fn beside_newcomers(site: impl FnOnce(&mut SiteEntry), [method, path]: [&'static str; 2]) -> [f64; 2] {
    const NEW: usize = 20;
    const STAYING: u8 = 5;
    let mut cluster = cluster(&["alpha"]);
    site(&mut cluster.file.sites[0]);
    let _up = cluster.serving_here();
    let (over, addresses) = (AtomicBool::new(false), AtomicUsize::new(0));
    // By whether they stay: all, and answered.
    let counts = [(); 2].map(|()| [(); 2].map(|()| AtomicUsize::new(0)));
    let count = |stays: bool, status: u16| {
        counts[usize::from(stays)][0].fetch_add(1, Ordering::Relaxed);
        counts[usize::from(stays)][1].fetch_add(usize::from(status == 200), Ordering::Relaxed);
    };
    let total = |stays: bool, which: usize| counts[usize::from(stays)][which].load(Ordering::Relaxed);
    let stay = |host: u8| {
        // It was admitted before.
        let mut client = Client::connect_from(Ipv4Addr::new(127, 201, 0, host), cluster.edge(0)).unwrap();
        assert_eq!(client.ask(method, "alpha.test", path).unwrap().status, 200);
        client
    };
    let staying: Vec<_> = (0..STAYING).map(stay).collect();
    let come = || {
        while !over.load(Ordering::Relaxed) {
            let [.., third, fourth] = addresses.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            let client = Client::connect_from(Ipv4Addr::new(127, 202, third, fourth), cluster.edge(0));
            // If its connection is closed at accept, it is rejected, too.
            let reply = client.and_then(|mut client| client.ask("GET", "alpha.test", "/o/1/100"));
            count(false, reply.map_or(503, |reply| reply.status));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let go_on = |mut client: Client| {
        while !over.load(Ordering::Relaxed) {
            count(true, client.ask(method, "alpha.test", path).expect("no connection is cut").status);
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    std::thread::scope(|scope| {
        let _ends_them = SetOnDrop(&over);
        (0..NEW).for_each(|_| _ = scope.spawn(come));
        eventually("newcomers are rejected", || total(false, 0) > total(false, 1) + 20);
        staying.into_iter().for_each(|client| _ = scope.spawn(move || go_on(client)));
        eventually("many requests have ended", || total(true, 0) > 150 && total(false, 0) > 1000);
    });
    [true, false].map(|stays| total(stays, 1) as f64 / total(stays, 0) as f64)
}

#[test]
fn what_is_worth_more_is_rejected_last() {
    let last = |site: &mut SiteEntry| site.rejected_last = vec!["POST /".into(), "/o/2".into()];
    let [staying, new] = beside_newcomers(last, ["GET", "/o/2/100"]);
    assert!(new < 0.5 && staying > 2.0 * new, "{staying}, {new}");
}

#[test]
fn who_is_on_a_visit_is_rejected_last() {
    let visit = |site: &mut SiteEntry| site.visit = Some(Duration::from_secs(60));
    let [staying, new] = beside_newcomers(visit, ["GET", "/o/1/100"]);
    assert!(new < 0.5 && staying > 2.0 * new, "{staying}, {new}");
}

#[test]
fn where_every_site_is_overloaded_connections_are_closed_as_they_come() {
    let cluster = cluster(&["alpha"]);
    let _up = cluster.serving_here();
    let mut answers = Statuses::new();
    let statuses = while_overloaded(&cluster, || {
        eventually("a newcomer is shown out without a word", || {
            match try_get(cluster.edge(0), "alpha.test", "/o/1/100") {
                Ok(reply) => *answers.entry(reply.status).or_default() += 1,
                // A close, or a reset if the request was already there.
                Err(_) => return cluster.figure(0, "closed_at_accept_total") >= Some(1.0),
            }
            false
        });
    });
    assert!(statuses[&200] > 0, "and established connections stay: {statuses:?}");
    assert_eq!(cluster.figure(0, r#"refused_total{reason="too-many"}"#), Some(0.0));
}

#[test]
fn without_a_target_nobody_is_rejected() {
    let mut cluster = cluster(&["alpha"]);
    cluster.file.sites[0].queue_max = None;
    let _up = cluster.serving_here();
    let statuses = while_overloaded(&cluster, || std::thread::sleep(Duration::from_secs(1)));
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200], "{statuses:?}");
    assert!(metrics(cluster.admin(0)).keys().all(|name| !name.contains("admitted")), "nor is it told");
}

#[test]
fn a_request_with_a_body_that_is_rejected_leaves_its_connection_usable() {
    let cluster = cluster(&["alpha", "beta"]);
    let _up = cluster.serving_here();
    let body = "x".repeat(10_000);
    while_overloaded(&cluster, || {
        eventually("a post is rejected", || {
            // One connection each, because on a single one they would wait for their turn.
            let mut client = Client::connect(cluster.edge(0));
            let head = "POST /o/1/5 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 10000\r\n\r\n";
            client.send(format!("{head}{body}")).unwrap();
            let reply = client.reply(true).unwrap();
            assert!([200, 503].contains(&reply.status), "{reply:?}");
            let next = client.ask("GET", "beta.test", "/o/1/7").expect("the connection is kept");
            assert_eq!((next.status, next.body.len()), (200, 7), "{next:?}");
            reply.status == 503
        });
    });
}
