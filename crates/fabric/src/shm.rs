//! The shm backend: regions as files of a run directory, mapped by every peer on the machine: `NAME.region`, mode 0600.
//!
//! The owner holds a lock on the file for its lifetime. A peer with a read-only key maps it read-only. The memory
//! outlives its process: a process that dies and restarts finds its words unchanged, and its peers' links keep working.
//!
//! Memory that the owner did not allocate itself ([`Host::expose_mapped`](crate::Host::expose_mapped)) is in no file. The
//! region's file then holds only a header, and a socket beside it hands out the memory's descriptor.
//!
//! Only a process that holds a file's exclusive lock replaces it, and only by another file of the same name. Existing
//! mappings stay valid.
//!
//! A file that another process has truncated is lost, with its memory (`memory`). The next process that exposes the region
//! truncates it to nothing, so that no peer goes on with a page that was left, and replaces it.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs};
use sidelong_layout::{HEADER_BYTES, HeaderError, RegionHeader, RegionKind};

use crate::directory::{self, OpenDirectory, file_name};
use crate::door::{self, Door};
use crate::inbox::ring::Ring;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::region::{Region, check_name};
use crate::{Access, Batch, Error, Inbox, InboxSpec, OpError, RegionSpec, RunDirectory, inbox};

/// Appended to a region's name to form the name of its inbox.
const INBOX: &str = ".inbox";
const KIB: u64 = 1 << 10;
/// Attempts to open a file that other processes keep creating, replacing and removing.
const TRIES_MAX: usize = 4;

/// Exposes regions as files of one directory.
#[derive(Clone, Debug)]
pub struct ShmHost {
    run: RunDirectory,
    /// Locks of regions that another process has handed over.
    handed: Arc<Mutex<HashMap<String, File>>>,
}

