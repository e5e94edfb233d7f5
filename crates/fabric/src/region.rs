//! Regions as the process holds them that exposes them, whatever the backend.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, flock, inotify};
use sidelong_layout::{HEADER_BYTES, HEADER_EPOCH, Instance, RegionHeader, RegionKind};

use crate::limits::NAME_BYTES_MAX;
use crate::memory::Memory;
use crate::{Access, Error, Key};

/// A region to be exposed.
#[derive(Clone, Debug)]
pub struct RegionSpec<'a> {
    /// Unique in the cluster, and part of a file name: letters, digits, `-`, `_` and `.`; the first is not a `.`.
    pub name: &'a str,
    /// What it holds.
    pub kind: RegionKind,
    /// Length in bytes, header included; a multiple of 8.
    pub len: usize,
    /// What its key grants.
    pub access: Access,
    /// The process that exposes it.
    pub instance: Instance,
}

impl RegionSpec<'_> {
    pub(crate) fn check(&self) -> Result<(), Error> {
        assert!(
            self.len.is_multiple_of(8) && self.len >= HEADER_BYTES,
            "a region is whole words after its header"
        );
        check_name(self.name)
    }

    /// The first contents: the header, and the rest as `init` fills it.
    pub(crate) fn contents(&self, init: impl FnOnce(&mut [u64])) -> Vec<u64> {
        let mut words = vec![0; self.len / 8];
        words[..HEADER_BYTES / 8].copy_from_slice(&self.header());
        init(&mut words);
        words
    }

    /// Memory of this process with the first contents.
    pub(crate) fn memory(&self, init: impl FnOnce(&mut [u64])) -> Result<Memory, Error> {
        self.memory_with(&self.contents(init))
    }

    /// Memory of this process that begins with `words`.
    pub(crate) fn memory_with(&self, words: &[u64]) -> Result<Memory, Error> {
        let memory = Memory::anonymous(self.len);
        let memory = memory.map_err(|source| Error::Map { name: self.name.into(), len: self.len, source })?;
        memory.fill(words);
        Ok(memory)
    }

    /// The words that a region begins with.
    pub(crate) fn header(&self) -> [u64; HEADER_BYTES / 8] {
        RegionHeader::new(self.kind, self.instance, self.len).words()
    }

    /// Memory that `file` maps, with the header written and the rest unchanged.
    pub(crate) fn mapped(&self, file: &File) -> Result<Memory, Error> {
        let memory = Memory::of_map(file, self.len, Access::Atomic);
        let memory = memory.map_err(|source| Error::Map { name: self.name.into(), len: self.len, source })?;
        memory.fill(&self.header());
        Ok(memory)
    }
}

/// Names come from the operator and become file names, so none may lead out of the run directory.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.');
    if fits && name.bytes().all(allowed) { Ok(()) } else { Err(Error::Name { name: name.to_owned() }) }
}

/// A region as its owner holds it. Peers lose it when the last clone is dropped, except over shm, whose memory stays.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Arc<Memory>,
    key: Key,
    /// Resources that live as long as the region, such as the thread that answers for it.
    _hold: Box<dyn Any + Send + Sync>,
    /// The file by which peers find the region, with its lock, and the header that it begins with.
    file: Option<(File, RegionHeader)>,
    /// The socket at which they get its memory, if that is elsewhere.
    socket: Option<File>,
}

impl Region {
    pub(crate) fn new(memory: Arc<Memory>, key: Key, hold: impl Any + Send + Sync) -> Self {
        Region { inner: Arc::new(Inner { memory, key, _hold: Box::new(hold), file: None, socket: None }) }
    }

    /// A region whose memory, with its header, is in `file`.
    pub(crate) fn of_file(memory: Memory, key: Key, file: File) -> Self {
        let header: [u64; HEADER_BYTES / 8] = std::array::from_fn(|word| memory.load(8 * word));
        let file = Some((file, bytemuck::cast(header)));
        let memory = Arc::new(memory);
        Region { inner: Arc::new(Inner { memory, key, _hold: Box::new(()), file, socket: None }) }
    }

