//! The cluster's secret. It is never printed, and nothing that is sent can replace it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use blake2::{Blake2s256, Digest as _};
use rustix::process::geteuid;
use sidelong_os::open_regular;

use crate::Error;
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// The secret that the processes of a cluster share. Printing it never shows it.
#[derive(Clone)]
pub struct Secret {
    psk: [u8; 32],
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
        let digest = Blake2s256::new().chain_update(b"sidelong control ").chain_update(bytes);
        Ok(Secret { psk: digest.finalize().into() })
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
        let found = file.metadata().map_err(|error| refused(error.to_string()))?;
        let mode = found.mode() & 0o777;
        if !found.is_file() || mode & 0o077 != 0 || ![0, geteuid().as_raw()].contains(&found.uid()) {
            let reason = format!("others may read or change it (mode {mode:o}): make it a file of mode 0600");
            return Err(refused(reason));
        }
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
