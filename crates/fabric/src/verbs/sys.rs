//! The calls to libibverbs, behind safe functions: each object of the library is a type here that frees it, and holds
//! what the library wants freed later (a queue pair its completion queue, that its device).
//!
//! `abi` declares the library and loads it. No binding of another make is used: they need libclang and cmake to be built, and
//! have nothing for completion events, memory windows and memory that is registered where it lies, which is most of what is
//! here, and no owner for a buffer in flight.
//!
//! Sources: ibv_*(3) of rdma-core; InfiniBand Architecture Specification volume 1, chapters 10 and 11.
//!
//! It decides nothing and waits for nothing. The rest of `verbs` calls it, and nobody else.

mod abi;
mod queue;
mod receive;

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use bytemuck::Zeroable as _;

use self::abi as ibv;
pub(super) use self::abi::Library;
pub use self::queue::{Note, QueuePair, Registered, Work};
pub(super) use self::queue::{Peer, Rights, Timers};
pub(super) use self::receive::{Arrival, RECEIVES_MAX, Receives};
use crate::memory::Memory;

/// Most completions taken from a queue at once.
const POLL_MAX: usize = 32;

/// The result of a call that returns 0 or an error number.
fn checked(number: i32) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}

/// The result of a call that returns an object, or null and the reason in `errno`.
fn object<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// Logs why an object could not be freed. It is leaked, with all that it holds.
fn leaked(what: &str, number: i32) {
    let error = io::Error::from_raw_os_error(number);
    tracing::error!(%error, "{what} cannot be freed");
}

impl Library {
    /// Names of the devices of this machine.
    pub(super) fn device_names(&'static self) -> io::Result<Vec<String>> {
        let list = DeviceList::new(self)?;
        Ok(list.devices().iter().map(|device| list.name(*device)).collect())
    }
}

struct DeviceList {
    library: &'static Library,
    raw: NonNull<*mut ibv::ibv_device>,
    len: usize,
}

impl DeviceList {
    fn new(library: &'static Library) -> io::Result<DeviceList> {
        let mut len = 0;
        // SAFETY: `len` is ours to write to.
        let raw = object(unsafe { (library.ibv_get_device_list)(&mut len) })?;
        Ok(DeviceList { library, raw, len: len.max(0) as usize })
    }

    fn devices(&self) -> &[*mut ibv::ibv_device] {
        // SAFETY: the library returned an array of that many devices, which lives until `drop`.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr(), self.len) }
    }

    fn name(&self, device: *mut ibv::ibv_device) -> String {
        // SAFETY: `device` is of this list, which is not yet freed; its name is a text that lives as long.
        let name = unsafe { CStr::from_ptr((self.library.ibv_get_device_name)(device)) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is freed once, here; opened devices outlive it.
        unsafe { (self.library.ibv_free_device_list)(self.raw.as_ptr()) }
    }
}

/// An open device.
pub(super) struct Context {
    library: &'static Library,
    raw: NonNull<ibv::ibv_context>,
    pub(super) iwarp: bool,
}

// SAFETY: libibverbs allows calls on one device from all threads at once (ibv_open_device(3) and its thread safety in
// rdma-core's Documentation/libibverbs.md); `Context` frees it once, when the last holder goes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}

impl Context {
    /// Opens the device called `name`.
    pub(super) fn open(library: &'static Library, name: &str) -> io::Result<Arc<Context>> {
        let list = DeviceList::new(library)?;
        let found = list.devices().iter().find(|device| list.name(**device) == name);
        let device = *found.ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: no arguments. Pages of children are kept apart from registered ones on kernels that need to be told.
        unsafe { (library.ibv_fork_init)() };
        // SAFETY: the device is of a list that lives until the end of this function.
        let raw = object(unsafe { (library.ibv_open_device)(device) })?;
        // SAFETY: as above.
        let transport = unsafe { (*device).transport_type };
        Ok(Arc::new(Context { library, raw, iwarp: transport == ibv::IBV_TRANSPORT_IWARP }))
    }

    pub(super) fn limits(&self) -> io::Result<Limits> {
        let mut found = ibv::ibv_device_attr::zeroed();
        // SAFETY: the device is open, and the attributes are ours to write to.
        checked(unsafe { (self.library.ibv_query_device)(self.raw.as_ptr(), &mut found) })?;
        Ok(Limits {
            atomics: match found.atomic_cap {
                ibv::IBV_ATOMIC_NONE => None,
                ibv::IBV_ATOMIC_HCA => Some(AtomicClass::Device),
                _ => Some(AtomicClass::Machine),
            },
            windows: found.device_cap_flags & ibv::IBV_DEVICE_MEM_WINDOW_TYPE_2B != 0,
            reads_out: depth(found.max_qp_init_rd_atom),
            reads_in: depth(found.max_qp_rd_atom),
            ports: found.phys_port_cnt,
        })
    }

