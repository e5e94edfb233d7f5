//! Servers that speak HTTP/2 in clear text, as gRPC's do, behind an edge.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use sidelong_testing::servers::nginx_over_http2;
use sidelong_testing::{
    Client, Cluster, Here, PATIENCE, Reply, eventually, get, metrics, try_get, websocket_accept,
};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: @accept\r\n\r\n";
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// What a server does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Sends the body back, piece by piece, then its trailers, and says what it saw in a field.
    Echo,
    /// As Echo, and opens WebSockets (RFC 8441), at first on each connection.
    Tunnel,
    /// As Echo, and opens WebSockets for who speaks HTTP/1.1.
    Both,
}

/// A server that runs until its test's process ends.
struct Server {
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(address: SocketAddr, does: Does) -> Self {
        let [connections, requests] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let server = Server { connections: Arc::clone(&connections), requests: Arc::clone(&requests) };
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve(stream, does, Arc::clone(&requests)));
                }
            });
        });
        server
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn serve(stream: TcpStream, does: Does, requests: Arc<AtomicUsize>) {
    let mut first = [0];
    if does == Does::Both && stream.peek(&mut first).await.is_ok() && first != *b"P" {
        return drop(switch(stream).await);
    }
    let mut builder = h2::server::Builder::new();
    if does == Does::Tunnel {
        builder.enable_connect_protocol();
    }
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(echo(request, respond));
    }
}

/// Opens a WebSocket over HTTP/1.1, and sends back what comes.
async fn switch(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    stream.write_all(SWITCH.replace("@accept", &websocket_accept(key)).as_bytes()).await?;
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await.map(drop)
}

async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    if head.uri.path() == "/closed" {
        let none = Response::builder().status(StatusCode::FORBIDDEN).body(()).unwrap();
        return respond.send_response(none, true).map(drop);
    }
    if head.uri.query() == Some("early") {
        let early = Response::builder().status(StatusCode::EARLY_HINTS).header("link", "</a.css>");
        respond.send_informational(early.body(()).unwrap())?;
    }
    let text = |name: &str| head.headers.get(name).map_or("none", |value| value.to_str().unwrap());
    let saw = format!(
        "{} {} te={} for={} upgrade={}",
        head.method,
        head.uri,
        text("te"),
        text("x-forwarded-for"),
        text("upgrade")
    );
    let opens = head.extensions.get::<Protocol>().map_or("none", Protocol::as_str);
    let opens =
        format!("{opens} version={} key={}", text("sec-websocket-version"), text("sec-websocket-key"));
    let response = Response::builder().header("saw", saw).header("opens", opens);
    // HTTP/2 has no keys, and what it says of them counts for nothing.
    let response = response.header("sec-websocket-accept", "none");
    let mut stream = respond.send_response(response.body(()).unwrap(), false)?;
    while let Some(data) = body.data().await {
        let data = data?;
        let _ = body.flow_control().release_capacity(data.len());
        send(&mut stream, data).await?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    stream.send_trailers(trailers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect())
}

async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A cluster of alpha alone with an edge, whose nodes have servers that speak HTTP/2.
fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", nodes)]).foreign();
    cluster.file.edges.truncate(1);
    cluster.file.nodes.iter_mut().for_each(|node| node.http2 = true);
    cluster
}

