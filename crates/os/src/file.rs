//! Files that an operator names: cluster files, secrets, certificates, traces, reports.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

/// Opens a regular file for reading.
///
/// # Errors
/// If it cannot be opened, or is not a regular file. A FIFO, for example, would keep its reader waiting for a writer.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO waits for its writer. It does nothing to regular files.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Checks that nobody but root and the user of this process may read or change a file.
///
/// # Errors
/// If others may, in words that say what to do.
pub fn check_private(file: &File) -> Result<(), String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    let mode = found.mode() & 0o777;
    if !found.is_file() || mode & 0o077 != 0 || ![0, geteuid().as_raw()].contains(&found.uid()) {
        return Err(format!("others may read or change it (mode {mode:o}): make it a file of mode 0600"));
    }
    Ok(())
}

/// Replaces a file whole, with the owner, the group and the rights of the one before. If it may not have that owner or group, `foreign`
/// says whether that matters.
///
/// # Errors
/// If there is no such file, or it cannot be replaced. It is then as before.
pub fn replace_file(
    path: &Path,
    contents: &[u8],
    foreign: impl FnOnce(io::Error) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let (new, before) = (path.with_file_name(name), fs::metadata(path)?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let replace = || {
        fchown(&file, Some(before.uid()), Some(before.gid())).or_else(foreign)?;
        file.set_permissions(before.permissions())?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    replace().inspect_err(|_| _ = fs::remove_file(&new))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for refused in [&*fifo, directory.path(), Path::new("/dev/zero")] {
            let error = open_regular(refused).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{}", refused.display());
        }
        assert_eq!(open_regular(&directory.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);

        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [file, link] {
            let mut text = String::new();
            open_regular(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_rights() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(replace_file(&path, b"new", Err).is_err(), "there is none");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace_file(&path, b"new", Err).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }
}
