//! Servers that speak HTTP/2 in clear text, by prior knowledge (RFC 9113, 3.3), as gRPC servers do: requests share connections.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Ping, PingPong, Reason};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderMap, Method, Version};
use tokio::sync::Mutex;
use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::body::Framing;
use crate::client::Client;
use crate::h2::stream::{Halves, Receiver, SEND_BUFFER_BYTES, Sender, WINDOW_BYTES, append};
use crate::io::Io;
use crate::request::Request;
use crate::response::{HEAD_BYTES_MAX, Response};
use crate::upstream::{Lost, Upstream};
use crate::websocket;

/// Most requests at a time on one connection, if the server takes as many. With more a further connection is made.
const STREAMS_MAX: usize = 100;
/// Bytes that all responses on a connection may send ahead of what clients take: each its whole window, so that clients that
/// read slowly do not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX as u32 * WINDOW_BYTES;
/// What `h2` charges if all of that comes in frames of one byte. With its default two clients that do not read their streams of small
/// messages would end the connection of all.
const DATA_FRAME_BUDGET: usize = CONNECTION_WINDOW_BYTES as usize * 255;
/// Requests that clients gave up a moment ago, and that the server may still answer. Answers to more, and to older ones, are errors
/// that `h2` would count, and end the connection for.
const RESET_STREAMS_MAX: usize = 10 * STREAMS_MAX;

/// The connections to one server.
#[derive(Default)]
pub(crate) struct Connections {
    open: RefCell<Vec<Connection>>,
    /// Held while one is made, so that requests that come together share it.
    pub(crate) connecting: Mutex<()>,
}

struct Connection {
    send: SendRequest<Bytes>,
    state: Rc<State>,
}

/// What a connection's requests know of it.
struct State {
    streams: Cell<usize>,
    /// Since when no request is on it.
    idle_since: Cell<Instant>,
    /// Whether a response has come on it, or another answer of the server's.
    has_answered: Cell<bool>,
    /// To ask for an answer before the first response.
    ping: Mutex<Option<PingPong>>,
    /// Whether it takes no further requests.
    is_over: Cell<bool>,
}

impl Connections {
    /// A place for a request on one of them.
    pub(crate) fn stream(&self) -> Option<Stream> {
        let mut open = self.open.borrow_mut();
        // One that is going away is no longer ready.
        let mut now = Context::from_waker(Waker::noop());
        open.retain_mut(|connection| {
            !connection.state.is_over.get()
                && !matches!(connection.send.poll_ready(&mut now), Poll::Ready(Err(_)))
        });
        let has_room = |Connection { send, state }: &&Connection| {
            // Before the server has said anything, those that are too many wait.
            let most = if state.has_answered.get() { send.current_max_send_streams() } else { STREAMS_MAX };
            state.streams.get() < most.min(STREAMS_MAX)
        };
        open.iter().find(has_room).map(Stream::new)
    }

    /// Makes a connection of `io`, with a place for a request.
    pub(crate) async fn add(&self, io: Io) -> Result<Stream, h2::Error> {
        let (send, mut connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            // Until the server says how many it takes.
            .initial_max_send_streams(1)
            .data_frame_budget(DATA_FRAME_BUDGET)
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .max_local_error_reset_streams(None)
            .handshake(io)
            .await?;
        let state = Rc::new(State {
            streams: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            has_answered: Cell::new(false),
            ping: Mutex::new(connection.ping_pong()),
            is_over: Cell::new(false),
        });
        let ended = Rc::clone(&state);
        // It ends with the connection, or when nobody has a request on it nor can make one.
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server has failed");
            }
            ended.is_over.set(true);
        });
        let connection = Connection { send, state };
        let stream = Stream::new(&connection);
        self.open.borrow_mut().push(connection);
        Ok(stream)
    }

    /// Closes connections that were without requests for `idle_max`.
    pub(crate) fn sweep(&self, now: Instant, idle_max: Duration) {
        self.open.borrow_mut().retain(|Connection { state, .. }| {
            let is_idle = state.streams.get() == 0 && now - state.idle_since.get() >= idle_max;
            !state.is_over.get() && !is_idle
        });
    }
}

/// A request on a connection.
pub(crate) struct Stream {
    connection: SendRequest<Bytes>,
    state: Rc<State>,
    response: Option<ResponseFuture>,
    halves: Halves,
    /// If it is to open a WebSocket.
    websocket: Option<WebSocket>,
}

struct WebSocket {
    /// The Sec-WebSocket-Accept for the client.
    accept: String,
    /// What the client sends once it is open.
    sender: Sender,
}

impl Stream {
    fn new(connection: &Connection) -> Self {
        let state = Rc::clone(&connection.state);
        state.streams.set(state.streams.get() + 1);
        Stream {
            connection: connection.send.clone(),
            state,
            response: None,
            halves: Halves::default(),
            websocket: None,
        }
    }

    /// Whether the server opens WebSockets (RFC 8441, 3). It says so before anything else, so a pong shows whether it does.
    pub(crate) async fn opens_websockets(&self) -> bool {
        if !self.state.has_answered.get()
            && let Some(ping) = &mut *self.state.ping.lock().await
            && ping.ping(Ping::opaque()).await.is_ok()
        {
            self.state.has_answered.set(true);
        }
        self.connection.is_extended_connect_protocol_enabled()
    }