impl ShmHost {
    /// Exposes regions in `directory`, which must exist.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        ShmHost { run: RunDirectory::at(directory), handed: Arc::default() }
    }

    /// Another process has handed over the [locks](Region::lock) of its regions of these names: they are exposed as if it had ended, and seem
    /// to live until both have.
    pub fn with_locks(self, handed: HashMap<String, File>) -> Self {
        ShmHost { handed: Arc::new(Mutex::new(handed)), ..self }
    }

    pub(crate) fn expose(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        self.open(spec, FlockOperation::NonBlockingLockExclusive, init)
    }

    /// Whatever file an earlier life left is emptied, so that no peer reads on there, and removed.
    pub(crate) fn expose_emptied(&self, spec: &RegionSpec<'_>) -> Result<Region, Error> {
        let lock = FlockOperation::NonBlockingLockExclusive;
        let path = self.path(spec.name);
        let name = file_name(spec.name);
        let failed = |source| Error::Create { path: path.clone(), source };
        let directory = self.run.enter().map_err(failed)?;
        for _ in 0..TRIES_MAX {
            match directory.open(&name, true) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => {
                    let file = opened.map_err(failed)?;
                    if !directory::lock(&file, lock).map_err(failed)? {
                        return Err(Error::Taken { path });
                    }
                    if directory.is_name_of(&name, &file) {
                        discard(&directory, &name, &file).map_err(failed)?;
                    }
                }
            }
            match self.create(spec, &directory, lock, &spec.header()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created.map_err(failed),
            }
        }
        Err(Error::Taken { path })
    }

    /// The inbox is created first, so that a peer that sees the region finds the inbox.
    pub(crate) fn expose_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        let name = format!("{}{INBOX}", spec.name);
        check_name(&name)?;
        let len = Ring::bytes(inbox);
        let ring_spec = RegionSpec { name: &name, kind: RegionKind::Raw, len, ..*spec };
        let held = self.expose(&ring_spec, |words| Ring::init(inbox, words))?;
        let path = self.path(&name);
        // A file of the same length but another shape is useless, so it is removed.
        let ring = Ring::open(held.memory()).filter(|ring| ring.is(inbox)).ok_or(Error::Taken { path })?;
        Ok((self.expose(spec, init)?, Inbox::of_ring(ring, held)))
    }

    /// Exposes a region without an owner, such as the board: the first process creates it, later ones find it, and it
    /// outlives them all.
    ///
    /// # Errors
    /// If memory cannot be allocated, or a live process uses a region of that name with another layout.
    pub fn expose_common(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        check_name(spec.name)?;
        self.open(spec, FlockOperation::NonBlockingLockShared, init)
    }

    /// The file with the header provides the name and the lock.
    pub(crate) fn expose_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        let memory = spec.mapped(file)?;
        let stub = self.expose(&RegionSpec { len: HEADER_BYTES, ..spec.clone() }, |_| {})?;
        let socket = socket_name(spec.name);
        // The thread that hands it out sleeps until a peer asks, and takes no part in a peer's reads. While its process is stopped, linked
        // peers keep reading, and a peer that wants to link waits for its own timeout.
        let opened = file.try_clone().and_then(|file| {
            let door = Door::open(&self.run, &socket, move |peer| door::hand(peer, &[0], &[file.as_fd()]))?;
            Ok((door.file()?, door))
        });
        let (file, door) =
            opened.map_err(|source| Error::Create { path: self.run.path().join(socket), source })?;
        // The order matters: the name is free once no process answers for it.
        let region = Region::of_stub(memory, self.key(spec), &stub, file, door);
        region.map_err(|source| Error::Create { path: self.path(spec.name), source })
    }

    fn open(
        &self,
        spec: &RegionSpec<'_>,
        lock: FlockOperation,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        let path = self.path(spec.name);
        let entered = self.run.enter();
        let directory = entered.map_err(|source| Error::Create { path: path.clone(), source })?;
        let contents = LazyCell::new(|| spec.contents(init));
        for _ in 0..TRIES_MAX {
            if !directory.has(&file_name(spec.name)) {
                match self.create(spec, &directory, lock, &contents) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    created => return created.map_err(|source| Error::Create { path, source }),
                }
            }
            if let Some(region) = self.adopt(spec, &directory, lock)? {
                return Ok(region);
            }
        }
        Err(Error::Taken { path })
    }

    /// Creates the file under a temporary name, fills it, and links it into place, so that no peer sees a partial
    /// region.
    fn create(
        &self,
        spec: &RegionSpec<'_>,
        directory: &OpenDirectory,
        lock: FlockOperation,
        contents: &[u64],
    ) -> io::Result<Region> {
        let (temporary, file) = directory.create_temporary(spec.name)?;
        let made = (|| {
            check_room(&file, spec.len as u64)?;
            // Allocate the blocks now: a sparse file on a full tmpfs would kill the process that touches a missing
            // page.
            fallocate(&file, FallocateFlags::empty(), 0, spec.len as u64)?;
            flock(&file, lock)?; // no other process knows it yet
            let memory = Memory::of_file(&file, spec.len, Access::Atomic)?;
            memory.fill(contents);
            directory.link(&temporary, &file_name(spec.name))?;
            Ok(memory)
        })();
        // The file now has its final name, or is useless.
        let _ = directory.remove(&temporary);
        made.map(|memory| Region::of_file(memory, self.key(spec), file))
    }

    /// Takes over a file of an earlier life, or of a common region. `None` if the file has gone, was replaced, or was
    /// useless and is now removed.
    fn adopt(
        &self,
        spec: &RegionSpec<'_>,
        directory: &OpenDirectory,
        lock: FlockOperation,
    ) -> Result<Option<Region>, Error> {
        let name = file_name(spec.name);
        let failed = |source| Error::Open { path: self.path(spec.name), source };
        let handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner).remove(spec.name);
        let is_handed = handed.is_some();
        let file = match handed.map_or_else(|| directory.open(&name, true), Ok) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        // One that was handed over is locked already, by whoever has handed it over.
        if !directory::lock(&file, lock).map_err(failed)? {
            return Err(Error::Taken { path: self.path(spec.name) });
        }
        if !directory.is_name_of(&name, &file) {
            return Ok(None);
        }
        match map(&file, spec.name, spec.instance.cluster, (spec.kind, spec.len), Access::Atomic) {
            Ok((header, memory)) => {
                let is_own = lock == FlockOperation::NonBlockingLockExclusive;
                // The region of a process that goes on stays as it is.
                let is_anew = is_own && !is_handed;
                let incarnation = if is_anew { spec.instance.incarnation } else { header.incarnation };
                let of_last = spec.kind.extends().is_some_and(|last| last.hash == header.layout_hash);
                let memory = if header.len < spec.len as u64 { self.grown(&file, spec)? } else { memory };
                // Others that have a common region by a longer layout go on with that.
                if is_own || of_last {
                    memory.fill(&header.taken_over(spec.kind, incarnation, spec.len).words());
                }
                Ok(Some(Region::of_file(memory, self.key(spec), file)))
            }
            Err(Error::Header { .. }) if is_cut_short(&file, spec).map_err(failed)? => {
                // The lock on the file may be shared: one process at a time replaces it.
                let Some(_alone) = directory.lock().map_err(failed)? else {
                    return Err(Error::Taken { path: self.path(spec.name) });
                };
                if directory.is_name_of(&name, &file) {
                    discard(directory, &name, &file).map_err(failed)?;
                }
                Ok(None)
            }
            Err(error @ Error::Header { .. }) => {
                // Another version's region. Another process that shares a common region's lock may be using it.
                if !directory::lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
                    return Err(error);
                }
                if directory.is_name_of(&name, &file) {
                    directory.remove(&name).map_err(failed)?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A file of the release before, with what this one has at its end.
    fn grown(&self, file: &File, spec: &RegionSpec<'_>) -> Result<Memory, Error> {
        let grown = (|| {
            check_room(file, spec.len as u64)?;
            fallocate(file, FallocateFlags::empty(), 0, spec.len as u64)?;
            Memory::of_file(file, spec.len, Access::Atomic)
        })();
        grown.map_err(|source| Error::Create { path: self.path(spec.name), source })
    }

    fn key(&self, spec: &RegionSpec<'_>) -> Key {
        Key {
            name: spec.name.to_owned(),
            kind: spec.kind,
            len: spec.len,
            access: spec.access,
            locator: Locator::Shm { run: self.run.path().to_owned() },
        }
    }

    /// The path of the region's file, for errors.
    fn path(&self, region: &str) -> PathBuf {
        self.run.path().join(file_name(region))
    }
}

/// A file, whatever its name: its number is not given to another one while it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Identity { device: found.dev(), number: found.ino() })
    }

    /// Whether `path` still names it.
    fn is_at(self, path: &Path) -> bool {
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|found| self == Identity { device: found.dev(), number: found.ino() })
    }
}

