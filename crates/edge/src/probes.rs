//! Probes the servers of nodes whose records are no longer heard.
//!
//! An agent may have ended beside a server that goes on. Or a whole machine may be cut off, where requests would wait for answers until they time
//! out. A probe tells, and costs no client a request: a TCP connection that is closed by the next scan. What it finds counts as if a request had
//! found it. So a server that cannot be reached is out, is tried again, and is dead in time, whether it gets requests or not. What probes have taken
//! out they bring back, also once the record is heard again. Until a probe has found the server, the node counts as full
//! ([`Reading::unheard`](sidelong_policy::index::Reading::unheard)).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use sidelong_layout::{NodeId, Slots, Time};
use sidelong_load::{Reading, Status};
use sidelong_policy::health::{Failure, State};
use sidelong_proxy::is_local;

use crate::view::View;

/// Between two probes of a server that is there.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for a connection, below `HealthSettings::trial_max`.
const PROBE_MAX: Duration = Duration::from_millis(900);
/// Most probes at a time. Other nodes come next.
const PROBES_MAX: usize = 64;

/// Where a server answers by TCP: at one address, or at one for each site, by the slots of sites.
pub type Places = Vec<Option<SocketAddr>>;

/// The servers, and what is known of those that are not heard.
pub(crate) struct Probes {
    servers: Slots<Places>,
    /// The number of the machine of each server, by slot, and how many there are.
    machines: (Vec<Option<usize>>, usize),
    /// Longest wait for a connection.
    timeout: Duration,
    nodes: Vec<Node>,
    under_way: usize,
}

/// One node.
#[derive(Default)]
struct Node {
    /// Whether its record was fresh since it last began.
    was_heard: bool,
    /// Whether it is silent since, and is probed.
    is_watched: bool,
    is_full: bool,
    /// Whether the last probe has found its server.
    is_there: bool,
    /// Where that was sought.
    place: Option<SocketAddr>,
    probe: Option<Probe>,
    /// When the next one is due.
    due: Time,
}

/// Which machines are heard, by number, of those with a server whose agent was.
struct Heard {
    machines: Vec<bool>,
    /// Whether they are half of all, or more.
    are_half: bool,
}

impl Heard {
    /// Whether probes of servers of that machine say something of them, and not of this process, which may itself be cut off: if it hears the
    /// machine, or half of all.
    fn counts(&self, machine: usize) -> bool {
        self.are_half || self.machines[machine]
    }
}

/// A connection that is being made.
struct Probe {
    socket: OwnedFd,
    failed_at_once: Option<Errno>,
    until: Time,
    /// Whether it is the trial of a node that was out.
    is_trial: bool,
}

impl Probes {
    /// Probes these servers, by slots of nodes, for at most the time beside them each. One without a place is on this machine, and is not probed.
    pub(crate) fn new((servers, timeout): (Slots<Places>, Duration)) -> Self {
        Probes { machines: machines(&servers), servers, timeout, nodes: Vec::new(), under_way: 0 }
    }

    /// Goes by these servers from now on.
    pub(crate) fn adopt(&mut self, servers: (Slots<Places>, Duration)) {
        (self.servers, self.timeout) = servers;
        self.machines = machines(&self.servers);
    }

    /// Nothing is known of the node any more.
    pub(crate) fn vacate(&mut self, node: NodeId, view: &View) {
        if node.index() < self.nodes.len() {
            self.leave(node, view);
            self.nodes[node.index()] = Node::default();
        }
    }

    /// Takes note of which nodes a scan has heard, and probes the servers of those that it heard before. `clock` is asked when something begins
    /// or ends, as a scan may take long.
    pub(crate) fn scanned(&mut self, readings: &[Reading], view: &View, clock: impl Fn() -> Time) {
        self.nodes.resize_with(readings.len().max(self.nodes.len()), Node::default);
        let is_heard = |reading: &Reading| matches!(reading.status, Status::Fresh | Status::NeverWritten);
        let mut is_quiet = true;
        for (reading, state) in readings.iter().zip(&mut self.nodes) {
            state.is_full = false;
            if is_heard(reading) {
                state.was_heard = reading.status == Status::Fresh;
            }
            // Of one that was never heard nothing is known but its requests.
            is_quiet &= state.place.is_none() && (is_heard(reading) || !state.was_heard);
        }
        if is_quiet {
            return;
        }
        let heard = self.heard(readings);
        for (slot, reading) in readings.iter().enumerate() {
            let node = NodeId::new(slot);
            if is_heard(reading) {
                self.restore(node, view, &clock);
            } else if self.nodes[slot].was_heard {
                let counts = self.machine(slot).is_some_and(|machine| heard.counts(machine));
                self.watch(node, counts, view, &clock);
            } else {
                self.leave(node, view);
            }
        }
    }