    pub(super) fn port(&self, number: u8) -> io::Result<Port> {
        let mut found = ibv::ibv_port_attr::zeroed();
        // SAFETY: the device is open, and the attributes are ours to write to.
        checked(unsafe { (self.library.ibv_query_port)(self.raw.as_ptr(), number, &mut found) })?;
        Ok(Port {
            active: found.state == ibv::IBV_PORT_ACTIVE,
            ethernet: u32::from(found.link_layer) == ibv::IBV_LINK_LAYER_ETHERNET,
            lid: found.lid,
            mtu: found.active_mtu as u8,
            gids_max: found.gid_tbl_len.max(0) as usize,
        })
    }

    /// The addresses of all ports.
    pub(super) fn gids(&self, max: usize) -> io::Result<Vec<Gid>> {
        let mut entries = vec![ibv::ibv_gid_entry::zeroed(); max.max(1)];
        // SAFETY: the device is open, and `entries` has room for as many as are said, of the size that is said.
        let count = unsafe {
            let size = size_of::<ibv::ibv_gid_entry>();
            (self.library._ibv_query_gid_table)(
                self.raw.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::from_raw_os_error(-count as i32));
        };
        let gid = |entry: &ibv::ibv_gid_entry| Gid {
            port: entry.port_num,
            index: entry.gid_index,
            raw: entry.gid.raw,
            routable: entry.gid_type == ibv::IBV_GID_TYPE_ROCE_V2,
        };
        Ok(entries.iter().take(count).map(gid).collect())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing that holds the device is left, and it is closed once.
        if unsafe { (self.library.ibv_close_device)(self.raw.as_ptr()) } != 0 {
            tracing::error!("an RDMA device cannot be closed");
        }
    }
}

fn depth(count: i32) -> u8 {
    count.clamp(0, i32::from(u8::MAX)) as u8
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) atomics: Option<AtomicClass>,
    /// Whether it supports memory windows of type 2B.
    pub(super) windows: bool,
    /// Most reads and atomics in flight from one queue pair.
    pub(super) reads_out: u8,
    /// Most reads and atomics in flight to one queue pair.
    pub(super) reads_in: u8,
    pub(super) ports: u8,
}

/// What a device's atomics are atomic against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtomicClass {
    /// `IBV_ATOMIC_HCA`: other atomics of the same device.
    Device,
    /// `IBV_ATOMIC_GLOB`: the machine's CPUs and other devices too.
    Machine,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) active: bool,
    pub(super) ethernet: bool,
    pub(super) lid: u16,
    /// As in `enum ibv_mtu`: 1 is 256 bytes, and each step doubles it.
    pub(super) mtu: u8,
    pub(super) gids_max: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Gid {
    pub(super) port: u32,
    pub(super) index: u32,
    pub(super) raw: [u8; 16],
    /// Whether it is RoCE version 2, which is carried over UDP.
    pub(super) routable: bool,
}

/// A protection domain: its memory is reachable only through its own queue pairs.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    raw: NonNull<ibv::ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: see `Context`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Arc<ProtectionDomain>> {
        // SAFETY: the device is open.
        let raw = object(unsafe { (context.library.ibv_alloc_pd)(context.raw.as_ptr()) })?;
        Ok(Arc::new(ProtectionDomain { raw, context: Arc::clone(context) }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: regions, windows and queue pairs hold their domain, so none is left.
        let freed = unsafe { (self.context.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
        if freed != 0 {
            leaked("a protection domain", freed);
        }
    }
}

/// Memory that the device may access.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    raw: NonNull<ibv::ibv_mr>,
    /// Mapped for as long as it is registered.
    memory: ManuallyDrop<Arc<Memory>>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: see `Context`. The memory is only touched as atomics (`Memory`), or by the owner of a part (`Registered`).
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers all of `memory`, however it was allocated.
    pub(super) fn register(
        domain: &Arc<ProtectionDomain>,
        memory: Arc<Memory>,
        rights: Rights,
    ) -> io::Result<Arc<MemoryRegion>> {
        let (address, len) = (memory.address().cast_mut().cast(), memory.len());
        // SAFETY: the memory is mapped and stays so, as it is held until it is no longer registered. Where the device
        // may write to it, all others see it as atomics. The kernel refuses rights that the mapping does not have.
        let raw = object(unsafe {
            (domain.context.library.ibv_reg_mr)(domain.raw.as_ptr(), address, len, rights.flags() as i32)
        })?;
        let (memory, domain) = (ManuallyDrop::new(memory), Arc::clone(domain));
        Ok(Arc::new(MemoryRegion { raw, memory, domain }))
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region lives, and its keys do not change.
        unsafe { self.raw.as_ref().rkey }
    }

    fn lkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().lkey }
    }

    /// The address by which peers reach its first byte.
    pub(super) fn address(&self) -> u64 {
        self.memory.address() as u64
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: windows and parts hold their region, so none is left; it is freed once.
        let freed = unsafe { (self.domain.context.library.ibv_dereg_mr)(self.raw.as_ptr()) };
        if freed != 0 {
            // The memory stays mapped, because the device may still access it.
            return leaked("a memory region", freed);
        }
        // SAFETY: the device no longer reaches the memory, and it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.memory) }
    }
}

