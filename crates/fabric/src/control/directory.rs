//! A [`Directory`] that asks the process which exposes a region for its key.
//!
//! A thread that looks for keys must not be held up by one unreachable machine. So a thread of its own opens each
//! session, at most one for each peer, and the caller waits for it only briefly.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use sidelong_layout::RegionKind;

use crate::control::cause::{Cause, Counts, Refusals};
use crate::control::endpoint::Endpoint;
use crate::control::secret::{Secret, SecretId};
use crate::control::session::Session;
use crate::control::wire::ENDED;
use crate::{Access, Directory, Error, Key};

/// Longest wait for an answer.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Longest time to open a session.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How long the first caller waits for a session to open. Later callers find it open.
const OPENING_WAIT: Duration = Duration::from_millis(10);
/// Pause after a peer was unreachable or refused this process: the first pause, doubled up to the last. Callers get the
/// same error at once meanwhile.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The longest pause after a refusal, which costs little.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(100);
/// Longest time for which the parts of a machine are asked whether another has ended there, besides the last answer.
const WITNESSES_WAIT: Duration = Duration::from_millis(10);

/// Finds keys by asking the processes that expose the regions. It keeps one session with each.
#[derive(Debug)]
pub struct ControlDirectory {
    secret: Secret,
    own: Option<Endpoint>,
    known: RwLock<Known>,
    refused: Counts,
}

/// Which endpoint to ask.
#[derive(Debug, Default)]
struct Known {
    /// For each region.
    table: HashMap<String, SocketAddr>,
    /// How often the table has changed.
    moves: u64,
    peers: BTreeMap<SocketAddr, Arc<Mutex<Peer>>>,
}

#[derive(Debug, Default)]
struct Peer {
    session: Option<Session>,
    /// A session that is being opened.
    opening: Option<Receiver<Result<Session, Error>>>,
    /// The end of the pause, and the error that caused it.
    rest: Option<(Instant, Trouble)>,
    pause: Duration,
}

/// An error that can be reported more than once.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Refused(Cause),
    Network(io::ErrorKind, Option<i32>),
}

impl ControlDirectory {
    /// A directory that asks, for each region in `table`, the endpoint at that address.
    pub fn new(secret: Secret, table: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        let directory =
            ControlDirectory { secret, own: None, known: RwLock::default(), refused: Counts::default() };
        directory.adopt(table);
        directory
    }

    /// Asks by another table from now on. Sessions with endpoints that are in both stay open.
    pub fn adopt(&self, table: impl IntoIterator<Item = (String, SocketAddr)>) {
        let table: HashMap<_, _> = table.into_iter().collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut known.peers);
        let peers = table.values().map(|address| (*address, before.remove(address).unwrap_or_default()));
        // Several regions may have one endpoint.
        let mut now = BTreeMap::new();
        for (address, peer) in peers {
            now.entry(address).or_insert(peer);
        }
        let moves = known.moves + u64::from(known.table != table);
        *known = Known { table, moves, peers: now };
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it publish keys at this process's own endpoint.
    pub fn publishing(self, own: Endpoint) -> Self {
        ControlDirectory { own: Some(own), ..self }
    }

    /// Refusals on both sides: by the endpoints that it asked, and by itself.
    pub fn refused(&self) -> Refusals {
        self.refused.read()
    }

    /// Sends a request of `kind` to the process that exposes the region `name`, as [`Session::exchange`] does.
    ///
    /// # Errors
    /// If no process is known to expose it, or that process cannot be reached or declines.
    pub fn exchange(&self, name: &str, kind: u8, body: &[u8]) -> Result<Vec<u8>, Error> {
        self.ask(name, |session, wait| session.exchange(kind, body, wait))
    }

    /// The secrets that count for the process which exposes the region `name`.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn secrets(&self, name: &str) -> Result<Vec<SecretId>, Error> {
        self.ask(name, Session::secrets)
    }

    fn ask<T>(
        &self,
        name: &str,
        request: impl Fn(&mut Session, Duration) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let no_key = || Error::NoKey { name: name.to_owned(), place: "the cluster file".to_owned() };
        let (address, peer) = {
            let known = self.known();
            let address = *known.table.get(name).ok_or_else(no_key)?;
            (address, Arc::clone(&known.peers[&address]))
        };
        lock(&peer).ask(address, &self.secret, &self.refused, request)
    }

    /// Whether another part on the machine of `region` says that the process which exposed it has ended: nobody holds the region there, or
    /// listens at its address. That part looks when it is asked, so that a process which begins later finds all that was written before.
    /// `incarnation` is that of the process as last seen: the address may have gone over to a machine where an earlier one has ended.
    pub fn has_ended(&self, region: &str, incarnation: Option<u64>) -> bool {
        let known = self.known();
        let Some(of) = known.table.get(region).copied() else { return false };
        let beside = known.peers.iter().filter(|(address, _)| address.ip() == of.ip() && **address != of);
        let beside: Vec<_> = beside.map(|(address, peer)| (*address, Arc::clone(peer))).collect();
        drop(known);
        let began = Instant::now();
        let asked = format!("{of} {region}");
        let ask = |session: &mut Session, wait| session.exchange(ENDED, asked.as_bytes(), wait);
        let beside = beside.into_iter().take_while(|_| began.elapsed() < WITNESSES_WAIT);
        let mut answers = beside.filter_map(|(address, peer)| {
            let answer = lock(&peer).ask(address, &self.secret, &self.refused, ask).ok()?;
            Some(u64::from_le_bytes(answer.try_into().ok()?))
        });
        // The end of a later one proves that of all before.
        answers.any(|ended| incarnation.is_none_or(|seen| seen <= ended))
    }
}