    /// Whether the node counts as full.
    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.nodes[node.index()].is_full
    }

    /// The number of the machine of a node's server.
    fn machine(&self, slot: usize) -> Option<usize> {
        *self.machines.0.get(slot)?
    }

    fn heard(&self, readings: &[Reading]) -> Heard {
        let mut known = vec![false; self.machines.1];
        let mut machines = known.clone();
        for (slot, (reading, state)) in readings.iter().zip(&self.nodes).enumerate() {
            let Some(machine) = self.machine(slot).filter(|_| state.was_heard) else { continue };
            known[machine] = true;
            machines[machine] |= reading.status == Status::Fresh;
        }
        let count = |machines: &[bool]| machines.iter().filter(|is_so| **is_so).count();
        let are_half = 2 * count(&machines) >= count(&known);
        Heard { machines, are_half }
    }

    /// Where the node's server answers for the site that it serves.
    fn place(&self, node: NodeId, view: &View) -> Option<SocketAddr> {
        let site = view.ownership(node)?.serving_site()?;
        match &self.servers.get(node.index())?[..] {
            [one] => *one,
            places => *places.get(site.index())?,
        }
    }

    /// One that is heard is probed only for as long as probes have taken it out: nobody else may try it.
    fn restore(&mut self, node: NodeId, view: &View, clock: impl Fn() -> Time) {
        let state = &mut self.nodes[node.index()];
        let Some(place) = state.place else { return };
        if std::mem::take(&mut state.is_watched) {
            view.heard_again(node);
        }
        // At another place requests try it.
        if view.health(node).connects() || self.place(node, view) != Some(place) {
            return self.leave(node, view);
        }
        self.end(node, view, &clock);
        self.begin(node, place, view, &clock);
    }

    /// One that is not heard any more.
    fn watch(&mut self, node: NodeId, counts: bool, view: &View, clock: impl Fn() -> Time) {
        let place = self.place(node, view);
        if place != self.nodes[node.index()].place || !counts {
            self.leave(node, view);
        }
        let Some(place) = place else { return };
        self.nodes[node.index()].place = Some(place);
        if counts {
            self.nodes[node.index()].is_watched = true;
            self.end(node, view, &clock);
            self.begin(node, place, view, &clock);
        }
        let state = &mut self.nodes[node.index()];
        state.is_full = !state.is_there;
    }

    /// Probes it no more.
    fn leave(&mut self, node: NodeId, view: &View) {
        let state = &mut self.nodes[node.index()];
        if let Some(probe) = state.probe.take() {
            self.under_way -= 1;
            if probe.is_trial {
                view.untried(node);
            }
        }
        *state = Node { was_heard: state.was_heard, is_watched: state.is_watched, ..Node::default() };
    }

    /// Ends a probe that has found something, or has waited for too long.
    fn end(&mut self, node: NodeId, view: &View, clock: impl Fn() -> Time) {
        let state = &mut self.nodes[node.index()];
        let Some(probe) = &state.probe else { return };
        let found = match found(probe) {
            None if clock() < probe.until => return,
            Some(Ok(())) => Some(Ok(())),
            Some(Err(errno)) if is_local(&errno.into()) => None,
            Some(Err(Errno::CONNREFUSED)) => Some(Err(Failure::Refused)),
            Some(Err(_)) | None => Some(Err(Failure::Unreachable)),
        };
        let is_trial = probe.is_trial;
        state.probe = None;
        self.under_way -= 1;
        match found {
            Some(Ok(())) => {
                (state.is_there, state.due) = (true, clock().after(PROBE_EVERY));
                view.on_connection(node);
            }
            Some(Err(failure)) => {
                state.is_there = false;
                view.on_failure(node, clock(), failure);
            }
            None => {
                state.due = clock().after(self.timeout);
                if is_trial {
                    view.untried(node);
                }
            }
        }
    }

    /// Begins a probe, if one is due.
    fn begin(&mut self, node: NodeId, place: SocketAddr, view: &View, clock: impl Fn() -> Time) {
        let state = &mut self.nodes[node.index()];
        if state.probe.is_some() || self.under_way >= PROBES_MAX {
            return;
        }
        let now = clock();
        let health = view.health(node);
        let is_trial = match health.state(now) {
            State::Up => false,
            // Whether one that connects answers as well, a request tells.
            State::Trial if !health.connects() => true,
            State::Trial | State::Down { .. } => return,
        };
        if now < state.due {
            return;
        }
        match begun(place) {
            Ok((_, Some(errno))) if is_local(&errno.into()) => state.due = now.after(self.timeout),
            Ok((socket, failed_at_once)) if view.admit(node, now) => {
                // Others may try a node once a trial has lasted for so long.
                let until = now.after(self.timeout.min(PROBE_MAX));
                state.probe = Some(Probe { socket, failed_at_once, until, is_trial });
                self.under_way += 1;
            }
            Ok(_) => {}
            Err(_) => state.due = now.after(self.timeout),
        }
    }
}

