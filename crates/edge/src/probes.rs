//! Looks at the servers of nodes whose records are no longer heard.
//!
//! An agent may have ended beside a server that goes on, or a whole machine may be cut off, where requests would wait for answers until they time
//! out. A look tells, and costs no client a request: a TCP connection that is closed at once. What it finds counts as if a request had found it,
//! so that a server which cannot be reached is out, is tried again, and is dead in time, whether it gets requests or not. Until a look has told,
//! and while it tells of nothing, the node counts as full ([`Reading::unheard`](sidelong_policy::index::Reading::unheard)).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use sidelong_layout::{NodeId, Ownership, Slots, Time};
use sidelong_load::Status;
use sidelong_policy::health::{Failure, State};

use crate::view::View;

/// Between two looks at a server that is there.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// Most looks at a time. Other nodes come next.
const LOOKS_MAX: usize = 64;

/// The servers, and what is known of those that are not heard.
pub(crate) struct Probes {
    servers: Slots<SocketAddr>,
    /// Longest wait for a connection.
    timeout: Duration,
    nodes: Vec<Probe>,
    under_way: usize,
}

/// One node.
#[derive(Default)]
struct Probe {
    /// Whether its record was fresh since it last began.
    was_heard: bool,
    /// Whether the last look has found its server.
    is_there: bool,
    look: Option<Look>,
    /// When the next one is due.
    due: Time,
}

/// A connection that is being made.
struct Look {
    socket: OwnedFd,
    failed_at_once: Option<Errno>,
    until: Time,
    /// Whether it is the trial of a node that was out.
    is_trial: bool,
}

impl Probes {
    /// Looks at these servers, by slots of nodes, for at most `timeout` each. A node without one is on this machine.
    pub(crate) fn new((servers, timeout): (Slots<SocketAddr>, Duration)) -> Self {
        Probes { servers, timeout, nodes: Vec::new(), under_way: 0 }
    }

    /// Goes by these servers from now on.
    pub(crate) fn adopt(&mut self, servers: (Slots<SocketAddr>, Duration)) {
        (self.servers, self.timeout) = servers;
    }

    /// Nothing is known of the node any more.
    pub(crate) fn vacate(&mut self, node: NodeId) {
        if let Some(probe) = self.nodes.get_mut(node.index()) {
            self.under_way -= usize::from(probe.look.is_some());
            *probe = Probe::default();
        }
    }

    /// Takes note of what a scan has found of a node's record, and looks at its server if need be. Returns whether it counts as full.
    pub(crate) fn sees_full(&mut self, node: NodeId, status: Status, view: &View, now: Time) -> bool {
        if self.nodes.len() <= node.index() {
            self.nodes.resize_with(node.index() + 1, Probe::default);
        }
        if matches!(status, Status::Fresh | Status::NeverWritten) {
            self.vacate(node);
            self.nodes[node.index()].was_heard = status == Status::Fresh;
            return false;
        }
        let Some(server) = self.servers.get(node.index()).copied() else { return false };
        // Of one that was never heard nothing is known but its requests.
        if !self.nodes[node.index()].was_heard {
            return false;
        }
        self.end(node, view, now);
        self.begin(node, server, view, now);
        !self.nodes[node.index()].is_there
    }

    /// Ends a look that has found something, or has waited for too long.
    fn end(&mut self, node: NodeId, view: &View, now: Time) {
        let probe = &mut self.nodes[node.index()];
        let Some(look) = &probe.look else { return };
        let found = match found(look) {
            None if now < look.until => return,
            Some(Ok(())) => Ok(()),
            Some(Err(Errno::CONNREFUSED)) => Err(Failure::Refused),
            Some(Err(_)) | None => Err(Failure::Unreachable),
        };
        let was_trial = look.is_trial;
        (probe.look, probe.is_there) = (None, found.is_ok());
        self.under_way -= 1;
        match found {
            Ok(()) => probe.due = now.after(LOOKS_EVERY),
            Err(failure) => view.on_failure(node, now, failure),
        }
        if found.is_ok() && was_trial {
            view.on_success(node);
        }
    }

    /// Begins a look at a server that requests may be sent to, if one is due.
    fn begin(&mut self, node: NodeId, server: SocketAddr, view: &View, now: Time) {
        let probe = &mut self.nodes[node.index()];
        let serves = view.ownership(node).and_then(Ownership::serving_site).is_some();
        if !serves || probe.look.is_some() || now < probe.due || self.under_way >= LOOKS_MAX {
            return;
        }
        let health = view.health(node);
        let is_trial = match health.state(now) {
            State::Up => false,
            // Whether one that connects answers as well, a request tells.
            State::Trial if !health.connects() => view.admit(node, now),
            State::Trial | State::Down { .. } => return,
        };
        if let Ok((socket, failed_at_once)) = begun(server) {
            probe.look = Some(Look { socket, failed_at_once, until: now.after(self.timeout), is_trial });
            self.under_way += 1;
        }
    }
}

