//! The sockets of one TCP port.
//!
//! The accept queue costs a look-up. The connections cost a walk over the kernel's table of all connections, so they are counted
//! only if some were opened or closed on this machine.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use rustix::net::AddressFamily;

use super::netlink::{ESTABLISHED, Kernel, LISTEN, word};
use super::{Listening, Pause, Walk};
use crate::proc::machine;
use crate::sampler::Probe;

/// Of include/uapi/linux/inet_diag.h.
const QUESTION_BYTES: usize = 56;
const SOCKET_BYTES: usize = 72;
/// INET_DIAG_NOCOOKIE: any socket of that address.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
const IPPROTO_TCP: u8 = 6;

/// Connections are counted again after this time, in ns, also if the machine's counters have not changed: they do not tell when a
/// client closes its side.
const RECOUNT_NS: u64 = 1_000_000_000;

/// Follows the sockets of the server at an address. Connections from other addresses than those of edges, if these are known, are
/// those that bypass the edges.
#[derive(Debug)]
pub(super) struct Follower {
    /// The machine's counters of connections.
    counters: Probe,
    buffer: Vec<u8>,
    counted: Option<Counted>,
}

impl Follower {
    pub(super) fn new() -> Self {
        Follower { counters: Probe::open(PathBuf::from("/proc/net/snmp")), buffer: Vec::new(), counted: None }
    }

    /// The sockets now. The accept queue is the current one. The connections are those of the last count, which is repeated when
    /// they may have changed and the pause after the last one is over.
    pub(super) fn follow(
        &mut self,
        kernel: &mut Kernel,
        server: SocketAddr,
        edges: &[IpAddr],
        walk: Walk,
    ) -> io::Result<Listening> {
        // Before the count: what changes meanwhile is then counted again.
        let opened = self.counters.read(&mut self.buffer, machine::tcp);
        if let Some(counted) = self.counted.take() {
            let listens = again(kernel, &counted.listens, server)?;
            let has_changed = opened.is_none() || opened != counted.opened || !counted.is_of(&listens);
            if !counted.is_due(walk.begun_ns, has_changed) {
                let found = counted.carried(&listens, has_changed);
                self.counted = Some(counted);
                return Ok(found);
            }
        }
        let (counted, pause) = walk.make(|| count(kernel, server, edges))?;
        let counted = Counted { opened, pause, ..counted };
        let found = counted.found();
        self.counted = Some(counted);
        Ok(found)
    }
}

/// The sockets now, all of them counted.
pub(super) fn look(kernel: &mut Kernel, server: SocketAddr, edges: &[IpAddr]) -> io::Result<Listening> {
    Ok(count(kernel, server, edges)?.found())
}

fn count(kernel: &mut Kernel, server: SocketAddr, edges: &[IpAddr]) -> io::Result<Counted> {
    let address = server.ip().to_canonical();
    let mut counted = Counted::default();
    for listens in &mut counted.listens {
        let family = listens.family;
        *listens = listening(kernel, family, server)?;
        if listens.sockets == 0 {
            continue;
        }
        let (established, bypassing) = (&mut counted.established, &mut counted.bypassing);
        dump(kernel, family, ESTABLISHED, server.port(), |socket| {
            let is_its = listens.is_any || socket.local == address;
            *established += u32::from(is_its);
            *bypassing += u32::from(is_its && !edges.is_empty() && !edges.contains(&socket.remote));
        })?;
        // That walk takes milliseconds at times. Connections that came meanwhile are not taken for accepted ones.
        let after = listening(kernel, family, server)?;
        listens.queued = listens.queued.max(after.queued);
    }
    Ok(counted)
}

/// The same listening sockets now.
fn again(kernel: &mut Kernel, before: &[Listens; 2], server: SocketAddr) -> io::Result<[Listens; 2]> {
    let mut now = *before;
    for listens in now.iter_mut().filter(|listens| listens.sockets > 0) {
        let found = match listens.local {
            Some(local) => look_up(kernel, listens.family, local, server.port())?,
            None => None,
        };
        match found {
            Some(socket) if socket.inode == listens.inode => listens.queued = socket.received,
            _ => *listens = listening(kernel, listens.family, server)?,
        }
    }
    Ok(now)
}

/// The server's listening sockets of that family.
fn listening(kernel: &mut Kernel, family: AddressFamily, server: SocketAddr) -> io::Result<Listens> {
    let mut found = Listens::none(family);
    let address = server.ip().to_canonical();
    dump(kernel, family, LISTEN, server.port(), |socket| {
        let is_any = socket.local.is_unspecified();
        if is_any || socket.local == address {
            found.is_any |= is_any;
            found.local = (found.sockets == 0).then_some(socket.local);
            found.sockets += 1;
            found.inode = socket.inode;
            found.queued = found.queued.saturating_add(socket.received);
        }
    })?;
    Ok(found)
}

