//! Shared by the tests: origins on loopback, and hand-written requests.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sidelong_workload::origin::{Drained, OriginConfig, OriginError, OriginGauges, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest that anything awaited here may take: a bound for a test that fails, not a measure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An origin that runs on the test's runtime.
pub struct TestOrigin {
    pub address: SocketAddr,
    pub gauges: Arc<OriginGauges>,
    shutdown: oneshot::Sender<()>,
    served: JoinHandle<Result<Drained, OriginError>>,
}

impl TestOrigin {
    pub async fn start(config: OriginConfig) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), config).await
    }

    pub async fn start_at(address: SocketAddr, config: OriginConfig) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let gauges = Arc::new(OriginGauges::default());
        let (shutdown, signal) = oneshot::channel();
        let served = tokio::spawn(serve(listener, config, Arc::clone(&gauges), async move {
            let _ = signal.await;
        }));
        TestOrigin { address, gauges, shutdown, served }
    }

    /// Starts the drain; its end is awaited with the handle.
    pub fn shut_down(self) -> JoinHandle<Result<Drained, OriginError>> {
        let _ = self.shutdown.send(());
        self.served
    }
}

/// A parsed response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// A header field, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Connects and sends a request, after which the server should close.
pub async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may refuse after reading only the head, and close.
    let _ = stream.write_all(body).await;
    stream
}

/// Reads a response to the end of the connection.
pub async fn receive(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("a response");
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a response head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body: bytes[end + 4..].to_vec() }
}

pub async fn fetch(address: SocketAddr, method: &str, path: &str) -> Reply {
    receive(send(address, method, path, b"").await).await
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("never: {what}"));
}
