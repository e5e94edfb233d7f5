//! A connection to another cache, which carries out commands on the items whose home it is.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use sidelong_fabric::Problem;
use sidelong_fabric::control::SealedError;

use crate::frame::{self, Answer};
use crate::neighbours::Language;
use crate::server::sockets::Stream;
use crate::way::Way;

/// The longest wait for an answer, and for a connection. After that it is not known whether a command was carried out.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Between two attempts to connect. Commands fail at once meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

fn connect(way: &Way) -> io::Result<Stream> {
    match way {
        Way::Socket(path) => Stream::to_socket(path),
        Way::Network { address, secret, cluster } => Stream::to_network(*address, secret, *cluster),
    }
}

/// A client that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    /// Its number, and which of the clients that had it.
    pub(crate) client: (usize, u64),
    /// Which of the answers that it waits for.
    pub(crate) ticket: u64,
    until: Instant,
}

/// Commands on their way to one cache, and the clients that wait for the answers, which come in that order.
pub(crate) struct Outgoing {
    /// `None` if there is no such cache.
    way: Option<Way>,
    stream: Option<Stream>,
    /// Bytes that it has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    waiting: VecDeque<Waiting>,
    /// When it was last tried to connect.
    tried: Option<Instant>,
    /// Whether the last connection ended, or none could be made. Commands do not wait for the next one.
    is_suspect: bool,
    problem: Problem,
    /// What the kernel watches its socket for: bytes, and room for some.
    pub(crate) watched: Option<bool>,
}

impl Outgoing {
    /// To the cache that is reached so.
    pub(crate) fn new(way: Option<Way>) -> Self {
        Outgoing {
            way,
            stream: None,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            waiting: VecDeque::new(),
            tried: None,
            is_suspect: false,
            problem: Problem::default(),
            watched: None,
        }
    }

    /// Its socket, to be watched.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(Stream::as_fd)
    }

    fn is_open(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_open)
    }

    /// Whether the socket has yet to take bytes.
    pub(crate) fn is_blocked(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        stream.is_blocked() || stream.is_open() && !self.output.is_empty()
    }

    /// Whether the first answer, or the connection, is overdue.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let is_late = |tried: Instant| self.stream.is_some() && !self.is_open() && tried + ANSWER_WAIT <= now;
        self.waiting.front().is_some_and(|first| first.until <= now) || self.tried.is_some_and(is_late)
    }

    /// Connects, if that takes long, so that the first command need not wait for it. To be called some ten times a second.
    pub(crate) fn prepare(&mut self, now: Instant) {
        if self.stream.is_none() && matches!(self.way, Some(Way::Network { .. })) {
            _ = self.connect(now);
        }
    }

    fn connect(&mut self, now: Instant) -> io::Result<()> {
        if self.tried.is_some_and(|tried| now < tried + PAUSE) {
            return Err(ErrorKind::NotConnected.into());
        }
        self.tried = Some(now);
        let way = self.way.as_ref().ok_or(ErrorKind::NotConnected)?;
        self.stream = Some(connect(way).inspect_err(|_| self.is_suspect = true)?);
        self.watched = None;
        Ok(())
    }

    /// Has a command sent for a client, at the next [`Outgoing::write`].
    ///
    /// # Errors
    /// If there is no connection.
    pub(crate) fn send(
        &mut self,
        language: Language,
        command: &[u8],
        client: (usize, u64),
        ticket: u64,
        now: Instant,
    ) -> io::Result<()> {
        if self.stream.is_none() {
            self.connect(now)?;
        }
        if self.is_suspect && !self.is_open() {
            return Err(ErrorKind::NotConnected.into());
        }
        frame::push(&mut self.output, language, command);
        self.waiting.push_back(Waiting { client, ticket, until: now + ANSWER_WAIT });
        Ok(())
    }

    /// Writes what it takes.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush()?;
        if stream.is_open() {
            self.is_suspect = false;
        }
        while stream.is_open() && self.sent < self.output.len() {
            match stream.write(&self.output[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads once, by way of `buffer`. The answers are then to be taken with [`Outgoing::take`].
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        match stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                self.problem.clear();
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What has arrived. From the answers in it [`Outgoing::next`] takes one after another, and [`Outgoing::put_back`] the rest.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        mem::take(&mut self.input)
    }

    /// The next answer in what has arrived, from `used` on, and the client that waits for it.
    pub(crate) fn next<'i>(&mut self, input: &'i [u8], used: &mut usize) -> Option<(Waiting, Answer<'i>)> {
        let (answer, bytes) = frame::answer(&input[*used..])?;
        let waiting = self.waiting.pop_front()?;
        *used += bytes;
        Some((waiting, answer))
    }

    /// Keeps what has arrived of an answer that is not whole.
    pub(crate) fn put_back(&mut self, mut input: Vec<u8>, used: usize) {
        input.drain(..used);
        self.input = input;
    }

    /// Closes the connection of the cache `name` because of `error`, and returns the clients that wait for answers. What was not
    /// sent is not sent any more.
    pub(crate) fn end(&mut self, name: &str, error: &io::Error) -> VecDeque<Waiting> {
        let is_refused = error.get_ref().is_some_and(|error| error.is::<SealedError>());
        if self.problem.is_news(error, is_refused) {
            match is_refused {
                true => {
                    tracing::warn!(cache = name, problem = %error, "another cache is not of this cluster")
                }
                false => tracing::debug!(cache = name, problem = %error, "another cache is not reached"),
            }
        }
        self.is_suspect = true;
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
        self.watched = None;
        self.output = Vec::new();
        self.sent = 0;
        self.input = Vec::new();
        mem::take(&mut self.waiting)
    }
}
