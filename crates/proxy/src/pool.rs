//! Connections to servers that are kept between requests, by one thread.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use sidelong_os::ServerAddress;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::h2::upstream::{self, Stream};
use crate::io::Io;
use crate::request::Request;
use crate::service::Failure;
use crate::settings::SharedSettings;
use crate::socket::Socket;
use crate::wire::Wire;

/// Most idle connections to one server, of one thread: more than it will have requests there at a time. Where there are fewer, a
/// thread that sends a burst of requests closes the connections of those that are answered, and opens them again for the next.
const IDLE_MAX: usize = 4096;
/// Longest time that a connection stays idle: as nginx's.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts to connect to a Unix socket whose accept queue is full.
const CONNECT_EVERY: Duration = Duration::from_millis(5);
/// Bytes on their way through a pipe, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Probes of a silent connection before it is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// Why no connection was made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectError {
    /// This process or machine had no descriptor, memory, port or route, for which the server is not to blame.
    Local,
    /// Others waited for a connection for too long.
    Busy,
    Server(Failure),
}

/// How a server is connected to.
#[derive(Clone, Debug)]
pub enum Address {
    /// At a socket of the system's.
    Socket(ServerAddress),
    /// Within this process, as in a test whose clock stands still: the server receives its end of a pipe. A full channel is a server
    /// that does not accept, and a closed one a server that refuses.
    Pipes(mpsc::Sender<DuplexStream>),
}

/// Where a server is, and what it speaks.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address.
    pub address: Address,
    /// Whether it speaks HTTP/2 in clear text, by prior knowledge. Otherwise it speaks HTTP/1.
    pub http2: bool,
}

impl Server {
    /// Whether connections to `other` are connections to this one.
    pub(crate) fn is(&self, other: &Server) -> bool {
        let is_there = match (&self.address, &other.address) {
            (Address::Socket(one), Address::Socket(other)) => one == other,
            (Address::Pipes(one), Address::Pipes(other)) => one.same_channel(other),
            _ => false,
        };
        is_there && self.http2 == other.http2
    }
}

/// The place of a server: the `member`-th of the `group`-th group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerId {
    /// The group, such as the servers of one machine.
    pub group: usize,
    /// Its member.
    pub member: usize,
}

/// A server and its connections.
pub(crate) struct Kept {
    server: Arc<Server>,
    connections: Connections,
}

enum Connections {
    /// The idle ones.
    Http1(RefCell<Vec<(Wire, Instant)>>),
    /// All.
    Http2(upstream::Connections),
}

/// A connection for a request.
pub(crate) enum Connection {
    /// It may be [kept](Kept::put) after the request.
    Http1(Wire, Rc<Kept>),
    Http2(Stream),
    /// One of HTTP/1.1 for a WebSocket, to a server that is said to speak HTTP/2 and opens none there. It may not speak HTTP/1.1.
    WebSocket(Wire),
}

/// The connections, by server.
pub(crate) struct Pool {
    /// By group and member, as far as requests have been there.
    servers: RefCell<Vec<Vec<Option<Rc<Kept>>>>>,
    settings: Arc<SharedSettings>,
}

impl Pool {
    pub(crate) fn new(settings: Arc<SharedSettings>) -> Self {
        Pool { servers: RefCell::default(), settings }
    }

    fn connect_timeout(&self) -> Duration {
        self.settings.limits().connect_timeout
    }

    /// A server that is silent for this long, though bytes were sent to it, is gone.
    fn silence_max(&self) -> Duration {
        self.settings.limits().response_timeout.max(Duration::from_secs(KEEPALIVE_PROBES.into()))
    }

    /// A connection to a server for a request: a kept one, or a new one.
    pub(crate) async fn connection(
        &self,
        id: ServerId,
        request: &Request,
    ) -> Result<Connection, ConnectError> {
        let kept = self.kept(id).ok_or(ConnectError::Server(Failure::Broken))?;
        let address = &kept.server.address;
        match &kept.connections {
            Connections::Http1(idle) => {
                let wire = take(&mut idle.borrow_mut());
                let wire = match wire {
                    Some(wire) => wire,
                    None => Wire::new(self.connect(address).await?),
                };
                Ok(Connection::Http1(wire, kept))
            }
            Connections::Http2(connections) => {
                let stream = self.stream(address, connections).await?;
                if request.websocket_key().is_some()
                    && !timeout(self.silence_max(), stream.opens_websockets()).await.unwrap_or(false)
                {
                    return Ok(Connection::WebSocket(Wire::new(self.connect(address).await?)));
                }
                Ok(Connection::Http2(stream))
            }
        }
    }

    /// The server that has that place now, and its connections. Those of the one before are not used any more.
    fn kept(&self, id: ServerId) -> Option<Rc<Kept>> {
        let mut servers = self.servers.borrow_mut();
        if servers.len() <= id.group {
            servers.resize_with(id.group + 1, Vec::new);
        }
        let group = &mut servers[id.group];
        if group.len() <= id.member {
            group.resize_with(id.member + 1, || None);
        }
        let kept = &mut group[id.member];
        self.settings.server(id, |server| match kept {
            Some(known) if Arc::ptr_eq(&known.server, server) => Rc::clone(known),
            _ => Rc::clone(kept.insert(Rc::new(Kept::new(server)))),
        })
    }

