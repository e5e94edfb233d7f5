//! One thread that serves clients over TCP and Unix sockets.
//!
//! A read goes to a buffer that all clients share, and answers are collected in another, so that an idle client takes a few
//! hundred bytes. A client whose command is not whole yet, or who does not take its answers, gets a buffer of its own: the
//! first as long as the command, the second at most [`OUT_BYTES_MAX`] and one answer. Until the answers are taken, nothing
//! more is read from that client. Over TLS a client has some 7 KB more, and up to 64 KB while it does not take its answers.

mod sockets;
mod tls;

use std::io::{self, ErrorKind};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::cache::{Cache, Seconds};
use crate::command::{Host, Row, Rows, Users, World};
use crate::counters::Counters;
use crate::frame;
use crate::neighbours::{self, Errand, Language, Neighbours, To};
use crate::outgoing::{Outgoing, Waiting};
use crate::protocol::{binary, text};
use crate::published::Published;
use crate::session::{Session, Wants};
pub use sockets::Listener;
use sockets::Stream;

/// Bytes that are read from a client at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes of answers after which a client's commands wait until it has taken some.
pub const OUT_BYTES_MAX: usize = 256 << 10;
/// Events that are taken from the kernel at a time.
const EVENTS: usize = 256;
/// Clients that are accepted in a row.
const ACCEPTS: usize = 64;
/// The longest wait for events: the flag to stop is looked at as often.
const TICK: Duration = Duration::from_millis(100);

/// What a server is told.
#[derive(Default)]
pub struct Options {
    /// Most clients at a time. Others wait to be accepted.
    pub clients_max: usize,
    /// The users that may log in, if clients must.
    pub users: Option<Users>,
    /// What `version` answers.
    pub version: String,
    /// Further rows of `stats settings`.
    pub settings: Vec<(&'static str, String)>,
    /// When its second 0 was, in nanoseconds of the machine's monotonic clock ([`neighbours::now_ns`]).
    pub began_ns: u64,
    /// Where the figures of `stats` are published, if another thread reads them.
    pub published: Option<Arc<Published>>,
}

/// Figures of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Connections {
    /// Clients now.
    open: u64,
    /// Clients ever accepted.
    accepted: u64,
    /// Times that accepting stopped, because of `clients_max` or for want of descriptors.
    paused: u64,
    is_paused: bool,
}

impl Connections {
    /// As memcached names them.
    fn show(&self, row: &mut Row<'_>) {
        row("curr_connections", &self.open);
        row("total_connections", &self.accepted);
        row("connection_structures", &self.open);
        row("listen_disabled_num", &self.paused);
        row("accepting_conns", &u8::from(!self.is_paused));
    }
}

impl Options {
    /// What a session is told, with the rows that `rows` writes for `stats`.
    fn world<'w>(&'w self, now: Seconds, unix_at_0: i64, rows: &'w dyn Fn(Rows, &mut Row<'_>)) -> World<'w> {
        World {
            now,
            unix_at_0,
            out_bytes_max: OUT_BYTES_MAX,
            version: &self.version,
            users: self.users.as_ref(),
            rows,
        }
    }

    /// Writes the rows of `stats` that a session does not know.
    fn show(&self, rows: Rows, connections: &Connections, now: Seconds, row: &mut Row<'_>) {
        match rows {
            Rows::General => {
                row("pid", &std::process::id());
                row("uptime", &now);
                row("pointer_size", &usize::BITS);
                row("max_connections", &self.clients_max);
                row("threads", &1);
                connections.show(row);
            }
            Rows::Settings => {
                row("maxconns", &self.clients_max);
                self.settings.iter().for_each(|(name, value)| row(name, value));
            }
            Rows::Connections => connections.show(row),
        }
    }
}

/// What a client says.
enum Talk {
    /// Commands of memcached's.
    Commands(Session),
    /// Another cache's frames, each with a command.
    Frames,
}

/// Answers of other caches that a client waits for.
struct Waits {
    /// Caches that are yet to answer.
    left: usize,
    language: Language,
    command: Vec<u8>,
    /// The last cache's answer.
    answer: Vec<u8>,
    /// A cache that has not answered.
    failed: Option<usize>,
}

