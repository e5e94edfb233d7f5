//! Where processes find each other's keys.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sidelong_layout::RegionKind;

use crate::key::{Key, Locator, Token};
use crate::{Access, Error, shm};

/// Publishes and finds keys. The embedded default is [`RunDirectory`].
pub trait Directory: Send + Sync {
    /// Lets others find `key` by its region's name, in place of an earlier one.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn publish(&self, key: &Key) -> Result<(), Error>;

    /// The key of the region `name`, which is of `kind` and `len` bytes and grants `access`.
    ///
    /// # Errors
    /// Where nobody has published it, or it cannot be read.
    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error>;
}

/// A directory of one machine that only its owner may enter: regions (`NAME.region`, whose file is the key), keys of
/// the tcp backend (`NAME.key`), and the lock of the cluster that runs in it.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Opens it, or makes it with mode 0700.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| Error::Directory { path: path.clone(), source })?;
        Ok(RunDirectory { path })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes this process its only user for as long as the returned file lives, and removes what a killed one left.
    ///
    /// # Errors
    /// [`Error::InUse`] where a live process has it.
    pub fn claim(&self) -> Result<File, Error> {
        let failed = |source| Error::Directory { path: self.path.clone(), source };
        let lock = self.path.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(lock);
        let mut file = opened.map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(Error::InUse { path: self.path.clone(), pid: pid.trim().to_owned() });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        self.sweep().map_err(failed)?;
        Ok(file)
    }

    /// Removes regions and keys; other files are none of ours.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub fn sweep(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let ours = path.extension().is_some_and(|e| e == "region" || e == "key" || e == "new");
            if ours {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn key_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.key"))
    }
}

impl Directory for RunDirectory {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        let Locator::Tcp { address, token } = &key.locator else {
            return Ok(()); // A region's file is its own key, and a simulated region has none.
        };
        let path = self.key_path(&key.name);
        let failed = |source| Error::Create { path: path.clone(), source };
        let temporary = self.path.join(format!(".{}.{}.new", key.name, std::process::id()));
        let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let mut file = options.map_err(failed)?;
        let written = writeln!(file, "tcp {address} {:032x}", token.0);
        written.and_then(|()| std::fs::rename(&temporary, &path)).map_err(failed)
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        let key = |locator| Key { name: name.to_owned(), kind, len, access, locator };
        let region = shm::region_path(&self.path, name);
        if region.exists() {
            return Ok(key(Locator::Shm { path: region }));
        }
        let path = self.key_path(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(key(parse(&text).ok_or(Error::BadKey {
                path,
                reason: "not `tcp ADDRESS TOKEN`; was it written by another version?".to_owned(),
            })?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::NoKey { name: name.to_owned(), place: self.path.display().to_string() })
            }
            Err(source) => Err(Error::Open { path, source }),
        }
    }
}

fn parse(text: &str) -> Option<Locator> {
    let mut parts = text.split_whitespace();
    let ("tcp", address, token, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    Some(Locator::Tcp { address: address.parse().ok()?, token: Token(u128::from_str_radix(token, 16).ok()?) })
}
