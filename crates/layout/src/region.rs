//! The kinds of region: what each holds, the hash of that, and the check of a header before its region is used.

use crate::LINE_BYTES;
use crate::cache::CacheRegion;
use crate::choice::ChoiceRegion;
use crate::claim::ClaimsRegion;
use crate::describe::{Described, Type, values};
use crate::front::FrontRegion;
use crate::hash::fnv1a_on;
use crate::header::{HEADER_BYTES, LAYOUT_VERSION, MAGIC, RegionHeader};
use crate::kernel::KernelRegion;
use crate::map::{BoardRegion, LoadRegion, WordsRegion};
use crate::share::ShareRegion;
use crate::workers::WorkersRegion;

values! {
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
}

impl RegionKind {
    /// Description of all that such a region holds.
    pub const fn holds(self) -> &'static Type {
        match self {
            RegionKind::Load => LoadRegion::TYPE,
            RegionKind::Words => WordsRegion::TYPE,
            RegionKind::Board => BoardRegion::TYPE,
            RegionKind::Raw => RegionHeader::TYPE,
            RegionKind::Kernel => KernelRegion::TYPE,
            RegionKind::Share => ShareRegion::TYPE,
            RegionKind::Front => FrontRegion::TYPE,
            RegionKind::Choice => ChoiceRegion::TYPE,
            RegionKind::Workers => WorkersRegion::TYPE,
            RegionKind::Cache => CacheRegion::TYPE,
            RegionKind::Claims => ClaimsRegion::TYPE,
        }
    }

    /// Hash of that description. Builds in which it differs do not use each other's regions of the kind, unless one's layout
    /// [extends](Self::extends) the other's.
    pub const fn layout_hash(self) -> u64 {
        // In the test build nothing is described that is not in the other.
        match self.extends() {
            Some(_) if cfg!(sidelong_next) => fnv1a_on(self.described_hash(), b"next"),
            _ => self.described_hash(),
        }
    }

    /// The layout of the release before, if this build's is another one that begins with that. So parts of both releases use each other's
    /// regions of the kind. Who has the longer layout must do without its end in a region of the other's.
    ///
    /// Whoever appends to a kind of region, or gives a name to what was reserved and zero, names here the hash that the release before had.
    pub const fn extends(self) -> Option<Extended> {
        match self {
            Self::Load | Self::Words | Self::Board | Self::Share | Self::Front if cfg!(sidelong_next) => {
                Some(Extended { hash: self.described_hash(), bytes: TAIL_BYTES })
            }
            _ => None,
        }
    }

    const fn described_hash(self) -> u64 {
        const HASHES: [u64; 16] = {
            let (mut hashes, mut at) = ([0; 16], 0);
            while at < RegionKind::ALL.len() {
                let kind = RegionKind::ALL[at];
                hashes[kind as usize] = kind.holds().hash();
                at += 1;
            }
            hashes
        };
        HASHES[self as usize]
    }
}

/// A layout with which another one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    /// Its hash.
    pub hash: u64,
    /// By how many bytes it is shorter.
    pub bytes: usize,
}

/// What a build of tests of upgrades (`--cfg sidelong_next`) has at the end of a node's, an edge's and the board's regions: more than any release.
pub(crate) const TAIL_BYTES: usize = if cfg!(sidelong_next) { LINE_BYTES } else { 0 };

/// Hash of what all regions begin with. Builds in which it differs do not connect to each other.
pub const HEADER_HASH: u64 = RegionKind::Raw.layout_hash();

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

/// Why a region is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// It is not Sidelong's.
    #[error("not a Sidelong region (magic {0:#018x})")]
    Magic(u64),
    /// Another version wrote it.
    #[error(
        "region of layout version {found}, this build reads {LAYOUT_VERSION}: run one release on all processes"
    )]
    Version {
        /// The writer's.
        found: u32,
    },
    /// The same version, in which that kind of region was another.
    #[error(
        "{kind:?} region of layout {found:#018x}, this build reads {:#018x}: run one release on all processes, or two that follow each other",
        kind.layout_hash()
    )]
    Layout {
        /// The kind.
        kind: RegionKind,
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
            layout_hash: kind.layout_hash(),
            incarnation: instance.incarnation,
            len: len as u64,
            cluster: instance.cluster,
            epoch: 0,
            extends: match kind.extends() {
                Some(extended) => extended.hash,
                None => 0,
            },
        }
    }

    /// The header of a region that this build takes over, as a `kind` of `len` bytes. What a later release has at its end is nobody's from now
    /// on.
    #[must_use]
    pub const fn taken_over(self, kind: RegionKind, incarnation: u64, len: usize) -> Self {
        let RegionHeader { layout_hash, extends, .. } =
            RegionHeader::new(kind, Instance { cluster: self.cluster, incarnation }, len);
        RegionHeader { layout_hash, extends, len: len as u64, incarnation, ..self }
    }

    /// Whether a process has taken it over that has more at its end than `self`, which others go on with.
    #[must_use]
    pub fn has_grown(&self, now: &Self) -> bool {
        let RegionHeader { layout_hash, extends, len, epoch, .. } = *now;
        extends == self.layout_hash
            && len >= self.len
            && *now == RegionHeader { layout_hash, extends, len, epoch, ..*self }
    }

    /// As words to store.
    pub fn words(&self) -> [u64; HEADER_BYTES / 8] {
        bytemuck::cast(*self)
    }

    /// From the words of a region, if this build may read it as a `kind` of `len` bytes in `cluster`; 0 for any. One of another release may be
    /// longer, or shorter by what this build's layout [extends](RegionKind::extends) it.
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
        let (own, before) = (kind.layout_hash(), kind.extends());
        // What its length may be: at least and at most.
        let len = len as u64;
        let is_last = |last: &Extended| last.hash == header.layout_hash;
        let lengths = match (header.layout_hash, header.extends, before.filter(is_last)) {
            (found, ..) if found == own => Some((len, len)),
            (_, extended, _) if extended == own => Some((len, u64::MAX)),
            (.., Some(last)) => len.checked_sub(last.bytes as u64).map(|shorter| (shorter, shorter)),
            (.., None) => None,
        };
        let fits = |(least, most): (u64, u64)| (least..=most).contains(&header.len);
        if header.magic != MAGIC {
            Err(HeaderError::Magic(header.magic))
        } else if header.version != LAYOUT_VERSION {
            Err(HeaderError::Version { found: header.version })
        } else if header.kind == kind as u32 && lengths.is_none() {
            Err(HeaderError::Layout { kind, found: header.layout_hash })
        } else if cluster != 0 && header.cluster != cluster {
            Err(HeaderError::Cluster { found: header.cluster, expected: cluster })
        } else if header.kind != kind as u32 {
            Err(HeaderError::Kind { found: header.kind, expected: kind })
        } else if !lengths.is_some_and(fits) {
            Err(HeaderError::Length { found: header.len, expected: len })
        } else {
            Ok(header)
        }
    }
}
