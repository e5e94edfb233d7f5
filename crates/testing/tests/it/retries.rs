//! Which requests an edge sends to another node after the first has failed, and which headers it adds. The nodes'
//! memory is real; stub servers behave as each test requires.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sidelong_config::{Forwarded, NodeEntry};

use sidelong_harness::programs;
use sidelong_testing::servers::haproxy_program;
use sidelong_testing::{Client, Cluster, Here, Running, eventually, metrics, try_get};

/// A server's answer to the `n`-th request of a connection; `None` closes the connection.
type Answers = fn(n: usize) -> Option<&'static str>;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Paths whose requests each server fails: it closes, breaks its answer off, sends none that is valid, or says nothing more.
const BAD: [(&str, Option<&str>); 4] = [
    ("/closed", None),
    ("/broken", Some("HTTP/1.1 200 OK\r\ncontent-le")),
    ("/malformed", Some("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok")),
    ("/silent", Some("")),
];

/// A server that records the heads of requests.
struct Stub {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn start(address: SocketAddr, answers: Answers) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let kept = Arc::clone(&heads);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, answers, &kept));
            }
        });
        Stub { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Number of requests of `method` that it received.
    fn count(&self, method: &str) -> usize {
        self.heads().iter().filter(|head| head.starts_with(method)).count()
    }
}

