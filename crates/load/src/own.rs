//! A node's own record, read by the node itself for its metrics.

use std::hint;

use sidelong_fabric::Region;
use sidelong_layout::{Detail, Hot, KERNEL_MACHINE, LOAD_DETAIL, LOAD_HOT, Machine, RegionKind, Rejected};

use crate::kept::{self, Look, NodeState};
use crate::listener::Foreign;
use crate::snapshot::OFFSET;

/// Most copies of a part; the writer may have torn all but the last.
const COPIES_MAX: u32 = 3;

/// Both parts of a record, as far as available.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnRecord {
    /// The hot line.
    pub hot: Option<Hot>,
    /// The detail part.
    pub detail: Option<Detail>,
}

/// Reads a node's own record in its load region, whether a thread or the kernel keeps it.
#[derive(Debug)]
pub struct OwnReader {
    region: Region,
    /// `Some` if the kernel keeps it.
    kept: Option<NodeState>,
}

impl OwnReader {
    /// A reader of a load region that this process exposes, of a node whose server may be foreign.
    pub fn new(region: Region, foreign: Option<Foreign>) -> Self {
        let kept = (region.key().kind == RegionKind::Kernel).then(|| NodeState::of(foreign));
        OwnReader { region, kept }
    }

    /// The record as it is, of any age.
    pub fn read(&mut self) -> OwnRecord {
        let OwnReader { region, kept } = self;
        let own = whole(|| Detail::validated(&words(region, LOAD_DETAIL)));
        let Some(kept) = kept else {
            return OwnRecord { hot: whole(|| Hot::validated(&words(region, LOAD_HOT))), detail: own };
        };
        let machine = whole(|| Machine::validated(&words(region, KERNEL_MACHINE)));
        OwnRecord { hot: composed(region, kept), detail: machine.map(|machine| kept::detail(&machine, own)) }
    }
}

/// The hot line composed of the kernel's records. The first copy only tells how many there are.
fn composed(region: &Region, kept: &mut NodeState) -> Option<Hot> {
    for _ in 0..=COPIES_MAX {
        let words: Vec<u64> = (0..kept.bytes() / 8).map(|word| region.load(OFFSET + word * 8)).collect();
        match kept.look(&words) {
            (Look::Whole(hot), _) => return Some(hot),
            (Look::Again, _) | (_, true) => hint::spin_loop(),
            (Look::Torn | Look::Never | Look::Old, false) => return None,
        }
    }
    None
}

fn words<const W: usize>(region: &Region, offset: usize) -> [u64; W] {
    std::array::from_fn(|index| region.load(offset + index * 8))
}

/// The first copy that is consistent.
fn whole<R>(copy: impl Fn() -> Result<R, Rejected>) -> Option<R> {
    for _ in 0..COPIES_MAX {
        match copy() {
            Ok(record) => return Some(record),
            Err(Rejected::Never) => return None,
            Err(Rejected::Writing | Rejected::Torn) => hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_copy_is_made_again_and_not_for_ever() {
        let tries = std::cell::Cell::new(0);
        let torn_before = |good| {
            tries.set(0);
            whole(|| {
                tries.set(tries.get() + 1);
                if tries.get() < good { Err(Rejected::Torn) } else { Ok(tries.get()) }
            })
        };
        assert_eq!(torn_before(3), Some(3));
        assert_eq!((torn_before(4), tries.get()), (None, 3));
        assert_eq!(whole::<Hot>(|| Err(Rejected::Never)), None);
    }
}