/// The descriptor that is handed out at the socket `name`; waits for at most `wait`.
fn fetch(run: &RunDirectory, name: &str, wait: Duration) -> io::Result<File> {
    let (_, files) = door::take(door::knock(run, name)?, &mut [0], wait)?;
    let file = files.into_iter().next().map(File::from);
    file.ok_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, "its owner handed nothing out"))
}

/// # Errors
/// If the file system has no room for `len` bytes. So none of them is taken, from others either, in vain.
fn check_room(file: &File, len: u64) -> io::Result<()> {
    let system = fstatvfs(file)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    // A tmpfs without a limit states no blocks.
    if system.f_blocks == 0 || len <= free {
        return Ok(());
    }
    let [len, free] = [len.div_ceil(KIB), free / KIB];
    let why = format!("No space left: it takes {len} KiB, and {free} KiB are free");
    Err(io::Error::new(ErrorKind::StorageFull, why))
}

/// Empties a file and removes it. A peer that maps one of its pages loses that page, and links to the successor.
fn discard(directory: &OpenDirectory, name: &str, file: &File) -> io::Result<()> {
    file.set_len(0)?;
    directory.remove(name)
}

/// Maps the region in `file`, if it is the expected one.
fn map(
    file: &File,
    name: &str,
    cluster: u64,
    (kind, len): (RegionKind, usize),
    access: Access,
) -> Result<(RegionHeader, Memory), Error> {
    let unmapped = |source| Error::Map { name: name.to_owned(), len, source };
    let other = |source| Error::Header { name: name.to_owned(), source };
    let room = file.metadata().map_err(unmapped)?.len();
    let words = header_words(file).map_err(unmapped)?.unwrap_or_default();
    let header = RegionHeader::checked(&words, cluster, kind, len).map_err(other)?;
    // One of the release before may be shorter.
    let len = len.min(header.len as usize);
    if room < len as u64 {
        return Err(other(HeaderError::Length { found: room, expected: len as u64 }));
    }
    Ok((header, Memory::of_file(file, len, access).map_err(unmapped)?))
}

