//! Queue pairs of reliable connections, and the buffers that are in flight on them.
//!
//! A [`Registered`] buffer is owned by one side at a time. [`QueuePair::stage`] takes it, and only the completion of its
//! work gives it back, so that nobody looks at memory that the device may still write to, or frees it:
//!
//! ```
//! # use sidelong_fabric::verbs::{Note, QueuePair, Registered, Work};
//! # fn f(queue: &mut QueuePair, buffer: Registered, work: &Work, note: Note) {
//! println!("{:?}", buffer.words());
//! queue.stage(work, buffer, note).unwrap();
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use sidelong_fabric::verbs::{Note, QueuePair, Registered, Work};
//! # fn f(queue: &mut QueuePair, buffer: Registered, work: &Work, note: Note) {
//! queue.stage(work, buffer, note).unwrap();
//! println!("{:?}", buffer.words()); // refused: it is in flight
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # use sidelong_fabric::verbs::{Note, QueuePair, Registered, Work};
//! # fn f(queue: &mut QueuePair, buffer: Registered, work: &Work, note: Note) {
//! queue.stage(work, buffer, note).unwrap();
//! drop(buffer); // refused: it is in flight
//! # }
//! ```
//!
//! A reliable connection completes its work in order, so one completion speaks for all work before it.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Zeroable as _;

use super::abi as ibv;
use super::{
    Completion, CompletionQueue, MemoryRegion, ProtectionDomain, RawQueue, Receives, Window, checked, leaked,
    object,
};
use crate::memory::Memory;

/// Most requests in flight on a queue pair: a sequence of 16 bits tells them apart.
pub(super) const DEPTH_MAX: u32 = 1 << 14;
/// Pause before a target that is not ready is tried again: 14 means 1.28 ms (IBA volume 1, table 45). One-sided work
/// never meets such a target, nor does a message for which the sender knows a buffer.
const NOT_READY_TIMER: u8 = 14;
/// Retries for a target that is not ready; 7 would mean no limit.
const NOT_READY_RETRIES_MAX: u8 = 3;

/// Counts lives of queue pairs, which tells late completions of a slot's earlier queue pair from those of the next.
static LIFE: AtomicU32 = AtomicU32::new(0);

/// What the device may do with memory, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verbs) enum Rights {
    /// This process alone, through the work that it posts.
    Local,
    /// Peers may read.
    Read,
    /// Peers may read, write and do atomics.
    Atomic,
    /// Peers may read through windows.
    WindowedRead,
    /// Peers may read, write and do atomics through windows.
    WindowedAtomic,
}

impl Rights {
    pub(super) fn flags(self) -> u32 {
        let local = ibv::IBV_ACCESS_LOCAL_WRITE;
        match self {
            Rights::Local => local,
            Rights::Read => self.remote(),
            Rights::Atomic => self.remote() | local,
            Rights::WindowedRead => ibv::IBV_ACCESS_MW_BIND,
            Rights::WindowedAtomic => ibv::IBV_ACCESS_MW_BIND | local,
        }
    }

    /// The rights of peers, with or without a window.
    fn remote(self) -> u32 {
        let read = ibv::IBV_ACCESS_REMOTE_READ;
        match self {
            Rights::Local => 0,
            Rights::Read | Rights::WindowedRead => read,
            Rights::Atomic | Rights::WindowedAtomic => {
                read | ibv::IBV_ACCESS_REMOTE_WRITE | ibv::IBV_ACCESS_REMOTE_ATOMIC
            }
        }
    }
}

/// A part of registered memory that only this process uses. Its owner may access it, because nothing is in flight
/// there.
pub struct Registered(pub(super) Box<Part>);

/// Boxed, so that passing it on moves one word.
pub(super) struct Part {
    pub(super) at: NonNull<u64>,
    pub(super) words: u32,
    pub(super) lkey: u32,
    _region: Arc<MemoryRegion>,
}

