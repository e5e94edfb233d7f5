//! The target's thread: sockets, readiness and deadlines around [`Session`]s.
//!
//! Everything is bounded: connections, the silence of a new one, buffers, and the work for one connection before the
//! next one's turn.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use sidelong_layout::EDGES_MAX;

use crate::service::{Service, Stop};
use crate::tcp::fifo::Fifo;
use crate::tcp::session::{Ended, INPUT_BYTES, OUTPUT_BYTES, Registry, Session};

/// Most connections to one target: one for each edge, and some for people. Each takes about 84 KiB.
const CONNECTIONS_MAX: usize = EDGES_MAX + 1024;
/// Most connections accepted before other sockets are served.
const ACCEPTS_MAX: usize = 16;
/// Rounds of answering and sending for one connection before other sockets are served.
const ROUNDS_MAX: usize = 8;
/// Sockets handled at once.
const EVENTS_MAX: usize = 256;
/// Longest wait for a connection's hello.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Interval for closing silent connections, and for accepting again after the system ran out of descriptors.
const TICK: Duration = Duration::from_millis(100);

const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// A running thread, which stops when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    service: Service,
}

#[derive(Debug)]
struct Shared {
    registry: Registry,
    refused: AtomicU64,
}

impl Server {
    pub(super) fn start(address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { registry: Registry::default(), refused: AtomicU64::new(0) });
        let service = Service::start("sidelong-tcp", |stop| {
            let mut work = Work::new(Arc::clone(&shared), stop, listener)?;
            Ok(move || {
                if let Err(error) = work.run() {
                    tracing::error!(%address, %error, "the tcp backend has stopped answering");
                }
            })
        })?;
        Ok(Server { shared, address, service })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers no more.
    pub(super) fn close(&self) {
        self.service.end();
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    pub(super) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

/// The state of the thread.
struct Work {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    epoll: OwnedFd,
    listener: TcpListener,
    /// Whether it accepts connections; not for a while after the system ran out of descriptors.
    accepting: bool,
    /// When `tick` next has something to do.
    tick_at: Option<Instant>,
    connections: Vec<Option<Connection>>,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    session: Session,
    input: Fifo,
    output: Fifo,
    interest: epoll::EventFlags,
}

impl Work {
    fn new(shared: Arc<Shared>, stop: Arc<Stop>, listener: TcpListener) -> io::Result<Work> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), readable)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(WAKER), readable)?;
        Ok(Work { shared, stop, epoll, listener, accepting: true, tick_at: None, connections: Vec::new() })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.stop.is_said() {
            events.clear();
            let wait = self.tick_at.map(|at| timespec(at.saturating_duration_since(Instant::now())));
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    WAKER => {}
                    slot => self.serve(slot as usize),
                }
            }
            if self.tick_at.is_some_and(|at| at <= Instant::now()) {
                self.tick()?;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    // A peer that gave up is no reason to pause; a system out of descriptors or memory is.
                    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                    if Errno::from_io_error(&error).is_some_and(|errno| short.contains(&errno)) {
                        return self.accept_when(false);
                    }
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        if slot >= CONNECTIONS_MAX {
            self.refuse(peer, "there are too many connections");
            return;
        }
        let interest = epoll::EventFlags::IN;
        let prepared = stream.set_nonblocking(true).and_then(|()| prepare(&stream)).and_then(|()| {
            Ok(epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), interest)?)
        });
        if let Err(error) = prepared {
            tracing::debug!(%peer, %error, "a connection could not be set up");
            return;
        }
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[slot] = Some(Connection {
            stream,
            peer,
            since: Instant::now(),
            session: Session::new(peer.ip()),
            input: Fifo::new(INPUT_BYTES),
            output: Fifo::new(OUTPUT_BYTES),
            interest,
        });
        self.tick_later();
    }

    fn serve(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        let served = connection.serve(&self.shared.registry, &self.epoll, slot);
        let Err(reason) = served else { return };
        let peer = connection.peer;
        self.connections[slot] = None;
        match reason {
            Closed::Ended(Ended::Malformed) => self.refuse(peer, "a frame was malformed"),
            Closed::Ended(Ended::Refused) => self.refuse(peer, "the hello was refused"),
            Closed::Ended(Ended::Revoked) => tracing::debug!(%peer, "the region was revoked during a read"),
            Closed::Lost(error) => tracing::debug!(%peer, %error, "the connection ended"),
        }
    }

    /// Timed work: closes silent connections, and accepts again.
    fn tick(&mut self) -> io::Result<()> {
        self.tick_at = None;
        for slot in 0..self.connections.len() {
            let Some(connection) = &self.connections[slot] else { continue };
            if !connection.session.is_silent() {
                continue;
            }
            if connection.since.elapsed() < HELLO_WAIT {
                self.tick_later();
            } else {
                let peer = connection.peer;
                self.connections[slot] = None;
                self.refuse(peer, "no hello came");
            }
        }
        if self.accepting { Ok(()) } else { self.accept_when(true) }
    }

    fn tick_later(&mut self) {
        self.tick_at.get_or_insert_with(|| Instant::now() + TICK);
    }

    fn accept_when(&mut self, accepting: bool) -> io::Result<()> {
        let interest = if accepting { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), interest)?;
        self.accepting = accepting;
        if !accepting {
            self.tick_later();
        }
        Ok(())
    }

    fn refuse(&self, peer: SocketAddr, reason: &str) {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%peer, reason, "a connection was refused");
    }
}

/// Why a connection ends.
enum Closed {
    Ended(Ended),
    Lost(io::Error),
}

impl Connection {
    fn serve(&mut self, registry: &Registry, epoll: &OwnedFd, slot: usize) -> Result<(), Closed> {
        self.input.fill(&mut self.stream).map_err(Closed::Lost)?;
        let mut full = true;
        for _ in 0..ROUNDS_MAX {
            let advanced = self.session.advance(&mut self.input, &mut self.output, registry);
            let drained = self.output.drain(&mut self.stream);
            full = advanced.map_err(Closed::Ended)?;
            drained.map_err(Closed::Lost)?;
            if !full || !self.output.is_empty() {
                break;
            }
        }
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, self.input.room() > 0);
        interest.set(epoll::EventFlags::OUT, full || !self.output.is_empty());
        if interest != self.interest {
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::modify(epoll, &self.stream, data, interest).map_err(|errno| Closed::Lost(errno.into()))?;
            self.interest = interest;
        }
        Ok(())
    }
}

/// A timeout for `epoll::wait`, which rounds up to milliseconds.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let seconds = duration.as_secs().min(u64::from(u16::MAX));
    Timespec { tv_sec: seconds as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Sets the options of both ends' sockets: no delay of small packets, and an end within about 10 s if the other machine
/// vanishes.
///
/// # Errors
/// If the system refuses one.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 5)?;
    Ok(())
}
