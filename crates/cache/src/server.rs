//! Threads that serve clients over TCP and Unix sockets, each its own.
//!
//! All threads have one store. Who carries out commands holds its lock: for those of one read of one client at a time, and not
//! while it reads, writes or encrypts, which is most of what a request costs. The first thread accepts clients, and hands them to
//! all in turn.
//!
//! A read goes to a buffer that all clients share, and answers are collected in another, so that an idle client takes a few
//! hundred bytes. A client whose command is not whole yet, or who does not take its answers, gets a buffer of its own: the
//! first as long as the command, the second at most [`OUT_BYTES_MAX`] and one answer. Until the answers are taken, nothing
//! more is read from that client. One that takes as much at once lets the others of its thread go first. Over TLS a client has
//! some 7 KB more, and up to 64 KB while it does not take its answers.

mod client;
mod peers;
mod sealed;
mod shared;
pub(crate) mod sockets;
mod tls;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use sidelong_layout::Time;

use crate::cache::{Cache, Seconds};
use crate::command::{Addresses, Host, Row, Rows, Users, World};
use crate::counters::Counters;
use crate::frame;
use crate::neighbours::{self, Errands, Neighbours};
use crate::outgoing::Outgoing;
use crate::published::Published;
use crate::session::{Session, Wants};
pub use crate::way::Way;
use client::{After, Client, Talk};
use peers::Unauthenticated;
pub use peers::{Cluster, News, Roster};
use shared::{Connections, Handed, Store, locked};
use sidelong_os::monotonic_ns;
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
/// What a client is told that finds no place (memcached's).
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
/// How often a thread does what concerns no client, and looks at the flag to stop.
const TICK: Duration = Duration::from_millis(100);
/// The number of that event.
const TICKER: u64 = u64::MAX;

/// What a server is told.
#[derive(Default)]
pub struct Options {
    /// Threads, at least one.
    pub threads: usize,
    /// Most clients at a time. Others are told so.
    pub clients_max: usize,
    /// After how many seconds a client that says nothing, and waits for nothing, is let go, if it is.
    pub idle_max_s: Option<u32>,
    /// The users that may log in, if clients must.
    pub users: Option<Users>,
    /// What `version` answers.
    pub version: String,
    /// Further rows of `stats settings`.
    pub settings: Vec<(&'static str, String)>,
    /// When its second 0 was, in nanoseconds of the machine's monotonic clock ([`monotonic_ns`]).
    pub began_ns: u64,
    /// Where the figures of `stats` are published, if another thread reads them.
    pub published: Option<Arc<Published>>,
}

impl Options {
    /// What a session is told, with the rows that `rows` writes for `stats`.
    fn world<'w>(
        &'w self,
        (now, unix_at_0): (Seconds, i64),
        addresses: Option<&'w Addresses>,
        rows: &'w dyn Fn(Rows, &mut Row<'_>),
    ) -> World<'w> {
        World {
            now,
            unix_at_0,
            addresses,
            out_bytes_max: OUT_BYTES_MAX,
            version: &self.version,
            users: self.users.as_ref(),
            rows,
        }
    }

    /// Writes the rows of `stats` that a session does not know.
    fn show(
        &self,
        rows: Rows,
        connections: &Connections,
        asker: Option<BorrowedFd<'_>>,
        now: Seconds,
        row: &mut Row<'_>,
    ) {
        match rows {
            Rows::General => {
                row("pid", &std::process::id());
                row("uptime", &now);
                row("pointer_size", &usize::BITS);
                row("max_connections", &self.clients_max);
                row("threads", &self.threads);
                connections.show(row);
            }
            Rows::Settings => {
                row("maxconns", &self.clients_max);
                self.settings.iter().for_each(|(name, value)| row(name, value));
            }
            Rows::Connections => connections.show_each(asker, now, row),
        }
    }
}

