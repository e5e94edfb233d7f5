//! Requests that last: WebSockets, streams of events and slow answers, at a node that is to leave their site.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use sidelong_app::by_hand::Wish;
use sidelong_config::Drain;

use sidelong_testing::lasting::{Server, WebSocket, begin, frame};
use sidelong_testing::{Cluster, Here, PATIENCE, eventually, metrics, try_get};

/// Three servers, of which two are alpha's, behind an edge.
struct Lasting {
    servers: Vec<Arc<Server>>,
    edge: Option<Here>,
    _agents: Vec<Here>,
    /// Last, because the others use its directory until they end.
    cluster: Arc<Cluster>,
}

impl Lasting {
    fn start(drain: Drain) -> Self {
        let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]).foreign();
        cluster.file.edges.truncate(1);
        cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
        cluster.file.sites[0].drain = drain;
        let server = |node: usize| Server::start(&cluster.file.nodes[node].name, cluster.node(node), |_| {});
        let servers = (0..3).map(server).collect();
        let agents = ["n1", "n2", "n3"].map(|name| cluster.here("node", name)).into();
        let edge = Some(cluster.here("edge", "edge1"));
        let lasting = Lasting { cluster: Arc::new(cluster), servers, edge, _agents: agents };
        for site in ["alpha", "beta"] {
            eventually("every site is served", || lasting.answers(site).is_some());
        }
        lasting
    }

    /// The server that answers for a site.
    fn answers(&self, site: &str) -> Option<String> {
        let reply = try_get(self.cluster.edge(0), &format!("{site}.test"), "/").ok()?;
        (reply.status == 200).then_some(reply.body)
    }

    /// Requests in hand at a node's server.
    fn at(&self, node: &str) -> usize {
        let index = self.cluster.file.nodes.iter().position(|entry| entry.name == node).unwrap();
        self.servers[index].lasting()
    }

    fn cut(&self) -> f64 {
        metrics(self.cluster.admin(0))["sidelong_edge_cut_requests_total{site=\"alpha\"}"]
    }

    /// Whether requests go to the node: nobody thinks that it has failed.
    fn is_up(&self, node: &str) -> bool {
        metrics(self.cluster.admin(0))[&format!("sidelong_edge_node_up{{node=\"{node}\"}}")] == 1.0
    }

    /// The access log, after the edge has ended.
    fn log(&mut self) -> String {
        self.edge.take().unwrap().end();
        std::fs::read_to_string(self.cluster.path("access.log")).unwrap()
    }

    /// A request to alpha over HTTP/1.1, and the server that got it.
    fn ask(&self, path: &str) -> (TcpStream, String) {
        begin(self.cluster.edge(0), "alpha.test", path, "").unwrap()
    }

    fn open(&self) -> WebSocket {
        WebSocket::open(self.cluster.edge(0), "alpha.test").unwrap()
    }
}

/// What comes until the other side closes.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_websocket_keeps_its_node_where_it_is_until_it_closes() {
    let mut lasting = Lasting::start(Drain::Wait);
    let mut socket = lasting.open();
    let node = socket.node.clone();
    socket.echoes(1, "before").unwrap();
    let why = lasting.cluster.move_to(&node, "beta").unwrap_err();
    assert!(why.contains(&format!("requests of alpha at {node} had not ended after 500ms")), "{why}");
    assert!(why.ends_with(": edge1 has 1 request there"), "{why}");
    socket.echoes(1, "behind").unwrap();
    assert_eq!((lasting.at(&node), lasting.cut()), (1, 0.0));
    // Nothing but the end of the WebSocket lets it go.
    std::thread::scope(|scope| {
        let held = scope.spawn(|| lasting.cluster.by_hand(&node, Wish::Drain, |hand| hand.waits = true));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!held.is_finished(), "{:?}", held.join());
        socket.echoes(8, "the end").unwrap();
        assert_eq!(rest(socket.stream), "");
        held.join().unwrap().unwrap();
    });
    lasting.cluster.move_to(&node, "beta").unwrap();
    eventually("it serves the other site", || lasting.answers("beta") == Some(node.clone()));
    let log = lasting.log();
    assert!(log.contains("\"GET /chat HTTP/1.1\" 101 "), "{log}");
}

