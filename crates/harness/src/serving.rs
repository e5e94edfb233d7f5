//! Whether something serves at an address.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use sidelong_config::ServerAddress;

/// Longest wait for a connection, and for the answer to one probe.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Where a process listens.
pub trait Address: Debug {
    /// A connection to it.
    ///
    /// # Errors
    /// If nobody accepts it.
    fn connect(&self) -> io::Result<OwnedFd>;
}

impl Address for SocketAddr {
    fn connect(&self) -> io::Result<OwnedFd> {
        let stream = TcpStream::connect_timeout(self, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        Ok(stream.into())
    }
}

/// A Unix socket.
impl Address for PathBuf {
    fn connect(&self) -> io::Result<OwnedFd> {
        UnixStream::connect(self).map(OwnedFd::from)
    }
}

impl Address for ServerAddress {
    fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            ServerAddress::Tcp(address) => address.connect(),
            ServerAddress::Unix(path) => path.connect(),
        }
    }
}

/// Whether someone accepts connections at `address`. It may speak TLS, or reject everything.
pub fn listens(address: &impl Address) -> bool {
    address.connect().is_ok()
}

/// Whether the server at `address` answers a request for `path` of `host` with 200.
pub fn answers(address: &impl Address, host: &str, path: &str) -> bool {
    let ask = || {
        let socket = address.connect()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))?;
        let mut stream = File::from(socket);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        io::Result::Ok(status)
    };
    ask().is_ok_and(|status| status.starts_with(b"HTTP/1.") && status.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_well_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listens(&address));
        drop(listener.accept().unwrap());
        for (line, is_well) in [("HTTP/1.0 200 OK\r\n", true), ("HTTP/1.1 503 No\r\n", false)] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    // What is unread when it is closed would take the answer with it.
                    let asked = stream.read(&mut [0; 256]).unwrap();
                    assert!(asked > 0 && stream.write_all(line.as_bytes()).is_ok());
                });
                assert_eq!(answers(&address, "a.example", "/"), is_well, "{line}");
            });
        }
        drop(listener);
        assert!(!answers(&address, "a.example", "/") && !listens(&address));
    }
}
