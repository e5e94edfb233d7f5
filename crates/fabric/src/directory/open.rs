//! A directory held open that no other user could have put in place of the intended one.
//!
//! The path is opened one component at a time, without symbolic links. Each directory on it belongs to root or to this
//! process's user, and others cannot write to it, unless it is sticky as /tmp is: there users remove and rename only their
//! own files. Files are opened relative to the resulting descriptor and are regular: no link, FIFO or device.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, chmodat, fchmod, fstat, linkat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::access::Token;

/// Mode of a directory that is created above the requested one.
const PARENT_MODE: Mode = Mode::from_raw_mode(0o755);
/// Mode of every file: the right to open it is the right to the cluster.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;
/// Write permission of the group and of all others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Looks names up in one directory, whatever happens to its path.
#[derive(Debug)]
pub(crate) struct OpenDirectory(OwnedFd);

impl OpenDirectory {
    /// Opens the directory at `path`. With `make`, creates it with that mode if it does not exist, and those above it.
    ///
    /// # Errors
    /// `NotFound` if it does not exist and is not created. `PermissionDenied`, naming the component, if another user could
    /// replace a part of the path, or write in the directory.
    pub(crate) fn walk(path: &Path, make: Option<Mode>) -> io::Result<OpenDirectory> {
        let whole = std::path::absolute(path)?;
        let mut steps = whole.components().filter(|step| *step != Component::RootDir).peekable();
        let (mut here, mut directory) = (PathBuf::from("/"), rustix::fs::open("/", LOOK, Mode::empty())?);
        let mut found = fstat(&directory)?;
        let owner_of_all = found.st_uid;
        while let Some(step) = steps.next() {
            let name = step.as_os_str();
            let inside = found;
            here.push(name);
            let is_last = steps.peek().is_none();
            directory = match (openat(&directory, name, LOOK, Mode::empty()), make) {
                (Err(Errno::NOENT), Some(mode)) => {
                    match mkdirat(&directory, name, if is_last { mode } else { PARENT_MODE }) {
                        // Another process may have just created it.
                        Ok(()) | Err(Errno::EXIST) => openat(&directory, name, LOOK, Mode::empty())?,
                        Err(error) => return Err(error.into()),
                    }
                }
                (Err(Errno::NOTDIR), _) if is_link(&directory, name) => {
                    return Err(refused(&here, "is a symbolic link: name the directory that it leads to"));
                }
                (opened, _) => opened?,
            };
            found = fstat(&directory)?;
            // In a user namespace the system's directories may belong to a user that is not mapped.
            let is_systems = found.st_uid == owner_of_all && inside.st_mode & OTHERS_WRITE == 0;
            if !is_trusted(found.st_uid) && !is_systems {
                let owner = format!("belongs to another user (uid {})", found.st_uid);
                return Err(refused(&here, &owner));
            }
            if found.st_mode & OTHERS_WRITE != 0 && (is_last || found.st_mode & STICKY == 0) {
                let mode = found.st_mode & PERMISSIONS;
                let open = format!("has mode {mode:o}, so others may write in it; make it with mode 0700");
                return Err(refused(&here, &open));
            }
        }
        Ok(OpenDirectory(directory))
    }

    /// Opens an existing file.
    pub(crate) fn open(&self, name: impl AsRef<OsStr>, write: bool) -> io::Result<File> {
        self.open_with(name, if write { OFlags::RDWR } else { OFlags::RDONLY })
    }

    /// Opens a file for reading and appending, or creates it. Its mode becomes 0600.
    pub(crate) fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.open_with(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        fchmod(&file, FILE_MODE)?;
        Ok(file)
    }

