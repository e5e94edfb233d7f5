//! The node's side of the socket schemes: a thread that answers requests for the node's record (Vaidyanathan et al.
//! 2006, 3.1).
//!
//! Everything is bounded: connections, the memory of each, and the work for one before the next one's turn. A peer that
//! breaks the protocol, or does not read its answers, loses its connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sidelong_fabric::Region;
use sidelong_layout::{Hot, RegionKind};
use sidelong_os::monotonic_ns;
use sidelong_state::{COPIES_MAX, Publisher};

use super::frame::{self, REQUEST_BYTES, Refused};
use super::is_transient;
use crate::Error;
use crate::recorder::Recorder;
use crate::snapshot::{Snapshot, incarnation_of};

/// Most front ends connected at once.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// If all places are taken, a connection that has been idle this long gives way to a new one.
const IDLE_NS_MAX: u64 = 10_000_000_000;
/// Most connections accepted, or requests of one connection answered, before other sockets are served.
const TURN_MAX: usize = 16;
/// Pause after the system cannot accept, because it is out of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;
const THREAD: &str = "load-responder";

/// The source of a responder's answers.
#[derive(Debug)]
pub enum ResponderKind {
    /// The record that a [`Keeper`](crate::Keeper) keeps in this region: socket-async.
    Async(Region),
    /// A record made at each request: socket-sync. The acknowledgement is the one in the region, where a
    /// [`Keeper`](crate::Keeper) without a recorder publishes it.
    Sync(Region, Box<Recorder>),
}

/// The responder's thread, which ends when this is dropped. Any process that can connect may read the record, which
/// holds no secret.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    waker: OwnedFd,
    refused: AtomicU64,
}

impl Responder {
    /// Listens at `address`; port 0 picks a free port.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the region is not a load region.
    pub fn listen(address: SocketAddr, kind: ResponderKind) -> Result<Self, Error> {
        let answers = Answers::new(kind)?;
        let listening = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listening)?;
        listener.set_nonblocking(true).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;

        let watch = |errno: Errno| Error::Watch(errno.into());
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(watch)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watch)?;
        for (fd, name) in [(listener.as_fd(), LISTENER), (waker.as_fd(), WAKER)] {
            epoll::add(&epoll, fd, EventData::new_u64(name), EventFlags::IN).map_err(watch)?;
        }
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), waker, refused: AtomicU64::new(0) });
        let connections = std::iter::repeat_with(|| None).take(CONNECTIONS_MAX).collect();
        let mut work = Work { shared: Arc::clone(&shared), epoll, listener, connections, answers };
        let run = move || {
            if let Err(error) = work.run() {
                tracing::error!(%address, %error, "load requests are no longer answered");
            }
        };
        let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { name: THREAD, source })?;
        Ok(Responder { address, shared, thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections refused or closed for an error: too many connections, malformed or foreign frames, unread answers.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Cannot fail: the counter holds far more than one wake-up.
        let _ = rustix::io::write(&self.shared.waker, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(address = %self.address, "the load responder had panicked");
        }
    }
}

/// The source of the answers.
#[derive(Debug)]
struct Answers {
    region: Region,
    made: Option<Made>,
}

/// Makes a record at each request.
#[derive(Debug)]
struct Made {
    incarnation: u64,
    publisher: Publisher,
    recorder: Box<Recorder>,
}

impl Answers {
    fn new(kind: ResponderKind) -> Result<Self, Error> {
        let (region, recorder) = match kind {
            ResponderKind::Async(region) => (region, None),
            ResponderKind::Sync(region, recorder) => (region, Some(recorder)),
        };
        let incarnation = incarnation_of(&region, RegionKind::Load)?;
        let publisher = Publisher::new(incarnation as u32);
        Ok(Answers { region, made: recorder.map(|recorder| Made { incarnation, publisher, recorder }) })
    }