// SAFETY: it is the only way to its part of the region, as a `Box` would be.
unsafe impl Send for Registered {}
// SAFETY: as above; shared, it is only read.
unsafe impl Sync for Registered {}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({} words)", self.0.words)
    }
}

impl Registered {
    /// Maps and registers memory for `count` buffers of `words` words each.
    pub(in crate::verbs) fn carve(
        domain: &Arc<ProtectionDomain>,
        count: usize,
        words: usize,
    ) -> io::Result<Vec<Registered>> {
        let memory = Arc::new(Memory::anonymous(count * words * 8)?);
        let base =
            NonNull::new(memory.address().cast_mut().cast::<u64>()).ok_or(io::ErrorKind::InvalidData)?;
        let region = MemoryRegion::register(domain, memory, Rights::Local)?;
        let part = |part: usize| Part {
            // SAFETY: that many parts lie in the mapping, one behind the other.
            at: unsafe { base.add(part * words) },
            words: words as u32,
            lkey: region.lkey(),
            _region: Arc::clone(&region),
        };
        Ok((0..count).map(|index| Registered(Box::new(part(index)))).collect())
    }

    /// Its contents.
    #[inline]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the part is mapped for as long as the region is held, begins at a word, and is this buffer's alone:
        // `carve` gave it out once, to the process's own memory, which peers have no right to.
        unsafe { std::slice::from_raw_parts(self.0.at.as_ptr(), self.0.words as usize) }
    }

    /// Its contents, to be changed.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.at.as_ptr(), self.0.words as usize) }
    }
}

/// Work for a queue pair at an address of the peer, stored as the device takes it, so that staging needs no branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    opcode: u32,
    len: u32,
    at: u64,
    /// Of an atomic: the value to compare or add, and the value to swap in.
    operands: Option<(u64, u64)>,
    /// The value that a write passes to the peer's inbox.
    immediate: u32,
    /// The remote key, if it is not that of the queue pair.
    rkey: Option<u32>,
}

impl Work {
    /// Reads `len` bytes at the peer's address `from` into the buffer.
    #[inline]
    pub fn read(from: u64, len: u32) -> Work {
        Work { opcode: ibv::IBV_WR_RDMA_READ, len, at: from, operands: None, immediate: 0, rkey: None }
    }

    /// Writes `len` bytes of the buffer to the peer's address `to`.
    #[inline]
    pub fn write(to: u64, len: u32) -> Work {
        Work { opcode: ibv::IBV_WR_RDMA_WRITE, ..Work::read(to, len) }
    }

    /// As `write`; then it consumes one of the peer's receive buffers, unchanged, to pass `immediate`.
    #[inline]
    pub fn write_with_immediate(to: u64, len: u32, immediate: u32) -> Work {
        let opcode = ibv::IBV_WR_RDMA_WRITE_WITH_IMM;
        Work { opcode, immediate, ..Work::write(to, len) }
    }

    /// Sends `len` bytes of the buffer to one of the peer's receive buffers.
    #[inline]
    pub fn send(len: u32) -> Work {
        Work { opcode: ibv::IBV_WR_SEND, ..Work::write(0, len) }
    }

    /// Replaces the word at `at` by `new` if it is `expected`, and reads the previous value into the buffer.
    #[inline]
    pub fn compare_and_swap(at: u64, expected: u64, new: u64) -> Work {
        let (opcode, operands) = (ibv::IBV_WR_ATOMIC_CMP_AND_SWP, Some((expected, new)));
        Work { opcode, operands, ..Work::write(at, 8) }
    }

    /// Adds `add` to the word at `at`, and reads the previous value into the buffer.
    #[inline]
    pub fn fetch_and_add(at: u64, add: u64) -> Work {
        let (opcode, operands) = (ibv::IBV_WR_ATOMIC_FETCH_AND_ADD, Some((add, 0)));
        Work { opcode, operands, ..Work::write(at, 8) }
    }

    /// The same work on memory that the peer granted under another key than the queue pair's.
    #[inline]
    pub fn under(self, rkey: u32) -> Work {
        Work { rkey: Some(rkey), ..self }
    }
}