fn serves(cluster: &Cluster) {
    eventually("the site answers", || {
        try_get(cluster.edge(0), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });
}

/// A cluster of one node, whose server echoes, and its parts.
struct Echoing {
    _parts: [Here; 2],
    server: Server,
    cluster: Cluster,
}

impl Echoing {
    fn start(cluster: Cluster) -> Self {
        Self::with(cluster, Does::Echo)
    }

    fn with(cluster: Cluster, does: Does) -> Self {
        let server = Server::start(cluster.node(0), does);
        let parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
        serves(&cluster);
        Echoing { _parts: parts, server, cluster }
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn call(path: &str) -> Request<()> {
    let uri = format!("http://alpha.test{path}");
    Request::builder().method(Method::POST).uri(uri).header("te", "trailers").body(()).unwrap()
}

/// As a gRPC call: both sides stream, and trailers end them.
#[test]
fn a_call_streams_both_ways_and_keeps_its_trailers() {
    let Echoing { cluster, .. } = &Echoing::start(cluster(1));
    let large = Bytes::from(vec![7; 1_000_000]);
    let (saw, echoed, trailers) = block_on(async {
        tokio::time::timeout(PATIENCE, async {
            let mut client = connect(cluster.edge(0)).await;
            let (answer, mut stream) = client.send_request(call("/pkg.Service/Method"), false).unwrap();
            send(&mut stream, Bytes::from_static(b"first")).await.unwrap();
            let (head, mut body) = answer.await.unwrap().into_parts();
            // The answer to the first message comes before the second is sent.
            let first = body.data().await.unwrap().unwrap();
            body.flow_control().release_capacity(first.len()).unwrap();
            assert_eq!(first, "first");
            let message = large.clone();
            tokio::spawn(async move {
                send(&mut stream, message).await.unwrap();
                let trailers =
                    [("checksum", "1")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
                stream.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
            });
            let mut echoed = Vec::new();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                echoed.extend(&data);
            }
            let trailers = body.trailers().await.unwrap().unwrap_or_default();
            (head.headers["saw"].to_str().unwrap().to_owned(), echoed, trailers)
        })
        .await
        .unwrap()
    });
    let expected = "POST http://alpha.test/pkg.Service/Method te=trailers for=127.0.0.1 upgrade=none";
    assert_eq!(saw, expected);
    assert_eq!(echoed, large);
    assert_eq!(trailers["checksum"], "1");
}

#[test]
fn a_client_of_http1_is_answered_as_by_a_server_of_http1() {
    let Echoing { cluster, server, .. } = &Echoing::start(cluster(1));
    let mut client = Client::connect(cluster.edge(0));
    let head = "POST /a?early HTTP/1.1\r\nhost: alpha.test\r\nconnection: upgrade, te\r\nupgrade: websocket\r\nte: trailers\r\n";
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")).unwrap();
    let early = client.reply(false).unwrap();
    assert_eq!((early.status, early.header("link")), (103, Some("</a.css>")));
    let reply = client.reply(true).unwrap();
    assert_eq!((reply.status, reply.body.as_str()), (200, "abc"));
    assert_eq!(
        reply.header("saw"),
        Some("POST http://alpha.test/a?early te=trailers for=127.0.0.1 upgrade=none")
    );
    // The connection is kept, and one to the server serves all.
    assert_eq!(client.ask("HEAD", "alpha.test", "/").unwrap().status, 200);
    assert!(server.requests() >= 3);
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

/// Asks for a WebSocket over HTTP/1.1.
fn asks(cluster: &Cluster, path: &str) -> (Client, Reply) {
    let mut client = Client::connect(cluster.edge(0));
    let fields = "connection: upgrade\r\nupgrade: WebSocket\r\nsec-websocket-version: 13";
    client
        .send(format!(
            "GET {path} HTTP/1.1\r\nhost: alpha.test\r\n{fields}\r\nsec-websocket-key: {KEY}\r\n\r\n"
        ))
        .unwrap();
    let reply = client.reply(false).unwrap();
    (client, reply)
}

/// Sends bytes through a WebSocket that is open, and ends it.
fn echoes(mut client: Client, reply: &Reply) {
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("websocket")), "{reply:?}");
    let accepts: Vec<_> =
        reply.head.lines().filter(|line| line.to_ascii_lowercase().contains("-accept")).collect();
    assert_eq!(accepts.len(), 1, "{reply:?}");
    assert_eq!(reply.header("sec-websocket-accept"), Some(&*websocket_accept(KEY)));
    client.send("ping").unwrap();
    assert_eq!(client.bytes(4), b"ping");
    client.end();
    assert_eq!(client.rest(), "");
}

#[test]
fn a_websocket_opens_at_a_server_that_announces_tunnels() {
    let cluster = cluster(1);
    let server = Server::start(cluster.node(0), Does::Tunnel);
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    eventually("the edge listens", || Client::try_connect(cluster.edge(0)).is_ok());
    // It opens as the first request on a connection, before anything shows what the server announces.
    let mut open = None;
    eventually("it opens", || {
        let (client, reply) = asks(&cluster, "/chat");
        open = Some((client, reply)).filter(|(_, reply)| reply.status == 101);
        open.is_some()
    });
    let (client, reply) = open.unwrap();
    assert_eq!((server.requests(), server.connections.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(
        reply.header("saw"),
        Some("CONNECT http://alpha.test/chat te=none for=127.0.0.1 upgrade=none")
    );
    assert_eq!(reply.header("opens"), Some("websocket version=13 key=none"));
    echoes(client, &reply);
    // It opens beside others, and as often as clients ask.
    for _ in 0..3 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
        let (client, reply) = asks(&cluster, "/chat");
        echoes(client, &reply);
    }
    let (_, reply) = asks(&cluster, "/closed");
    assert_eq!(reply.status, 403);
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn a_websocket_over_http2_opens_at_a_server_of_http2() {
    let Echoing { cluster, .. } = &Echoing::with(cluster(1), Does::Tunnel);
    let work = async {
        let mut client = connect(cluster.edge(0)).await;
        let mut request = call("/chat");
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let (answer, mut stream) = client.send_request(request, false).unwrap();
        let (head, mut body) = answer.await.unwrap().into_parts();
        assert_eq!((head.status, head.headers.get("sec-websocket-accept")), (StatusCode::OK, None));
        for text in ["ping", "pong"] {
            send(&mut stream, Bytes::from_static(text.as_bytes())).await.unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), text);
        }
        stream.send_data(Bytes::new(), true).unwrap();
        assert!(body.data().await.is_none_or(|end| end.unwrap().is_empty()));
    };
    block_on(async { tokio::time::timeout(PATIENCE, work).await.unwrap() });
}

#[test]
fn a_websocket_opens_over_http1_where_no_tunnels_are_announced() {
    let Echoing { cluster, .. } = &Echoing::with(cluster(1), Does::Both);
    for _ in 0..3 {
        let (client, reply) = asks(cluster, "/chat");
        echoes(client, &reply);
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
    }
}

/// Any client can ask, so the server stays in service.
#[test]
fn a_server_that_opens_no_websocket_is_not_blamed() {
    let Echoing { cluster, .. } = &Echoing::start(cluster(1));
    for _ in 0..10 {
        let (_, reply) = asks(cluster, "/chat");
        assert_eq!(reply.status, 502, "{reply:?}");
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
    }
}

#[test]
fn nginx_serves_many_requests_at_a_time_over_few_connections() {
    let cluster = cluster(1);
    let files = cluster.path("files");
    std::fs::create_dir(&files).unwrap();
    let large = "0123456789".repeat(100_000);
    std::fs::write(files.join("large"), &large).unwrap();
    std::fs::write(files.join("index.html"), "home").unwrap();
    let Some(server) = nginx_over_http2(&cluster, cluster.node(0), &files) else { return };
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
    serves(&cluster);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(get(cluster.edge(0), "alpha.test", "/large").body, large);
                    assert_eq!(get(cluster.edge(0), "alpha.test", "/none").status, 404);
                }
            });
        }
    });
    // One that is gone is noticed, and so is its return.
    server.end().succeeded();
    eventually("no server is there", || {
        try_get(cluster.edge(0), "alpha.test", "/").is_ok_and(|reply| reply.status != 200)
    });
    let Some(_server) = nginx_over_http2(&cluster, cluster.node(0), &files) else { return };
    serves(&cluster);
    let served = "sidelong_edge_requests_total{site=\"alpha\",code=\"2xx\"}";
    assert!(metrics(cluster.admin(0))[served] >= 160.0);
}