#[test]
fn where_a_site_says_so_what_outlasts_a_drain_is_cut_and_the_node_moves() {
    let mut lasting = Lasting::start(Drain::Cut);
    let mut socket = lasting.open();
    let node = socket.node.clone();
    socket.echoes(1, "before").unwrap();
    lasting.cluster.move_to(&node, "beta").unwrap();
    assert_eq!(rest(socket.stream), "");
    eventually("its server's connection is closed", || lasting.at(&node) == 0);
    assert_eq!((lasting.cut(), lasting.is_up(&node)), (1.0, true));
    eventually("it serves the other site", || lasting.answers("beta") == Some(node.clone()));
    lasting.cluster.resume(&node).unwrap();

    // Likewise a stream, of a node that is held.
    lasting.cluster.move_to(&node, "alpha").unwrap();
    let (events, node) = lasting.ask("/events");
    lasting.cluster.drain(&node).unwrap();
    let events = rest(events);
    assert!(events.contains("data: tick\n") && !events.ends_with("0\r\n\r\n"), "{events}");
    eventually("its server's connection is closed", || lasting.at(&node) == 0);
    assert_eq!((lasting.cut(), lasting.is_up(&node)), (2.0, true));
    lasting.cluster.resume(&node).unwrap();

    // A request that may be repeated goes to another server, if its answer has not begun.
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| lasting.ask("/slow").1);
        let mut at = None;
        eventually("a server has it", || {
            at = ["n1", "n2", "n3"].into_iter().find(|node| lasting.at(node) > 0);
            at.is_some()
        });
        // The next one answers at once.
        lasting.servers.iter().for_each(|server| server.is_slow_no_more());
        let at = at.unwrap();
        lasting.cluster.drain(at).unwrap();
        assert_ne!(answer.join().unwrap(), at);
    });
    assert_eq!(lasting.cut(), 3.0);
    let log = lasting.log();
    for line in
        ["\"GET /chat HTTP/1.1\" 101 ", "\"GET /events HTTP/1.1\" 200 ", "\"GET /slow HTTP/1.1\" 200 "]
    {
        assert!(log.contains(line), "{log}");
    }
}

/// The next bytes of a stream; `None` after a reset.
async fn next(stream: &mut RecvStream) -> Option<Bytes> {
    let part = stream.data().await.expect("it does not end in good order").ok()?;
    stream.flow_control().release_capacity(part.len()).unwrap();
    Some(part)
}

#[test]
fn streams_of_an_http_2_client_are_cut_and_its_connection_stays() {
    let lasting = Lasting::start(Drain::Cut);
    let work = async {
        let stream = tokio::net::TcpStream::connect(lasting.cluster.edge(0)).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let ready = async || client.clone().ready().await.unwrap();
        let events = http::Request::get("http://alpha.test/events").body(()).unwrap();
        let (answer, _) = ready().await.send_request(events, true).unwrap();
        let answer = answer.await.unwrap();
        let node = answer.headers()["server"].to_str().unwrap().to_owned();
        let mut events = answer.into_body();
        assert!(next(&mut events).await.unwrap().starts_with(b"data: "));

        // Of two nodes the one without a request.
        let chat = http::Request::connect("http://alpha.test/chat").header("sec-websocket-version", "13");
        let chat = chat.extension(Protocol::from_static("websocket")).body(()).unwrap();
        let (answer, mut send) = ready().await.send_request(chat, false).unwrap();
        let answer = answer.await.unwrap();
        let other = answer.headers()["server"].to_str().unwrap().to_owned();
        let mut receive = answer.into_body();
        send.send_data(frame(1, "hello").into(), false).unwrap();
        assert_eq!(next(&mut receive).await.unwrap(), &b"\x81\x05hello"[..]);

        let drain = async |node: String| {
            let cluster = Arc::clone(&lasting.cluster);
            tokio::task::spawn_blocking(move || cluster.drain(&node)).await.unwrap().unwrap();
        };
        drain(node.clone()).await;
        while next(&mut events).await.is_some() {}
        if node != other {
            send.send_data(frame(1, "still").into(), false).unwrap();
            assert_eq!(next(&mut receive).await.unwrap(), &b"\x81\x05still"[..]);
            lasting.cluster.resume(&node).unwrap();
            drain(other).await;
        }
        while next(&mut receive).await.is_some() {}
        let plain = http::Request::get("http://alpha.test/").body(()).unwrap();
        let (answer, _) = ready().await.send_request(plain, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
    };
    block_on(work);
    assert_eq!(lasting.cut(), 2.0);
    for node in ["n1", "n2"] {
        eventually("no server has anything in hand", || lasting.at(node) == 0);
    }
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.unwrap() });
}
