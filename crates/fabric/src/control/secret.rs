//! The cluster's secret. It is never printed, and nothing that is sent can replace it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use blake2::digest::Mac as _;
use blake2::{Blake2s256, Blake2sMac256, Digest as _};
use sidelong_os::{check_private, open_regular};

use crate::Error;
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// The secret that the processes of a cluster share. Printing it never shows it.
#[derive(Clone)]
pub struct Secret {
    psk: [u8; 32],
    /// The key of seals.
    seal: [u8; 32],
}

impl Secret {
    /// Makes a secret of these bytes.
    ///
    /// # Errors
    /// [`Error::SecretLength`] if there are fewer than [`SECRET_BYTES_MIN`] or more than [`SECRET_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Secret, Error> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::SecretLength { bytes: bytes.len() });
        }
        // The prefix keeps the key apart from any other use of the same secret.
        let key =
            |prefix: &[u8]| Blake2s256::new().chain_update(prefix).chain_update(bytes).finalize().into();
        Ok(Secret { psk: key(b"sidelong control "), seal: key(b"sidelong seal ") })
    }

    /// What shows that somebody who knows the secret has made a message: a keyed BLAKE2s (RFC 7693) of it, in hexadecimal digits.
    pub fn seal(&self, message: &[u8]) -> String {
        let sealed = self.sealing(message).finalize().into_bytes();
        sealed.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether [`seal`](Self::seal) of the message is that.
    pub fn has_sealed(&self, message: &[u8], seal: &str) -> bool {
        let digits = |at| u8::from_str_radix(seal.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<_>> = (0..seal.len()).step_by(2).map(digits).collect();
        bytes.is_some_and(|bytes| self.sealing(message).verify_slice(&bytes).is_ok())
    }

    fn sealing(&self, message: &[u8]) -> Blake2sMac256 {
        let keyed = Blake2sMac256::new_from_slice(&self.seal);
        keyed.expect("BLAKE2s takes a key of 32 bytes").chain_update(message)
    }

    /// Reads a secret from a file and trims white space.
    ///
    /// # Errors
    /// If the file cannot be read, its length is wrong, or anyone but its owner may read or change it.
    pub fn read(path: &Path) -> Result<Secret, Error> {
        let opened = open_regular(path);
        let refused =
            |error: io::Error| Error::SecretFile { path: path.to_owned(), reason: error.to_string() };
        Secret::of_file(opened.map_err(refused)?, path)
    }

    /// Reads the secret from an open file; errors call it `path`.
    pub(crate) fn of_file(file: File, path: &Path) -> Result<Secret, Error> {
        let refused = |reason: String| Error::SecretFile { path: path.to_owned(), reason };
        check_private(&file).map_err(refused)?;
        let mut bytes = Vec::new();
        // Leaves as much room again for white space.
        let read = file.take(2 * SECRET_BYTES_MAX as u64).read_to_end(&mut bytes);
        read.map_err(|error| refused(error.to_string()))?;
        Secret::new(bytes.trim_ascii()).map_err(|error| refused(error.to_string()))
    }

    /// The pre-shared key derived from it.
    pub(super) fn psk(&self) -> &[u8; 32] {
        &self.psk
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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
    fn only_who_knows_it_can_seal_a_message() {
        let seal = secret().seal(b"message");
        assert!(seal.len() == 64 && secret().has_sealed(b"message", &seal));
        let other = Secret::new(b"sixteen bytes if").unwrap();
        assert!(!other.has_sealed(b"message", &seal) && !secret().has_sealed(b"massage", &seal));
        for wrong in ["", "00", &seal[1..], &seal[..62], &format!("{seal}00"), &seal.replace('a', "\u{e4}")] {
            assert!(!secret().has_sealed(b"message", wrong), "{wrong}");
        }
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
        assert_eq!(read.psk(), secret().psk());
        std::fs::write(&path, "short").unwrap();
        refused("16 to 1024");
        std::fs::write(&path, [b'x'; 5000]).unwrap();
        refused("16 to 1024");
    }
}
