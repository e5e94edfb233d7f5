//! A connection to a cache of another machine: a socket, and what makes its bytes unreadable to all but the cluster.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use sidelong_fabric::control::{SEALED_BYTES_MAX, Sealed};

/// The most bytes that a frame has beside those that it says.
const FRAME_BYTES: usize = 64;

/// Most bytes that the socket is given at a time.
const WRITE_BYTES_MAX: usize = 4 * SEALED_BYTES_MAX;

/// A socket whose bytes are sealed.
pub(crate) struct SealedStream {
    pub(crate) socket: TcpStream,
    sealed: Sealed,
    /// What is read into, and the bytes there of a frame that is not whole.
    input: Vec<u8>,
    arrived: usize,
    plain: Vec<u8>,
    /// Frames that the socket has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Bytes of the caller's in `output`, which it is yet to be told of.
    accepted: usize,
}

impl SealedStream {
    /// With `first`, which is to be sent before anything else.
    pub(crate) fn new(socket: TcpStream, sealed: Sealed, first: Vec<u8>) -> Self {
        let (input, plain) = (Vec::new(), Vec::new());
        SealedStream { socket, sealed, input, arrived: 0, plain, output: first, sent: 0, accepted: 0 }
    }

    /// Whether the other side is known to be of the cluster.
    pub(crate) fn is_open(&self) -> bool {
        self.sealed.is_open()
    }

    /// Whether the socket has yet to take a frame.
    pub(crate) fn is_blocked(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Reads once, into a buffer that is longer than a frame. An error of the kind `WouldBlock` says that nothing was said yet.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        assert!(to.len() > SEALED_BYTES_MAX + FRAME_BYTES, "a buffer longer than a frame");
        // So that what the frames say has room.
        self.input.resize(to.len(), 0);
        let read = self.socket.read(&mut self.input[self.arrived..])?;
        if read == 0 {
            return Ok(0);
        }
        self.arrived += read;
        self.plain.clear();
        let received = self.sealed.receive(&self.input[..self.arrived], &mut self.plain, &mut self.output);
        let flushed = self.flush();
        let used = received.map_err(io::Error::other)?;
        self.input.copy_within(used..self.arrived, 0);
        self.arrived -= used;
        flushed?;
        if self.plain.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        to[..self.plain.len()].copy_from_slice(&self.plain);
        Ok(self.plain.len())
    }

    /// Writes some bytes, and returns how many once the socket has taken them. After `WouldBlock` it is to be called again with
    /// the same bytes.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if self.accepted == 0 {
            if !self.is_open() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let part = &from[..from.len().min(WRITE_BYTES_MAX)];
            part.chunks(SEALED_BYTES_MAX).for_each(|part| self.sealed.send(part, &mut self.output));
            self.accepted = part.len();
        }
        self.flush()?;
        if self.is_blocked() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(std::mem::take(&mut self.accepted))
    }

    /// Writes what the socket takes of the frames.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.is_blocked() {
            match self.socket.write(&self.output[self.sent..]) {
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
}
