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

/// Where a server answers by TCP: at one address, or at one for each site, by the slots of sites.
pub type Places = Vec<Option<SocketAddr>>;

/// The servers, and what is known of those that are not heard.
pub(crate) struct Probes {
    servers: Slots<Places>,
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
    /// Whether it was silent since, and is looked at.
    is_watched: bool,
    /// Whether the last look has found its server.
    is_there: bool,
    /// Where that was looked for.
    place: Option<SocketAddr>,
    look: Option<Look>,
    /// When the next one is due.
    due: Time,
}

/// A connection that is being made.
struct Look {
    socket: OwnedFd,
    failed_at_once: Option<Errno>,
    until: Time,
}

impl Probes {
    /// Looks at these servers, by slots of nodes, for at most the time beside them each. One without a place is on this machine, and is not looked at.
    pub(crate) fn new((servers, timeout): (Slots<Places>, Duration)) -> Self {
        Probes { servers, timeout, nodes: Vec::new(), under_way: 0 }
    }

    /// Goes by these servers from now on.
    pub(crate) fn adopt(&mut self, servers: (Slots<Places>, Duration)) {
        (self.servers, self.timeout) = servers;
    }

    /// Nothing is known of the node any more.
    pub(crate) fn vacate(&mut self, node: NodeId) {
        if let Some(probe) = self.nodes.get_mut(node.index()) {
            self.under_way -= usize::from(probe.look.is_some());
            *probe = Probe::default();
        }
    }

    /// Takes note of what a scan has found of a node's record, and looks at its server if need be. Returns whether it counts as full. `clock` is
    /// asked when something begins or ends, as a scan may take long.
    pub(crate) fn sees_full(
        &mut self,
        node: NodeId,
        status: Status,
        view: &View,
        clock: impl Fn() -> Time,
    ) -> bool {
        if self.nodes.len() <= node.index() {
            self.nodes.resize_with(node.index() + 1, Probe::default);
        }
        let probe = &mut self.nodes[node.index()];
        let is_heard = matches!(status, Status::Fresh | Status::NeverWritten);
        if is_heard {
            probe.was_heard = status == Status::Fresh;
            if probe.is_watched {
                probe.is_watched = false;
                view.heard_again(node);
            }
            // What looks have taken out they bring back, as nobody else may try it.
            if view.health(node).connects() || probe.place.is_none() {
                self.under_way -= usize::from(probe.look.take().is_some());
                probe.place = None;
                return false;
            }
        } else if !probe.was_heard {
            // Nothing is known of it but its requests.
            return false;
        }
        let site = view.ownership(node).and_then(Ownership::serving_site);
        let place = site.and_then(|site| {
            let places = self.servers.get(node.index())?;
            *places.get(site.index()).or(places.first())?
        });
        if place != probe.place {
            self.under_way -= usize::from(probe.look.take().is_some());
            (probe.place, probe.is_there, probe.due) = (place, false, Time::default());
        }
        let Some(place) = place else { return false };
        probe.is_watched = !is_heard;
        self.end(node, view, &clock);
        self.begin(node, place, view, &clock);
        !is_heard && !self.nodes[node.index()].is_there
    }

    /// Ends a look that has found something, or has waited for too long.
    fn end(&mut self, node: NodeId, view: &View, clock: impl Fn() -> Time) {
        let probe = &mut self.nodes[node.index()];
        let Some(look) = &probe.look else { return };
        let found = match found(look) {
            None if clock() < look.until => return,
            Some(Ok(())) => Some(Ok(())),
            Some(Err(errno)) if is_local(errno) => None,
            Some(Err(Errno::CONNREFUSED)) => Some(Err(Failure::Refused)),
            Some(Err(_)) | None => Some(Err(Failure::Unreachable)),
        };
        probe.look = None;
        self.under_way -= 1;
        match found {
            Some(Ok(())) => {
                (probe.is_there, probe.due) = (true, clock().after(LOOKS_EVERY));
                view.on_connection(node);
            }
            Some(Err(failure)) => {
                probe.is_there = false;
                view.on_failure(node, clock(), failure);
            }
            None => probe.due = clock().after(self.timeout),
        }
    }

    /// Begins a look, if one is due.
    fn begin(&mut self, node: NodeId, place: SocketAddr, view: &View, clock: impl Fn() -> Time) {
        let probe = &mut self.nodes[node.index()];
        if probe.look.is_some() || self.under_way >= LOOKS_MAX {
            return;
        }
        let now = clock();
        let health = view.health(node);
        let may_be_tried = match health.state(now) {
            State::Up => true,
            // Whether one that connects answers as well, a request tells.
            State::Trial => !health.connects(),
            State::Down { .. } => false,
        };
        if now < probe.due || !may_be_tried {
            return;
        }
        match begun(place) {
            Ok((socket, failed_at_once)) if view.admit(node, now) => {
                probe.look = Some(Look { socket, failed_at_once, until: now.after(self.timeout) });
                self.under_way += 1;
            }
            Ok(_) => {}
            Err(_) => probe.due = now.after(self.timeout),
        }
    }
}

