//! The sockets of a server that is not Sidelong's, as the kernel tells of them: who listens on its port, its connections, and
//! its accept queue.
//!
//! They are asked for over netlink (sock_diag(7)), which needs no privilege and, unlike /proc/net/tcp, shows one port. The
//! established connections cost a walk over the kernel's table of connections, so they are sampled as rarely as /proc.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use sidelong_layout::{Hot, valid};

/// Longest wait for a part of the kernel's answer, which it writes before the request returns.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// The kernel's parts of an answer are at most this long (include/linux/netlink.h, NLMSG_GOODSIZE and SKB limits).
const PART_BYTES: usize = 1 << 15;

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
    /// Established connections from other addresses than the edges'.
    pub strangers: u32,
}

/// A foreign server: one that is not Sidelong's, of which the kernel tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Where it listens.
    pub server: SocketAddr,
    /// Its workers, if each holds one connection: then those with one are busy.
    pub workers: Option<u16>,
}

impl Foreign {
    /// Copies the connections at its port, of which `queued` wait to be accepted, into a hot line.
    pub(crate) fn fill(&self, established: u32, queued: u32, hot: &mut Hot) {
        (hot.connections, hot.queued) = (established, queued);
        hot.valid |= valid::CONNECTIONS;
        if let Some(workers) = self.workers {
            (hot.busy, hot.workers) = (established.saturating_sub(queued).min(workers.into()), workers);
            hot.valid |= valid::WORKERS;
        }
    }
}

/// Asks the kernel about the sockets of one server.
#[derive(Debug)]
pub struct Listener {
    kernel: OwnedFd,
    server: SocketAddr,
    /// The addresses from which edges connect; none if they are not known.
    edges: Vec<IpAddr>,
    sequence: u32,
    part: Vec<u8>,
}

impl Listener {
    /// For the server at that address of this machine.
    ///
    /// # Errors
    /// If the kernel does not answer such questions.
    pub fn new(server: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
        set_socket_timeout(&kernel, Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(Listener { kernel, server, edges: Vec::new(), sequence: 0, part: vec![0; PART_BYTES] })
    }

    /// Tells the connections of edges, which come from these addresses, from those of others.
    pub(crate) fn knowing(self, edges: Vec<IpAddr>) -> Self {
        Listener { edges, ..self }
    }

    /// The server's sockets now.
    ///
    /// # Errors
    /// If the kernel refuses the question or its answer is not understood.
    pub fn look(&mut self) -> io::Result<Listening> {
        let server = self.server.ip().to_canonical();
        let edges = std::mem::take(&mut self.edges);
        let found = self.look_for(server, &edges);
        self.edges = edges;
        found
    }

    fn look_for(&mut self, server: IpAddr, edges: &[IpAddr]) -> io::Result<Listening> {
        let mut found = Listening::default();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let before = self.listening(family, server)?;
            if before.sockets == 0 {
                continue;
            }
            self.dump(family, ESTABLISHED, |socket| {
                let is_its = before.is_any || socket.local == server;
                found.established += u32::from(is_its);
                found.strangers += u32::from(is_its && !edges.is_empty() && !edges.contains(&socket.remote));
            })?;
            // That walk takes milliseconds at times. Connections that came meanwhile are not taken for accepted ones.
            let after = self.listening(family, server)?;
            found.sockets += before.sockets;
            found.inode = before.inode;
            found.queued = found.queued.saturating_add(before.queued.max(after.queued));
        }
        Ok(found)
    }

    /// The server's listening sockets of that family.
    fn listening(&mut self, family: AddressFamily, server: IpAddr) -> io::Result<Listens> {
        let mut found = Listens::default();
        self.dump(family, LISTEN, |socket| {
            let is_any = socket.local.is_unspecified();
            if is_any || socket.local == server {
                found.is_any |= is_any;
                found.sockets += 1;
                found.inode = socket.inode;
                found.queued = found.queued.saturating_add(socket.received);
            }
        })?;
        Ok(found)
    }

