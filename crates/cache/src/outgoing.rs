//! A connection to another cache, which carries out commands on the items whose home it is.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::frame;
use crate::neighbours::Language;

/// The longest wait for an answer. After that it is not known whether the command was carried out.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts to connect. Commands fail at once meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A client that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    /// Its number, and which of the clients that had it.
    pub(crate) client: (usize, u64),
    until: Instant,
}

/// Commands on their way to one cache, and the clients that wait for the answers, which come in that order.
pub(crate) struct Outgoing {
    path: PathBuf,
    stream: Option<UnixStream>,
    /// Bytes that it has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    waiting: VecDeque<Waiting>,
    /// No attempt to connect before.
    not_before: Instant,
}

impl Outgoing {
    /// To the cache that listens at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Outgoing {
            path,
            stream: None,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            waiting: VecDeque::new(),
            not_before: Instant::now(),
        }
    }

    /// Its socket, to be watched.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(UnixStream::as_fd)
    }

    /// Whether it has yet to take commands.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether the first answer is overdue.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.waiting.front().is_some_and(|first| first.until <= now)
    }

    /// Sends a command for a client. Returns whether that has made a connection.
    ///
    /// # Errors
    /// If there is no connection. Other clients may wait for answers that will not come: [`Outgoing::end`].
    pub(crate) fn send(
        &mut self,
        language: Language,
        command: &[u8],
        client: (usize, u64),
        now: Instant,
    ) -> io::Result<bool> {
        let is_new = self.stream.is_none();
        if is_new {
            if now < self.not_before {
                return Err(ErrorKind::NotConnected.into());
            }
            self.not_before = now + PAUSE;
            self.stream = Some(connected(&self.path)?);
        }
        frame::push(&mut self.output, language, command);
        self.waiting.push_back(Waiting { client, until: now + ANSWER_WAIT });
        if let Err(error) = self.write() {
            // This client hears of it now, and the others at the end of the connection.
            self.waiting.pop_back();
            return Err(error);
        }
        Ok(is_new)
    }

    /// Writes what it takes.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        while self.sent < self.output.len() {
            match stream.write(&self.output[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once. The answers are then to be taken with [`Outgoing::take`].
    pub(crate) fn read(&mut self) -> io::Result<()> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        let start = self.input.len();
        self.input.resize(start + READ_BYTES, 0);
        let read = stream.read(&mut self.input[start..]);
        self.input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The answers that are there, with the clients that wait for them.
    pub(crate) fn take(&mut self) -> Vec<(Waiting, Vec<u8>)> {
        let (mut answers, mut used) = (Vec::new(), 0);
        while let Some((answer, bytes)) = frame::answer(&self.input[used..])
            && let Some(waiting) = self.waiting.pop_front()
        {
            answers.push((waiting, answer.to_vec()));
            used += bytes;
        }
        self.input.drain(..used);
        answers
    }

    /// Closes the connection, and returns the clients that wait for answers.
    pub(crate) fn end(&mut self) -> VecDeque<Waiting> {
        self.stream = None;
        self.output = Vec::new();
        self.sent = 0;
        self.input = Vec::new();
        std::mem::take(&mut self.waiting)
    }
}

/// A connection that neither connecting nor anything else waits for.
fn connected(path: &PathBuf) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
