//! A kernel file that is kept open and read again from its start. The kernel renews the contents at each such read, and
//! opening the file each time would cost more than reading it.

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
/// Longer than any of these files: /proc/stat of 4,096 CPUs is about 300 kB. The rest of a longer file is ignored.
const BUFFER_BYTES_MAX: usize = 1 << 20;

impl Probe {
    pub(crate) fn open(path: PathBuf) -> Self {
        let file = File::open(&path);
        Probe { path, file }
    }

    /// The first of `paths` that opens, otherwise the last.
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

    /// The path and the error, if it could not be opened.
    pub(crate) fn failure(&self) -> Option<(PathBuf, io::Error)> {
        let error = self.file.as_ref().err()?;
        let error = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        Some((self.path.clone(), error))
    }

    /// The file's current contents, parsed by `parse`; `None` if the file is missing or lacks the figure. `buffer` is
    /// reused between calls and soon allocates no more.
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

/// Size of the machine that nodes share, read once. `None` if unavailable.
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

/// CPU time that a share of a machine's CPUs could have used, accumulated as the share changes.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    total_ns: u64,
    counted_until_ns: Option<u64>,
}

impl Offer {
    /// Adds the time since the last call at a share of `millicpus`, and returns the total.
    pub(crate) fn count(&mut self, now_ns: u64, millicpus: u64) -> u64 {
        let since = self.counted_until_ns.replace(now_ns).unwrap_or(now_ns);
        let offered = u128::from(now_ns.saturating_sub(since)) * u128::from(millicpus) / 1000;
        self.total_ns = self.total_ns.saturating_add(u64::try_from(offered).unwrap_or(u64::MAX));
        self.total_ns
    }
}