/// Begins to connect. An error is this process's; what the address answers is found later.
fn begun(server: SocketAddr) -> Result<(OwnedFd, Option<Errno>), Errno> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok((socket, None)),
        // No port, or no memory, is left here.
        Err(errno @ (Errno::ADDRNOTAVAIL | Errno::AGAIN | Errno::NOBUFS)) => Err(errno),
        Err(errno) => Ok((socket, Some(errno))),
    }
}

/// What has come of it; `None` while nothing has.
fn found(look: &Look) -> Option<Result<(), Errno>> {
    if let Some(errno) = look.failed_at_once {
        return Some(Err(errno));
    }
    let mut ready = [PollFd::new(&look.socket, PollFlags::OUT)];
    match poll(&mut ready, Some(&Timespec::default())) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(sockopt::socket_error(&look.socket).and_then(|error| error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{bind, getsockname, listen};
    use sidelong_layout::SiteId;
    use sidelong_policy::balance::Balance;
    use sidelong_policy::health::HealthSettings;

    use super::*;

    const NODE: NodeId = NodeId::new(0);
    const TIMEOUT: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Time {
        Time::from_ns(1_000_000_000 + ms * 1_000_000)
    }

    fn view() -> View {
        let view = View::new(1, 1, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
        let serving = Ownership::serving(SiteId::new(0), 1);
        view.observe(NODE, Some(serving), sidelong_policy::index::Reading::default());
        view
    }

    /// Of a node whose record was fresh at 0 ms.
    fn probes(server: SocketAddr, view: &View) -> Probes {
        let mut probes = Probes::new(([server].into_iter().collect(), TIMEOUT));
        assert!(!probes.sees_full(NODE, Status::Gone, view, ms(0)), "it was never heard");
        assert!(!probes.sees_full(NODE, Status::Fresh, view, ms(0)));
        probes
    }

    /// Waits for what happens between two scans, which the clock of scans does not show.
    fn until(mut is_so: impl FnMut() -> bool) {
        for _ in 0..1_000 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it has not come to that in 10 s");
    }

    #[test]
    fn a_server_whose_agent_has_ended_is_used_as_before_once_it_was_looked_at() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let view = view();
        let mut probes = probes(server.local_addr().unwrap(), &view);
        assert!(probes.sees_full(NODE, Status::Stale, &view, ms(200)));
        until(|| !probes.sees_full(NODE, Status::Gone, &view, ms(210)));
        assert!(!probes.sees_full(NODE, Status::Gone, &view, ms(1_200)), "nothing is looked at so soon");
        assert_eq!((probes.under_way, view.health(NODE).state(ms(1_200))), (0, State::Up));

        drop(server);
        until(|| probes.sees_full(NODE, Status::Gone, &view, ms(1_300)));
        assert!(matches!(view.health(NODE).state(ms(1_300)), State::Down { .. }));
        assert!(!view.has_failed_again(NODE));
        until(|| {
            probes.sees_full(NODE, Status::Gone, &view, ms(1_400));
            view.has_failed_again(NODE)
        });
        assert!(!probes.sees_full(NODE, Status::Fresh, &view, ms(1_500)));
        assert_eq!(probes.under_way, 0);
    }

    #[test]
    fn one_that_answers_again_is_up_by_a_look() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (view, address) = (view(), server.local_addr().unwrap());
        let mut probes = probes(address, &view);
        view.on_failure(NODE, ms(150), Failure::Refused);
        assert!(probes.sees_full(NODE, Status::Stale, &view, ms(160)));
        assert_eq!(probes.under_way, 0, "it is out");
        until(|| !probes.sees_full(NODE, Status::Stale, &view, ms(210)));
        assert_eq!(view.health(NODE).state(ms(210)), State::Up);
    }

    #[test]
    fn a_server_that_says_nothing_is_out_after_two_looks() {
        // With no room for another connection it answers none.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        let mut full = Vec::new();
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            full.push(one);
        }
        let view = view();
        let mut probes = probes(address, &view);
        for (at, is_up) in [(200, true), (240, true), (251, true), (300, true), (302, false)] {
            assert!(probes.sees_full(NODE, Status::Stale, &view, ms(at)));
            assert_eq!(view.health(NODE).state(ms(at)) == State::Up, is_up, "{at}");
        }
        probes.vacate(NODE);
        assert_eq!(probes.under_way, 0);
    }
}
