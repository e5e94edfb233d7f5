//! Where clients connect, and how they are reached.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use sidelong_fabric::control::{Sealed, Secret};
use sidelong_tls::Tls;

use super::sealed::SealedStream;
use super::tls::Encrypted;

/// After how long a client that says nothing is asked by the kernel whether it is there, how often then, and how many of these
/// questions may get no answer: one that has vanished keeps its place for two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_EACH: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// A TCP address, where clients may have to speak TLS.
    Tcp(TcpListener, Option<Tls>),
    /// A Unix socket, whose file is removed at the end.
    Unix(UnixListener, PathBuf),
    /// The Unix socket at which other caches of the cluster connect. Its file is removed at the end, too.
    Caches(UnixListener, PathBuf),
    /// The TCP address at which caches of other machines connect, who must know the secret, and have `cluster` alike.
    Network {
        /// The address.
        listener: TcpListener,
        /// The cluster's secret.
        secret: Secret,
        /// What all parts have alike.
        cluster: u64,
    },
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
            Listener::Network { listener, secret, cluster } => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                sidelong_fabric::tcp::prepare(&stream)?;
                let sealed = Sealed::answering(secret.clone(), *cluster);
                Ok(Stream::Sealed(Box::new(SealedStream::new(stream, sealed, Vec::new()))))
            }
        }
    }

    /// Whether other caches connect there, and no clients.
    pub(super) fn is_for_caches(&self) -> bool {
        matches!(self, Listener::Caches(..) | Listener::Network { .. })
    }

    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Listener::Unix(..) | Listener::Caches(..))
    }

    /// Makes it one on which nothing waits, and whose clients are found out if they have vanished.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(listener, _) => {
                // Accepted sockets inherit it.
                sockopt::set_socket_keepalive(listener, true)?;
                sockopt::set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
                sockopt::set_tcp_keepintvl(listener, KEEPALIVE_EACH)?;
                sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)?;
                listener.set_nonblocking(true)
            }
            Listener::Network { listener, .. } => listener.set_nonblocking(true),
            Listener::Unix(listener, _) | Listener::Caches(listener, _) => listener.set_nonblocking(true),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener, _) | Listener::Network { listener, .. } => match listener.local_addr() {
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
            Listener::Tcp(listener, _) | Listener::Network { listener, .. } => listener.as_fd(),
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

/// A connection, on which nothing waits.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Sealed(Box<SealedStream>),
    Tls(Box<Encrypted>),
}

impl Stream {
    /// To the Unix socket at a path.
    pub(crate) fn to_socket(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Stream::Unix(socket.into()))
    }

    /// To a cache of another machine. The connection is yet to be made, and to be opened.
    pub(crate) fn to_network(address: SocketAddr, secret: &Secret, cluster: u64) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        sidelong_fabric::tcp::prepare(&socket)?;
        let mut hello = Vec::new();
        let sealed = Sealed::asking(secret, cluster, &mut hello);
        Ok(Stream::Sealed(Box::new(SealedStream::new(socket, sealed, hello))))
    }

    /// The addresses of the other side and of this one, as memcached shows them.
    pub(super) fn ends(&self) -> [String; 2] {
        let tcp = |socket: &TcpStream| {
            [socket.peer_addr(), socket.local_addr()]
                .map(|address| address.map_or_else(|_| "tcp".to_owned(), |address| format!("tcp:{address}")))
        };
        match self {
            Stream::Tcp(socket) => tcp(socket),
            Stream::Sealed(stream) => tcp(&stream.socket),
            Stream::Tls(stream) => tcp(&stream.socket),
            Stream::Unix(socket) => [socket.peer_addr(), socket.local_addr()].map(|address| {
                let path = address.ok().and_then(|address| address.as_pathname().map(Path::to_owned));
                path.map_or_else(|| "unix:".to_owned(), |path| format!("unix:{}", path.display()))
            }),
        }
    }

    /// Whether bytes may be written: the other side is known.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Tls(_) => true,
            Stream::Sealed(stream) => stream.is_open(),
        }
    }

    /// Whether the socket has yet to take bytes that were written.
    pub(crate) fn is_blocked(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => false,
            Stream::Sealed(stream) => stream.is_blocked(),
            Stream::Tls(stream) => stream.is_blocked(),
        }
    }

    /// Writes what the socket takes of such bytes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            Stream::Sealed(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }

    /// Reads once.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(to),
            Stream::Unix(stream) => stream.read(to),
            Stream::Sealed(stream) => stream.read(to),
            Stream::Tls(stream) => stream.read(to),
        }
    }

    /// Writes once. After an error of the kind `WouldBlock` the same bytes are to be written again.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
            Stream::Sealed(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    /// Closes it. What the other side has not got it does not get any more.
    pub(crate) fn abort(self) {
        if let Stream::Sealed(stream) = &self {
            _ = sockopt::set_socket_linger(&stream.socket, Some(Duration::ZERO));
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Sealed(stream) => stream.socket.as_fd(),
            Stream::Tls(stream) => stream.as_fd(),
        }
    }
}
