//! The sockets of a server that is not Sidelong's, as the kernel tells of them: who listens at its port or Unix socket, its
//! connections, and its accept queue.
//!
//! They are asked for over netlink (sock_diag(7)), which needs no privilege and, unlike /proc/net/tcp, shows one port. What costs a
//! walk over a table of the kernel is asked for only so often that it takes a small share of a CPU.

mod netlink;
mod tcp;
mod unix;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use sidelong_layout::{Hot, valid};
use sidelong_os::{ServerAddress, thread_cpu};

use netlink::Kernel;

/// What the kernel tells of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listening {
    /// Its listening sockets. None: nobody listens there on this machine.
    pub sockets: u32,
    /// The inode of one of them, by which its processes can be found.
    pub inode: u32,
    /// Established connections, those that wait to be accepted included.
    pub established: u32,
    /// Connections that wait to be accepted.
    pub queued: u32,
    /// Established connections from elsewhere than [`Origins`]. At a Unix socket none is known.
    pub bypassing: u32,
}

/// A foreign server: one that is not Sidelong's, of which the kernel tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Where it listens: at one address, or at several, each another.
    pub servers: Vec<ServerAddress>,
    /// Its workers, if each holds one connection: then those with one are busy.
    pub workers: Option<u16>,
}

impl Foreign {
    /// Copies its connections, of which `queued` wait to be accepted, into a hot line.
    pub(crate) fn fill(&self, established: u32, queued: u32, hot: &mut Hot) {
        (hot.connections, hot.queued) = (established, queued);
        hot.valid |= valid::CONNECTIONS;
        if let Some(workers) = self.workers {
            (hot.busy, hot.workers) = (established.saturating_sub(queued).min(workers.into()), workers);
            hot.valid |= valid::WORKERS;
        }
    }
}

impl Listening {
    fn and(self, other: Listening) -> Self {
        Listening {
            sockets: self.sockets.saturating_add(other.sockets),
            inode: other.inode,
            established: self.established.saturating_add(other.established),
            queued: self.queued.saturating_add(other.queued),
            bypassing: self.bypassing.saturating_add(other.bypassing),
        }
    }
}

/// Asks the kernel about the sockets of one server.
#[derive(Debug)]
pub struct Listener {
    kernel: Kernel,
    servers: Vec<Server>,
    origins: Origins,
}

/// The addresses from which edges, and proxies that fronts control, connect to a server; none if they are not known. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Origins(Arc<RwLock<Vec<IpAddr>>>);

impl Origins {
    /// From now on it is these.
    pub fn replace(&self, addresses: Vec<IpAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn all(&self) -> RwLockReadGuard<'_, Vec<IpAddr>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Vec<IpAddr>> for Origins {
    fn from(addresses: Vec<IpAddr>) -> Self {
        Origins(Arc::new(RwLock::new(addresses)))
    }
}

/// One address of the server.
#[derive(Debug)]
struct Server {
    address: ServerAddress,
    /// How many addresses share the CPU time for walks.
    walkers: u64,
    tcp: tcp::Follower,
    /// The last walk over the Unix sockets, and what it found.
    unix: Option<(Pause, Listening)>,
}

impl Listener {
    /// For the server at these addresses of this machine, each another.
    ///
    /// # Errors
    /// If the kernel does not answer such questions.
    pub fn new(servers: Vec<ServerAddress>) -> io::Result<Self> {
        let walkers = servers.len() as u64;
        let server = |address| Server { address, walkers, tcp: tcp::Follower::new(), unix: None };
        let servers = servers.into_iter().map(server).collect();
        Ok(Listener { kernel: Kernel::new()?, servers, origins: Origins::default() })
    }

    /// Tells the connections of edges and proxies from those of others.
    pub(crate) fn knowing(self, origins: Origins) -> Self {
        Listener { origins, ..self }
    }

    /// The server's sockets now, at all of its addresses.
    ///
    /// # Errors
    /// If the kernel refuses the question or its answer is not understood.
    pub fn look(&mut self) -> io::Result<Listening> {
        let Listener { kernel, servers, origins } = self;
        let origins = origins.all();
        servers.iter().try_fold(Listening::default(), |sum, server| {
            let found = match &server.address {
                ServerAddress::Tcp(address) => tcp::look(kernel, *address, &origins),
                ServerAddress::Unix(path) => unix::look(kernel, path),
            };
            Ok(sum.and(found?))
        })
    }

