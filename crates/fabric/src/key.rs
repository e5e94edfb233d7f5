//! Keys: what a peer needs to reach a region, and the rights that it gets.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sidelong_layout::RegionKind;

use crate::Access;
use crate::access::Token;
use crate::sim::Network;

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

/// How a backend finds the memory; over shm by the path of its run directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Locator {
    Shm { run: PathBuf },
    Tcp { address: SocketAddr, token: Token },
    Verbs { address: SocketAddr, token: Token },
    Sim { network: Network, region: usize, token: Token },
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

    /// For a peer with that address alone. Over verbs the token is sent encrypted, and needs no such bound.
    pub(crate) fn of_peer(self, peer: IpAddr) -> Locator {
        match self {
            Locator::Tcp { address, token } => Locator::Tcp { address, token: token.of_peer(peer) },
            other => other,
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
