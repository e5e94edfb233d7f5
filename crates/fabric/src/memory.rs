//! Memory that several processes share: the one place with raw pointers.
//!
//! Every access is an 8-byte atomic. So concurrent access from other threads and processes is a race between atomics,
//! which is defined, and never between plain accesses, which is not.
//!
//! Operations of one thread take effect in program order, as a peer's NIC would perform them; that includes a write
//! before a later read. Hence the sequentially consistent loads, which cost no more than acquiring ones on x86 and Arm,
//! and the fence after a write.
//!
//! Any process that may write to a file can truncate it while it is mapped. The kernel answers an access beyond the new end
//! with SIGBUS, which would kill this process. A handler maps zeros in place of such a mapping and marks it as gone; from then
//! on operations on it fail with [`OpError::PeerGone`].

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use memmap2::{MmapOptions, MmapRaw};
use nix::libc::{BUS_ADRERR, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::batch::{Kind, Request};
use crate::{Access, OpError};

/// Mapped words, writable or read-only.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The mapping's entry for the SIGBUS handler, if a file is mapped. Dropped before the mapping.
    watched: Option<Watched>,
    map: MmapRaw,
    access: Access,
}

impl Memory {
    /// Memory private to this process and its threads, as tcp and simulated targets expose.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_anon()?;
        Ok(Memory { watched: None, map: map.into(), access: Access::Atomic })
    }

    /// Maps the first `len` bytes of `file`, which must be that long. Once it is truncated, [`Memory::is_gone`].
    pub(crate) fn of_file(file: &File, len: usize, access: Access) -> io::Result<Self> {
        if file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its region"));
        }
        Memory::map(file, len, access)
    }

    /// Maps the first `len` bytes of `file`, whatever its reported length. A BPF map reports none, and refuses to be
    /// mapped beyond its end.
    pub(crate) fn of_map(file: &File, len: usize, access: Access) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            return Memory::of_file(file, len, access);
        }
        Memory::map(file, len, access)
    }

    fn map(file: &File, len: usize, access: Access) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match access {
            Access::Atomic => options.map_raw(file)?,
            Access::ReadOnly => options.map_raw_read_only(file)?,
        };
        Ok(Memory { watched: Some(Watched::begin(map.as_ptr(), map.len())?), map, access })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Its address, for a device that accesses it.
    pub(crate) fn address(&self) -> *const u8 {
        self.map.as_ptr()
    }

    /// The rights of this mapping.
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// Copies `contents` to its start, before any peer can see it.
    pub(crate) fn fill(&self, contents: &[u64]) {
        for (index, word) in contents.iter().enumerate() {
            self.store(index * 8, *word, Ordering::Relaxed);
        }
    }

    /// The word at `offset` bytes.
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.words()[offset / 8].load(Ordering::Acquire)
    }

    /// Stores a word as the region's owner.
    pub(crate) fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        assert!(self.access == Access::Atomic, "a store through a read-only mapping");
        self.words()[offset / 8].store(value, ordering);
    }

    /// Performs one permitted operation at once: all that the shm backend does. `buffer` is the source of a write, and
    /// receives the data of a read and the value before an atomic. Operations on an inbox are checked and returned to
    /// the caller with [`OpError::NoInbox`].
    #[inline]
    pub(crate) fn apply(
        &self,
        request: &Request,
        granted: Access,
        buffer: &mut [u64],
    ) -> Result<(), OpError> {
        request.check(self.len(), granted)?;
        match request.kind {
            Kind::Read => self.read(request.offset, buffer),
            Kind::Write => self.write(request.offset, buffer),
            Kind::CompareAndSwap { expected, new } => {
                let word = &self.words()[request.offset / 8];
                let swap = word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
                buffer[0] = swap.unwrap_or_else(|found| found);
            }
            Kind::FetchAndAdd { add } => {
                buffer[0] = self.words()[request.offset / 8].fetch_add(add, Ordering::SeqCst);
            }
            Kind::Send | Kind::WriteWithImmediate { .. } => return Err(OpError::NoInbox),
        }
        if self.is_gone() { Err(OpError::PeerGone) } else { Ok(()) }
    }

    /// Whether the file was found truncated. Reads have then returned zeros, and writes are lost.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.0.is_gone.load(Ordering::Relaxed))
    }

    /// Copies words out from `offset` bytes on; `Request::check` has checked the range.
    #[inline]
    pub(crate) fn read(&self, offset: usize, to: &mut [u64]) {
        for (to, from) in to.iter_mut().zip(&self.words()[offset / 8..]) {
            *to = from.load(Ordering::SeqCst);
        }
    }

    /// Copies words in; the range is checked and the mapping is writable.
    pub(crate) fn write(&self, offset: usize, from: &[u64]) {
        fence(Ordering::Release);
        for (from, to) in from.iter().zip(&self.words()[offset / 8..]) {
            to.store(*from, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// The word at `offset` bytes, for protocols in memory (an inbox's ring).
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(self.access == Access::Atomic, "a protocol in memory needs the right to write");
        &self.words()[offset / 8]
    }

    /// The half word at `offset` bytes, a multiple of 8, that the kernel waits on. Once the memory is filled, it is
    /// never accessed as a whole word.
    pub(crate) fn half_word(&self, offset: usize) -> &AtomicU32 {
        let word = self.word(offset);
        // SAFETY: the first half of a word that outlives the borrow, aligned as it is. Every access to it is atomic and of
        // this size, as said above.
        unsafe { &*word.as_ptr().cast::<AtomicU32>() }
    }

    /// All of its words.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as `self`, starts at a page and so is aligned to 8, and spans `len` bytes.
        // Every access by every process is atomic (see the module), and where the mapping is read-only
        // `Request::check` and `store` keep this process to loads, which are allowed on such memory.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.map.len() / 8) }
    }
}

