//! The part of a load region that the kernel keeps (under rdma-sync), behind the parts that every load region has.
//!
//! A [`Beat`] each millisecond shows that the kernel still keeps it. A place for each CPU holds two records: the
//! [`Slot`], which scheduler events write under that CPU's run-queue lock, and the [`Tick`], which the timer writes for
//! what causes no event. [`Sockets`] tells of a foreign server. [`Machine`] is for people and metrics. Each has one writer at a time, and
//! carries sequence and check like every record. The programs in `crates/load/src/bpf` write them.

use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::LINE_BYTES;
use crate::describe::{Word, described, values};
use crate::map::LoadRegion;
use crate::record::{Rejected, VALID, check, record};

/// CPUs for which a region has a place. Further CPUs are only in the [`Beat`]'s sums.
pub const PLACES_MAX: usize = 128;

/// Size of [`Beat`] in bytes.
pub const BEAT_BYTES: usize = 64;
/// Size of [`Slot`] in bytes.
pub const SLOT_BYTES: usize = 40;
/// Size of [`Tick`] in bytes.
pub const TICK_BYTES: usize = 32;
/// Size of [`Machine`] in bytes.
pub const MACHINE_BYTES: usize = 192;
/// Size of [`Sockets`] in bytes.
pub const SOCKETS_BYTES: usize = 64;

/// A CPU's place: a line for its events, a line for the rest.
pub const PLACE_BYTES: usize = size_of::<Place>();
/// The [`Tick`] in a place; the [`Slot`] is at its start.
pub const PLACE_TICK: usize = offset_of!(Place, tick);
/// The word of [`Pending`] in a place.
pub const PLACE_PENDING: usize = offset_of!(Place, pending);

/// The beat in a region that the kernel keeps.
pub const KERNEL_BEAT: usize = offset_of!(KernelRegion, beat);
/// The foreign server's sockets, beside what every reader reads.
pub const KERNEL_SOCKETS: usize = offset_of!(KernelRegion, sockets);
/// The first place.
pub const KERNEL_PLACES: usize = offset_of!(KernelRegion, places);
/// The machine's part.
pub const KERNEL_MACHINE: usize = offset_of!(KernelRegion, machine);
/// Length of such a region.
pub const KERNEL_BYTES: usize = size_of::<KernelRegion>();

values! {
    /// Bits of [`Beat::valid`] and [`Machine::valid`]: the fields that this kernel could fill. The lower bits are those of
    /// [`valid`](crate::valid).
    pub mod kept: u16 {
        /// `cpu_*_ns`.
        CPU_TIMES = 1 << 6,
        /// `context_switches`.
        SWITCHES = 1 << 7,
        /// `interrupts`, the total.
        INTERRUPTS_TOTAL = 1 << 8,
        /// `memory_pressure_us`.
        PRESSURE = 1 << 9,
        /// `load_*_milli`.
        LOAD_AVERAGE = 1 << 10,
        /// `tcp_established`.
        TCP = 1 << 11,
        /// [`Sockets`](crate::Sockets).
        SOCKETS = 1 << 12,
        /// `wanting` and `memory_*` are those of a control group, and not of the machine.
        OF_GROUP = 1 << 13,
    }
}

const KEPT: Word = Word::flags("kept", kept::VALUES);
const SLOT: Word = Word::flags("slot", Slot::VALUES);
const TICK: Word = Word::flags("tick", Tick::VALUES);
const PENDING: Word = Word::new("pending", &[("raised", 32), ("serving", 16), ("pending", 16)]);

