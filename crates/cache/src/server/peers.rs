//! The server's dealings with the other caches of its cluster.

use std::io::{self, ErrorKind};
use std::mem;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use sidelong_layout::Slots;
use sidelong_policy::cache::homes::Placement;

use super::Server;
use super::client::{Client, Silent, Waits};
use crate::command::Addresses;
use crate::frame::Answer;
use crate::neighbours::{Errand, Errands, Language, Neighbours, Peer, To};
use crate::outgoing::{Outgoing, Waiting};
use crate::protocol::{binary, text};

/// The longest wait for a connection from another machine to show that it is of the cluster.
const UNAUTHENTICATED_WAIT: Duration = Duration::from_secs(5);
/// The most of them. Beyond, the oldest has to go.
const UNAUTHENTICATED_MAX: usize = 64;
/// Between two complaints about unauthenticated connections.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// The other caches of a cluster.
pub struct Cluster {
    /// Their memory, and how they are told to carry out commands.
    pub neighbours: Neighbours,
    /// Where clients find all of them.
    pub addresses: Addresses,
    /// How many slots there may be.
    pub capacity: usize,
    /// Hears which caches there are from now on, if that may change. It is asked ten times a second.
    pub news: Option<Box<dyn FnMut() -> News>>,
}

/// What has become of the caches of a cluster.
pub enum News {
    /// Nothing.
    Nothing,
    /// These are its caches from now on.
    Roster(Roster),
    /// This cache is none of them any more, and ends.
    Left,
}

/// Which caches there are from now on.
pub struct Roster {
    /// By slot.
    pub peers: Slots<Peer>,
    /// The homes of keys.
    pub placement: Placement,
    /// Where clients find them. The cache states their version in its memory, once nothing is left of the items that it keeps no more.
    pub addresses: Addresses,
}

/// A connection from another machine that is not known yet to be of the cluster, or was not when it came.
pub(super) struct Unauthenticated {
    number: usize,
    life: u64,
    since: Instant,
}

