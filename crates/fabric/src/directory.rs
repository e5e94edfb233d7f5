//! Where processes find each other's keys.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use sidelong_layout::RegionKind;

use crate::control::Secret;
use crate::host::check_name;
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

/// A process number as the lock file has it.
const PID_BYTES_MAX: u64 = 20;

/// How often a lock is tried that is held.
const LOCK_TRIES_MAX: usize = 20;
/// How long it is left alone in between.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A directory of one machine that only its owner may enter: regions (`NAME.region`, whose file is the key; `NAME.socket`
/// where the memory lies elsewhere), keys of
/// the tcp backend (`NAME.tcpkey`), and the lock of the cluster that runs in it.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Opens it, or makes it with mode 0700.
    ///
    /// # Errors
    /// Where it cannot be made, or others could put files in it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let failed = |source| Error::Directory { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let found = std::fs::metadata(&path).map_err(failed)?;
        let owned = [0, geteuid().as_raw()].contains(&found.uid());
        if !owned || found.mode() & 0o022 != 0 {
            let reason = "others may write in it; make it with mode 0700";
            return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
        }
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
        let path = self.path.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.map_err(failed)?;
        if !lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
            let mut pid = String::new();
            let _ = (&file).take(PID_BYTES_MAX).read_to_string(&mut pid);
            return Err(Error::InUse { path: self.path.clone(), pid: pid.trim().to_owned() });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        self.sweep().map_err(failed)?;
        Ok(file)
    }

    /// Whether a live process has claimed the run directory at `path`, which need not be there. For whoever only looks:
    /// nothing is made, and who claims it at this moment tries again.
    pub fn is_claimed(path: &Path) -> bool {
        let lock = File::open(path.join("lock"));
        lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// What the processes that use it, all of this machine and of one user, may prove to each other to know. The first to
    /// ask makes it up.
    ///
    /// # Errors
    /// Where it cannot be made or read.
    pub fn secret(&self) -> Result<Secret, Error> {
        let path = self.path.join("run.secret");
        if !path.exists() {
            let failed =
                |error: io::Error| Error::SecretFile { path: path.clone(), reason: error.to_string() };
            let (temporary, mut file) = create_temporary(&self.path, "run").map_err(failed)?;
            let made = [Token::random(), Token::random()]
                .into_iter()
                .try_for_each(|half| write!(file, "{:032x}", half?.0));
            // Of two that make one at a time the first wins, and nobody reads half of one.
            let linked = made.and_then(|()| std::fs::hard_link(&temporary, &path));
            let removed = std::fs::remove_file(&temporary);
            match linked {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => removed.map_err(failed)?,
            }
        }
        Secret::read(&path)
    }

    /// Removes regions, keys and the addresses of those who answer for load; other files are none of ours.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub fn sweep(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.path) {
            // Somebody has swept more than that.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let unfinished = name.starts_with('.') && name.ends_with(".new");
            let ours =
                [".region", ".socket", ".tcpkey", ".responder"].iter().any(|kind| name.ends_with(kind));
            if unfinished || ours {
                match std::fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn key_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.tcpkey"))
    }
}

impl Directory for RunDirectory {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        let Some(text) = key.locator.to_text() else {
            return Ok(()); // A region's file is its own key, and a simulated region has none.
        };
        let path = self.key_path(&key.name);
        let failed = |source| Error::Create { path: path.clone(), source };
        let (temporary, mut file) = create_temporary(&self.path, &key.name).map_err(failed)?;
        let written = writeln!(file, "{text}");
        written.and_then(|()| std::fs::rename(&temporary, &path)).map_err(failed)
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        check_name(name)?;
        let key = |locator| Key { name: name.to_owned(), kind, len, access, locator };
        let region = shm::region_path(&self.path, name);
        if region.exists() {
            return Ok(key(Locator::Shm { path: region }));
        }
        let path = self.key_path(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(key(Locator::from_text(&text).ok_or(Error::BadKey {
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

/// A new file of a name that nobody else uses, to be given its real one once it is whole. What a killed process left of
/// these goes with the next sweep.
pub(crate) fn create_temporary(directory: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let path = directory.join(format!(".{name}.{:032x}.new", Token::random()?.0));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

/// Takes a lock, or tells that another holds it.
///
/// A process that is being spawned holds its parent's locks until it becomes another program, so one that was just
/// given up may seem to be held for a moment: it is tried for a while.
pub(crate) fn lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES_MAX {
        match flock(file, operation) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            locked => return Ok(locked.map(|()| true)?),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_processes_agree_on_a_secret() {
        use crate::control::{Endpoint, Session};

        let directory = tempfile::tempdir().unwrap();
        let secrets: Vec<_> = std::thread::scope(|scope| {
            let read = || RunDirectory::open(directory.path()).unwrap().secret().unwrap();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let endpoint = Endpoint::listen(([127, 0, 0, 1], 0).into(), secrets[0].clone()).unwrap();
        for secret in &secrets {
            Session::open(endpoint.address(), secret, Duration::from_secs(30)).unwrap();
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn it_is_claimed_while_the_claim_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        assert!(!RunDirectory::is_claimed(&path) && !path.exists(), "looking makes nothing");
        let claim = RunDirectory::open(&path).unwrap().claim().unwrap();
        assert!(RunDirectory::is_claimed(&path));
        drop(claim);
        assert!(!RunDirectory::is_claimed(&path), "the file is left, the lock is not");
    }

    #[test]
    fn a_sweep_takes_what_killed_parts_left_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        let ours = [
            "n1.load.region",
            "n1.load.socket",
            "n1.load.tcpkey",
            "n1.responder",
            ".n1.load.00ff.new",
            ".n1.7.responder.new",
        ];
        let others = ["cluster.toml", "n1.log", "lock", "region", ".hidden", "new.new"];
        for name in ours.iter().chain(&others) {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        run.sweep().unwrap();
        for (names, left) in [(&ours[..], false), (&others, true)] {
            names.iter().for_each(|name| assert_eq!(directory.path().join(name).exists(), left, "{name}"));
        }
        std::fs::remove_dir_all(run.path()).unwrap();
        run.sweep().unwrap();
    }
}
