//! The routes on the data path, over pipes in one thread. Its clock moves on only when everybody waits; that of the view is the machine's.

use std::future::pending;

use sidelong_layout::{NodeState, Ownership};
use sidelong_policy::admission::{Outlook, Promise, Verdict, Why};
use sidelong_policy::balance::Balance;
use sidelong_policy::health::HealthSettings;
use sidelong_policy::index::Reading;
use sidelong_proxy::{Address, CUT_CHECK, Limits, Listener, Proxy, Server};
use sidelong_reconfig::{Members, SharedMembers};
use sidelong_state::CUT_NS_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::*;
use crate::seen::ScanDisplay;
use crate::settings::{EdgeSettings, NodeAddress, SiteHosts};
use crate::status::State;

// A mover waits until requests have asked whether they are cut, and edges have counted.
const _: () = assert!(CUT_NS_MAX as u128 >= 3 * CUT_CHECK.as_nanos());

const SITE: SiteId = SiteId::new(0);
const NODES: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];
const HOUR: Duration = Duration::from_secs(3600);
const GET: &str = "GET / HTTP/1.1\r\nhost: alpha.test\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A view of two nodes of which nothing is known.
fn view() -> View {
    View::new(NODES.len(), 1, HOUR, Balance::Weighted, HealthSettings::default())
}

/// What a scan tells of a node's ownership.
fn scan(view: &View, node: NodeId, ownership: Ownership) {
    view.date_cut(node, Some(ownership), clock::now());
    view.observe(node, Some(ownership), Reading::default());
    view.relist();
    view.refreshed(clock::now());
}

#[test]
fn an_answer_before_the_end_of_its_request_leaves_the_count_of_the_unanswered() {
    let view = view();
    let node = NODES[0];
    scan(&view, node, Ownership::serving(SITE, 1));
    for stages in [[Stage::Waiting, Stage::Answered], [Stage::Answered, Stage::Waiting]] {
        assert_eq!(view.choose(SITE, None, clock::now()), Some(node));
        let mut at = AtNode { view: &view, node, stage: Stage::Sent, since: clock::now(), answers: 0 };
        stages.into_iter().for_each(|stage| at.enter(stage));
        drop(at);
        assert_eq!((view.in_flight(node), view.share(node).in_flight), (0, 0));
    }
}

/// An edge of one site, and what a test sees of it.
struct Edge {
    view: Arc<View>,
    client: DuplexStream,
    /// By node, where connections to its server begin.
    dials: Vec<mpsc::Sender<DuplexStream>>,
    /// By node, the connections to its server.
    servers: Vec<mpsc::Receiver<DuplexStream>>,
    metrics: Arc<Metrics>,
    begun: Instant,
}