impl Directory for ControlDirectory {
    /// Publishes at this process's own endpoint.
    ///
    /// # Panics
    /// If it has none: see [`ControlDirectory::publishing`].
    fn publish(&self, key: &Key) -> Result<(), Error> {
        self.own.as_ref().expect("a directory that publishes has an endpoint").publish(key);
        Ok(())
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        self.ask(name, |session, wait| session.find(name, kind, len, access, wait))
    }

    fn place(&self, name: &str) -> Option<SocketAddr> {
        self.known().table.get(name).copied()
    }

    fn moves(&self) -> u64 {
        self.known().moves
    }

    fn has_ended(&self, name: &str, incarnation: Option<u64>, _: Option<&Error>) -> bool {
        ControlDirectory::has_ended(self, name, incarnation)
    }
}

impl Peer {
    /// Asks over the existing session, or over a new one if the other side has closed it.
    fn ask<T>(
        &mut self,
        address: SocketAddr,
        secret: &Secret,
        refused: &Counts,
        request: impl Fn(&mut Session, Duration) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some((until, trouble)) = self.rest
            && Instant::now() < until
        {
            return Err(Error::Earlier(Box::new(trouble.at(address))));
        }
        // Its result then tells what was so when it began.
        let began_earlier = self.opening.is_some();
        let asked = match self.session(address, secret) {
            Ok(Some(session)) => request(session, WAIT_MAX),
            // Until the session is open or has failed, the previous error is the latest news.
            Ok(None) => {
                let slow = Trouble::Network(io::ErrorKind::TimedOut, None);
                let last = self.rest.map_or(slow, |(_, last)| last).at(address);
                return Err(Error::Earlier(Box::new(last)));
            }
            Err(error) => Err(error),
        };
        self.rest = None;
        match &asked {
            // The peer answered, even if it declined.
            Ok(_) | Err(Error::NoKey { .. } | Error::Declined { .. }) => self.pause = Duration::ZERO,
            Err(error) => {
                if let Error::Control { cause, .. } = error {
                    refused.add(*cause);
                }
                self.session = None;
                let longest = if error.found_nobody() { PAUSE_AFTER_REFUSAL } else { PAUSE.1 };
                self.pause = (self.pause * 2).clamp(PAUSE.0, longest);
                self.rest = Trouble::of(error).map(|trouble| (Instant::now() + self.pause, trouble));
            }
        }
        let is_earlier = |error: &Error| began_earlier && Trouble::of(error).is_some();
        asked.map_err(|error| if is_earlier(&error) { Error::Earlier(Box::new(error)) } else { error })
    }

    /// The open session, or `None` while one is being opened.
    fn session(&mut self, address: SocketAddr, secret: &Secret) -> Result<Option<&mut Session>, Error> {
        self.session = self.session.take().filter(|session| !session.is_closed());
        if self.session.is_none() {
            let (opening, wait) = match self.opening.take() {
                Some(opening) => (opening, Duration::ZERO),
                None => (open(address, secret.clone())?, OPENING_WAIT),
            };
            match opening.recv_timeout(wait) {
                Ok(opened) => self.session = Some(opened?),
                Err(RecvTimeoutError::Timeout) => self.opening = Some(opening),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Trouble::Network(io::ErrorKind::Other, None).at(address));
                }
            }
        }
        Ok(self.session.as_mut())
    }
}

/// Opens a session in a thread of its own.
fn open(address: SocketAddr, secret: Secret) -> Result<Receiver<Result<Session, Error>>, Error> {
    let (tell, told) = sync_channel(1);
    let thread = std::thread::Builder::new().name("sidelong-ask".to_owned());
    let spawned = thread.spawn(move || {
        // The caller may have gone.
        let _ = tell.send(Session::open(address, &secret, OPEN_MAX));
    });
    spawned.map(|_| told).map_err(|source| Error::Connect { address, source })
}

impl Trouble {
    fn of(error: &Error) -> Option<Trouble> {
        match error {
            Error::Control { cause, .. } => Some(Trouble::Refused(*cause)),
            Error::Connect { source, .. } => Some(Trouble::Network(source.kind(), source.raw_os_error())),
            _ => None,
        }
    }

    fn at(self, address: SocketAddr) -> Error {
        match self {
            Trouble::Refused(cause) => Error::Control { address, cause },
            Trouble::Network(kind, code) => {
                let source = code.map_or_else(|| kind.into(), io::Error::from_raw_os_error);
                Error::Connect { address, source }
            }
        }
    }
}

/// Locks despite poisoning: a peer is consistent even if a holder panicked.
fn lock(peer: &Mutex<Peer>) -> MutexGuard<'_, Peer> {
    peer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
