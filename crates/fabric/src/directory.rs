//! Directories: how processes find each other's keys.

mod open;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Gid, Mode, fchmod, fchown, flock};
use rustix::io::Errno;
use sidelong_layout::RegionKind;

use crate::access::Token;
use crate::control::Secret;
use crate::key::{Key, Locator};
use crate::region::check_name;
use crate::{Access, Error};

pub(crate) use open::{OpenDirectory, temporary_name};

/// Publishes and finds keys. [`RunDirectory`] is the default.
pub trait Directory: Send + Sync {
    /// Publishes `key` under its region's name, in place of an earlier one.
    ///
    /// # Errors
    /// If it cannot be written.
    fn publish(&self, key: &Key) -> Result<(), Error>;

    /// Finds the key of the region `name`, which has `kind` and `len` bytes and grants `access`.
    ///
    /// # Errors
    /// If no process has published it, or it cannot be read.
    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error>;

    /// Where the process is asked that exposes the region `name`; `None` if all are in one place.
    fn place(&self, name: &str) -> Option<SocketAddr> {
        let _ = name;
        None
    }

    /// How often places have changed.
    fn moves(&self) -> u64 {
        0
    }

    /// Whether it is proven that the process which exposed the region `name` has ended, and no other exposes it now. There is no link to it,
    /// and one has just failed with `error`, if it was tried. `incarnation` is that of the process as last seen, if it ever was.
    ///
    /// On one machine nobody but the kernel says that there is no such file, or that nobody listens.
    fn has_ended(&self, name: &str, incarnation: Option<u64>, error: Option<&Error>) -> bool {
        let _ = (name, incarnation);
        error.is_some_and(Error::found_nobody)
    }
}

/// Longest process number in a lock file, in bytes.
const PID_BYTES_MAX: u64 = 20;
/// Longest line of a key, in bytes.
const KEY_BYTES_MAX: u64 = 256;

/// Attempts to take a lock that another process holds.
const LOCK_TRIES_MAX: usize = 20;
/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Mode of a run directory.
const PRIVATE: Mode = Mode::from_raw_mode(0o700);
/// Mode of a directory with files that other users may read.
const PUBLIC: Mode = Mode::from_raw_mode(0o755);
/// Mode of such a file.
const PUBLIC_FILE: Mode = Mode::from_raw_mode(0o644);
/// Mode of a file that a group may write.
const GROUP_FILE: Mode = Mode::from_raw_mode(0o660);