/// A memory window of type 2B: a right to a region that belongs to the queue pair it is bound to, and ends with it.
#[derive(Debug)]
pub(super) struct Window {
    raw: NonNull<ibv::ibv_mw>,
    region: Arc<MemoryRegion>,
}

// SAFETY: see `Context`.
unsafe impl Send for Window {}
// SAFETY: see `Context`.
unsafe impl Sync for Window {}

impl Window {
    /// A window that grants nothing until it is bound to a queue pair.
    pub(super) fn new(region: &Arc<MemoryRegion>) -> io::Result<Window> {
        let domain = region.domain.raw.as_ptr();
        // SAFETY: the domain lives, and so does its context.
        let alloc = unsafe { (*(*domain).context).ops.alloc_mw }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: as above.
        let raw = object(unsafe { alloc(domain, ibv::IBV_MW_TYPE_2) })?;
        Ok(Window { raw, region: Arc::clone(region) })
    }

    /// The key for the next bind. The owner of a type 2 window chooses the last 8 bits, different from the previous
    /// ones.
    pub(super) fn next_rkey(&self) -> u32 {
        // SAFETY: the window lives.
        let rkey = unsafe { self.raw.as_ref().rkey };
        rkey & !0xff | rkey.wrapping_add(1) & 0xff
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: it is freed once. Whoever still uses its key is refused from here on.
        let freed = unsafe { ((*self.raw.as_ref().context).ops.dealloc_mw)(self.raw.as_ptr()) };
        if freed != 0 {
            leaked("a memory window", freed);
        }
    }
}

/// Where queue pairs report completed work. Queue pairs hold the inner part.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    inner: Arc<RawQueue>,
    polled: Box<[Completion; POLL_MAX]>,
}

