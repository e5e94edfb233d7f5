//! The first line of every region: what it is, whose, and in which layout.

use bytemuck::{Pod, Zeroable};

use crate::record::{DETAIL_BYTES, HOT_BYTES};

/// "SIDELONG" in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIDELONG");
/// Raised by every change of layout that readers must know of.
pub const LAYOUT_VERSION: u32 = 5;
/// Size of [`RegionHeader`] in bytes.
pub const HEADER_BYTES: usize = 64;

/// Over the sizes, offsets and meanings of all that lies in regions: FNV-1a of `DESCRIPTION`.
pub const LAYOUT_HASH: u64 = fnv1a(DESCRIPTION.as_bytes());

/// Every field with its width, in order. Edit it with the structs: the offsets below are asserted, the names are not.
const DESCRIPTION: &str = "hot64:sequence4,check4,generation4,valid2,run_queue2,time_ns8,cpu_permille2,memory_permille2,\
pending_interrupts2,workers2,net_bytes_per_s8,connections4,queued4,served8,busy4,service_us4;\
detail192:sequence4,check4,generation4,pid4,time_ns8,load4x3,threads4,cpu8x4,switches8,interrupts8,memory8x2,\
net8x4,tcp4,cpus4,errors8,sent8,reserved32;\
lock:owner12,incarnation12,sequence40;budget:floor14,current14,generation36;\
ownership:state4,site12,next12,generation36;ack:generation36,state4;\
load:header64,hot64,ack64,detail192;\
beat64:sequence4,check4,generation4,valid2,cpus2,time_ns8,memory_permille2,places2,run_queue4,net_bytes8,\
tcp_established4,accept_queue4,cpu_used_ns8,beats4,unplaced4;slot40:sequence4,check4,generation4,runnable2,flags2,time_ns8,\
busy_ns8,switches8;tick32:sequence4,check4,generation4,runnable2,flags2,time_ns8,slot_sequence4,reserved4;\
pending:raised32,serving16,pending16;machine192:sequence4,check4,generation4,valid2,cpus2,time_ns8,cpu8x8,switches8,\
interrupts8,memory8x2,pressure8,net8x4,load4x3,tcp4,uninterruptible4,run_queue4,reserved8;\
ports320:sequence4,check4,generation4,count2,dropped2,time_ns8,(port2,sockets2,established4,queue4,queue_max4)x16,\
reserved40;kernel:load384,beat64,(slot64,tick32,pending8,zero24)x128,machine192,ports320;words:header64,ownership64;board:header64,site(lock64,budget64,counter64xedges);verdicts:header64,site(verdict8,time8,stale8,rotation8,zero32,name64);\
share:header64,beat8,zero56,node(in_flight24,answers40),site(verdict8)";

/// What a region holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RegionKind {
    /// A node's load record and its acknowledgement.
    Load = 1,
    /// A node's ownership.
    Words = 2,
    /// The sites' locks, budgets and counters.
    Board = 3,
    /// Anything else: benchmarks and tests.
    Raw = 4,
    /// A node's load record that the kernel keeps: what a load region has, and more behind it.
    Kernel = 5,
    /// What a helper decides of each site's requests.
    Verdicts = 6,
    /// What an edge lets other edges know: its requests at each node, its verdict on each site.
    Share = 7,
}

/// The first line of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct RegionHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`LAYOUT_VERSION`] of the writer.
    pub version: u32,
    /// A [`RegionKind`].
    pub kind: u32,
    /// [`LAYOUT_HASH`] of the writer.
    pub layout_hash: u64,
    /// Which life of the process that offers the region.
    pub incarnation: u64,
    /// The region's length in bytes, this header included.
    pub len: u64,
    /// A board's dimensions, else 0.
    pub sites: u32,
    /// Likewise.
    pub edges: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RegionHeader>() == HEADER_BYTES && align_of::<RegionHeader>() == 64);
    assert!(offset_of!(RegionHeader, layout_hash) == 16 && offset_of!(RegionHeader, len) == 32);
    assert!(offset_of!(RegionHeader, reserved) == 48);
    assert!(HOT_BYTES == 64 && DETAIL_BYTES == 192);
};

/// Why a region is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// It is not Sidelong's.
    #[error("not a Sidelong region (magic {0:#018x})")]
    Magic(u64),
    /// Another version wrote it.
    #[error(
        "region of layout version {found}, this build reads {LAYOUT_VERSION}: run one version on all processes"
    )]
    Version {
        /// The writer's.
        found: u32,
    },
    /// The same version, built differently.
    #[error(
        "region of layout {found:#018x}, this build reads {LAYOUT_HASH:#018x}: run one build on all processes"
    )]
    Layout {
        /// The writer's.
        found: u64,
    },
    /// Another kind of region.
    #[error("region of kind {found}, expected {expected:?}")]
    Kind {
        /// What the header says.
        found: u32,
        /// What was looked for.
        expected: RegionKind,
    },
    /// The length is not that of its kind.
    #[error("region of {found} bytes, expected {expected}")]
    Length {
        /// What the header says.
        found: u64,
        /// What was looked for.
        expected: u64,
    },
}

impl RegionHeader {
    /// The header of a region of this build.
    pub const fn new(kind: RegionKind, incarnation: u64, len: usize) -> Self {
        RegionHeader {
            magic: MAGIC,
            version: LAYOUT_VERSION,
            kind: kind as u32,
            layout_hash: LAYOUT_HASH,
            incarnation,
            len: len as u64,
            sites: 0,
            edges: 0,
            reserved: [0; 2],
        }
    }

    /// As words to store.
    pub fn words(&self) -> [u64; HEADER_BYTES / 8] {
        bytemuck::cast(*self)
    }

    /// From the words of a region, if this build may read it as a `kind` of `len` bytes.
    ///
    /// # Errors
    /// What differs, named.
    pub fn checked(
        words: &[u64; HEADER_BYTES / 8],
        kind: RegionKind,
        len: usize,
    ) -> Result<RegionHeader, HeaderError> {
        let header: RegionHeader = bytemuck::cast(*words);
        if header.magic != MAGIC {
            Err(HeaderError::Magic(header.magic))
        } else if header.version != LAYOUT_VERSION {
            Err(HeaderError::Version { found: header.version })
        } else if header.layout_hash != LAYOUT_HASH {
            Err(HeaderError::Layout { found: header.layout_hash })
        } else if header.kind != kind as u32 {
            Err(HeaderError::Kind { found: header.kind, expected: kind })
        } else if header.len != len as u64 {
            Err(HeaderError::Length { found: header.len, expected: len as u64 })
        } else {
            Ok(header)
        }
    }
}

/// FNV-1a, 64 bits (draft-eastlake-fnv, section 6).
const fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}
