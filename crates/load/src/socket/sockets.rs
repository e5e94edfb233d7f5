//! The front end's side of the socket schemes: asks all nodes at once, and waits once for all of them.
//!
//! A node has at most one request under way. One that does not answer in time is still asked and heard, but waited for
//! no more until it has answered again, so that a node that hangs costs the others one wait and not one at each look.
//! One that stays silent for too long, or answers with what is no record, is left and connected to anew, ever
//! more seldom.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::frame::{self, RESPONSE_BYTES, Refused};
use super::{is_transient, timespec};
use crate::Error;
use crate::reading::{Limits, Reading, Source, Status, Track};
use crate::retry::Retry;

/// A connection that has not come about, or not answered a request, for longer than this is given up.
const SILENCE_NS_MAX: u64 = 1_000_000_000;
/// Sockets looked at together.
const EVENTS_MAX: usize = 256;

/// Looks up where a node's responder listens; see [`find_address`](crate::find_address).
pub type Finder = Box<dyn Fn(&str) -> Result<SocketAddr, Error> + Send>;

/// Readings by requests to [`Responder`](crate::Responder)s: socket-async and socket-sync, which differ on the node only.
pub struct Sockets {
    find: Finder,
    limits: Limits,
    epoll: OwnedFd,
    peers: Vec<Peer>,
}

impl Sockets {
    /// Asks the nodes of these names, whose responders `find` finds. None is looked for before the first refresh.
    ///
    /// # Errors
    /// [`Error::Watch`] where the kernel's event queue cannot be had.
    pub fn new(find: Finder, nodes: impl IntoIterator<Item = String>, limits: Limits) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| Error::Watch(errno.into()))?;
        let peers = nodes.into_iter().map(Peer::new).collect();
        Ok(Sockets { find, limits, epoll, peers })
    }

    /// Asks everyone who can be asked; how many are waited for.
    fn ask(&mut self, now_ns: u64) -> usize {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let data = EventData::new_u64(index as u64);
            match peer.ask(&self.find, &self.epoll, data, now_ns, &self.limits) {
                Ok(asked) => peer.awaited = asked && peer.prompt,
                Err(lost) => peer.lose(&lost),
            }
        }
        self.peers.iter().filter(|peer| peer.awaited).count()
    }

    /// Takes answers until all that are waited for have come, or for as long as one waits. Returns the time then.
    fn hear(&mut self, now_ns: u64, mut waited_for: usize) -> u64 {
        let began = Instant::now();
        // Not kept from call to call: an event may hold a pointer, which no thread may hand to another.
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
            // Also at the deadline there was one look for what had come by then.
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
                peer.retry.succeeded();
            }
        }
    }

    fn problem(&self, node: usize) -> Option<&str> {
        self.peers[node].problem.as_deref()
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
    /// Whether the refresh under way waits for it.
    awaited: bool,
    /// Whether a refresh waits for it at all: not after it was waited for in vain, until it answers again.
    prompt: bool,
    track: Track,
    retry: Retry,
    problem: Option<String>,
}

/// The connection to it.
enum Line {
    Closed,
    Connecting { stream: TcpStream, since_ns: u64 },
    Open(Open),
}

impl Peer {
    fn new(name: String) -> Self {
        Peer {
            name,
            line: Line::Closed,
            awaited: false,
            prompt: true,
            track: Track::default(),
            retry: Retry::default(),
            problem: None,
        }
    }

    /// Sees to it that a request is under way, or a connection; whether one is.
    fn ask(
        &mut self,
        find: &Finder,
        epoll: &OwnedFd,
        data: EventData,
        now_ns: u64,
        limits: &Limits,
    ) -> Result<bool, Lost> {
        let silent = |since_ns: u64| now_ns.saturating_sub(since_ns) > SILENCE_NS_MAX;
        match &mut self.line {
            Line::Closed if !self.retry.is_due(now_ns) => return Ok(false),
            Line::Closed => {
                self.retry.tried(now_ns, limits);
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
            self.track.missed(); // Until it has answered.
        }
        Ok(true)
    }

    /// Its socket is ready for something; whether an answer has come.
    fn hear(&mut self, epoll: &OwnedFd, data: EventData, now_ns: u64) -> Result<bool, Lost> {
        if let Line::Open(open) = &mut self.line {
            let Some(frame) = open.receive()? else { return Ok(false) };
            let (number, snapshot) = frame::parse_response(&frame)?;
            if open.asked_ns.take().is_none() || number != open.number {
                return Err(Lost::NotAsked);
            }
            (self.prompt, self.problem) = (true, None);
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
        self.line = Line::Closed; // Closing the socket ends its watch.
        self.prompt = false;
        self.track.lost();
        let problem = lost.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(node = self.name, problem, "the load responder cannot be asked");
            self.problem = Some(problem);
        }
    }
}

/// Begins to connect.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// An open connection, with at most one request under way.
struct Open {
    stream: TcpStream,
    /// Of the last request.
    number: u64,
    /// When it was sent, while it is under way.
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
        // With nothing under way the socket's buffer is empty: all of it goes, or the connection is broken.
        self.stream.write_all(&frame::request(self.number))?;
        self.asked_ns = Some(now_ns);
        Ok(())
    }

    /// An answer, once it is whole.
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