fn serve(stream: TcpStream, answers: Answers, heads: &Mutex<Vec<String>>) {
    let mut stream = BufReader::new(stream);
    for n in 1.. {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ").or(line.strip_prefix("Content-Length: ")));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let bad = BAD.iter().find(|bad| head.starts_with(&format!("GET {} ", bad.0)));
        heads.lock().unwrap().push(head);
        let Some(answer) = bad.map_or_else(|| answers(n), |bad| bad.1) else { return };
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// An edge with one site, whose nodes are replaced by stubs.
struct Bench {
    cluster: Cluster,
    stubs: Vec<Stub>,
    _parts: Vec<Here>,
}

impl Bench {
    /// A bench with a node for each of `answers`.
    fn new(answers: &[Answers]) -> Self {
        Bench::with(answers, |_| ())
    }

    /// A bench whose cluster file is changed.
    fn with(answers: &[Answers], change: impl FnOnce(&mut Cluster)) -> Self {
        let mut cluster = Cluster::new(&[("alpha", answers.len())]);
        cluster.file.edges.truncate(1);
        change(&mut cluster);
        let nodes = cluster.file.nodes.iter().map(|node| cluster.here("node", &node.name));
        let mut parts: Vec<_> = nodes.collect();
        for node in 0..cluster.file.nodes.len() {
            eventually("the node has read its file", || {
                try_get(cluster.node(node), "any", "/healthz").is_ok()
            });
        }
        // The edge reads the nodes' memory, and sends their requests to the stubs.
        let stubs: Vec<_> = answers.iter().map(|answers| Stub::start(cluster.at(0), *answers)).collect();
        for (node, stub) in cluster.file.nodes.iter_mut().zip(&stubs) {
            node.listen = Some(stub.address);
        }
        cluster.reload().unwrap();
        parts.push(cluster.here("edge", "edge1"));
        eventually("the edge has seen all nodes", || {
            let metrics = try_get(cluster.admin(0), "any", "/metrics")
                .map_or_else(|_| String::new(), |reply| reply.body);
            let seen = |node: &NodeEntry| {
                metrics.contains(&format!("node_site{{node=\"{}\",site=\"alpha\"}} 1", node.name))
            };
            cluster.file.nodes.iter().all(seen)
        });
        eventually("the edge listens", || TcpStream::connect(cluster.edge(0)).is_ok());
        Bench { cluster, stubs, _parts: parts }
    }

    fn client(&self) -> Client {
        Client::connect(self.cluster.edge(0))
    }

    /// Number of requests of `method` that the nodes received.
    fn count(&self, method: &str) -> usize {
        self.stubs.iter().map(|stub| stub.count(method)).sum()
    }
}

#[test]
fn what_may_be_repeated_is_tried_once_on_another_node() {
    let bench = Bench::new(&[|_| None, |_| None]);
    let reply = bench.client().ask("GET", "alpha.test", "/").unwrap();
    assert_eq!(reply.status, 502, "{reply:?}");
    let tries: Vec<_> = bench.stubs.iter().map(|stub| stub.count("GET")).collect();
    assert_eq!(tries, [1, 1], "once on each");
    eventually("it is counted", || metrics(bench.cluster.admin(0))["sidelong_edge_retries_total"] == 1.0);
}

#[test]
fn a_node_that_breaks_costs_no_answer_while_another_serves() {
    let bench = Bench::new(&[|_| None, |_| Some(OK)]);
    let mut client = bench.client();
    // Whichever has the lower load is asked first, maybe for long.
    let mut asked = 0;
    eventually("the broken one is asked, too", || {
        let reply = client.ask("GET", "alpha.test", "/").unwrap();
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok"), "{reply:?}");
        asked += 1;
        asked >= 50 && bench.stubs[0].count("GET") > 0
    });
    let broken = bench.stubs[0].count("GET");
    assert!(broken < asked, "it is taken out: asked {broken} times of {asked}");
    assert_eq!(bench.stubs[1].count("GET"), asked);
}

/// How long the requests took of clients who ask for what is fine, while others ask for `bad`; and how many failed.
fn beside(proxy: SocketAddr, bad: &str) -> (Vec<Duration>, usize) {
    let stop = AtomicBool::new(false);
    let ask = || {
        std::thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        let is_good = try_get(proxy, "alpha.test", "/").is_ok_and(|reply| reply.status == 200);
        is_good.then(|| begun.elapsed())
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let reply = try_get(proxy, "alpha.test", bad);
                    assert!(reply.is_ok_and(|reply| (502..=504).contains(&reply.status)), "{bad}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
        let clients: Vec<_> = (0..5).map(|_| scope.spawn(|| (0..60).map(|_| ask()).collect())).collect();
        let asked: Vec<Vec<_>> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        let (mut took, failed): (Vec<_>, Vec<_>) = asked.into_iter().flatten().partition(Option::is_some);
        took.sort_unstable();
        (took.into_iter().flatten().collect(), failed.len())
    })
}

/// Beside HAProxy, before the same servers.
#[test]
fn one_bad_url_takes_no_site_down() {
    let good: Answers = |_| Some(OK);
    let bench = Bench::with(&[good; 3], |cluster| {
        cluster.file.limits.response_timeout = Duration::from_secs(1);
    });
    let servers = bench.stubs.iter().zip(1..).map(|(stub, n)| format!("    server s{n} {}\n", stub.address));
    let listen = bench.cluster.at(6001);
    let config = format!(
        "global\n    nbthread 1\n\ndefaults\n    mode http\n    retries 1\n    option redispatch 1\n    retry-on all-retryable-errors\n    \
         timeout connect 1s\n    timeout client 9s\n    timeout server 1s\n\nfrontend front\n    bind {listen}\n    \
         default_backend servers\n\nbackend servers\n    balance leastconn\n{}",
        servers.collect::<String>()
    );
    let haproxy = haproxy_program().map(|program| {
        let mut command = Command::new(program);
        command.args(programs::haproxy(&bench.cluster.path("haproxy"), &config).unwrap());
        let running = Running::start_command(command);
        eventually("HAProxy serves", || try_get(listen, "alpha.test", "/").is_ok());
        running
    });
    let p99 = |took: &[Duration]| took[took.len() * 99 / 100];
    for (bad, _) in BAD {
        let mut rounds = (0..20).map(|_| {
            let (ours, failed) = beside(bench.cluster.edge(0), bad);
            assert_eq!(failed, 0, "of 300 beside {bad}");
            let theirs = haproxy.as_ref().map(|_| beside(listen, bad).0);
            let both = (p99(&ours), theirs.map_or(Duration::MAX, |theirs| p99(&theirs)));
            println!("beside {bad}: p99 {:?}, HAProxy's {:?}", both.0, both.1);
            both
        });
        assert!(rounds.any(|(ours, theirs)| ours <= theirs.saturating_mul(2)), "p99 beside {bad}");
    }
    let up = bench
        .cluster
        .file
        .nodes
        .iter()
        .map(|node| format!("sidelong_edge_node_up{{node=\"{}\"}}", node.name));
    let metrics = metrics(bench.cluster.admin(0));
    assert!(up.into_iter().all(|up| metrics[&up] == 1.0), "{metrics:?}");
    haproxy.map(Running::end);
}

#[test]
fn servers_learn_who_asks() {
    let bench = Bench::new(&[|_| Some(OK), |_| Some(OK)]);
    let mut client = bench.client();
    let address = client.local_address().ip();
    client.ask("GET", "alpha.test", "/plain?query=1").unwrap();
    let fields = "x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: beta.test\r\n\
                  forwarded: for=192.0.2.1";
    client.send(format!("GET /chained HTTP/1.1\r\nhost: alpha.test\r\n{fields}\r\n\r\n")).unwrap();
    client.reply(true).unwrap();
    let heads = bench.stubs.iter().flat_map(Stub::heads).collect::<Vec<_>>();
    let of = |path: &str| heads.iter().find(|head| head.contains(path)).unwrap().to_lowercase();
    let plain = of("/plain");
    assert!(plain.starts_with("get /plain?query=1 http/1.1\r\n"), "{plain}");
    assert!(plain.contains(&format!("\r\nx-forwarded-for: {address}\r\n")), "{plain}");
    assert!(plain.contains("\r\nhost: alpha.test\r\n"), "{plain}");
    let chained = of("/chained");
    assert!(chained.contains(&format!("\r\nx-forwarded-for: 192.0.2.1, {address}\r\n")), "{chained}");
    // What a client says of its way in other fields cannot be told from what a proxy says.
    assert!(chained.contains("\r\nx-forwarded-proto: http\r\n"), "{chained}");
    assert!(!chained.contains("beta.test") && !chained.contains("\r\nforwarded: "), "{chained}");
}

#[test]
fn servers_learn_the_way_as_the_edge_is_told_to_tell_it() {
    let bench = Bench::with(&[|_| Some(OK)], |cluster| {
        cluster.file.edges[0].forwarded = Forwarded::Both;
        cluster.file.edges[0].via = Some("edge1".into());
    });
    let mut client = bench.client();
    let address = client.local_address().ip();
    assert_eq!(client.ask("GET", "alpha.test", "/").unwrap().status, 200);
    let heads = bench.stubs[0].heads();
    for field in [
        format!("x-forwarded-for: {address}"),
        format!("forwarded: for={address};proto=http"),
        "via: 1.1 edge1".to_owned(),
    ] {
        assert!(heads[0].contains(&format!("\r\n{field}\r\n")), "{field}: {heads:?}");
    }
    client.send("GET /loop HTTP/1.1\r\nhost: alpha.test\r\nvia: 1.1 other, 1.1 edge1\r\n\r\n").unwrap();
    assert_eq!(client.reply(true).unwrap().status, 508);
    assert_eq!(client.ask("GET", "alpha.test", "/").unwrap().status, 200, "on the same connection");
    assert_eq!(bench.count("GET /loop"), 0);
}

#[test]
fn every_answer_has_one_date() {
    const DATED: &str =
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 2\r\n\r\nok";
    let bench = Bench::new(&[|n| Some(if n == 1 { DATED } else { OK })]);
    let mut client = bench.client();
    for (host, status) in [("alpha.test", 200), ("alpha.test", 200), ("gamma.test", 421)] {
        let reply = client.ask("GET", host, "/").unwrap();
        let head = reply.head.to_lowercase();
        assert_eq!((reply.status, head.matches("\r\ndate: ").count()), (status, 1), "{head}");
        assert!(reply.header("date").unwrap().ends_with(" GMT"), "{head}");
    }
}

#[test]
fn servers_learn_the_client_that_a_proxy_header_tells() {
    let bench = Bench::with(&[|_| Some(OK)], |cluster| cluster.file.edges[0].proxy_protocol = true);
    let mut client = bench.client();
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r\n").unwrap();
    assert_eq!(client.ask("GET", "alpha.test", "/plain").unwrap().status, 200);
    let heads = bench.stubs[0].heads();
    assert!(heads.iter().any(|head| head.contains("\r\nx-forwarded-for: 192.0.2.1\r\n")), "{heads:?}");
}

#[test]
fn only_a_trusted_proxy_is_believed_about_its_client() {
    for (trusted, is_trusted) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let bench = Bench::with(&[|_| Some(OK)], |cluster| {
            cluster.file.edges[0].trusted_proxies = vec![trusted.parse().unwrap()];
            cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
        });
        let mut client = bench.client();
        let address = client.local_address().ip();
        // HAProxy adds a line of its own.
        let fields = "x-forwarded-for: 192.0.2.9\r\nx-forwarded-for: 192.0.2.1";
        client.send(format!("GET /chained HTTP/1.1\r\nhost: alpha.test\r\n{fields}\r\n\r\n")).unwrap();
        client.reply(true).unwrap();
        let (chain, logged) = match is_trusted {
            true => (format!("192.0.2.9, 192.0.2.1, {address}"), "192.0.2.1".to_owned()),
            false => (address.to_string(), address.to_string()),
        };
        let heads = bench.stubs[0].heads();
        let head = heads.iter().find(|head| head.contains("/chained")).unwrap();
        assert!(head.contains(&format!("\r\nx-forwarded-for: {chain}\r\n")), "{head}");
        let log = || std::fs::read_to_string(bench.cluster.path("access.log")).unwrap();
        eventually("it is logged as that client's", || {
            log()
                .lines()
                .any(|line| line.contains("/chained ") && line.starts_with(&format!("{logged} - - ")))
        });
    }
}