/// Memory that only the holder of this value changes. So it may be read in place, as bytes, while others read it too.
#[derive(Debug)]
pub(crate) struct Sole(Arc<Memory>);

impl Sole {
    /// Nobody else may change `memory`: it was made for this value, no key to it grants writing, and no [`Region`] of it is
    /// handed out. A process of the same user that writes to its file all the same is trusted as the user is.
    ///
    /// [`Region`]: crate::Region
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        assert!(memory.access == Access::Atomic, "its holder changes it");
        Sole(memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes of a range.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the mapping lives as long as `self` and spans `len` bytes. Nothing changes them while they are borrowed:
        // others only read, and the holder changes them through `&mut self`.
        let all = unsafe { std::slice::from_raw_parts(self.0.map.as_ptr(), self.0.map.len()) };
        &all[range]
    }

    /// Copies `from` to `offset`, in whole words where it covers them: others may read these at the same time.
    pub(crate) fn write(&mut self, offset: usize, from: &[u8]) {
        let words = &self.0.words()[..(offset + from.len()).div_ceil(8)];
        let part = |word: &AtomicU64, at: usize, bytes: &[u8]| {
            let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        };
        let (first, at) = (offset / 8, offset % 8);
        let (head, rest) = from.split_at(if at == 0 { 0 } else { from.len().min(8 - at) });
        if !head.is_empty() {
            part(&words[first], at, head);
        }
        let (chunks, tail) = rest.as_chunks::<8>();
        let body = &words[first + usize::from(at != 0)..];
        for (word, chunk) in body.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            part(&body[chunks.len()], 0, tail);
        }
    }

    /// Copies words to another place. Both places begin at a multiple of 8, and do not overlap.
    pub(crate) fn copy(&mut self, from: Range<usize>, to: usize) {
        let words = self.0.words();
        for (to, from) in words[to / 8..].iter().zip(&words[from.start / 8..from.end.div_ceil(8)]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The word at `offset` bytes, a multiple of 8.
    #[inline]
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.0.words()[offset / 8].load(Ordering::Relaxed)
    }

    /// Stores it, after all earlier changes if `ordering` is `Release`.
    #[inline]
    pub(crate) fn store(&mut self, offset: usize, value: u64, ordering: Ordering) {
        self.0.words()[offset / 8].store(value, ordering);
    }
}

/// Most mappings of files in one process.
const WATCHED_MAX: usize = 1 << 16;
/// Unit of addresses and lengths, in bytes. It divides every page size.
const UNIT: usize = 1 << 12;
/// Unit of the lengths of large mappings, in bytes.
const LARGE_UNIT: usize = 1 << 20;
/// Bits for the length of a mapping in units, so less than 1 GiB, or less than 256 GiB if it is whole large units. The other
/// bits hold which unit it is, and the first unit of a 57-bit address.
const LEN_BITS: u32 = 18;

