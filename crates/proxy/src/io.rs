//! A connection's bytes, plain or encrypted.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::TcpKeepalive;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::buffer::Buffer;
use crate::socket::Socket;

/// Silence of a client after which the kernel asks whether it is still there: nothing else ends a tunnel that nobody uses. Whoever has
/// no tunnel is held to deadlines, and is spared the timer.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Io {
    /// Reads into `buffer`; 0 bytes at the end of the stream. The buffer must not be full.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        // No memory is taken before there is something to read.
        if buffer.is_empty()
            && let Io::Plain(socket) = self
        {
            ready!(socket.poll_read_ready(cx))?;
        }
        let mut room = buffer.room();
        debug_assert!(room.remaining() > 0, "the buffer is full");
        let read = Pin::new(self).poll_read(cx, &mut room);
        let count = room.filled().len();
        buffer.filled(count);
        read.map_ok(|()| count)
    }

    /// Whether the other side has closed the connection, or sent something unasked. It is asked of idle connections, most of
    /// which need no system call.
    pub(crate) fn has_news(&mut self) -> bool {
        match self {
            Io::Plain(socket) => socket.has_news(),
            Io::Tls(stream) => stream.get_mut().0.has_news(),
        }
    }

    /// The kernel asks from time to time whether the other side is still there.
    pub(crate) fn keep_alive(&self) {
        // Without the option an idle tunnel ends later.
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
        let _ = self.socket().options().map(|options| options.set_tcp_keepalive(&keepalive));
    }

    /// The connection is to end with a reset, so that the other side cannot take its end for the end of a body.
    pub(crate) fn reset_on_close(&self) {
        // Without the option it is still closed.
        let _ = self.socket().options().map(|options| options.set_linger(Some(Duration::ZERO)));
    }

    fn socket(&self) -> &Socket {
        match self {
            Io::Plain(socket) => socket,
            Io::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Io::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Io::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Io::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A connection of which the first bytes were read already, and that knows since when the other side takes nothing.
#[derive(Debug)]
pub(crate) struct Rewound {
    first: Buffer,
    io: Io,
    pub(crate) blocked: Rc<Cell<Option<Instant>>>,
}

impl Rewound {
    pub(crate) fn new(first: Buffer, io: Io) -> Self {
        // Any of its streams may become a tunnel.
        io.keep_alive();
        Rewound { first, io, blocked: Rc::default() }
    }

    fn wrote<T>(&self, wrote: Poll<T>) -> Poll<T> {
        let since = self.blocked.get();
        self.blocked.set(wrote.is_pending().then(|| since.unwrap_or_else(Instant::now)));
        wrote
    }
}

impl AsyncRead for Rewound {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = this.first.bytes().len().min(buf.remaining());
        buf.put_slice(&this.first.bytes()[..count]);
        this.first.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.io).poll_write(cx, buf);
        this.wrote(wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.wrote(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