/// What the poster gets back with the completion.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Note {
    pub(in crate::verbs) batch: u32,
    /// The index of the operation in its batch.
    pub(in crate::verbs) index: u32,
    /// The part of the operation's buffer that this piece covers: first word and length.
    pub(in crate::verbs) at: u32,
    pub(in crate::verbs) words: u32,
    /// Whether it is the operation's last piece.
    pub(in crate::verbs) last: bool,
    /// Whether it reads the inbox's word, and belongs to no operation's buffer.
    pub(in crate::verbs) look: bool,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Peer {
    pub(in crate::verbs) number: u32,
    pub(in crate::verbs) sequence: u32,
    pub(in crate::verbs) gid: [u8; 16],
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) mtu: u8,
}

/// This end.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Timers {
    pub(in crate::verbs) port: u8,
    pub(in crate::verbs) gid_index: u8,
    /// Whether frames are routed by GID; InfiniBand's own links need only the LID.
    pub(in crate::verbs) routed: bool,
    pub(in crate::verbs) sequence: u32,
    /// The acknowledgement timeout: 4.096 us doubled this many times.
    pub(in crate::verbs) timeout: u8,
    pub(in crate::verbs) retries: u8,
    /// Most reads and atomics in flight to the peer, and from it.
    pub(in crate::verbs) reads_out: u8,
    pub(in crate::verbs) reads_in: u8,
}

/// One end of a reliable connection.
pub struct QueuePair {
    pub(super) raw: NonNull<ibv::ibv_qp>,
    /// `life << 32 | slot << 16`. With a sequence number in the low bits it identifies a request.
    pub(super) tag: u64,
    rkey: u32,
    inline_bytes_max: u32,
    /// Indexed by sequence, modulo the depth.
    ring: ManuallyDrop<Box<[Entry]>>,
    /// Sequence numbers: of the oldest request in flight, of the first staged one, and of the next.
    oldest: u32,
    staged: u32,
    next: u32,
    pub(super) receives: ManuallyDrop<Receives>,
    _completions: Arc<RawQueue>,
    domain: Arc<ProtectionDomain>,
}

/// A request, the memory that it names, and the owner of that memory.
struct Entry {
    request: ibv::ibv_send_wr,
    piece: ibv::ibv_sge,
    in_flight: Option<InFlight>,
}

/// A buffer that the device may read from or write to.
struct InFlight {
    buffer: Registered,
    note: Note,
}

// SAFETY: see `Context`. The pointers in the ring are set by the call that uses them.
unsafe impl Send for QueuePair {}
// SAFETY: shared, it can only be asked for its number.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({}, {} in flight)", self.number(), self.next.wrapping_sub(self.oldest))
    }
}

pub(super) fn slot_of(request: u64) -> u16 {
    (request >> 16) as u16
}

impl QueuePair {
    /// A queue pair that takes `depth` requests, a power of two, and reports to `completions` under the number `slot`.
    pub(in crate::verbs) fn new(
        completions: &CompletionQueue,
        domain: &Arc<ProtectionDomain>,
        slot: u16,
        depth: u32,
        inline_bytes: u32,
    ) -> io::Result<QueuePair> {
        QueuePair::with_receives(completions, domain, slot, depth, inline_bytes, Receives::none(completions))
    }

    /// As `new`; it receives into the buffers of `receives`.
    pub(in crate::verbs) fn with_receives(
        completions: &CompletionQueue,
        domain: &Arc<ProtectionDomain>,
        slot: u16,
        depth: u32,
        inline_bytes: u32,
        receives: Receives,
    ) -> io::Result<QueuePair> {
        assert!(depth.is_power_of_two() && depth <= DEPTH_MAX, "sequences are counted in 16 bits");
        let made = create(completions, &receives, domain, depth, inline_bytes);
        let (raw, inline_bytes_max) = match made {
            // Some devices do not support inline data.
            Err(_) if inline_bytes > 0 => create(completions, &receives, domain, depth, 0)?,
            made => made?,
        };
        let life = LIFE.fetch_add(1, Ordering::Relaxed);
        let entry = |_| Entry {
            request: ibv::ibv_send_wr::zeroed(),
            piece: ibv::ibv_sge { addr: 0, length: 0, lkey: 0 },
            in_flight: None,
        };
        Ok(QueuePair {
            raw,
            tag: u64::from(life) << 32 | u64::from(slot) << 16,
            rkey: 0,
            inline_bytes_max,
            ring: ManuallyDrop::new((0..depth).map(entry).collect()),
            oldest: 0,
            staged: 0,
            next: 0,
            receives: ManuallyDrop::new(receives),
            _completions: Arc::clone(&completions.inner),
            domain: Arc::clone(domain),
        })
    }