#[derive(Debug)]
struct RawQueue {
    raw: NonNull<ibv::ibv_cq>,
    /// Signals new completions; `None` for a queue that is polled.
    channel: Option<NonNull<ibv::ibv_comp_channel>>,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for RawQueue {}
// SAFETY: see `Context`.
unsafe impl Sync for RawQueue {}

impl CompletionQueue {
    /// A queue with room for `len` completions, and with a channel if `events` is set.
    pub(super) fn new(context: &Arc<Context>, len: u32, events: bool) -> io::Result<CompletionQueue> {
        let (library, device) = (context.library, context.raw.as_ptr());
        // SAFETY: the device is open.
        let channel =
            events.then(|| object(unsafe { (library.ibv_create_comp_channel)(device) })).transpose()?;
        let channel_or_none = channel.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the device is open, and the channel one of it.
        let made = object(unsafe {
            (library.ibv_create_cq)(device, len as i32, ptr::null_mut(), channel_or_none, 0)
        });
        let raw = made.inspect_err(|_| {
            // SAFETY: nobody else knows the channel.
            channel.map(|channel| unsafe { (library.ibv_destroy_comp_channel)(channel.as_ptr()) });
        })?;
        let inner = Arc::new(RawQueue { raw, channel, context: Arc::clone(context) });
        let queue = CompletionQueue { inner, polled: Box::new([const { Completion::NONE }; POLL_MAX]) };
        if let Some(channel) = queue.channel() {
            let flags = rustix::fs::fcntl_getfl(channel)?;
            rustix::fs::fcntl_setfl(channel, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(queue)
    }

    /// Changes its capacity to `len` completions.
    pub(super) fn resize(&mut self, len: u32) -> io::Result<()> {
        // SAFETY: the queue lives, and nobody else polls it now: who does needs it as `&mut`, too.
        checked(unsafe { (self.inner.context.library.ibv_resize_cq)(self.inner.raw.as_ptr(), len as i32) })
    }

    /// Takes some of the reported completions. They are valid until the next call.
    #[inline]
    pub(super) fn poll(&mut self) -> io::Result<&[Completion]> {
        let (queue, into) = (self.inner.raw.as_ptr(), self.polled.as_mut_ptr().cast());
        // SAFETY: the queue lives, and there is room for that many: a `Completion` is an `ibv_wc`.
        let count = unsafe { ((*(*queue).context).ops.poll_cq)(queue, POLL_MAX as i32, into) };
        let polled = usize::try_from(count).ok().and_then(|count| self.polled.get(..count));
        polled.ok_or_else(|| io::Error::other("the completion queue cannot be polled"))
    }

    /// Requests an event for the next completion after the last one polled.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        let queue = self.inner.raw.as_ptr();
        // SAFETY: the queue lives.
        checked(unsafe { ((*(*queue).context).ops.req_notify_cq)(queue, 0) })
    }

    /// Takes an event, if there is one.
    pub(super) fn take_event(&mut self) -> io::Result<()> {
        let Some(channel) = self.inner.channel else { return Ok(()) };
        let library = self.inner.context.library;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives, does not block, and tells of this queue alone.
        if unsafe { (library.ibv_get_cq_event)(channel.as_ptr(), &mut queue, &mut context) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
        }
        // SAFETY: one event was taken, which is acknowledged once.
        unsafe { (library.ibv_ack_cq_events)(queue, 1) };
        Ok(())
    }

    /// The channel, readable when there is an event.
    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open for as long as the channel lives, which the queue holds.
        self.inner.channel.map(|channel| unsafe { BorrowedFd::borrow_raw(channel.as_ref().fd) })
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their queue, so none is left, and all events were acknowledged.
        let freed = unsafe { (self.context.library.ibv_destroy_cq)(self.raw.as_ptr()) };
        if freed != 0 {
            return leaked("a completion queue", freed);
        }
        if let Some(channel) = self.channel {
            // SAFETY: its one queue is gone.
            unsafe { (self.context.library.ibv_destroy_comp_channel)(channel.as_ptr()) };
        }
    }
}

/// What a queue pair reports about its work up to one request.
#[repr(transparent)]
pub(super) struct Completion(ibv::ibv_wc);

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:#x}, {})", self.0.wr_id, self.0.status)
    }
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The peer's device does not answer.
    #[error("the peer's device does not answer")]
    Unreachable,
    /// The peer's device refused the request.
    #[error("the peer's device refused the request")]
    Denied,
    /// The queue pair had failed before.
    #[error("the queue pair had failed before")]
    Flushed,
    /// Any other `enum ibv_wc_status`, which correct requests never cause.
    #[error("the device reported status {0} (enum ibv_wc_status)")]
    Other(u32),
}

impl Completion {
    const NONE: Completion = Completion(ibv::ibv_wc {
        wr_id: u64::MAX,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        imm_data: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    });

    /// The slot that the queue pair was made for.
    #[inline]
    pub(super) fn slot(&self) -> u16 {
        queue::slot_of(self.0.wr_id)
    }

    #[inline]
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        if self.0.status == ibv::IBV_WC_SUCCESS { Ok(()) } else { Err(self.failure()) }
    }

    #[cold]
    fn failure(&self) -> Failure {
        match self.0.status {
            ibv::IBV_WC_RETRY_EXC_ERR
            | ibv::IBV_WC_RNR_RETRY_EXC_ERR
            | ibv::IBV_WC_RESP_TIMEOUT_ERR
            | ibv::IBV_WC_REM_OP_ERR
            // Soft-RoCE says so while its network has no link (Linux 6.1, rxe_req.c).
            | ibv::IBV_WC_LOC_QP_OP_ERR
            | ibv::IBV_WC_REM_ABORT_ERR => Failure::Unreachable,
            ibv::IBV_WC_REM_ACCESS_ERR | ibv::IBV_WC_REM_INV_REQ_ERR => Failure::Denied,
            ibv::IBV_WC_WR_FLUSH_ERR => Failure::Flushed,
            other => Failure::Other(other),
        }
    }
}