/// All mappings of files, in a form that a signal handler can read: it may neither wait nor allocate.
static WATCHED: [Entry; WATCHED_MAX] =
    [const { Entry { range: AtomicU64::new(0), is_gone: AtomicBool::new(false) } }; WATCHED_MAX];
/// Where the search for a free entry begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The former action of SIGBUS, once the handler is installed.
static FORMER: OnceLock<Result<SigAction, nix::Error>> = OnceLock::new();

/// A mapping. One word says where it lies, so that the handler never sees half of a change.
#[derive(Debug)]
struct Entry {
    /// `first unit << LEN_BITS + 1 | is large << LEN_BITS | units`; 0 if the entry is free.
    range: AtomicU64,
    is_gone: AtomicBool,
}

impl Entry {
    /// If this is the entry of the mapping around `address`: maps zeros in its place.
    fn give_up(&self, address: usize) -> bool {
        let range = self.range.load(Ordering::Acquire);
        let unit = if range >> LEN_BITS & 1 == 1 { LARGE_UNIT } else { UNIT };
        let (start, len) =
            ((range >> (LEN_BITS + 1)) as usize * UNIT, range as usize % (1 << LEN_BITS) * unit);
        if !(start..start + len).contains(&address) {
            return false;
        }
        // Set before the zeros are mapped, so that a thread that reads a zero sees this too.
        self.is_gone.store(true, Ordering::SeqCst);
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the thread that faulted at `address` is using the mapping around it, so that mapping lives, and no other
        // lies there: the entry is its own. It is accessed as atomics alone, which stay valid when their values change.
        unsafe { mmap_anonymous(start as *mut c_void, len, rights, flags) }.is_ok()
    }
}

/// Holds a mapping's entry while the mapping lives.
#[derive(Debug)]
struct Watched(&'static Entry);

impl Watched {
    fn begin(start: *const u8, len: usize) -> io::Result<Watched> {
        handle_bus_errors()?;
        let (unit, is_large) = match len.div_ceil(UNIT) >> LEN_BITS {
            0 => (UNIT, 0),
            _ => (LARGE_UNIT, 1),
        };
        let units = len.div_ceil(unit);
        if units >> LEN_BITS != 0 || is_large == 1 && !len.is_multiple_of(LARGE_UNIT) {
            let rule = "a region of 1 GiB or more is whole MiB, and less than 256 GiB";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, rule));
        }
        let first = (start.addr() / UNIT) as u64;
        let range = first << (LEN_BITS + 1) | is_large << LEN_BITS | units as u64;
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        for entry in (0..WATCHED_MAX).map(|offset| &WATCHED[first.wrapping_add(offset) % WATCHED_MAX]) {
            if entry.range.compare_exchange(0, range, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(Watched(entry));
            }
        }
        let reason = format!("this process maps {WATCHED_MAX} files already");
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.is_gone.store(false, Ordering::Relaxed);
        self.0.range.store(0, Ordering::Release);
    }
}

/// Installs the handler, once for the process.
fn handle_bus_errors() -> io::Result<()> {
    let handler = SigHandler::SigAction(on_bus_error);
    // On the alternate stack, as the standard library's handler that it replaces.
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: `on_bus_error` does nothing that a handler may not do: atomics, and the calls mmap and sigaction.
    let former = FORMER.get_or_init(|| unsafe { sigaction(Signal::SIGBUS, &action) });
    former.map(|_| ()).map_err(io::Error::from)
}

/// Gives up the mapping in which the fault lies. Other faults go to the former handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with the description of a SIGBUS, which has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code == BUS_ADRERR && WATCHED.iter().any(|entry| entry.give_up(address)) {
        return;
    }
    match FORMER.get().map(|former| former.map(|action| action.handler())) {
        Some(Ok(SigHandler::SigAction(handler))) => handler(signal, info, context),
        Some(Ok(SigHandler::Handler(handler))) => handler(signal),
        _ => {
            let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY: the default action runs no code of ours. The instruction faults again, which ends the process.
            let _ = unsafe { sigaction(Signal::SIGBUS, &action) };
        }
    }
}