struct Client {
    stream: Stream,
    talk: Talk,
    /// Tells it from earlier clients that had its number.
    life: u64,
    waits: Option<Waits>,
    /// What was read of a command that is not whole, or that waits until answers were taken.
    input: Vec<u8>,
    /// Answers that the client has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Whether it is closed once it has taken its answers.
    is_ending: bool,
    /// Bytes that the next command has in all, as far as known.
    wanted: usize,
}

impl Client {
    /// Whether it has yet to take answers.
    fn is_blocked(&self) -> bool {
        !self.output.is_empty() || self.stream.is_blocked()
    }

    /// The event that it waits for.
    fn awaited(&self) -> EventFlags {
        if self.is_blocked() {
            EventFlags::OUT
        } else if self.waits.is_some() {
            EventFlags::empty()
        } else {
            EventFlags::IN
        }
    }
}

/// What became of a client.
#[derive(PartialEq, Eq)]
enum After {
    Stays,
    Gone,
}

/// The other caches of a cluster.
pub struct Cluster {
    /// Their memory.
    pub neighbours: Neighbours,
    /// By number, the Unix sockets at which they carry out commands.
    pub sockets: Vec<PathBuf>,
}

/// Serves clients until `stop` is set.
///
/// # Errors
/// If the kernel refuses to watch the listeners, or the memory that other caches read is lost.
pub fn serve(
    listeners: &[Listener],
    options: &Options,
    cache: &mut Cache,
    cluster: Option<Cluster>,
    stop: &AtomicBool,
) -> io::Result<()> {
    Server::new(listeners, options, cache, cluster)?.run(stop)
}

struct Server<'a> {
    listeners: &'a [Listener],
    options: &'a Options,
    cache: &'a mut Cache,
    neighbours: Option<Neighbours>,
    /// By number, the connections to the other caches.
    outgoing: Vec<Outgoing>,
    epoll: rustix::fd::OwnedFd,
    /// By number, which the kernel gives with each event: listeners and other caches come before them.
    clients: Vec<Option<Client>>,
    lives: u64,
    /// Other caches whose connections broke while a client's commands were carried out.
    failed: Vec<usize>,
    ticked: Instant,
    /// The Unix time of second 0, as of the last tick.
    unix_at_0: i64,
    free: Vec<usize>,
    connections: Connections,
    counters: Counters,
    read: Vec<u8>,
    out: Vec<u8>,
}