    /// The number by which the peer knows it.
    pub(in crate::verbs) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives, and its number does not change.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Connects it to `peer`, with the rights `rights`; it takes work from now on (RESET to INIT, RTR, RTS).
    pub(in crate::verbs) fn connect(&mut self, own: &Timers, peer: &Peer, rights: Rights) -> io::Result<()> {
        self.modify(
            ibv::IBV_QP_STATE | ibv::IBV_QP_PKEY_INDEX | ibv::IBV_QP_PORT | ibv::IBV_QP_ACCESS_FLAGS,
            |to| {
                to.qp_state = ibv::IBV_QPS_INIT;
                to.port_num = own.port;
                to.qp_access_flags = rights.remote();
            },
        )?;
        let ready_to_receive = ibv::IBV_QP_STATE
            | ibv::IBV_QP_AV
            | ibv::IBV_QP_PATH_MTU
            | ibv::IBV_QP_DEST_QPN
            | ibv::IBV_QP_RQ_PSN
            | ibv::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv::IBV_QP_MIN_RNR_TIMER;
        self.modify(ready_to_receive, |to| {
            to.qp_state = ibv::IBV_QPS_RTR;
            to.path_mtu = u32::from(peer.mtu);
            to.dest_qp_num = peer.number;
            to.rq_psn = peer.sequence;
            to.max_dest_rd_atomic = own.reads_in;
            to.min_rnr_timer = NOT_READY_TIMER;
            to.ah_attr.dlid = peer.lid;
            to.ah_attr.port_num = own.port;
            to.ah_attr.is_global = u8::from(own.routed);
            to.ah_attr.grh.dgid = ibv::ibv_gid { raw: peer.gid };
            to.ah_attr.grh.sgid_index = own.gid_index;
            to.ah_attr.grh.hop_limit = 64;
        })?;
        let ready_to_send = ibv::IBV_QP_STATE
            | ibv::IBV_QP_TIMEOUT
            | ibv::IBV_QP_RETRY_CNT
            | ibv::IBV_QP_RNR_RETRY
            | ibv::IBV_QP_SQ_PSN
            | ibv::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(ready_to_send, |to| {
            to.qp_state = ibv::IBV_QPS_RTS;
            to.timeout = own.timeout;
            to.retry_cnt = own.retries;
            to.rnr_retry = NOT_READY_RETRIES_MAX;
            to.sq_psn = own.sequence;
            to.max_rd_atomic = own.reads_out;
        })
    }

    fn modify(&mut self, what: u32, to: impl FnOnce(&mut ibv::ibv_qp_attr)) -> io::Result<()> {
        let mut attributes = ibv::ibv_qp_attr::zeroed();
        to(&mut attributes);
        let modify = self.domain.context.library.ibv_modify_qp;
        // SAFETY: the queue pair lives, and the attributes are as `what` says.
        checked(unsafe { modify(self.raw.as_ptr(), &mut attributes, what as i32) })
    }

    /// Sets the remote key for further work.
    pub(in crate::verbs) fn use_rkey(&mut self, rkey: u32) {
        self.rkey = rkey;
    }

    /// Number of requests that it takes before one completes.
    #[inline]
    pub(in crate::verbs) fn room(&self) -> u32 {
        self.ring.len() as u32 - self.next.wrapping_sub(self.oldest)
    }