    fn lost(&self, error: &h2::Error) -> Lost {
        if error.is_io() || error.is_go_away() {
            self.give_up();
        }
        match error.reason() {
            // RFC 9113, 8.7.
            Some(Reason::REFUSED_STREAM) => Lost::Refused,
            // RFC 9113, 6.8: a server that goes away says which requests it has processed. The others get this error.
            _ if error.is_go_away() && error.is_remote() => Lost::Refused,
            _ if error.is_io() && self.state.has_answered.get() => Lost::Idle,
            Some(reason) if error.is_reset() && error.is_remote() && reason != Reason::INTERNAL_ERROR => {
                Lost::Declined
            }
            // What came first were no frames: it may speak HTTP/1.
            _ if error.is_go_away() && error.is_library() && !self.state.has_answered.get() => {
                Lost::Malformed
            }
            _ => Lost::Cut,
        }
    }

    /// Lets no further request take this connection.
    pub(crate) fn give_up(&self) {
        self.state.is_over.set(true);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.state.streams.set(self.state.streams.get() - 1);
        self.state.idle_since.set(Instant::now());
    }
}

/// The head of a request, for a server. The GET that opens a WebSocket becomes an extended CONNECT (RFC 8441, 5).
fn head(request: &Request, from: &Client) -> io::Result<http::Request<()>> {
    let mut fields = HeaderMap::new();
    let mut added = Ok(());
    let is_websocket = request.websocket_key().is_some();
    request.forward(from, |name, values| {
        // HTTP/2 has no change of protocols.
        let is_left_out = name.eq_ignore_ascii_case(b"upgrade") || is_websocket && websocket::is_key(name);
        if added.is_ok() && !is_left_out {
            added = append(&mut fields, name, &values.join(b", ".as_slice()));
        }
    });
    added?;
    if let Framing::Length(bytes) = request.framing {
        fields.insert(http::header::CONTENT_LENGTH, bytes.into());
    }
    // TE has no other value in HTTP/2 (RFC 9113, 8.2.2). gRPC demands this one.
    if request.takes_trailers() {
        fields.insert(http::header::TE, http::HeaderValue::from_static("trailers"));
    }
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(request.authority())
        .path_and_query(path_and_query(request.target())?)
        .build()
        .map_err(io::Error::other)?;
    let mut head = http::Request::new(());
    (*head.method_mut(), *head.uri_mut()) = (request.method().clone(), uri);
    (*head.version_mut(), *head.headers_mut()) = (Version::HTTP_2, fields);
    if is_websocket {
        *head.method_mut() = Method::CONNECT;
        head.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    Ok(head)
}

/// The target as a URI has it. Clients of HTTP/1 may send characters that RFC 3986 allows nowhere; they are escaped, as browsers do.
fn path_and_query(target: &str) -> io::Result<PathAndQuery> {
    target.parse().or_else(|_| {
        let mut escaped = String::with_capacity(target.len());
        for byte in target.bytes() {
            match byte {
                b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                    // A String takes all that is written.
                    let _ = write!(escaped, "%{byte:02X}");
                }
                byte => escaped.push(char::from(byte)),
            }
        }
        escaped.parse().map_err(io::Error::other)
    })
}

impl Upstream for Stream {
    type Duplex = Halves;
    const REFUSES: bool = true;

    fn duplex(&mut self) -> &mut Halves {
        &mut self.halves
    }

    fn begin(&mut self, request: &Request, from: &Client) -> Result<(), Lost> {
        let head = head(request, from).map_err(|_| Lost::Malformed)?;
        let key = request.websocket_key();
        let sent = self.connection.send_request(head, !request.has_body() && key.is_none());
        let (response, send) = sent.map_err(|_| {
            // It is just ending.
            self.give_up();
            Lost::Refused
        })?;
        self.response = Some(response);
        let sender = Sender::new(send, None);
        match key {
            Some(key) => self.websocket = Some(WebSocket { accept: websocket::accept(key), sender }),
            None => self.halves.sender = request.has_body().then_some(sender),
        }
        Ok(())
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        response: &mut Response,
    ) -> Poll<Result<bool, Lost>> {
        let Some(coming) = &mut self.response else { return Poll::Ready(Err(Lost::Malformed)) };
        let (head, has_body) = match coming.poll_informational(cx) {
            Poll::Ready(Some(Ok(informed))) => (informed.into_parts().0, false),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.lost(&error))),
            _ => match ready!(Pin::new(coming).poll(cx)) {
                Ok(whole) => {
                    let (head, body) = whole.into_parts();
                    let has_body = !body.is_end_stream();
                    self.halves.receiver = Some(Receiver::new(body));
                    self.response = None;
                    (head, has_body)
                }
                Err(error) => return Poll::Ready(Err(self.lost(&error))),
            },
        };
        self.state.has_answered.set(true);
        response.take(&head, has_body, request).map_err(|_| Lost::Malformed)?;
        if let Some(WebSocket { accept, .. }) = &self.websocket
            && head.status.is_success()
        {
            response.switch(accept);
        }
        Poll::Ready(Ok(true))
    }

    fn tunnel(&mut self) {
        self.halves.sender = self.websocket.take().map(|websocket| websocket.sender);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_escaped_is_sent_as_a_uri() {
        assert_eq!(path_and_query("/a?b={\"c\"}").unwrap().path(), "/a");
        assert_eq!(path_and_query("/<`a>?^").unwrap(), "/%3C%60a%3E?%5E");
        for byte in (0x21..=0x7e).filter(|byte| *byte != b'#') {
            assert!(path_and_query(&format!("/{0}?{0}", char::from(byte))).is_ok(), "{byte:#x}");
        }
    }
}