/// Serves clients until `stop` is set, or the cache has left its cluster.
///
/// # Errors
/// If a thread cannot be started, the kernel refuses to watch the listeners, or the memory that other caches read is lost. Then
/// `stop` is set.
///
/// # Panics
/// If there is to be no thread, or there are to be several in a cluster: one alone talks to the other caches.
pub fn serve(
    listeners: &[Listener],
    options: &Options,
    cache: Cache,
    cluster: Option<Cluster>,
    stop: &AtomicBool,
) -> io::Result<()> {
    assert!(options.threads > 0, "a thread serves");
    assert!(options.threads == 1 || cluster.is_none(), "one thread talks to the other caches");
    let store = Store { cache, counters: Counters::default(), connections: Connections::default() };
    let store = Mutex::new(store);
    let handed = (1..options.threads).map(|_| Handed::new()).collect::<io::Result<Vec<_>>>()?;
    let serve = |own, cluster| {
        let server = Server::new(listeners, options, &store, (own, &handed), cluster);
        let served = server.and_then(|mut server| server.run(stop));
        // If one cannot go on, none does.
        served.inspect_err(|_| stop.store(true, Ordering::Relaxed))
    };
    thread::scope(|scope| {
        let start = |own| {
            let serve = &serve;
            thread::Builder::new().name("clients".into()).spawn_scoped(scope, move || serve(Some(own), None))
        };
        let others = handed.iter().map(start).collect::<io::Result<Vec<_>>>();
        let others = others.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let own = serve(None, cluster);
        others.into_iter().map(|other| other.join().expect("it does not panic")).fold(own, Result::and)
    })
}

struct Server<'a> {
    /// None, but of the first thread.
    listeners: &'a [Listener],
    /// What the first thread hands to this one, if that is another.
    own: Option<&'a Handed>,
    /// By thread, but the first.
    handed: &'a [Handed],
    options: &'a Options,
    store: &'a Mutex<Store>,
    neighbours: Option<Neighbours>,
    /// By slot, the connections to the other caches.
    outgoing: Vec<Outgoing>,
    addresses: Option<Addresses>,
    news: Option<Box<dyn FnMut() -> News>>,
    has_left: bool,
    /// The epoch that it states once it has swept what it keeps no more.
    unstated: Option<u64>,
    epoll: OwnedFd,
    /// Its events are the ticks. A wait with a time limit would set a timer for each request, which costs half a µs of 34 on a
    /// virtual machine.
    ticker: OwnedFd,
    /// By number, which the kernel gives with each event: listeners and other caches come before them.
    clients: Vec<Option<Client>>,
    lives: u64,
    /// Other caches for which there are commands to be written.
    unsent: Vec<usize>,
    /// Connections to this cache from other machines, of which it is not known yet that they are of the cluster; oldest first.
    unauthenticated: VecDeque<Unauthenticated>,
    /// When an unauthenticated connection was last complained of.
    complained: Option<Instant>,
    /// The Unix time of second 0, as of the last tick.
    unix_at_0: i64,
    free: Vec<usize>,
    /// When it was last looked which clients are idle.
    looked_at: Seconds,
    /// Whether it does not accept now, of the thread that accepts.
    is_paused: bool,
    read: Vec<u8>,
    out: Vec<u8>,
    errands: Errands,
}

