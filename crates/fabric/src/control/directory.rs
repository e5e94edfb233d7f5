//! [`Directory`] by asking: whoever offers a region tells its key.
//!
//! Whoever looks for keys has others to look after. So a session is opened by a thread of its own, at most one for each
//! peer: a machine that is gone costs those who ask for it a short wait now and then.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sidelong_layout::RegionKind;

use crate::control::cause::{Cause, Counts, Refusals};
use crate::control::endpoint::Endpoint;
use crate::control::secret::Secret;
use crate::control::session::Session;
use crate::{Access, Directory, Error, Key};

/// How long an answer is waited for.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// How long a session may take to open.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How long whoever first asked for it waits for that; then it is looked for at the next question.
const OPENING_WAIT: Duration = Duration::from_millis(10);
/// How long one that could not be reached, or refused us, is let be: the first time, doubled up to the last. Until then
/// whoever asks for it hears the same again at once.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Finds keys by asking the processes that offer the regions, over one session with each that is kept.
#[derive(Debug)]
pub struct ControlDirectory {
    secret: Secret,
    own: Option<Endpoint>,
    /// Which endpoint tells of a region.
    table: HashMap<String, SocketAddr>,
    peers: BTreeMap<SocketAddr, Mutex<Peer>>,
    refused: Counts,
}

#[derive(Debug, Default)]
struct Peer {
    session: Option<Session>,
    /// One that is being opened.
    opening: Option<Receiver<Result<Session, Error>>>,
    /// Until when it is let be, and why.
    rest: Option<(Instant, Trouble)>,
    pause: Duration,
}

/// An error that can be told again.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Refused(Cause),
    Network(io::ErrorKind, Option<i32>),
}

impl ControlDirectory {
    /// Asks for each region of `table` the endpoint of that address.
    pub fn new(secret: Secret, table: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        let table: HashMap<_, _> = table.into_iter().collect();
        let peers = table.values().map(|address| (*address, Mutex::default())).collect();
        ControlDirectory { secret, own: None, table, peers, refused: Counts::default() }
    }

    /// Publishes keys at this process's own endpoint.
    pub fn publishing(self, own: Endpoint) -> Self {
        ControlDirectory { own: Some(own), ..self }
    }

    /// How often an endpoint refused this process, or it an endpoint.
    pub fn refused(&self) -> Refusals {
        self.refused.read()
    }

    /// Asks the process that tells of the region `name` what it serves for `kind`, as [`Session::exchange`].
    ///
    /// # Errors
    /// Where nobody tells of it, or that one cannot be reached or declines.
    pub fn exchange(&self, name: &str, kind: u8, body: &[u8]) -> Result<Vec<u8>, Error> {
        self.ask(name, |session, wait| session.exchange(kind, body, wait))
    }

    fn ask<T>(
        &self,
        name: &str,
        request: impl Fn(&mut Session, Duration) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let no_key = || Error::NoKey { name: name.to_owned(), place: "the cluster file".to_owned() };
        let address = *self.table.get(name).ok_or_else(no_key)?;
        let mut peer = lock(&self.peers[&address]);
        peer.ask(address, &self.secret, &self.refused, request)
    }
}

impl Directory for ControlDirectory {
    /// At this process's own endpoint.
    ///
    /// # Panics
    /// Where it has none: [`ControlDirectory::publishing`] gives it one.
    fn publish(&self, key: &Key) -> Result<(), Error> {
        self.own.as_ref().expect("who publishes has an endpoint").publish(key);
        Ok(())
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        self.ask(name, |session, wait| session.find(name, kind, len, access, wait))
    }
}

impl Peer {
    /// Asks over the session that there is, or a new one where its other side has left.
    fn ask<T>(
        &mut self,
        address: SocketAddr,
        secret: &Secret,
        refused: &Counts,
        request: impl Fn(&mut Session, Duration) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let now = Instant::now();
        if let Some((until, trouble)) = self.rest
            && now < until
        {
            return Err(trouble.at(address));
        }
        self.rest = None;
        let asked = match self.session(address, secret) {
            Ok(Some(session)) => request(session, WAIT_MAX),
            Ok(None) => return Err(Trouble::Network(io::ErrorKind::TimedOut, None).at(address)),
            Err(error) => Err(error),
        };
        match &asked {
            // An answer, though it may be no.
            Ok(_) | Err(Error::NoKey { .. } | Error::Declined { .. }) => self.pause = Duration::ZERO,
            Err(error) => {
                if let Error::Control { cause, .. } = error {
                    refused.add(*cause);
                }
                self.session = None;
                self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
                self.rest = Trouble::of(error).map(|trouble| (Instant::now() + self.pause, trouble));
            }
        }
        asked
    }

    /// The one that is open; none while it is being opened.
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

/// Has a thread open a session.
fn open(address: SocketAddr, secret: Secret) -> Result<Receiver<Result<Session, Error>>, Error> {
    let (tell, told) = sync_channel(1);
    let thread = std::thread::Builder::new().name("sidelong-ask".to_owned());
    let spawned = thread.spawn(move || {
        // Whoever wanted it may be gone.
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

/// A peer is whole whatever panicked while it was asked.
fn lock(peer: &Mutex<Peer>) -> MutexGuard<'_, Peer> {
    peer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
