//! Keys: what a peer needs to reach a region, and with which rights.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustix::rand::{GetRandomFlags, getrandom};
use sidelong_layout::RegionKind;

/// What a key grants to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads. The memory is mapped or registered without the right to write.
    ReadOnly,
    /// Reads, writes and atomics.
    Atomic,
}

/// The grant to use one region. Printing it never shows the secret in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The region's name, unique in its cluster.
    pub name: String,
    /// What the region holds.
    pub kind: RegionKind,
    /// The region's length in bytes.
    pub len: usize,
    /// What the key grants.
    pub access: Access,
    pub(crate) locator: Locator,
}

/// How a backend finds the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Locator {
    Shm { path: PathBuf },
    Tcp { address: SocketAddr, token: Token },
    Verbs { address: SocketAddr, token: Token },
    Sim { network: crate::sim::Network, region: usize, token: Token },
}

impl Locator {
    /// As a line that stands in a file or a message; none where the memory itself is found by its name.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Locator::Tcp { address, token } => Some(format!("tcp {address} {:032x}", token.0)),
            Locator::Verbs { address, token } => Some(format!("verbs {address} {:032x}", token.0)),
            Locator::Shm { .. } | Locator::Sim { .. } => None,
        }
    }

    /// Of such a line.
    pub(crate) fn from_text(text: &str) -> Option<Locator> {
        let mut parts = text.split_whitespace();
        let (fabric, address, token) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let token = Token(u128::from_str_radix(token, 16).ok()?);
        match (fabric, parts.next()) {
            ("tcp", None) => Some(Locator::Tcp { address, token }),
            ("verbs", None) => Some(Locator::Verbs { address, token }),
            _ => None,
        }
    }

    /// Puts `host` in place of an address that means all of a machine's.
    pub(crate) fn at_host(&mut self, host: IpAddr) {
        match self {
            Locator::Tcp { address, .. } | Locator::Verbs { address, .. }
                if address.ip().is_unspecified() =>
            {
                address.set_ip(host);
            }
            _ => {}
        }
    }
}

/// An unguessable number that the target checks; it is the right itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u128);

impl Token {
    /// From the kernel's generator.
    pub(crate) fn random() -> io::Result<Token> {
        let mut bytes = [0; 16];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
        // Up to 256 bytes are given whole, once the system has booted far enough to give any.
        if filled == bytes.len() {
            Ok(Token(u128::from_ne_bytes(bytes)))
        } else {
            Err(io::ErrorKind::Other.into())
        }
    }

    /// Equality in a time that does not tell how many bytes of a guess were right.
    pub(crate) fn matches(self, other: Token) -> bool {
        black_box(self.0 ^ other.0) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