impl<'a> Server<'a> {
    fn new(
        listeners: &'a [Listener],
        options: &'a Options,
        store: &'a Mutex<Store>,
        (own, handed): (Option<&'a Handed>, &'a [Handed]),
        cluster: Option<Cluster>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ticker = ticker()?;
        epoll::add(&epoll, &ticker, EventData::new_u64(TICKER), EventFlags::IN)?;
        let listeners = if own.is_some() { &[] } else { listeners };
        if let Some(own) = own {
            epoll::add(&epoll, &own.bell, EventData::new_u64(0), EventFlags::IN)?;
        }
        for (number, listener) in listeners.iter().enumerate() {
            listener.prepare()?;
            let address = format!("{}:{listener}", if listener.is_unix() { "unix" } else { "tcp" });
            locked(store).connections.add(listener.as_fd(), address, None, 0);
            epoll::add(&epoll, listener, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let capacity = cluster.as_ref().map_or(0, |cluster| cluster.capacity);
        let (neighbours, addresses, news) = match cluster {
            Some(Cluster { neighbours, addresses, news, .. }) => (Some(neighbours), Some(addresses), news),
            None => (None, None, None),
        };
        if let (Some(neighbours), Some(_)) = (&neighbours, &news) {
            locked(store).cache.keep_only(neighbours.share(), capacity);
        }
        let way = |slot| neighbours.as_ref().and_then(|neighbours| neighbours.way(slot));
        let mut server = Server {
            listeners,
            own,
            handed,
            options,
            store,
            outgoing: (0..capacity).map(|slot| Outgoing::new(way(slot))).collect(),
            neighbours,
            unstated: addresses.as_ref().map(|addresses| addresses.version),
            addresses,
            news,
            has_left: false,
            epoll,
            ticker,
            lives: 0,
            unsent: Vec::new(),
            unauthenticated: VecDeque::new(),
            complained: None,
            unix_at_0: 0,
            clients: Vec::new(),
            free: Vec::new(),
            looked_at: 0,
            is_paused: false,
            read: vec![0; READ_BYTES],
            out: Vec::with_capacity(OUT_BYTES_MAX),
            errands: Errands::default(),
        };
        server.tick()?;
        Ok(server)
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        while !(stop.load(Ordering::Relaxed) || self.has_left) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut is_due = false;
            for event in &events {
                if event.data.u64() == TICKER {
                    is_due = true;
                    continue;
                }
                let number = event.data.u64() as usize;
                let behind_listeners = number.checked_sub(self.before_peers());
                match behind_listeners.map(|number| number.checked_sub(self.outgoing.len()).ok_or(number)) {
                    None => match self.own {
                        None => self.accept(number)?,
                        Some(own) => self.take_handed(own),
                    },
                    Some(Err(peer)) => self.on_peer(peer, event.flags),
                    Some(Ok(client)) => self.on_client(client, event.flags),
                }
            }
            if is_due {
                // The kernel sets a timer anew when it is read.
                rustix::io::read(&self.ticker, &mut [0; 8])?;
                self.tick()?;
            }
            self.send_to_peers();
        }
        Ok(())
    }

    /// Events before those of other caches: those of listeners, or of what is handed to this thread.
    fn before_peers(&self) -> usize {
        self.listeners.len() + usize::from(self.own.is_some())
    }

    fn store(&self) -> MutexGuard<'a, Store> {
        locked(self.store)
    }

