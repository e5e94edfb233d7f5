//! Regions as files of a run directory, mapped by every peer on the machine: `NAME.region`, mode 0600.
//!
//! The owner holds a lock on the file for its lifetime. A peer's read-only key is a mapping without the right to write.
//! The memory outlives its process: one that died and comes back finds its words as they were, and its peers' links
//! hold all the while.
//!
//! Memory that the owner did not allocate itself ([`Host::offer_mapped`](crate::Host::offer_mapped)) lies in no file: the
//! region's file then holds a header alone, and beside it is the socket at which peers get the memory's descriptor.
//!
//! A file is only ever replaced by whoever holds its lock alone, and by another file of the same name: who has it mapped
//! keeps what they mapped, and no file is ever cut short under a mapping.

mod handle;

use std::cell::LazyCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use sidelong_layout::{HEADER_BYTES, HeaderError, RegionHeader, RegionKind};

use crate::directory::{self, create_temporary};
use crate::host::{Region, check_name};
use crate::inbox::ring::Ring;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::{Access, Batch, Error, Inbox, InboxSpec, OpError, RegionSpec, inbox};

/// What a region's name and this make is the name of its inbox.
const INBOX: &str = ".inbox";
/// How often a file that others keep making, replacing and removing is tried.
const TRIES_MAX: usize = 4;

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

    /// The inbox comes first: who sees the region finds it.
    pub(crate) fn offer_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        let name = format!("{}{INBOX}", spec.name);
        check_name(&name)?;
        let len = Ring::bytes(inbox);
        let ring_spec = RegionSpec { name: &name, kind: RegionKind::Raw, len, ..*spec };
        let held = self.offer(&ring_spec, |words| Ring::init(inbox, words))?;
        let path = region_path(&self.directory, &name);
        // One of another shape that is as long: remove it, as what it holds is of no use.
        let ring = Ring::open(held.memory()).filter(|ring| ring.is(inbox)).ok_or(Error::Taken { path })?;
        Ok((self.offer(spec, init)?, Inbox::of_ring(ring, held)))
    }

    /// Offers a region that nobody owns: the first process makes it, the others find it, and it outlives them all. The
    /// board is such a region.
    ///
    /// # Errors
    /// Where memory cannot be had, or a live process uses one of that name in another layout.
    pub fn offer_common(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        check_name(spec.name)?;
        self.open(spec, FlockOperation::NonBlockingLockShared, init)
    }

    /// The file with the header is the name and the lock.
    pub(crate) fn offer_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        let memory = spec.mapped(file)?;
        let stub = self.offer(&RegionSpec { len: HEADER_BYTES, ..spec.clone() }, |_| {})?;
        let path = region_path(&self.directory, spec.name);
        let socket = socket_path(&path);
        let opened = file.try_clone().and_then(|file| handle::Counter::open(&socket, file));
        let counter = opened.map_err(|source| Error::Create { path: socket, source })?;
        // In this order: the name is free when nobody answers for it any more.
        Ok(Region::new(Arc::new(memory), key(spec, &path), (counter, stub)))
    }

    fn open(
        &self,
        spec: &RegionSpec<'_>,
        lock: FlockOperation,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        let path = region_path(&self.directory, spec.name);
        let contents = LazyCell::new(|| spec.contents(init));
        for _ in 0..TRIES_MAX {
            if !path.exists() {
                match self.create(spec, &path, lock, &contents) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    created => return created.map_err(|source| Error::Create { path, source }),
                }
            }
            if let Some(region) = adopt(spec, &path, lock)? {
                return Ok(region);
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
        contents: &[u64],
    ) -> io::Result<Region> {
        let (temporary, file) = create_temporary(&self.directory, spec.name)?;
        let made = (|| {
            // Allocated now: a sparse file on a full tmpfs would kill whoever touches the missing page.
            fallocate(&file, FallocateFlags::empty(), 0, spec.len as u64)?;
            flock(&file, lock)?; // nobody else knows it yet
            let memory = Memory::of_file(&file, spec.len, Access::Atomic)?;
            memory.fill(contents);
            std::fs::hard_link(&temporary, path)?;
            Ok(memory)
        })();
        // Either it has its real name now or it is of no use.
        let _ = std::fs::remove_file(&temporary);
        made.map(|memory| Region::new(Arc::new(memory), key(spec, path), file))
    }
}

