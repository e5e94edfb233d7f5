//! Regions as files of a run directory, mapped by every peer on the machine: `NAME.region`, mode 0600.
//!
//! The owner holds a lock on the file for its lifetime. A peer's read-only key is a mapping without the right to write.
//! The memory outlives its process: one that died and comes back finds its words as they were, and its peers' links
//! hold.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use sidelong_layout::{HEADER_BYTES, RegionHeader};

use crate::host::Region;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::{Access, Batch, Error, RegionSpec};

/// Offers regions as files of one directory.
#[derive(Clone, Debug)]
pub struct ShmHost {
    directory: PathBuf,
}

impl ShmHost {
    /// In `directory`, which must exist.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        ShmHost { directory: directory.into() }
    }

    pub(crate) fn offer(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        self.open(spec, FlockOperation::NonBlockingLockExclusive, init)
    }

    /// Offers a region that nobody owns: the first process makes it, the others find it, and it outlives them all. The
    /// board is such a region.
    ///
    /// # Errors
    /// Where memory cannot be had, or another layout is there.
    pub fn offer_common(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        self.open(spec, FlockOperation::NonBlockingLockShared, init)
    }

    fn open(
        &self,
        spec: &RegionSpec<'_>,
        lock: FlockOperation,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        let path = region_path(&self.directory, spec.name);
        let mut init = Some(init);
        // A file of another layout or length is replaced once; a second time means that someone keeps making them.
        for _ in 0..4 {
            match self.create(spec, &path, lock, &mut init) {
                Err(Error::Create { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
            match adopt(spec, &path, lock) {
                Err(Error::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(Error::Header { .. } | Error::Map { .. }) => {
                    std::fs::remove_file(&path)
                        .map_err(|source| Error::Create { path: path.clone(), source })?;
                }
                adopted => return adopted,
            }
        }
        Err(Error::Taken { path })
    }

    /// Makes the file under a name of its own, fills it, and links it into place: no peer ever sees half a region.
    fn create(
        &self,
        spec: &RegionSpec<'_>,
        path: &Path,
        lock: FlockOperation,
        init: &mut Option<impl FnOnce(&mut [u64])>,
    ) -> Result<Region, Error> {
        let failed = |source| Error::Create { path: path.to_owned(), source };
        if path.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let temporary = self.directory.join(format!(".{}.{}.new", spec.name, std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(failed)?;
        let made = (|| {
            // Allocated now: a sparse file on a full tmpfs would kill whoever touches the missing page.
            fallocate(&file, FallocateFlags::empty(), 0, spec.len as u64)?;
            flock(&file, lock)?;
            let memory = Memory::of_file(&file, spec.len, Access::Atomic)?;
            let mut words = vec![0; spec.len / 8];
            words[..HEADER_BYTES / 8].copy_from_slice(&spec.header().words());
            if let Some(init) = init.take() {
                init(&mut words);
            }
            for (index, word) in words.into_iter().enumerate() {
                memory.store(index * 8, word, Ordering::Relaxed);
            }
            std::fs::hard_link(&temporary, path)?;
            Ok(memory)
        })();
        // Either it has its real name now or it is of no use.
        let _ = std::fs::remove_file(&temporary);
        Ok(Region::new(Arc::new(made.map_err(failed)?), key(spec, path), Some(file)))
    }
}

/// Takes over what an earlier life left, or another process made in common.
fn adopt(spec: &RegionSpec<'_>, path: &Path, lock: FlockOperation) -> Result<Region, Error> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|source| Error::Open { path: path.to_owned(), source })?;
    flock(&file, lock).map_err(|_| Error::Taken { path: path.to_owned() })?;
    let map = |source| Error::Map { name: spec.name.to_owned(), len: spec.len, source };
    let memory = Memory::of_file(&file, spec.len, Access::Atomic).map_err(map)?;
    let words = std::array::from_fn(|index| memory.load(index * 8));
    let found = RegionHeader::checked(&words, spec.kind, spec.len)
        .map_err(|source| Error::Header { name: spec.name.to_owned(), source })?;
    let header = RegionHeader { incarnation: spec.incarnation, ..found };
    if lock == FlockOperation::NonBlockingLockExclusive {
        for (index, word) in header.words().into_iter().enumerate() {
            memory.store(index * 8, word, Ordering::Release);
        }
    }
    Ok(Region::new(Arc::new(memory), key(spec, path), Some(file)))
}

fn key(spec: &RegionSpec<'_>, path: &Path) -> Key {
    Key {
        name: spec.name.to_owned(),
        kind: spec.kind,
        len: spec.len,
        access: spec.access,
        locator: Locator::Shm { path: path.to_owned() },
    }
}

/// Where the region of that name lies.
pub(crate) fn region_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.region"))
}

/// A peer's mapping.
#[derive(Debug)]
pub(crate) struct ShmLink {
    memory: Memory,
    access: Access,
}

impl ShmLink {
    pub(crate) fn open(path: &Path, key: &Key) -> Result<Self, Error> {
        let writable = key.access == Access::Atomic;
        let file = File::options().read(true).write(writable).open(path);
        let file = file.map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let memory = Memory::of_file(&file, key.len, key.access).map_err(|source| Error::Map {
            name: key.name.clone(),
            len: key.len,
            source,
        })?;
        Ok(ShmLink { memory, access: key.access })
    }

    pub(crate) fn execute(&self, batch: &mut Batch, index: usize) {
        self.memory.execute(batch, index, self.access);
    }
}
