//! A WebSocket over HTTP/2, at a server that speaks HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};

use sidelong_testing::{Cluster, PATIENCE, eventually, try_get, websocket_accept};

/// How long a server may take to answer, and a client may keep a connection without a request.
const LIMIT: Duration = Duration::from_secs(1);

/// A server that sends back what comes through a WebSocket, and has an answer for everything else.
fn serve(mut stream: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).ok()?;
        let Some(key) = text.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")) else {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
            continue;
        };
        let accept = websocket_accept(key);
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket";
        stream.write_all(format!("{switch}\r\nsec-websocket-accept: {accept}\r\n\r\n").as_bytes()).ok()?;
        std::io::copy(&mut stream.try_clone().ok()?, &mut stream).ok()?;
        return stream.shutdown(Shutdown::Write).ok();
    }
}

async fn echoes(send: &mut SendStream<Bytes>, receive: &mut RecvStream, text: &'static str) {
    send.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
    let mut got = Vec::<u8>::new();
    while got.len() < text.len() {
        let part = receive.data().await.expect("the tunnel stands").unwrap();
        receive.flow_control().release_capacity(part.len()).unwrap();
        got.extend(&part);
    }
    assert_eq!(got, text.as_bytes());
}

#[test]
fn a_websocket_over_http_2_may_be_silent_for_longer_than_an_answer() {
    let mut cluster = Cluster::new(&[("alpha", 1)]).foreign();
    cluster.file.edges.truncate(1);
    (cluster.file.limits.response_timeout, cluster.file.limits.idle_timeout) = (LIMIT, LIMIT);
    let log = cluster.path("access.log");
    cluster.file.edges[0].access_log = Some(log.clone());
    let listener = TcpListener::bind(cluster.node(0)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    let (_node, edge) = (cluster.here("node", "n1"), cluster.here("edge", "edge1"));
    eventually("it is served", || {
        try_get(cluster.edge(0), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });

    let work = async {
        let stream = tokio::net::TcpStream::connect(cluster.edge(0)).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let (mut send, mut receive) = loop {
            client = client.ready().await.unwrap();
            let request =
                http::Request::connect("http://alpha.test/chat").header("sec-websocket-version", "13");
            let request = request.extension(Protocol::from_static("websocket")).body(()).unwrap();
            let (answer, send) = client.send_request(request, false).unwrap();
            let answer = answer.await.unwrap();
            // On a busy machine the server may be late once.
            if answer.status() == 200 {
                break (send, answer.into_body());
            }
        };
        echoes(&mut send, &mut receive, "before").await;
        tokio::time::sleep(3 * LIMIT).await;
        echoes(&mut send, &mut receive, "behind").await;
        // The client's end reaches the server, whose end ends the stream.
        send.send_data(Bytes::new(), true).unwrap();
        while let Some(part) = receive.data().await {
            assert_eq!(part.unwrap(), Bytes::new());
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.unwrap() });
    edge.end();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"GET /chat HTTP/2.0\" 101 "), "{log}");
}