/// A directory on one machine, accessible to its owner alone. It holds regions (`NAME.region`, whose file is the key;
/// beside it `NAME.socket` if the memory lies elsewhere), keys of the tcp backend (`NAME.tcpkey`), what shows who
/// exposes regions to other machines (`NAME.held`), logs and histories, and the lock of the cluster that runs in it.
///
/// Every file in it is opened through this type. Each call opens the path anew, one component at a time and without symbolic
/// links, and refuses a path that another user could have changed. So a directory that was removed and created again is
/// found, and one that another user put in its place is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Opens the directory, or creates it with mode 0700.
    ///
    /// # Errors
    /// If it cannot be created, or another user could replace it or write in it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        RunDirectory::at(path).made(PRIVATE)
    }

    /// Opens the directory, or creates it with mode 0755, for files that other users may read.
    ///
    /// # Errors
    /// As [`RunDirectory::open`].
    pub fn open_public(path: impl Into<PathBuf>) -> Result<Self, Error> {
        RunDirectory::at(path).made(PUBLIC)
    }

    /// The directory at `path`, which need not exist yet: each call looks for it and checks it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        RunDirectory { path: path.into() }
    }

    fn made(self, mode: Mode) -> Result<Self, Error> {
        match OpenDirectory::walk(&self.path, Some(mode)) {
            Ok(_) => Ok(self),
            Err(source) => Err(Error::Directory { path: self.path, source }),
        }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the directory itself.
    pub(crate) fn enter(&self) -> io::Result<OpenDirectory> {
        OpenDirectory::walk(&self.path, None)
    }

    /// Opens the file `name` for reading.
    ///
    /// # Errors
    /// If it does not exist or is not a regular file.
    pub fn read(&self, name: &str) -> io::Result<File> {
        self.enter()?.open(name, false)
    }

    /// Creates the file `name` with mode 0600, in place of an old one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let directory = self.enter()?;
        directory.remove(name)?;
        directory.create_new(name)
    }

    /// Opens the file `name` for reading and appending, or creates it. Its mode becomes 0600.
    ///
    /// # Errors
    /// If it cannot be created or is not a regular file.
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.enter()?.append(name)
    }

    /// Replaces the file `name` by one of mode 0600 with these contents. Readers see the old file or the whole new one.
    ///
    /// # Errors
    /// If it cannot be written. An old file then stays.
    pub fn replace(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let directory = self.enter()?;
        let (temporary, mut file) = directory.create_temporary(name)?;
        let written = file.write_all(contents).and_then(|()| directory.rename(&temporary, name));
        written.inspect_err(|_| _ = directory.remove(&temporary))
    }

    /// Renames the file `from` to `to`, in place of an old one.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.enter()?.rename(from, to)
    }

    /// Lets other users read the file `name`.
    ///
    /// # Errors
    /// If it does not exist or is not a regular file.
    pub fn publish_file(&self, name: &str) -> io::Result<()> {
        Ok(fchmod(self.read(name)?, PUBLIC_FILE)?)
    }

    /// Lets a group read and write the file `name`.
    ///
    /// # Errors
    /// If it does not exist or is not a regular file, or if this process may not give it to the group.
    pub fn share_file(&self, name: &str, group: u32) -> io::Result<()> {
        let file = self.read(name)?;
        fchown(&file, None, Some(Gid::from_raw(group)))?;
        Ok(fchmod(file, GROUP_FILE)?)
    }

    /// Whether a process holds the file of a region, or may do so: a process that lives has the region. Its memory may outlive
    /// the process.
    pub fn is_exposed(&self, region: &str) -> bool {
        self.is_held(file_name(region))
    }

    /// Removes what is left of a region whose process has ended.
    ///
    /// # Errors
    /// If a process has it, or it cannot be removed.
    pub fn forget(&self, region: &str) -> io::Result<()> {
        if self.is_exposed(region) || self.has_holder(region) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        let directory = self.enter()?;
        for name in [file_name(region), key_name(region), held_name(region)] {
            match directory.remove(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a process holds a file, or may do so.
    pub(crate) fn is_held(&self, name: impl AsRef<OsStr>) -> bool {
        match self.enter().and_then(|directory| directory.open(name, false)) {
            // Freed again when the file is closed. Whoever takes the region over at this moment tries again.
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Makes this process the only one that has the lock of that name, while the returned file lives. `None` if another
    /// process keeps it for longer than a moment.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = self.append(name)?;
        Ok(lock(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(file))
    }

    /// Whether a process has the lock of that name.
    pub fn is_locked(&self, name: &str) -> bool {
        self.read(name)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// Shows to the processes of this machine, while the returned file lives, that the process of that incarnation exposes `region` to
    /// other machines. `None` if another process does.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn hold(&self, region: &str, incarnation: u64) -> io::Result<Option<File>> {
        let Some(file) = self.lock(&held_name(region))? else { return Ok(None) };
        hold_as(&file, incarnation)?;
        Ok(Some(file))
    }

    /// Whether a process [holds](Self::hold) `region`.
    pub fn has_holder(&self, region: &str) -> bool {
        self.is_locked(&held_name(region))
    }

    /// The incarnation of the last process that [held](Self::hold) `region`, if that has ended.
    pub fn ended(&self, region: &str) -> Option<u64> {
        check_name(region).ok()?;
        let mut file = self.read(&held_name(region)).ok()?;
        // Freed again when the file is closed. Whoever takes the region over at this moment tries again.
        flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        let mut incarnation = [0; 8];
        file.read_exact(&mut incarnation).ok()?;
        Some(u64::from_le_bytes(incarnation))
    }

    /// Removes the directory and everything in it, as far as that can be removed.
    pub fn remove(&self) {
        // The walk shows that no other user can replace a component of the path before it is used again.
        if self.enter().is_ok() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }

    /// Makes this process the only user of the directory while the returned file lives, and removes what a killed
    /// process left.
    ///
    /// # Errors
    /// [`Error::InUse`] if a live process has claimed it.
    pub fn claim(&self) -> Result<File, Error> {
        let failed = |source| Error::Directory { path: self.path.clone(), source };
        let mut file = self.append("lock").map_err(failed)?;
        if !lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
            let mut pid = String::new();
            let _ = (&file).take(PID_BYTES_MAX).read_to_string(&mut pid);
            return Err(Error::InUse { path: self.path.clone(), pid: pid.trim().to_owned() });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        self.sweep().map_err(failed)?;
        Ok(file)
    }

    /// Whether `claim`, which [`claim`](Self::claim) returned, is still one: the directory was not removed or replaced since.
    pub fn is_claimed_by(&self, claim: &File) -> bool {
        match (std::fs::metadata(self.path.join("lock")), claim.metadata()) {
            (Ok(found), Ok(claimed)) => (found.dev(), found.ino()) == (claimed.dev(), claimed.ino()),
            (Err(error), _) => {
                ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
            }
            (Ok(_), Err(_)) => true,
        }
    }

    /// Whether a live process has claimed the directory. Creates nothing, so it suits readers; a process that claims the
    /// directory at this moment retries.
    pub fn is_claimed(&self) -> bool {
        self.is_locked("lock")
    }

    /// The secret of the processes that use this directory, all on this machine and of one user. The first caller
    /// creates it.
    ///
    /// # Errors
    /// If it cannot be created or read.
    pub fn secret(&self) -> Result<Secret, Error> {
        let path = self.path.join(SECRET);
        let failed = |error: io::Error| Error::SecretFile { path: path.clone(), reason: error.to_string() };
        let directory = self.enter().map_err(failed)?;
        if !directory.has(SECRET) {
            let (temporary, mut file) = directory.create_temporary("run").map_err(failed)?;
            let made = [Token::random(), Token::random()]
                .into_iter()
                .try_for_each(|half| write!(file, "{:032x}", half?.0));
            // If two processes create it at once, the first wins, and neither reads a partial file.
            let linked = made.and_then(|()| directory.link(&temporary, SECRET));
            let removed = directory.remove(&temporary);
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => removed.map_err(failed)?,
            }
        }
        Secret::of_file(directory.open(SECRET, false).map_err(failed)?, &path)
    }

    /// Removes regions, keys and the sockets of processes that answer for load. Other files stay.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn sweep(&self) -> io::Result<()> {
        let directory = match self.enter() {
            // Another process has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entered => entered?,
        };
        directory.for_each(|entry| {
            let name = entry.to_string_lossy();
            let unfinished = name.starts_with('.') && name.ends_with(".new");
            let ours = [".region", ".socket", ".tcpkey", ".responder", ".heir"]
                .iter()
                .any(|kind| name.ends_with(kind));
            if unfinished || ours { directory.remove(entry) } else { Ok(()) }
        })
    }
}

/// Shows in a file that [`RunDirectory::hold`] has made, and that another process has handed over, that it is held by the process of that
/// incarnation now.
///
/// # Errors
/// If it cannot be written.
pub fn hold_as(file: &File, incarnation: u64) -> io::Result<()> {
    file.set_len(0)?;
    // Opened to append.
    (&*file).write_all(&incarnation.to_le_bytes())
}

/// File of the secret that the processes of this directory share.
const SECRET: &str = "run.secret";

/// The file of the region with that name.
pub(crate) fn file_name(region: &str) -> String {
    format!("{region}.region")
}

/// The file that the process holds which exposes the region to other machines.
fn held_name(region: &str) -> String {
    format!("{region}.held")
}

fn key_name(region: &str) -> String {
    format!("{region}.tcpkey")
}

impl Directory for RunDirectory {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        let Some(text) = key.locator.to_text() else {
            return Ok(()); // the key of a region's file is the file, and a simulated region has none
        };
        let name = key_name(&key.name);
        let written = self.replace(&name, format!("{text}\n").as_bytes());
        written.map_err(|source| Error::Create { path: self.path.join(name), source })
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        check_name(name)?;
        let key = |locator| Key { name: name.to_owned(), kind, len, access, locator };
        let none = || Error::NoKey { name: name.to_owned(), place: self.path.display().to_string() };
        let directory = match self.enter() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(none()),
            entered => entered.map_err(|source| Error::Directory { path: self.path.clone(), source })?,
        };
        if directory.has(&file_name(name)) {
            return Ok(key(Locator::Shm { run: self.path.clone() }));
        }
        let path = || self.path.join(key_name(name));
        let mut text = String::new();
        let read = directory.open(key_name(name), false);
        match read.and_then(|file| file.take(KEY_BYTES_MAX).read_to_string(&mut text)) {
            Ok(_) => Ok(key(Locator::from_text(&text).ok_or_else(|| Error::BadKey {
                path: path(),
                reason: "not `tcp ADDRESS TOKEN`; was it written by another version?".to_owned(),
            })?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(none()),
            Err(source) => Err(Error::Open { path: path(), source }),
        }
    }
}

/// Takes a lock, or tells that another holds it.
///
/// A process that is being spawned holds its parent's locks until it executes another program. So a lock that was just
/// released may seem held for a moment, and is retried for a while.
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
        assert!(!RunDirectory::at(&path).is_claimed() && !path.exists(), "looking makes nothing");
        let claim = RunDirectory::open(&path).unwrap().claim().unwrap();
        assert!(RunDirectory::at(&path).is_claimed());
        let run = RunDirectory::open(&path).unwrap();
        assert!(run.is_claimed_by(&claim));
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        assert!(!run.is_claimed_by(&claim), "gone");
        let again = RunDirectory::open(&path).unwrap().claim().unwrap();
        assert!(!run.is_claimed_by(&claim) && run.is_claimed_by(&again), "another one");
        drop((claim, again));
        assert!(!RunDirectory::at(&path).is_claimed(), "the file is left, the lock is not");
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
