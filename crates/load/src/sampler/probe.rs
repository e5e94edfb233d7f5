//! A file of the kernel's, kept open and read again from its start: the kernel makes its contents anew at each such
//! read, and opening it each time would cost more than reading it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file that may be missing.
#[derive(Debug)]
pub(crate) struct Probe {
    path: PathBuf,
    file: io::Result<File>,
}

const BUFFER_BYTES_MIN: usize = 4096;
/// Beyond any of these files: /proc/stat of 4,096 CPUs is about 300 kB. What is longer is cut off.
const BUFFER_BYTES_MAX: usize = 1 << 20;

impl Probe {
    pub(crate) fn open(path: PathBuf) -> Self {
        let file = File::open(&path);
        Probe { path, file }
    }

    /// The first of `paths` that opens, else the last.
    pub(crate) fn open_first(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut last = Probe { path: PathBuf::new(), file: Err(io::ErrorKind::NotFound.into()) };
        for path in paths {
            last = Probe::open(path);
            if last.is_open() {
                break;
            }
        }
        last
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.is_ok()
    }

    /// What could not be opened, and why.
    pub(crate) fn failure(&self) -> Option<(PathBuf, io::Error)> {
        let error = self.file.as_ref().err()?;
        let error = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        Some((self.path.clone(), error))
    }

    /// What the file says now, by `parse`; `None` where it is missing or does not say it. `buffer` is kept from one
    /// call to the next and soon allocates no more.
    pub(crate) fn read<T>(&self, buffer: &mut Vec<u8>, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let file = self.file.as_ref().ok()?;
        let mut len = 0;
        loop {
            if len == buffer.len() {
                if len >= BUFFER_BYTES_MAX {
                    break;
                }
                buffer.resize((2 * len).max(BUFFER_BYTES_MIN), 0);
            }
            match file.read_at(&mut buffer[len..], len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process or the control group is gone.
                Err(_) => return None,
            }
        }
        parse(&buffer[..len])
    }
}

/// What nodes that share a machine measure themselves against. Read once: `None` where it cannot be had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machinery {
    pub(crate) cpus: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
}

impl Machinery {
    pub(crate) fn read(proc: &Path, buffer: &mut Vec<u8>) -> Self {
        use crate::proc::machine;
        let stat = Probe::open(proc.join("stat")).read(buffer, machine::stat);
        let memory = Probe::open(proc.join("meminfo")).read(buffer, machine::memory);
        Machinery { cpus: stat.map(|stat| stat.cpus), memory_bytes: memory.map(|memory| memory.total_bytes) }
    }
}

/// CPU time that a share of a machine's CPUs could have used, added up as the share changes.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    total_ns: u64,
    counted_until_ns: Option<u64>,
}

impl Offer {
    /// Counts the time since the last call at a share of `millicpus`, and returns the total.
    pub(crate) fn count(&mut self, now_ns: u64, millicpus: u64) -> u64 {
        let since = self.counted_until_ns.replace(now_ns).unwrap_or(now_ns);
        let offered = u128::from(now_ns.saturating_sub(since)) * u128::from(millicpus) / 1000;
        self.total_ns = self.total_ns.saturating_add(u64::try_from(offered).unwrap_or(u64::MAX));
        self.total_ns
    }
}
