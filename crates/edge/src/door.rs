//! The door: every client connection passes through it before Pingora sees it.
//!
//! Pingora bounds each read of a request, not the whole of it, and takes headers of up to a megabyte. The door holds
//! the client to a deadline for its header and for its body however slowly it dribbles them, to a size of header, and
//! all clients together to a number of connections. Whoever breaks a bound is told (408, 431, 503) and shown out.
//!
//! It holds the server to its deadline too: Pingora would keep a timer for each wait, several for a request, which cost
//! more than all else that an edge does for it. The door is asked for the client's next bytes whatever is being
//! waited for, so that one alarm for a connection does: it is set for the first thing that may be due, and set anew only
//! when it rings.
//!
//! Of an HTTP/2 connection it sees no requests, only frames of many: there Pingora holds headers to their size and
//! servers to their deadline, the proxy bodies to theirs, and the door counts the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use pingora_core::server::ShutdownWatch;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use sidelong_layout::Time;
use sidelong_policy::admission;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use crate::clock;
use crate::closing::Closing;
use crate::metrics::Metrics;

/// What a client is held to, and the server that answers it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DoorLimits {
    /// Bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// From the first byte of a request to the end of its headers.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// From the end of the request to the server's first bytes, and between any two writes to the client.
    pub response_timeout: Duration,
    /// From one request to the next one's first byte.
    pub idle_timeout: Duration,
    /// Connections at once.
    pub connections_max: usize,
}

/// A [`ServerApp`] that guards another one.
pub(crate) struct Door<A> {
    app: Arc<A>,
    limits: DoorLimits,
    inside: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    closing: Arc<Closing>,
}

impl<A> Door<A> {
    pub(crate) fn new(app: A, limits: DoorLimits, metrics: Arc<Metrics>, closing: Arc<Closing>) -> Self {
        Door { app: Arc::new(app), limits, inside: Arc::default(), metrics, closing }
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> ServerApp for Door<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let visit = Visit::enter(&self.inside);
        let mut guarded = Guarded::new(stream, self.limits, Arc::clone(&self.metrics), visit);
        let is_full = self.inside.load(Ordering::Relaxed) > self.limits.connections_max;
        if is_full || self.closing.has_begun() {
            guarded.refuse(FULL);
        }
        self.app.process_new(Box::new(guarded), shutdown).await
    }

    async fn cleanup(&self) {
        self.app.cleanup().await;
    }
}

/// One connection of the number that are let in.
#[derive(Debug)]
struct Visit(Arc<AtomicUsize>);