    async fn stream(
        &self,
        address: &Address,
        connections: &upstream::Connections,
    ) -> Result<Stream, ConnectError> {
        if let Some(stream) = connections.stream() {
            return Ok(stream);
        }
        let turn = timeout(self.connect_timeout(), connections.connecting.lock()).await;
        let _turn = turn.map_err(|_| ConnectError::Busy)?;
        if let Some(stream) = connections.stream() {
            return Ok(stream);
        }
        let added = connections.add(self.connect(address).await?).await;
        added.map_err(|_| ConnectError::Server(Failure::Broken))
    }

    /// Closes connections that were idle for too long, that their server has closed, or whose server has gone.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for (group, members) in self.servers.borrow_mut().iter_mut().enumerate() {
            for (member, kept) in members.iter_mut().enumerate() {
                let is_current = |known: &Rc<Kept>| {
                    let same = |server: &Arc<Server>| Arc::ptr_eq(server, &known.server);
                    self.settings.server(ServerId { group, member }, same) == Some(true)
                };
                *kept = kept.take().filter(is_current);
                kept.iter().for_each(|kept| kept.sweep(now, IDLE_TIME_MAX));
            }
        }
    }

    /// Closes all idle connections, so that their descriptors are free.
    pub(crate) fn clear(&self) {
        for kept in self.servers.borrow().iter().flatten().flatten() {
            kept.sweep(Instant::now(), Duration::ZERO);
        }
    }

    async fn connect(&self, address: &Address) -> Result<Io, ConnectError> {
        let socket = match address {
            Address::Socket(ServerAddress::Tcp(address)) => self.connect_tcp(*address).await,
            Address::Socket(ServerAddress::Unix(path)) => self.connect_unix(path).await,
            Address::Pipes(server) => self.connect_pipe(server).await,
        };
        Ok(Io::Plain(socket?))
    }

    async fn connect_tcp(&self, address: SocketAddr) -> Result<Socket, ConnectError> {
        let stream = match timeout(self.connect_timeout(), TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if is_local(&error) => return Err(ConnectError::Local),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::Server(Failure::Refused));
            }
            Ok(Err(_)) | Err(_) => return Err(ConnectError::Server(Failure::Unreachable)),
        };
        // Without these options the connection still works.
        let _ = self.set_options(&stream);
        Ok(Socket::Tcp(stream))
    }

    async fn connect_unix(&self, path: &Path) -> Result<Socket, ConnectError> {
        let connecting = async {
            loop {
                match UnixStream::connect(path).await {
                    // Over TCP the kernel would try again.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(CONNECT_EVERY).await,
                    connected => return connected,
                }
            }
        };
        match timeout(self.connect_timeout(), connecting).await {
            Ok(Ok(stream)) => Ok(Socket::Unix(stream)),
            Ok(Err(error)) if is_shortage(&error) => Err(ConnectError::Local),
            // There is no such file, it is no socket, nobody listens there, or this process may not connect.
            Ok(Err(_)) => Err(ConnectError::Server(Failure::Refused)),
            Err(_) => Err(ConnectError::Server(Failure::Unreachable)),
        }
    }

    async fn connect_pipe(&self, server: &mpsc::Sender<DuplexStream>) -> Result<Socket, ConnectError> {
        let (ours, theirs) = duplex(PIPE_BYTES);
        match timeout(self.connect_timeout(), server.send(theirs)).await {
            Ok(Ok(())) => Ok(Socket::Pipe(ours)),
            Ok(Err(_)) => Err(ConnectError::Server(Failure::Refused)),
            Err(_) => Err(ConnectError::Server(Failure::Unreachable)),
        }
    }

    /// The kernel notices a server that is gone or takes nothing, on connections in use and on idle ones.
    fn set_options(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new()
            .with_time(self.silence_max())
            .with_interval((self.silence_max() / KEEPALIVE_PROBES).max(Duration::from_secs(1)))
            .with_retries(KEEPALIVE_PROBES);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.silence_max()))
    }
}

impl Kept {
    fn new(server: &Arc<Server>) -> Self {
        let connections = match server.http2 {
            false => Connections::Http1(RefCell::default()),
            true => Connections::Http2(upstream::Connections::default()),
        };
        Kept { server: Arc::clone(server), connections }
    }

    /// Keeps a connection after a request.
    pub(crate) fn put(&self, mut wire: Wire) {
        let Connections::Http1(idle) = &self.connections else { return };
        let mut idle = idle.borrow_mut();
        if idle.len() < IDLE_MAX {
            wire.is_kept = true;
            idle.push((wire, Instant::now()));
        }
    }

    fn sweep(&self, now: Instant, idle_max: Duration) {
        match &self.connections {
            Connections::Http1(idle) => {
                idle.borrow_mut().retain_mut(|(wire, since)| now - *since < idle_max && !wire.io.has_news());
            }
            Connections::Http2(connections) => connections.sweep(now, idle_max),
        }
    }
}

/// An idle connection: the one used last, because its neighbours' caches are warm and the others may end.
fn take(idle: &mut Vec<(Wire, Instant)>) -> Option<Wire> {
    while let Some((mut wire, _)) = idle.pop() {
        if !wire.io.has_news() {
            return Some(wire);
        }
    }
    None
}

/// Whether an error of a TCP connection is this process's or this machine's, and says nothing of the server.
pub fn is_local(error: &io::Error) -> bool {
    is_shortage(error) || has_no_route(error)
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
