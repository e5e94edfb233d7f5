//! The load record of a node: one hot line with what a decision needs, and a detail part for people and metrics.
//!
//! There is one writer, which notices no reader, and any number of readers. The first eight bytes of each part are a
//! sequence, odd while the writer is inside, and a check over all the other words. The check reveals a torn copy in
//! whatever order a backend copies the line (an RDMA NIC, soft-RoCE's memcpy, eight loads on this machine). Sequence
//! numbers at both ends would not.

use bytemuck::{Pod, Zeroable};

use crate::LINE_BYTES;

/// Size of [`Hot`] in bytes.
pub const HOT_BYTES: usize = 64;
/// Size of [`Detail`] in bytes.
pub const DETAIL_BYTES: usize = 192;

/// Bits of [`Hot::valid`]: the fields that the node's source could fill.
pub mod valid {
    /// `run_queue`.
    pub const RUN_QUEUE: u16 = 1 << 0;
    /// `cpu_permille`.
    pub const CPU: u16 = 1 << 1;
    /// `memory_permille`.
    pub const MEMORY: u16 = 1 << 2;
    /// `net_bytes_per_s`.
    pub const NETWORK: u16 = 1 << 3;
    /// `connections`, `queued`, `busy`, `workers`, `served`, and `by_server` as a service time.
    pub const ORIGIN: u16 = 1 << 4;
    /// `pending_interrupts`.
    pub const INTERRUPTS: u16 = 1 << 5;
    /// All bits of this version that a node with a server of its own can fill.
    pub const ALL: u16 = (1 << 6) - 1;
    /// Others than the edges connect to the foreign server, and the cluster file does not say that nobody else does. So the
    /// node must not move.
    pub const SHARED: u16 = 1 << 13;
    /// `connections` and `queued` alone, as the kernel counts them at the port of a foreign server. Beyond the bits of
    /// [`kept`](crate::kept).
    pub const CONNECTIONS: u16 = 1 << 14;
    /// `busy` and `workers` alone, of a foreign server whose workers each hold a connection.
    pub const WORKERS: u16 = 1 << 15;
}

/// The hot line, from which balance, reconfiguration and admission decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Hot {
    /// Raised by 2 at every publication; odd during one.
    pub sequence: u32,
    /// Check over all the other words; see [`Hot::sealed`].
    pub check: u32,
    /// The incarnation of the writer, so that a dead process's record is never taken for its successor's.
    pub generation: u32,
    /// Which fields hold a value: bits of [`valid`].
    pub valid: u16,
    /// Threads that run or wait for a CPU.
    pub run_queue: u16,
    /// Time of the figures, in ns of the node's monotonic clock.
    pub time_ns: u64,
    /// CPU in use, of all that the node may use: 0-1000.
    pub cpu_permille: u16,
    /// Memory in use, likewise.
    pub memory_permille: u16,
    /// Interrupts and softirqs raised and not yet served.
    pub pending_interrupts: u16,
    /// Requests that the server works on at a time.
    pub workers: u16,
    /// Bytes received and sent in a second.
    pub net_bytes_per_s: u64,
    /// Open connections to the server.
    pub connections: u32,
    /// Requests that wait for a worker.
    pub queued: u32,
    /// Requests served since the server started.
    pub served: u64,
    /// Workers that are serving a request.
    pub busy: u32,
    /// One figure, whose meaning depends on the server: see [`Hot::service_us`] and [`Hot::bypassing`].
    pub by_server: ByServer,
}

/// The figure of a hot line that means one thing of a server that keeps its own figures, and another of a foreign server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct ByServer(u32);

impl ByServer {
    /// Of a server that keeps its own figures: its mean service time of a request, in us.
    pub const fn service_us(service_us: u32) -> Self {
        ByServer(service_us)
    }

    /// Of a foreign server: connections of others than the edges, of late.
    pub const fn bypassing(connections: u32) -> Self {
        ByServer(connections)
    }
}

impl Hot {
    /// The server's mean service time of a request, in us. `None` if the server does not keep its own figures.
    pub fn service_us(&self) -> Option<u32> {
        (self.valid & valid::ORIGIN != 0).then_some(self.by_server.0)
    }

    /// Connections of others than the edges to a foreign server, of late. `None` if the server keeps its own figures.
    pub fn bypassing(&self) -> Option<u32> {
        (self.valid & valid::ORIGIN == 0).then_some(self.by_server.0)
    }
}

