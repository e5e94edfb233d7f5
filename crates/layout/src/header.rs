//! The region header: the first line of every region, with its kind, owner and layout.

use bytemuck::{Pod, Zeroable};

use crate::describe::described;

/// "SIDELONG" in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIDELONG");
/// Version of what all regions have in common. Builds in which it differs do not use each other's regions. What one kind of region holds has a
/// hash of its own ([`RegionKind::layout_hash`](crate::RegionKind::layout_hash)), and may grow without a new version
/// ([`RegionKind::extends`](crate::RegionKind::extends)).
pub const LAYOUT_VERSION: u32 = 16;
/// Size of [`RegionHeader`] in bytes.
pub const HEADER_BYTES: usize = 64;

/// The epoch in a region's header.
pub const HEADER_EPOCH: usize = core::mem::offset_of!(RegionHeader, epoch);

described! {
    /// The first line of a region.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
    #[repr(align(64))]
    pub struct RegionHeader {
        /// [`MAGIC`].
        pub magic: u64,
        /// [`LAYOUT_VERSION`] of the writer.
        pub version: u32,
        /// A [`RegionKind`](crate::RegionKind).
        pub kind: u32,
        /// [`RegionKind::layout_hash`](crate::RegionKind::layout_hash) of that kind, as the writer has it.
        pub layout_hash: u64,
        /// [`Instance::incarnation`](crate::Instance::incarnation) of the process that exposes the region.
        pub incarnation: u64,
        /// The region's length in bytes, this header included.
        pub len: u64,
        /// [`Instance::cluster`](crate::Instance::cluster) of that process.
        pub cluster: u64,
        /// Epoch of the roster that the process goes by; 0 if it goes by its cluster file. Its own CPU stores it.
        pub epoch: u64,
        /// Hash of the layout that the writer's extends ([`RegionKind::extends`](crate::RegionKind::extends)): who has that reads no further. 0 if it
        /// extends none.
        pub extends: u64,
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RegionHeader>() == HEADER_BYTES && align_of::<RegionHeader>() == 64);
    assert!(offset_of!(RegionHeader, layout_hash) == 16 && offset_of!(RegionHeader, len) == 32);
    assert!(offset_of!(RegionHeader, cluster) == 40 && HEADER_EPOCH == 48);
};