described! {
    /// The heartbeat, which a timer writes each millisecond: what a decision needs beside the places.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
    #[repr(align(64))]
    pub struct Beat {
        /// As in [`Hot`](crate::Hot).
        pub sequence: u32,
        /// As in [`Hot`](crate::Hot).
        pub check: u32,
        /// As in [`Hot`](crate::Hot).
        pub generation: u32,
        /// Bits of [`valid`](crate::valid) and [`kept`].
        #[word(VALID, KEPT)]
        pub valid: u16,
        /// CPUs that are online.
        pub cpus: u16,
        /// When it was written, in ns of the node's monotonic clock. The age of everything that the kernel keeps counts
        /// from it.
        pub time_ns: u64,
        /// Memory in use, of all that may be used: 0-1000.
        pub memory_permille: u16,
        /// Places in use: CPUs that the machine may have, as far as there are places.
        pub places: u16,
        /// Threads that run or wait for a CPU, over all CPUs, including those without a place.
        pub run_queue: u32,
        /// Bytes received and sent since the record began, without loopback.
        pub net_bytes: u64,
        /// Established TCP connections.
        pub tcp_established: u32,
        /// CPUs that are online and have no place.
        pub unplaced: u32,
        /// CPU time used since the machine started, over all CPUs, as the kernel accounts it at its ticks.
        pub cpu_used_ns: u64,
        /// How often the timer has fired; it wraps.
        pub beats: u32,
        /// Zero.
        pub reserved: u32,
    }
}

described! {
    /// One CPU as of its last event: a switch, or the waking of a thread on its run queue.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
    pub struct Slot {
        /// As in [`Hot`](crate::Hot).
        pub sequence: u32,
        /// As in [`Hot`](crate::Hot).
        pub check: u32,
        /// As in [`Hot`](crate::Hot).
        pub generation: u32,
        /// Threads on its run queue, the running one included.
        pub runnable: u16,
        /// [`Slot::RUNNING`] or 0.
        #[word(SLOT)]
        pub flags: u16,
        /// When the event was, in ns of the node's monotonic clock.
        pub time_ns: u64,
        /// Time that it was not idle, until then.
        pub busy_ns: u64,
        /// Context switches.
        pub switches: u64,
    }
}

values! {
    impl Slot: u16 {
        /// In [`Slot::flags`]: a thread of the record's scope runs since `time_ns`.
        RUNNING = 1,
    }
}

described! {
    /// One CPU as the timer saw it; it is newer than the [`Slot`] that it names.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
    pub struct Tick {
        /// As in [`Hot`](crate::Hot).
        pub sequence: u32,
        /// As in [`Hot`](crate::Hot).
        pub check: u32,
        /// As in [`Hot`](crate::Hot).
        pub generation: u32,
        /// As in [`Slot`].
        pub runnable: u16,
        /// [`Tick::ONLINE`] or 0.
        #[word(TICK)]
        pub flags: u16,
        /// When it was, in ns of the node's monotonic clock.
        pub time_ns: u64,
        /// The slot's sequence then.
        pub slot_sequence: u32,
        /// Zero.
        pub reserved: u32,
    }
}

values! {
    impl Tick: u16 {
        /// In [`Tick::flags`]: the CPU is online.
        ONLINE = 1,
    }
}

/// A CPU's softirqs in one word, which is always consistent: `pending:16 serving:16 raised:32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending {
    /// Raised and not yet begun: a bit for each kind.
    pub pending: u16,
    /// Being served just now, likewise.
    pub serving: u16,
    /// Number raised since the record began; it wraps.
    pub raised: u32,
}

impl Pending {
    /// Decodes the word; every value is valid.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [raised, serving, pending] = PENDING.unpack(word);
        Pending { pending: pending as u16, serving: serving as u16, raised: raised as u32 }
    }

    /// Kinds of softirq that were raised and are not yet served.
    pub const fn unserved(self) -> u32 {
        (self.pending | self.serving).count_ones()
    }
}

