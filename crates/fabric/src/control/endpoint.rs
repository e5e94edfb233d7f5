//! The endpoint's thread: sockets, readiness and deadlines around [`Dialogue`]s.
//!
//! Everything is bounded: sessions, unauthenticated connections, the time to complete a message, and the length of a message.
//!
//! An *unauthenticated* connection has yet to prove that it knows the secret. These and sessions are bounded apart,
//! and so are their two kinds: those that have sent no valid hello, which shows knowledge of the secret or a
//! recording, and those that have. A connection is always accepted. Where there are too many of a kind, the oldest of the
//! address that has most of them makes room. So a peer that knows the secret is in as soon as it has sent its two frames,
//! unless a kind's number of unauthenticated connections comes in between.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::listen;

use crate::control::cause::{Cause, Counts, Refusals};
use crate::control::dialogue::{Answers, Desk, Dialogue, Stage};
use crate::control::secret::Secret;
use crate::control::wire::{self, ENDED, MESSAGE_BYTES_MAX, SECRETS};
use crate::key::Locator;
use crate::service::{Service, Stop};
use crate::tcp::{prepare, timespec};
use crate::{Error, Key, RunDirectory};

/// Most sessions of one endpoint. A peer needs at most one for each of its links.
const SESSIONS_MAX: usize = 1024;
/// Most connections that wait to be accepted. The kernel drops more, and their peers try again after a second.
const BACKLOG: i32 = 1024;
/// Most unauthenticated connections of each kind.
const UNAUTHENTICATED_MAX: usize = 256;
/// Longest time to set up a session, to receive a message once it has begun, and to send an answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time without accepting after the system had no descriptors or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most connections accepted before other sockets are served.
const ACCEPTS_MAX: usize = 64;
/// Most bytes read from one connection before other sockets are served.
const READ_BYTES_MAX: usize = 4096;
/// Longest wait for this machine's own kernel to say whether anybody listens.
const CONNECT_MAX: Duration = Duration::from_millis(10);
/// Shortest time between two log lines about refusals.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Answers the requests of the cluster's other processes. Its thread lives until the last clone is dropped.
#[derive(Clone)]
pub struct Endpoint {
    server: Arc<Server>,
}

struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    service: Service,
}

struct Shared {
    secret: Secret,
    desk: Desk,
    refused: Counts,
}

impl Shared {
    /// Counts a refusal before the peer learns of it.
    fn count(&self, cause: Cause) -> Cause {
        self.refused.add(cause);
        cause
    }
}

impl Endpoint {
    /// Listens at `address` and answers every process that knows `secret`. Port 0 picks a free port.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn listen(address: SocketAddr, secret: Secret) -> Result<Endpoint, Error> {
        let own = secret.clone();
        let server = Server::start(address, secret).map_err(|source| Error::Listen { address, source })?;
        let endpoint = Endpoint { server: Arc::new(server) };
        endpoint.serve(SECRETS, move || {
            let own = own.clone();
            Box::new(move |_| Ok(own.ids().iter().flat_map(|id| id.0.to_be_bytes()).collect()))
        });
        Ok(endpoint)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Publishes `key` under its region's name, in place of an earlier one. Regions of shared memory or of a simulation
    /// cannot be reached through an endpoint and are not published.
    pub fn publish(&self, key: &Key) {
        if let Locator::Tcp { .. } | Locator::Verbs { .. } = key.locator {
            self.server.shared.desk.publish(&key.name, key.locator.clone());
        }
    }

    /// Publishes a region no more.
    pub fn withdraw(&self, region: &str) {
        self.server.shared.desk.withdraw(region);
    }

    /// Answers requests of `kind` from now on. For each session, `open` makes the answering function when the first
    /// such request arrives. That function runs on the endpoint's thread, so it must not block, and it must not own the
    /// endpoint.
    ///
    /// # Panics
    /// For the kind [`FIND`](crate::control::FIND).
    pub fn serve(&self, kind: u8, open: impl Fn() -> Answers + Send + Sync + 'static) {
        self.server.shared.desk.serve(kind, Box::new(open));
    }

