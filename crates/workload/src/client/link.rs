//! One keep-alive connection to an edge, over TCP or TLS.
//!
//! hyper splits a connection into a handle that sends and a task that drives. Here one task does both, so that a
//! request costs no switch between tasks. An idle link is not driven; [`Link::is_usable`] catches up on what happened.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http::header::HOST;
use http::response::Parts;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::secure::{Secure, Stream};
use super::worker::ErrorKind;
use crate::origin::NODE_HEADER;

/// The header in which edges, and servers with mod_sidelong, give the reason for a rejection.
const REASON_HEADER: &str = "x-sidelong-reason";

/// A connection that carries one request at a time. After an error it is useless.
pub(crate) struct Link {
    sender: Sender,
    /// `None` once it has ended.
    connection: Option<Connection>,
    /// Moved by each request, because moving a timer to a later time is far cheaper than creating one.
    alarm: Pin<Box<Sleep>>,
    /// Whether it has carried a response.
    is_proven: bool,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

enum Connection {
    Http1(Box<http1::Connection<TokioIo<Stream>, Full<Bytes>>>),
    Http2(http2::Connection<TokioIo<Stream>, Full<Bytes>, TokioExecutor>),
}

/// A complete response, whose body was read and dropped.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The node that answered, if the response names it.
    pub(crate) node: Option<HeaderValue>,
    /// Whether it gives a reason for a rejection.
    pub(crate) has_reason: bool,
    /// Size of the body.
    pub(crate) bytes: u64,
}

impl Answer {
    pub(crate) fn new(head: &Parts, bytes: u64) -> Self {
        let has_reason = head.headers.contains_key(REASON_HEADER);
        Answer { status: head.status, node: head.headers.get(NODE_HEADER).cloned(), has_reason, bytes }
    }
}

impl Link {
    /// Connects to `edge`, from the address `from` if given, with TLS if `secure` is.
    pub(crate) async fn open(
        from: Option<IpAddr>,
        edge: SocketAddr,
        secure: Option<&Secure>,
        deadline: Instant,
    ) -> Result<Self, ErrorKind> {
        let shaken = timeout_at(deadline, shake(from, edge, secure)).await.map_err(|_| ErrorKind::Timeout)?;
        let (sender, connection) = shaken.map_err(|error| {
            tracing::debug!(%edge, error, "cannot connect");
            ErrorKind::Connect
        })?;
        Ok(Link {
            sender,
            connection: Some(connection),
            alarm: Box::pin(sleep_until(deadline)),
            is_proven: false,
        })
    }

    /// Whether a request can be sent. The edge may have closed the connection since the last request, which is not an
    /// error of any request.
    pub(crate) async fn is_usable(&mut self) -> bool {
        self.drive_once().await;
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Sends a request, reads the response to its end and drops its body.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Answer, ErrorKind> {
        let mut bytes = 0;
        let head = self.fetch(request, deadline, |data| bytes += data.len() as u64).await?;
        Ok(Answer::new(&head, bytes))
    }

    /// Sends a request and reads the response to its end. Its body goes to `take` in parts.
    pub(crate) async fn fetch(
        &mut self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Parts, ErrorKind> {
        self.alarm.as_mut().reset(deadline);
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                let response = sender.send_request(request);
                self.drive(response).await?
            }
            Sender::Http2(sender) => {
                let response = sender.send_request(with_authority(request));
                self.drive(response).await?
            }
        };
        let response = response.map_err(|error| {
            tracing::debug!(%error, "a connection broke before the response");
            if self.is_proven || error.is_parse() { ErrorKind::Broken } else { ErrorKind::Closed }
        })?;
        self.is_proven = true;
        let (head, mut body) = response.into_parts();
        while let Some(frame) = self.drive(body.frame()).await? {
            let frame = frame.map_err(|error| {
                tracing::debug!(%error, "a connection broke within the response");
                ErrorKind::Body
            })?;
            if let Some(data) = frame.data_ref() {
                take(data);
            }
        }
        Ok(head)
    }

    /// Drives the connection until `awaited` is ready, or the alarm goes off.
    async fn drive<F: Future>(&mut self, awaited: F) -> Result<F::Output, ErrorKind> {
        let mut awaited = pin!(awaited);
        poll_fn(|context| {
            self.poll_connection(context);
            if let Poll::Ready(output) = awaited.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            self.alarm.as_mut().poll(context).map(|()| Err(ErrorKind::Timeout))
        })
        .await
    }

    async fn drive_once(&mut self) {
        poll_fn(|context| {
            self.poll_connection(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Drops the connection, which tells the caller that awaits a response why it ended.
    fn poll_connection(&mut self, context: &mut std::task::Context<'_>) {
        let has_ended = match &mut self.connection {
            None => false,
            Some(Connection::Http1(connection)) => Pin::new(connection).poll(context).is_ready(),
            Some(Connection::Http2(connection)) => Pin::new(connection).poll(context).is_ready(),
        };
        if has_ended {
            self.connection = None;
        }
    }
}

/// A connection that can carry requests.
async fn shake(
    from: Option<IpAddr>,
    edge: SocketAddr,
    secure: Option<&Secure>,
) -> Result<(Sender, Connection), String> {
    let told = |error: io::Error| error.to_string();
    let stream = connect(from, edge).await.map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    let stream = match secure {
        Some(secure) => secure.wrap(stream).await.map_err(told)?,
        None => Stream::Plain(stream),
    };
    let (io, told) = (TokioIo::new(stream), |error: hyper::Error| error.to_string());
    if secure.is_some_and(Secure::is_http2) {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(told)?;
        return Ok((Sender::Http2(sender), Connection::Http2(connection)));
    }
    let (sender, connection) = http1::handshake(io).await.map_err(told)?;
    Ok((Sender::Http1(sender), Connection::Http1(Box::new(connection))))
}

/// The request in the form of HTTP/2: with scheme and authority, and without the header that they stand for.
fn with_authority(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let Some(host) = request.headers_mut().remove(HOST) else { return request };
    let whole = Uri::builder().scheme("https").authority(host.as_bytes());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    if let Ok(uri) = whole.path_and_query(path).build() {
        *request.uri_mut() = uri;
    }
    request
}

async fn connect(from: Option<IpAddr>, edge: SocketAddr) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect(edge).await };
    let socket = if edge.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(edge).await
}