    /// Creates a file with mode 0600; fails if the name is taken.
    pub(crate) fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open_with(&self, name: impl AsRef<OsStr>, how: OFlags) -> io::Result<File> {
        // Without NONBLOCK, opening a FIFO waits for its other end. It does nothing to regular files.
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.0, name.as_ref(), flags, FILE_MODE)?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file: remove it"));
        }
        // One from a time when others could write in the directory.
        if !is_trusted(found.uid()) {
            let owner = format!("belongs to another user (uid {}): remove it", found.uid());
            return Err(io::Error::new(ErrorKind::PermissionDenied, owner));
        }
        Ok(file)
    }

    /// A descriptor of a file of any kind that tells what becomes of it, and neither reads nor writes.
    pub(crate) fn hold(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Creates a file under a unique name, to be renamed once it is complete. The next sweep removes those that a killed
    /// process left.
    pub(crate) fn create_temporary(&self, name: &str) -> io::Result<(String, File)> {
        let temporary = temporary_name(name)?;
        let file = self.create_new(&temporary)?;
        Ok((temporary, file))
    }

    /// Gives a file a second name; fails if that is taken.
    pub(crate) fn link(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(linkat(&self.0, from, &self.0, to, AtFlags::empty())?)
    }

    /// Renames a file, in place of an old one.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file if it exists.
    pub(crate) fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.0, name.as_ref(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps other users from connecting to the socket `name`.
    pub(crate) fn make_private(&self, name: &str) -> io::Result<()> {
        Ok(chmodat(&self.0, name, FILE_MODE, AtFlags::empty())?)
    }

    /// Whether the name is taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.stat(name).is_ok()
    }

    /// Whether `name` still names `file`.
    pub(crate) fn is_name_of(&self, name: &str, file: &File) -> bool {
        let (named, held) = (self.stat(name), fstat(file));
        named.is_ok_and(|named| held.is_ok_and(|held| is_same(&named, &held)))
    }

    /// Excludes other processes that lock the directory, until the result is dropped. `None` if one of them goes on for too
    /// long.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let listed = File::from(self.list()?);
        Ok(super::lock(&listed, FlockOperation::NonBlockingLockExclusive)?.then_some(listed))
    }

    /// Calls `act` with each name in the directory.
    pub(crate) fn for_each(&self, mut act: impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
        for entry in Dir::new(self.list()?)? {
            act(OsStr::from_bytes(entry?.file_name().to_bytes()))?;
        }
        Ok(())
    }

    /// A path to `name` that is valid while this value lives: for calls that take no descriptor, and short enough for a
    /// socket's address.
    pub(crate) fn path_to(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }

    fn list(&self) -> rustix::io::Result<OwnedFd> {
        openat(&self.0, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    fn stat(&self, name: &str) -> rustix::io::Result<Stat> {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// How to open a directory for looking up names only.
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A unique name, which a sweep removes.
pub(crate) fn temporary_name(name: &str) -> io::Result<String> {
    Ok(format!(".{name}.{:032x}.new", Token::random()?.0))
}

/// Whether this user is root or the process's own.
fn is_trusted(user: u32) -> bool {
    [0, geteuid().as_raw()].contains(&user)
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn refused(component: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", component.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use rustix::fs::{CWD, mknodat};

    use super::*;

    const PRIVATE: Mode = Mode::from_raw_mode(0o700);
    const NOBODY: u32 = 65534;

    fn refusal(path: &Path) -> String {
        let error = OpenDirectory::walk(path, Some(PRIVATE)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_directory_is_made_with_its_mode_and_those_above_it_may_be_entered() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b/run");
        assert_eq!(OpenDirectory::walk(&path, None).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!top.path().join("a").exists(), "looking makes nothing");
        for _ in 0..2 {
            OpenDirectory::walk(&path, Some(PRIVATE)).unwrap();
        }
        let modes = ["a", "a/b", "a/b/run"].map(|below| mode(&top.path().join(below)));
        assert_eq!(modes, [0o755, 0o755, 0o700]);
        OpenDirectory::walk(&top.path().join("a/../a/./b/run"), None).unwrap();
    }

    #[test]
    fn a_path_that_others_could_change_is_refused_with_the_component() {
        let top = tempfile::tempdir().unwrap();
        let (open, path) = (top.path().join("open"), top.path().join("open/run"));
        fs::create_dir_all(&path).unwrap();
        for (others, expected) in [(0o777, "mode 777"), (0o775, "mode 775"), (0o757, "mode 757")] {
            set(&open, others);
            let refusal = refusal(&path);
            assert!(refusal.starts_with(&format!("{} has {expected}", open.display())), "{refusal}");
        }
        // Where others may add names and change none, as in /tmp.
        set(&open, 0o1777);
        OpenDirectory::walk(&path, None).unwrap();
        assert!(refusal(&open).contains("others may write in it"), "but nothing is to lie there");

        let link = top.path().join("link");
        symlink(&open, &link).unwrap();
        for through in [link.clone(), link.join("run")] {
            let expected = format!("{} is a symbolic link", link.display());
            assert!(refusal(&through).starts_with(&expected), "{}", through.display());
        }
        fs::write(top.path().join("file"), "").unwrap();
        let error = OpenDirectory::walk(&top.path().join("file/run"), Some(PRIVATE)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory, "{error}");
    }

    #[test]
    fn another_users_directory_is_refused() {
        if !geteuid().is_root() {
            let why = "only root can give a directory away";
            writeln!(io::stderr(), "SKIPPED: another_users_directory_is_refused: {why}").unwrap();
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let (theirs, path) = (top.path().join("theirs"), top.path().join("theirs/run"));
        fs::create_dir_all(&path).unwrap();
        let file = path.join("n1.load.region");
        fs::write(&file, "theirs").unwrap();
        chown(&file, Some(NOBODY), None).unwrap();
        let refused = OpenDirectory::walk(&path, None).unwrap().open("n1.load.region", false).unwrap_err();
        assert!(refused.to_string().starts_with("belongs to another user"), "{refused}");
        for given in [&theirs, &path] {
            chown(given, Some(NOBODY), None).unwrap();
            let expected = format!("{} belongs to another user (uid {NOBODY})", given.display());
            assert_eq!(refusal(&path), expected);
            chown(given, Some(0), None).unwrap();
        }
        OpenDirectory::walk(&path, None).unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let top = tempfile::tempdir().unwrap();
        let directory = OpenDirectory::walk(top.path(), None).unwrap();
        mknodat(CWD, top.path().join("fifo"), FileType::Fifo, FILE_MODE, 0).unwrap();
        symlink("elsewhere", top.path().join("link")).unwrap();
        fs::create_dir(top.path().join("directory")).unwrap();
        for name in ["fifo", "link", "directory"] {
            directory.open(name, false).unwrap_err();
            directory.append(name).unwrap_err();
            directory.create_new(name).unwrap_err();
        }
        assert!(!top.path().join("elsewhere").exists());
    }

    #[test]
    fn every_file_is_its_owners_alone_whatever_mode_it_had() {
        let top = tempfile::tempdir().unwrap();
        let run = crate::RunDirectory::open(top.path()).unwrap();
        let [replaced, created, kept] =
            ["cluster.toml", "n1.log", "edge1.history.jsonl"].map(|name| top.path().join(name));
        let held = [&replaced, &created, &kept].map(|path| {
            fs::write(path, "old ").unwrap();
            set(path, 0o666);
            File::open(path).unwrap()
        });
        run.replace("cluster.toml", b"new").unwrap();
        run.create("n1.log").unwrap().write_all(b"new").unwrap();
        run.append("edge1.history.jsonl").unwrap().write_all(b"new").unwrap();
        let found = [&replaced, &created, &kept].map(|path| (mode(path), fs::read_to_string(path).unwrap()));
        assert_eq!(found, ["new", "new", "old new"].map(|text| (0o600, text.to_owned())));
        let lengths = held.map(|old| old.metadata().unwrap().len());
        assert_eq!(lengths, [4, 4, 7], "who had the old ones open sees nothing of the new ones");
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 3, "nothing else is left");
    }
}