    /// Tells whose processes on this machine have ended, of those that [held](RunDirectory::hold) their regions in `run`.
    pub fn witness(&self, run: RunDirectory) {
        self.serve(ENDED, move || {
            let run = run.clone();
            Box::new(move |asked| {
                let asked = std::str::from_utf8(asked).ok().and_then(|asked| asked.split_once(' '));
                let (address, region) = asked.ok_or("no address and region")?;
                let address: SocketAddr = address.parse().map_err(|_| "no address")?;
                let ended = run.ended(region).ok_or("it may live, or was never here")?;
                // It may have begun again with another run directory. The address is this machine's, as is this endpoint's.
                match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        Ok(ended.to_le_bytes().to_vec())
                    }
                    _ => Err("somebody listens there".to_owned()),
                }
            })
        });
    }

    /// Listens no more, and ends its sessions.
    pub fn close(&self) {
        self.server.service.end();
    }

    /// The sessions that it has refused.
    pub fn refused(&self) -> Refusals {
        self.server.shared.refused.read()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.server.address)
    }
}

impl Server {
    fn start(address: SocketAddr, secret: Secret) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // The standard library has it wait for 128, which a flood fills between two turns of the thread.
        listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { secret, desk: Desk::default(), refused: Counts::default() });
        let service = Service::start("sidelong-ctl", |stop| {
            let mut work = Work::new(Arc::clone(&shared), stop, listener);
            Ok(move || {
                if let Err(error) = work.run() {
                    tracing::error!(%address, %error, "the control endpoint has stopped answering");
                }
            })
        })?;
        Ok(Server { shared, address, service })
    }
}

/// The state of the thread.
struct Work {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    listener: TcpListener,
    /// Oldest first.
    connections: Vec<Connection>,
    /// No connection is accepted before this.
    accept_at: Option<Instant>,
    log: Log,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    dialogue: Dialogue,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Deadline of the message or answer in progress.
    deadline: Option<Instant>,
}

impl Work {
    fn new(shared: Arc<Shared>, stop: Arc<Stop>, listener: TcpListener) -> Work {
        Work { shared, stop, listener, connections: Vec::new(), accept_at: None, log: Log::default() }
    }

    fn run(&mut self) -> io::Result<()> {
        while !self.stop.is_said() {
            let ready = match self.wait() {
                Err(Errno::INTR) => continue,
                waited => waited?,
            };
            let now = Instant::now();
            // The first two are the waker and the listener.
            let mut ready = ready.into_iter().skip(2);
            let shared = Arc::clone(&self.shared);
            let mut refused = Vec::new();
            self.connections.retain_mut(|connection| {
                let ready = ready.next().is_some_and(|events| !events.is_empty());
                match connection.turn(ready, now, &shared) {
                    Ok(()) => true,
                    Err(Closed::Left) => false,
                    Err(Closed::Refused(cause)) => {
                        refused.push((connection.peer, cause));
                        false
                    }
                }
            });
            refused.into_iter().for_each(|(peer, cause)| self.log.refused(peer, cause, now));
            // One of them may have shown that the secret has changed, and nothing may happen for long.
            self.connections.retain(|connection| !connection.dialogue.is_outdated(&shared.secret));
            // A valid hello moves an unauthenticated connection to the other kind.
            self.make_room(Stage::Greeted, UNAUTHENTICATED_MAX, now);
            if self.accept_at.is_none_or(|at| at <= now) {
                self.accept_at = None;
                self.accept(now);
            }
        }
        Ok(())
    }

