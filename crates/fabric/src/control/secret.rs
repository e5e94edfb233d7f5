//! The cluster's secret, and what both sides of a session make of it. It is never shown, and nothing made of it is sent
//! that could stand for it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::Error;
use crate::control::wire::{MAC_BYTES, NONCE_BYTES, PROTOCOL};

/// The shortest secret, in bytes: it may be tried against a recorded set-up at leisure.
pub const SECRET_BYTES_MIN: usize = 16;
/// The longest, in bytes.
pub const SECRET_BYTES_MAX: usize = 1024;

/// What all processes of a cluster know and nobody else. Printing it never shows it.
#[derive(Clone)]
pub struct Secret {
    /// The hash's state with the secret taken in.
    keyed: Hmac<Sha256>,
}

impl Secret {
    /// Of these bytes.
    ///
    /// # Errors
    /// [`Error::SecretLength`] where there are fewer than [`SECRET_BYTES_MIN`] or more than [`SECRET_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Secret, Error> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::SecretLength { bytes: bytes.len() });
        }
        Ok(Secret { keyed: keyed(bytes) })
    }

    /// Of a file's contents, without white space around them.
    ///
    /// # Errors
    /// Where it cannot be read, its length is wrong, or anyone but its owner may read or change it.
    pub fn read(path: &Path) -> Result<Secret, Error> {
        let refused = |reason: String| Error::SecretFile { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| refused(error.to_string()))?;
        let found = file.metadata().map_err(|error| refused(error.to_string()))?;
        let mode = found.mode() & 0o777;
        if !found.is_file() || mode & 0o077 != 0 || ![0, geteuid().as_raw()].contains(&found.uid()) {
            let reason = format!("others may read or change it (mode {mode:o}): make it a file of mode 0600");
            return Err(refused(reason));
        }
        let mut bytes = Vec::new();
        // White space around it has as much room again.
        let read = file.take(2 * SECRET_BYTES_MAX as u64).read_to_end(&mut bytes);
        read.map_err(|error| refused(error.to_string()))?;
        Secret::new(bytes.trim_ascii()).map_err(|error| refused(error.to_string()))
    }

    /// What `role` shows to be known.
    pub(super) fn proof(&self, role: Role, nonces: &Nonces) -> [u8; MAC_BYTES] {
        self.of_session(b"proof", role, nonces).finalize().into_bytes().into()
    }

    /// Whether the proof is that of `role`, in a time that does not tell how much of it is.
    pub(super) fn is_proof(&self, role: Role, nonces: &Nonces, proof: &[u8; MAC_BYTES]) -> bool {
        self.of_session(b"proof", role, nonces).verify_slice(proof).is_ok()
    }

    /// What seals the messages that `role` sends in the session of these nonces.
    pub(super) fn seal(&self, role: Role, nonces: &Nonces) -> Seal {
        let key = self.of_session(b"seal", role, nonces).finalize().into_bytes();
        Seal { keyed: keyed(&key), sequence: 0 }
    }

    /// Every part has a fixed length, so that no two sessions, roles or purposes are written alike.
    fn of_session(&self, purpose: &[u8], role: Role, nonces: &Nonces) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(b"sidelong control ");
        mac.update(&PROTOCOL.to_le_bytes());
        mac.update(&[role as u8]);
        mac.update(&nonces.asking);
        mac.update(&nonces.answering);
        mac.update(purpose);
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Who opened it.
    Asking = 1,
    /// The endpoint.
    Answering = 2,
}

pub(super) type Nonce = [u8; NONCE_BYTES];

/// What makes a session unlike all others, as long as one side takes care that its own is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nonces {
    pub(super) asking: Nonce,
    pub(super) answering: Nonce,
}

/// From the kernel's generator.
pub(super) fn random_nonce() -> io::Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    // Up to 256 bytes are given whole, once the system has booted far enough to give any.
    if getrandom(&mut nonce, GetRandomFlags::empty())? == nonce.len() {
        Ok(nonce)
    } else {
        Err(io::ErrorKind::Other.into())
    }
}