/// Takes over what an earlier life left, or another process made in common. `None` where the file is no more: it has
/// gone, was replaced, or was of no use and is now removed.
fn adopt(spec: &RegionSpec<'_>, path: &Path, lock: FlockOperation) -> Result<Option<Region>, Error> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    if !directory::lock(&file, lock).map_err(failed)? {
        return Err(Error::Taken { path: path.to_owned() });
    }
    if !is_named(&file, path) {
        return Ok(None);
    }
    match map(&file, spec.name, spec.kind, spec.len, Access::Atomic) {
        Ok((header, memory)) => {
            if lock == FlockOperation::NonBlockingLockExclusive {
                memory.fill(&RegionHeader { incarnation: spec.incarnation, ..header }.words());
            }
            Ok(Some(Region::new(Arc::new(memory), key(spec, path), file)))
        }
        Err(error @ Error::Header { .. }) => {
            // Another version's. Whoever shares a common region's lock may be using it.
            if !directory::lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
                return Err(error);
            }
            if is_named(&file, path) {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Maps the region in `file`, if it is the one that is meant.
fn map(
    file: &File,
    name: &str,
    kind: RegionKind,
    len: usize,
    access: Access,
) -> Result<(RegionHeader, Memory), Error> {
    let unmapped = |source| Error::Map { name: name.to_owned(), len, source };
    let other = |source| Error::Header { name: name.to_owned(), source };
    let room = file.metadata().map_err(unmapped)?.len();
    let mut words = [0; HEADER_BYTES / 8];
    if room >= HEADER_BYTES as u64 {
        file.read_exact_at(bytemuck::bytes_of_mut(&mut words), 0).map_err(unmapped)?;
    }
    let header = RegionHeader::checked(&words, kind, len).map_err(other)?;
    if room < len as u64 {
        return Err(other(HeaderError::Length { found: room, expected: len as u64 }));
    }
    Ok((header, Memory::of_file(file, len, access).map_err(unmapped)?))
}

/// Whether the memory that `key` means lies elsewhere: the file has nothing but a header of its kind.
fn is_stub(file: &File, key: &Key) -> bool {
    let mut words = [0; HEADER_BYTES / 8];
    key.len != HEADER_BYTES
        && file.read_exact_at(bytemuck::bytes_of_mut(&mut words), 0).is_ok()
        && RegionHeader::checked(&words, key.kind, HEADER_BYTES).is_ok()
}

/// Whether `path` still names `file`.
fn is_named(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
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

/// Where the descriptor of a region is had whose file is `path`.
fn socket_path(path: &Path) -> PathBuf {
    path.with_extension("socket")
}

/// A peer's mapping.
#[derive(Debug)]
pub(crate) struct ShmLink {
    memory: Memory,
    inbox: Box<InboxLink>,
}

/// The way to its inbox, which is mapped when it is first needed.
#[derive(Debug)]
struct InboxLink {
    name: String,
    path: PathBuf,
    ring: Option<Ring>,
}

impl InboxLink {
    /// The mapped ring, if there is one.
    fn ring(&mut self) -> Result<&Ring, OpError> {
        if self.ring.is_none() {
            let opened = self.open().inspect_err(|error| tracing::debug!(%error, "no inbox"));
            self.ring = opened.ok().flatten();
        }
        self.ring.as_ref().ok_or(OpError::NoInbox)
    }

    fn open(&self) -> Result<Option<Ring>, Error> {
        let failed = |source| Error::Open { path: self.path.clone(), source };
        let file = File::options().read(true).write(true).open(&self.path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len() as usize;
        let (_, memory) = map(&file, &self.name, RegionKind::Raw, len, Access::Atomic)?;
        Ok(Ring::open(Arc::new(memory)))
    }
}

impl ShmLink {
    /// Waits for `wait` at most, for the owner of memory that lies in no file.
    pub(crate) fn open(path: &Path, key: &Key, wait: Duration) -> Result<Self, Error> {
        let file = File::options().read(true).write(key.access == Access::Atomic).open(path);
        let file = file.map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let memory = match key.access {
            Access::ReadOnly if is_stub(&file, key) => {
                let socket = socket_path(path);
                let fetched = handle::fetch(&socket, wait);
                let fetched = fetched.map_err(|source| Error::Open { path: socket, source })?;
                let unmapped = |source| Error::Map { name: key.name.clone(), len: key.len, source };
                Memory::of_map(&fetched, key.len, Access::ReadOnly).map_err(unmapped)?
            }
            _ => map(&file, &key.name, key.kind, key.len, key.access)?.1,
        };
        let name = format!("{}{INBOX}", key.name);
        let path = path.with_file_name(format!("{name}.region"));
        Ok(ShmLink { memory, inbox: Box::new(InboxLink { name, path, ring: None }) })
    }

    #[inline]
    pub(crate) fn execute(&mut self, batch: &mut Batch, index: usize) {
        let request = batch.op(index).request;
        if request.kind.is_for_inbox() {
            return self.deliver(batch, index);
        }
        let outcome = self.memory.apply(&request, self.memory.access(), batch.buffer_mut(index));
        batch.finish(index, outcome);
    }

    #[cold]
    #[inline(never)]
    fn deliver(&mut self, batch: &mut Batch, index: usize) {
        // Not handed over: the request of the way before would have to be in memory for it.
        let request = &batch.op(index).request;
        let checked = request.check(self.memory.len(), self.memory.access());
        let delivered = checked.and_then(|()| self.inbox.ring()).and_then(|ring| {
            let put = |words: &[u64], len, immediate| ring.put(words, len, immediate);
            inbox::deliver(request, &self.memory, batch.buffer(index), put)
        });
        batch.finish(index, delivered);
    }
}
