//! The asking side of a session: one request at a time, each with a deadline.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sidelong_layout::RegionKind;

use crate::control::cause::Cause;
use crate::control::noise::{Channel, Handshake};
use crate::control::secret::{Key, Secret, SecretId};
use crate::control::wire::{self, DECLINED, DONE, FIND, LENGTH_BYTES, OPENING_BYTES, SECRETS};
use crate::key::Locator;
use crate::limits::TIMEOUT_MAX;
use crate::region::check_name;
use crate::tcp::prepare;
use crate::{Access, Error};

/// A session with an [`Endpoint`](crate::control::Endpoint). What the endpoint holds for the session is released when
/// this is dropped.
pub struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    channel: Channel,
    /// Set when an answer was missed, after which requests and answers no longer match.
    broken: bool,
}

impl Session {
    /// Opens a session with the endpoint at `address`. Each side proves to the other that it knows `secret`.
    ///
    /// # Errors
    /// [`Error::Connect`] if the endpoint cannot be reached within `timeout`, [`Error::Control`] if one side refuses
    /// the other.
    pub fn open(address: SocketAddr, secret: &Secret, timeout: Duration) -> Result<Session, Error> {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        let key = secret.asking();
        let opened = match greet(address, &key, deadline) {
            Err(Failed::Refused(Cause::Secret)) => match secret.turn(key.id) {
                Some(other) => greet(address, &other, deadline),
                None => Err(Cause::Secret.into()),
            },
            opened => opened,
        };
        opened.map_err(|failed| failed.at(address))
    }

    /// The endpoint's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Asks for the key of the region `name`, of `kind` and `len` bytes, that grants `access`.
    ///
    /// # Errors
    /// [`Error::NoKey`] if the process exposes no region of that name, otherwise as [`Session::exchange`].
    pub fn find(
        &mut self,
        name: &str,
        kind: RegionKind,
        len: usize,
        access: Access,
        timeout: Duration,
    ) -> Result<crate::Key, Error> {
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
        // A target that listens on all addresses is reached at the address asked.
        locator.at_host(self.peer.ip());
        Ok(crate::Key { name: name.to_owned(), kind, len, access, locator })
    }

    /// The secrets that count for the process.
    ///
    /// # Errors
    /// As [`Session::exchange`].
    pub fn secrets(&mut self, timeout: Duration) -> Result<Vec<SecretId>, Error> {
        let told = self.exchange(SECRETS, b"", timeout)?;
        let (ids, _) = told.as_chunks();
        Ok(ids.iter().map(|id| SecretId(u64::from_be_bytes(*id))).collect())
    }

    /// Sends a request of `kind` and waits for the answer, for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::Declined`] if the process declines; the session remains usable. Every other error ends the session:
    /// [`Error::Connect`] if the connection ends or no answer arrives, [`Error::Control`] if the answer is invalid.
    ///
    /// # Panics
    /// If `body` is longer than [`BODY_BYTES_MAX`](crate::control::BODY_BYTES_MAX).
    pub fn exchange(&mut self, kind: u8, body: &[u8], timeout: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        if self.broken {
            return Err(Failed::Network(io::ErrorKind::NotConnected.into()).at(self.peer));
        }
        let (kind, answer) = self.ask(kind, body, deadline).map_err(|failed| {
            self.broken = true;
            // The endpoint then releases what it holds for this session, though this value may live on.
            let _ = self.stream.shutdown(Shutdown::Both);
            failed.at(self.peer)
        })?;
        match kind {
            DONE => Ok(answer),
            _ => {
                // People read the reason, so it is cut to one line of bounded length.
                let reason = String::from_utf8_lossy(&answer);
                let reason = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
                Err(Error::Declined { address: self.peer, reason })
            }
        }
    }

    /// Whether the other side has closed the session or died, or an answer was missed. Does not wait.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0; 1];
        // No bytes may arrive between two requests: they would answer nothing.
        let came = recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.broken || !matches!(came, Err(Errno::AGAIN | Errno::INTR))
    }

    fn ask(&mut self, kind: u8, body: &[u8], deadline: Instant) -> Result<(u8, Vec<u8>), Failed> {
        let mut request = Vec::new();
        wire::put_message(&mut request, &mut self.channel, kind, body);
        write(&mut self.stream, &request, deadline)?;
        let mut length = [0; LENGTH_BYTES];
        read(&mut self.stream, &mut length, deadline)?;
        let mut answer = vec![0; wire::sealed_bytes(length)?];
        read(&mut self.stream, &mut answer, deadline)?;
        match wire::open_message(&answer, &mut self.channel)? {
            answer @ (DONE | DECLINED, _) => Ok(answer),
            _ => Err(Failed::Refused(Cause::Malformed)),
        }
    }
}

/// Longest reason for a declined request, in characters.
const REASON_CHARS_MAX: usize = 256;

/// Readable once the session has ended.
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

fn greet(address: SocketAddr, key: &Key, deadline: Instant) -> Result<Session, Failed> {
    let mut stream = TcpStream::connect_timeout(&address, left(deadline)?)?;
    prepare(&stream)?;
    let (handshake, message) = Handshake::begin(key, wire::SESSION.prologue);
    write(&mut stream, &wire::SESSION.encode_hello(&message), deadline)?;
    let mut greeting = [0; wire::HELLO_BYTES];
    // A greeting of another version may be shorter.
    let (opening, rest) = greeting.split_first_chunk_mut::<OPENING_BYTES>().expect("it is longer");
    read(&mut stream, opening, deadline)?;
    wire::SESSION.check_opening(opening)?;
    read(&mut stream, rest, deadline)?;
    let mut channel = handshake.finish(wire::handshake(&greeting))?;
    // The hello might be a replay; this message cannot be one.
    write(&mut stream, &channel.seal(&[]), deadline)?;
    Ok(Session { stream, peer: address, channel, broken: false })
}

/// Why a session cannot start or continue.
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

/// Turns errors that are worth a retry before the deadline into `Ok`.
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
