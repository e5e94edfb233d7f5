//! Where clients' connections come from.

use std::future::pending;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use tokio::io::{DuplexStream, Interest};
use tokio::sync::mpsc;

use crate::socket::Socket;

/// Unsent bytes that the kernel keeps for a client. More would only wait there: a slow client would cost memory, and its pace
/// could not be seen. It is seen in steps of half of this.
const UNSENT_BYTES_MAX: u32 = 64 << 10;
/// Most connections that wait to be accepted, if the system allows so many (net.core.somaxconn): beyond it a client tries again
/// only after a second. Rust's own is 128.
const BACKLOG: i32 = 4096;

/// Most bytes that are read of a client that finds no place.
const READ_BYTES: usize = 8 << 10;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// At a socket of the system's.
    Socket(TcpListener),
    /// Within this process, as in a test whose clock stands still: each pipe is the connection of the client at that address.
    Pipes(mpsc::Receiver<(DuplexStream, SocketAddr)>),
}

/// A listener that is registered with its thread's runtime.
pub(crate) enum Accepting {
    Socket(AsyncFd<TcpListener>),
    Pipes(mpsc::Receiver<(DuplexStream, SocketAddr)>),
}

/// A connection that was accepted. No reactor knows it yet: one that is closed at once needs none, and another thread has its own.
#[derive(Debug)]
pub(crate) enum Arrived {
    Socket(TcpStream),
    Pipe(DuplexStream),
}

impl Accepting {
    /// Registers a listener, of which the reactor is only to say when a connection waits.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe for types that do not own their descriptor; a listener does"
    )]
    pub(crate) fn new(listener: Listener) -> io::Result<Self> {
        let listener = match listener {
            Listener::Socket(listener) => listener,
            Listener::Pipes(pipes) => return Ok(Accepting::Pipes(pipes)),
        };
        listener.set_nonblocking(true)?;
        // Connections inherit the options. Without any of this they still work.
        let listening = SockRef::from(&listener);
        let _ = listening.listen(BACKLOG);
        let _ = listening.set_tcp_nodelay(true);
        let _ = listening.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        Ok(Accepting::Socket(AsyncFd::with_interest(listener, Interest::READABLE)?))
    }

    /// The next connection, and its client.
    pub(crate) async fn accept(&mut self) -> io::Result<(Arrived, SocketAddr)> {
        match self {
            Accepting::Socket(listener) => listener.async_io(Interest::READABLE, accept).await,
            Accepting::Pipes(pipes) => match pipes.recv().await {
                Some((pipe, client)) => Ok((Arrived::Pipe(pipe), client)),
                None => pending().await,
            },
        }
    }
}

fn accept(listener: &TcpListener) -> io::Result<(Arrived, SocketAddr)> {
    let (stream, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((Arrived::Socket(stream.into()), peer.ok_or(io::ErrorKind::ConnectionAborted)?))
}

impl Arrived {
    /// Closes it, with `answer` as far as the kernel takes that at once.
    pub(crate) fn close_with(self, answer: &[u8]) {
        let Arrived::Socket(mut stream) = self else { return };
        // What is left unread would reset the connection, and might take the answer with it.
        let _ = stream.read(&mut [0; READ_BYTES]);
        let _ = stream.write(answer);
        let _ = stream.shutdown(Shutdown::Write);
    }

    /// The connection in this thread's runtime.
    pub(crate) fn here(self) -> io::Result<Socket> {
        Ok(match self {
            Arrived::Socket(stream) => Socket::Tcp(tokio::net::TcpStream::from_std(stream)?),
            Arrived::Pipe(pipe) => Socket::Pipe(pipe),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_place_is_told_whether_or_not_it_has_asked() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        for asks in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            if asks {
                client.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").unwrap();
            }
            let (arrived, _) = accept(&listener).unwrap();
            arrived.close_with(b"no");
            let mut told = Vec::new();
            client.read_to_end(&mut told).unwrap();
            assert_eq!(told, b"no");
        }
    }
}