/// Runs a test of an edge with such a view and gate.
fn run(view: View, gate: Option<Arc<Gate>>, test: impl AsyncFnOnce(Edge)) {
    let limits = Limits {
        header_bytes_max: 1 << 14,
        header_timeout: HOUR,
        body_timeout: HOUR,
        response_timeout: HOUR,
        idle_timeout: HOUR,
        connections_max: 9,
        connections_per_client_max: None,
        body_bytes_max: 1 << 20,
        connect_timeout: HOUR,
        retries: 1,
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let (nodes, sites) = (names(&["n1", "n2"]), names(&["alpha"]));
    let view = Arc::new(view);
    let seen = Arc::new(ScanDisplay::new((NODES.len(), 1), HOUR));
    let state = Arc::new(State {
        view: Arc::clone(&view),
        gate: gate.clone(),
        peers: None,
        seen,
        members: Arc::new(SharedMembers::from_pointee(Members {
            nodes: nodes.iter().cloned().collect(),
            sites: sites.into_iter().collect(),
            ..Members::default()
        })),
        documents: None,
    });
    let metrics = Arc::new(Metrics::new(state, None, 1, crate::About::default(), Vec::new()));
    let address = |name| NodeAddress {
        name,
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 1)).into()],
        http2: false,
    };
    let settings = EdgeSettings {
        name: "edge1".to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 2)),
        tls: Vec::new(),
        client_ca: None,
        trusted_proxies: Vec::new(),
        proxy_protocol: false,
        forwarding: Default::default(),
        admin: None,
        access_log: None,
        access_log_reopen: Arc::default(),
        threads: 1,
        limits,
        sites: [SiteHosts { name: "alpha".to_owned(), hosts: names(&["alpha.test"]) }].into_iter().collect(),
        nodes: nodes.into_iter().map(address).collect(),
        documents: None,
    };
    let live = Arc::new(LiveSettings::new(&settings).unwrap());
    let routes =
        Routes::for_threads(1, Arc::clone(&live), Arc::clone(&view), gate, Arc::clone(&metrics), || None);
    let (dials, servers): (Vec<_>, Vec<_>) = NODES.iter().map(|_| mpsc::channel(9)).unzip();
    let (connect, listener) = mpsc::channel(1);
    live.proxy.change(|settings| {
        let server = |dial| vec![Server { address: Address::Pipes(dial), http2: false }];
        settings.servers = dials.iter().cloned().map(server).collect();
    });
    let proxy = Proxy {
        listener: Listener::Pipes(listener),
        goes_on: false,
        tls: None,
        proxy_protocol: false,
        settings: Arc::clone(&live.proxy),
        is_closing: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let routes = routes.into_iter().next().unwrap();
        spawn_local(proxy.serve(routes, Duration::ZERO, async || pending().await));
        let (client, theirs) = duplex(1 << 16);
        connect.send((theirs, ([192, 0, 2, 1], 5000).into())).await.unwrap();
        let edge = Edge { view, client, dials, servers, metrics, begun: Instant::now() };
        timeout(24 * HOUR, test(edge)).await.expect("the test hangs");
    });
}

impl Edge {
    /// Asks, and returns the answer's status and when it came.
    async fn ask(&mut self, request: &str) -> (String, Duration) {
        self.client.write_all(request.as_bytes()).await.unwrap();
        let answer = read(&mut self.client).await;
        (answer.split(' ').nth(1).unwrap().to_owned(), self.begun.elapsed())
    }

    /// The next connection to the server of a node.
    async fn accept(&mut self, node: NodeId) -> DuplexStream {
        let mut stream = self.servers[node.index()].recv().await.unwrap();
        assert!(read(&mut stream).await.starts_with("GET / "));
        stream
    }
}