    /// A region whose memory is elsewhere: peers find it by the file of `stub`, and get it at `socket`. Drops `hold` before the
    /// stub.
    pub(crate) fn of_stub(
        memory: Memory,
        key: Key,
        stub: &Region,
        socket: File,
        hold: impl Any + Send + Sync,
    ) -> io::Result<Self> {
        let file = match &stub.inner.file {
            Some((file, header)) => Some((file.try_clone()?, *header)),
            None => None,
        };
        let hold: Box<dyn Any + Send + Sync> = Box::new((hold, stub.clone()));
        let (memory, socket) = (Arc::new(memory), Some(socket));
        Ok(Region { inner: Arc::new(Inner { memory, key, _hold: hold, file, socket }) })
    }

    /// Makes an inotify instance report when the region's file changes in other ways than through its memory. Nothing is
    /// reported of a region that has no file.
    ///
    /// # Errors
    /// If the user has no inotify watch left.
    pub fn report_to(&self, inotify: impl AsFd) -> io::Result<()> {
        let Inner { file, socket, .. } = &*self.inner;
        for file in file.iter().map(|(file, _)| file).chain(socket) {
            let path = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
            // A file that loses its name has its attributes changed.
            inotify::add_watch(&inotify, path, inotify::WatchFlags::MODIFY | inotify::WatchFlags::ATTRIB)?;
        }
        Ok(())
    }

    /// Whether another process has truncated, removed or replaced the region's file or its socket, or overwritten its header.
    /// Its words are then lost, or peers cannot link to it. To expose the region anew, drop this one first.
    pub fn is_lost(&self) -> bool {
        let why = self.loss();
        if let Some(why) = why {
            tracing::warn!(region = self.inner.key.name, why, "the region is lost");
        }
        why.is_some()
    }

    /// Why it is lost, if it is.
    fn loss(&self) -> Option<&'static str> {
        let Inner { memory, file, socket, .. } = &*self.inner;
        let has_no_name = |file: &File| file.metadata().is_ok_and(|found| found.nlink() == 0);
        if memory.is_gone() {
            return Some("its memory has no pages");
        }
        if let Some((file, header)) = file {
            let mut words = [0; HEADER_BYTES / 8];
            let read = file.read_exact_at(bytemuck::bytes_of_mut(&mut words), 0);
            words[HEADER_EPOCH / 8] = header.epoch;
            let is_overwritten = words != header.words() && !header.has_grown(&bytemuck::cast(words));
            if file.metadata().is_ok_and(|found| found.len() < header.len) {
                return Some("its file was truncated");
            } else if read.is_ok() && is_overwritten {
                return Some("its header was overwritten");
            } else if has_no_name(file) {
                return Some("its file was removed");
            }
        }
        socket.as_ref().is_some_and(has_no_name).then_some("its socket was removed")
    }

    /// The file by whose lock the processes of this machine see that one has the region, if its memory has a file. Who is handed it has the
    /// lock, too.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn lock(&self) -> io::Result<Option<File>> {
        self.inner.file.as_ref().map(|(file, _)| file.try_clone()).transpose()
    }

    /// Another region may have its name from now on: its file is locked no more. What is mapped stays.
    pub fn give_up_name(&self) {
        if let Some((file, _)) = &self.inner.file {
            // Fails for no open file.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }

    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.inner.memory)
    }

    /// The key that grants others its use.
    pub fn key(&self) -> &Key {
        &self.inner.key
    }

    /// Loads the word at `offset` bytes with the CPU; allowed on every region.
    pub fn load(&self, offset: usize) -> u64 {
        self.inner.memory.load(offset)
    }

    /// Stores a word with the CPU, after all earlier stores if `ordering` is `Release`.
    ///
    /// # Panics
    /// On a region whose key grants atomics. Its words are changed by remote atomics alone; its owner too uses a link
    /// to itself.
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        assert!(
            self.inner.key.access == Access::ReadOnly,
            "words under remote atomics are not stored by the CPU"
        );
        self.inner.memory.store(offset, value, ordering);
    }
}
