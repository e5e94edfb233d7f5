//! Keys: what a peer needs to reach a region, and the rights that it gets.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::rand::{GetRandomFlags, getrandom};
use sidelong_layout::RegionKind;

use crate::RunDirectory;

/// The rights that a key grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads. The memory is mapped or registered read-only.
    ReadOnly,
    /// Reads, writes and atomics.
    Atomic,
}

/// The right to use one region. Printing it never shows its secret.
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
    Shm { run: RunDirectory },
    Tcp { address: SocketAddr, token: Token },
    Verbs { address: SocketAddr, token: Token },
    Sim { network: crate::sim::Network, region: usize, token: Token },
}

impl Locator {
    /// As a line of text for a file or message; `None` if the name alone leads to the memory.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Locator::Tcp { address, token } => Some(format!("tcp {address} {:032x}", token.0)),
            Locator::Verbs { address, token } => Some(format!("verbs {address} {:032x}", token.0)),
            Locator::Shm { .. } | Locator::Sim { .. } => None,
        }
    }

    /// Parses such a line.
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

    /// Replaces an address that means all interfaces by `host`.
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

/// An unguessable number that the target checks. Whoever knows it has the right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u128);

impl Token {
    /// A new token from the kernel's generator.
    pub(crate) fn random() -> io::Result<Token> {
        let mut bytes = [0; 16];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
        // The kernel returns up to 256 bytes at once, as soon as its generator is initialised.
        if filled == bytes.len() {
            Ok(Token(u128::from_ne_bytes(bytes)))
        } else {
            Err(io::ErrorKind::Other.into())
        }
    }

    /// Compares in constant time, so that a guess learns nothing from how long it took.
    pub(crate) fn matches(self, other: Token) -> bool {
        black_box(self.0 ^ other.0) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
