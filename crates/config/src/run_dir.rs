//! The default run directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};
use rustix::process::geteuid;

/// `f_type` of a tmpfs (statfs(2)).
const TMPFS: FsWord = 0x0102_1994;
/// All permissions of the group and others, and those to write.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// The default directory for the files of a cluster with this name. Its parent is the first of these that is available:
///
/// 1. `$XDG_RUNTIME_DIR/sidelong`, or `/run/user/UID/sidelong` if the variable is not set. Only the user may enter it, and it
///    must be a tmpfs, as regions are shared memory.
/// 2. For root: `/run/sidelong`, if /run is a tmpfs.
/// 3. `/dev/shm/sidelong-UID`
/// 4. `sidelong-UID` in the directory for temporary files
///
/// This function only chooses the path. Opening the directory checks that other users cannot replace it.
pub fn default_run_dir(name: &str) -> PathBuf {
    let user = geteuid().as_raw();
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_session = of_session.unwrap_or_else(|| format!("/run/user/{user}").into());
    base(user, &of_session, Path::new("/run")).join(name)
}

fn base(user: u32, of_session: &Path, of_system: &Path) -> PathBuf {
    if of_session.is_absolute() && is_kept_from(of_session, user, OTHERS) {
        return of_session.join("sidelong");
    }
    let of_root = of_system.join("sidelong");
    // docs/fronts.md gives a front's directory, of the same name, to another user.
    let is_free = !of_root.exists() || is_kept_from(&of_root, user, OTHERS_WRITE);
    if user == 0 && is_kept_from(of_system, user, OTHERS_WRITE) && is_free {
        return of_root;
    }
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    base.join(format!("sidelong-{user}"))
}

/// Whether it is a tmpfs directory of that user that grants others none of these permissions.
fn is_kept_from(directory: &Path, user: u32, permissions: u32) -> bool {
    let is_theirs = std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & permissions == 0);
    is_theirs && statfs(directory).is_ok_and(|found| found.f_type == TMPFS)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_session_of_this_user_in_memory_comes_first_then_the_system_and_then_shared_memory() {
        let user = geteuid().as_raw();
        let shared = PathBuf::from(format!("/dev/shm/sidelong-{user}"));
        let nowhere = Path::new("/nonexistent");
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
            writeln!(std::io::stderr(), "SKIPPED: run_dir: /dev/shm cannot be written").unwrap();
            return;
        };
        let memory = memory.path();
        let mode = |mode| fs::set_permissions(memory, Permissions::from_mode(mode)).unwrap();
        mode(0o700);
        assert_eq!(base(user, memory, nowhere), memory.join("sidelong"));
        assert_eq!(base(user, Path::new("relative"), nowhere), shared);
        assert_eq!(base(user + 1, memory, nowhere), Path::new(&format!("/dev/shm/sidelong-{}", user + 1)));
        mode(0o750);
        assert_eq!(base(user, memory, nowhere), shared, "others may enter it");
        let disk = tempfile::tempdir().unwrap();
        if statfs(disk.path()).unwrap().f_type != TMPFS {
            assert_eq!(base(user, disk.path(), nowhere), shared, "it does not lie in memory");
        }
        if user == 0 {
            mode(0o755);
            assert_eq!(base(user, nowhere, memory), memory.join("sidelong"));
            std::os::unix::fs::symlink("/tmp", memory.join("sidelong")).unwrap();
            assert_eq!(base(user, nowhere, memory), shared, "its directory is another's");
        }
    }
}