/// The words of the header. `None` if the file is shorter, to which another process may cut it at any moment.
fn header_words(file: &File) -> io::Result<Option<[u64; HEADER_BYTES / 8]>> {
    let mut words = [0; HEADER_BYTES / 8];
    match file.read_exact_at(bytemuck::bytes_of_mut(&mut words), 0) {
        Ok(()) => Ok(Some(words)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the memory of `key` lies elsewhere, so that the file holds only a header of its kind.
fn is_stub(file: &File, key: &Key) -> bool {
    let is_one = |words| {
        let header = RegionHeader::checked(&words, 0, key.kind, HEADER_BYTES);
        header.is_ok_and(|header| header.len == HEADER_BYTES as u64)
    };
    key.len != HEADER_BYTES && header_words(file).is_ok_and(|words| words.is_some_and(is_one))
}

/// Whether the file once held the region and was truncated.
fn is_cut_short(file: &File, spec: &RegionSpec<'_>) -> io::Result<bool> {
    let room = file.metadata()?.len();
    let Some(words) = header_words(file)? else { return Ok(true) };
    Ok(room < spec.len as u64
        && RegionHeader::checked(&words, spec.instance.cluster, spec.kind, spec.len).is_ok())
}

/// The socket that hands out the descriptor of the region with that name.
fn socket_name(region: &str) -> String {
    format!("{region}.socket")
}

/// A peer's mapping.
#[derive(Debug)]
pub(crate) struct ShmLink {
    memory: Memory,
    /// The file that was at that path, and the cluster that it had to be of; 0 for any.
    found: (Identity, PathBuf, u64),
    inbox: Box<InboxLink>,
}

/// A link to a region's inbox, which is mapped on first use.
#[derive(Debug)]
struct InboxLink {
    name: String,
    run: RunDirectory,
    ring: Option<Ring>,
}

impl InboxLink {
    /// The mapped ring, if the region has an inbox.
    fn ring(&mut self) -> Result<&Ring, OpError> {
        if self.ring.is_none() {
            let opened = self.open().inspect_err(|error| tracing::debug!(%error, "no inbox"));
            self.ring = opened.ok().flatten();
        }
        self.ring.as_ref().ok_or(OpError::NoInbox)
    }

    fn open(&self) -> Result<Option<Ring>, Error> {
        let name = file_name(&self.name);
        let failed = |source| Error::Open { path: self.run.path().join(&name), source };
        let opened = self.run.enter().and_then(|directory| directory.open(&name, true));
        let file = opened.map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len() as usize;
        let (_, memory) = map(&file, &self.name, 0, (RegionKind::Raw, len), Access::Atomic)?;
        Ok(Ring::open(Arc::new(memory)))
    }
}

impl ShmLink {
    /// Links to a region in the run directory at `run`; waits for at most `wait` for the owner of memory that is in no file.
    pub(crate) fn open(run: &Path, key: &Key, cluster: u64, wait: Duration) -> Result<Self, Error> {
        let run = &RunDirectory::at(run);
        let failed = |name| move |source| Error::Open { path: run.path().join(name), source };
        let name = file_name(&key.name);
        let directory = run.enter().map_err(failed(name.clone()))?;
        let opened = directory.open(&name, key.access == Access::Atomic);
        let file = opened.map_err(failed(name.clone()))?;
        let identity = Identity::of(&file).map_err(failed(name.clone()))?;
        let found = (identity, run.path().join(&name), cluster);
        let memory = match key.access {
            Access::ReadOnly if is_stub(&file, key) => {
                let socket = socket_name(&key.name);
                let fetched = fetch(run, &socket, wait).map_err(failed(socket))?;
                let unmapped = |source| Error::Map { name: key.name.clone(), len: key.len, source };
                Memory::of_map(&fetched, key.len, Access::ReadOnly).map_err(unmapped)?
            }
            _ => map(&file, &key.name, cluster, (key.kind, key.len), key.access)?.1,
        };
        let inbox = InboxLink { name: format!("{}{INBOX}", key.name), run: run.clone(), ring: None };
        Ok(ShmLink { memory, found, inbox: Box::new(inbox) })
    }

    /// Whether other peers would find this memory, and it is still of the cluster that it was of.
    pub(crate) fn is_current(&self) -> bool {
        let (identity, path, cluster) = &self.found;
        let is_of_cluster = || self.memory.load(offset_of!(RegionHeader, cluster)) == *cluster;
        identity.is_at(path) && (*cluster == 0 || is_of_cluster())
    }

    /// Whether a process holds the region's file, or may do so.
    pub(crate) fn is_exposed(&self) -> bool {
        self.found.1.file_name().is_none_or(|name| self.inbox.run.is_held(name))
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
        // Looked up here, not passed in: an argument would force the fast path to keep the request in memory.
        let request = &batch.op(index).request;
        let checked = request.check(self.memory.len(), self.memory.access());
        let delivered = checked.and_then(|()| self.inbox.ring()).and_then(|ring| {
            let put = |words: &[u64], len, immediate| ring.put(words, len, immediate);
            inbox::deliver(request, &self.memory, batch.buffer(index), put)
        });
        batch.finish(index, delivered);
    }
}