/// Whether an error is of this process or its machine, and says nothing of a server.
fn is_local(errno: Errno) -> bool {
    let network = [Errno::NETUNREACH, Errno::NETDOWN, Errno::ACCESS, Errno::PERM];
    let short = [Errno::ADDRNOTAVAIL, Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM];
    network.contains(&errno) || short.contains(&errno)
}

/// Begins to connect. An error is this process's; what came of it is found later.
fn begun(server: SocketAddr) -> Result<(OwnedFd, Option<Errno>), Errno> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok((socket, None)),
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
        let mut probes = Probes::new(([vec![Some(server)]].into_iter().collect(), TIMEOUT));
        assert!(!probes.sees_full(NODE, Status::Gone, view, || ms(0)), "it was never heard");
        assert!(!probes.sees_full(NODE, Status::Fresh, view, || ms(0)));
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
        assert!(probes.sees_full(NODE, Status::Stale, &view, || ms(200)));
        until(|| !probes.sees_full(NODE, Status::Gone, &view, || ms(210)));
        assert!(!probes.sees_full(NODE, Status::Gone, &view, || ms(1_200)), "nothing is looked at so soon");
        assert_eq!((probes.under_way, view.health(NODE).state(ms(1_200))), (0, State::Up));

        drop(server);
        until(|| probes.sees_full(NODE, Status::Gone, &view, || ms(1_300)));
        assert!(matches!(view.health(NODE).state(ms(1_300)), State::Down { .. }));
        assert!(!view.has_failed_again(NODE));
        until(|| {
            probes.sees_full(NODE, Status::Gone, &view, || ms(1_400));
            view.has_failed_again(NODE)
        });
        assert!(!probes.sees_full(NODE, Status::Fresh, &view, || ms(1_500)));
        probes.vacate(NODE);
        assert_eq!(probes.under_way, 0);
    }

    #[test]
    fn one_that_answers_again_is_up_by_a_look() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (view, address) = (view(), server.local_addr().unwrap());
        for (status, at) in [(Status::Stale, 210), (Status::Fresh, 170)] {
            let mut probes = probes(address, &view);
            view.on_failure(NODE, ms(150), Failure::Refused);
            assert!(probes.sees_full(NODE, Status::Stale, &view, || ms(160)));
            assert_eq!(probes.under_way, 0, "it is out");
            // One that is heard again is tried at once, and nobody need send a request.
            until(|| {
                probes.sees_full(NODE, status, &view, || ms(at));
                view.health(NODE).state(ms(at)) == State::Up
            });
            assert!(!probes.sees_full(NODE, status, &view, || ms(at)));
            assert_eq!(probes.under_way, 0);
        }
    }

    #[test]
    fn a_server_with_a_port_for_each_site_is_looked_for_at_that_of_its_site() {
        let servers = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let places = servers.each_ref().map(|server| Some(server.local_addr().unwrap())).to_vec();
        let [alpha, beta] = servers;
        drop(alpha);
        let view = View::new(1, 3, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
        let serve = |site, generation| {
            let serving = Ownership::serving(SiteId::new(site), generation);
            view.observe(NODE, Some(serving), sidelong_policy::index::Reading::default());
        };
        let mut places = places;
        places.push(None);
        let mut probes = Probes::new(([places].into_iter().collect(), TIMEOUT));
        probes.sees_full(NODE, Status::Fresh, &view, || ms(0));
        serve(1, 1);
        until(|| !probes.sees_full(NODE, Status::Stale, &view, || ms(200)));
        serve(2, 2);
        assert!(!probes.sees_full(NODE, Status::Stale, &view, || ms(210)), "it is at a Unix socket");
        assert_eq!(view.health(NODE).state(ms(210)), State::Up);
        serve(0, 3);
        until(|| {
            probes.sees_full(NODE, Status::Stale, &view, || ms(220));
            view.health(NODE).state(ms(220)) != State::Up
        });
        drop(beta);
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
            assert!(probes.sees_full(NODE, Status::Stale, &view, || ms(at)));
            assert_eq!(view.health(NODE).state(ms(at)) == State::Up, is_up, "{at}");
        }
        probes.vacate(NODE);
        assert_eq!(probes.under_way, 0);
    }
}
