//! What the data path asks of those who use it: which connections and requests it serves, and at which server.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::answer::Answer;
use crate::pool::ServerId;
use crate::request::Request;

/// Decides about connections and requests. Each thread has one of its own.
pub trait Service: Send + 'static {
    /// A request in this service's care.
    type Visit<'a>: Visit
    where
        Self: 'a;

    /// Whether a new connection of `client` is accepted. It is asked before TLS, for each connection but those of
    /// trusted proxies, and must not wait.
    fn accepts(&self, client: SocketAddr) -> bool;

    /// A connection was closed before it had sent a whole request, with an answer where there can be one.
    fn refused(&self, why: Refusal);

    /// A request was answered before its head was read or understood.
    fn refused_head(&self, refused: RefusedHead<'_>);

    /// The head of a request was read.
    fn visit(&self, request: &Request, client: SocketAddr) -> Self::Visit<'_>;
}

/// One request, in the order of the calls that it gets.
pub trait Visit {
    /// The whole answer to a request without a body, as a server over HTTP/1 would send it, if the service has one: at once or after a
    /// wait, which the service bounds. It is given whether or not the request would be admitted.
    fn find(&mut self, request: &Request) -> impl Future<Output = Option<Bytes>>;

    /// Whether it is forwarded.
    ///
    /// # Errors
    /// The answer that it gets otherwise.
    fn admit(&mut self, request: &Request) -> Result<(), Answer>;

    /// The server that it goes to, at once or after a wait, which the service bounds; `None` if there is none. It is
    /// asked again when the server before has failed.
    fn choose(&mut self) -> impl Future<Output = Option<ServerId>>;

    /// Whether the request may go to the chosen server, now that there is a connection to it. Otherwise another is chosen.
    fn may_send(&self) -> bool {
        true
    }

    /// The whole request was sent to the server.
    fn sent(&mut self);

    /// The request has failed at the server. Failures of the client, and of this machine, are not reported.
    fn failed(&mut self, request: &Request, failure: Failure);

    /// The server has begun to answer with this status, which may be an informational one.
    fn answered(&mut self, status: u16);

    /// The time until the request is cut, answered or not, as far as that is known now; `None` if it never is. It is asked while
    /// the request waits, at least every [`CUT_CHECK`](crate::CUT_CHECK).
    fn cut_in(&self) -> Option<Duration>;

    /// The request was cut. If its answer has not begun, it may go to another server.
    fn cut(&mut self);

    /// The request has left the server. Without the server's answer the proxy answers it.
    fn leave(&mut self);

    /// The request has ended.
    fn end(self, request: &Request, outcome: Outcome);
}

/// A request that was answered, and no more.
#[derive(Clone, Copy, Debug)]
pub struct RefusedHead<'a> {
    /// Who sent it. No proxy's word is heard about that.
    pub client: SocketAddr,
    /// The first line of what came, any bytes; of HTTP/2 as a request line. At most [`LINE_BYTES_MAX`] bytes.
    pub line: &'a [u8],
    /// From its first byte on.
    pub elapsed: Duration,
    /// Its answer.
    pub outcome: Outcome,
}

/// Most bytes of [`RefusedHead::line`].
pub const LINE_BYTES_MAX: usize = 1024;

/// Why a client is disconnected, or a request is refused. Where it can be answered, the answer of a connection is 408, 431 or 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It did not send its request, or what comes before, in time.
    Slow,
    /// The head of its request is larger than the limit.
    Large,
    /// There are too many connections, or no descriptors.
    Full,
    /// It has too many connections itself.
    ClientFull,
    /// It did not begin with a header of the PROXY protocol, where one is expected, or may not send one.
    NoProxy,
    /// Its request is no valid one.
    Malformed,
    /// The method of its request is never forwarded.
    Method,
    /// Its request needs what the proxy does not do: a version, a transfer coding, an expectation or a protocol.
    Unsupported,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 8] = [
        Refusal::Slow,
        Refusal::Large,
        Refusal::Full,
        Refusal::ClientFull,
        Refusal::NoProxy,
        Refusal::Malformed,
        Refusal::Method,
        Refusal::Unsupported,
    ];

    /// Of a request whose head was answered with this status.
    pub const fn of_head(status: u16) -> Self {
        match status {
            400 => Refusal::Malformed,
            405 => Refusal::Method,
            408 => Refusal::Slow,
            431 => Refusal::Large,
            _ => Refusal::Unsupported,
        }
    }

    /// As in a metric's label.
    pub const fn word(self) -> &'static str {
        match self {
            Refusal::Slow => "too-slow",
            Refusal::Large => "too-large",
            Refusal::Full => "too-many",
            Refusal::ClientFull => "too-many-of-client",
            Refusal::NoProxy => "no-proxy",
            Refusal::Malformed => "malformed",
            Refusal::Method => "method",
            Refusal::Unsupported => "unsupported",
        }
    }
}

/// How a request failed at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It did not accept a connection.
    Refused,
    /// It did not accept a connection in time.
    Unreachable,
    /// It did not answer in time.
    Late,
    /// It closed the connection before it had answered, or broke off its answer.
    Broken,
    /// Its answer is no valid one of the version of HTTP that it is said to speak.
    Malformed,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status that the client got, 0 if none. It is 101 for a WebSocket over HTTP/2 as well, where the client got 200.
    pub status: u16,
    /// Bytes of the answer's body that were sent.
    pub bytes: u64,
}

/// Limits on clients and servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most bytes of a request's line and fields.
    pub header_bytes_max: usize,
    /// From the first byte of a request to the end of its head, and for a TLS handshake.
    pub header_timeout: Duration,
    /// From the end of the head to the end of the body, however slowly it arrives. Time in which the server does not take it does not
    /// count. Once the server answers meanwhile, from the last
    /// bytes of either.
    pub body_timeout: Duration,
    /// For a server: from the end of the request to its first bytes, and between any two reads or writes. In a tunnel and in a stream
    /// of events a server may be silent for an hour. For a client that reads too slowly: in each such time it must take
    /// [`SEND_RATE_MIN`](crate::SEND_RATE_MIN).
    pub response_timeout: Duration,
    /// From one request to the next one's first byte.
    pub idle_timeout: Duration,
    /// Most connections of clients at a time.
    pub connections_max: usize,
    /// Most connections of one client at a time, 1 at least: of an IPv4 address, or of the first 64 bits of an IPv6 address.
    /// Proxies before this one have no such limit.
    pub connections_per_client_max: Option<usize>,
    /// Most bytes of a request's body.
    pub body_bytes_max: u64,
    /// Longest time to connect to a server.
    pub connect_timeout: Duration,
    /// Most further servers that a failed request is sent to.
    pub retries: u32,
}