/// What comes at once.
async fn read(stream: &mut DuplexStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn a_request_waits_for_a_node_of_its_site_and_not_for_long() {
    run(view(), None, async |mut edge| {
        let (status, at) = edge.ask(GET).await;
        assert_eq!((&*status, at.as_secs()), ("503", WAIT_FOR_NODE_MAX.as_secs()));
        let (view, half) = (Arc::clone(&edge.view), WAIT_FOR_NODE_MAX / 2);
        spawn_local(async move {
            sleep(half).await;
            scan(&view, NODES[1], Ownership::serving(SITE, 1));
        });
        let mut server = edge.servers.pop().unwrap();
        spawn_local(async move {
            let mut stream = server.recv().await.unwrap();
            stream.write_all(OK.as_bytes()).await.unwrap();
            pending::<()>().await;
            drop(stream);
        });
        let (status, later) = edge.ask(GET).await;
        let waited = later - at;
        assert!(
            status == "200" && (half..half + 2 * WAIT_STEP).contains(&waited),
            "{status} after {waited:?}"
        );
    });
}

/// Where its site says so. The other node has not seen it.
#[test]
fn what_outlasts_a_drain_is_cut_and_goes_to_another_node() {
    run(view().cutting(Duration::ZERO, [true].into_iter()), None, async |mut edge| {
        let serving = Ownership::serving(SITE, 1);
        scan(&edge.view, NODES[0], serving);
        edge.client.write_all(GET.as_bytes()).await.unwrap();
        let mut left = edge.accept(NODES[0]).await;
        scan(&edge.view, NODES[0], Ownership { state: NodeState::Draining, generation: 2, ..serving });
        scan(&edge.view, NODES[1], serving);
        let mut other = edge.accept(NODES[1]).await;
        assert_eq!(edge.begun.elapsed().as_secs(), CUT_CHECK.as_secs(), "it asks now and then");
        assert_eq!(read(&mut left).await, "", "its connection is closed");
        other.write_all(OK.as_bytes()).await.unwrap();
        assert!(read(&mut edge.client).await.starts_with("HTTP/1.1 200 "));
        assert!(edge.view.is_up(NODES[0], clock::now()), "the node is not blamed");
        assert_eq!(edge.view.in_flight(NODES[0]), 0);
    });
}

/// It has gone to another machine, where it may serve another site.
#[test]
fn a_node_that_is_elsewhere_before_a_request_is_sent_does_not_get_it() {
    run(view(), None, async |mut edge| {
        scan(&edge.view, NODES[0], Ownership::serving(SITE, 1));
        // It does not accept.
        while edge.dials[0].try_send(duplex(1).0).is_ok() {}
        edge.client.write_all(GET.as_bytes()).await.unwrap();
        sleep(WAIT_STEP).await;
        assert_eq!(edge.view.in_flight(NODES[0]), 1, "it is chosen");
        edge.view.vacate(NODES[0]);
        scan(&edge.view, NODES[1], Ownership::serving(SITE, 1));
        let full = edge.servers[0].len();
        for _ in 0..full {
            edge.servers[0].recv().await.unwrap();
        }
        let mut elsewhere = edge.servers[0].recv().await.unwrap();
        let mut other = edge.accept(NODES[1]).await;
        assert_eq!(read(&mut elsewhere).await, "", "nothing is sent there");
        other.write_all(OK.as_bytes()).await.unwrap();
        assert!(read(&mut edge.client).await.starts_with("HTTP/1.1 200 "));
    });
}

/// The first node closes at each request, and the second answers.
#[test]
fn a_failure_is_the_requests_until_another_node_has_answered_it() {
    run(view(), None, async |mut edge| {
        scan(&edge.view, NODES[0], Ownership::serving(SITE, 1));
        for _ in 0..9 {
            edge.client.write_all(GET.as_bytes()).await.unwrap();
            let closed = edge.accept(NODES[0]).await;
            drop(closed);
            // The retry waits for another node, and then takes the same one.
            drop(edge.accept(NODES[0]).await);
            assert!(read(&mut edge.client).await.starts_with("HTTP/1.1 502 "));
        }
        assert!(
            edge.view.is_up(NODES[0], clock::now()),
            "no other request has failed, and no node has answered this one"
        );
        scan(&edge.view, NODES[1], Ownership::serving(SITE, 1));
        let mut answered = 0;
        while edge.view.is_up(NODES[0], clock::now()) {
            edge.client.write_all(GET.as_bytes()).await.unwrap();
            let [first, second] = &mut edge.servers[..] else { unreachable!() };
            let mut second = loop {
                tokio::select! {
                    closed = first.recv() => drop(closed),
                    second = second.recv() => break second.unwrap(),
                }
            };
            read(&mut second).await;
            second.write_all(OK.as_bytes()).await.unwrap();
            assert!(read(&mut edge.client).await.starts_with("HTTP/1.1 200 "));
            answered += 1;
            assert!(answered < 9, "the first node is at fault");
        }
    });
}

#[test]
fn who_is_rejected_may_ask_again_on_the_same_connection() {
    let gate = Arc::new(Gate::new(&[Promise::default()], Duration::from_secs(30), HOUR, 1));
    run(view(), Some(Arc::clone(&gate)), async |mut edge| {
        scan(&edge.view, NODES[0], Ownership::serving(SITE, 1));
        assert_eq!(edge.ask("GET / HTTP/1.1\r\nhost: gamma.test\r\n\r\n").await.0, "421");
        // From now on a new connection would be closed.
        let verdict = Verdict::decode(Why::OverTarget as u64);
        gate.show(&[Outlook { verdict, ..Outlook::default() }]);
        for body in ["", "x"].map(|byte| byte.repeat(9)) {
            let length = body.len();
            let post =
                format!("POST / HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: {length}\r\n\r\n{body}");
            assert_eq!(edge.ask(&post).await.0, "503");
        }
        assert!(edge.metrics.encode().contains("sidelong_edge_misdirected_total 1\n"));
        assert_eq!(edge.begun.elapsed(), Duration::ZERO);
    });
}
