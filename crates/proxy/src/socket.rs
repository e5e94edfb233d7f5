//! What carries a connection's bytes: a TCP connection, one at a Unix socket, or a pipe within this process, such as a test's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection below TLS. One enum for all: a real connection pays a branch, and neither a call through a table nor an allocation.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(DuplexStream),
}

/// Calls the stream's own method.
macro_rules! of_stream {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
            Socket::Pipe($stream) => $call,
        }
    };
}

impl Socket {
    /// Ready when something may be read. A pipe tells only who reads.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
            Socket::Unix(stream) => stream.poll_read_ready(cx),
            Socket::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether there is something to read, or the end. The first byte may be gone then.
    pub(crate) fn has_news(&mut self) -> bool {
        let read = match self {
            Socket::Tcp(stream) => stream.try_read(&mut [0]),
            Socket::Unix(stream) => stream.try_read(&mut [0]),
            Socket::Pipe(stream) => {
                let mut now = Context::from_waker(Waker::noop());
                return Pin::new(stream).poll_read(&mut now, &mut ReadBuf::new(&mut [0])).is_ready();
            }
        };
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sets options of the kernel's; a pipe has none.
    pub(crate) fn options(&self) -> Option<SockRef<'_>> {
        match self {
            Socket::Tcp(stream) => Some(SockRef::from(stream)),
            Socket::Unix(stream) => Some(SockRef::from(stream)),
            Socket::Pipe(_) => None,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// None of them holds anything back.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
