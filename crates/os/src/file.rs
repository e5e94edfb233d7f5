//! Files that an operator names: cluster files, secrets, certificates, traces, reports.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

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
}
