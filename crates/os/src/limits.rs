//! The limit of open files (getrlimit(2), RLIMIT_NOFILE).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The files that this process may have open at once: `u64::MAX` if there is no limit.
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of open files to `needed`, or as far as this process may if `needed` is `None`. A limit that suffices stays.
///
/// # Errors
/// If `needed` is more than this process may have, or the kernel refuses.
pub fn raise_open_files(needed: Option<u64>) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if needed.is_some_and(|needed| current.is_none_or(|current| current >= needed)) {
        return Ok(());
    }
    let current = needed.or(maximum);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).map_err(|_| {
        let (needed, maximum) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
        io::Error::other(format!("{needed} descriptors are needed, and the limit is {maximum} (ulimit -Hn)"))
    })
}
