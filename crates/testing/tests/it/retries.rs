//! Which requests an edge sends to another node after the first has failed, and which headers it adds. The nodes'
//! memory is real; stub servers behave as each test requires.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidelong_config::{Forwarded, NodeEntry};

use sidelong_testing::{Client, Cluster, Here, eventually, metrics, try_get};

/// A server's answer to the `n`-th request of a connection, with a [`PAUSE`] for each `|`; `None` closes the
/// connection.
type Answers = fn(n: usize) -> Option<&'static str>;

const PAUSE: Duration = Duration::from_millis(100);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

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
        heads.lock().unwrap().push(head);
        let Some(answer) = answers(n) else { return };
        for (k, part) in answer.split('|').enumerate() {
            std::thread::sleep(PAUSE * u32::from(k > 0));
            if stream.get_mut().write_all(part.as_bytes()).is_err() {
                return;
            }
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
        Bench::with_patience(answers, Duration::from_secs(10))
    }

    /// A bench whose edge waits that long for a node's bytes.
    fn with_patience(answers: &[Answers], response_timeout: Duration) -> Self {
        Bench::with(answers, |cluster| cluster.file.limits.response_timeout = response_timeout)
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

const POST: &str = "POST /order HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: 5\r\n\r\nhello";

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
fn what_may_not_be_repeated_is_not() {
    let bench = Bench::new(&[|_| None, |_| None]);
    let mut client = bench.client();
    client.send(POST).unwrap();
    let reply = client.reply(true).unwrap();
    assert_eq!(reply.status, 502, "{reply:?}");
    assert_eq!(bench.count("POST"), 1, "one order, not two");
    assert_eq!(metrics(bench.cluster.admin(0))["sidelong_edge_retries_total"], 0.0);
}

#[test]
fn nor_is_it_where_a_kept_connection_breaks() {
    // A connection serves one request, and breaks at the next.
    let bench = Bench::new(&[|n| (n == 1).then_some(OK)]);
    let mut client = bench.client();
    assert_eq!(client.ask("GET", "alpha.test", "/").unwrap().status, 200);
    client.send(POST).unwrap();
    assert_eq!(client.reply(true).unwrap().status, 502);
    assert_eq!(bench.count("POST"), 1);
    // The node is not blamed, and serves the next request.
    assert_eq!(bench.client().ask("GET", "alpha.test", "/").unwrap().status, 200);
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

/// Longer than a server that answers at all needs.
const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn a_node_that_hangs_costs_no_answer_while_another_serves() {
    let bench = Bench::with_patience(&[|_| Some(""), |_| Some(OK)], PATIENCE);
    // So many at once that both nodes get some.
    let mut clients: Vec<_> = (0..10).map(|_| bench.client()).collect();
    for round in 1..=3 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
        }
        for client in &mut clients {
            let reply = client.reply(true).unwrap();
            assert_eq!((reply.status, reply.body.as_str()), (200, "ok"), "round {round}: {reply:?}");
        }
    }
    let hung = bench.stubs[0].count("GET");
    assert!((1..30).contains(&hung), "it is taken out: asked {hung} times");
}

#[test]
fn an_answer_that_does_not_come_is_a_timeout() {
    let bench = Bench::with_patience(&[|_| Some("")], PATIENCE);
    let mut client = bench.client();
    client.send(POST).unwrap();
    let reply = client.reply(true).unwrap();
    assert_eq!(reply.status, 504, "{reply:?}");
    assert_eq!(bench.count("POST"), 1, "one order, not two");
}

#[test]
fn an_answer_that_stops_midway_is_cut_off() {
    let bench = Bench::with_patience(&[|_| Some("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")], PATIENCE);
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    let answer = client.rest();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer:?}");
}

#[test]
fn a_long_answer_has_all_the_time_it_takes() {
    let bench = Bench::with_patience(
        &[|_| Some("HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n|1|2|3|4|5|6|7|8|9|0|1|2|3|4|5")],
        PATIENCE,
    );
    let reply = bench.client().ask("GET", "alpha.test", "/").unwrap();
    assert_eq!((reply.status, reply.body.as_str()), (200, "123456789012345"), "{reply:?}");
}

#[test]
fn an_unheard_post_goes_to_another_node() {
    // If no process listens, nothing was sent, so even a request that is not idempotent is sent to another node.
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.edges.truncate(1);
    let nodes = [cluster.here("node", "n1"), cluster.here("node", "n2")];
    for node in 0..2 {
        eventually("the node has read its file", || try_get(cluster.node(node), "any", "/healthz").is_ok());
    }
    cluster.file.nodes[0].listen = Some(cluster.at(6001));
    let _edge = cluster.here("edge", "edge1");
    eventually("the edge serves", || {
        try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
    });
    for _ in 0..20 {
        let mut client = Client::connect(cluster.edge(0));
        client.send(POST.replace("/order", "/o/1/2")).unwrap();
        let reply = client.reply(true).unwrap();
        assert_eq!((reply.status, reply.node()), (200, "n2"), "{reply:?}");
    }
    drop(nodes);
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
