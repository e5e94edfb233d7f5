//! The server's dealings with the other caches of its cluster.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Server;
use super::client::{Client, Silent, Waits};
use crate::neighbours::{Errand, Language, Neighbours, To};
use crate::outgoing::Waiting;
use crate::protocol::{binary, text};

/// The longest wait for a connection from another machine to show that it is of the cluster.
const UNAUTHENTICATED_WAIT: Duration = Duration::from_secs(5);
/// The most of them. Beyond, the oldest has to go.
const UNAUTHENTICATED_MAX: usize = 64;
/// Between two complaints about unauthenticated connections.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// A connection from another machine that is not known yet to be of the cluster, or was not when it came.
pub(super) struct Unauthenticated {
    number: usize,
    life: u64,
    since: Instant,
}

impl Server<'_> {
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
        let read = if flags.intersects(!EventFlags::OUT) { outgoing.read() } else { Ok(()) };
        // What was read may have opened the connection.
        let written = outgoing.write();
        let answers = outgoing.take();
        let mut touched: Option<(usize, u64)> = None;
        for (waiting, answer) in answers {
            // Many answers in a row may be one client's, who gets them at once.
            if let Some(before) = touched.replace(waiting.client).filter(|before| *before != waiting.client) {
                self.go_on_with(before);
            }
            self.deliver(waiting, Ok(answer));
        }
        touched.into_iter().for_each(|client| self.go_on_with(client));
        if let Err(error) = read.and(written).and_then(|()| self.watch_peer(peer)) {
            self.fail(peer, &error);
        }
    }

    /// Gives up a connection to another cache: who waits for its answers gets none.
    fn fail(&mut self, peer: usize, error: &io::Error) {
        let name = self.neighbours.as_ref().map_or("", |neighbours| neighbours.name(peer));
        for waiting in self.outgoing[peer].end(name, error) {
            self.deliver(waiting, Err(peer));
            self.go_on_with(waiting.client);
        }
    }

    /// Keeps the answer of another cache for a client, or the number of one that has not answered.
    fn deliver(&mut self, waiting: Waiting, answer: Result<Vec<u8>, usize>) {
        let (number, life) = waiting.client;
        let client = self.clients[number].as_mut().filter(|client| client.life == life);
        let Some(waits) = client.and_then(|client| client.awaits(waiting.ticket)) else { return };
        waits.left -= 1;
        match answer {
            Ok(answer) => waits.answer = answer,
            Err(peer) => waits.failed = Some(Silent { peer, was_told: true }),
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
        let (neighbours, near) = (&mut self.neighbours, &mut self.near);
        client.settle(|waits, out| {
            if let (Some(neighbours), Some(miss)) = (neighbours.as_mut(), &waits.miss) {
                let (has_failed, is_hit) = (waits.failed.is_some(), waits.answer != *miss);
                neighbours.was_asked(has_failed, is_hit);
                if let (Some(near), Some(ticket), true) = (near.as_mut(), waits.near, is_hit && !has_failed) {
                    near.keep(ticket, &waits.answer);
                }
            }
            let Some(Silent { peer, was_told }) = waits.failed else {
                return out.extend_from_slice(&waits.answer);
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

    /// Answers a command that only reads from the copy of an earlier answer, if there is one.
    pub(super) fn answer_near(&mut self, errand: &Errand) -> bool {
        let (Some(near), To::Home(home), Some(_)) = (&mut self.near, errand.to, &errand.miss) else {
            return false;
        };
        let Some(answer) = near.find(home.key, errand.language, &errand.command, Instant::now()) else {
            return false;
        };
        self.out.extend_from_slice(answer);
        self.store().counters.count_fetch(false, true);
        self.neighbours.as_mut().into_iter().for_each(Neighbours::was_near);
        true
    }

    /// Has a client's command sent to other caches.
    pub(super) fn ask(&mut self, number: usize, client: &mut Client, errand: Errand) {
        let Errand { to, language, mut command, miss } = errand;
        let peers = match to {
            To::Home(home) => home.peer..home.peer + 1,
            To::All => 0..self.outgoing.len(),
        };
        let me = self.neighbours.as_ref().map(Neighbours::me);
        let (now, bytes, ticket) = (Instant::now(), command.len(), client.next_ticket());
        let near = self.near.as_mut().and_then(|near| match (to, &miss) {
            (To::Home(home), Some(_)) => near.asked(home.key, language, &command, now),
            (To::Home(home), None) => {
                near.forget(home.key);
                None
            }
            (To::All, _) => {
                near.clear();
                None
            }
        });
        let (mut left, mut failed) = (0, None);
        for peer in peers.filter(|peer| Some(*peer) != me) {
            match self.outgoing[peer].send(language, &command, (number, client.life), ticket, now) {
                Ok(()) => {
                    left += 1;
                    if !self.unsent.contains(&peer) {
                        self.unsent.push(peer);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, peer, "a command was not sent to its home");
                    // What is for all was carried out by this cache at least.
                    failed = Some(Silent { peer, was_told: to == To::All });
                }
            }
        }
        command.truncate(text::LINE_BYTES_MAX);
        let mut waits = Waits::new(language, command, miss);
        (waits.left, waits.failed, waits.near) = (left, failed, near);
        client.wait(waits, bytes);
        self.settle(client);
    }
}
