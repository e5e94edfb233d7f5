//! Where clients connect, and how they are reached.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use sidelong_tls::Tls;

use super::tls::Encrypted;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// A TCP address, where clients may have to speak TLS.
    Tcp(TcpListener, Option<Tls>),
    /// A Unix socket, whose file is removed at the end.
    Unix(UnixListener, PathBuf),
    /// The Unix socket at which other caches of the cluster connect. Its file is removed at the end, too.
    Caches(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener, tls) => {
                let (stream, _) = listener.accept()?;
                // An answer is written whole, and not held back for more.
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                match tls {
                    None => Ok(Stream::Tcp(stream)),
                    Some(tls) => Ok(Stream::Tls(Box::new(Encrypted::new(stream, tls.config())?))),
                }
            }
            Listener::Unix(listener, _) | Listener::Caches(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(listener, _) => listener.set_nonblocking(true),
            Listener::Unix(listener, _) | Listener::Caches(listener, _) => listener.set_nonblocking(true),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener, _) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("TCP"),
            },
            Listener::Unix(_, path) | Listener::Caches(_, path) => path.display().fmt(f),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener, _) => listener.as_fd(),
            Listener::Unix(listener, _) | Listener::Caches(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) | Listener::Caches(_, path) = self {
            _ = fs::remove_file(path);
        }
    }
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Encrypted>),
}

impl Stream {
    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(to),
            Stream::Unix(stream) => stream.read(to),
            Stream::Tls(stream) => stream.read(to),
        }
    }

    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    /// Whether bytes are held back that the client has yet to take.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_blocked())
    }

    /// Writes what is held back, as far as the client takes it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.as_fd(),
        }
    }
}
