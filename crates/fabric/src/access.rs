//! What a key grants, and how whoever has it proves that.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::net::IpAddr;

use blake2::Blake2sMac256;
use blake2::digest::Mac as _;
use rustix::rand::{GetRandomFlags, getrandom};

/// The rights that a key grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads. The memory is mapped or registered read-only.
    ReadOnly,
    /// Reads, writes and atomics.
    Atomic,
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

    /// The token by which a peer with that address shows its right. Who overhears it can use it from no other address.
    pub(crate) fn of_peer(self, peer: IpAddr) -> Token {
        let address = match peer.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let keyed = Blake2sMac256::new_from_slice(&self.0.to_le_bytes());
        let keyed = keyed.expect("BLAKE2s takes a key of 16 bytes").chain_update(address.octets());
        let code: [u8; 32] = keyed.finalize().into_bytes().into();
        Token(u128::from_le_bytes(*code.first_chunk().expect("it is longer")))
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