    /// Does what concerns no client.
    fn tick(&mut self) -> io::Result<()> {
        self.unix_at_0 = unix_at_0(self.now());
        self.let_idle_go();
        if self.own.is_some() {
            // The first thread does the rest for all.
            return Ok(());
        }
        // Another thread's client may have gone, or somebody else may have freed descriptors.
        self.set_paused(false)?;
        self.publish();
        match self.news.as_mut().map_or(News::Nothing, |news| news()) {
            News::Nothing => {}
            News::Roster(roster) => self.adopt(roster),
            News::Left => self.has_left = true,
        }
        let (now, mut store) = (self.now(), self.store());
        store.cache.sweep(now);
        if store.cache.is_swept()
            && let Some(epoch) = self.unstated.take()
        {
            store.cache.state_epoch(epoch);
        }
        drop(store);
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.tick(&mut locked(self.store).cache, Time(monotonic_ns()));
        }
        self.tick_peers(Instant::now());
        if self.store().cache.is_lost() {
            let lost =
                "the region with its items was removed, or changed by another process: start the cache again";
            return Err(io::Error::other(lost));
        }
        Ok(())
    }

    /// Lets clients go that have been silent for too long, once a second.
    fn let_idle_go(&mut self) {
        let (Some(idle_max_s), now) = (self.options.idle_max_s, self.now()) else { return };
        if mem::replace(&mut self.looked_at, now) == now {
            return;
        }
        for number in 0..self.clients.len() {
            let is_idle = |client: &Client| {
                let is_client = matches!(client.talk, Talk::Commands(_));
                is_client && !client.waits() && now.saturating_sub(client.heard_at) > idle_max_s
            };
            if self.clients[number].as_ref().is_some_and(is_idle)
                && let Some(client) = self.clients[number].take()
            {
                self.store().connections.idle += 1;
                self.keep(number, client, EventFlags::IN, Ok(After::Gone));
            }
        }
    }

    /// Publishes the figures, if another thread reads them.
    fn publish(&mut self) {
        let Some(published) = &self.options.published else { return };
        let (now, mut store) = (self.now(), self.store());
        let Store { cache, counters, connections } = &mut *store;
        let rows = |rows, row: &mut Row<'_>| self.options.show(rows, connections, None, now, row);
        let world = self.options.world((now, self.unix_at_0), None, &rows);
        published.publish(&mut Host { cache, counters, world: &world, neighbours: self.neighbours.as_mut() });
    }

    fn now(&self) -> Seconds {
        neighbours::second(self.options.began_ns, monotonic_ns())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        for _ in 0..ACCEPTS {
            let is_for_caches = self.listeners[listener].is_for_caches();
            let stream = match self.accept_one(&self.listeners[listener]) {
                Ok(Some(stream)) => stream,
                Ok(None) => continue,
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
            let turn = self.store().connections.accepted as usize % self.options.threads;
            match turn.checked_sub(1) {
                Some(other) if !is_for_caches => self.handed[other].give(stream)?,
                _ if self.admit(stream, is_for_caches).is_err() => return self.set_paused(true),
                _ => {}
            }
        }
        Ok(())
    }

    /// Serves those that the first thread has handed to this one.
    fn take_handed(&mut self, handed: &Handed) {
        for stream in handed.take() {
            // For want of memory: the client is let go.
            _ = self.admit(stream, false);
        }
    }

    /// Serves a client from now on.
    fn admit(&mut self, stream: Stream, is_for_caches: bool) -> io::Result<()> {
        let number = self.free.pop().unwrap_or(self.clients.len());
        let data = self.data_of(number);
        if let Err(error) = epoll::add(&self.epoll, &stream, data, EventFlags::IN) {
            self.free.extend((number < self.clients.len()).then_some(number));
            self.store().connections.open -= 1;
            return Err(error.into());
        }
        self.lives += 1;
        let ([address, accepted_at], now) = (stream.ends(), self.now());
        self.store().connections.add(stream.as_fd(), address, Some(accepted_at), now);
        if !stream.is_open() {
            self.admit_unauthenticated(number, self.lives);
        }
        let talk = if is_for_caches { Talk::Frames } else { Talk::Commands(Session::new()) };
        let client = Client::new(stream, talk, self.lives, self.now());
        if number == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[number] = Some(client);
        Ok(())
    }

    /// Accepts a client. `None` if there are as many as may be, which it is told.
    fn accept_one(&self, listener: &Listener) -> io::Result<Option<Stream>> {
        let mut stream = listener.accept()?;
        let connections = &mut self.store().connections;
        connections.accepted += 1;
        if !listener.is_for_caches() && connections.open >= self.options.clients_max as u64 {
            connections.rejected += 1;
            // If it does not take that at once, its connection just ends. Over TLS it cannot: it has not shaken hands.
            _ = stream.write(TOO_MANY);
            return Ok(None);
        }
        connections.open += 1;
        Ok(Some(stream))
    }

    /// Stops accepting, or goes on with it.
    fn set_paused(&mut self, is_paused: bool) -> io::Result<()> {
        if self.is_paused == is_paused {
            return Ok(());
        }
        self.is_paused = is_paused;
        {
            let connections = &mut self.store().connections;
            connections.is_paused = is_paused;
            connections.paused += u64::from(is_paused);
        }
        let flags = if is_paused { EventFlags::empty() } else { EventFlags::IN };
        let is_for_clients = |listener: &Listener| !listener.is_for_caches();
        let listeners = self.listeners.iter().enumerate();
        for (number, listener) in listeners.filter(|(_, listener)| is_for_clients(listener)) {
            epoll::modify(&self.epoll, listener, EventData::new_u64(number as u64), flags)?;
        }
        Ok(())
    }

    fn on_client(&mut self, number: usize, flags: EventFlags) {
        let Some(mut client) = self.clients.get_mut(number).and_then(Option::take) else { return };
        if self.options.idle_max_s.is_some() {
            client.heard_at = self.now();
        }
        let awaited = client.awaited();
        let done = if client.is_blocked() || client.is_next {
            self.go_on(number, &mut client)
        } else if client.waits() {
            Ok(After::Stays)
        } else {
            self.read(number, &mut client)
        };
        if let Err(error) = &done
            && !client.stream.is_open()
        {
            self.complain(error);
        }
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
        {
            let connections = &mut self.store().connections;
            connections.remove(client.stream.as_fd());
            connections.open -= 1;
        }
        // Dropping the client closes its socket, and so ends the kernel's watch.
        drop(client);
        self.free.push(number);
        if self.is_paused {
            _ = self.set_paused(false);
        }
    }

    /// Watches for what the client waits for now.
    fn watch(&self, number: usize, client: &Client) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, &client.stream, self.data_of(number), client.awaited())?)
    }

    /// What the kernel gives with events of a client.
    fn data_of(&self, number: usize) -> EventData {
        EventData::new_u64((self.before_peers() + self.outgoing.len() + number) as u64)
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

    /// Goes on with a client that did not take its answers, or has let others go first.
    fn go_on(&mut self, number: usize, client: &mut Client) -> io::Result<After> {
        client.is_next = false;
        self.send(client)?;
        if client.is_blocked() || client.waits() {
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
        let mut used = 0;
        loop {
            let mut store = self.store();
            // Not from before the lock: what another thread has found expired meanwhile is so for all.
            let now = self.now();
            let Store { cache, counters, connections } = &mut *store;
            let asker = client.stream.as_fd();
            connections.heard(asker, now);
            let rows = |rows, row: &mut Row<'_>| self.options.show(rows, connections, Some(asker), now, row);
            let addresses = self.addresses.as_ref();
            let world = self.options.world((now, self.unix_at_0), addresses, &rows);
            let is_client = matches!(client.talk, Talk::Commands(_));
            let mut host = Host {
                cache,
                counters,
                world: &world,
                // What another cache asks is for this one.
                neighbours: self.neighbours.as_mut().filter(|_| is_client),
            };
            let fed = match &mut client.talk {
                Talk::Commands(session) => session.feed(&input[used..], &mut host, &mut self.out),
                Talk::Frames => frame::feed(&input[used..], &mut host, &mut self.out),
            };
            drop(store);
            used += fed.consumed;
            client.is_ending = matches!(fed.wants, Wants::Close);
            client.wanted = if let Wants::Input(bytes) = fed.wants { bytes } else { 0 };
            if is_client && let Some(neighbours) = &mut self.neighbours {
                neighbours.take_errands(&mut self.errands);
                self.ask(number, client);
            }
            if client.waits() || !client.output.is_empty() {
                // It is answered in the order of its commands.
                client.append(&self.out);
                self.out.clear();
                self.send(client)?;
            } else {
                mem::swap(&mut client.output, &mut self.out);
                let sent = self.send(client);
                if client.output.is_empty() {
                    mem::swap(&mut client.output, &mut self.out);
                }
                sent?;
            }
            if client.is_blocked() {
                return Ok((After::Stays, used));
            }
            match fed.wants {
                // While a home is asked for one item, it may be asked for the next. What is read in its memory must wait until
                // what it was asked to change is done.
                Wants::Answer | Wants::Room if client.waits() => {
                    let are_asked = self.neighbours.as_ref().is_some_and(Neighbours::are_asked);
                    if !are_asked || client.waits_for_much() {
                        return Ok((After::Stays, used));
                    }
                }
                Wants::Answer => {}
                // It takes them as fast as they come. Others' commands come first.
                Wants::Room => {
                    client.is_next = true;
                    return Ok((After::Stays, used));
                }
                Wants::Input(_) => return Ok((After::Stays, used)),
                Wants::Close if client.waits() => return Ok((After::Stays, used)),
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
        client.stream.flush()
    }
}

/// A timer that expires each [`TICK`].
fn ticker() -> io::Result<OwnedFd> {
    let ticker = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
    let each = Itimerspec { it_interval: tick, it_value: tick };
    timerfd_settime(&ticker, TimerfdTimerFlags::empty(), &each)?;
    Ok(ticker)
}

/// Seconds since 1970 at second 0 of a cache that is at `now`.
fn unix_at_0(now: Seconds) -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs() as i64 - i64::from(now)
}

#[cfg(test)]
mod tests;