impl<'a> Server<'a> {
    fn new(
        listeners: &'a [Listener],
        options: &'a Options,
        cache: &'a mut Cache,
        cluster: Option<Cluster>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking()?;
            epoll::add(&epoll, listener, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let (neighbours, sockets) =
            cluster.map_or((None, Vec::new()), |cluster| (Some(cluster.neighbours), cluster.sockets));
        let mut server = Server {
            listeners,
            options,
            cache,
            neighbours,
            outgoing: sockets.into_iter().map(Outgoing::new).collect(),
            epoll,
            lives: 0,
            failed: Vec::new(),
            ticked: Instant::now(),
            unix_at_0: 0,
            clients: Vec::new(),
            free: Vec::new(),
            connections: Connections::default(),
            counters: Counters::default(),
            read: vec![0; READ_BYTES],
            out: Vec::with_capacity(OUT_BYTES_MAX),
        };
        server.tick()?;
        Ok(server)
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&tick)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let number = event.data.u64() as usize;
                let behind_listeners = number.checked_sub(self.listeners.len());
                match behind_listeners.map(|number| number.checked_sub(self.outgoing.len()).ok_or(number)) {
                    None => self.accept(number)?,
                    Some(Err(peer)) => self.on_peer(peer, event.flags),
                    Some(Ok(client)) => self.on_client(client, event.flags),
                }
            }
            for peer in mem::take(&mut self.failed) {
                self.fail(peer);
            }
            if self.ticked.elapsed() >= TICK {
                self.tick()?;
            }
        }
        Ok(())
    }

    /// Does what concerns no client.
    fn tick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.ticked = now;
        self.unix_at_0 = unix_at_0(self.now());
        if self.connections.is_paused {
            // For want of descriptors it may be that somebody else has freed some.
            self.set_paused(self.connections.open >= self.options.clients_max as u64)?;
        }
        self.publish();
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.tick(self.cache);
        }
        for peer in 0..self.outgoing.len() {
            if self.outgoing[peer].is_overdue(now) {
                self.fail(peer);
            }
        }
        if self.cache.is_lost() {
            let lost =
                "the region with its items was removed, or changed by another process: start the cache again";
            return Err(io::Error::other(lost));
        }
        Ok(())
    }

    /// Publishes the figures, if another thread reads them.
    fn publish(&mut self) {
        let Some(published) = &self.options.published else { return };
        let now = self.now();
        let rows = |rows, row: &mut Row<'_>| self.options.show(rows, &self.connections, now, row);
        let world = self.options.world(now, self.unix_at_0, &rows);
        published.publish(&mut Host {
            cache: self.cache,
            counters: &mut self.counters,
            world: &world,
            neighbours: self.neighbours.as_mut(),
        });
    }

    fn now(&self) -> Seconds {
        neighbours::second(self.options.began_ns, neighbours::now_ns())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        for _ in 0..ACCEPTS {
            let is_for_caches = matches!(self.listeners[listener], Listener::Caches(..));
            if self.connections.open >= self.options.clients_max as u64 && !is_for_caches {
                return self.set_paused(true);
            }
            let stream = match self.listeners[listener].accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client is gone already.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                // Out of descriptors or memory: others may free some.
                Err(_) => return self.set_paused(true),
            };
            let number = self.free.pop().unwrap_or(self.clients.len());
            let data = self.data_of(number);
            if epoll::add(&self.epoll, &stream, data, EventFlags::IN).is_err() {
                self.free.extend((number < self.clients.len()).then_some(number));
                return self.set_paused(true);
            }
            self.lives += 1;
            let client = Client {
                stream,
                talk: if is_for_caches { Talk::Frames } else { Talk::Commands(Session::new()) },
                life: self.lives,
                waits: None,
                input: Vec::new(),
                output: Vec::new(),
                sent: 0,
                is_ending: false,
                wanted: 0,
            };
            if number == self.clients.len() {
                self.clients.push(None);
            }
            self.clients[number] = Some(client);
            self.connections.open += 1;
            self.connections.accepted += 1;
        }
        Ok(())
    }

    /// Stops accepting, or goes on with it.
    fn set_paused(&mut self, is_paused: bool) -> io::Result<()> {
        if self.connections.is_paused == is_paused {
            return Ok(());
        }
        self.connections.is_paused = is_paused;
        self.connections.paused += u64::from(is_paused);
        let flags = if is_paused { EventFlags::empty() } else { EventFlags::IN };
        let is_for_clients = |listener: &Listener| !matches!(listener, Listener::Caches(..));
        let listeners = self.listeners.iter().enumerate();
        for (number, listener) in listeners.filter(|(_, listener)| is_for_clients(listener)) {
            epoll::modify(&self.epoll, listener, EventData::new_u64(number as u64), flags)?;
        }
        Ok(())
    }

    fn on_client(&mut self, number: usize, flags: EventFlags) {
        let Some(mut client) = self.clients.get_mut(number).and_then(Option::take) else { return };
        let awaited = client.awaited();
        let done = if client.is_blocked() {
            self.go_on(number, &mut client)
        } else if client.waits.is_some() {
            Ok(After::Stays)
        } else {
            self.read(number, &mut client)
        };
        // A client that hangs up while it is blocked, or while it waits, will not take its answers.
        let is_lost = awaited != EventFlags::IN && flags.intersects(EventFlags::HUP | EventFlags::ERR);
        self.keep(number, client, awaited, if is_lost { Ok(After::Gone) } else { done });
    }

    /// Keeps a client that stays, watched for what it waits for now and did not before.
    fn keep(&mut self, number: usize, client: Client, before: EventFlags, done: io::Result<After>) {
        let stays = done.is_ok_and(|after| after == After::Stays);
        if stays && (client.awaited() == before || self.watch(number, &client).is_ok()) {
            self.clients[number] = Some(client);
            return;
        }
        // Dropping the client closes its socket, and so ends the kernel's watch.
        drop(client);
        self.free.push(number);
        self.connections.open -= 1;
        if self.connections.is_paused {
            _ = self.set_paused(false);
        }
    }

    /// Watches for what the client waits for now.
    fn watch(&self, number: usize, client: &Client) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, &client.stream, self.data_of(number), client.awaited())?)
    }

    /// What the kernel gives with events of a client.
    fn data_of(&self, number: usize) -> EventData {
        EventData::new_u64((self.listeners.len() + self.outgoing.len() + number) as u64)
    }

    /// Watches another cache for answers, and for room for commands if it has none.
    fn watch_peer(&self, peer: usize, is_new: bool) -> io::Result<()> {
        let Some(socket) = self.outgoing[peer].socket() else { return Ok(()) };
        let data = EventData::new_u64((self.listeners.len() + peer) as u64);
        let out = if self.outgoing[peer].is_blocked() { EventFlags::OUT } else { EventFlags::empty() };
        let flags = EventFlags::IN | out;
        Ok(if is_new {
            epoll::add(&self.epoll, socket, data, flags)
        } else {
            epoll::modify(&self.epoll, socket, data, flags)
        }?)
    }

    fn on_peer(&mut self, peer: usize, flags: EventFlags) {
        let outgoing = &mut self.outgoing[peer];
        let was_blocked = outgoing.is_blocked();
        let written = if flags.contains(EventFlags::OUT) { outgoing.write() } else { Ok(()) };
        let read = if flags.contains(EventFlags::OUT) && !flags.intersects(!EventFlags::OUT) {
            Ok(())
        } else {
            outgoing.read()
        };
        for (waiting, answer) in self.outgoing[peer].take() {
            self.deliver(waiting, Ok(answer));
        }
        let is_changed = was_blocked && !self.outgoing[peer].is_blocked();
        let watched = if is_changed { self.watch_peer(peer, false) } else { Ok(()) };
        if written.and(read).and(watched).is_err() {
            self.fail(peer);
        }
    }

    /// Gives up a connection to another cache: who waits for its answers gets none.
    fn fail(&mut self, peer: usize) {
        for waiting in self.outgoing[peer].end() {
            self.deliver(waiting, Err(peer));
        }
    }

    /// Hands a client the answer of another cache, or the number of one that has not answered.
    fn deliver(&mut self, waiting: Waiting, answer: Result<Vec<u8>, usize>) {
        let (number, life) = waiting.client;
        let slot = &mut self.clients[number];
        let Some(mut client) = slot.take_if(|client| client.life == life) else { return };
        let awaited = client.awaited();
        let Some(waits) = &mut client.waits else { return self.clients[number] = Some(client) };
        waits.left -= 1;
        match answer {
            Ok(answer) => waits.answer = answer,
            Err(peer) => waits.failed = Some(peer),
        }
        if waits.left > 0 {
            self.clients[number] = Some(client);
            return;
        }
        self.end_wait(&mut client);
        let done = self.go_on(number, &mut client);
        self.keep(number, client, awaited, done);
    }

    /// Appends what a client gets that waited.
    fn end_wait(&self, client: &mut Client) {
        let Some(waits) = client.waits.take() else { return };
        match waits.failed {
            None => client.output.extend_from_slice(&waits.answer),
            Some(_) if waits.language == Language::Binary => {
                binary::refuse_late(&waits.command, &mut client.output)
            }
            Some(_) if text::is_quiet(&waits.command) => {}
            Some(peer) => {
                let name = self.neighbours.as_ref().map_or("", |neighbours| neighbours.name(peer));
                let problem = format!("SERVER_ERROR cache {name} does not answer: the outcome is unknown");
                text::say(&mut client.output, &problem);
            }
        }
    }

    /// Sends a client's command to other caches.
    fn ask(&mut self, number: usize, client: &mut Client, errand: Errand) {
        let Errand { to, language, command } = errand;
        let peers = match to {
            To::Home(peer) => peer..peer + 1,
            To::All => 0..self.outgoing.len(),
        };
        let me = self.neighbours.as_ref().map(Neighbours::me);
        let mut waits = Waits { left: 0, language, command, answer: Vec::new(), failed: None };
        let now = Instant::now();
        for peer in peers.filter(|peer| Some(*peer) != me) {
            let was_blocked = self.outgoing[peer].is_blocked();
            let sent = self.outgoing[peer].send(language, &waits.command, (number, client.life), now);
            let watched = sent.and_then(|is_new| {
                let is_changed = is_new || self.outgoing[peer].is_blocked() != was_blocked;
                if is_changed { self.watch_peer(peer, is_new) } else { Ok(()) }
            });
            match watched {
                Ok(()) => waits.left += 1,
                Err(error) => {
                    tracing::debug!(%error, peer, "a command was not sent to its home");
                    waits.failed = Some(peer);
                    // Others that wait hear of it once this client is done with.
                    self.failed.push(peer);
                }
            }
        }
        let is_over = waits.left == 0;
        client.waits = Some(waits);
        if is_over {
            self.end_wait(client);
        }
    }

    /// Reads once, and answers the commands that are whole.
    fn read(&mut self, number: usize, client: &mut Client) -> io::Result<After> {
        let len = match client.stream.read(&mut self.read) {
            Ok(0) => return Ok(After::Gone),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(After::Stays);
            }
            Err(error) => return Err(error),
        };
        if !client.input.is_empty() {
            let missing = client.wanted.saturating_sub(client.input.len());
            client.input.reserve_exact(missing.max(len));
            client.input.extend_from_slice(&self.read[..len]);
            return if len < missing { Ok(After::Stays) } else { self.answer_rest(number, client) };
        }
        let read = mem::take(&mut self.read);
        let answered = self.answer(number, client, &read[..len]);
        if let Ok((_, used)) = answered {
            client.input.extend_from_slice(&read[used..len]);
        }
        self.read = read;
        Ok(answered?.0)
    }

    /// Goes on with a client that did not take its answers.
    fn go_on(&mut self, number: usize, client: &mut Client) -> io::Result<After> {
        self.send(client)?;
        if client.is_blocked() || client.waits.is_some() {
            return Ok(After::Stays);
        }
        client.output = Vec::new();
        if client.is_ending { Ok(After::Gone) } else { self.answer_rest(number, client) }
    }

    /// Answers what was read before.
    fn answer_rest(&mut self, number: usize, client: &mut Client) -> io::Result<After> {
        let mut rest = mem::take(&mut client.input);
        let (after, used) = self.answer(number, client, &rest)?;
        if used < rest.len() {
            rest.drain(..used);
            client.input = rest;
        }
        Ok(after)
    }

    /// Answers the commands that are whole, as far as the client takes the answers. Returns how many bytes they had.
    fn answer(&mut self, number: usize, client: &mut Client, input: &[u8]) -> io::Result<(After, usize)> {
        let now = self.now();
        let mut used = 0;
        loop {
            let rows = |rows, row: &mut Row<'_>| self.options.show(rows, &self.connections, now, row);
            let world = self.options.world(now, self.unix_at_0, &rows);
            let is_client = matches!(client.talk, Talk::Commands(_));
            let mut host = Host {
                cache: self.cache,
                counters: &mut self.counters,
                world: &world,
                // What another cache asks is for this one.
                neighbours: self.neighbours.as_mut().filter(|_| is_client),
            };
            let fed = match &mut client.talk {
                Talk::Commands(session) => session.feed(&input[used..], &mut host, &mut self.out),
                Talk::Frames => frame::feed(&input[used..], &mut host, &mut self.out),
            };
            used += fed.consumed;
            client.is_ending = matches!(fed.wants, Wants::Close);
            client.wanted = if let Wants::Input(bytes) = fed.wants { bytes } else { 0 };
            mem::swap(&mut client.output, &mut self.out);
            let sent = self.send(client);
            if client.output.is_empty() {
                mem::swap(&mut client.output, &mut self.out);
            }
            sent?;
            if fed.wants == Wants::Answer
                && let Some(errand) = self.neighbours.as_mut().and_then(|neighbours| neighbours.errand.take())
            {
                self.ask(number, client, errand);
                if client.waits.is_none() {
                    self.send(client)?;
                }
            }
            if client.is_blocked() || client.waits.is_some() {
                return Ok((After::Stays, used));
            }
            match fed.wants {
                Wants::Room | Wants::Answer => {}
                Wants::Input(_) => return Ok((After::Stays, used)),
                Wants::Close => return Ok((After::Gone, used)),
            }
        }
    }

    /// Writes what the client takes of its answers.
    fn send(&mut self, client: &mut Client) -> io::Result<()> {
        while client.sent < client.output.len() {
            match client.stream.write(&client.output[client.sent..]) {
                Ok(len) => client.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        client.output.clear();
        client.sent = 0;
        match client.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

/// Seconds since 1970 at second 0 of a cache that is at `now`.
fn unix_at_0(now: Seconds) -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs() as i64 - i64::from(now)
}
