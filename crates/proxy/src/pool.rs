//! Connections to servers that are kept between requests, by one thread.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::io::Io;
use crate::service::{Failure, Limits};
use crate::wire::Wire;

/// Most idle connections to one server, of one thread.
const IDLE_MAX: usize = 256;
/// Longest time that a connection stays idle: as nginx's.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Probes of a silent connection before it is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// Why no connection was made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// This process or machine had no descriptor, memory, port or route, for which the server is not to blame.
    Local,
    Server(Failure),
}

/// The idle connections, by server.
#[derive(Debug)]
pub(crate) struct Pool {
    addresses: Vec<SocketAddr>,
    idle: RefCell<Vec<Vec<(Wire, Instant)>>>,
    connect_timeout: Duration,
    /// A server that is silent for this long, though bytes were sent to it, is gone.
    silence_max: Duration,
}

impl Pool {
    pub(crate) fn new(addresses: Vec<SocketAddr>, limits: &Limits) -> Self {
        let idle = addresses.iter().map(|_| Vec::new()).collect();
        Pool {
            addresses,
            idle: RefCell::new(idle),
            connect_timeout: limits.connect_timeout,
            silence_max: limits.response_timeout.max(Duration::from_secs(KEEPALIVE_PROBES.into())),
        }
    }

    /// An idle connection to a server: the one used last, because its neighbours' caches are warm and the others may end.
    pub(crate) fn take(&self, server: usize) -> Option<Wire> {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(server)?;
        loop {
            let (wire, _) = idle.pop()?;
            if !wire.io.has_news() {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection after a request.
    pub(crate) fn put(&self, server: usize, wire: Wire) {
        let mut idle = self.idle.borrow_mut();
        if let Some(idle) = idle.get_mut(server).filter(|idle| idle.len() < IDLE_MAX) {
            idle.push((wire, Instant::now()));
        }
    }

    /// Closes connections that were idle for too long, or that their server has closed.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for idle in self.idle.borrow_mut().iter_mut() {
            idle.retain(|(wire, since)| now - *since < IDLE_TIME_MAX && !wire.io.has_news());
        }
    }

    /// Closes all idle connections, so that their descriptors are free.
    pub(crate) fn clear(&self) {
        self.idle.borrow_mut().iter_mut().for_each(Vec::clear);
    }

    /// A new connection to a server.
    pub(crate) async fn connect(&self, server: usize) -> Result<Wire, ConnectError> {
        let broken = ConnectError::Server(Failure::Broken);
        let address = *self.addresses.get(server).ok_or(broken)?;
        let stream = match timeout(self.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if is_shortage(&error) || has_no_route(&error) => return Err(ConnectError::Local),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::Server(Failure::Refused));
            }
            Ok(Err(_)) => return Err(ConnectError::Server(Failure::Unreachable)),
            Err(_) => return Err(ConnectError::Server(Failure::Unreachable)),
        };
        // Without these options the connection still works.
        let _ = self.set_options(&stream);
        Ok(Wire::new(Io::Plain(stream)))
    }

    /// The kernel notices a server that is gone or takes nothing, on connections in use and on idle ones.
    fn set_options(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new()
            .with_time(self.silence_max)
            .with_interval((self.silence_max / KEEPALIVE_PROBES).max(Duration::from_secs(1)))
            .with_retries(KEEPALIVE_PROBES);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.silence_max))
    }
}

/// Whether this machine may not or cannot send to any server, as far as it knows.
fn has_no_route(error: &io::Error) -> bool {
    let local = [Errno::NETUNREACH, Errno::NETDOWN, Errno::ACCESS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| local.contains(&errno))
}

/// Whether this process or machine had no descriptor, memory or port left.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}