impl Server<'_> {
    /// Goes by other caches from now on.
    pub(super) fn adopt(&mut self, roster: Roster) {
        let Roster { peers, placement, addresses } = roster;
        let Some(neighbours) = &mut self.neighbours else { return };
        let is_change = neighbours.placement() != &placement;
        let others = neighbours.adopt(&peers, placement);
        let (share, slots) = (neighbours.share(), self.outgoing.len());
        for slot in others.into_iter().filter(|slot| *slot < slots) {
            self.fail(slot, &ErrorKind::NotConnected.into());
            let way = self.neighbours.as_ref().and_then(|neighbours| neighbours.way(slot));
            self.outgoing[slot] = Outgoing::new(way);
        }
        if is_change {
            self.store().cache.keep_only(share, slots);
        }
        self.unstated = Some(addresses.version);
        self.addresses = Some(addresses);
    }

    /// Does what is due with other caches.
    pub(super) fn tick_peers(&mut self, now: Instant) {
        let me = self.neighbours.as_ref().map(Neighbours::me);
        for peer in (0..self.outgoing.len()).filter(|peer| Some(*peer) != me) {
            if self.outgoing[peer].is_overdue(now) {
                self.fail(peer, &ErrorKind::TimedOut.into());
            }
            self.outgoing[peer].prepare(now);
            if let Err(error) = self.watch_peer(peer) {
                self.fail(peer, &error);
            }
        }
        while self.unauthenticated.front().is_some_and(|first| first.since + UNAUTHENTICATED_WAIT <= now) {
            self.dismiss_unauthenticated();
        }
    }

    /// Takes a client that came from another machine.
    pub(super) fn admit_unauthenticated(&mut self, number: usize, life: u64) {
        if self.unauthenticated.len() == UNAUTHENTICATED_MAX {
            self.dismiss_unauthenticated();
        }
        self.unauthenticated.push_back(Unauthenticated { number, life, since: Instant::now() });
    }

    /// Closes the oldest unauthenticated connection, if it still is one.
    fn dismiss_unauthenticated(&mut self) {
        let Some(Unauthenticated { number, life, .. }) = self.unauthenticated.pop_front() else { return };
        let is_it = |client: &mut Client| client.life == life && !client.stream.is_open();
        if let Some(client) = self.clients.get_mut(number).and_then(|place| place.take_if(is_it)) {
            let awaited = client.awaited();
            self.complain(&io::Error::other("it did not show that it knows the secret"));
            self.keep(number, client, awaited, Err(ErrorKind::TimedOut.into()));
        }
    }

    /// Logs why an unauthenticated connection was refused, now and then.
    pub(super) fn complain(&mut self, error: &io::Error) {
        if self.complained.is_none_or(|at| at.elapsed() >= COMPLAINTS) {
            self.complained = Some(Instant::now());
            tracing::warn!(problem = %error, "a connection of another cache was refused");
        }
    }

    /// Watches another cache for answers, and for room if there is something to be written.
    fn watch_peer(&mut self, peer: usize) -> io::Result<()> {
        let data = EventData::new_u64((self.before_peers() + peer) as u64);
        let outgoing = &mut self.outgoing[peer];
        let (Some(socket), is_blocked) = (outgoing.socket(), outgoing.is_blocked()) else { return Ok(()) };
        let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        match outgoing.watched {
            None => epoll::add(&self.epoll, socket, data, flags)?,
            Some(before) if before != is_blocked => epoll::modify(&self.epoll, socket, data, flags)?,
            Some(_) => {}
        }
        outgoing.watched = Some(is_blocked);
        Ok(())
    }

    /// Writes the commands for other caches that clients have left.
    pub(super) fn send_to_peers(&mut self) {
        // Clients who hear that there is no connection go on, and may leave further commands.
        while let Some(peer) = self.unsent.pop() {
            if let Err(error) = self.outgoing[peer].write().and_then(|()| self.watch_peer(peer)) {
                self.fail(peer, &error);
            }
        }
    }

    pub(super) fn on_peer(&mut self, peer: usize, flags: EventFlags) {
        let outgoing = &mut self.outgoing[peer];
        let read = if flags.intersects(!EventFlags::OUT) { outgoing.read(&mut self.read) } else { Ok(()) };
        // What was read may have opened the connection.
        let written = outgoing.write();
        let (arrived, mut used) = (outgoing.take(), 0);
        let mut touched: Option<(usize, u64)> = None;
        while let Some((waiting, answer)) = self.outgoing[peer].next(&arrived, &mut used) {
            // Many answers in a row may be one client's, who gets them at once.
            if let Some(before) = touched.replace(waiting.client).filter(|before| *before != waiting.client) {
                self.go_on_with(before);
            }
            self.deliver(waiting, Ok(answer));
        }
        self.outgoing[peer].put_back(arrived, used);
        touched.into_iter().for_each(|client| self.go_on_with(client));
        if let Err(error) = read.and(written).and_then(|()| self.watch_peer(peer)) {
            self.fail(peer, &error);
        }
    }

    /// Gives up a connection to another cache: who waits for its answers gets none.
    fn fail(&mut self, peer: usize, error: &io::Error) {
        let name = self.neighbours.as_ref().map_or("", |neighbours| neighbours.name(peer));
        for waiting in self.outgoing[peer].end(name, error) {
            self.deliver(waiting, Err(Silent { peer, was_told: true }));
            self.go_on_with(waiting.client);
        }
    }

    /// Has a command sent to another cache, for a client that waits by that number.
    fn send_to(
        &mut self,
        peer: usize,
        (language, command): (Language, &[u8]),
        client: (usize, u64),
        ticket: u64,
        now: Instant,
    ) -> io::Result<()> {
        self.outgoing[peer].send(language, command, client, ticket, now)?;
        if !self.unsent.contains(&peer) {
            self.unsent.push(peer);
        }
        Ok(())
    }

    /// What waits at a client by that number, unless the client has gone.
    fn waiting(&mut self, waiting: Waiting) -> Option<&mut Waits> {
        let (number, life) = waiting.client;
        self.clients[number].as_mut().filter(|client| client.life == life)?.waiting(waiting.ticket)
    }

    /// Keeps the answer of another cache for a client, or one that has not answered.
    fn deliver(&mut self, waiting: Waiting, answer: Result<Answer<'_>, Silent>) {
        let mut answer = answer;
        if answer.as_ref().is_ok_and(|answer| !answer.is_of_home)
            && let Some(waits) = self.waiting(waiting)
            && let Some((peer, command)) = waits.next.take()
        {
            // It was the home before, and is no more: so nothing was carried out yet.
            let command = (waits.language, &*command);
            match self.send_to(peer, command, waiting.client, waiting.ticket, Instant::now()) {
                Ok(()) => return,
                Err(_) => answer = Err(Silent { peer, was_told: false }),
            }
        }
        let (number, life) = waiting.client;
        if let Some(client) = self.clients[number].as_mut().filter(|client| client.life == life) {
            client.answered(waiting.ticket, answer.map(|answer| answer.bytes));
        }
    }

    /// Hands a client the answers that are there.
    fn go_on_with(&mut self, (number, life): (usize, u64)) {
        let Some(mut client) = self.clients[number].take_if(|client| client.life == life) else { return };
        let awaited = client.awaited();
        self.settle(&mut client);
        let done = self.go_on(number, &mut client);
        self.keep(number, client, awaited, done);
    }

    /// Appends the answers that a client has waited for.
    fn settle(&mut self, client: &mut Client) {
        let neighbours = &mut self.neighbours;
        client.settle(|waits, answer, out| {
            if let (Some(neighbours), Some(miss)) = (neighbours.as_mut(), &waits.miss) {
                let answer = waits.failed.is_none().then_some(answer);
                neighbours.was_asked(answer, miss, waits.near);
            }
            let Some(Silent { peer, was_told }) = waits.failed else {
                return out.extend_from_slice(answer);
            };
            if let Some(miss) = waits.miss {
                out.extend_from_slice(&miss);
            } else if waits.language == Language::Binary {
                binary::refuse_late(&waits.command, out);
            } else if !text::is_quiet(&waits.command) {
                let name = neighbours.as_ref().map_or("", |neighbours| neighbours.name(peer));
                let problem = match was_told {
                    true => "does not answer: the outcome is unknown",
                    false => "is not reached: nothing was changed",
                };
                text::say(out, &format!("SERVER_ERROR cache {name} {problem}"));
            }
        });
    }

    /// Has the commands that a client has left sent to other caches, each behind the answers before it.
    pub(super) fn ask(&mut self, number: usize, client: &mut Client) {
        if self.errands.all.is_empty() {
            return;
        }
        let Errands { commands, mut all } = mem::take(&mut self.errands);
        let (now, mut answered) = (Instant::now(), 0);
        for Errand { to, language, command, miss, near, answered: until } in all.drain(..) {
            client.append(&self.out[answered..until]);
            answered = until;
            let (command, ticket) = (&commands[command], client.next_ticket());
            let peers = match to {
                To::Home(home) => vec![home.peer],
                To::Both(old, _) => vec![old],
                To::All => self.neighbours.iter().flat_map(Neighbours::others).collect(),
            };
            // Of a command that only reads nobody asks how it began.
            let begin =
                if miss.is_none() { &command[..command.len().min(text::LINE_BYTES_MAX)] } else { &[] };
            let mut waits = Waits::new(language, begin.to_vec(), miss);
            waits.near = near;
            if let To::Both(_, home) = to {
                waits.next = Some((home.peer, command.to_vec()));
            }
            for peer in peers {
                match self.send_to(peer, (language, command), (number, client.life), ticket, now) {
                    Ok(()) => waits.left += 1,
                    Err(error) => {
                        tracing::debug!(%error, peer, "a command was not sent to its home");
                        // What is for all was carried out by this cache at least.
                        waits.failed = Some(Silent { peer, was_told: to == To::All });
                    }
                }
            }
            client.wait(waits, command.len());
        }
        self.out.drain(..answered);
        self.errands = Errands { commands, all };
        self.settle(client);
    }
}