    /// Waits for something to do, and returns the readiness of each socket.
    fn wait(&self) -> Result<Vec<PollFlags>, Errno> {
        let listening = if self.accept_at.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut sockets =
            vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.listener, listening)];
        sockets.extend(self.connections.iter().map(|connection| {
            let wanted = if connection.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            PollFd::new(&connection.stream, wanted)
        }));
        let deadlines = self.connections.iter().map(|connection| connection.deadline);
        let next = deadlines.chain([self.accept_at]).flatten().min();
        let wait = next.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        poll(&mut sockets, wait.as_ref())?;
        Ok(sockets.iter().map(PollFd::revents).collect())
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            if self.accept_at.is_some() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    // A peer that gave up is no reason to pause; a system out of descriptors or memory is.
                    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                    if Errno::from_io_error(&error).is_some_and(|errno| short.contains(&errno)) {
                        self.accept_at = Some(now + ACCEPT_PAUSE);
                    }
                }
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, peer: SocketAddr, now: Instant) {
        let prepared = stream.set_nonblocking(true).and_then(|()| prepare(&stream));
        if let Err(error) = prepared {
            tracing::debug!(%peer, %error, "a connection could not be set up");
            return;
        }
        let sessions = self.connections.iter().filter(|connection| connection.stage() == Stage::Proven);
        if sessions.count() >= SESSIONS_MAX {
            self.turn_away(&mut stream, peer, now);
            return;
        }
        self.make_room(Stage::Silent, UNAUTHENTICATED_MAX - 1, now);
        self.connections.push(Connection {
            stream,
            peer,
            dialogue: Dialogue::new(peer.ip()),
            input: Vec::new(),
            output: Vec::new(),
            deadline: Some(now + WAIT_MAX),
        });
    }

    /// Leaves `most` connections at `stage`: the oldest of the address that has most of them go.
    fn make_room(&mut self, stage: Stage, most: usize, now: Instant) {
        let of_stage = |connection: &&Connection| connection.stage() == stage;
        let mut count = self.connections.iter().filter(of_stage).count();
        while count > most {
            let mut of_host: HashMap<IpAddr, usize> = HashMap::new();
            for connection in self.connections.iter().filter(of_stage) {
                *of_host.entry(host(connection.peer)).or_default() += 1;
            }
            let busiest = of_host.values().max().copied();
            let oldest = self.connections.iter().position(|connection| {
                connection.stage() == stage && of_host.get(&host(connection.peer)).copied() == busiest
            });
            let Some(oldest) = oldest else { return };
            let Connection { mut stream, peer, dialogue, .. } = self.connections.remove(oldest);
            match dialogue.stage() {
                Stage::Silent => self.turn_away(&mut stream, peer, now),
                // What follows a greeting is encrypted.
                _ => self.log.refused(peer, self.shared.count(Cause::TooMany), now),
            }
            count -= 1;
        }
    }

    /// Says that there is no room. If the peer does not read this, it sees the connection close.
    fn turn_away(&mut self, stream: &mut TcpStream, peer: SocketAddr, now: Instant) {
        let cause = self.shared.count(Cause::TooMany);
        let _ = stream.write(&wire::SESSION.encode_greeting(Err(cause)));
        self.log.refused(peer, cause, now);
    }
}

/// Whom a connection counts with: its address, of IPv6 the first half, which one host has to itself.
fn host(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

/// Why a connection ends.
enum Closed {
    /// The peer left, or the network failed, between two messages.
    Left,
    Refused(Cause),
}

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Self {
        Closed::Left
    }
}

impl Connection {
    fn stage(&self) -> Stage {
        self.dialogue.stage()
    }

    /// Progresses as far as the socket allows.
    fn turn(&mut self, ready: bool, now: Instant, shared: &Shared) -> Result<(), Closed> {
        if self.dialogue.is_outdated(&shared.secret) {
            return Err(Closed::Left);
        }
        if ready {
            self.drain()?;
            if self.output.is_empty() {
                self.fill(shared)?;
            }
            self.answer(shared)?;
        }
        // Between two messages a session may be idle for any time.
        let rests = self.input.is_empty() && self.output.is_empty() && self.stage() == Stage::Proven;
        self.deadline = if rests { None } else { self.deadline.or(Some(now + WAIT_MAX)) };
        match self.deadline {
            Some(deadline) if deadline <= now => Err(Closed::Refused(shared.count(Cause::Silent))),
            _ => Ok(()),
        }
    }

    /// Answers requests for as long as the peer takes the answers.
    fn answer(&mut self, shared: &Shared) -> Result<(), Closed> {
        loop {
            let before = self.input.len();
            let advanced =
                self.dialogue.advance(&mut self.input, &mut self.output, &shared.secret, &shared.desk);
            let advanced = advanced.map_err(|cause| Closed::Refused(shared.count(cause)));
            let drained = self.drain();
            advanced?;
            drained?;
            if self.input.len() == before || !self.output.is_empty() {
                return Ok(());
            }
            // The message is complete. The next one gets a new deadline, once the peer is proven.
            if self.stage() == Stage::Proven {
                self.deadline = None;
            }
        }
    }

    fn fill(&mut self, shared: &Shared) -> Result<(), Closed> {
        let mut bytes = [0; READ_BYTES_MAX];
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.input.len()).min(bytes.len());
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) if room > 0 && self.input.is_empty() => Err(Closed::Left),
            Ok(0) if room > 0 => Err(Closed::Refused(shared.count(Cause::Malformed))),
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn drain(&mut self) -> Result<(), Closed> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(Closed::Left),
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Logs refusals, many on one line.
#[derive(Default)]
struct Log {
    said_at: Option<Instant>,
    unsaid: u64,
}

impl Log {
    fn refused(&mut self, peer: SocketAddr, cause: Cause, now: Instant) {
        self.unsaid += 1;
        if self.said_at.is_none_or(|at| now.duration_since(at) >= LOG_EVERY) {
            let refused = std::mem::take(&mut self.unsaid);
            tracing::warn!(refused, last = %peer, %cause, "the control endpoint refuses a peer");
            self.said_at = Some(now);
        }
    }
}
