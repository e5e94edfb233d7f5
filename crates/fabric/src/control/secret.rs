//! The cluster's secret. It is never printed, and nothing that is sent can replace it.
//!
//! While it is changed there are two. Whoever has both accepts either, and asks by one that is accepted. So no part drops out: first all
//! get the new one beside the old one, then all lose the old one (`sidelong secret rotate`).

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use blake2::digest::Mac as _;
use blake2::{Blake2s256, Blake2sMac256, Digest as _};
use sidelong_os::{check_private, open_regular};

use crate::Error;
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// Most secrets at a time.
const SECRETS_MAX: usize = 2;
/// How often a file is looked at, at most, when its secret is used.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The secret that the processes of a cluster share, or two of them while it is changed. Printing it never shows it. Clones are one
/// secret, which follows its file.
#[derive(Clone)]
pub struct Secret(Arc<Shared>);

struct Shared {
    keys: RwLock<Arc<[Key]>>,
    /// Of these, the one to ask by.
    turn: AtomicUsize,
    file: Option<Followed>,
}

/// A file that may change.
struct Followed {
    path: PathBuf,
    looked: Mutex<Looked>,
}

/// How a file was found, and when.
#[derive(Clone, Copy)]
struct Looked {
    at: Instant,
    /// `None` if it could not be opened.
    stamp: Option<Stamp>,
}

/// What differs once a file has changed: where it is, its length, and when it or its mode was changed.
type Stamp = (u64, u64, u64, i64, i64);

/// What is made of one secret. The prefixes keep its uses apart.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) id: SecretId,
    /// The pre-shared key of handshakes.
    pub(super) psk: [u8; 32],
    /// The key of seals.
    seal: [u8; 32],
}

/// By which people and parts tell secrets apart. It tells nothing of the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SecretId(pub u64);

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Result<Key, Error> {
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::SecretLength { bytes: bytes.len() });
        }
        let derived = |prefix: &[u8]| -> [u8; 32] {
            Blake2s256::new().chain_update(prefix).chain_update(bytes).finalize().into()
        };
        let name = derived(b"sidelong name of a secret ");
        Ok(Key {
            id: SecretId(u64::from_be_bytes(*name.first_chunk().expect("it is longer"))),
            psk: derived(b"sidelong control "),
            seal: derived(b"sidelong seal "),
        })
    }

    fn sealing(&self, message: &[u8]) -> Blake2sMac256 {
        let keyed = Blake2sMac256::new_from_slice(&self.seal);
        keyed.expect("BLAKE2s takes a key of 32 bytes").chain_update(message)
    }
}

