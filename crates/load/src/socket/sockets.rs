//! The front end's side of the socket schemes: asks all nodes at once, and waits once for all of them.
//!
//! A node has at most one request in flight. A node that does not answer in time is still asked, but not waited for
//! until it has answered again. So a node that hangs costs the others one wait, not one at each sample. A node that
//! stays silent for too long, or sends an invalid record, is disconnected and reconnected at growing intervals.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sidelong_fabric::{Backoff, Problem};
use sidelong_layout::Time;

use super::frame::{self, RESPONSE_BYTES, Refused};
use super::{is_transient, timespec};
use crate::Error;
use crate::reading::{Limits, Reading, Source, Status, Track};

/// Longest time to connect or to answer; then the connection is given up.
const SILENCE_NS_MAX: u64 = 1_000_000_000;
/// Sockets handled at once.
const EVENTS_MAX: usize = 256;

/// Finds the address of a node's responder; see [`find_address`](crate::find_address).
pub type Finder = Box<dyn Fn(&str) -> Result<SocketAddr, Error> + Send>;

/// Readings by requests to [`Responder`](crate::Responder)s: socket-async and socket-sync, which differ only on the
/// node.
pub struct Sockets {
    find: Finder,
    limits: Limits,
    epoll: OwnedFd,
    peers: Vec<Peer>,
}

impl Sockets {
    /// A source that asks the nodes of these names, whose responders `find` locates. It looks for none before the first
    /// refresh.
    ///
    /// # Errors
    /// [`Error::Watch`] if the kernel gives no event queue.
    pub fn new(find: Finder, nodes: impl IntoIterator<Item = String>, limits: Limits) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| Error::Watch(errno.into()))?;
        let peers = nodes.into_iter().map(|name| Peer::new(name, &limits)).collect();
        Ok(Sockets { find, limits, epoll, peers })
    }

    /// Sends all requests that can be sent; returns the number of nodes to wait for.
    fn ask(&mut self, now_ns: u64) -> usize {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let data = EventData::new_u64(index as u64);
            match peer.ask(&self.find, &self.epoll, data, now_ns) {
                Ok(asked) => peer.awaited = asked && peer.prompt,
                Err(lost) => peer.lose(&lost),
            }
        }
        self.peers.iter().filter(|peer| peer.awaited).count()
    }

    /// Takes answers until all awaited ones have arrived or the wait ends. Returns the time then.
    fn hear(&mut self, now_ns: u64, mut waited_for: usize) -> u64 {
        let began = Instant::now();
        // Not kept between calls: an event may hold a pointer, which may not move between threads.
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let left = self.limits.wait.saturating_sub(began.elapsed());
            let left = if waited_for > 0 { left } else { Duration::ZERO };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "answers cannot be waited for");
                    break;
                }
            }
            let heard_ns = now_ns.saturating_add(began.elapsed().as_nanos() as u64);
            for event in &events {
                let peer = &mut self.peers[event.data.u64() as usize];
                let done = match peer.hear(&self.epoll, event.data, heard_ns) {
                    Ok(answered) => answered,
                    Err(lost) => {
                        peer.lose(&lost);
                        true
                    }
                };
                if done && std::mem::take(&mut peer.awaited) {
                    waited_for -= 1;
                }
            }
            // At the deadline, answers that have already arrived are still taken.
            if waited_for == 0 || left.is_zero() {
                break;
            }
        }
        now_ns.saturating_add(began.elapsed().as_nanos() as u64)
    }
}

impl Source for Sockets {
    fn refresh(&mut self, now_ns: u64, into: &mut [Reading]) {
        assert_eq!(into.len(), self.peers.len(), "a reading for each node");
        let waited_for = self.ask(now_ns);
        let now_ns = self.hear(now_ns, waited_for);
        for (peer, reading) in self.peers.iter_mut().zip(into) {
            peer.prompt &= !std::mem::take(&mut peer.awaited);
            *reading = peer.track.reading(now_ns, &self.limits);
            if reading.status == Status::Fresh {
                peer.retry.succeeded(Time::from_ns(now_ns));
            }
        }
    }

    fn problem(&self, node: usize) -> Option<&str> {
        self.peers[node].problem.text()
    }
}

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    NotFound(#[from] Error),
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("no answer for {} ms", SILENCE_NS_MAX / 1_000_000)]
    Silent,
    #[error("an answer that was not asked for")]
    NotAsked,
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A node.
struct Peer {
    name: String,
    line: Line,
    /// Whether the current refresh waits for it.
    awaited: bool,
    /// Whether refreshes wait for it: not after a wait in vain, until it answers again.
    prompt: bool,
    track: Track,
    retry: Backoff,
    problem: Problem,
}