    /// The server's sockets now, for a small share of a CPU, however often it is called. Some figures may be as old as the pause
    /// that this takes.
    ///
    /// # Errors
    /// As [`Listener::look`].
    pub(crate) fn follow(&mut self, now_ns: u64) -> io::Result<Listening> {
        let Listener { kernel, servers, origins } = self;
        let origins = origins.all();
        servers.iter_mut().try_fold(Listening::default(), |sum, server| {
            Ok(sum.and(server.follow(kernel, &origins, now_ns)?))
        })
    }
}

impl Server {
    fn follow(&mut self, kernel: &mut Kernel, edges: &[IpAddr], now_ns: u64) -> io::Result<Listening> {
        let walk = Walk { begun_ns: now_ns, walkers: self.walkers };
        let path = match &self.address {
            ServerAddress::Tcp(address) => return self.tcp.follow(kernel, *address, edges, walk),
            ServerAddress::Unix(path) => path,
        };
        if let Some((pause, found)) = &self.unix
            && !pause.is_over(now_ns)
        {
            return Ok(*found);
        }
        let (found, pause) = walk.make(|| unix::look(kernel, path))?;
        self.unix = Some((pause, found));
        Ok(found)
    }
}

/// A walk over a table of the kernel is followed by a pause of as many times its CPU time: a third of a percent of a CPU.
const PAUSE_PER_WALK: u64 = 300;
/// Longest such pause, in ns, however long the walk took.
pub(crate) const PAUSE_NS_MAX: u64 = 10_000_000_000;

/// The time after a walk in which there is no other.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    begun_ns: u64,
    pause_ns: u64,
}

/// A walk that may be made now.
#[derive(Clone, Copy)]
struct Walk {
    begun_ns: u64,
    /// How many make such walks.
    walkers: u64,
}

impl Pause {
    /// The pause after a walk that took so much CPU time.
    fn after(walk: Walk, cpu_ns: u64) -> Self {
        let pause_ns = cpu_ns.saturating_mul(PAUSE_PER_WALK).saturating_mul(walk.walkers);
        Pause { begun_ns: walk.begun_ns, pause_ns: pause_ns.min(PAUSE_NS_MAX) }
    }

    const fn passed_ns(self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.begun_ns)
    }

    const fn is_over(self, now_ns: u64) -> bool {
        self.passed_ns(now_ns) >= self.pause_ns
    }
}

