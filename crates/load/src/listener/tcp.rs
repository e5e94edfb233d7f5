//! The sockets of one TCP port.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::AddressFamily;

use super::Listening;
use super::netlink::{ESTABLISHED, Kernel, LISTEN, word};

/// Of include/uapi/linux/inet_diag.h.
const QUESTION_BYTES: usize = 56;
const SOCKET_BYTES: usize = 72;
const IPPROTO_TCP: u8 = 6;

/// The sockets of the server at that address now. Connections from other addresses than `edges`, if there are any, are those of
/// strangers.
pub(super) fn look(kernel: &mut Kernel, server: SocketAddr, edges: &[IpAddr]) -> io::Result<Listening> {
    let (address, port) = (server.ip().to_canonical(), server.port());
    let mut found = Listening::default();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let before = listening(kernel, family, address, port)?;
        if before.sockets == 0 {
            continue;
        }
        dump(kernel, family, ESTABLISHED, port, |socket| {
            let is_its = before.is_any || socket.local == address;
            found.established += u32::from(is_its);
            found.strangers += u32::from(is_its && !edges.is_empty() && !edges.contains(&socket.remote));
        })?;
        // That walk takes milliseconds at times. Connections that came meanwhile are not taken for accepted ones.
        let after = listening(kernel, family, address, port)?;
        found.sockets += before.sockets;
        found.inode = before.inode;
        found.queued = found.queued.saturating_add(before.queued.max(after.queued));
    }
    Ok(found)
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

/// The server's listening sockets of that family.
fn listening(kernel: &mut Kernel, family: AddressFamily, server: IpAddr, port: u16) -> io::Result<Listens> {
    let mut found = Listens::default();
    dump(kernel, family, LISTEN, port, |socket| {
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

/// Shows each socket with that port of that family and state.
fn dump(
    kernel: &mut Kernel,
    family: AddressFamily,
    state: u32,
    port: u16,
    mut each: impl FnMut(Socket),
) -> io::Result<()> {
    kernel.dump(&question(family, state, port), |message| Some(each(Socket::read(message)?)))
}

/// An `inet_diag_req_v2` whose only condition besides the state is the local port.
fn question(family: AddressFamily, state: u32, port: u16) -> [u8; QUESTION_BYTES] {
    let mut question = [0; QUESTION_BYTES];
    let mut put = |at: usize, bytes: &[u8]| question[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[family.as_raw() as u8, IPPROTO_TCP]);
    put(4, &(1u32 << state).to_ne_bytes());
    put(8, &port.to_be_bytes());
    question
}

/// One `inet_diag_msg`.
struct Socket {
    local: IpAddr,
    remote: IpAddr,
    /// `idiag_rqueue`: of a listening socket its accept queue.
    received: u32,
    inode: u32,
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