impl Secret {
    /// Makes a secret of these bytes.
    ///
    /// # Errors
    /// [`Error::SecretLength`] if there are fewer than [`SECRET_BYTES_MIN`] or more than [`SECRET_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Secret, Error> {
        Ok(Secret::of(vec![Key::new(bytes)?], None))
    }

    fn of(keys: Vec<Key>, file: Option<Followed>) -> Self {
        Secret(Arc::new(Shared { keys: RwLock::new(keys.into()), turn: AtomicUsize::new(0), file }))
    }

    /// Reads one secret from a file, or two, a line each. From now on it is the file's: a change counts at the next use, or a second later.
    ///
    /// # Errors
    /// If the file cannot be read, its secrets have a wrong length or number, or anyone but its owner may read or change it.
    pub fn read(path: &Path) -> Result<Secret, Error> {
        let refused =
            |error: io::Error| Error::SecretFile { path: path.to_owned(), reason: error.to_string() };
        let file = open_regular(path).map_err(refused)?;
        let stamp = file.metadata().map(|found| stamp(&found)).ok();
        let keys = keys_of(file, path)?;
        let looked = Mutex::new(Looked { at: Instant::now(), stamp });
        Ok(Secret::of(keys, Some(Followed { path: path.to_owned(), looked })))
    }

    /// Reads the secret from an open file, as it is now; errors call it `path`.
    pub(crate) fn of_file(file: File, path: &Path) -> Result<Secret, Error> {
        Ok(Secret::of(keys_of(file, path)?, None))
    }

    /// Its secrets: one, or the old one and the new one.
    pub fn ids(&self) -> Vec<SecretId> {
        self.keys().iter().map(|key| key.id).collect()
    }

    /// The one of that name alone, as it is now.
    pub fn only(&self, id: SecretId) -> Option<Secret> {
        let keys = self.keys();
        keys.iter().find(|key| key.id == id).map(|key| Secret::of(vec![key.clone()], None))
    }

    /// What shows that somebody who knows the secret has made a message: a keyed BLAKE2s (RFC 7693) of it, in hexadecimal digits. By the
    /// secret of that name, if it is one, otherwise by the first.
    pub fn seal(&self, by: Option<SecretId>, message: &[u8]) -> String {
        let keys = self.keys();
        let key = keys.iter().find(|key| Some(key.id) == by).unwrap_or(&keys[0]);
        let sealed = key.sealing(message).finalize().into_bytes();
        sealed.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// By which secret [`seal`](Self::seal) of the message is that; `None` if by neither.
    pub fn has_sealed(&self, message: &[u8], seal: &str) -> Option<SecretId> {
        let digits = |at| u8::from_str_radix(seal.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<_>> = (0..seal.len()).step_by(2).map(digits).collect();
        let (bytes, keys) = (bytes?, self.keys());
        let sealer = keys.iter().find(|key| key.sealing(message).verify_slice(&bytes).is_ok());
        sealer.map(|key| key.id)
    }

    /// What is made of each.
    pub(super) fn keys(&self) -> Arc<[Key]> {
        self.look();
        Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is made of the one to ask by.
    pub(super) fn asking(&self) -> Key {
        let keys = self.keys();
        keys[self.0.turn.load(Ordering::Relaxed) % keys.len()].clone()
    }

    /// Whether that of this name counts.
    pub(super) fn counts(&self, id: SecretId) -> bool {
        self.keys().iter().any(|key| key.id == id)
    }

    /// The other one, by which to ask from now on, since that of this name was refused. `None` if there is no other.
    pub(super) fn turn(&self, refused: SecretId) -> Option<Key> {
        let keys = self.keys();
        let other = keys.iter().position(|key| key.id != refused)?;
        self.0.turn.store(other, Ordering::Relaxed);
        Some(keys[other].clone())
    }

    /// Reads the file again if it has changed. One that cannot be used changes nothing.
    fn look(&self) {
        let Some(Followed { path, looked }) = &self.0.file else { return };
        // Another thread is at it.
        let Ok(mut looked) = looked.try_lock() else { return };
        if looked.at.elapsed() < LOOK_EVERY {
            return;
        }
        looked.at = Instant::now();
        let opened = open_regular(path);
        let found = opened.as_ref().ok().and_then(|file| file.metadata().ok()).map(|found| stamp(&found));
        if std::mem::replace(&mut looked.stamp, found) == found {
            return;
        }
        let refused =
            |error: io::Error| Error::SecretFile { path: path.to_owned(), reason: error.to_string() };
        match opened.map_err(refused).and_then(|file| keys_of(file, path)) {
            Ok(keys) => {
                let ids: Vec<_> = keys.iter().map(|key| key.id.to_string()).collect();
                tracing::info!("the secret has changed: {} counts", ids.join(" as well as "));
                *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
            }
            Err(error) => tracing::error!("the secret stays as it was: {error}"),
        }
    }
}

fn stamp(found: &Metadata) -> Stamp {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

fn keys_of(file: File, path: &Path) -> Result<Vec<Key>, Error> {
    let refused = |reason: String| Error::SecretFile { path: path.to_owned(), reason };
    check_private(&file).map_err(refused)?;
    let mut bytes = Vec::new();
    // Leaves as much room again for white space.
    let read = file.take((2 * SECRETS_MAX * SECRET_BYTES_MAX) as u64).read_to_end(&mut bytes);
    read.map_err(|error| refused(error.to_string()))?;
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        lines.push(b"");
    }
    if lines.len() > SECRETS_MAX {
        let reason =
            format!("{} lines: one secret, or the old and the new one while it is changed", lines.len());
        return Err(refused(reason));
    }
    let keys: Result<Vec<_>, _> = lines.into_iter().map(Key::new).collect();
    keys.map_err(|error| refused(error.to_string()))
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
        let seal = secret().seal(None, b"message");
        assert!(seal.len() == 64 && secret().has_sealed(b"message", &seal) == Some(secret().ids()[0]));
        let other = Secret::new(b"sixteen bytes if").unwrap();
        assert_eq!([other.has_sealed(b"message", &seal), secret().has_sealed(b"massage", &seal)], [None; 2]);
        for wrong in ["", "00", &seal[1..], &seal[..62], &format!("{seal}00"), &seal.replace('a', "\u{e4}")] {
            assert_eq!(secret().has_sealed(b"message", wrong), None, "{wrong}");
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
        assert_eq!(read.ids(), secret().ids());
        std::fs::write(&path, "short").unwrap();
        refused("16 to 1024");
        std::fs::write(&path, [b'x'; 5000]).unwrap();
        refused("16 to 1024");
        std::fs::write(&path, "\n \n").unwrap();
        refused("16 to 1024");
        std::fs::write(&path, "sixteen bytes it\n".repeat(3)).unwrap();
        refused("3 lines");
    }

    #[test]
    fn a_file_may_have_the_new_secret_beside_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        let (old, new) = (secret(), Secret::new(b"sixteen bytes of").unwrap());
        let [former, newer] = [old.ids()[0], new.ids()[0]];
        write("sixteen bytes it\n");
        let followed = Secret::read(&path).unwrap();
        assert!(followed.turn(former).is_none(), "there is no other");
        write("sixteen bytes it\nsixteen bytes of\n");
        let until = |ids: &[SecretId]| {
            while followed.ids() != ids {
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until(&[former, newer]);
        for (id, alone) in [(former, &old), (newer, &new)] {
            assert_eq!(followed.only(id).unwrap().ids(), [id]);
            let seal = followed.seal(Some(id), b"message");
            assert_eq!(alone.has_sealed(b"message", &seal), Some(id));
            assert_eq!(followed.has_sealed(b"message", &seal), Some(id));
        }
        assert_eq!(old.has_sealed(b"message", &followed.seal(None, b"message")), Some(former));
        assert_eq!(followed.asking().id, former);
        assert_eq!([followed.turn(former).unwrap().id, followed.asking().id], [newer; 2]);

        // What cannot be used changes nothing.
        write("short");
        std::thread::sleep(LOOK_EVERY);
        assert_eq!(followed.ids(), [former, newer]);
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(LOOK_EVERY);
        assert_eq!(followed.ids(), [former, newer]);
        write("sixteen bytes of\n");
        until(&[newer]);
        assert_eq!(followed.asking().id, newer);
    }
}
