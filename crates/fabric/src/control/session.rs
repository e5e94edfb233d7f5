//! The asking side of a session: one request at a time, each with a deadline.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sidelong_layout::RegionKind;

use crate::control::cause::Cause;
use crate::control::secret::{Nonces, Role, Seal, Secret, random_nonce};
use crate::control::wire::{self, DECLINED, DONE, FIND};
use crate::host::check_name;
use crate::initiator::TIMEOUT_MAX;
use crate::key::Locator;
use crate::tcp::prepare;
use crate::{Access, Error, Key};

/// A session with an [`Endpoint`](crate::control::Endpoint). What the endpoint keeps for it lasts until this is dropped.
pub struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    incoming: Seal,
    outgoing: Seal,
    /// An answer is missing, so none can be told from it.
    broken: bool,
}

impl Session {
    /// Opens one with the endpoint at `address`; each side proves to the other that it knows `secret`.
    ///
    /// # Errors
    /// [`Error::Connect`] where nobody can be reached within `timeout`, [`Error::Control`] where one side refuses the other.
    pub fn open(address: SocketAddr, secret: &Secret, timeout: Duration) -> Result<Session, Error> {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        greet(address, secret, deadline).map_err(|failed| failed.at(address))
    }

    /// Where it leads.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The key of the region `name` that the endpoint's process offers, which is of `kind` and `len` bytes and grants
    /// `access`.
    ///
    /// # Errors
    /// [`Error::NoKey`] where it offers none of that name, else as [`Session::exchange`].
    pub fn find(
        &mut self,
        name: &str,
        kind: RegionKind,
        len: usize,
        access: Access,
        timeout: Duration,
    ) -> Result<Key, Error> {
        check_name(name)?;
        let text = match self.exchange(FIND, name.as_bytes(), timeout) {
            Err(Error::Declined { address, .. }) => {
                return Err(Error::NoKey {
                    name: name.to_owned(),
                    place: format!("the process at {address}"),
                });
            }
            answer => answer?,
        };
        let locator = std::str::from_utf8(&text).ok().and_then(Locator::from_text);
        let mut locator = locator.ok_or(Error::Control { address: self.peer, cause: Cause::Malformed })?;
        // One that listens on all addresses is where it was asked.
        locator.at_host(self.peer.ip());
        Ok(Key { name: name.to_owned(), kind, len, access, locator })
    }

    /// Asks what the endpoint's process serves for `kind`, and waits for the answer for `timeout` at most.
    ///
    /// # Errors
    /// [`Error::Declined`] where it says no, after which the session goes on. After all others it is over:
    /// [`Error::Connect`] where the connection ends or no answer comes, [`Error::Control`] where what comes is not one.
    ///
    /// # Panics
    /// Where `body` is longer than [`BODY_BYTES_MAX`](crate::control::BODY_BYTES_MAX).
    pub fn exchange(&mut self, kind: u8, body: &[u8], timeout: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        if self.broken {
            return Err(Failed::Network(io::ErrorKind::NotConnected.into()).at(self.peer));
        }
        let (kind, answer) = self.ask(kind, body, deadline).map_err(|failed| {
            self.broken = true;
            // The endpoint lets go of what it keeps for us, though this value may stay for a while.
            let _ = self.stream.shutdown(Shutdown::Both);
            failed.at(self.peer)
        })?;
        match kind {
            DONE => Ok(answer),
            _ => {
                // It is shown to people: one line of a bounded length.
                let reason = String::from_utf8_lossy(&answer);
                let reason = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
                Err(Error::Declined { address: self.peer, reason })
            }
        }
    }

    /// Whether it is of no more use: the endpoint's process has closed it, or died. Does not wait.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0; 1];
        // Between two requests nothing may come: what does is not an answer to anything.
        let came = recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.broken || !matches!(came, Err(Errno::AGAIN | Errno::INTR))
    }

    fn ask(&mut self, kind: u8, body: &[u8], deadline: Instant) -> Result<(u8, Vec<u8>), Failed> {
        let mut request = Vec::new();
        wire::put_message(&mut request, &mut self.outgoing, kind, body);
        write(&mut self.stream, &request, deadline)?;
        let mut answer = vec![0; wire::HEADER_BYTES];
        read(&mut self.stream, &mut answer, deadline)?;
        let len = wire::message_bytes(answer.first_chunk().expect("it was read"))?;
        answer.resize(len, 0);
        read(&mut self.stream, &mut answer[wire::HEADER_BYTES..], deadline)?;
        match wire::open_message(&answer, &mut self.incoming)? {
            (kind @ (DONE | DECLINED), body) => Ok((kind, body.to_vec())),
            _ => Err(Failed::Refused(Cause::Malformed)),
        }
    }
}

/// Of the reason for which a request was declined.
const REASON_CHARS_MAX: usize = 256;

/// Readable when the session has ended.
#[cfg(feature = "verbs")]
impl std::os::fd::AsFd for Session {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.peer)
    }
}

fn greet(address: SocketAddr, secret: &Secret, deadline: Instant) -> Result<Session, Failed> {
    let mut stream = TcpStream::connect_timeout(&address, left(deadline)?)?;
    prepare(&stream)?;
    let asking = random_nonce()?;
    write(&mut stream, &wire::encode_hello(&asking), deadline)?;
    let mut challenge = [0; wire::CHALLENGE_BYTES];
    read(&mut stream, &mut challenge, deadline)?;
    let nonces = Nonces { asking, answering: wire::decode_challenge(&challenge)? };
    write(&mut stream, &secret.proof(Role::Asking, &nonces), deadline)?;
    let mut verdict = [0; wire::VERDICT_BYTES];
    read(&mut stream, &mut verdict, deadline)?;
    if !secret.is_proof(Role::Answering, &nonces, &wire::decode_verdict(&verdict)?) {
        return Err(Failed::Refused(Cause::Secret));
    }
    Ok(Session {
        stream,
        peer: address,
        incoming: secret.seal(Role::Answering, &nonces),
        outgoing: secret.seal(Role::Asking, &nonces),
        broken: false,
    })
}

/// Why the session does not begin or go on.
enum Failed {
    Network(io::Error),
    Refused(Cause),
}

impl Failed {
    fn at(self, address: SocketAddr) -> Error {
        match self {
            Failed::Network(source) => Error::Connect { address, source },
            Failed::Refused(cause) => Error::Control { address, cause },
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Network(error)
    }
}

impl From<Cause> for Failed {
    fn from(cause: Cause) -> Self {
        Failed::Refused(cause)
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) => again(error)?,
        }
    }
    Ok(())
}

fn read(stream: &mut TcpStream, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) => again(error)?,
        }
    }
    Ok(())
}

/// Whether it is tried again, until the deadline.
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
