//! The client: it sends exact bytes, step by step, and reads all that comes.
//!
//! A step ends when what it waits for is complete or the proxy has closed; [`PATIENCE`] bounds it. No step measures time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::conformance::wire::{self, Framing, Message};
use sidelong_testing::{PATIENCE, eventually};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(String),
    /// Sends each byte in a segment of its own.
    Dribble(String),
    /// Waits for this many final answers on the connection.
    Answers(usize),
    /// Waits for an interim answer of this status, or for a final one.
    Interim(u16),
    /// Waits for the beginning of an answer.
    Begin,
    /// Waits for these bytes of a tunnel.
    Tunnel(usize),
    /// Waits until the server's script has ended.
    Server,
    /// Sends no more on this connection.
    HalfClose,
    /// Goes on with a new connection. The old one stays open.
    Connect,
    /// Does nothing for this long.
    Idle(Duration),
}

/// What a client got over one connection.
#[derive(Default, Debug)]
pub(crate) struct Got {
    /// The final answers. The last one may be cut.
    pub(crate) answers: Vec<Message>,
    /// The status of each interim answer, with the number of final ones before it.
    pub(crate) interims: Vec<(usize, Message)>,
    /// Why the bytes are no answer.
    pub(crate) wrong: Option<String>,
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    got: Got,
    /// The first request is a HEAD.
    asks_head: bool,
    /// The proxy has closed.
    at_end: bool,
    /// It has done so by a reset: what it sent until then may not be all.
    is_reset: bool,
}

impl Connection {
    fn open(proxy: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&proxy, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection {
            stream,
            buffer: Vec::new(),
            got: Got::default(),
            asks_head: false,
            at_end: false,
            is_reset: false,
        }
    }

    fn is_over(&self) -> bool {
        self.at_end || self.got.wrong.is_some()
    }

    fn is_tunnel(&self) -> bool {
        self.got.answers.last().is_some_and(|answer| answer.framing == Framing::Tunnel)
    }

    /// Reads more, and takes the answers from it.
    fn read(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.buffer.extend(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.got.wrong = Some(format!("silent for {PATIENCE:?}"));
            }
            // A reset, which comes after the answers.
            Err(_) => (self.at_end, self.is_reset) = (true, true),
        }
        self.take();
    }

    fn take(&mut self) {
        while self.got.wrong.is_none() {
            if self.is_tunnel() {
                let answer = self.got.answers.last_mut().unwrap();
                answer.body.append(&mut self.buffer);
                return;
            }
            let to_head = self.asks_head && self.got.answers.is_empty();
            match wire::answer(&self.buffer, to_head, self.at_end && !self.is_reset) {
                Err(why) => self.got.wrong = Some(format!("malformed answer: {why}")),
                Ok(None) if self.at_end && !self.buffer.is_empty() => {
                    self.got.wrong = Some("an answer cut in the head".to_owned());
                }
                Ok(None) => return,
                Ok(Some((answer, _))) if !answer.is_whole && !self.at_end => return,
                Ok(Some((answer, used))) => {
                    self.buffer.drain(..used);
                    if (100..200).contains(&answer.status()) && answer.framing != Framing::Tunnel {
                        self.got.interims.push((self.got.answers.len(), answer));
                    } else {
                        self.got.answers.push(answer);
                    }
                }
            }
        }
    }

    fn until(&mut self, is_there: impl Fn(&Self) -> bool) {
        while !is_there(self) && !self.is_over() {
            self.read();
        }
    }

    /// Says that no more will be sent, and reads to the end.
    fn end(mut self) -> Got {
        // Whether a proxy passes on the end of one side of a tunnel is not asked.
        if !self.is_tunnel() {
            let _ = self.stream.shutdown(Shutdown::Write);
            self.until(|_| false);
        }
        self.got
    }
}

/// Carries out the steps at `proxy`, and returns what each connection got.
pub(crate) fn converse(proxy: SocketAddr, steps: &[Step], server_is_done: impl Fn() -> bool) -> Vec<Got> {
    let mut connections = vec![Connection::open(proxy)];
    for step in steps {
        let connection = connections.last_mut().unwrap();
        match step {
            Step::Send(text) => {
                connection.asks_head |= connection.got.answers.is_empty() && text.starts_with("HEAD ");
                // The proxy may have closed, which the answers show.
                let _ = connection.stream.write_all(text.as_bytes());
            }
            Step::Dribble(text) => {
                let _ = text.bytes().try_for_each(|byte| connection.stream.write_all(&[byte]));
            }
            Step::Answers(count) => connection.until(|of| of.got.answers.len() >= *count),
            Step::Interim(status) => connection.until(|of| {
                !of.got.answers.is_empty() || of.got.interims.iter().any(|(_, one)| one.status() == *status)
            }),
            Step::Begin => connection.until(|of| !of.buffer.is_empty() || !of.got.answers.is_empty()),
            Step::Tunnel(count) => {
                connection.until(|of| of.got.answers.last().is_none_or(|answer| answer.body.len() >= *count));
            }
            Step::Server => eventually("the server has done its part", &server_is_done),
            Step::HalfClose => _ = connection.stream.shutdown(Shutdown::Write),
            Step::Connect => connections.push(Connection::open(proxy)),
            Step::Idle(time) => std::thread::sleep(*time),
        }
    }
    connections.into_iter().map(Connection::end).collect()
}
