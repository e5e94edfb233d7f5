//! A connection over TLS, whose socket never waits.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

/// A client's end of it may be in the midst of its handshake.
pub(crate) struct Encrypted {
    pub(super) socket: TcpStream,
    connection: ServerConnection,
}

impl Encrypted {
    pub(crate) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Encrypted { socket, connection })
    }

    /// Reads once from the socket, and returns what that was for the application: nothing yet is [`ErrorKind::WouldBlock`].
    ///
    /// A read from the socket decrypts to a few records at most. `to` must be larger: what it has no room for would lie here until
    /// the client sends more.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.connection.read_tls(&mut self.socket)?;
        let processed = self.connection.process_new_packets();
        // An answer of the handshake, or why there is none.
        self.flush()?;
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        self.connection.reader().read(to)
    }

    /// Takes as much as it has room for, once the socket has taken what came before.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.flush()?;
        if self.is_blocked() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = self.connection.writer().write(from)?;
        self.flush()?;
        Ok(len)
    }

    /// Whether the socket has yet to take bytes.
    pub(crate) fn is_blocked(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => _ = written?,
            }
        }
        Ok(())
    }
}

impl AsFd for Encrypted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Encrypted {
    /// Tells the client that this was all, if the socket takes it.
    fn drop(&mut self) {
        self.connection.send_close_notify();
        _ = self.flush();
    }
}
