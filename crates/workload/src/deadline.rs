//! Reads from a connection until a deadline. A timeout of the socket alone bounds each read, not an answer that comes byte by byte.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection whose reads end at the deadline.
#[derive(Debug)]
pub struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    /// Reads what arrives within `wait` from now on.
    pub fn new(stream: TcpStream, wait: Duration) -> Self {
        Timed { stream, deadline: Instant::now() + wait }
    }

    /// Reads on, for `wait` from now on.
    pub fn extend(&mut self, wait: Duration) {
        self.deadline = Instant::now() + wait;
    }

    /// The connection, to write to.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}
