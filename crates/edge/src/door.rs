//! The door: every client connection passes through it before Pingora sees it.
//!
//! Pingora bounds each read of a request, not the request as a whole, and accepts headers of up to a megabyte. The door
//! enforces deadlines for header and body however slowly they arrive, a size of the header, and a number of connections.
//! A client that exceeds a limit is answered with 408, 431 or 503, and its connection is closed.
//!
//! The door also enforces the server's deadline. Pingora would keep a timer for each wait, several per request, which cost
//! more than everything else that an edge does for a request. Whatever a connection waits for, it polls the door for the
//! client's next bytes. So one alarm per connection suffices: it is set for the first deadline, and set again only when it
//! rings.
//!
//! On an HTTP/2 connection the door sees frames of many requests, not the requests. There Pingora limits headers and
//! enforces the server's deadline, the proxy enforces those of bodies, and the door only counts the connection.

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
use crate::last_word::{FULL, LastWord, TOO_LARGE, TOO_SLOW};
use crate::metrics::Metrics;
use crate::settings::DoorLimits;

/// A [`ServerApp`] that guards another.
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

/// One connection, counted while this lives.
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

/// A client connection: what the proxy, which parses requests, tells the door, which only sees bytes.
#[derive(Debug)]
pub(crate) struct Client {
    /// `request:29 phase:3`, so that the door can tell one request from the next even if it was not polled in between. Only
    /// one task reads and writes it.
    progress: AtomicU32,
    /// When the phase began, in ns of the monotonic clock.
    since_ns: AtomicU64,
    /// The client as the gate knows it.
    known: admission::Client,
    /// The client's address, for the header x-forwarded-for.
    forwarded_for: Option<HeaderValue>,
}

// What a connection waits for.
/// The next request.
const IDLE: u32 = 0;
/// The rest of the header.
const HEADER: u32 = 1;
/// The rest of the body.
const BODY: u32 = 2;
/// The server's answer.
const ANSWER: u32 = 3;
/// The server's answer, whose deadline has passed.
const OVERDUE: u32 = 4;
const PHASE: u32 = 7;

impl Client {
    /// The client of `session`.
    pub(crate) fn of(session: &Session) -> Option<&Arc<Client>> {
        session.digest()?.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref()
    }

    fn new(stream: &Stream) -> Self {
        let address = stream.get_socket_digest().and_then(|digest| digest.peer_addr()?.as_inet().copied());
        // Clients without an address, as over a Unix socket, count as one.
        let known = address.map(admission::Client::new).unwrap_or_default();
        let forwarded_for =
            address.and_then(|address| address.ip().to_canonical().to_string().try_into().ok());
        let since_ns = clock::now().as_ns().into();
        Client { progress: AtomicU32::new(IDLE), since_ns, known, forwarded_for }
    }

    /// The client as the gate knows it.
    pub(crate) fn known(&self) -> admission::Client {
        self.known
    }

    /// Its address, for x-forwarded-for.
    pub(crate) fn forwarded_for(&self) -> Option<&HeaderValue> {
        self.forwarded_for.as_ref()
    }

    /// The header is complete; a body follows or not.
    pub(crate) fn header_done(&self, body_follows: bool, now: Time) {
        self.enter(if body_follows { BODY } else { ANSWER }, now);
    }

    /// The request is complete, or the answer has begun and the rest does not matter: the server's time begins.
    pub(crate) fn request_done(&self) {
        if self.phase() != ANSWER {
            self.enter(ANSWER, clock::now());
        }
    }

    /// The answer was sent; the next bytes begin another request.
    pub(crate) fn answered(&self, now: Time) {
        self.progress.store(self.request().wrapping_add(PHASE + 1), Ordering::Relaxed);
        self.enter(IDLE, now);
    }

    /// Whether the server has missed its deadline.
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

/// The end of a connection: its last answer, and then an error, or an end of file as if the client had closed it.
#[derive(Debug)]
struct Refusal {
    unsent: &'static [u8],
    reason: Option<io::ErrorKind>,
}

/// A client's connection, plain or TLS, under the limits of the door.
#[derive(Debug)]
struct Guarded {
    inner: Stream,
    limits: DoorLimits,
    client: Arc<Client>,
    digest: Arc<ProxyDigest>,
    /// HTTP/2 has many requests at a time, which the door does not see.
    is_h2: bool,
    /// The request that was read last, and the bytes read of its header.
    request: u32,
    header_bytes: usize,
    /// When the alarm rings, never after the deadline.
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
        // Pingora passes this digest to the session unchanged; its response is for CONNECT and stays empty.
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

    /// The time limit of the present phase.
    fn limit(&self) -> Duration {
        match self.client.phase() {
            IDLE => self.limits.idle_timeout,
            HEADER => self.limits.header_timeout,
            BODY => self.limits.body_timeout,
            _ => self.limits.response_timeout,
        }
    }

    /// Ready when the present phase is overdue.
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
            // It wakes the task that polled it last, so the same task need not poll it again.
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

    /// Reads at most one byte more than a header may have, because Pingora takes all that one read returns.
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
        // An HTTP/2 client would not understand the text.
        let unsent = if self.is_h2 { &[] } else { word.text };
        self.refusal = Some(Refusal { unsent, reason: Some(word.reason) });
    }

    /// Sends the last answer, then ends the read.
    fn poll_refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusal) = &mut self.refusal else { return Poll::Pending };
        while !refusal.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, refusal.unsent)).unwrap_or(0);
            refusal.unsent = if sent == 0 { &[] } else { &refusal.unsent[sent..] };
        }
        Poll::Ready(refusal.reason.map_or(Ok(()), |reason| Err(reason.into())))
    }

    /// Ends the wait for whichever side is overdue.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.client.phase() {
            IDLE => self.refusal = Some(Refusal { unsent: &[], reason: None }),
            HEADER | BODY => self.refuse(TOO_SLOW),
            // The proxy may retry at another server.
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