/// The detail part, which no decision needs. Units are in the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C, align(64))]
#[expect(missing_docs, reason = "the names carry the meaning and the unit; /proc's own terms")]
pub struct Detail {
    /// As in [`Hot`].
    pub sequence: u32,
    /// As in [`Hot`].
    pub check: u32,
    /// As in [`Hot`].
    pub generation: u32,
    /// The writer's process.
    pub pid: u32,
    pub time_ns: u64,
    /// Load averages over 1, 5 and 15 minutes, in thousandths.
    pub load_1m_milli: u32,
    pub load_5m_milli: u32,
    pub load_15m_milli: u32,
    pub threads: u32,
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    pub cpu_iowait_ns: u64,
    pub cpu_idle_ns: u64,
    pub context_switches: u64,
    pub interrupts: u64,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub net_received_bytes: u64,
    pub net_sent_bytes: u64,
    pub net_received_packets: u64,
    pub net_sent_packets: u64,
    pub tcp_established: u32,
    pub cpus: u32,
    pub errors: u64,
    pub origin_sent_bytes: u64,
    /// Zero; reserved.
    pub reserved: [u64; 4],
}

/// Why a copy of a record was not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// The writer was inside: read again.
    #[error("the record is being written")]
    Writing,
    /// The copy is inconsistent: read again.
    #[error("the record was torn by a write")]
    Torn,
    /// Nothing was published yet.
    #[error("the record was never written")]
    Never,
}

macro_rules! record {
    ($name:ident, $bytes:expr, $align:expr) => {
        const _: () = {
            assert!(size_of::<$name>() == $bytes && align_of::<$name>() == $align);
            assert!(core::mem::offset_of!($name, sequence) == 0 && core::mem::offset_of!($name, check) == 4);
            assert!(
                core::mem::offset_of!($name, generation) == 8 && core::mem::offset_of!($name, time_ns) == 16
            );
        };

        impl $name {
            /// Its number of 8-byte words.
            pub const WORDS: usize = $bytes / 8;

            /// Ready to publish: with its check over everything else, `sequence` included.
            pub fn sealed(mut self) -> Self {
                self.check = check(bytemuck::cast_ref::<_, [u64; Self::WORDS]>(&self));
                self
            }

            /// As words to store. The first holds sequence and check.
            pub fn words(&self) -> [u64; Self::WORDS] {
                bytemuck::cast(*self)
            }

            /// The record in a copy of the memory, if the copy is consistent.
            ///
            /// # Errors
            /// If it is not, or nothing was published; in the first two cases another read is worthwhile.
            pub fn validated(words: &[u64; Self::WORDS]) -> Result<Self, Rejected> {
                let record: Self = bytemuck::cast(*words);
                if record.sequence == 0 {
                    Err(Rejected::Never)
                } else if record.sequence % 2 == 1 {
                    Err(Rejected::Writing)
                } else if record.check != check(words) {
                    Err(Rejected::Torn)
                } else {
                    Ok(record)
                }
            }
        }
    };
}

pub(crate) use record;

record!(Hot, HOT_BYTES, LINE_BYTES);
record!(Detail, DETAIL_BYTES, LINE_BYTES);

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Hot, valid) == 12 && offset_of!(Hot, run_queue) == 14);
    assert!(offset_of!(Hot, cpu_permille) == 24 && offset_of!(Hot, workers) == 30);
    assert!(offset_of!(Hot, net_bytes_per_s) == 32 && offset_of!(Hot, connections) == 40);
    assert!(offset_of!(Hot, served) == 48 && offset_of!(Hot, busy) == 56 && offset_of!(Hot, by_server) == 60);
    assert!(offset_of!(Detail, reserved) == DETAIL_BYTES - 32);
};

/// 32 bits over all words, the check's own place taken as zero. Two independent lanes of multiply and fold (the
/// multipliers are those of wyhash), so it costs a few nanoseconds a line; each step can be done by a BPF program.
pub(crate) fn check(words: &[u64]) -> u32 {
    const A: u64 = 0xa076_1d64_78bd_642f;
    const B: u64 = 0xe703_7ed1_a0b4_28db;
    let sequence = words[0] as u32 as u64;
    let (mut even, mut odd) = (sequence ^ A, B);
    for pair in words[1..].chunks(2) {
        even = fold(even ^ pair[0]);
        odd = fold(odd ^ pair.get(1).copied().unwrap_or(sequence));
    }
    let mixed = fold(even ^ odd.rotate_left(32));
    return (mixed ^ (mixed >> 32)) as u32;

    fn fold(x: u64) -> u64 {
        let x = x.wrapping_mul(A);
        (x ^ (x >> 29)).wrapping_mul(B)
    }
}