impl Walk {
    /// Makes it; returns what it finds, and the pause after it.
    fn make<T>(self, walk: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Pause)> {
        let began = thread_cpu();
        let found = walk()?;
        Ok((found, Pause::after(self, thread_cpu().saturating_sub(began).as_nanos() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::sockopt::set_socket_reuseport;
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen};

    use super::*;

    #[test]
    fn a_server_is_seen_with_its_connections_and_those_that_wait() {
        for (listen, server) in [("127.9.8.7:0", "127.9.8.7"), ("0.0.0.0:0", "127.9.8.6"), ("[::]:0", "::1")]
        {
            let listening = TcpListener::bind(listen).unwrap();
            let server = SocketAddr::new(server.parse().unwrap(), listening.local_addr().unwrap().port());
            let mut listener = Listener::new(vec![server.into()]).unwrap();
            let Listening { sockets, inode, established, queued, .. } = listener.look().unwrap();
            assert_eq!((sockets, established, queued), (1, 0, 0), "{server}");
            assert_ne!(inode, 0);
            let _clients = [0; 3].map(|_| TcpStream::connect(server).unwrap());
            let _accepted = listening.accept().unwrap();
            let now = listener.look().unwrap();
            assert_eq!(
                now,
                Listening { sockets, inode, established: 3, queued: 2, bypassing: 0 },
                "{server}"
            );
            drop(listening);
            assert_eq!(listener.look().unwrap(), Listening::default(), "{server}");
        }
    }

    #[test]
    fn who_connects_from_elsewhere_than_the_edges_is_told_apart() {
        let listening = TcpListener::bind("127.9.8.5:0").unwrap();
        let server = listening.local_addr().unwrap();
        let _clients = [0; 3].map(|_| TcpStream::connect(server).unwrap());
        let from = _clients[0].local_addr().unwrap().ip();
        let bypassing = |edges: Vec<IpAddr>| {
            let listener = Listener::new(vec![server.into()]).unwrap().knowing(edges.into()).look();
            listener.unwrap().bypassing
        };
        assert_eq!(bypassing(vec![from]), 0);
        assert_eq!(bypassing(vec!["192.0.2.1".parse().unwrap()]), 3);
        assert_eq!(bypassing(Vec::new()), 0, "who is an edge is not known");
    }

    #[test]
    fn connections_are_counted_again_only_if_they_may_have_changed_and_after_a_pause() {
        let listening = TcpListener::bind("127.9.8.3:0").unwrap();
        let server = listening.local_addr().unwrap();
        let mut listener = Listener::new(vec![server.into()]).unwrap();
        assert_eq!(listener.follow(0).unwrap().established, 0);
        let asked = listener.kernel.asked();
        let _clients = [0; 3].map(|_| TcpStream::connect(server).unwrap());
        // Within the pause: one question each time, and the accept queue is the current one.
        let found = [0; 20].map(|_| listener.follow(1).unwrap());
        assert_eq!(listener.kernel.asked() - asked, 20);
        assert!(found.iter().all(|found| (found.established, found.queued) == (3, 3)), "{found:?}");
        // After it they are counted, at least once.
        let _accepted = listening.accept().unwrap();
        let found = listener.follow(PAUSE_NS_MAX).unwrap();
        assert_eq!((found.established, found.queued), (3, 2));
        let asked = listener.kernel.asked();
        // A server that begins again is noticed at once.
        drop(listening);
        assert_eq!(listener.follow(PAUSE_NS_MAX).unwrap(), Listening::default());
        assert_eq!(listener.kernel.asked() - asked, 2, "by a look-up, and in the table of listening sockets");
        let _listening = TcpListener::bind(server).unwrap();
        assert_eq!(listener.follow(2 * PAUSE_NS_MAX).unwrap().sockets, 1);
    }

    #[test]
    fn sockets_that_share_a_port_are_seen_together() {
        let share = || {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_reuseport(&socket, true).unwrap();
            socket
        };
        let sockets = [share(), share()];
        let any: SocketAddr = "127.9.8.2:0".parse().unwrap();
        bind(&sockets[0], &any).unwrap();
        let server: SocketAddr = getsockname(&sockets[0]).unwrap().try_into().unwrap();
        bind(&sockets[1], &server).unwrap();
        sockets.iter().for_each(|socket| listen(socket, 16).unwrap());
        let mut listener = Listener::new(vec![server.into()]).unwrap();
        listener.follow(0).unwrap();
        let _clients = [0; 8].map(|_| TcpStream::connect(server).unwrap());
        let found = listener.follow(0).unwrap();
        assert_eq!((found.sockets, found.queued), (2, 8));
    }

    #[test]
    fn the_pause_after_a_walk_is_longer_for_several_addresses() {
        let pause_ms = |walkers, cpu_ms: u64| {
            Pause::after(Walk { begun_ns: 0, walkers }, cpu_ms * 1_000_000).pause_ns / 1_000_000
        };
        assert_eq!((pause_ms(1, 1), pause_ms(4, 1), pause_ms(4, 1000)), (300, 1_200, 10_000));
    }

    #[test]
    fn a_server_at_several_addresses_is_seen_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.sock");
        let ports = [0; 2].map(|_| TcpListener::bind("127.9.8.3:0").unwrap());
        let _at_path = UnixListener::bind(&path).unwrap();
        let addresses = ports.each_ref().map(|port| port.local_addr().unwrap());
        let servers =
            addresses.map(ServerAddress::from).into_iter().chain([ServerAddress::Unix(path.clone())]);
        let mut listener = Listener::new(servers.collect()).unwrap();
        let _clients = [addresses[0], addresses[1], addresses[1]].map(|to| TcpStream::connect(to).unwrap());
        let _client = UnixStream::connect(path).unwrap();
        let _accepted = ports[1].accept().unwrap();
        let Listening { sockets, established, queued, .. } = listener.look().unwrap();
        assert_eq!((sockets, established, queued), (3, 4, 3));
    }

    #[test]
    fn a_server_at_a_unix_socket_is_seen_by_whichever_path_it_was_bound() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("app.sock"), directory.path().join("other.sock"));
        let _other = UnixListener::bind(&other).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let mut listener = Listener::new(vec![ServerAddress::Unix(path.clone())]).unwrap();
        assert_eq!(listener.look().unwrap(), Listening::default());
        for bound in [path.clone(), link.join("app.sock")] {
            let listening = UnixListener::bind(&bound).unwrap();
            let Listening { sockets, inode, established, queued, .. } = listener.look().unwrap();
            assert_eq!((sockets, established, queued), (1, 0, 0), "{}", bound.display());
            assert_ne!(inode, 0);
            let _clients = [0; 3].map(|_| UnixStream::connect(&path).unwrap());
            let accepted = listening.accept().unwrap();
            let now = Listening { sockets, inode, established: 3, queued: 2, bypassing: 0 };
            assert_eq!(listener.look().unwrap(), now);
            drop((listening, accepted));
            assert_eq!(listener.look().unwrap(), Listening::default());
            std::fs::remove_file(&path).unwrap();
        }
    }
}