/// Numbers the machines of the servers. Returns that of each, by slot, and how many there are.
fn machines(servers: &Slots<Places>) -> (Vec<Option<usize>>, usize) {
    let mut numbers = BTreeMap::<IpAddr, usize>::new();
    let mut number = |slot| {
        let machine = servers.get(slot)?.iter().find_map(|place| Some((*place)?.ip()))?;
        let next = numbers.len();
        Some(*numbers.entry(machine).or_insert(next))
    };
    let of_slots = (0..servers.len()).map(&mut number).collect();
    (of_slots, numbers.len())
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
fn found(probe: &Probe) -> Option<Result<(), Errno>> {
    if let Some(errno) = probe.failed_at_once {
        return Some(Err(errno));
    }
    let mut ready = [PollFd::new(&probe.socket, PollFlags::OUT)];
    match poll(&mut ready, Some(&Timespec::default())) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(sockopt::socket_error(&probe.socket).and_then(|error| error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{bind, getsockname, listen};
    use sidelong_layout::{Ownership, SiteId};
    use sidelong_policy::balance::Balance;
    use sidelong_policy::health::HealthSettings;

    use super::*;

    const NODE: NodeId = NodeId::new(0);
    const TIMEOUT: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Time {
        Time::from_ns(1_000_000_000 + ms * 1_000_000)
    }

    /// Two nodes. The second one, on another machine, serves nobody.
    fn view() -> View {
        let view = View::new(2, 3, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
        serve(&view, 0, 1);
        view
    }

    fn serve(view: &View, site: usize, generation: u64) {
        let serving = Ownership::serving(SiteId::new(site), generation);
        view.observe(NODE, Some(serving), sidelong_policy::index::Reading::default());
    }

    /// Of a node whose record was fresh at 0 ms.
    fn probes(places: Places, view: &View) -> Probes {
        let other = vec![Some("127.0.0.2:1".parse().unwrap())];
        let mut probes = Probes::new(([places, other].into_iter().collect(), TIMEOUT));
        assert!(!sees(&mut probes, Status::Gone, view, 0), "it was never heard");
        assert!(!sees(&mut probes, Status::Fresh, view, 0));
        probes
    }

    /// Whether the first node counts as full by a scan that finds that of it. The other one is heard.
    fn sees(probes: &mut Probes, status: Status, view: &View, at: u64) -> bool {
        let readings = [status, Status::Fresh].map(|status| Reading { status, ..Reading::default() });
        probes.scanned(&readings, view, || ms(at));
        probes.is_full(NODE)
    }

    /// A port that nobody else gets while the socket lives. It refuses connections, until somebody listens by another socket.
    fn port() -> (OwnedFd, SocketAddr) {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        (socket, address)
    }

    /// With no room for another connection it answers none.
    fn silent_server() -> (OwnedFd, SocketAddr, Vec<TcpStream>) {
        let (socket, address) = port();
        listen(&socket, 0).unwrap();
        let mut full = Vec::new();
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            full.push(one);
        }
        (socket, address, full)
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
    fn a_server_whose_agent_has_ended_is_used_as_before_once_it_was_probed() {
        let (_port, address) = port();
        let server = TcpListener::bind(address).unwrap();
        let view = view();
        let mut probes = probes(vec![Some(address)], &view);
        assert!(sees(&mut probes, Status::Stale, &view, 200));
        until(|| !sees(&mut probes, Status::Gone, &view, 210));
        assert!(!sees(&mut probes, Status::Gone, &view, 1_200), "nothing is probed so soon");
        assert_eq!((probes.under_way, view.health(NODE).state(ms(1_200))), (0, State::Up));

        drop(server);
        until(|| sees(&mut probes, Status::Gone, &view, 1_300));
        assert!(matches!(view.health(NODE).state(ms(1_300)), State::Down { .. }));
        assert!(!view.has_failed_again(NODE));
        until(|| {
            sees(&mut probes, Status::Gone, &view, 1_400);
            view.has_failed_again(NODE)
        });
        assert!(!sees(&mut probes, Status::Fresh, &view, 1_500));
        probes.vacate(NODE, &view);
        assert_eq!(probes.under_way, 0);
    }

    #[test]
    fn one_that_answers_again_is_up_by_a_probe() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (view, address) = (view(), server.local_addr().unwrap());
        for (status, at) in [(Status::Stale, 210), (Status::Fresh, 170)] {
            let mut probes = probes(vec![Some(address)], &view);
            view.on_failure(NODE, ms(150), Failure::Refused);
            assert!(sees(&mut probes, Status::Stale, &view, 160));
            assert_eq!(probes.under_way, 0, "it is out");
            // One that is heard again is tried at once, and nobody need send a request.
            until(|| {
                sees(&mut probes, status, &view, at);
                view.health(NODE).state(ms(at)) == State::Up
            });
            assert!(!sees(&mut probes, status, &view, at));
            assert_eq!(probes.under_way, 0);
        }
    }

    #[test]
    fn a_server_with_a_port_for_each_site_is_probed_at_that_of_its_site() {
        let [(_port, alpha), (_other, beta)] = [0; 2].map(|_| port());
        let _server = TcpListener::bind(beta).unwrap();
        let view = view();
        let mut probes = probes(vec![Some(alpha), Some(beta), None], &view);
        serve(&view, 1, 2);
        until(|| !sees(&mut probes, Status::Stale, &view, 200));
        serve(&view, 2, 3);
        assert!(!sees(&mut probes, Status::Stale, &view, 210), "it is at a Unix socket");
        assert_eq!(view.health(NODE).state(ms(210)), State::Up);
        serve(&view, 0, 4);
        until(|| {
            sees(&mut probes, Status::Stale, &view, 220);
            view.health(NODE).state(ms(220)) != State::Up
        });
    }

    #[test]
    fn a_probe_that_is_given_up_was_no_trial() {
        let (_socket, address, _full) = silent_server();
        let view = view();
        let mut probes = probes(vec![Some(address)], &view);
        view.on_failure(NODE, ms(150), Failure::Refused);
        sees(&mut probes, Status::Stale, &view, 210);
        assert_eq!((probes.under_way, view.health(NODE).state(ms(211)) == State::Trial), (1, false));
        let silent = [Status::Stale; 2].map(|status| Reading { status, ..Reading::default() });
        probes.scanned(&silent, &view, || ms(211));
        assert_eq!((probes.under_way, view.health(NODE).state(ms(211))), (0, State::Trial));
        // Its agent begins again, and ends before it has said anything.
        for (status, under_way) in [(Status::Stale, 1), (Status::NeverWritten, 1), (Status::Gone, 0)] {
            sees(&mut probes, status, &view, 212);
            assert_eq!(probes.under_way, under_way, "{status:?}");
        }
        assert!(!view.has_failed_again(NODE));
    }

    #[test]
    fn a_server_that_says_nothing_is_out_after_two_probes() {
        let (_socket, address, _full) = silent_server();
        let view = view();
        let mut probes = probes(vec![Some(address)], &view);
        for (at, is_up) in [(200, true), (240, true), (251, true), (300, true), (302, false)] {
            assert!(sees(&mut probes, Status::Stale, &view, at));
            assert_eq!(view.health(NODE).state(ms(at)) == State::Up, is_up, "{at}");
        }
        probes.vacate(NODE, &view);
        assert_eq!(probes.under_way, 0);
    }

    /// Nobody is heard: it may be this process that is cut off.
    #[test]
    fn while_less_than_half_of_all_machines_are_heard_probes_say_nothing() {
        let (_port, address) = port();
        let view = view();
        let mut probes = probes(vec![Some(address)], &view);
        let silent = [Status::Stale; 2].map(|status| Reading { status, ..Reading::default() });
        for at in 200..400 {
            probes.scanned(&silent, &view, || ms(at));
            assert!(probes.is_full(NODE) && probes.under_way == 0);
        }
        assert_eq!(view.health(NODE).state(ms(400)), State::Up);
        until(|| {
            sees(&mut probes, Status::Stale, &view, 400);
            view.health(NODE).state(ms(400)) != State::Up
        });
    }
}