    /// Whether nothing is staged or in flight.
    #[inline]
    pub(in crate::verbs) fn is_idle(&self) -> bool {
        self.next == self.oldest
    }

    /// Number of requests staged for the next `post`.
    #[inline]
    pub(in crate::verbs) fn staged(&self) -> u32 {
        self.next.wrapping_sub(self.staged)
    }

    /// Stages work for the next `post`. The buffer is in flight from now on.
    ///
    /// # Errors
    /// Returns the buffer if there is no room, or if the work exceeds its length.
    #[inline(always)]
    pub fn stage(&mut self, work: &Work, buffer: Registered, note: Note) -> Result<(), Registered> {
        let Work { opcode, len, at, operands, immediate, rkey } = *work;
        if self.room() == 0 || len as usize > buffer.0.words as usize * 8 {
            return Err(buffer);
        }
        let carries =
            matches!(opcode, ibv::IBV_WR_RDMA_WRITE | ibv::IBV_WR_RDMA_WRITE_WITH_IMM | ibv::IBV_WR_SEND);
        let inline = carries && len <= self.inline_bytes_max;
        let index = self.next as usize & (self.ring.len() - 1);
        let Entry { request, piece, in_flight } = &mut self.ring[index];
        request.wr_id = self.tag | u64::from(self.next as u16);
        request.opcode = opcode;
        request.send_flags = if inline { ibv::IBV_SEND_INLINE } else { 0 };
        let rkey = rkey.unwrap_or(self.rkey);
        request.imm_data = immediate.to_be();
        match operands {
            None => request.wr.rdma = ibv::rdma { remote_addr: at, rkey },
            Some((compare_add, swap)) => {
                request.wr.atomic = ibv::atomic { remote_addr: at, compare_add, swap, rkey };
            }
        }
        // Some devices would take a piece of 0 bytes for one of 2 GiB.
        request.num_sge = i32::from(len > 0);
        *piece = ibv::ibv_sge { addr: buffer.0.at.as_ptr() as u64, length: len, lkey: buffer.0.lkey };
        // There is room, so the replaced entry holds nothing in flight.
        std::mem::forget(in_flight.replace(InFlight { buffer, note }));
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Posts the staged work to the device, which reports the last request.
    #[inline]
    pub(in crate::verbs) fn post(&mut self) -> io::Result<()> {
        if self.staged == self.next {
            return Ok(());
        }
        let depth = self.ring.len();
        let index = |sequence: u32| sequence as usize & (depth - 1);
        let ring = self.ring.as_mut_ptr();
        let first = index(self.staged);
        loop {
            let at = index(self.staged);
            self.staged = self.staged.wrapping_add(1);
            // SAFETY: `index` stays within the ring, which nobody else looks at during this call.
            unsafe {
                let entry = ring.add(at);
                (*entry).request.sg_list = &raw mut (*entry).piece;
                if self.staged == self.next {
                    (*entry).request.next = ptr::null_mut();
                    (*entry).request.send_flags |= ibv::IBV_SEND_SIGNALED;
                    break;
                }
                (*entry).request.next = &raw mut (*ring.add(index(self.staged))).request;
            }
        }
        let mut refused = ptr::null_mut();
        // SAFETY: the requests form a list that ends with the last that was staged. Each names a piece of a buffer that
        // is registered, is in the ring, and leaves it when a later completion says that the device is done with it.
        // What the device did not take stays there too, until the queue pair is gone.
        checked(unsafe {
            let queue = self.raw.as_ptr();
            let post = (*(*queue).context).ops.post_send;
            post(queue, &raw mut (*ring.add(first)).request, &mut refused)
        })
    }

    /// The buffers, oldest first, that `completion` releases. `None` if it belongs to another queue pair, such as an
    /// earlier one in the same slot. A failed completion releases only the buffers before its request.
    #[inline]
    pub(in crate::verbs) fn retire(
        &mut self,
        completion: &Completion,
    ) -> Option<impl Iterator<Item = (Registered, Note)> + use<'_>> {
        if !self.is_told_of(completion) {
            return None;
        }
        let request = completion.0.wr_id;
        let before = u32::from((request as u16).wrapping_sub(self.oldest as u16));
        let last = u32::from(completion.0.status == ibv::IBV_WC_SUCCESS);
        let in_flight = self.staged.wrapping_sub(self.oldest);
        let done = if before < in_flight { before + last } else { 0 };
        Some((0..done).map_while(|_| {
            let at = self.oldest as usize & (self.ring.len() - 1);
            self.oldest = self.oldest.wrapping_add(1);
            self.ring[at].in_flight.take().map(|InFlight { buffer, note }| (buffer, note))
        }))
    }

