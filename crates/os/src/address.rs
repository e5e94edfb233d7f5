//! Where a server listens. It resolves no name, and connects to nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a server listens: at a TCP port, or at a Unix socket, which is a file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ServerAddress {
    /// At an IP address and a port.
    Tcp(SocketAddr),
    /// At the Unix socket of that path.
    Unix(PathBuf),
}

impl ServerAddress {
    /// The prefix of a Unix socket's path.
    pub const UNIX: &str = "unix:";
    /// Most bytes of a Unix socket's path: unix(7) has room for 108, and a NUL ends it.
    pub const PATH_BYTES_MAX: usize = 107;

    /// The address and port, if it has them.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ServerAddress::Tcp(address) => Some(*address),
            ServerAddress::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        ServerAddress::Tcp(address)
    }
}

/// As a cluster file has it.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(address) => address.fmt(f),
            ServerAddress::Unix(path) => write!(f, "{}{}", Self::UNIX, path.display()),
        }
    }
}