/// Seals the messages of one direction of a session, or checks their seals: each fits one place in the order.
#[derive(Clone)]
pub(super) struct Seal {
    keyed: Hmac<Sha256>,
    sequence: u64,
}

impl Seal {
    /// The seal of the next message, whose bytes these are.
    pub(super) fn of_next(&mut self, message: &[u8]) -> [u8; MAC_BYTES] {
        self.next(message).finalize().into_bytes().into()
    }

    /// Whether the next message is this one, in a time that does not tell how much of the seal is right.
    pub(super) fn is_of_next(&mut self, message: &[u8], seal: &[u8; MAC_BYTES]) -> bool {
        self.next(message).verify_slice(seal).is_ok()
    }

    fn next(&mut self, message: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(&self.sequence.to_le_bytes());
        mac.update(message);
        // A message a nanosecond would take centuries to wrap.
        self.sequence = self.sequence.wrapping_add(1);
        mac
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NONCES: Nonces = Nonces { asking: [1; NONCE_BYTES], answering: [2; NONCE_BYTES] };

    fn secret() -> Secret {
        Secret::new(b"sixteen bytes it").unwrap()
    }

    #[test]
    fn a_secret_has_a_length_and_is_not_shown() {
        for bytes in [0, 15, 1025] {
            let error = Secret::new(&vec![b'x'; bytes]).unwrap_err();
            assert!(matches!(error, Error::SecretLength { bytes: found } if found == bytes), "{error}");
            assert!(error.to_string().contains("16 to 1024"), "{error}");
        }
        assert!(Secret::new(&[0; 1024]).is_ok());
        assert_eq!(format!("{:?}", secret()), "Secret(..)");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let refused = |what: &str| {
            let error = Secret::read(&path).unwrap_err().to_string();
            assert!(
                error.contains("secret: ") && error.contains(what) && !error.contains("sixteen"),
                "{error}"
            );
        };
        refused("No such file");
        std::fs::write(&path, "  sixteen bytes it\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for open in [0o644, 0o640, 0o602] {
            mode(open);
            refused("0600");
        }
        mode(0o600);
        let read = Secret::read(&path).unwrap();
        assert!(secret().is_proof(Role::Asking, &NONCES, &read.proof(Role::Asking, &NONCES)));
        std::fs::write(&path, "short").unwrap();
        refused("16 to 1024");
        std::fs::write(&path, [b'x'; 5000]).unwrap();
        refused("16 to 1024");
    }

    #[test]
    fn a_proof_is_of_one_role_session_and_secret() {
        let proof = secret().proof(Role::Asking, &NONCES);
        assert!(secret().is_proof(Role::Asking, &NONCES, &proof));
        assert!(!secret().is_proof(Role::Answering, &NONCES, &proof), "sent back");
        let swapped = Nonces { asking: NONCES.answering, answering: NONCES.asking };
        let other = Nonces { answering: [3; NONCE_BYTES], ..NONCES };
        for nonces in [swapped, other] {
            assert!(!secret().is_proof(Role::Asking, &nonces, &proof), "of another session");
        }
        assert!(!Secret::new(b"another secret, long").unwrap().is_proof(Role::Asking, &NONCES, &proof));
    }

    #[test]
    fn a_seal_is_of_one_message_place_and_direction() {
        let mut sealing = secret().seal(Role::Asking, &NONCES);
        let (first, second) = (sealing.of_next(b"one"), sealing.of_next(b"one"));
        assert_ne!(first, second, "the same words again");
        let checking = secret().seal(Role::Asking, &NONCES);
        assert!(checking.clone().is_of_next(b"one", &first));
        assert!(!checking.clone().is_of_next(b"one", &second), "one was left out");
        assert!(!checking.clone().is_of_next(b"two", &first), "altered");
        assert!(!secret().seal(Role::Answering, &NONCES).is_of_next(b"one", &first), "sent back");
        let proof = secret().proof(Role::Asking, &NONCES);
        assert!(!checking.clone().is_of_next(b"", &proof), "another purpose");
    }
}