described! {
    /// The whole scope's counters, every 10 ms. Counters only grow; one that wraps does so at 2^64.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
    #[repr(align(64))]
    #[expect(missing_docs, reason = "the names carry the meaning and the unit; /proc's own terms")]
    pub struct Machine {
        /// As in [`Hot`](crate::Hot).
        pub sequence: u32,
        /// As in [`Hot`](crate::Hot).
        pub check: u32,
        /// As in [`Hot`](crate::Hot).
        pub generation: u32,
        /// Bits of [`valid`](crate::valid) and [`kept`].
        #[word(VALID, KEPT)]
        pub valid: u16,
        pub cpus: u16,
        pub time_ns: u64,
        pub cpu_user_ns: u64,
        pub cpu_nice_ns: u64,
        pub cpu_system_ns: u64,
        pub cpu_irq_ns: u64,
        pub cpu_softirq_ns: u64,
        pub cpu_idle_ns: u64,
        pub cpu_iowait_ns: u64,
        pub cpu_steal_ns: u64,
        pub context_switches: u64,
        pub interrupts: u64,
        pub memory_used_bytes: u64,
        pub memory_total_bytes: u64,
        /// Time that some thread waited for memory (PSI, "some").
        pub memory_pressure_us: u64,
        /// Of IP since the record began, loopback not counted.
        pub net_received_bytes: u64,
        pub net_sent_bytes: u64,
        pub net_received_packets: u64,
        pub net_sent_packets: u64,
        /// Load averages over 1, 5 and 15 minutes, in thousandths.
        pub load_1m_milli: u32,
        pub load_5m_milli: u32,
        pub load_15m_milli: u32,
        pub tcp_established: u32,
        /// Threads that wait uninterruptibly, usually for a disk.
        pub uninterruptible: u32,
        pub run_queue: u32,
        /// Zero.
        pub reserved: u64,
    }
}

described! {
    /// The sockets of the node's foreign server, at all of its addresses, every 10 ms.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
    #[repr(align(64))]
    pub struct Sockets {
        /// As in [`Hot`](crate::Hot).
        pub sequence: u32,
        /// As in [`Hot`](crate::Hot).
        pub check: u32,
        /// As in [`Hot`](crate::Hot).
        pub generation: u32,
        /// Listening sockets.
        pub listening: u16,
        /// Listening sockets that found no room in the programs' table: their queues are left out.
        pub dropped: u16,
        /// When it was written, in ns of the node's monotonic clock.
        pub time_ns: u64,
        /// Established connections, those that wait to be accepted included.
        pub established: u32,
        /// Connections that wait to be accepted.
        pub queue: u32,
        /// How many may wait.
        pub queue_max: u32,
        /// Zero.
        pub reserved: u32,
        /// Zero.
        pub zero: [u64; 3],
    }
}

described! {
    /// A CPU's place.
    struct Place {
        slot: Slot,
        /// The writer's own: what makes its run queue's clock the monotonic one.
        clock_offset_ns: u64,
        /// The writer's own: until when that holds.
        clock_until_ns: u64,
        slot_zero: u64,
        tick: Tick,
        #[word(PENDING)]
        pending: u64,
        zero: [u64; 3],
    }

    /// A load region with further parts behind it.
    pub(crate) struct KernelRegion {
        load: LoadRegion,
        beat: Beat,
        sockets: Sockets,
        places: [Place; PLACES_MAX],
        machine: Machine,
    }
}

record!(Beat, BEAT_BYTES, LINE_BYTES);
record!(Slot, SLOT_BYTES, 8);
record!(Tick, TICK_BYTES, 8);
record!(Machine, MACHINE_BYTES, LINE_BYTES);
record!(Sockets, SOCKETS_BYTES, LINE_BYTES);

/// The slot of CPU `cpu`.
pub const fn kernel_slot(cpu: usize) -> usize {
    assert!(cpu < PLACES_MAX, "a CPU without a place");
    KERNEL_PLACES + cpu * PLACE_BYTES
}

const _: () = {
    assert!(offset_of!(Beat, net_bytes) == 32 && offset_of!(Beat, cpu_used_ns) == 48);
    assert!(offset_of!(Slot, runnable) == 12 && offset_of!(Slot, switches) == 32);
    assert!(offset_of!(Tick, slot_sequence) == 24);
    assert!(offset_of!(Machine, load_1m_milli) == 160 && offset_of!(Machine, reserved) == 184);
    assert!(offset_of!(Sockets, established) == 24);
    assert!(KERNEL_PLACES.is_multiple_of(LINE_BYTES) && KERNEL_BYTES.is_multiple_of(LINE_BYTES));
    assert!(PLACE_PENDING + 8 <= PLACE_BYTES && SLOT_BYTES <= LINE_BYTES);
    assert!(KERNEL_BYTES == 17_088);
};
