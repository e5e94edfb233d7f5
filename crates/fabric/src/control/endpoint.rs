//! The endpoint's thread: sockets, readiness and time around [`Dialogue`]s.
//!
//! Everything is bounded: the sessions, those among them that have proved nothing yet, the time for what was begun, a
//! message's length, and how many are turned away in a second.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::control::cause::{Cause, Counts, Refusals};
use crate::control::dialogue::{Answers, Desk, Dialogue};
use crate::control::secret::{Secret, random_nonce};
use crate::control::wire::{self, MESSAGE_BYTES_MAX};
use crate::service::{Service, Stop};
use crate::tcp::{prepare, timespec};
use crate::{Error, Key};

/// Sessions of one endpoint: one for each link of each peer at most.
const SESSIONS_MAX: usize = 1024;
/// Of these, such that have yet to prove that they know the secret.
const UNPROVEN_MAX: usize = 64;
/// How long a set-up may take, a message from its first byte to its last, and an answer to be taken.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Refusals in one [`WINDOW`]; then nobody is accepted until the next.
const REFUSALS_MAX: u32 = 64;
const WINDOW: Duration = Duration::from_millis(100);
/// Connections accepted before the others' turn.
const ACCEPTS_MAX: usize = 16;
/// Bytes taken from one connection before the others' turn.
const READ_BYTES_MAX: usize = 4096;
/// Between two lines in the log about who was refused.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Answers the other processes of the cluster. Its thread lives until the last clone is dropped.
#[derive(Clone)]
pub struct Endpoint {
    server: Arc<Server>,
}

struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    _service: Service,
}

struct Shared {
    secret: Secret,
    desk: Desk,
    refused: Counts,
}

impl Shared {
    /// Counts a refusal, before whoever is refused is told.
    fn count(&self, cause: Cause) -> Cause {
        self.refused.add(cause);
        cause
    }
}

impl Endpoint {
    /// Answers at `address` whoever knows `secret`; port 0 takes a free one.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub fn listen(address: SocketAddr, secret: Secret) -> Result<Endpoint, Error> {
        let server = Server::start(address, secret).map_err(|source| Error::Listen { address, source })?;
        Ok(Endpoint { server: Arc::new(server) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Lets others find `key` by its region's name, in place of an earlier one. A region of shared memory or of a
    /// simulation cannot be reached through an endpoint, and is not published.
    pub fn publish(&self, key: &Key) {
        if let Some(locator) = key.locator.to_text() {
            self.server.shared.desk.publish(&key.name, locator);
        }
    }

    /// Answers requests of `kind` from here on: `open` makes for each session what answers them, when the first comes.
    /// It runs on the endpoint's thread, so it must not wait; and it must not hold the endpoint.
    ///
    /// # Panics
    /// For the kind [`FIND`](crate::control::FIND).
    pub fn serve(&self, kind: u8, open: impl Fn() -> Answers + Send + Sync + 'static) {
        self.server.shared.desk.serve(kind, Box::new(open));
    }

    /// Whom it has turned away.
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
        Ok(Server { shared, address, _service: service })
    }
}

/// What the thread works on.
struct Work {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    listener: TcpListener,
    connections: Vec<Connection>,
    /// Nobody is accepted before this.
    accept_at: Option<Instant>,
    /// When refusals were last counted from none, and how many there have been since.
    window: (Instant, u32),
    log: Log,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    dialogue: Dialogue,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When what was begun must be done.
    deadline: Option<Instant>,
}

impl Work {
    fn new(shared: Arc<Shared>, stop: Arc<Stop>, listener: TcpListener) -> Work {
        let window = (Instant::now(), 0);
        Work { shared, stop, listener, connections: Vec::new(), accept_at: None, window, log: Log::default() }
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
            refused.into_iter().for_each(|(peer, cause)| self.refused(peer, cause, now));
            if self.accept_at.is_none_or(|at| at <= now) {
                self.accept_at = None;
                self.accept(now);
            }
        }
        Ok(())
    }

    /// Waits for something to do; what each socket is ready for.
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
                    // A peer that gave up is no reason to wait; a system that has no more to give is.
                    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                    if Errno::from_io_error(&error).is_some_and(|errno| short.contains(&errno)) {
                        self.accept_at = Some(now + WINDOW);
                    }
                }
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, peer: SocketAddr, now: Instant) {
        let prepared = stream.set_nonblocking(true).and_then(|()| prepare(&stream));
        let nonce = match prepared.and_then(|()| random_nonce()) {
            Ok(nonce) => nonce,
            Err(error) => {
                tracing::debug!(%peer, %error, "a connection could not be set up");
                return;
            }
        };
        let unproven = self.connections.iter().filter(|connection| connection.dialogue.is_unproven()).count();
        if self.connections.len() >= SESSIONS_MAX || unproven >= UNPROVEN_MAX {
            // Whoever does not take it finds out all the same.
            let _ = stream.write(&wire::encode_challenge(Err(self.shared.count(Cause::TooMany))));
            self.refused(peer, Cause::TooMany, now);
            return;
        }
        self.connections.push(Connection {
            stream,
            peer,
            dialogue: Dialogue::new(nonce),
            input: Vec::new(),
            output: Vec::new(),
            deadline: Some(now + WAIT_MAX),
        });
    }

    fn refused(&mut self, peer: SocketAddr, cause: Cause, now: Instant) {
        self.log.refused(peer, cause, now);
        if now.duration_since(self.window.0) >= WINDOW {
            self.window = (now, 0);
        }
        self.window.1 += 1;
        if self.window.1 >= REFUSALS_MAX {
            self.accept_at = Some(self.window.0 + WINDOW);
        }
    }
}

/// Why a connection is over.
enum Closed {
    /// Its peer left, or the network failed, between two messages.
    Left,
    Refused(Cause),
}

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Self {
        Closed::Left
    }
}

impl Connection {
    /// Goes on as far as the socket allows.
    fn turn(&mut self, ready: bool, now: Instant, shared: &Shared) -> Result<(), Closed> {
        if ready {
            self.drain()?;
            if self.output.is_empty() {
                self.fill(shared)?;
            }
            self.answer(shared)?;
        }
        // A session may rest for as long as it likes, between two messages.
        let rests = self.input.is_empty() && self.output.is_empty() && !self.dialogue.is_unproven();
        self.deadline = if rests { None } else { self.deadline.or(Some(now + WAIT_MAX)) };
        match self.deadline {
            Some(deadline) if deadline <= now => Err(Closed::Refused(shared.count(Cause::Silent))),
            _ => Ok(()),
        }
    }

    /// Answers what has come, for as long as the answers are taken.
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
            // What was begun is done; what follows has its own time, once the peer has proved itself.
            if !self.dialogue.is_unproven() {
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

/// Says who was refused, once in a while.
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