/// Listening sockets of one family.
#[derive(Clone, Copy, Debug)]
struct Listens {
    family: AddressFamily,
    sockets: u32,
    /// Where it listens, if it is only one.
    local: Option<IpAddr>,
    /// Whether one of them listens at all addresses.
    is_any: bool,
    inode: u32,
    queued: u32,
}

impl Listens {
    const fn none(family: AddressFamily) -> Self {
        Listens { family, sockets: 0, local: None, is_any: false, inode: 0, queued: 0 }
    }
}

/// A count of all of the server's sockets.
#[derive(Debug)]
struct Counted {
    listens: [Listens; 2],
    established: u32,
    bypassing: u32,
    /// The machine's counters just before.
    opened: Option<machine::Tcp>,
    pause: Pause,
}

impl Counted {
    fn found(&self) -> Listening {
        self.carried(&self.listens, false)
    }

    /// The sockets now, with the connections of this count.
    fn carried(&self, listens: &[Listens; 2], has_changed: bool) -> Listening {
        let queued_of = |all: &[Listens; 2]| all.iter().fold(0u32, |sum, one| sum.saturating_add(one.queued));
        let (queued, before) = (queued_of(listens), queued_of(&self.listens));
        let sockets = listens.iter().map(|one| one.sockets).sum();
        if sockets == 0 {
            return Listening::default();
        }
        let established = match has_changed {
            // Those that were accepted, and those that wait now.
            true => self.established.saturating_sub(before).saturating_add(queued),
            // Some were accepted since, if fewer wait.
            false => self.established.max(queued),
        };
        let inode = listens.iter().rev().find(|one| one.sockets > 0).map_or(0, |one| one.inode);
        Listening { sockets, inode, established, queued, bypassing: self.bypassing }
    }

    fn is_of(&self, listens: &[Listens; 2]) -> bool {
        let id = |one: &Listens| (one.sockets, one.inode);
        self.listens.iter().map(id).eq(listens.iter().map(id))
    }

    fn is_due(&self, now_ns: u64, has_changed: bool) -> bool {
        let is_silent = self.listens.iter().all(|one| one.sockets == 0);
        self.pause.is_over(now_ns) && (has_changed || is_silent || self.pause.passed_ns(now_ns) >= RECOUNT_NS)
    }
}

impl Default for Counted {
    fn default() -> Self {
        let listens = [AddressFamily::INET, AddressFamily::INET6].map(Listens::none);
        Counted { listens, established: 0, bypassing: 0, opened: None, pause: Pause::default() }
    }
}

/// Shows each socket with that port of that family and state.
fn dump(
    kernel: &mut Kernel,
    family: AddressFamily,
    state: u32,
    port: u16,
    mut each: impl FnMut(Socket),
) -> io::Result<()> {
    kernel.dump(&question(family, state, port, None), |message| {
        each(Socket::read(message)?);
        Some(())
    })
}

/// The socket that listens at that address; of several that share it any.
fn look_up(
    kernel: &mut Kernel,
    family: AddressFamily,
    local: IpAddr,
    port: u16,
) -> io::Result<Option<Socket>> {
    let mut found = None;
    kernel.look_up(&question(family, LISTEN, port, Some(local)), |message| {
        found = Some(Socket::read(message)?);
        Some(())
    })?;
    Ok(found)
}

/// An `inet_diag_req_v2` whose conditions are the state, the local port and, to look a socket up, its address.
fn question(family: AddressFamily, state: u32, port: u16, local: Option<IpAddr>) -> [u8; QUESTION_BYTES] {
    let mut question = [0; QUESTION_BYTES];
    let mut put = |at: usize, bytes: &[u8]| question[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[family.as_raw() as u8, IPPROTO_TCP]);
    put(4, &(1u32 << state).to_ne_bytes());
    put(8, &port.to_be_bytes());
    match (family, local) {
        (AddressFamily::INET, Some(IpAddr::V4(local))) => put(12, &local.octets()),
        (_, Some(IpAddr::V4(local))) => put(12, &local.to_ipv6_mapped().octets()),
        (_, Some(IpAddr::V6(local))) => put(12, &local.octets()),
        (_, None) => {}
    }
    put(48, &ANY_COOKIE);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is carried from a count on while the table of connections is not walked.
    #[test]
    fn between_counts_connections_follow_the_queue() {
        let with = |queued| {
            let one = Listens { sockets: 1, inode: 7, queued, ..Listens::none(AddressFamily::INET) };
            [one, Listens::none(AddressFamily::INET6)]
        };
        let pause = Pause { begun_ns: 0, pause_ns: 300 };
        let counted = Counted { listens: with(2), established: 6, pause, ..Counted::default() };
        let carried = |queued, has_changed| counted.carried(&with(queued), has_changed).established;
        assert_eq!((carried(2, false), carried(0, false), carried(2, true)), (6, 6, 6));
        assert_eq!((carried(9, true), carried(0, true)), (13, 4), "four were accepted");
        assert!(!counted.is_due(299, true) && counted.is_due(300, true) && !counted.is_due(300, false));
        assert!(counted.is_due(RECOUNT_NS, false));
    }
}
