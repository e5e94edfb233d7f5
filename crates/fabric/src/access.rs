//! What a key grants, and how whoever has it proves that.

use std::fmt;
use std::hint::black_box;
use std::io;

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