/// The connection to a node.
enum Line {
    Closed,
    Connecting { stream: TcpStream, since_ns: u64 },
    Open(Open),
}

impl Peer {
    fn new(name: String, limits: &Limits) -> Self {
        Peer {
            name,
            line: Line::Closed,
            awaited: false,
            prompt: true,
            track: Track::default(),
            retry: Backoff::new((limits.retry_min, limits.retry_max)),
            problem: Problem::default(),
        }
    }

    /// Sends a request, or starts to connect; returns whether one is in progress.
    fn ask(&mut self, find: &Finder, epoll: &OwnedFd, data: EventData, now_ns: u64) -> Result<bool, Lost> {
        let now = Time::from_ns(now_ns);
        let silent = |since_ns: u64| now_ns.saturating_sub(since_ns) > SILENCE_NS_MAX;
        match &mut self.line {
            Line::Closed if !self.retry.is_due(now) => return Ok(false),
            Line::Closed => {
                self.retry.failed(now);
                let stream = connect(find(&self.name)?)?;
                epoll::add(epoll, &stream, data, EventFlags::OUT).map_err(io::Error::from)?;
                self.line = Line::Connecting { stream, since_ns: now_ns };
            }
            Line::Connecting { since_ns, .. } if silent(*since_ns) => return Err(Lost::Silent),
            Line::Connecting { .. } => {}
            Line::Open(open) => match open.asked_ns {
                Some(asked_ns) if silent(asked_ns) => return Err(Lost::Silent),
                Some(_) => {}
                None => open.ask(now_ns)?,
            },
        }
        if let Line::Open(_) = self.line {
            self.track.missed(); // until it has answered
        }
        Ok(true)
    }

    /// Handles readiness of its socket; returns whether an answer has arrived.
    fn hear(&mut self, epoll: &OwnedFd, data: EventData, now_ns: u64) -> Result<bool, Lost> {
        if let Line::Open(open) = &mut self.line {
            let Some(frame) = open.receive()? else { return Ok(false) };
            let (number, snapshot) = frame::parse_response(&frame)?;
            if open.asked_ns.take().is_none() || number != open.number {
                return Err(Lost::NotAsked);
            }
            self.prompt = true;
            self.problem.clear();
            let torn = self.track.see(&snapshot, now_ns);
            if torn {
                open.ask(now_ns)?;
            }
            return Ok(!torn);
        }
        if let Line::Connecting { stream, .. } = std::mem::replace(&mut self.line, Line::Closed) {
            if let Some(error) = stream.take_error()? {
                return Err(error.into());
            }
            stream.set_nodelay(true)?;
            epoll::modify(epoll, &stream, data, EventFlags::IN).map_err(io::Error::from)?;
            let mut open = Open::new(stream);
            open.ask(now_ns)?;
            self.line = Line::Open(open);
        }
        Ok(false)
    }

    fn lose(&mut self, lost: &Lost) {
        self.line = Line::Closed; // closing the socket also unregisters it
        self.prompt = false;
        self.track.lost();
        if self.problem.is_news(lost, false) {
            tracing::warn!(node = self.name, problem = %lost, "the load responder cannot be asked");
        }
    }
}

/// Starts to connect.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// An open connection, with at most one request in flight.
struct Open {
    stream: TcpStream,
    /// Number of the last request.
    number: u64,
    /// When it was sent, while it is in flight.
    asked_ns: Option<u64>,
    answer: [u8; RESPONSE_BYTES],
    filled: usize,
}

impl Open {
    fn new(stream: TcpStream) -> Self {
        Open { stream, number: 0, asked_ns: None, answer: [0; RESPONSE_BYTES], filled: 0 }
    }

    fn ask(&mut self, now_ns: u64) -> io::Result<()> {
        self.number += 1;
        // With nothing in flight the socket's buffer is empty. So all of it is sent, or the connection is broken.
        self.stream.write_all(&frame::request(self.number))?;
        self.asked_ns = Some(now_ns);
        Ok(())
    }

    /// Returns an answer, once it is complete.
    fn receive(&mut self) -> Result<Option<[u8; RESPONSE_BYTES]>, Lost> {
        match self.stream.read(&mut self.answer[self.filled..]) {
            Ok(0) => Err(Lost::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) if self.asked_ns.is_none() => Err(Lost::NotAsked),
            Ok(count) if self.filled + count < RESPONSE_BYTES => {
                self.filled += count;
                Ok(None)
            }
            Ok(_) => {
                self.filled = 0;
                Ok(Some(self.answer))
            }
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
