//! The door: every client connection passes through it before Pingora sees it.
//!
//! Pingora bounds each read of a request, not the whole of it, and takes headers of up to a megabyte. The door holds
//! the client to a deadline for its header and for its body however slowly it dribbles them, to a size of header, and
//! all clients together to a number of connections. Whoever breaks a bound is told (408, 431, 503) and shown out. It
//! costs a request that arrives in one piece nothing: a deadline is armed when a second read is needed.
//!
//! Of an HTTP/2 connection it sees no requests, only frames of many: there Pingora holds headers to their size, the
//! proxy bodies to their deadline, and the door counts the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::closing::Closing;

/// What a client is held to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DoorLimits {
    /// Bytes of a request's line and headers.
    pub header_bytes_max: usize,
    /// From the first byte of a request to the end of its headers.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// Connections at once.
    pub connections_max: usize,
}

/// A [`ServerApp`] that guards another one.
pub(crate) struct Door<A> {
    app: Arc<A>,
    limits: DoorLimits,
    inside: Arc<AtomicUsize>,
    closing: Arc<Closing>,
}

impl<A> Door<A> {
    pub(crate) fn new(app: A, limits: DoorLimits, closing: Arc<Closing>) -> Self {
        Door { app: Arc::new(app), limits, inside: Arc::default(), closing }
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> ServerApp for Door<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let mut guarded = Guarded::new(stream, self.limits, Visit::enter(&self.inside));
        let is_full = self.inside.load(Ordering::Relaxed) > self.limits.connections_max;
        if is_full || self.closing.has_begun() {
            let words = if guarded.is_h2 { &[] } else { FULL };
            guarded.refusal = Some(Refusal::new(words, io::ErrorKind::ConnectionRefused));
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

/// What the client is sending: told by the proxy, which parses, to the door, which only sees bytes. `request:30 phase:2`,
/// so that the door knows one request from the next even where it was not asked to read in between.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU32);

const HEADER: u32 = 0;
const BODY: u32 = 1;
const DONE: u32 = 2;
const PHASE: u32 = 3;

impl Progress {
    /// Of the connection that `session` came over.
    pub(crate) fn of(session: &Session) -> Option<&Progress> {
        let digest = session.digest()?.proxy_digest.as_ref()?;
        let progress: &Arc<Progress> = digest.user_data.as_ref()?.downcast_ref()?;
        Some(progress)
    }

    /// The header is there; a body follows or not.
    pub(crate) fn header_done(&self, body_follows: bool) {
        self.enter(if body_follows { BODY } else { DONE });
    }

    /// The whole request is there.
    pub(crate) fn request_done(&self) {
        self.enter(DONE);
    }

    /// The answer is sent: the next bytes begin another request.
    pub(crate) fn answered(&self) {
        let request = self.0.load(Ordering::Relaxed) & !PHASE;
        self.0.store(request.wrapping_add(PHASE + 1) | HEADER, Ordering::Relaxed);
    }

    /// One task alone tells and asks.
    fn enter(&self, phase: u32) {
        self.0.store(self.0.load(Ordering::Relaxed) & !PHASE | phase, Ordering::Relaxed);
    }
}

const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// A last word to a client, and what Pingora is told then.
#[derive(Debug)]
struct Refusal {
    unsent: &'static [u8],
    reason: io::ErrorKind,
}

impl Refusal {
    fn new(words: &'static [u8], reason: io::ErrorKind) -> Self {
        Refusal { unsent: words, reason }
    }
}

/// A client's connection, plain or TLS, under the door's limits.
#[derive(Debug)]
struct Guarded {
    inner: Stream,
    limits: DoorLimits,
    progress: Arc<Progress>,
    digest: Arc<ProxyDigest>,
    /// Many requests at a time, which the door does not see.
    is_h2: bool,
    /// Of the current request, while it is in `HEADER`.
    header_bytes: usize,
    /// The progress as of the last read, and the deadline of its phase once armed.
    progress_seen: u32,
    deadline: Option<Pin<Box<Sleep>>>,
    refusal: Option<Refusal>,
    _visit: Visit,
}

impl Guarded {
    fn new(inner: Stream, limits: DoorLimits, visit: Visit) -> Self {
        let progress = Arc::<Progress>::default();
        // Pingora carries this digest to the session untouched; its response is for CONNECT and stays empty.
        let response = ResponseHeader::build(200, None).expect("200 is a status");
        let digest = ProxyDigest::new(Box::new(response), Some(Box::new(Arc::clone(&progress))));
        let digest = Arc::new(digest);
        let is_h2 = matches!(inner.selected_alpn_proto(), Some(ALPN::H2));
        Guarded {
            inner,
            limits,
            progress,
            digest,
            is_h2,
            header_bytes: 0,
            progress_seen: HEADER,
            deadline: None,
            refusal: None,
            _visit: visit,
        }
    }

    /// Notices that the request has moved on since the last read.
    fn follow(&mut self) {
        let progress = self.progress.0.load(Ordering::Relaxed);
        if progress != self.progress_seen {
            self.progress_seen = progress;
            self.deadline = None;
            self.header_bytes = 0;
        }
    }

    fn phase(&self) -> u32 {
        if self.is_h2 { DONE } else { self.progress_seen & PHASE }
    }

    /// Whether the client has begun what it is held to finish.
    fn is_held(&self) -> bool {
        self.phase() == BODY || (self.phase() == HEADER && self.header_bytes > 0)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = if self.phase() == BODY { self.limits.body_timeout } else { self.limits.header_timeout };
        self.deadline.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }

    /// Reads no more than a header may have and the byte that is too many, for Pingora takes whatever comes in one read.
    fn poll_header(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = self.limits.header_bytes_max + 1 - self.header_bytes;
        if room >= buf.remaining() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        let outcome = Pin::new(&mut self.inner).poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        outcome
    }

    /// Says the last word, then fails the read.
    fn poll_refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(refusal) = &mut self.refusal else { return Poll::Pending };
        while !refusal.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, refusal.unsent)).unwrap_or(0);
            refusal.unsent = if sent == 0 { &[] } else { &refusal.unsent[sent..] };
        }
        Poll::Ready(Err(refusal.reason.into()))
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.follow();
        let in_header = this.phase() == HEADER;
        if this.refusal.is_none() && in_header && this.header_bytes > this.limits.header_bytes_max {
            this.refusal = Some(Refusal::new(TOO_LARGE, io::ErrorKind::InvalidData));
        }
        if this.refusal.is_some() {
            return this.poll_refuse(cx);
        }
        let before = buf.filled().len();
        let polled = match in_header {
            true => this.poll_header(cx, buf),
            false => Pin::new(&mut this.inner).poll_read(cx, buf),
        };
        match polled {
            Poll::Ready(outcome) => {
                if in_header {
                    this.header_bytes += buf.filled().len() - before;
                }
                Poll::Ready(outcome)
            }
            Poll::Pending if this.is_held() => {
                ready!(this.poll_deadline(cx));
                this.refusal = Some(Refusal::new(TOO_SLOW, io::ErrorKind::TimedOut));
                this.poll_refuse(cx)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
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
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
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