    fn answer(&mut self) -> Snapshot {
        let kept = self.kept();
        let Some(made) = &mut self.made else { return kept };
        let now_ns = monotonic_ns();
        made.recorder.look(now_ns);
        let mut hot = [0; Hot::WORDS];
        for (index, value) in made.publisher.publish(made.recorder.hot(now_ns)) {
            hot[index] = value;
        }
        Snapshot { incarnation: made.incarnation, hot, ack: kept.ack }
    }

    /// The record in the region. After some attempts it may still be torn, which the asking side rejects.
    fn kept(&self) -> Snapshot {
        let mut snapshot = Snapshot::of_region(&self.region);
        for _ in 1..COPIES_MAX {
            if self.made.is_some() || Hot::validated(&snapshot.hot).is_ok() {
                break;
            }
            snapshot = Snapshot::of_region(&self.region);
        }
        snapshot
    }
}

/// The state of the thread.
struct Work {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    answers: Answers,
}

struct Connection {
    stream: TcpStream,
    request: [u8; REQUEST_BYTES],
    filled: usize,
    heard_ns: u64,
}

impl Work {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(CONNECTIONS_MAX + 2);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    place => self.serve(place as usize),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..TURN_MAX {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(reason) = self.admit(stream) {
                        tracing::debug!(%peer, reason, "a load reader was refused");
                        self.shared.refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a load reader could not be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream) -> Result<(), &'static str> {
        let now_ns = monotonic_ns();
        let place = self.place(now_ns).ok_or("all places are taken")?;
        let data = EventData::new_u64(place as u64);
        let watched = (stream.set_nonblocking(true))
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| Ok(epoll::add(&self.epoll, &stream, data, EventFlags::IN)?));
        watched.map_err(|_| "it cannot be watched")?;
        let connection = Connection { stream, request: [0; REQUEST_BYTES], filled: 0, heard_ns: now_ns };
        self.connections[place] = Some(connection);
        Ok(())
    }

    /// A free place, or that of the connection that has been idle longest, if for too long.
    fn place(&self, now_ns: u64) -> Option<usize> {
        if let Some(free) = self.connections.iter().position(Option::is_none) {
            return Some(free);
        }
        let heard = |connection: &Option<Connection>| connection.as_ref().map_or(0, |c| c.heard_ns);
        let (place, heard_ns) =
            self.connections.iter().map(heard).enumerate().min_by_key(|(_, heard)| *heard)?;
        (now_ns.saturating_sub(heard_ns) > IDLE_NS_MAX).then_some(place)
    }

    fn serve(&mut self, place: usize) {
        let Some(connection) = &mut self.connections[place] else { return };
        match connection.serve(&mut self.answers) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => {
                tracing::debug!(%error, "a load reader's connection was ended");
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.connections[place] = None; // closing it also unregisters it
    }
}

impl Connection {
    /// Answers the requests that have arrived.
    fn serve(&mut self, answers: &mut Answers) -> io::Result<()> {
        for _ in 0..TURN_MAX {
            match self.stream.read(&mut self.request[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.filled == REQUEST_BYTES {
                self.filled = 0;
                self.heard_ns = monotonic_ns();
                self.answer(answers)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, answers: &mut Answers) -> io::Result<()> {
        let (snapshot, refused) = match frame::parse_request(&self.request) {
            Ok(number) => (frame::response(number, &answers.answer()), None),
            // Tells the peer this layout, in an invalid record.
            Err(refused @ Refused::Layout(_)) => {
                let nothing = Snapshot { incarnation: 0, hot: [0; Hot::WORDS], ack: 0 };
                (frame::response(0, &nothing), Some(refused))
            }
            Err(refused) => return Err(io::Error::new(io::ErrorKind::InvalidData, refused)),
        };
        // An answer that does not fit means that earlier ones were not read.
        match self.stream.write(&snapshot) {
            Ok(count) if count == snapshot.len() => {}
            Ok(_) => return Err(io::Error::new(io::ErrorKind::WriteZero, "it does not read its answers")),
            Err(error) => return Err(error),
        }
        refused.map_or(Ok(()), |refused| Err(io::Error::new(io::ErrorKind::InvalidData, refused)))
    }
}