impl Visit {
    fn enter(inside: &Arc<AtomicUsize>) -> Self {
        inside.fetch_add(1, Ordering::Relaxed);
        Visit(Arc::clone(inside))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One client connection, as the proxy, which parses, and the door, which only sees bytes, know it together.
#[derive(Debug)]
pub(crate) struct Client {
    /// `request:29 phase:3`, so that the door knows one request from the next even where it was not asked to read in
    /// between. One task alone tells and asks.
    progress: AtomicU32,
    /// When the phase began, in ns of this machine's monotonic clock.
    since_ns: AtomicU64,
    /// Who it is to the gate.
    known: admission::Client,
    /// What servers are told of where it came from.
    forwarded_for: Option<HeaderValue>,
}

/// What is being waited for: a request,
const IDLE: u32 = 0;
/// the rest of its header,
const HEADER: u32 = 1;
/// of its body,
const BODY: u32 = 2;
/// or the server's bytes,
const ANSWER: u32 = 3;
/// which let its deadline pass.
const OVERDUE: u32 = 4;
const PHASE: u32 = 7;

impl Client {
    /// That `session` came from.
    pub(crate) fn of(session: &Session) -> Option<&Arc<Client>> {
        session.digest()?.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref()
    }

    fn new(stream: &Stream) -> Self {
        let address = stream.get_socket_digest().and_then(|digest| digest.peer_addr()?.as_inet().copied());
        // Those without an address, as over a Unix socket, are all one.
        let known = address.map(admission::Client::new).unwrap_or_default();
        let forwarded_for =
            address.and_then(|address| address.ip().to_canonical().to_string().try_into().ok());
        let since_ns = clock::now().as_ns().into();
        Client { progress: AtomicU32::new(IDLE), since_ns, known, forwarded_for }
    }

    /// Who it is to the gate.
    pub(crate) fn known(&self) -> admission::Client {
        self.known
    }

    /// Its address, as x-forwarded-for has it.
    pub(crate) fn forwarded_for(&self) -> Option<&HeaderValue> {
        self.forwarded_for.as_ref()
    }

    /// The header is there; a body follows or not.
    pub(crate) fn header_done(&self, body_follows: bool, now: Time) {
        self.enter(if body_follows { BODY } else { ANSWER }, now);
    }

    /// The whole request is there, or the answer has begun and what is missing does not matter: the server has its time.
    pub(crate) fn request_done(&self) {
        if self.phase() != ANSWER {
            self.enter(ANSWER, clock::now());
        }
    }

    /// The answer is sent: the next bytes begin another request.
    pub(crate) fn answered(&self, now: Time) {
        self.progress.store(self.request().wrapping_add(PHASE + 1), Ordering::Relaxed);
        self.enter(IDLE, now);
    }

    /// Whether the server has let its deadline pass.
    pub(crate) fn is_overdue(&self) -> bool {
        self.phase() == OVERDUE
    }

    fn phase(&self) -> u32 {
        self.progress.load(Ordering::Relaxed) & PHASE
    }

    fn request(&self) -> u32 {
        self.progress.load(Ordering::Relaxed) & !PHASE
    }

    fn since(&self) -> Time {
        Time::from_ns(self.since_ns.load(Ordering::Relaxed))
    }

    fn enter(&self, phase: u32, now: Time) {
        self.progress.store(self.request() | phase, Ordering::Relaxed);
        self.since_ns.store(now.as_ns(), Ordering::Relaxed);
    }
}

const NEVER: Time = Time::from_ns(u64::MAX);

/// What a client is told who breaks a bound.
struct LastWord {
    code: u16,
    text: &'static [u8],
    /// What Pingora is told.
    reason: io::ErrorKind,
}

const TOO_LARGE: LastWord = LastWord {
    code: 431,
    text: b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::InvalidData,
};
const TOO_SLOW: LastWord = LastWord {
    code: 408,
    text: b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::TimedOut,
};
const FULL: LastWord = LastWord {
    code: 503,
    text: b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::ConnectionRefused,
};

/// The codes of them all.
pub(crate) const REFUSALS: [u16; 3] = [TOO_SLOW.code, TOO_LARGE.code, FULL.code];

/// A connection's end, once the last word is said: in an error, or as if the client had closed it.
#[derive(Debug)]
struct Refusal {
    unsent: &'static [u8],
    reason: Option<io::ErrorKind>,
}

/// A client's connection, plain or TLS, under the door's limits.
#[derive(Debug)]
struct Guarded {
    inner: Stream,
    limits: DoorLimits,
    client: Arc<Client>,
    digest: Arc<ProxyDigest>,
    /// Many requests at a time, which the door does not see.
    is_h2: bool,
    /// The request that was read of last, and how much of its header.
    request: u32,
    header_bytes: usize,
    /// When the alarm rings, which is never later than what is due.
    alarm_at: Time,
    alarm: Option<Pin<Box<Sleep>>>,
    woken: Option<Waker>,
    /// Whether something was sent to the client since the alarm was set.
    has_sent: bool,
    refusal: Option<Refusal>,
    metrics: Arc<Metrics>,
    _visit: Visit,
}

impl Guarded {
    fn new(inner: Stream, limits: DoorLimits, metrics: Arc<Metrics>, visit: Visit) -> Self {
        let client = Arc::new(Client::new(&inner));
        // Pingora carries this digest to the session untouched; its response is for CONNECT and stays empty.
        let response = ResponseHeader::build(200, None).expect("200 is a status");
        let digest = ProxyDigest::new(Box::new(response), Some(Box::new(Arc::clone(&client))));
        let digest = Arc::new(digest);
        let is_h2 = matches!(inner.selected_alpn_proto(), Some(ALPN::H2));
        Guarded {
            inner,
            limits,
            client,
            digest,
            is_h2,
            request: 0,
            header_bytes: 0,
            alarm_at: NEVER,
            alarm: None,
            woken: None,
            has_sent: false,
            refusal: None,
            metrics,
            _visit: visit,
        }
    }

    /// How long what is being waited for may take.
    fn limit(&self) -> Duration {
        match self.client.phase() {
            IDLE => self.limits.idle_timeout,
            HEADER => self.limits.header_timeout,
            BODY => self.limits.body_timeout,
            _ => self.limits.response_timeout,
        }
    }

    /// Ready when what is being waited for is overdue.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.client.phase() == IDLE && self.header_bytes > 0 {
            self.client.enter(HEADER, clock::now());
        }
        let limit = self.limit();
        loop {
            let due = self.client.since().after(limit);
            if due < self.alarm_at {
                self.set_alarm(due, clock::now());
            }
            let Some(alarm) = &mut self.alarm else { return Poll::Pending };
            // It wakes whoever asked last, so that it need not be asked again by the same task.
            if !alarm.is_elapsed() && self.woken.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                return Poll::Pending;
            }
            self.woken = Some(cx.waker().clone());
            ready!(alarm.as_mut().poll(cx));
            let now = clock::now();
            if self.client.phase() == ANSWER && self.has_sent {
                self.client.enter(ANSWER, now);
            }
            self.alarm_at = NEVER;
            if now >= self.client.since().after(limit) {
                return Poll::Ready(());
            }
        }
    }

    fn set_alarm(&mut self, at: Time, now: Time) {
        let deadline = tokio::time::Instant::now() + at.since(now);
        self.alarm_at = at;
        self.woken = None;
        self.has_sent = false;
        match &mut self.alarm {
            Some(alarm) => alarm.as_mut().reset(deadline),
            None => self.alarm = Some(Box::pin(sleep_until(deadline))),
        }
    }

    /// Reads no more than a header may have and the byte that is too many, for Pingora takes whatever comes in one read.
    fn poll_header(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = self.limits.header_bytes_max + 1 - self.header_bytes;
        let before = buf.filled().len();
        let outcome = if room >= buf.remaining() {
            Pin::new(&mut self.inner).poll_read(cx, buf)
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
            let outcome = Pin::new(&mut self.inner).poll_read(cx, &mut part);
            let read = part.filled().len();
            buf.advance(read);
            outcome
        };
        self.header_bytes += buf.filled().len() - before;
        outcome
    }

    fn refuse(&mut self, word: LastWord) {
        self.metrics.refused(word.code);
        // An HTTP/2 client would not understand it.
        let unsent = if self.is_h2 { &[] } else { word.text };
        self.refusal = Some(Refusal { unsent, reason: Some(word.reason) });
    }

    /// Says the last word, then ends the read.
    fn poll_refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusal) = &mut self.refusal else { return Poll::Pending };
        while !refusal.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, refusal.unsent)).unwrap_or(0);
            refusal.unsent = if sent == 0 { &[] } else { &refusal.unsent[sent..] };
        }
        Poll::Ready(refusal.reason.map_or(Ok(()), |reason| Err(reason.into())))
    }

    /// Deals with whoever keeps the other waiting.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.client.phase() {
            IDLE => self.refusal = Some(Refusal { unsent: &[], reason: None }),
            HEADER | BODY => self.refuse(TOO_SLOW),
            // The proxy may turn to another server.
            _ => {
                self.client.enter(OVERDUE, clock::now());
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        self.poll_refuse(cx)
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refusal.is_some() {
            return this.poll_refuse(cx);
        }
        if this.is_h2 {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        if this.request != this.client.request() {
            this.request = this.client.request();
            this.header_bytes = 0;
        }
        let polled = match this.client.phase() {
            IDLE | HEADER if this.header_bytes > this.limits.header_bytes_max => {
                this.refuse(TOO_LARGE);
                return this.poll_refuse(cx);
            }
            IDLE | HEADER => this.poll_header(cx, buf),
            _ => Pin::new(&mut this.inner).poll_read(cx, buf),
        };
        if polled.is_pending() {
            ready!(this.poll_due(cx));
            return this.poll_overdue(cx);
        }
        polled
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.has_sent = true;
        Pin::new(&mut this.inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.has_sent = true;
        Pin::new(&mut this.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for Guarded {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

#[async_trait]
impl Peek for Guarded {}

impl UniqueID for Guarded {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Guarded {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Guarded {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for Guarded {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(Arc::clone(&self.digest))
    }
}

impl GetSocketDigest for Guarded {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}
