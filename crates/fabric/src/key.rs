//! Keys: what a peer needs to reach a region, and with which rights.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    Sim { network: crate::sim::NetworkId, region: usize, token: Token },
}

/// An unguessable number that the target checks; it is the right itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u128);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