    /// Shows each socket with the server's port of that family and state.
    fn dump(&mut self, family: AddressFamily, state: u32, mut each: impl FnMut(Socket)) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, state, self.server.port(), self.sequence);
        sendto(&self.kernel, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let (_, len) = recv(&self.kernel, &mut self.part[..], RecvFlags::TRUNC)?;
            let part = self.part.get(..len).ok_or_else(|| unknown("is too long"))?;
            if read_part(part, self.sequence, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Listening sockets of one family.
#[derive(Clone, Copy, Default)]
struct Listens {
    sockets: u32,
    /// Whether one of them listens at all addresses.
    is_any: bool,
    inode: u32,
    queued: u32,
}

/// States of sockets (include/net/tcp_states.h).
const ESTABLISHED: u32 = 1;
const LISTEN: u32 = 10;

/// Of include/uapi/linux/netlink.h, sock_diag.h and inet_diag.h.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const SOCKET_BYTES: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;

/// A header, and an `inet_diag_req_v2` whose only condition besides the state is the local port.
fn request(family: AddressFamily, state: u32, port: u16, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &DUMP.to_ne_bytes());
    put(8, &sequence.to_ne_bytes());
    put(HEADER_BYTES, &[family.as_raw() as u8, IPPROTO_TCP]);
    put(HEADER_BYTES + 4, &(1u32 << state).to_ne_bytes());
    put(HEADER_BYTES + 8, &port.to_be_bytes());
    request
}

/// One `inet_diag_msg`.
struct Socket {
    local: IpAddr,
    remote: IpAddr,
    /// `idiag_rqueue`: of a listening socket its accept queue.
    received: u32,
    inode: u32,
}

/// Shows each socket of a part of the answer. Returns whether it is the last part.
fn read_part(mut part: &[u8], sequence: u32, each: &mut impl FnMut(Socket)) -> io::Result<bool> {
    while let Some(header) = part.first_chunk::<HEADER_BYTES>() {
        let len = word(header, 0) as usize;
        let message = part.get(HEADER_BYTES..len).ok_or_else(|| unknown("is cut short"))?;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        // An answer to an earlier request, which was given up.
        if word(header, 8) == sequence {
            match kind {
                NLMSG_DONE => return Ok(true),
                NLMSG_ERROR => {
                    let code = message.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                _ => each(Socket::read(message).ok_or_else(|| unknown("has a socket that is cut short"))?),
            }
        }
        part = part.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

impl Socket {
    fn read(message: &[u8]) -> Option<Self> {
        let message = message.first_chunk::<SOCKET_BYTES>()?;
        let address = |at: usize| -> Option<IpAddr> {
            Some(match AddressFamily::from_raw(message[0].into()) {
                AddressFamily::INET => IpAddr::from(*message[at..].first_chunk::<4>()?),
                _ => Ipv6Addr::from(*message[at..].first_chunk::<16>()?).to_canonical(),
            })
        };
        let (local, remote) = (address(8)?, address(24)?);
        Some(Socket { local, remote, received: word(message, 56), inode: word(message, 68) })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn unknown(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kernel's answer {what}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_server_is_seen_with_its_connections_and_those_that_wait() {
        for (listen, server) in [("127.9.8.7:0", "127.9.8.7"), ("0.0.0.0:0", "127.9.8.6"), ("[::]:0", "::1")]
        {
            let listening = TcpListener::bind(listen).unwrap();
            let server = SocketAddr::new(server.parse().unwrap(), listening.local_addr().unwrap().port());
            let mut listener = Listener::new(server).unwrap();
            let Listening { sockets, inode, established, queued, .. } = listener.look().unwrap();
            assert_eq!((sockets, established, queued), (1, 0, 0), "{server}");
            assert_ne!(inode, 0);
            let _clients = [0; 3].map(|_| TcpStream::connect(server).unwrap());
            let _accepted = listening.accept().unwrap();
            let now = listener.look().unwrap();
            assert_eq!(
                now,
                Listening { sockets, inode, established: 3, queued: 2, strangers: 0 },
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
        let strangers = |edges: Vec<IpAddr>| {
            let listener = Listener::new(server).unwrap().knowing(edges).look();
            listener.unwrap().strangers
        };
        assert_eq!(strangers(vec![from]), 0);
        assert_eq!(strangers(vec!["192.0.2.1".parse().unwrap()]), 3);
        assert_eq!(strangers(Vec::new()), 0, "who is an edge is not known");
    }

    #[test]
    fn an_answer_that_is_cut_short_is_an_error() {
        let mut whole = vec![0; HEADER_BYTES + SOCKET_BYTES];
        whole[..4].copy_from_slice(&((HEADER_BYTES + SOCKET_BYTES) as u32).to_ne_bytes());
        whole[4] = SOCK_DIAG_BY_FAMILY as u8;
        let mut seen = 0;
        assert!(!read_part(&whole, 0, &mut |_| seen += 1).unwrap());
        assert_eq!(seen, 1);
        for len in HEADER_BYTES..whole.len() {
            assert!(read_part(&whole[..len], 0, &mut |_| ()).is_err(), "{len}");
        }
        whole[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert!(read_part(&whole, 0, &mut |_| ()).is_err());
    }
}