    /// Whether `completion` belongs to this queue pair, not to an earlier one in its slot.
    #[inline]
    pub(super) fn is_told_of(&self, completion: &Completion) -> bool {
        completion.0.wr_id >> 16 == self.tag >> 16
    }

    /// The notes of requests in flight, oldest first.
    pub(in crate::verbs) fn in_flight(&self) -> impl Iterator<Item = &Note> {
        let sequences = (0..self.next.wrapping_sub(self.oldest)).map(|after| self.oldest.wrapping_add(after));
        sequences.filter_map(|sequence| {
            let at = sequence as usize & (self.ring.len() - 1);
            self.ring[at].in_flight.as_ref().map(|in_flight| &in_flight.note)
        })
    }

    /// Gives the peer the rights `rights` to the window's whole region, under the key returned, once the device reports
    /// completion. That completion retires nothing.
    pub(in crate::verbs) fn bind(&mut self, window: &Window, rights: Rights) -> io::Result<u32> {
        let rkey = window.next_rkey();
        let bind = ibv::bind_mw {
            mw: window.raw.as_ptr(),
            rkey,
            bind_info: ibv::ibv_mw_bind_info {
                mr: window.region.raw.as_ptr(),
                addr: window.region.address(),
                length: window.region.len() as u64,
                mw_access_flags: rights.remote(),
            },
        };
        let mut request = ibv::ibv_send_wr {
            wr_id: self.tag | u64::from(u16::MAX),
            opcode: ibv::IBV_WR_BIND_MW,
            send_flags: ibv::IBV_SEND_SIGNALED,
            bind_mw: bind,
            ..ibv::ibv_send_wr::zeroed()
        };
        let (queue, mut refused) = (self.raw.as_ptr(), ptr::null_mut());
        // SAFETY: the window and its region live, and the call copies all of the request.
        checked(unsafe { ((*(*queue).context).ops.post_send)(queue, &mut request, &mut refused) })?;
        Ok(rkey)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it is freed once. When this returns, the device is done with all that was in flight
        // (ibv_destroy_qp(3); IBA volume 1, 10.2.4.4).
        let freed = unsafe { (self.domain.context.library.ibv_destroy_qp)(self.raw.as_ptr()) };
        if freed != 0 {
            // What is in flight stays mapped and registered, because the device may still access it.
            return leaked("a queue pair", freed);
        }
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.ring) }
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.receives) }
    }
}

fn create(
    completions: &CompletionQueue,
    receives: &Receives,
    domain: &Arc<ProtectionDomain>,
    depth: u32,
    inline_bytes: u32,
) -> io::Result<(NonNull<ibv::ibv_qp>, u32)> {
    let mut attributes = ibv::ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: completions.inner.raw.as_ptr(),
        recv_cq: receives.completions.raw.as_ptr(),
        srq: ptr::null_mut(),
        cap: ibv::ibv_qp_cap {
            max_send_wr: depth,
            max_recv_wr: receives.depth.max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        },
        qp_type: ibv::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: domain and completion queues live, are of one device (`Device` makes both), and are held by the
    // queue pair.
    let raw =
        object(unsafe { (domain.context.library.ibv_create_qp)(domain.raw.as_ptr(), &mut attributes) })?;
    Ok((raw, attributes.cap.max_inline_data))
}
