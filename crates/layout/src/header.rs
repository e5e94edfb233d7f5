//! The region header: the first line of every region, with its kind, owner and layout.

use bytemuck::{Pod, Zeroable};

use crate::hash::fnv1a;
use crate::record::{DETAIL_BYTES, HOT_BYTES};

/// "SIDELONG" in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIDELONG");
/// Version of the layout. Raise it with every change that readers must know of.
pub const LAYOUT_VERSION: u32 = 13;
/// Size of [`RegionHeader`] in bytes.
pub const HEADER_BYTES: usize = 64;

/// Hash of the sizes, offsets and meanings of everything in regions: FNV-1a of `DESCRIPTION`.
pub const LAYOUT_HASH: u64 = fnv1a(DESCRIPTION.as_bytes());

/// Every field with its width, in order. Edit it with the structs: the offsets below are asserted, the names are not.
const DESCRIPTION: &str = "header64:magic8,version4,kind4,layout8,incarnation8,len8,cluster8,reserved16;\
hot64:sequence4,check4,generation4,valid2,run_queue2,time_ns8,cpu_permille2,memory_permille2,\
pending_interrupts2,workers2,net_bytes_per_s8,connections4,queued4,served8,busy4,service_us4;\
detail192:sequence4,check4,generation4,pid4,time_ns8,load4x3,threads4,cpu8x4,switches8,interrupts8,memory8x2,\
net8x4,tcp4,cpus4,errors8,sent8,reserved32;\
lock:owner12,incarnation12,sequence40;budget:floor14,current14,generation36;\
ownership:state4(free,serving,draining,held,pinned,changing),site12,next12,generation36;\
ack:code8,cause4,step4,generation36,kind4(ack1,changed2,undone3,failed4);\
load:header64,hot64,ack64,detail192;\
beat64:sequence4,check4,generation4,valid2,cpus2,time_ns8,memory_permille2,places2,run_queue4,net_bytes8,\
tcp_established4,accept_queue4,cpu_used_ns8,beats4,unplaced4;slot40:sequence4,check4,generation4,runnable2,flags2,time_ns8,\
busy_ns8,switches8;tick32:sequence4,check4,generation4,runnable2,flags2,time_ns8,slot_sequence4,reserved4;\
pending:raised32,serving16,pending16;machine192:sequence4,check4,generation4,valid2,cpus2,time_ns8,cpu8x8,switches8,\
interrupts8,memory8x2,pressure8,net8x4,load4x3,tcp4,uninterruptible4,run_queue4,reserved8;\
ports320:sequence4,check4,generation4,count2,dropped2,time_ns8,(port2,sockets2,established4,queue4,queue_max4)x16,\
reserved40;kernel:load384,beat64,(slot64,tick32,pending8,zero24)x128,machine192,ports320;words:header64,ownership64;board:header64,site(lock64,budget64,counter64xedges);\
share:header64,beat8,zero56,node(in_flight24,answers40),site(verdict8);\
front:header64,node(seen1,generation36,requests27);\
choice:header64,time8,stale8,sites4,nodes4,balance8,rotation8,servers8,zero16,site(verdict8,members8,zero48,name64),\
node(ownership8,reading8,health8,requests8,zero32),list(node2),server(family2,port2,node4,address16,zero8);\
workers:header64,node(sent8,trial8,uncounted8,zero40),slot(pid4,started4,zero56,node(in_flight8,unanswered8,answers8,\
refused4,failed4))x128;\
cache:header64,life64,(reads64,hash8x4096)xcaches,bucket64,items;\
life:flush8,began8,generation8,seed16,age8,zero16;flush:epoch16,flush_at32;entry:at32,units16,tag16;\
item:stamp8,cas8,value4,flags4,expires4,accessed4,key,value,remote(check8);stamp:marks8(live,fetched,stale,won),key8,epoch16,generation32;\
claims:header64,claim(tag24,until_ms40)x4096";

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
    /// A node's load record that the kernel keeps: a load region with further parts behind it.
    Kernel = 5,
    /// What an edge shares with other edges: its requests at each node, its verdict on each site.
    Share = 7,
    /// What a front states about each node: the ownership that it has seen, and its requests there.
    Front = 8,
    /// What a front tells the workers of the proxy that it controls.
    Choice = 9,
    /// What these workers tell it.
    Workers = 10,
    /// A cache's items.
    Cache = 11,
    /// Claims of those who read a node's documents on asking it for one.
    Claims = 12,
}

/// One life of a process that exposes regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Hash of what all parts of the process's cluster must have alike; 0 for a process of no cluster.
    pub cluster: u64,
    /// Number that distinguishes this life of the process from its earlier ones.
    pub incarnation: u64,
}

impl Instance {
    /// A process of no cluster.
    pub const fn alone(incarnation: u64) -> Self {
        Instance { cluster: 0, incarnation }
    }
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
    /// [`Instance::incarnation`] of the process that exposes the region.
    pub incarnation: u64,
    /// The region's length in bytes, this header included.
    pub len: u64,
    /// [`Instance::cluster`] of that process.
    pub cluster: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RegionHeader>() == HEADER_BYTES && align_of::<RegionHeader>() == 64);
    assert!(offset_of!(RegionHeader, layout_hash) == 16 && offset_of!(RegionHeader, len) == 32);
    assert!(offset_of!(RegionHeader, cluster) == 40 && offset_of!(RegionHeader, reserved) == 48);
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
    /// The part that exposes it has another cluster file.
    #[error(
        "region of a part with another cluster file (hash {found:016x}, here {expected:016x}): give all parts the same \
         sites, nodes and edges in the same order"
    )]
    Cluster {
        /// What the header says.
        found: u64,
        /// The reader's.
        expected: u64,
    },
    /// Another kind of region.
    #[error("region of kind {found}, expected {expected:?}")]
    Kind {
        /// The kind in the header.
        found: u32,
        /// The kind expected.
        expected: RegionKind,
    },
    /// The length is not that of its kind.
    #[error("region of {found} bytes, expected {expected}")]
    Length {
        /// The length in the header.
        found: u64,
        /// The length expected.
        expected: u64,
    },
}

impl RegionHeader {
    /// The header of a region that a process of this build exposes.
    pub const fn new(kind: RegionKind, instance: Instance, len: usize) -> Self {
        RegionHeader {
            magic: MAGIC,
            version: LAYOUT_VERSION,
            kind: kind as u32,
            layout_hash: LAYOUT_HASH,
            incarnation: instance.incarnation,
            len: len as u64,
            cluster: instance.cluster,
            reserved: [0; 2],
        }
    }

    /// As words to store.
    pub fn words(&self) -> [u64; HEADER_BYTES / 8] {
        bytemuck::cast(*self)
    }

    /// From the words of a region, if this build may read it as a `kind` of `len` bytes in `cluster`; 0 for any.
    ///
    /// # Errors
    /// What differs, named.
    pub fn checked(
        words: &[u64; HEADER_BYTES / 8],
        cluster: u64,
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
        } else if cluster != 0 && header.cluster != cluster {
            Err(HeaderError::Cluster { found: header.cluster, expected: cluster })
        } else if header.kind != kind as u32 {
            Err(HeaderError::Kind { found: header.kind, expected: kind })
        } else if header.len != len as u64 {
            Err(HeaderError::Length { found: header.len, expected: len as u64 })
        } else {
            Ok(header)
        }
    }
}
